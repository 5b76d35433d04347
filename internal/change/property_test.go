package change_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestRandomChanges makes random changes to random hosts by the steps that are planned for
// them. Wherever a change is cut off, what puts it back makes the host as it was; planned
// again it is nothing; and no VM is off that ran, unless it is to stay off. The host differs in
// nothing from what was declared, and what a reboot takes of that is put back.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	seeds := uint64(200)
	if testing.Short() {
		seeds = 25
	}
	planned, refused, lost, live := map[string]int{}, map[string]int{}, map[string]int{}, 0
	for seed := range seeds {
		for platform, host := range map[string]func() gpu.Host{"hyperv": hyperV, "linux": linux, "kvm": kvm} {
			w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 5)), platform: platform, host: host(), has: map[string]*resource{}, lost: lost}
			for range 20 {
				if kind, ok := w.step(); ok {
					planned[kind]++
				} else {
					refused[kind]++
				}
				if t.Failed() {
					t.Fatalf("seed %d on %s, after:\n  %s", seed, platform, strings.Join(w.history, "\n  "))
				}
			}
			live += w.live
		}
	}
	t.Logf("planned: %v, refused: %v", planned, refused)
	for _, kind := range []string{
		"count", "dda pool", "partition", "pool", "device", "mig", "mps", "time_slicing", "share", "linux pool", "vgpu",
	} {
		if planned[kind] < int(seeds/2) {
			t.Errorf("%d changes of kind %s, refused %d: that proves little", planned[kind], kind, refused[kind])
		}
	}
	if live == 0 {
		t.Error("no update was one that a running VM takes")
	}
	for _, kind := range []string{"mig", "mps", "time_slicing", "share", "vgpu"} {
		if lost[kind] < int(seeds/2) {
			t.Errorf("%d reboots took what a change of kind %s had made: that proves little", lost[kind], kind)
		}
	}
}

// world is a host, and what resources have of it.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	platform string
	host     gpu.Host
	has      map[string]*resource
	history  []string
	ids      int
	live     int            // updates that a running VM takes
	lost     map[string]int // reboots that took something, by the kind of what was made before
}

type resource struct {
	token string
	want  gpu.Want
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](w *world, of ...T) T { return of[w.rng.IntN(len(of))] }

func (w *world) some(of ...string) []string {
	out := slices.DeleteFunc(slices.Clone(of), func(string) bool { return w.chance(40) })
	if len(out) == 0 {
		return []string{pick(w, of...)}
	}
	return out
}

// step plans a random change and makes it. It returns false for one that is refused.
func (w *world) step() (kind string, planned bool) {
	w.t.Helper()
	for i := range w.host.VMs {
		if w.chance(15) { // somebody presses the button
			op := pick(w, change.OpStopVM, change.OpStartVM)
			if after := change.Project(w.host, change.Step{Op: op, VM: w.host.VMs[i].ID}); hasRoom(&after) {
				w.host = w.settled(after)
			}
		}
	}
	kind, label, want := w.choose()
	r := w.has[label]
	if r == nil {
		w.ids++
		r = &resource{token: fmt.Sprintf("token-%d", w.ids)}
	}
	if !r.want.Empty() && w.chance(25) {
		want = gpu.Want{}
	}
	ch := change.Change{Subject: label, Owner: "vdi", Token: r.token, Want: want, Prior: r.want}
	before := w.host
	steps, err := change.Plan(before, name, ch)
	w.history = append(w.history, fmt.Sprintf("%s (gone: %t): %v %v", label, want.Empty(), steps, err))
	if err != nil {
		if refusal, ok := errors.AsType[*gpu.Refusal](err); ok && (refusal.Code == "" || refusal.Found() == "") {
			w.t.Errorf("a refusal says nothing: %+v", refusal)
		}
		return kind, false
	}
	if was, is := r.want.Assignment, want.Assignment; was != nil && is != nil && change.OnlyLiveSettings(*was, *is) {
		w.live++
		claim, _ := before.Claim(gpu.ClaimAssignment, is.VMID)
		waited := claim != nil && claim.Pending // and what it waited with is due
		if !waited && slices.ContainsFunc(steps, func(s change.Step) bool { return s.Op == change.OpStopVM }) {
			w.t.Errorf("%s only writes settings that a running VM takes, and is stopped: %v", label, steps)
		}
	}
	after := cutAnywhere(w.t, before, steps)
	if !hasRoom(&after) {
		return kind, false // a VM would not start
	}
	w.announced(before, after, steps)
	w.host = w.settled(after)
	if w.has[label] = (&resource{token: r.token, want: want}); want.Empty() {
		delete(w.has, label)
	}
	again, err := change.Plan(w.host, name, change.Change{Subject: label, Owner: "vdi", Token: r.token, Want: want, Prior: want})
	if want.Empty() {
		again, err = nil, nil
	}
	if want.Config == nil { // whose claim alone is not written over by the same
		again = change.OnHost(again)
	}
	again = slices.DeleteFunc(again, func(s change.Step) bool { return !s.IsShown() })
	if err != nil || len(again) > 0 {
		w.t.Errorf("%s is planned again: %v %v", label, again, err)
	}
	if starts := slices.ContainsFunc(steps, func(s change.Step) bool { return s.Op == change.OpStartVM }); starts {
		if got := change.Undelivered(&w.host, want.Assignment); got != "" {
			w.t.Errorf("%s has started, and got something else: %s", label, got)
		}
	}
	if !want.Empty() {
		w.asDeclared(kind, label, want)
	}
	return kind, true
}

