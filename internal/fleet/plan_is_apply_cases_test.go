package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// What TestWhatThePlanSaysIsWhatTheHostDoes has found, one by one.

// nodes is a world of Hyper-V hosts whose VMs are off: one, or a cluster of two with VMs that
// migrate live.
func nodes(t *testing.T, n int) *world {
	t.Helper()
	for seed := uint64(1); ; seed += 2 {
		w := newWorld(t, seed)
		h := w.hosts()["hv01"]
		if len(w.endpoints) != n || n > 1 && (!h.VMs[1].Clustered || !*h.GPUs[0].Partitionable.SupportsIncomingLiveMigration) {
			w.end()
			continue
		}
		t.Cleanup(w.end)
		for _, vm := range w.vms() {
			w.turn(vm, gpu.VMOff)
		}
		return w
	}
}

func (w *world) turn(vm string, to gpu.VMState) {
	w.t.Helper()
	if err := w.sim.SetVMState(w.t.Context(), vm, to); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) apply(p change.Change) error {
	return w.applyLinux(w.run(nil), fleet.Request{Change: p, MaxUnavailable: 2})
}

func (w *world) assigned(vm string, partition gpu.PartitionWant) change.Change {
	a := &gpu.Assignment{Kind: gpu.AssignPartition, VM: vm, VMName: vm, Partition: &partition, Power: gpu.Power{AllowShutdown: true}}
	for name, h := range w.hosts() {
		for _, v := range h.VMs {
			if v.Name == vm {
				a.VMID, a.Host = v.ID, name
			}
		}
	}
	return change.Change{Subject: "gpu_vm_assignment for VM " + vm, Token: "token of " + vm, Want: gpu.Want{Assignment: a}}
}

// A VM with several partitions takes seats of a GPU only with those that are of it.
func TestPartitionsOfAnotherGPUTakeNoSeat(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	for range 5 {
		if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-11"); err != nil {
			t.Fatal(err)
		}
	}
	w.turn("vm-11", gpu.VMRunning)
	w.turn("vm-12", gpu.VMRunning)
	p := w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[1]})
	if says := w.plan(p); len(says.errors) > 0 {
		t.Errorf("the plan refuses it: %+v", says.errors)
	}
	if err := w.apply(p); err != nil {
		t.Fatal(err)
	}
	h := w.hosts()["hv01"]
	g, _ := h.GPU(randomGPUs[1])
	vm := h.VMs[1]
	if !vm.Runs() || !slices.ContainsFunc(g.Partitionable.Partitions, func(x gpu.Partition) bool { return x.VMID == vm.ID }) {
		t.Errorf("it has no partition of its GPU: %+v", g.Partitionable.Partitions)
	}
}

// A GPU that a VM of somebody else has in its hands is not put into a pool: not even undoing
// the change would get it out again.
func TestAPoolTakesNoGPUThatAVMHas(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	err := w.sim.Edit(t.Context(), func(s *gpu.Snapshot) error {
		h := &s.Hosts[0]
		g, _ := h.GPU(randomDDA[0])
		g.Dismounted, g.Status = true, gpu.Assigned
		h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "by hand", GPU: g.ID}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.turn("vm-11", gpu.VMRunning)
	before := w.hosts()
	p := change.Change{
		Subject: "gpu_pool dda", Token: "token", Want: gpu.Want{
			Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA}},
		},
	}
	says := w.plan(p)
	if len(says.errors) == 0 || !strings.Contains(says.errors[0].Found, `is assigned to VM "vm-11"`) {
		t.Errorf("the plan says %+v", says.errors)
	}
	if err := w.apply(p); err == nil || !strings.Contains(err.Error(), `is assigned to VM "vm-11"`) {
		t.Errorf("the apply says %v", err)
	}
	w.untouched(before, w.hosts())
}

// A run that dies while a node is drained leaves it paused. The next one resumes it first: its
// plan counts on the node, for what it says of the others too.
func TestANodeThatADeadRunPausedCountsAsUp(t *testing.T) {
	t.Parallel()
	for at := 1; !t.Failed(); at++ {
		w := nodes(t, 2)
		for _, vm := range []string{"vm-11", "vm-21"} {
			if err := w.apply(w.assigned(vm, gpu.PartitionWant{})); err != nil {
				t.Fatal(err)
			}
			w.turn(vm, gpu.VMRunning)
		}
		p := change.Change{Subject: "gpu_partition_config vdi", Token: "token", Want: gpu.Want{Config: &gpu.PartitionConfig{
			ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 8, Drain: true, MaxDisruption: gpu.DisruptNone,
			GPUs: map[string][]string{"hv01": randomGPUs, "hv02": randomGPUs},
		}}}
		w.fuse.left = at
		if w.apply(p) == nil {
			if at < 10 {
				t.Fatalf("it takes %d writes only", at)
			}
			return
		}
		w.serve()
		for name, h := range w.shown() {
			for _, n := range h.Cluster.Nodes {
				if n.State != gpu.NodeUp {
					t.Errorf("killed at write %d: %s shows node %s as %s", at, name, n.Name, n.State)
				}
			}
		}
		if says := w.plan(p); len(says.errors)+len(says.stops) > 0 {
			t.Errorf("killed at write %d: the plan says %+v, and stops %v", at, says.errors, says.stops)
		}
		if err := w.apply(p); err != nil {
			t.Errorf("killed at write %d: %v", at, err)
		}
		for name, h := range w.hosts() {
			for _, vm := range h.VMs {
				if runs := vm.Name == "vm-11" || vm.Name == "vm-21"; vm.Runs() != runs {
					t.Errorf("killed at write %d: VM %s on %s is %s", at, vm.Name, name, vm.State)
				}
			}
			for _, id := range randomGPUs {
				if g, _ := h.GPU(id); g.Partitionable.Count != 8 {
					t.Errorf("killed at write %d: GPU %s on %s has %d partitions", at, id, name, g.Partitionable.Count)
				}
			}
		}
	}
}

// A VM that is to draw from a pool which the run destroys is refused, whichever is planned first.
func TestAPoolDoesNotGoUnderAVMThatTurnsToIt(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	pool := change.Change{
		Subject: "gpu_pool dda", Token: "token", Want: gpu.Want{
			Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA}},
		},
	}
	if err := w.apply(pool); err != nil {
		t.Fatal(err)
	}
	goes := pool
	goes.Prior, goes.Want = pool.Want, gpu.Want{}
	draws := w.assigned("vm-11", gpu.PartitionWant{})
	draws.Want.Assignment.Kind, draws.Want.Assignment.Partition, draws.Want.Assignment.Pool = gpu.AssignPool,
		nil, &gpu.PoolWant{ID: "hv01/dda", Name: "dda", Count: 1}
	for range 8 { // the plan shuffles them
		says := w.plan(goes, draws)
		if len(says.errors) != 1 || says.errors[0].Rule != "known-pool" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
}

