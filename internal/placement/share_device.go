package placement

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Device is a whole GPU or a GPU instance, and what shares may take of it.
type Device struct {
	gpu.SharedDevice
	OnGPU *gpu.GPU
	Mode  gpu.ShareMode
	// group is the same for devices of which one share may have several: a process reaches
	// one MPS daemon, and one GPU instance.
	group  string
	Config *gpu.PartitionConfig // nil without a layout of ours
	Memory gpu.Bytes
	part   float64 // of its GPU
	// Oversubscription is how often limits may add up to the device.
	Oversubscription float64
	// Seats is how many shares it takes.
	Seats int
	// Unfit says why it takes none at all.
	Unfit *gpu.Refusal
	// pool is the id and the name of the Linux pool that it is in.
	pool PoolOf

	Shares []*gpu.Share // that have part in it
}

// PoolOf is a pool that a device is in.
type PoolOf struct{ id, name string }

// GPULayout is what a GPU is laid out as.
type GPULayout struct {
	Config *gpu.PartitionConfig
	// inMIG is true in MIG mode, and instances are what it then has.
	inMIG     bool
	Instances []LayoutInstance
}

// LayoutInstance is one GPU instance of a layout.
type LayoutInstance struct {
	gpu.MIGPlacement
	Memory gpu.Bytes
	slices int // of compute
	// incomplete is why no workload can use the instance as a whole, as the end of "it …".
	incomplete string
}

// LayoutOf is what a GPU of a host has, under the config whose claim covers it.
func LayoutOf(h *gpu.Host, g *gpu.GPU) GPULayout {
	l := GPULayout{Config: claimedConfig(h, g.ID)}
	if !g.MIGEnabled() {
		return l
	}
	l.inMIG = true
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		l.Instances = append(l.Instances, newLayoutInstance(g, in.Placement(), in.Memory, incomplete(in)))
	}
	return l
}

// incomplete is why no workload can use an instance as a whole, "" when one can.
func incomplete(in *gpu.GPUInstance) string {
	if in.Filled() {
		return ""
	}
	return in.ComputeText()
}

// newLayoutInstance adds what the profile of an instance tells.
func newLayoutInstance(g *gpu.GPU, at gpu.MIGPlacement, memory gpu.Bytes, incomplete string) LayoutInstance {
	in := LayoutInstance{MIGPlacement: at, Memory: memory, incomplete: incomplete}
	if p, ok := findProfile(MIGProfiles(g), at.Profile); ok {
		in.Memory, in.slices = cmp.Or(memory, p.Memory), p.Slices
	}
	return in
}

// Devices are what shares find on a GPU of a layout: its instances in MIG mode, else the
// GPU itself. A GPU that no share can use is there too, and says why.
func (l GPULayout) devices(g *gpu.GPU) []*Device {
	d := l.device(g, gpu.SharedDevice{GPU: g.ID}, g.VRAM, 0)
	if d.Unfit = l.unfit(d); d.Unfit != nil || !l.inMIG {
		return []*Device{d}
	}
	instances := slices.SortedFunc(slices.Values(l.Instances), func(a, b LayoutInstance) int {
		return comparePlacements(a.MIGPlacement, b.MIGPlacement)
	})
	out := make([]*Device, len(instances))
	for i, in := range instances {
		out[i] = l.device(g, gpu.SharedDevice{GPU: g.ID, Instance: &in.MIGPlacement}, in.Memory, in.slices)
		if in.incomplete != "" {
			out[i].Unfit = out[i].lack(LackLayout, in.incomplete, "an instance that workloads can use as a whole",
				"apply the partition config of the GPU")
		}
	}
	return out
}

// unfit is why no share can use a GPU, nil when one can.
func (l GPULayout) unfit(d *Device) *gpu.Refusal {
	g, c := d.OnGPU, l.Config
	if why := ForVMs(g, c); why != "" {
		return d.lack(LackForVMs, why, "a GPU for containers", "choose another GPU; one that is for VMs is not shared with containers")
	}
	switch {
	case g.Problem != "":
		return d.lack(LackLayout, "does not work ("+g.Problem+")", "a GPU that works",
			"repair the GPU or its driver, or replace a share that is on it")
	case l.inMIG && c != nil && !c.HasMIG():
		return d.lack(LackLayout, "is in MIG mode, which its partition config "+strconv.Quote(c.ID)+" does not want",
			"the layout of kind `"+string(c.Kind)+"`", "turn MIG mode off on the GPU and apply the partition config")
	case !l.inMIG && c != nil && c.HasMIG():
		return d.lack(LackLayout, "is not in MIG mode, which its partition config "+strconv.Quote(c.ID)+" wants", "its GPU instances",
			"apply the partition config")
	case !l.inMIG && g.ComputeMode == gpu.ComputeProhibited:
		return d.lack(LackLayout, "is in compute mode prohibited", "a GPU that processes may use", "run `nvidia-smi -c DEFAULT` for it")
	case l.inMIG && len(l.Instances) == 0:
		return d.lack(LackLayout, "is in MIG mode and has no GPU instance", "a GPU instance",
			"create GPU instances with a gpu_partition_config with `mig`")
	}
	return nil
}