// asDeclared wants no difference from what has just been made, nor after a reboot and what is
// put back then.
func (w *world) asDeclared(kind, label string, want gpu.Want) {
	if got := differences(&w.host, want); len(got) > 0 {
		w.t.Errorf("%s is made, and differs: %v", label, got)
	}
	if w.platform == "hyperv" || want.Pool != nil {
		return // there a reboot takes nothing
	}
	host := rebooted(w.t, w.host)
	host.Claims = slices.DeleteFunc(host.Claims, func(c gpu.Claim) bool { // what others have of a GPU may be in the way
		return (want.Config == nil || c.Kind != gpu.ClaimConfig || c.ID != want.Config.ID) &&
			(want.Share == nil || (c.Kind != gpu.ClaimShare || c.ID != want.Share.Name) && (c.Kind != gpu.ClaimConfig || c.ID != want.Share.Config))
	})
	if len(differences(&host, want)) > 0 {
		w.lost[kind]++
	}
	for _, l := range change.FindLost(&host) {
		host = change.ProjectAll(host, l.Steps(&host))
	}
	host = w.settled(host)
	if got := differences(&host, want); len(got) > 0 {
		w.t.Errorf("after a reboot and what was put back %s differs: %v", label, got)
	}
	for _, l := range change.FindLost(&host) {
		if l.Restorable() {
			w.t.Errorf("what was put back is to be put back again: %+v", l)
		}
	}
}

// differences are where a host is not as its claim of an object says.
func differences(h *gpu.Host, want gpu.Want) []change.Difference {
	switch {
	case want.Config != nil:
		claim, _ := h.Claim(gpu.ClaimConfig, want.Config.ID)
		return change.Differences(h, want.Config, claim, want.Config.GPUs[name])
	case want.Share != nil:
		claim, ok := h.Claim(gpu.ClaimShare, want.Share.Name)
		if !ok {
			return change.ShareDifferences(h, want.Share, nil)
		}
		return change.ShareDifferences(h, claim.Want.Share, claim)
	case want.Assignment != nil:
		vm, _ := h.VM(want.Assignment.VMID)
		claim, _ := h.Claim(gpu.ClaimAssignment, vm.ID)
		return change.AssignmentDifferences(h, vm, want.Assignment, claim)
	}
	return nil
}

// hasRoom tells whether each VM that runs has what it draws.
func hasRoom(h *gpu.Host) bool {
	held := map[string]int{}
	for _, g := range h.GPUs {
		if g.Partitionable != nil {
			for _, p := range g.Partitionable.Partitions {
				held[p.VMID]++
			}
		}
	}
	return !slices.ContainsFunc(h.VMs, func(vm gpu.VM) bool {
		return vm.Runs() && (held[vm.ID] < len(vm.PartitionAdapters) ||
			slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return d.GPU == "" }))
	})
}