// A node that cannot be drained is changed before those that can, and leaves them less room: a VM
// with two partitions finds none on it any more. Its plan does not count on the room of before.
func TestADrainDoesNotCountOnRoomThatIsGoneByThen(t *testing.T) {
	t.Parallel()
	w := nodes(t, 2)
	for _, vm := range []string{"vm-11", "vm-21"} {
		if err := w.apply(w.assigned(vm, gpu.PartitionWant{})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-11"); err != nil {
		t.Fatal(err)
	}
	w.turn("vm-11", gpu.VMRunning)
	w.turn("vm-21", gpu.VMRunning)
	p := change.Change{Subject: "gpu_partition_config vdi", Token: "token", Want: gpu.Want{Config: &gpu.PartitionConfig{
		ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 1, Drain: true, MaxDisruption: gpu.DisruptVMRestart,
		GPUs: map[string][]string{"hv01": randomGPUs, "hv02": randomGPUs},
	}}}
	says := w.plan(p)
	if len(says.errors) > 0 || !slices.Equal(says.stops, []string{"vm-11", "vm-21"}) || len(says.moves) > 0 {
		t.Errorf("the plan says %+v", says)
	}
	w.seen.begin()
	if err := w.apply(p); err != nil {
		t.Fatal(err)
	}
	w.compareRun(says, w.shown(), p)
}

// What the drain of a run has moved that died comes back first, and moves once more: the next plan
// says so, wherever the run died.
func TestADrainThatWasCutOffMovesOnceMore(t *testing.T) {
	t.Parallel()
	moved := 0
	for at := 3; ; at++ {
		w := nodes(t, 2)
		if err := w.apply(w.assigned("vm-11", gpu.PartitionWant{})); err != nil {
			t.Fatal(err)
		}
		w.turn("vm-11", gpu.VMRunning)
		r := &resource{label: "gpu_partition_config vdi", token: "token"}
		p := change.Change{Subject: r.label, Token: r.token, Want: gpu.Want{Config: &gpu.PartitionConfig{
			ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 1, Drain: true, GPUs: map[string][]string{"hv01": randomGPUs, "hv02": randomGPUs},
		}}}
		w.fuse.left = at
		err := w.apply(p)
		w.serve()
		if err == nil {
			break
		}
		if h := w.hosts()["hv02"]; slices.ContainsFunc(h.VMs, func(vm gpu.VM) bool { return vm.Name == "vm-11" }) {
			moved++
		}
		before, says := w.shown(), w.plan(p)
		if _, on := fleet.FindVM(fleet.View{Hosts: before}, w.assigned("vm-11", gpu.PartitionWant{}).Want.Assignment.VMID); on != nil ||
			len(says.errors) > 0 {
			t.Fatalf("write %d: %v, %+v", at, on, says.errors)
		}
		w.seen.begin()
		if err := w.apply(p); err != nil {
			t.Fatalf("write %d: %v", at, err)
		}
		w.compareRun(says, w.shown(), p)
	}
	if moved < 2 {
		t.Errorf("the VM had moved at %d deaths only", moved)
	}
}

// A pool that gets fewer GPUs than one VM is to draw from it is refused, whichever is planned first.
func TestAPoolDoesNotShrinkUnderAVMThatDrawsMore(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	pool := change.Change{
		Subject: "gpu_pool dda", Token: "token", Want: gpu.Want{
			Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA[:2]}},
		},
	}
	if err := w.apply(pool); err != nil {
		t.Fatal(err)
	}
	shrinks := pool
	shrinks.Prior, shrinks.Want = pool.Want, gpu.Want{
		Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA[:1]}},
	}
	draws := w.assigned("vm-11", gpu.PartitionWant{})
	a := draws.Want.Assignment
	a.Kind, a.Partition, a.Pool = gpu.AssignPool, nil, &gpu.PoolWant{ID: "hv01/dda", Name: "dda", Count: 2}
	for range 8 { // the plan shuffles them
		if says := w.plan(shrinks, draws); len(says.errors) != 1 || says.errors[0].Rule != "capacity" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
}

