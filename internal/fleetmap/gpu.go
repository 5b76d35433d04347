package fleetmap

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// meanings are what Windows Admin Center's statuses mean.
var meanings = map[gpu.Status]string{
	gpu.Partitioned:        "VMs may have partitions of it",
	gpu.ReadyForDDA:        "one VM may have it whole",
	gpu.Paravirtualization: "VMs share it without partitions of their own",
	gpu.Assigned:           "a VM has it whole",
}

// gpu is the map of one GPU.
func (b *builder) gpu(g *gpu.GPU) GPU {
	out := GPU{ID: g.ID, Model: cmp.Or(g.Model, "unknown model"), Memory: g.VRAM, Status: string(g.Status), Reason: b.reason(g)}
	if c := b.covering(gpu.ClaimPool, g.ID); c != nil && c.Want.Pool != nil {
		out.Pool, out.Owner = cmp.Or(c.Want.Pool.Name, c.ID), c.Owner
	}
	for i := range b.host.Pools {
		if p := &b.host.Pools[i]; p.Has(g.ID) {
			out.Pool = p.Name
		}
	}
	if c := b.covering(gpu.ClaimConfig, g.ID); c != nil {
		out.Config, out.Owner = c.ID, c.Owner
	}
	if u, is := b.host.UnknownGPU(g.ID); is {
		out.Notes = append(out.Notes, "Cannot be read: "+u.String()+".")
	}
	switch {
	case g.VGPU != nil && len(g.VGPU.Instances) > 0 && !g.MIGEnabled():
		b.vgpus(&out, g)
	case g.MIGEnabled():
		b.instances(&out, g)
	case g.Partitionable != nil && !g.Partitionable.Paravirtual && !g.Dismounted:
		b.gpuP(&out, g)
	default:
		b.whole(&out, g)
	}
	b.processes(&out, g)
	return out
}

// reason says why a GPU cannot be assigned, or what its status means.
func (b *builder) reason(g *gpu.GPU) string {
	if why := rules.Unassignable(g); why != "" {
		if g.Status == gpu.NotAssignable && g.Problem == "" && !g.HostDisplay && g.Partitionable == nil {
			why = change.Passes(gpu.KindGPUP, g) + ", and it cannot be given away whole"
		}
		return why
	}
	if b.host.Platform == gpu.Linux {
		return ""
	}
	if g.Partitionable != nil && g.Partitionable.Paravirtual {
		return change.Passes(gpu.KindGPUP, g)
	}
	return meanings[g.Status]
}

// closed reports whether nobody can be given a GPU.
func closed(g *gpu.GPU) bool { return rules.Unassignable(g) != "" }

// gpuP draws the partitions of a GPU of a Hyper-V host.
func (b *builder) gpuP(out *GPU, g *gpu.GPU) {
	p := g.Partitionable
	held := slices.Clone(p.Partitions)
	slices.SortStableFunc(held, func(a, b gpu.Partition) int { return a.ID - b.ID })
	each := p.PartitionVRAM()
	free := Part{Kind: Free, Memory: each}
	if _, unknown := b.host.Concerning("", []string{g.ID}, gpu.PartPartitions); unknown {
		free.Kind = Unknown
	}
	if closed(g) {
		free.Kind = Closed
	}
	for _, has := range held {
		b.partitions[gpu.FoldID(has.VMID)]++
		out.add(Part{
			Kind: Partition, Name: strconv.Itoa(has.ID), Size: 1, Memory: cmp.Or(has.VRAM, each), Holders: []Holder{b.vm(has.VMID)},
		})
	}
	out.fill(free, int64(p.Count))
	out.fill(Part{Kind: Closed}, 1)
	out.Layout = words.Plural(p.Count, "partition")
	if each > 0 {
		out.Layout += " of " + each.String()
	}
	if n := p.Count - len(held); n < 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("The host lists %d partitions in use of %d.", len(held), p.Count))
	}
	for _, n := range slices.Sorted(slices.Values(p.ValidCounts)) {
		c := Count{Partitions: n, Memory: p.EstimatedPartitionVRAM(n), Now: n == p.Count}
		if c.Now {
			c.Memory = each
		}
		out.Counts = append(out.Counts, c)
	}
	out.Encode, out.Decode = capacityText(p.Encode), capacityText(p.Decode)
}

