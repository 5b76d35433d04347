package rules

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// shareDevice is a whole GPU or a GPU instance, and what shares may take of it.
type shareDevice struct {
	gpu.SharedDevice
	gpu  *gpu.GPU
	mode gpu.ShareMode
	// group is the same for devices of which one share may have several: a process reaches
	// one MPS daemon, and one GPU instance.
	group  string
	config *gpu.PartitionConfig // nil without a layout of ours
	memory gpu.Bytes
	part   float64 // of its GPU
	// oversubscription is how often limits may add up to the device.
	oversubscription float64
	// seats is how many shares it takes.
	seats int
	// unfit says why it takes none at all.
	unfit *ShareLack
	// pool is the id and the name of the Linux pool that it is in.
	pool shareOf

	shares []*gpu.Share // that have part in it
}

// shareOf is a pool that a device is in.
type shareOf struct{ id, name string }

// gpuLayout is what a GPU is laid out as, now or after the plans of a run.
type gpuLayout struct {
	config *gpu.PartitionConfig
	// inMIG is true in MIG mode, and instances are what it then has.
	inMIG     bool
	instances []layoutInstance
}

type layoutInstance struct {
	gpu.MIGPlacement
	memory gpu.Bytes
	slices int // of compute
	// incomplete is true when no workload can use the instance.
	incomplete bool
}

// currentLayout is what a GPU has now, under a config.
func currentLayout(g *gpu.GPU, c *gpu.PartitionConfig) gpuLayout {
	l := gpuLayout{config: c}
	if g.MIG == nil || !g.MIG.Enabled {
		return l
	}
	l.inMIG = true
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		l.instances = append(l.instances, newLayoutInstance(g, in.Placement(), in.Memory, len(in.Compute) == 0))
	}
	return l
}

// placedLayout is what a GPU has once its instances are where they are wanted.
func placedLayout(g *gpu.GPU, c *gpu.PartitionConfig, placements []gpu.MIGPlacement) gpuLayout {
	l := gpuLayout{config: c, inMIG: true}
	for _, at := range placements {
		l.instances = append(l.instances, newLayoutInstance(g, at, 0, false))
	}
	return l
}

// newLayoutInstance adds what the profile of an instance tells.
func newLayoutInstance(g *gpu.GPU, at gpu.MIGPlacement, memory gpu.Bytes, incomplete bool) layoutInstance {
	in := layoutInstance{MIGPlacement: at, memory: memory, incomplete: incomplete}
	if p, ok := findProfile(MIGProfiles(g), at.Profile); ok {
		in.memory, in.slices = cmp.Or(memory, p.Memory), p.Slices
	}
	return in
}

// devices are what shares find on a GPU of a layout: its instances in MIG mode, else the
// GPU itself. A GPU that no share can use is there too, and says why.
func (l gpuLayout) devices(g *gpu.GPU) []*shareDevice {
	whole := func(unfit *ShareLack) []*shareDevice {
		d := l.device(g, gpu.SharedDevice{GPU: g.ID}, g.VRAM, 0)
		if d.unfit = unfit; unfit != nil {
			unfit.Device, unfit.Model = d.SharedDevice, g.Model
		}
		return []*shareDevice{d}
	}
	if why := forVMs(g, l.config); why != "" {
		return whole(&ShareLack{Kind: LackForVMs, Found: why, Wanted: "a GPU for containers", Fix: "Choose another GPU; one that is for VMs is not shared with containers."})
	}
	c := l.config
	switch {
	case g.Problem != "":
		return whole(&ShareLack{Kind: LackLayout, Found: "does not work (" + g.Problem + ")", Wanted: "a GPU that works", Fix: "Repair the GPU or its driver."})
	case l.inMIG && c != nil && c.MIG == nil:
		return whole(&ShareLack{
			Kind: LackLayout, Found: "is in MIG mode, which its partition config " + quote(c.ID) + " does not want", Wanted: "the layout of kind `" + string(c.Kind()) + "`",
			Fix: "Turn MIG mode off on the GPU and apply the partition config.",
		})
	case !l.inMIG && c != nil && c.MIG != nil:
		return whole(&ShareLack{
			Kind: LackLayout, Found: "is not in MIG mode, which its partition config " + quote(c.ID) + " wants", Wanted: "its GPU instances",
			Fix: "Apply the partition config.",
		})
	case !l.inMIG && g.ComputeMode == gpu.ComputeProhibited:
		return whole(&ShareLack{Kind: LackLayout, Found: "is in compute mode prohibited", Wanted: "a GPU that processes may use", Fix: "Run `nvidia-smi -c DEFAULT` for it."})
	case !l.inMIG:
		return whole(nil)
	case len(l.instances) == 0:
		return whole(&ShareLack{
			Kind: LackLayout, Found: "is in MIG mode and has no GPU instance", Wanted: "a GPU instance",
			Fix: "Create GPU instances with a gpu_partition_config with `mig`.",
		})
	}
	instances := slices.SortedFunc(slices.Values(l.instances), func(a, b layoutInstance) int { return comparePlacements(a.MIGPlacement, b.MIGPlacement) })
	out := make([]*shareDevice, len(instances))
	for i, in := range instances {
		out[i] = l.device(g, gpu.SharedDevice{GPU: g.ID, Instance: &in.MIGPlacement}, in.memory, in.slices)
		if in.incomplete {
			out[i].unfit = &ShareLack{
				Device: out[i].SharedDevice, Model: g.Model, Kind: LackLayout,
				Found: "has no compute instance", Wanted: "an instance that workloads can use", Fix: "Apply the partition config of the GPU.",
			}
		}
	}
	return out
}