// A share that names no config, and fits only on what a config of the run makes, is refused
// whichever of the two is planned first: nothing says that the config is made before it.
func TestAShareNeedsToNameTheConfigThatMakesItsDevice(t *testing.T) {
	t.Parallel()
	w := cards(t)
	hopper, ada := cardsOf("lin01")[randomHopper], cardsOf("lin01")[randomAda]
	config := mpsOf
	pool := change.Change{
		Subject: "gpu_pool ml", Token: "pool", Want: gpu.Want{
			Pool: &gpu.PoolConfig{ID: "lin01/ml", Name: "ml", Members: map[string][]string{"lin01": {hopper}}},
		},
	}
	mps := change.Change{Subject: "gpu_partition_config mps", Token: "mps", Want: config(hopper)}
	for _, p := range []change.Change{pool, mps} {
		if err := w.apply(p); err != nil {
			t.Fatal(err)
		}
	}
	mps.Prior, mps.Want = mps.Want, config(hopper, ada)
	share := change.Change{
		Subject: "gpu_share s0", Token: "share", Want: gpu.Want{
			Share: &gpu.Share{Name: "s0", Host: "lin01", Count: 1, ActiveThreadPercentage: 25},
		},
	}
	pool.Prior, pool.Unchanged = pool.Want, true
	for range 24 { // the plan shuffles them
		if says := w.plan(mps, share, pool); len(says.errors) == 0 {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
}

// cards is a world of Linux hosts that have nothing yet.
func cards(t *testing.T) *world {
	w := newBareWorld(t, 2, 13)
	w.linux = true
	w.begin(linuxHosts(w))
	t.Cleanup(w.end)
	return w
}

// mpsOf is a config of MPS on GPUs of lin01.
func mpsOf(gpus ...string) gpu.Want {
	return gpu.Want{
		Config: &gpu.PartitionConfig{
			ID: "mps", Kind: gpu.KindMPS, Name: "mps", GPUs: map[string][]string{"lin01": gpus}, MPS: &gpu.MPSLayout{MultiUser: true},
		},
	}
}

// stands makes an object that the state then has.
func (w *world) stands(label string, want gpu.Want) *resource {
	w.t.Helper()
	r := w.resource(label)
	p := change.Change{Subject: label, Token: r.token, Want: want}
	if err := w.apply(p); err != nil {
		w.t.Fatal(err)
	}
	w.made(r, p)
	return r
}

// What a config makes of a GPU is told also where it can do so only once another resource of the
// run has let go of it.
func TestALayoutIsToldThatComesOnceAShareIsGone(t *testing.T) {
	t.Parallel()
	w, id := cards(t), cardsOf("lin01")[randomHopper]
	layout := func(profiles map[string]int) gpu.Want {
		return gpu.Want{
			Config: &gpu.PartitionConfig{
				ID: "mig", Kind: gpu.KindMIG, Name: "mig", GPUs: map[string][]string{"lin01": {id}}, MIG: &gpu.MIGLayout{Profiles: profiles},
			},
		}
	}
	config := w.stands("gpu_partition_config mig", layout(map[string]int{"2g.20gb": 1}))
	share := w.stands("gpu_share s1", gpu.Want{Share: &gpu.Share{Name: "s1", Host: "lin01", Config: "mig", Count: 1}})
	for range 8 { // the plan shuffles them
		says := w.plan(
			change.Change{Subject: config.label, Token: config.token, Prior: config.has, Want: layout(map[string]int{"3g.40gb": 2})},
			change.Change{Subject: share.label, Token: share.token, Prior: share.has},
		)
		if at := says.gpus["lin01 "+id].MIG.Placements; len(says.errors) > 0 || len(at) != 2 {
			t.Fatalf("the plan says that the GPU gets %v: %+v", at, says.errors)
		}
	}
}

// A share that names no config has its MPS daemon from one that the run puts right: it waits for
// that, whichever of the two comes first.
func TestAShareWaitsForTheDaemonThatTheRunStarts(t *testing.T) {
	t.Parallel()
	w, id := cards(t), cardsOf("lin01")[randomAda]
	mps := w.stands("gpu_partition_config mps", mpsOf(id))
	share := w.stands("gpu_share s0", gpu.Want{
		Share: &gpu.Share{Name: "s0", Host: "lin01", GPUIDs: []string{id}, Count: 1, MemoryRequest: 4 << 30, MemoryLimit: 4 << 30},
	})
	if err := w.sim.Reboot(t.Context(), "lin01"); err != nil {
		t.Fatal(err)
	}
	more := *share.has.Share
	more.MemoryRequest, more.MemoryLimit = 8<<30, 8<<30
	starts := change.Change{Subject: mps.label, Token: mps.token, Want: mps.has, Prior: mps.has}
	grows := change.Change{Subject: share.label, Token: share.token, Want: gpu.Want{Share: &more}, Prior: share.has}
	says := w.plan(starts, grows)
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	if err := w.applied(w.run(nil), grows, says, false); !forRoom(err) {
		t.Errorf("the share does not wait: %v", err)
	}
	for _, p := range []change.Change{starts, grows} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
	if h := w.hosts()["lin01"]; len(h.MPS.Daemons) != 1 || len(h.Shares) != 1 {
		t.Errorf("the host has %+v and %+v", h.MPS.Daemons, h.Shares)
	}
	// Without the config nothing starts the daemon.
	if err := w.sim.Reboot(t.Context(), "lin01"); err != nil {
		t.Fatal(err)
	}
	grows.Prior, grows.Want = grows.Want, share.has
	w.resources = nil
	starts.Unchanged = true
	if says := w.plan(grows, starts); len(says.errors) == 0 {
		t.Errorf("the plan says nothing of the daemon that does not run")
	}
}

// A change that dies is put back as far as the host lets it: an MPS daemon is not started again
// on a GPU that others have put in MIG mode.
func TestADaemonComesBackWithoutTheGPUThatItLost(t *testing.T) {
	t.Parallel()
	for at := 1; !t.Failed(); at++ {
		w := cards(t)
		hopper, ada, ada2 := cardsOf("lin01")[randomHopper], cardsOf("lin01")[randomAda], cardsOf("lin01")[randomAda2]
		mps := w.stands("gpu_partition_config mps", mpsOf(hopper, ada))
		if err := w.sim.SetMIGModeOutside(t.Context(), "lin01", hopper, true); err != nil {
			t.Fatal(err)
		}
		p := change.Change{Subject: mps.label, Token: mps.token, Want: mpsOf(ada, ada2), Prior: mps.has}
		w.fuse.left = at
		if w.apply(p) == nil {
			if at < 4 {
				t.Fatalf("it takes %d writes only", at)
			}
			return
		}
		w.serve()
		if err := w.apply(p); err != nil {
			t.Errorf("killed at write %d: %v", at, err)
		}
		if d, ok := w.hosts()["lin01"].Daemon("mps"); !ok || len(d.Devices) != 2 {
			t.Errorf("killed at write %d: the daemon is %+v", at, d)
		}
	}
}

// A config takes a GPU from one of MPS that has another one which others have put in MIG mode: the
// daemon there is not started anew on what it cannot serve.
func TestADaemonGoesOnWithoutAGPUInMIGMode(t *testing.T) {
	t.Parallel()
	w := cards(t)
	hopper, ada, ada2 := cardsOf("lin01")[randomHopper], cardsOf("lin01")[randomAda], cardsOf("lin01")[randomAda2]
	had := mpsOf(hopper, ada, ada2)
	had.Config.Restore = true
	mps := w.stands("gpu_partition_config mps", had)
	if err := w.sim.SetMIGModeOutside(t.Context(), "lin01", hopper, true); err != nil {
		t.Fatal(err)
	}
	takes := change.Change{Subject: "gpu_partition_config turns", Token: "turns", Want: gpu.Want{Config: &gpu.PartitionConfig{
		ID: "turns", Kind: gpu.KindTimeSlicing, Name: "turns", GPUs: map[string][]string{"lin01": {ada2}},
		TimeSlicing: &gpu.TimeSlicing{Replicas: 2},
	}}}
	ends := change.Change{Subject: mps.label, Token: mps.token, Prior: mps.has}
	if says := w.plan(takes, ends); len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	if err := w.apply(takes); err != nil {
		t.Error(err)
	}
	if d, ok := w.hosts()["lin01"].Daemon("mps"); !ok || len(d.Devices) != 1 || d.Devices[0].GPU != ada || d.PID == 0 {
		t.Errorf("the daemon is %+v", d)
	}
}

// A GPU whose former compute mode cannot be restored, since it is in use, may go to another config of
// the run: the destroy waits for that one.
func TestADestroyWaitsForTheConfigThatTakesItsGPU(t *testing.T) {
	t.Parallel()
	w, id := cards(t), cardsOf("lin01")[randomAda]
	if err := w.sim.SetComputeModeOutside(t.Context(), "lin01", id, gpu.ComputeExclusiveProcess); err != nil {
		t.Fatal(err)
	}
	had := mpsOf(id)
	had.Config.Restore, had.Config.MPS.ComputeMode = true, gpu.ComputeDefault
	mps := w.stands("gpu_partition_config mps", had)
	if _, err := w.sim.StartProcess(t.Context(), "lin01", id, nil, gpu.Process{Name: "python"}); err != nil {
		t.Fatal(err)
	}
	ends := change.Change{Subject: mps.label, Token: mps.token, Prior: mps.has}
	if says := w.plan(ends); len(says.errors) != 1 || says.errors[0].Rule != "mps-in-use" {
		t.Errorf("alone the plan says %+v", says.errors)
	}
	takes := change.Change{Subject: "gpu_partition_config turns", Token: "turns", Want: gpu.Want{Config: &gpu.PartitionConfig{
		ID: "turns", Kind: gpu.KindTimeSlicing, Name: "turns", GPUs: map[string][]string{"lin01": {id}},
		TimeSlicing: &gpu.TimeSlicing{Replicas: 2},
	}}}
	if says := w.plan(ends, takes); len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	if err := w.apply(ends); !forRoom(err) {
		t.Errorf("the destroy does not wait: %v", err)
	}
	for _, p := range []change.Change{takes, ends} {
		if err := w.apply(p); err != nil {
			t.Error(err)
		}
	}
	if claims := w.hosts()["lin01"].Claims; len(claims) != 1 || claims[0].ID != "turns" {
		t.Errorf("the host has claims %+v", claims)
	}
}

// A reboot has lost the GPU instances of a config with MPS inside, and another config takes one of its
// GPUs: no daemon is started in an instance that is not there.
func TestADaemonIsNotStartedInAnInstanceThatIsMissing(t *testing.T) {
	t.Parallel()
	w := cards(t)
	ampere, hopper := cardsOf("lin01")[randomAmpere], cardsOf("lin01")[randomHopper]
	layout := func(profile string, n int, gpus ...string) gpu.Want {
		return gpu.Want{Config: &gpu.PartitionConfig{
			ID: "mig", Kind: gpu.KindMIG, Name: "mig", GPUs: map[string][]string{"lin01": gpus}, MaxDisruption: gpu.DisruptGPUReset,
			MIG: &gpu.MIGLayout{Profiles: map[string]int{profile: n}}, MPS: &gpu.MPSLayout{MultiUser: true}, QuiesceUnits: []string{"nvidia-dcgm"},
		}}
	}
	mig := w.stands("gpu_partition_config mig", layout("2g.20gb", 1, ampere, hopper))
	if err := w.sim.Reboot(t.Context(), "lin01"); err != nil {
		t.Fatal(err)
	}
	takes := change.Change{Subject: "gpu_partition_config mps", Token: "mps", Want: mpsOf(hopper)}
	less := change.Change{Subject: mig.label, Token: mig.token, Prior: mig.has, Want: layout("1g.10gb", 7, ampere)}
	if says := w.plan(takes, less); len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	for _, p := range []change.Change{takes, less} {
		if err := w.apply(p); err != nil {
			t.Error(err)
		}
	}
	serve := 0
	for _, d := range w.hosts()["lin01"].MPS.Daemons {
		if d.PID != 0 && d.Problem == "" {
			serve++
		}
	}
	if serve != 8 {
		t.Errorf("%d daemons serve seven instances and a GPU", serve)
	}
}

// A share that does not fit where it is, since others have closed its GPU to all processes, stays there:
// no layout goes from under it, whichever of the two is planned first.
func TestALayoutStaysUnderAShareThatDoesNotFit(t *testing.T) {
	t.Parallel()
	w := cards(t)
	ampere := cardsOf("lin01")[randomAmpere]
	layout := func(of gpu.MIGLayout) gpu.Want {
		return gpu.Want{Config: &gpu.PartitionConfig{
			ID: "mig", Kind: gpu.KindMIG, Name: "mig", GPUs: map[string][]string{"lin01": {ampere}}, MaxDisruption: gpu.DisruptGPUReset,
			MIG: &of, QuiesceUnits: []string{"nvidia-dcgm"},
		}}
	}
	mig := w.stands("gpu_partition_config mig", layout(gpu.MIGLayout{Off: true}))
	share := w.stands("gpu_share s0", gpu.Want{Share: &gpu.Share{Name: "s0", Host: "lin01", Config: "mig", Count: 1}})
	w.drifting = append(w.drifting, share)
	if err := w.sim.SetComputeModeOutside(t.Context(), "lin01", ampere, gpu.ComputeProhibited); err != nil {
		t.Fatal(err)
	}
	stays := change.Change{Subject: share.label, Token: share.token, Prior: share.has, Want: share.has}
	changes := change.Change{
		Subject: mig.label, Token: mig.token, Prior: mig.has, Want: layout(gpu.MIGLayout{Profiles: map[string]int{"1g.10gb": 7}}),
	}
	for range 8 { // the plan shuffles them
		if says := w.plan(stays, changes); len(says.errors) != 1 || says.errors[0].Rule != "share-placement" ||
			!strings.Contains(says.errors[0].Found, ampere) {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
}

// GPUs that leave a config wait for a VM that another change of the run leaves off, whichever of the
// two is planned, or made, first.
func TestAConfigWaitsForAVMThatStaysOff(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	config := func(ids ...string) gpu.Want {
		return gpu.Want{
			Config: &gpu.PartitionConfig{
				ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": ids},
				MaxDisruption: gpu.DisruptNone, Restore: true,
			},
		}
	}
	vdi := w.stands("gpu_partition_config vdi", config(randomGPUs...))
	w.stands("gpu_pool dda", gpu.Want{Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA}}})
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-13"); err != nil {
		t.Fatal(err)
	}
	draws := w.assigned("vm-13", gpu.PartitionWant{}).Want
	draws.Assignment.Kind, draws.Assignment.Partition, draws.Assignment.Pool = gpu.AssignPool, nil,
		&gpu.PoolWant{ID: "hv01/dda", Name: "dda", Count: 1}
	vm := w.stands("gpu_vm_assignment for VM vm-13", draws)
	w.turn("vm-13", gpu.VMRunning)
	h := w.hosts()["hv01"]
	stays := slices.IndexFunc(randomGPUs, func(id string) bool {
		g, _ := h.GPU(id)
		return len(g.Partitionable.Partitions) == 0
	})
	off := w.assigned("vm-13", gpu.PartitionWant{PinnedGPU: randomGPUs[stays]}).Want
	off.Assignment.Power.StayOff = true
	shrinks := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has, Want: config(randomGPUs[stays])}
	moves := change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has, Want: off}
	var says announced
	for range 8 { // the plan shuffles them
		if says = w.plan(shrinks, moves); len(says.errors) > 0 {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	if says := w.plan(shrinks); len(says.errors) == 0 {
		t.Errorf("the VM keeps its partition, and the plan says nothing")
	}
	for range 8 { // its assignment goes, and what others gave it stays
		if says := w.plan(shrinks, change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has}); len(says.errors) == 0 {
			t.Errorf("the VM runs again with its partition, and the plan says nothing")
		}
	}
	if err := w.applied(w.run(nil), shrinks, says, false); !forRoom(err) {
		t.Errorf("the config does not wait: %v", err)
	}
	for _, p := range []change.Change{moves, shrinks} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
}