// device is one device of a layout. Its memory and compute slices are those of the
// instance.
func (l GPULayout) device(g *gpu.GPU, at gpu.SharedDevice, memory gpu.Bytes, compute int) *Device {
	d := &Device{
		SharedDevice: at, OnGPU: g, Mode: modeIn(l.Config, at), Config: l.Config, Memory: memory, part: partOf(g, at, memory),
		Oversubscription: 1, Seats: 1,
	}
	d.group = string(d.Mode)
	if at.Instance != nil {
		d.group = "instance " + DeviceText(at)
	}
	switch d.Mode {
	case gpu.ShareMPS:
		d.Oversubscription = atLeastOnce(l.Config.MPS.Oversubscription)
		d.Seats = mpsClients(g, at, compute)
		if at.Instance == nil {
			d.group = "mps " + daemonOf(d)
		}
	case gpu.ShareTimeSlicing:
		d.Oversubscription = atLeastOnce(l.Config.TimeSlicing.Oversubscription)
		d.Seats = l.Config.TimeSlicing.Replicas
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
	fits := c != nil && c.HasMIG() == (d.Instance != nil)
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
	n := catalog.MPSClients(g.ComputeCapability, g.Driver.Branch())
	if d.Instance == nil {
		return n
	}
	all := 0
	for _, p := range MIGProfiles(g) {
		all = max(all, p.Slices)
	}
	return max(n*compute/cmp.Or(all, 7), 1)
}

// ForVMs says why a GPU is not for containers: VMs have it, or are to have it.
func ForVMs(g *gpu.GPU, c *gpu.PartitionConfig) string {
	switch {
	case g.Dismounted:
		return "is taken from the host, for passthrough to a VM"
	case c != nil && c.VGPU != nil:
		return "is covered by partition config " + strconv.Quote(c.ID) + ", which makes vGPUs of it"
	case c != nil && c.Kind == gpu.KindGPUP:
		return "is covered by partition config " + strconv.Quote(c.ID) + ", which makes partitions for VMs of it"
	case g.VGPU != nil && len(g.VGPU.Instances) > 0:
		return "has vGPUs: " + g.VGPU.State().String()
	case g.VGPU != nil && g.VGPU.FunctionsOn:
		return "has its virtual functions on, for vGPUs"
	}
	return ""
}

// fraction is the part of the GPU that a share takes with its part in a device.
func (d *Device) fraction(s *gpu.Share) float64 { return d.part * d.Portion(s) }

// Portion is the part of a device that a share takes.
func (d *Device) Portion(s *gpu.Share) float64 {
	memory := 0.0
	if d.Memory > 0 {
		memory = min(float64(d.Request(s))/float64(d.Memory), 1)
	}
	switch d.Mode {
	case gpu.ShareMPS:
		return max(memory, s.ActiveThreadPercentage/100)
	case gpu.ShareTimeSlicing:
		return max(memory, 1/float64(max(d.Seats, 1)))
	case gpu.ShareWholeGPU, gpu.ShareMIG:
	}
	return 1
}

// Taken is what the shares of a device take together.
type Taken struct {
	shares            int
	Request, Limit    gpu.Bytes
	Threads, fraction float64
}

// Taken adds up what the shares of the device have.
func (d *Device) Taken() Taken {
	var t Taken
	for _, s := range d.Shares {
		t = d.add(t, s, 1)
		t.fraction += d.fraction(s)
	}
	return t
}

// add counts so many shares more.
func (d *Device) add(t Taken, s *gpu.Share, n int) Taken {
	t.shares += n
	t.Request += d.Request(s) * gpu.Bytes(n)
	t.Limit += d.Limit(s) * gpu.Bytes(n)
	t.Threads += s.ActiveThreadPercentage * float64(n)
	return t
}

// Request and Limit are the memory that a share wants of the device.
func (d *Device) Request(s *gpu.Share) gpu.Bytes {
	request, _ := s.MemoryOn(d.Memory)
	return request
}

// Limit is the most memory that a share may use of the device, 0 for no limit.
func (d *Device) Limit(s *gpu.Share) gpu.Bytes {
	_, limit := s.MemoryOn(d.Memory)
	return limit
}

// ModeText is how a GPU of a layout is shared: "whole_gpu", "mps", "time_slicing", "mig",
// and "mig with mps" for what is in the instances.
func (l GPULayout) ModeText() string {
	d := gpu.SharedDevice{}
	if l.inMIG {
		d.Instance = &gpu.MIGPlacement{}
	}
	mode := string(modeIn(l.Config, d))
	if l.inMIG && mode != string(gpu.ShareMIG) {
		return string(gpu.ShareMIG) + " with " + mode
	}
	return mode
}
