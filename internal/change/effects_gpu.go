package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// GPUEffect is what steps make of one GPU. Of its parts those are nil that stay.
type GPUEffect struct {
	GPU, Model string
	Partitions *PartitionsEffect
	MIG        *MIGEffect
	VGPU       *VGPUEffect
	Sharing    *SharingEffect
	// InTheWay are those who keep it from being done, in words.
	InTheWay []string
}

// PartitionsEffect is another number of partitions.
type PartitionsEffect struct {
	From, To int
	// VRAM is what a partition is expected to have then.
	VRAM gpu.Bytes
	// Holders are the names of the running VMs that hold partitions.
	Holders []string
}

// MIGEffect is another mode or other instances.
type MIGEffect struct {
	From, To gpu.MIGState
	// Keeps, Removes and Creates are instances; Completes are those that are kept and get the
	// compute instance that they lack.
	Keeps, Removes, Creates, Completes []gpu.MIGPlacement
	// Resets is true when the change of mode resets the GPU.
	Resets bool
	// CallsOff is true when a mode that is due with the GPU's next reset is called off.
	CallsOff bool
}

// ChangesMode tells whether MIG mode is switched.
func (e *MIGEffect) ChangesMode() bool { return e.From.Enabled != e.To.Enabled }

// VGPUEffect is other modes or other vGPUs. For a change of mode all of them are removed, and
// those that stay are made again.
type VGPUEffect struct {
	From, To                gpu.VGPUState
	Keeps, Removes, Creates []gpu.VGPUPlace
}

// SharingEffect is how processes share the GPU or its instances. Modes and time slices are ""
// where they stay.
type SharingEffect struct {
	ComputeFrom, ComputeTo gpu.ComputeMode
	SliceFrom, SliceTo     gpu.TimeSlice
	// Daemons are the MPS control daemons of the GPU that change. One of several GPUs is told
	// of with each.
	Daemons []DaemonEffect
}

// DaemonEffect is what becomes of an MPS control daemon.
type DaemonEffect struct {
	Name   string
	Action DaemonAction
	// Clients are the processes that end with the one that there is, in words.
	Clients []string
}

// DaemonAction is what becomes of a daemon.
type DaemonAction string

// Daemon actions.
const (
	DaemonStarts   DaemonAction = "start"
	DaemonRestarts DaemonAction = "restart"
	DaemonEnds     DaemonAction = "remove"
	DaemonLimits   DaemonAction = "configure" // with other limits, for processes that come
)

