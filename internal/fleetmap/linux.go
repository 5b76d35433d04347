package fleetmap

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// fits are the memory slices at which something still fits, by the profiles and the instances of a GPU: most GPUs of a fleet
// are alike.
type fits map[string]uint64

// at are the memory slices of a GPU on which one more instance fits beside those that there are, a bit each.
func (f fits) at(g *gpu.GPU) uint64 {
	profiles := placement.MIGProfiles(g)
	have := g.MIG.State().Placements
	key := g.Model + " " + gpu.PlacementsText(have)
	for i := range profiles {
		key += " " + profiles[i].Name
	}
	if known, ok := f[key]; ok {
		return known
	}
	var out uint64
	for i := range profiles {
		p := &profiles[i]
		for _, start := range p.Starts {
			if !lies(start, p.Size) {
				continue
			}
			more := append(slices.Clone(have), gpu.MIGPlacement{Profile: p.Name, Start: start})
			if placement.CheckMIGPlacements(profiles, more) == nil {
				for s := start; s < start+p.Size; s++ {
					out |= 1 << s
				}
			}
		}
	}
	f[key] = out
	return out
}

// lies reports whether memory slices are such as a GPU may have: a file may say anything.
func lies(start, size int) bool { return start >= 0 && size >= 1 && size <= 64 && start <= 64-size }

// instances draws the GPU instances of a GPU in MIG mode, in memory slices.
func (b *builder) instances(out *GPU, g *gpu.GPU) {
	slicesOfGPU := int64(0)
	for _, p := range placement.MIGProfiles(g) {
		for _, s := range p.Starts {
			if lies(s, p.Size) {
				slicesOfGPU = max(slicesOfGPU, int64(s+p.Size))
			}
		}
	}
	have := slices.Clone(g.MIG.Instances)
	slices.SortStableFunc(have, func(a, b gpu.GPUInstance) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), strings.Compare(a.Profile, b.Profile))
	})
	fitting := b.fits.at(g)
	gap := func(to int64) {
		for s := out.Units; s < to; {
			end, fit := s+1, s < 64 && fitting&(1<<s) != 0
			for end < to && (end < 64 && fitting&(1<<end) != 0) == fit {
				end++
			}
			out.add(Part{Kind: map[bool]Kind{true: Free, false: Lost}[fit], Size: end - s})
			s = end
		}
	}
	for i := range have {
		in := &have[i]
		gap(min(int64(in.Start), slicesOfGPU))
		if int64(in.Start) != out.Units {
			out.Notes = append(out.Notes, "Instance "+in.Placement().String()+" overlaps another one, or lies outside of the GPU.")
		}
		out.add(b.instance(g, in))
	}
	gap(slicesOfGPU)
	out.fill(Part{Kind: Lost}, 1)
	out.Layout = "MIG " + g.MIG.State().String()
	if mode := placement.LayoutOf(b.host, g).ModeText(); strings.Contains(mode, " with ") {
		out.Layout += strings.ReplaceAll(strings.TrimPrefix(mode, string(gpu.ShareMIG)), "_", " ")
	}
	if g.MIG.Enabled != g.MIG.Pending {
		out.Notes = append(out.Notes, "MIG mode ends with the next reset of the GPU.")
	}
}

// instance is one GPU instance, with the vGPUs and the shares in it.
func (b *builder) instance(g *gpu.GPU, in *gpu.GPUInstance) Part {
	out := Part{Kind: Instance, Name: in.Placement().String(), Size: int64(min(max(in.Size, 1), 64)), Memory: in.Memory}
	inside := Bar{}
	if g.VGPU != nil {
		for i := range g.VGPU.Instances {
			if v := &g.VGPU.Instances[i]; v.GPUInstance != nil && *v.GPUInstance == in.ID {
				inside.add(b.vgpu(g, v, 1))
			}
		}
	}
	if len(inside.Parts) == 0 {
		at := in.Placement()
		inside = b.shares(gpu.SharedDevice{GPU: g.ID, Instance: &at}, Free)
	}
	switch {
	case len(inside.Parts) == 1 && inside.Parts[0].Kind == Free && len(inside.Parts[0].Holders) == 0:
	case len(inside.Parts) == 1 && inside.Parts[0].Kind == Whole: // a share that has all of it
		out.Holders = inside.Parts[0].Holders
	default:
		out.Inside = &inside
	}
	return out
}

// thousandths is how finely the parts of shares are drawn.
const thousandths = 1000