// A VM that starts may take a partition of the very GPU that a config gives back, wherever the plan
// would seat it: Hyper-V chooses. The destroy is refused at plan, whichever is planned first.
func TestAConfigDoesNotGoUnderAVMThatMaySitThere(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	vdi := w.stands("gpu_partition_config vdi", gpu.Want{Config: &gpu.PartitionConfig{
		ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": randomGPUs[:1]},
		MaxDisruption: gpu.DisruptNone, Restore: true,
	}})
	w.turn("vm-12", gpu.VMRunning)
	goes := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has}
	comes := w.assigned("vm-12", gpu.PartitionWant{})
	for range 8 { // the plan shuffles them
		if says := w.plan(goes, comes); len(says.errors) != 1 || says.errors[0].Title != "The destroy may come too late" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	// A VM that is bound to another GPU is not in the way.
	comes.Want.Assignment.Partition.PinnedGPU = randomGPUs[1]
	says := w.plan(goes, comes)
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	for _, p := range []change.Change{comes, goes} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
}

// A GPU that one config lets go of and another one takes is shared as the first has left it only
// where that comes first: the plan refuses what hangs on the order.
func TestWhatAConfigKeepsDoesNotHangOnTheOrder(t *testing.T) {
	t.Parallel()
	w := cards(t)
	ada, ada2 := cardsOf("lin01")[randomAda], cardsOf("lin01")[randomAda2]
	mps := w.stands("gpu_partition_config mps", mpsOf(ada, ada2))
	shrinks := change.Change{Subject: mps.label, Token: mps.token, Prior: mps.has, Want: mpsOf(ada)}
	takes := change.Change{Subject: "gpu_partition_config vgpu", Token: "vgpu", Want: gpu.Want{Config: &gpu.PartitionConfig{
		ID: "vgpu", Kind: gpu.KindVGPU, Name: "vgpu", GPUs: map[string][]string{"lin01": {ada2}}, VGPU: &gpu.VGPULayout{Type: "L40S-12Q"},
	}}}
	for range 8 { // the plan shuffles them
		if says := w.plan(shrinks, takes); len(says.errors) != 1 || says.errors[0].Title != "The order of two configs decides the layout" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	shrinks.Want.Config.Restore = true
	says := w.plan(shrinks, takes)
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	for _, p := range []change.Change{takes, shrinks} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
	if g, _ := w.hosts()["lin01"].GPU(ada2); g.ComputeMode != gpu.ComputeDefault {
		t.Errorf("the GPU is in compute mode %s", g.ComputeMode)
	}
}

// pinning is a host whose GPUs a config cuts into so many partitions each, and what assigns one of a
// GPU ("" for any) to a VM and starts it.
func pinning(t *testing.T, count int) (w *world, on func(vm, id string) *resource) {
	t.Helper()
	w = nodes(t, 1)
	w.stands("gpu_partition_config vdi", gpu.Want{
		Config: &gpu.PartitionConfig{ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: count, GPUs: map[string][]string{"hv01": randomGPUs}},
	})
	return w, func(vm, id string) *resource {
		r := w.stands("gpu_vm_assignment for VM "+vm, w.assigned(vm, gpu.PartitionWant{PinnedGPU: id}).Want)
		w.turn(vm, gpu.VMRunning)
		return r
	}
}

// A VM that has a partition of one GPU and is to have one of another takes a seat there, as one
// that has none does: the plan refuses what does not fit, whichever of the two is planned first.
func TestAVMThatChangesItsGPUTakesASeatThere(t *testing.T) {
	t.Parallel()
	w, on := pinning(t, 2)
	on("vm-14", randomGPUs[1])
	vm := on("vm-12", randomGPUs[0])
	w.turn("vm-11", gpu.VMRunning)
	moves := change.Change{
		Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want,
	}
	comes := w.assigned("vm-11", gpu.PartitionWant{PinnedGPU: randomGPUs[1]})
	for range 8 { // the plan shuffles them
		if says := w.plan(moves, comes); len(says.errors) != 1 || says.errors[0].Rule != "capacity" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	for _, p := range []change.Change{moves, comes} { // each alone fits
		if says := w.plan(p); len(says.errors) > 0 {
			t.Errorf("the plan says %+v", says.errors)
		}
	}
}

// A VM that takes any partition may take the one that another VM of the run is to be pinned to,
// which has one elsewhere so far: refused, whichever of the two is planned first.
func TestAVMThatIsPinnedLaterMayFindItsGPUFull(t *testing.T) {
	t.Parallel()
	w, on := pinning(t, 1)
	vm := on("vm-12", randomGPUs[1])
	w.turn("vm-11", gpu.VMRunning)
	moves := change.Change{
		Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[0]}).Want,
	}
	comes := w.assigned("vm-11", gpu.PartitionWant{})
	for range 8 { // the plan shuffles them
		if says := w.plan(moves, comes); len(says.errors) == 0 || says.errors[0].Title != "An unpinned VM may take a pinned VM's partition" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
}

// A VM that the run restarts for whatever reason takes any partition anew, and may take the one that
// another VM is to be pinned to.
func TestAVMThatIsRestartedMayTakeTheGPUOfOneThatIsPinned(t *testing.T) {
	t.Parallel()
	w, on := pinning(t, 2)
	on("vm-13", randomGPUs[0])
	loose, vm := on("vm-11", ""), on("vm-12", randomGPUs[1])
	moves := change.Change{
		Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[0]}).Want,
	}
	restarts := change.Change{Subject: loose.label, Token: loose.token, Prior: loose.has, Want: w.assigned("vm-11", gpu.PartitionWant{}).Want}
	restarts.Want.Assignment.Settings.GuestControlledCache = new(true)
	for range 8 { // the plan shuffles them
		if says := w.plan(moves, restarts); len(says.errors) != 1 || says.errors[0].Title != "An unpinned VM may take a pinned VM's partition" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	for _, p := range []change.Change{moves, restarts} { // each alone is made
		if says := w.plan(p); len(says.errors) > 0 {
			t.Errorf("the plan says %+v", says.errors)
		}
	}
}