// announced compares what the steps announce with what they do to the VMs.
func (w *world) announced(before, after gpu.Host, steps []change.Step) {
	effects := change.EffectsOf(&before, steps)
	if effects.Drains {
		return // the VMs are on other nodes
	}
	for _, vm := range before.VMs {
		now, ok := after.VM(vm.ID)
		i := slices.IndexFunc(effects.Stops, func(s change.Stop) bool { return s.VM == vm.ID })
		switch {
		case !ok:
			w.t.Errorf("VM %s is gone", vm.Name)
		case i < 0 && now.State != vm.State:
			w.t.Errorf("VM %s was %s and is %s, and nothing says so", vm.Name, vm.State, now.State)
		case i >= 0 && !vm.Runs():
			w.t.Errorf("VM %s is to be stopped, and is %s", vm.Name, vm.State)
		case i >= 0 && effects.Stops[i].Starts != now.Runs():
			w.t.Errorf("VM %s is %s, announced is that it starts: %t", vm.Name, now.State, effects.Stops[i].Starts)
		case i >= 0 && len(effects.Stops[i].Why) == 0 &&
			!slices.ContainsFunc(steps, func(s change.Step) bool { return s.Op == change.OpSetPartitionCount }):
			w.t.Errorf("VM %s is stopped, and nothing says why", vm.Name)
		}
	}
	for _, g := range before.GPUs {
		if p := g.Partitionable; p != nil && len(p.Partitions) > p.Count {
			w.t.Errorf("GPU %s has %d of %d partitions", g.ID, len(p.Partitions), p.Count)
		}
	}
}

// settled is a host that gave its adapters and devices ids, and its daemons processes.
func (w *world) settled(h gpu.Host) gpu.Host {
	h = clone(w.t, h)
	next := func() string { w.ids++; return fmt.Sprintf("id-%d", w.ids) }
	for i := range h.VMs {
		for j := range h.VMs[i].PartitionAdapters {
			if a := &h.VMs[i].PartitionAdapters[j]; a.ID == "" {
				a.ID = next()
			}
		}
		for j := range h.VMs[i].Devices {
			if d := &h.VMs[i].Devices[j]; d.ID == "" {
				d.ID = next()
			}
		}
	}
	if h.MPS != nil {
		for i := range h.MPS.Daemons {
			w.ids++
			h.MPS.Daemons[i].PID = w.ids
		}
	}
	return h
}

// choose picks what one resource shall have next.
func (w *world) choose() (kind, label string, want gpu.Want) {
	if w.platform == "hyperv" {
		return w.chooseHyperV()
	}
	gpus := map[string][]string{name: w.some(cardID(0), cardID(1))}
	c := &gpu.PartitionConfig{
		GPUs: gpus, MaxDisruption: pick(w, gpu.DisruptNone, gpu.DisruptProcessRestart, gpu.DisruptGPUReset),
		QuiesceUnits: []string{"nvidia-dcgm"}, Restore: w.chance(70),
	}
	named := func(kind string) (string, string, gpu.Want) {
		c.ID, c.Name, c.Kind = kind, kind, gpu.Kind(kind)
		return kind, "config " + kind, gpu.Want{Config: c}
	}
	if w.platform == "kvm" {
		c.VGPU = &gpu.VGPULayout{
			Types: pick(w, map[string]int{"L40S-12Q": 2}, map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}, map[string]int{"L40S-24Q": 2}),
		}
		if w.chance(20) {
			c.GPUs, c.VGPU = map[string][]string{name: {cardID(2)}}, &gpu.VGPULayout{Types: map[string]int{"T4-4Q": 1 + w.rng.IntN(4)}}
			kind, label, want := named("vgpu")
			c.ID = "itself"
			return kind, label + " itself", want
		}
		return named("vgpu")
	}
	mps := &gpu.MPSLayout{MultiUser: w.chance(50), ActiveThreadPercentage: pick(w, 0.0, 50)}
	if !mps.MultiUser {
		mps.User = new(1000 + w.rng.IntN(2))
	}
	switch n := w.rng.IntN(10); {
	case n < 3:
		c.MIG = &gpu.MIGLayout{
			Profiles: pick(w, map[string]int{"1g.10gb": 3}, map[string]int{"3g.40gb": 2}, map[string]int{"1g.10gb": 1, "3g.40gb": 1},
				map[string]int{"7g.80gb": 1}),
		}
		if w.chance(10) {
			c.MIG = &gpu.MIGLayout{Off: true}
		} else if w.chance(30) {
			c.MPS = mps
		}
		return named("mig")
	case n < 5:
		c.MPS, c.GPUs = mps, map[string][]string{name: w.some(cardID(1), cardID(2))}
		return named("mps")
	case n < 6:
		c.TimeSlicing, c.GPUs = &gpu.TimeSlicing{Replicas: 4, Interval: pick(w, gpu.TimeSliceShort, gpu.TimeSliceLong)},
			map[string][]string{name: {cardID(2)}}
		return named("time_slicing")
	case n < 7:
		return "linux pool", "pool team", gpu.Want{
			Pool: &gpu.PoolConfig{ID: name + "/team", Name: "team", Members: map[string][]string{name: w.some(cardID(1), cardID(2))}},
		}
	}
	label = pick(w, "team-a", "team-b", "team-c")
	s := &gpu.Share{Name: label, Host: name, Config: pick(w, "mig", "mps", "time_slicing"), Count: 1, MemoryRequest: pick(w, 4*gib, 20*gib)}
	if r := w.has["share "+label]; r != nil && r.want.Share != nil {
		s.Config = r.want.Share.Config
	}
	return "share", "share " + label, gpu.Want{Share: s}
}