// capacityText is what of a media engine is free, and what a partition has, in the driver's units; "" where it is not told.
func capacityText(c gpu.Capacity) string {
	if c.Total == 0 {
		return ""
	}
	number := func(n uint64) string {
		if n == math.MaxUint64 {
			return "no limit"
		}
		return strconv.FormatUint(n, 10)
	}
	text := number(c.Available) + " of " + number(c.Total) + " free"
	if most, known := c.Largest(); known {
		text += ", each partition " + number(most)
	}
	return text
}

// whole draws a GPU that is not divided: a VM has it, shares have parts of it, or it is free.
func (b *builder) whole(out *GPU, g *gpu.GPU) {
	var holders []Holder
	for i := range b.host.VMs {
		vm := &b.host.VMs[i]
		for j := range vm.Devices {
			if gpu.SameID(vm.Devices[j].GPU, g.ID) {
				b.devices[deviceKey(vm, j)] = true
				who := b.vm(vm.ID)
				if pool := vm.Devices[j].Pool; pool != "" {
					who.Note = "from pool " + pool
				}
				holders = append(holders, who)
			}
		}
	}
	out.Layout = "whole"
	if len(holders) > 0 {
		out.add(Part{Kind: Whole, Size: 1, Memory: g.VRAM, Holders: holders})
		out.Units = 1
		return
	}
	if closed(g) {
		out.fill(Part{Kind: Closed, Memory: g.VRAM}, 1)
		return
	}
	_, unread := b.host.Concerning("", []string{g.ID}, gpu.PartDevices, gpu.PartVGPUs)
	if g.Dismounted && unread {
		out.fill(Part{Kind: Unknown, Memory: g.VRAM}, 1)
		return
	}
	if b.host.Platform == gpu.Linux && !g.Dismounted {
		out.Layout = strings.ReplaceAll(placement.LayoutOf(b.host, g).ModeText(), "_", " ")
		out.Bar = b.shares(gpu.SharedDevice{GPU: g.ID}, Whole)
		return
	}
	out.fill(Part{Kind: Free, Memory: g.VRAM}, 1)
}

// deviceKey is one device of a VM.
func deviceKey(vm *gpu.VM, at int) string { return gpu.FoldID(vm.ID) + " " + strconv.Itoa(at) }

// processes puts those that run on a GPU where they run.
func (b *builder) processes(out *GPU, g *gpu.GPU) {
	for _, p := range g.Processes {
		who := Holder{Kind: ByProcess, Name: cmp.Or(p.Name, "process"), ID: strconv.Itoa(p.PID), Note: p.Holder}
		if at := out.where(g, p); at != nil {
			if at.Kind == Free {
				at.Kind = Whole
			}
			at.Holders = append(at.Holders, who)
			continue
		}
		out.Beside = append(out.Beside, who)
	}
}

// where is the part that a process runs in, nil where that is none.
func (g *GPU) where(of *gpu.GPU, p gpu.Process) *Part {
	bar := &g.Bar
	var in *Part
	if p.GPUInstance != nil && of.MIG != nil {
		for i := range of.MIG.Instances {
			if have := &of.MIG.Instances[i]; have.ID == *p.GPUInstance {
				in = bar.named(have.Placement().String())
			}
		}
		if in == nil {
			return nil
		}
		if in.Inside == nil {
			return in
		}
		bar = in.Inside
	}
	if p.Share != "" {
		if part := bar.named(p.Share); part != nil && part.Kind == Share {
			return part
		}
	}
	if in == nil && len(bar.Parts) == 1 && (bar.Parts[0].Kind == Free || bar.Parts[0].Kind == Whole) {
		return &bar.Parts[0]
	}
	return in
}

func (b *Bar) named(name string) *Part {
	for i := range b.Parts {
		if b.Parts[i].Name != "" && gpu.SameID(b.Parts[i].Name, name) {
			return &b.Parts[i]
		}
	}
	return nil
}

// add puts a part at the end of what is drawn.
func (b *Bar) add(p Part) {
	p.Start = b.Units
	b.Units += p.Size
	b.Parts = append(b.Parts, p)
}

// fill makes the bar as long as it must at least be, with a part for what is not taken.
func (b *Bar) fill(rest Part, units int64) {
	if rest.Size = units - b.Units; rest.Size > 0 {
		b.add(rest)
	}
}