// A VM that gets a partition of a certain GPU in place of a whole one has another partition by hand: the
// two that there are suffice, since what is pinned comes first.
func TestAVMFindsTheGPUThatItIsPinnedToBesideAPartitionByHand(t *testing.T) {
	t.Parallel()
	for _, id := range randomGPUs {
		w := nodes(t, 1)
		w.stands("gpu_partition_config vdi", gpu.Want{
			Config: &gpu.PartitionConfig{ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 1, GPUs: map[string][]string{"hv01": randomGPUs}},
		})
		whole := *w.assigned("vm-11", gpu.PartitionWant{}).Want.Assignment
		whole.Kind, whole.Partition, whole.Device = gpu.AssignDevice, nil, &gpu.DeviceWant{Host: "hv01", GPUIDs: randomDDA[:1]}
		vm := w.stands("gpu_vm_assignment for VM vm-11", gpu.Want{Assignment: &whole})
		if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-11"); err != nil {
			t.Fatal(err)
		}
		w.turn("vm-11", gpu.VMRunning)
		p := change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-11", gpu.PartitionWant{PinnedGPU: id}).Want}
		if says := w.plan(p); len(says.errors) > 0 {
			t.Errorf("pinned to %s, the plan says %+v", id, says.errors)
		}
		if err := w.apply(p); err != nil {
			t.Error(err)
		}
		if vm, _ := w.hosts()["hv01"].VM(whole.VMID); !vm.Runs() {
			t.Errorf("pinned to %s the VM is %s", id, vm.State)
		}
	}
}