func (w *world) chooseHyperV() (kind, label string, want gpu.Want) {
	switch n := w.rng.IntN(10); {
	case n < 3:
		return "count", "config vdi", gpu.Want{Config: &gpu.PartitionConfig{
			ID: "vdi", Kind: gpu.KindGPUP, Name: "vdi", Count: pick(w, 1, 2, 4, 8), GPUs: map[string][]string{name: w.some(split1, split2)},
			MaxDisruption: pick(w, gpu.DisruptNone, gpu.DisruptVMRestart, gpu.DisruptVMRestart), Restore: w.chance(50), Drain: w.chance(10),
		}}
	case n < 5:
		return "dda pool", "pool dda", gpu.Want{Pool: &gpu.PoolConfig{
			ID: name + "/dda", Name: "dda", Members: map[string][]string{name: w.some(whole1, whole2)}, MountBack: w.chance(60),
		}}
	}
	vm := pick(w, 0, 0, 1, 2, 3)
	a := &gpu.Assignment{
		VM: fmt.Sprintf("vm-%d", vm), VMID: vmID(vm), Host: name,
		Power: gpu.Power{AllowShutdown: w.chance(80), NextOff: w.chance(15), StayOff: w.chance(10)},
	}
	if w.chance(40) {
		a.Settings.GuestControlledCache = new(w.chance(50))
	}
	if w.chance(20) {
		a.Settings.AutomaticStopAction = new(pick(w, gpu.StopTurnOff, gpu.StopShutDown))
	}
	kind = pick(w, "partition", "partition", "pool", "device")
	if kind == "device" && vm > 0 {
		kind = "partition" // the rules let only one VM have the GPU
	}
	switch kind {
	case "partition":
		if a.Kind, a.Partition = gpu.AssignPartition, new(gpu.PartitionWant); w.chance(30) {
			a.Partition.PinnedGPU = pick(w, split1, split2)
		} else if w.chance(50) {
			a.Partition.Config = "vdi"
		}
		if w.chance(30) {
			a.Partition.Quotas.Compute.Min = new(pick(w, uint64(100), 200))
		}
	case "pool":
		a.Kind, a.Pool = gpu.AssignPool, &gpu.PoolWant{ID: name + "/dda", Name: "dda", Count: pick(w, 1, 1, 2)}
	default:
		a.Kind, a.Device = gpu.AssignDevice, &gpu.DeviceWant{Host: name, GPUIDs: []string{whole3}}
	}
	return kind, "assignment " + a.VM, gpu.Want{Assignment: a}
}