// shares draws the shares of a device by what each takes of it. Where they take more than there is, the bar is as long as what
// they take together. What no share has reserved is the rest, which those use that reserve nothing.
func (b *builder) shares(at gpu.SharedDevice, alone Kind) Bar {
	var out Bar
	d := placement.PlacedDevice(b.host, at)
	rest := Part{Kind: Free, Memory: d.Memory}
	claims := slices.SortedFunc(b.host.ClaimsOf(gpu.ClaimShare), func(a, b *gpu.Claim) int { return strings.Compare(a.ID, b.ID) })
	for _, c := range claims {
		s := c.Want.Share
		if s == nil {
			continue
		}
		for _, on := range s.Devices {
			if !on.Same(at) {
				continue
			}
			who := Holder{Kind: ByShare, Name: s.Name, Owner: c.Owner, Note: shareText(d, s)}
			size := int64(math.Round(min(d.Portion(s), thousandths) * thousandths))
			switch {
			case d.Mode == gpu.ShareWholeGPU || d.Mode == gpu.ShareMIG:
				out.add(Part{Kind: Whole, Name: s.Name, Size: thousandths, Memory: d.Memory, Holders: []Holder{who}})
			case size == 0:
				rest.Holders = append(rest.Holders, who)
			default:
				out.add(Part{Kind: Share, Name: s.Name, Size: size, Memory: d.Request(s), Holders: []Holder{who}})
			}
		}
	}
	if len(out.Parts) == 0 && len(rest.Holders) == 0 {
		out.fill(rest, 1)
		return out
	}
	rest.Memory = 0
	if out.Units >= thousandths && len(rest.Holders) > 0 {
		rest.Size = 1
		out.add(rest)
	}
	out.fill(rest, thousandths)
	if alone == Whole && len(out.Parts) == 1 && out.Parts[0].Kind == Free {
		out.Parts[0].Kind = Whole
	}
	return out
}

// shareText is what a share takes of a device, in words.
func shareText(d *placement.Device, s *gpu.Share) string {
	var out []string
	if n := d.Request(s); n > 0 {
		out = append(out, n.String()+" requested")
	}
	if n := d.Limit(s); n > 0 {
		out = append(out, n.String()+" at most")
	}
	if s.ActiveThreadPercentage > 0 {
		out = append(out, placement.Percent(s.ActiveThreadPercentage)+" of the threads")
	}
	if s.Label != "" {
		out = append(out, "label "+s.Label)
	}
	return strings.Join(out, ", ")
}

// vgpus draws the vGPUs of a GPU by their memory, or as equal parts where that is not known.
func (b *builder) vgpus(out *GPU, g *gpu.GPU) {
	have := slices.Clone(g.VGPU.Instances)
	slices.SortStableFunc(have, func(a, b gpu.VGPUInstance) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), strings.Compare(a.UUID, b.UUID))
	})
	sum, known, most := int64(0), g.VRAM > 0, 0
	for i := range have {
		t, ok := g.VGPU.Offers(have[i].Type)
		known = known && ok && t.FrameBuffer.MiB() > 0
		sum, most = sum+t.FrameBuffer.MiB(), max(most, t.Max)
	}
	for i := range have {
		size := int64(1)
		if t, _ := g.VGPU.Offers(have[i].Type); known {
			size = t.FrameBuffer.MiB()
		}
		out.add(b.vgpu(g, &have[i], size))
	}
	rest := Part{Kind: Free}
	if most > 0 && len(have) >= most {
		rest.Kind = Lost // the last vGPU that the GPU takes is there
	}
	if known {
		rest.Memory = gpu.FromMiB(max(g.VRAM.MiB()-sum, 0))
		out.fill(rest, g.VRAM.MiB())
	} else {
		out.fill(rest, int64(most))
	}
	out.Layout = strings.TrimPrefix(g.VGPU.State().String(), "vgpu:") + ", vGPUs"
	for i := range g.VGPU.Taken {
		out.Notes = append(out.Notes, fmt.Sprintf("%s.", g.VGPU.Taken[i].String()))
	}
}

// vgpu is one vGPU. Who has it is known by name alone.
func (b *builder) vgpu(g *gpu.GPU, v *gpu.VGPUInstance, size int64) Part {
	out := Part{Kind: VGPU, Name: v.Type, Size: size}
	if t, ok := g.VGPU.Offers(v.Type); ok {
		out.Memory = t.FrameBuffer
	}
	names := v.NamedBy
	if v.Holder != "" {
		names = append([]string{v.Holder}, names...)
	}
	for _, name := range names {
		kind := ByProcess
		if rest, is := strings.CutPrefix(name, "VM "); is {
			kind, name = ByVM, rest
		}
		out.Holders = append(out.Holders, Holder{Kind: kind, Name: name, ID: v.UUID})
	}
	if _, unread := b.host.Concerning("", []string{g.ID}, gpu.PartVGPUs); unread && len(names) == 0 {
		out.Kind = Unknown
	}
	return out
}