// A VM with a second partition, by hand, does not take the one that it is pinned to itself away from
// another VM: where it had to, it would not start.
func TestAVMWithTwoPartitionsLeavesOthersTheirs(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	w.stands("gpu_partition_config vdi", gpu.Want{
		Config: &gpu.PartitionConfig{ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 1, GPUs: map[string][]string{"hv01": randomGPUs[:1]}},
	})
	w.stands("gpu_partition_config two", gpu.Want{
		Config: &gpu.PartitionConfig{ID: "two", Name: "two", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": randomGPUs[1:]}},
	})
	one := w.stands("gpu_vm_assignment for VM vm-11", w.assigned("vm-11", gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want)
	two := w.stands("gpu_vm_assignment for VM vm-14", w.assigned("vm-14", gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want)
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-14"); err != nil {
		t.Fatal(err)
	}
	for _, vm := range []string{"vm-11", "vm-14"} {
		w.turn(vm, gpu.VMRunning)
	}
	plans := []change.Change{}
	for _, vm := range []*resource{one, two} {
		p := change.Change{
			Subject: vm.label, Token: vm.token, Prior: vm.has,
			Want: w.assigned(strings.TrimPrefix(vm.label, "gpu_vm_assignment for VM "), gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want,
		}
		p.Want.Assignment.Settings.GuestControlledCache = new(true)
		plans = append(plans, p)
	}
	for range 8 { // the plan shuffles them
		if says := w.plan(plans...); len(says.errors) > 0 {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	for _, p := range plans {
		if err := w.apply(p); err != nil {
			t.Error(err)
		}
	}
	for _, vm := range w.hosts()["hv01"].VMs {
		if slices.Contains([]string{"vm-11", "vm-14"}, vm.Name) && !vm.Runs() {
			t.Errorf("%s is %s", vm.Name, vm.State)
		}
	}
}

// A VM that has a partition by hand, and gets one of the state in place of a GPU, takes one more: what
// does not fit is refused, whichever of two is planned first.
func TestAVMWithAPartitionByHandTakesOneMore(t *testing.T) {
	t.Parallel()
	w, on := pinning(t, 1)
	a := *w.assigned("vm-12", gpu.PartitionWant{}).Want.Assignment
	a.Kind, a.Partition, a.Device = gpu.AssignDevice, nil, &gpu.DeviceWant{Host: "hv01", GPUIDs: randomDDA[1:2]}
	vm := w.stands("gpu_vm_assignment for VM vm-12", gpu.Want{Assignment: &a})
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-12"); err != nil {
		t.Fatal(err)
	}
	w.turn("vm-12", gpu.VMRunning)
	w.turn("vm-11", gpu.VMRunning)
	turns := change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-12", gpu.PartitionWant{}).Want}
	comes := w.assigned("vm-11", gpu.PartitionWant{})
	for _, p := range []change.Change{turns, comes} { // each alone fits
		if says := w.plan(p); len(says.errors) > 0 {
			t.Errorf("the plan says %+v", says.errors)
		}
	}
	for range 8 { // the plan shuffles them
		if says := w.plan(turns, comes); len(says.errors) == 0 || says.errors[0].Rule != "capacity" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	on("vm-11", "")
	if err := w.apply(turns); !forRoom(err) {
		t.Errorf("the host says %v", err)
	}
}

// A GPU that others had put into compute mode exclusive_process before a config of MPS took it leaves
// that mode with the config, and for MIG, which no such mode outlasts, at once.
func TestAGPUGoesToMIGWhateverItsComputeModeWasBefore(t *testing.T) {
	t.Parallel()
	w := cards(t)
	hopper, ada := cardsOf("lin01")[randomHopper], cardsOf("lin01")[randomAda]
	if err := w.sim.SetComputeModeOutside(t.Context(), "lin01", hopper, gpu.ComputeExclusiveProcess); err != nil {
		t.Fatal(err)
	}
	mps := w.stands("gpu_partition_config mps", openMPS(hopper))
	moves := change.Change{Subject: mps.label, Token: mps.token, Prior: mps.has, Want: openMPS(ada)}
	takes := change.Change{Subject: "gpu_partition_config mig", Token: "mig", Want: gpu.Want{Config: &gpu.PartitionConfig{
		ID: "mig", Kind: gpu.KindMIG, Name: "mig", GPUs: map[string][]string{"lin01": {hopper}},
		MIG: &gpu.MIGLayout{Profiles: map[string]int{"1g.10gb": 7}}, MaxDisruption: gpu.DisruptGPUReset,
	}}}
	says := w.plan(moves, takes)
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	for _, p := range []change.Change{takes, moves} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
}

// openMPS lets other processes onto its GPUs too.
func openMPS(gpus ...string) gpu.Want {
	w := mpsOf(gpus...)
	w.Config.MPS.ComputeMode = gpu.ComputeDefault
	return w
}

// A VM that its plan leaves off takes none of the partitions that it then has, and is not counted with
// those that it is given.
func TestAVMThatIsLeftOffNeedsNoRoom(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	vdi := w.stands("gpu_partition_config vdi", gpu.Want{
		Config: &gpu.PartitionConfig{ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 1, GPUs: map[string][]string{"hv01": randomGPUs}},
	})
	w.stands("gpu_vm_assignment for VM vm-12", w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want)
	w.turn("vm-12", gpu.VMRunning)
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-13"); err != nil {
		t.Fatal(err)
	}
	w.turn("vm-13", gpu.VMRunning)
	restores := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has, Want: vdi.has}
	config := *vdi.has.Config
	config.Restore = true
	restores.Want.Config = &config
	gets := w.assigned("vm-13", gpu.PartitionWant{})
	for _, off := range []bool{true, false} {
		gets.Want.Assignment.Power.StayOff = off
		said := slices.ContainsFunc(w.plan(gets, restores).errors, func(x rules.Finding) bool {
			return x.Title == "Too few partitions for the running VMs"
		})
		if said == off {
			t.Errorf("left off: %t, and too few partitions: %t", off, said)
		}
	}
}

// All VMs that are pinned to a GPU need a partition of it, whatever the other GPUs have left: a
// config that leaves fewer is refused, whether it is planned before those VMs or after them.
func TestAConfigLeavesAPartitionForEachVMPinnedToItsGPU(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	stays := w.stands("gpu_vm_assignment for VM vm-11", w.assigned("vm-11", gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want)
	vm := w.stands("gpu_vm_assignment for VM vm-12", w.assigned("vm-12", gpu.PartitionWant{}).Want)
	w.turn(stays.has.Assignment.VM, gpu.VMRunning)
	w.turn(vm.has.Assignment.VM, gpu.VMRunning)
	pins := change.Change{
		Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want,
	}
	config := func(count int) change.Change {
		return change.Change{Subject: "gpu_partition_config vdi", Token: "vdi", Want: gpu.Want{Config: &gpu.PartitionConfig{
			ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: count, GPUs: map[string][]string{"hv01": randomGPUs},
			MaxDisruption: gpu.DisruptVMRestart,
		}}}
	}
	for range 8 { // the plan shuffles them
		if says := w.plan(config(1), pins); len(says.errors) != 1 || says.errors[0].Rule != "capacity" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	says := w.plan(config(2), pins)
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	for _, p := range []change.Change{config(2), pins} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
	h := w.hosts()["hv01"]
	if g, _ := h.GPU(randomGPUs[1]); len(g.Partitionable.Partitions) != 2 || !h.VMs[0].Runs() || !h.VMs[1].Runs() {
		t.Errorf("the GPU has %+v", g.Partitionable)
	}
}

// A VM that has been changed by now does not start once more: what comes after it in the run is
// planned with the GPU that the VM has, and not with any that it might have got.
func TestAConfigIsPlannedWithTheSeatThatAVMHasByThen(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	config := func(id string, count int) gpu.Want {
		return gpu.Want{
			Config: &gpu.PartitionConfig{
				ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: count, GPUs: map[string][]string{"hv01": {id}},
				MaxDisruption: gpu.DisruptNone, Restore: true,
			},
		}
	}
	vdi := w.stands("gpu_partition_config vdi", config(randomGPUs[0], 2))
	vm := w.stands("gpu_vm_assignment for VM vm-12", w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[0]}).Want)
	w.turn("vm-12", gpu.VMRunning)
	leaves := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has, Want: config(randomGPUs[1], 4)}
	moves := change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-12", gpu.PartitionWant{}).Want}
	says := w.plan(leaves, moves)
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	run := w.run(nil)
	for _, p := range []change.Change{moves, leaves} {
		if err := w.applied(run, p, says, false); err != nil {
			t.Error(err)
		}
	}
	if g, _ := w.hosts()["hv01"].GPU(randomGPUs[0]); g.Partitionable.Count != 4 {
		t.Errorf("the GPU has %d partitions", g.Partitionable.Count)
	}
}

// A VM whose assignment goes in the run is started again, with what others gave it: a config that
// gives its GPU back in the same run is refused, whichever of the two is planned first.
func TestAConfigDoesNotGoUnderAVMThatKeepsAPartition(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	vdi := w.stands("gpu_partition_config vdi", gpu.Want{Config: &gpu.PartitionConfig{
		ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": randomGPUs}, Restore: true,
	}})
	w.stands("gpu_pool dda", gpu.Want{Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA}}})
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-13"); err != nil {
		t.Fatal(err)
	}
	draws := w.assigned("vm-13", gpu.PartitionWant{}).Want
	draws.Assignment.Kind, draws.Assignment.Partition, draws.Assignment.Pool = gpu.AssignPool, nil,
		&gpu.PoolWant{ID: "hv01/dda", Name: "dda", Count: 1}
	vm := w.stands("gpu_vm_assignment for VM vm-13", draws)
	w.turn("vm-13", gpu.VMRunning)
	gives := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has}
	goes := change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has}
	for range 8 { // the plan shuffles them
		if says := w.plan(gives, goes); len(says.errors) != 1 || !strings.Contains(says.errors[0].Found, `held by "vm-13"`) {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	// One that is left off holds nothing.
	goes.Prior.Assignment.Power.StayOff = true
	says := w.plan(gives, goes)
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	for _, p := range []change.Change{goes, gives} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
	if g, _ := w.hosts()["hv01"].GPU(randomGPUs[0]); g.Partitionable.Count != 4 {
		t.Errorf("the GPU has %d partitions", g.Partitionable.Count)
	}
}

// A VM that a config stops and leaves off lets go of what it has: only those that run again need a
// partition of what the config leaves.
func TestAVMThatAConfigLeavesOffNeedsNoRoom(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{true, false} {
		w := nodes(t, 1)
		config := func(count int) gpu.Want {
			return gpu.Want{
				Config: &gpu.PartitionConfig{
					ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: count, GPUs: map[string][]string{"hv01": randomGPUs},
					MaxDisruption: gpu.DisruptVMRestart,
				},
			}
		}
		vdi := w.stands("gpu_partition_config vdi", config(4))
		for vm, stays := range map[string]bool{"vm-11": false, "vm-12": false, "vm-13": off} {
			want := w.assigned(vm, gpu.PartitionWant{}).Want
			want.Assignment.Power.StayOff = stays
			w.stands("gpu_vm_assignment for VM "+vm, want)
			w.turn(vm, gpu.VMRunning)
		}
		shrinks := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has, Want: config(1)}
		says := w.plan(shrinks)
		if !off {
			if len(says.errors) != 1 || says.errors[0].Title != "Too few partitions for the running VMs" {
				t.Errorf("all start again, and the plan says %+v", says.errors)
			}
			continue
		}
		if len(says.errors) > 0 {
			t.Fatalf("the plan says %+v", says.errors)
		}
		w.seen.begin()
		if err := w.apply(shrinks); err != nil {
			t.Fatal(err)
		}
		w.compareRun(says, w.shown(), shrinks)
	}
}

// A VM that goes on while its assignment changes keeps the partition that it has. It is not in the way
// of a config that gives another GPU back.
func TestAVMThatGoesOnTakesNoPartitionAnew(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	vdi := w.stands("gpu_partition_config vdi", gpu.Want{Config: &gpu.PartitionConfig{
		ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": randomGPUs[:1]},
		MaxDisruption: gpu.DisruptNone, Restore: true,
	}})
	vm := w.stands("gpu_vm_assignment for VM vm-12", w.assigned("vm-12", gpu.PartitionWant{}).Want)
	w.turn("vm-12", gpu.VMRunning) // on the emptiest GPU, which the config has not
	want := w.assigned("vm-12", gpu.PartitionWant{}).Want
	want.Assignment.Settings.AutomaticStopAction = new(gpu.StopShutDown)
	goes := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has}
	lives := change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has, Want: want}
	var says announced
	for range 8 { // the plan shuffles them
		if says = w.plan(goes, lives); len(says.errors)+len(says.stops) > 0 {
			t.Fatalf("the plan says %+v, and stops %v", says.errors, says.stops)
		}
	}
	w.seen.begin()
	w.seen.seats = randomGPUs[0]
	for _, p := range []change.Change{lives, goes} {
		if err := w.applied(w.run(nil), p, says, false); err != nil {
			t.Error(err)
		}
	}
	w.compareRun(says, w.shown(), goes, lives)
	// It may take a partition of the config's GPU where it is started anew, also by one that others gave it.
	want.Assignment.Partition.PinnedGPU = randomGPUs[1]
	lives.Want = want
	w.stands("gpu_partition_config vdi", vdi.has)
	if says := w.plan(goes, lives); len(says.errors) > 0 {
		t.Errorf("the plan says %+v", says.errors)
	}
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-12"); err != nil {
		t.Fatal(err)
	}
	if says := w.plan(goes, lives); len(says.errors) != 1 || says.errors[0].Title != "The destroy may come too late" {
		t.Errorf("the plan says %+v", says.errors)
	}
}