// device is one device of a layout. Its memory and compute slices are those of the
// instance.
func (l gpuLayout) device(g *gpu.GPU, at gpu.SharedDevice, memory gpu.Bytes, compute int) *shareDevice {
	d := &shareDevice{SharedDevice: at, gpu: g, mode: modeIn(l.config, at), config: l.config, memory: memory, part: partOf(g, at, memory), oversubscription: 1, seats: 1}
	d.group = string(d.mode)
	if at.Instance != nil {
		d.group = "instance " + deviceText(at)
	}
	switch d.mode {
	case gpu.ShareMPS:
		d.oversubscription = atLeastOnce(l.config.MPS.Oversubscription)
		d.seats = mpsClients(g, at, compute)
		if at.Instance == nil {
			d.group = "mps " + gpu.FoldID(l.config.ID)
		}
	case gpu.ShareTimeSlicing:
		d.oversubscription = atLeastOnce(l.config.TimeSlicing.Oversubscription)
		d.seats = l.config.TimeSlicing.Replicas
	case gpu.ShareMIG, gpu.ShareWholeGPU:
	}
	return d
}

// atLeastOnce is an oversubscription as the config means it.
func atLeastOnce(ratio float64) float64 {
	if ratio > 1 {
		return ratio
	}
	return 1
}

// modeIn is how a device is shared under a config, nil for none.
func modeIn(c *gpu.PartitionConfig, d gpu.SharedDevice) gpu.ShareMode {
	fits := c != nil && (c.MIG != nil) == (d.Instance != nil)
	switch {
	case fits && c.MPS != nil:
		return gpu.ShareMPS
	case fits && c.TimeSlicing != nil:
		return gpu.ShareTimeSlicing
	case d.Instance != nil:
		return gpu.ShareMIG
	}
	return gpu.ShareWholeGPU
}

// partOf is how much of its GPU a device is, by memory.
func partOf(g *gpu.GPU, d gpu.SharedDevice, memory gpu.Bytes) float64 {
	if d.Instance == nil || g.VRAM == 0 || memory >= g.VRAM {
		return 1
	}
	return float64(memory) / float64(g.VRAM)
}

// mpsClients is how many clients MPS takes on a device. An instance takes them by its
// part of the GPU's compute slices.
func mpsClients(g *gpu.GPU, d gpu.SharedDevice, compute int) int {
	n := catalog.MPSClients(g.ComputeCapability)
	if d.Instance == nil {
		return n
	}
	all := 0
	for _, p := range MIGProfiles(g) {
		all = max(all, p.Slices)
	}
	return max(n*compute/cmp.Or(all, 7), 1)
}

// forVMs says why a GPU is not for containers: VMs have it, or are to have it.
func forVMs(g *gpu.GPU, c *gpu.PartitionConfig) string {
	switch {
	case g.Dismounted:
		return "is taken from the host, for passthrough to a VM"
	case c != nil && c.VGPU != nil:
		return "is covered by partition config " + quote(c.ID) + ", which makes vGPUs of it"
	case c != nil && c.Kind() == gpu.KindGPUP:
		return "is covered by partition config " + quote(c.ID) + ", which makes partitions for VMs of it"
	case g.VGPU != nil && len(g.VGPU.Instances) > 0:
		return "has vGPUs: " + VGPUText(g.VGPU.State())
	case g.VGPU != nil && g.VGPU.FunctionsOn:
		return "has its virtual functions on, for vGPUs"
	}
	return ""
}

// fraction is the part of the GPU that a share takes with its part in a device.
func (d *shareDevice) fraction(s *gpu.Share) float64 { return d.part * d.portion(s) }

// portion is the part of a device that a share takes.
func (d *shareDevice) portion(s *gpu.Share) float64 {
	memory := 0.0
	if d.memory > 0 {
		memory = min(float64(s.MemoryRequest)/float64(d.memory), 1)
	}
	switch d.mode {
	case gpu.ShareMPS:
		return max(memory, s.ActiveThreadPercentage/100)
	case gpu.ShareTimeSlicing:
		return max(memory, 1/float64(max(d.seats, 1)))
	case gpu.ShareWholeGPU, gpu.ShareMIG:
	}
	return 1
}

// taken is what the shares of a device take together.
type taken struct {
	shares            int
	request, limit    gpu.Bytes
	threads, fraction float64
}

func (d *shareDevice) taken() taken {
	var t taken
	for _, s := range d.shares {
		t.shares++
		t.request += s.MemoryRequest
		t.limit += s.MemoryLimit
		t.threads += s.ActiveThreadPercentage
		t.fraction += d.fraction(s)
	}
	return t
}