// Ends are the clients that end.
func (e *SharingEffect) Ends() []string {
	var out []string
	for _, d := range e.Daemons {
		out = append(out, d.Clients...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// gpuEffects tells what steps make of the GPUs of a host.
func gpuEffects(host *gpu.Host, steps []Step) []GPUEffect {
	if !slices.ContainsFunc(steps, func(s Step) bool { return s.GPU != "" || s.Daemon != nil }) {
		return nil
	}
	after := ProjectAll(*host, steps)
	var out []GPUEffect
	for i := range host.GPUs {
		g := &host.GPUs[i]
		e := GPUEffect{GPU: g.ID, Model: g.Model}
		for _, s := range steps {
			switch {
			case s.Daemon != nil:
				e.daemon(host, s)
			case gpu.SameID(s.GPU, g.ID) && rows[s.Op].notes != nil:
				rows[s.Op].notes(&e, host, g, s)
			}
		}
		if is, ok := after.GPU(g.ID); ok {
			e.end(is)
		}
		if e.Partitions != nil || e.MIG != nil || e.VGPU != nil || e.Sharing != nil {
			out = append(out, e)
		}
	}
	return out
}

func noteCount(e *GPUEffect, host *gpu.Host, g *gpu.GPU, s Step) {
	e.Partitions = &PartitionsEffect{From: g.Partitionable.Count, To: s.Count, VRAM: g.Partitionable.EstimatedPartitionVRAM(s.Count)}
	for _, id := range holders(g) {
		if vm, ok := host.VM(id); ok && vm.Name != "" {
			id = vm.Name
		}
		e.Partitions.Holders = append(e.Partitions.Holders, id)
	}
	slices.Sort(e.Partitions.Holders)
	e.Partitions.Holders = slices.Compact(e.Partitions.Holders)
}

// noteMIG and noteVGPU enter what an operation makes of a GPU's instances and vGPUs.
func noteMIG(note func(e *MIGEffect, mig *gpu.MIG, s Step)) func(*GPUEffect, *gpu.Host, *gpu.GPU, Step) {
	return func(e *GPUEffect, _ *gpu.Host, g *gpu.GPU, s Step) {
		if e.MIG == nil {
			e.MIG = &MIGEffect{From: g.MIG.State()}
		}
		note(e.MIG, g.MIG, s)
	}
}

func noteVGPU(note func(e *VGPUEffect, s Step)) func(*GPUEffect, *gpu.Host, *gpu.GPU, Step) {
	return func(e *GPUEffect, _ *gpu.Host, g *gpu.GPU, s Step) {
		if e.VGPU == nil {
			e.VGPU = &VGPUEffect{From: g.VGPU.State()}
		}
		note(e.VGPU, s)
	}
}

// noteMode is that of the modes of vGPUs: the layout at the end shows them.
var noteMode = noteVGPU(func(*VGPUEffect, Step) {})

func noteSharing(note func(e *SharingEffect, g *gpu.GPU, s Step)) func(*GPUEffect, *gpu.Host, *gpu.GPU, Step) {
	return func(e *GPUEffect, _ *gpu.Host, g *gpu.GPU, s Step) { note(e.sharing(), g, s) }
}

func (e *GPUEffect) sharing() *SharingEffect {
	if e.Sharing == nil {
		e.Sharing = &SharingEffect{}
	}
	return e.Sharing
}

// daemon notes a step on an MPS daemon that serves the GPU or shall serve it.
func (e *GPUEffect) daemon(host *gpu.Host, s Step) {
	have, there := host.Daemon(s.Daemon.Name)
	of := func(devices []gpu.SharedDevice) bool {
		return slices.ContainsFunc(devices, func(d gpu.SharedDevice) bool { return gpu.SameID(d.GPU, e.GPU) })
	}
	if !of(s.Daemon.Devices) && (!there || !of(have.Devices)) {
		return
	}
	d := DaemonEffect{Name: s.Daemon.Name, Action: DaemonStarts}
	if there {
		d.Clients = processTexts(have.Clients)
		switch {
		case s.Op == OpRemoveDaemon:
			d.Action = DaemonEnds
		case have.WhyRestart(s.Daemon) == "":
			d.Action, d.Clients = DaemonLimits, nil
		case have.PID != 0: // else its servers, and their clients, may live on without it
			d.Action = DaemonRestarts
		}
	}
	sharing := e.sharing()
	if i := slices.IndexFunc(sharing.Daemons, func(o DaemonEffect) bool { return o.Name == d.Name }); i >= 0 &&
		sharing.Daemons[i].Action == DaemonEnds {
		sharing.Daemons[i].Action = DaemonRestarts // whose clients have ended
		return
	}
	sharing.Daemons = append(sharing.Daemons, d)
}

// end notes what the GPU is after the steps.
func (e *GPUEffect) end(is *gpu.GPU) {
	if m := e.MIG; m != nil {
		m.To = is.MIG.State()
		for _, p := range m.From.Placements {
			if !slices.Contains(m.Removes, p) {
				m.Keeps = append(m.Keeps, p)
			}
		}
	}
	if v := e.VGPU; v != nil {
		v.To = is.VGPU.State()
		for _, p := range v.From.Places {
			if !slices.ContainsFunc(v.Removes, func(o gpu.VGPUPlace) bool { return o.Same(p) }) {
				v.Keeps = append(v.Keeps, p)
			}
		}
	}
}

// String says what becomes of the GPU.
func (e GPUEffect) String() string {
	var t effectText
	if p := e.Partitions; p != nil {
		each := ""
		if p.VRAM > 0 {
			each = fmt.Sprintf(", about %s each", p.VRAM)
		}
		t.say("%d → %d partitions%s", p.From, p.To, each)
	}
	if e.MIG != nil {
		t.mig(e.MIG)
	}
	if e.VGPU != nil {
		t.vgpu(e.VGPU)
	}
	if e.Sharing != nil {
		t.sharing(e.Sharing)
	}
	if len(e.InTheWay) > 0 {
		t.say("in the way: %s", strings.Join(e.InTheWay, ", "))
	}
	return strings.Join(t, "; ")
}

// effectText is what becomes of a GPU, part by part.
type effectText []string

func (t *effectText) say(format string, args ...any) { *t = append(*t, fmt.Sprintf(format, args...)) }

func (t *effectText) mode(what string, from, to bool) {
	if from != to {
		t.say("%s switched %s", what, onOff(to))
	}
}

func (t *effectText) mig(m *MIGEffect) {
	switch {
	case m.Resets:
		t.say("MIG mode is switched %s, which resets this GPU", onOff(m.To.Enabled))
	case m.CallsOff:
		t.say("the change of MIG mode that its next reset would make is called off")
	default:
		t.mode("MIG mode is", m.From.Enabled, m.To.Enabled)
	}
	asIs := slices.DeleteFunc(slices.Clone(m.Keeps), func(p gpu.MIGPlacement) bool { return slices.Contains(m.Completes, p) })
	for _, l := range []struct {
		verb string
		of   []gpu.MIGPlacement
	}{{"removes", m.Removes}, {"creates", m.Creates}, {"completes", m.Completes}, {"keeps", asIs}} {
		if len(l.of) > 0 {
			t.say("%s %s", l.verb, gpu.PlacementsText(l.of))
		}
	}
}

func (t *effectText) vgpu(v *VGPUEffect) {
	t.mode("virtual functions are", v.From.FunctionsOn, v.To.FunctionsOn)
	t.mode("heterogeneous mode is", v.From.Heterogeneous, v.To.Heterogeneous)
	for _, l := range []struct {
		verb string
		of   []gpu.VGPUPlace
	}{{"removes", v.Removes}, {"creates", v.Creates}, {"keeps", v.Keeps}} {
		if len(l.of) > 0 {
			t.say("%s %s", l.verb, placement.VGPULayoutText(&gpu.VGPULayout{Types: gpu.VGPUCounts(l.of)}))
		}
	}
}

func (t *effectText) sharing(s *SharingEffect) {
	if s.ComputeTo != "" {
		t.say("compute mode %s → %s", told(string(s.ComputeFrom)), s.ComputeTo)
	}
	if s.SliceTo != "" {
		t.say("time slice %s → %s", told(string(s.SliceFrom)), s.SliceTo)
	}
	verbs := map[DaemonAction]string{
		DaemonStarts: "is started", DaemonRestarts: "is restarted", DaemonEnds: "is stopped",
		DaemonLimits: "gets other limits, for processes that start later",
	}
	for _, d := range s.Daemons {
		ends := ""
		if len(d.Clients) > 0 {
			ends = ", which terminates its clients: " + strings.Join(d.Clients, ", ")
		}
		t.say("MPS daemon %s %s%s", d.Name, verbs[d.Action], ends)
	}
}