// A VM whose assignment goes is started again, with the partition that others gave it on whichever GPU
// the host chooses: a config that may not stop it comes too late there, whichever is planned first.
func TestAVMWhoseAssignmentGoesMaySitDownElsewhere(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	draws := w.assigned("vm-11", gpu.PartitionWant{}).Want
	draws.Assignment.Kind, draws.Assignment.Partition, draws.Assignment.Device = gpu.AssignDevice,
		nil, &gpu.DeviceWant{Host: "hv01", GPUIDs: randomDDA[:1]}
	vm := w.stands("gpu_vm_assignment for VM vm-11", draws)
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-11"); err != nil {
		t.Fatal(err)
	}
	w.turn("vm-11", gpu.VMRunning) // on the emptiest GPU, the first
	goes := change.Change{Subject: vm.label, Token: vm.token, Prior: vm.has}
	comes := change.Change{Subject: "gpu_partition_config vdi", Token: "vdi", Want: gpu.Want{Config: &gpu.PartitionConfig{
		ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": randomGPUs[1:]}, MaxDisruption: gpu.DisruptNone,
	}}}
	for range 8 { // the plan shuffles them
		if says := w.plan(goes, comes); len(says.errors) != 1 || says.errors[0].Title != "The change may come too late" {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	w.seen.seats = randomGPUs[1]
	if err := w.apply(goes); err != nil {
		t.Fatal(err)
	}
	if says := w.plan(comes); len(says.errors) != 1 || !strings.Contains(says.errors[0].Found, `"vm-11"`) {
		t.Errorf("the VM sits there now, and the plan says %+v", says.errors)
	}
}

// A VM that is owed a start, and whose partition another one has taken meanwhile, stays off: a plan does
// not take it for one that runs, and refuses what its start would have to come with.
func TestAVMThatIsOwedAStartMayFindNoRoom(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	config := func(count int) gpu.Want {
		return gpu.Want{
			Config: &gpu.PartitionConfig{
				ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: count, GPUs: map[string][]string{"hv01": randomGPUs},
				MaxDisruption: gpu.DisruptVMRestart,
			},
		}
	}
	vdi := w.stands("gpu_partition_config vdi", config(1))
	var vm *resource
	for i, name := range []string{"vm-11", "vm-12"} {
		vm = w.stands("gpu_vm_assignment for VM "+name, w.assigned(name, gpu.PartitionWant{PinnedGPU: randomGPUs[i]}).Want)
		w.turn(name, gpu.VMRunning)
	}
	w.faults(simulated.Fault{Op: simulated.OpStartVM, Object: "vm-12", Code: backend.Insufficient, Detail: "0x800705AA"})
	if err := w.apply(change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has, Want: config(2)}); err == nil {
		t.Fatal("no VM starts, and the apply is clean")
	}
	w.faults()
	if _, err := w.sim.AddForeignAdapter(t.Context(), "vm-13"); err != nil {
		t.Fatal(err)
	}
	if h := w.shown()["hv01"]; len(h.PendingStarts) != 1 || h.VMs[1].State != gpu.VMRunning {
		t.Fatalf("owed are %+v, and vm-12 is shown as %s", h.PendingStarts, h.VMs[1].State)
	}
	w.turn("vm-13", gpu.VMRunning)
	before := w.shown()
	if vm := before["hv01"].VMs[1]; vm.State != gpu.VMOff {
		t.Errorf("vm-12 is shown as %s", vm.State)
	}
	lives := change.Change{
		Subject: vm.label, Token: vm.token, Prior: vm.has, Want: w.assigned("vm-12", gpu.PartitionWant{PinnedGPU: randomGPUs[1]}).Want,
	}
	lives.Want.Assignment.Settings.AutomaticStopAction = new(gpu.StopShutDown)
	if says := w.plan(lives); len(says.errors) != 1 || says.errors[0].Rule != rules.Feasible {
		t.Errorf("the plan says %+v", says.errors)
	}
	if err := w.apply(lives); err == nil || !strings.Contains(err.Error(), "no partition is free") {
		t.Errorf("the apply says %v", err)
	}
	w.untouched(before, w.shown())
	// It runs as soon as there is room again.
	w.turn("vm-13", gpu.VMOff)
	says := w.plan(lives)
	if len(says.errors)+len(says.stops) > 0 {
		t.Fatalf("the plan says %+v, and stops %v", says.errors, says.stops)
	}
	w.seen.begin()
	if err := w.apply(lives); err != nil {
		t.Fatal(err)
	}
	w.compareRun(says, w.shown(), lives)
}

// A share that names no config finds a place on the GPUs that are free now: where others that stay
// have these, it is refused, although a config of the run releases one.
func TestAShareDoesNotCountOnAGPUThatAConfigReleases(t *testing.T) {
	t.Parallel()
	w := cards(t)
	of := cardsOf("lin01")
	config := func(ids ...string) gpu.Want {
		return gpu.Want{
			Config: &gpu.PartitionConfig{
				ID: "vgpu", Kind: gpu.KindVGPU, Name: "vgpu", GPUs: map[string][]string{"lin01": ids}, VGPU: &gpu.VGPULayout{Type: "L40S-12Q"},
			},
		}
	}
	vgpu := w.stands("gpu_partition_config vgpu", config(of[randomAda], of[randomAda2]))
	w.stands("gpu_share s0", gpu.Want{Share: &gpu.Share{Name: "s0", Host: "lin01", Count: 1}})
	one := w.stands("gpu_share s1", gpu.Want{Share: &gpu.Share{Name: "s1", Host: "lin01", Count: 1}})
	releases := change.Change{Subject: vgpu.label, Token: vgpu.token, Prior: vgpu.has, Want: config(of[randomAda])}
	releases.Want.Config.Restore = true
	comes := change.Change{Subject: "gpu_share s2", Token: "share", Want: gpu.Want{Share: &gpu.Share{Name: "s2", Host: "lin01", Count: 1}}}
	for range 24 { // the plan shuffles them
		if says := w.plan(releases, comes); len(says.errors) == 0 || !strings.Contains(says.errors[0].Found, `is taken by share "s1"`) {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	// One that goes frees its GPU.
	goes := change.Change{Subject: one.label, Token: one.token, Prior: one.has}
	for range 24 {
		if says := w.plan(releases, comes, goes); len(says.errors) > 0 {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	other := change.Change{Subject: "gpu_share s3", Token: "other", Want: gpu.Want{Share: &gpu.Share{Name: "s3", Host: "lin01", Count: 1}}}
	for range 24 { // which only one of two finds
		if says := w.plan(releases, comes, goes, other); len(says.errors) == 0 || !strings.Contains(says.errors[0].Fix, "in the next apply") {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	if err := w.apply(releases); err != nil {
		t.Fatal(err)
	}
	w.made(vgpu, releases)
	says := w.plan(comes) // in the next run
	if len(says.errors) > 0 {
		t.Fatalf("the plan says %+v", says.errors)
	}
	if err := w.applied(w.run(nil), comes, says, false); err != nil {
		t.Fatal(err)
	}
	if c, ok := w.hosts()["lin01"].Claim(gpu.ClaimShare, "s2"); !ok || c.Want.Share.Devices[0].GPU != of[randomAda2] {
		t.Errorf("the share is on %+v", c.Want.Share)
	}
}

// A VM that waits for its next power-off keeps until then what it has: who is to have that in the same
// run is refused, whichever of the two is planned first, and told so once.
func TestAVMThatWaitsForItsPowerOffLetsGoOfNothing(t *testing.T) {
	t.Parallel()
	whole := func(a *gpu.Assignment) {
		a.Kind, a.Partition, a.Device = gpu.AssignDevice, nil, &gpu.DeviceWant{Host: "hv01", GPUIDs: randomDDA[:1]}
	}
	pooled := func(a *gpu.Assignment) {
		a.Kind, a.Partition, a.Pool = gpu.AssignPool, nil, &gpu.PoolWant{ID: "hv01/dda", Name: "dda", Count: 2}
	}
	for name, c := range map[string]struct {
		gives       func(*gpu.Assignment)
		holds, asks gpu.VMState
	}{
		"a GPU of one that is saved": {whole, gpu.VMSaved, gpu.VMOff},
		"a GPU of one that runs":     {whole, gpu.VMRunning, gpu.VMRunning},
		"GPUs of a pool":             {pooled, gpu.VMRunning, gpu.VMRunning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := nodes(t, 1)
			w.stands("gpu_pool dda", gpu.Want{
				Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA[1:]}},
			})
			leaves, takes := w.assigned("vm-11", gpu.PartitionWant{}), w.assigned("vm-12", gpu.PartitionWant{})
			had := *leaves.Want.Assignment
			c.gives(&had)
			c.gives(takes.Want.Assignment)
			has := w.stands("gpu_vm_assignment for VM vm-11", gpu.Want{Assignment: &had})
			leaves.Token, leaves.Prior, leaves.Want.Assignment.Power.NextOff = has.token, has.has, true
			w.turn("vm-11", gpu.VMRunning)
			w.turn("vm-11", c.holds)
			w.turn("vm-12", c.asks)
			for range 8 { // the plan shuffles them
				if says := w.plan(leaves, takes); len(says.errors) != 1 || says.errors[0].Rule != change.Capacity ||
					!strings.Contains(says.errors[0].Found, `"vm-11"`) {
					t.Fatalf("the plan says %+v", says.errors)
				}
			}
			says := w.plan(leaves)
			if err := w.applied(w.run(nil), leaves, says, false); err != nil || len(says.errors) > 0 {
				t.Fatalf("alone it waits: %v, %+v", err, says.errors)
			}
			if err := w.apply(takes); err == nil || !strings.Contains(err.Error(), `"vm-11"`) {
				t.Errorf("vm-11 has it, and vm-12 takes it: %v", err)
			}
			if vm := w.hosts()["hv01"].VMs[1]; len(vm.Devices) > 0 || vm.State != c.asks {
				t.Errorf("vm-12 is %s and has %+v", vm.State, vm.Devices)
			}
		})
	}
}

// A drain whose run died after its VMs had come back is put back by the next run, which moves them
// once more: the hosts say who, to a plan that has nothing to do with it.
func TestWhoIsMovedToPutADrainBackIsNamed(t *testing.T) {
	t.Parallel()
	moved := 0
	for at := 3; ; at++ {
		w := nodes(t, 2)
		w.stands("gpu_vm_assignment for VM vm-11", w.assigned("vm-11", gpu.PartitionWant{}).Want)
		w.turn("vm-11", gpu.VMRunning)
		w.fuse.left, w.fuse.before = at, true
		err := w.apply(change.Change{Subject: "gpu_partition_config vdi", Token: "token", Want: gpu.Want{Config: &gpu.PartitionConfig{
			ID: "vdi", Name: "vdi", Kind: gpu.KindGPUP, Count: 1, Drain: true, GPUs: map[string][]string{"hv01": randomGPUs},
		}}})
		w.serve()
		if err == nil {
			break
		}
		p := w.assigned("vm-12", gpu.PartitionWant{})
		says := w.plan(p)
		w.seen.begin()
		if err := w.apply(p); err != nil || len(says.errors) > 0 {
			t.Fatalf("write %d: %v, %+v", at, err, says.errors)
		}
		w.compareRun(says, w.shown(), p)
		h := w.hosts()["hv01"]
		vm, here := h.VM(w.assigned("vm-11", gpu.PartitionWant{}).Want.Assignment.VMID)
		if g, _ := h.GPU(randomGPUs[0]); !here || !vm.Runs() || g.Partitionable.Count != 4 || h.NodeState() != gpu.NodeUp {
			t.Errorf("write %d: vm-11 is on hv01: %t, its GPU has %d partitions, and the node is %s", at, here, g.Partitionable.Count, h.NodeState())
		}
		if w.seen.shaken["vm-11"] {
			moved++
		}
	}
	if moved == 0 {
		t.Error("nothing was moved once more")
	}
}

// That two resources of a run take one GPU, which a third has so far, is told once, with the second.
func TestWhoTakesTheSameGPUIsToldOnce(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	takes := func(vm string) change.Change {
		p := w.assigned(vm, gpu.PartitionWant{})
		a := p.Want.Assignment
		a.Kind, a.Partition, a.Device = gpu.AssignDevice, nil, &gpu.DeviceWant{Host: "hv01", GPUIDs: randomDDA[:1]}
		return p
	}
	has := w.stands("gpu_vm_assignment for VM vm-11", takes("vm-11").Want)
	goes := change.Change{Subject: has.label, Token: has.token, Prior: has.has}
	for range 24 { // the plan shuffles them
		if says := w.plan(goes, takes("vm-12"), takes("vm-13")); len(says.errors) != 1 || !strings.Contains(says.errors[0].Found, "both take") {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
}

// A share that stays while the config of its device goes is told so once, whichever of the two is
// planned first.
func TestAShareUnderAConfigThatGoesIsToldOnce(t *testing.T) {
	t.Parallel()
	w := cards(t)
	mps := w.stands("gpu_partition_config mps", mpsOf(cardsOf("lin01")[randomHopper]))
	w.stands("gpu_share s0", gpu.Want{Share: &gpu.Share{Name: "s0", Host: "lin01", Count: 1, ActiveThreadPercentage: 25}})
	goes := change.Change{Subject: mps.label, Token: mps.token, Prior: mps.has}
	for range 8 { // the plan shuffles them
		if says := w.plan(goes); len(says.errors) != 1 || !strings.Contains(says.errors[0].Found, "s0") {
			t.Fatalf("the plan says %+v", says.errors)
		}
	}
	before := w.hosts()
	if err := w.apply(goes); err == nil || !strings.Contains(err.Error(), "s0") {
		t.Errorf("the apply says %v", err)
	}
	w.untouched(before, w.hosts())
}

// A config that has room only once a VM gives its partition back is told with all VMs that it stops,
// though it is planned before anybody knows which of them goes.
func TestWhoStaysIsStoppedWhereOthersMayGo(t *testing.T) {
	t.Parallel()
	w, on := pinning(t, 8)
	on("vm-14", "")
	goes, _ := on("vm-11", randomGPUs[1]), on("vm-13", randomGPUs[1])
	vdi := w.resources[0]
	fewer := *vdi.has.Config
	fewer.Count, fewer.MaxDisruption = 1, gpu.DisruptVMRestart
	changes := change.Change{Subject: vdi.label, Token: vdi.token, Prior: vdi.has, Want: gpu.Want{Config: &fewer}}
	ends := change.Change{Subject: goes.label, Token: goes.token, Prior: goes.has}
	for range 16 { // the plan shuffles them
		if says := w.plan(changes, ends); len(says.errors) > 0 || !slices.Equal(says.stops, []string{"vm-11", "vm-13", "vm-14"}) {
			t.Fatalf("the plan stops %v, and says %+v", says.stops, says.errors)
		}
	}
}
