package simulated_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func wantSeats(t *testing.T, fleet *others.Fleet, vm string, want ...string) {
	t.Helper()
	if got := seats(t, fleet, vm); !slices.Equal(got, want) {
		t.Errorf("VM %s has the partitions %q, want %q", vm, got, want)
	}
}

// startWithPartitions gives the VMs 1 to n an adapter each and starts them.
func startWithPartitions(t *testing.T, fleet *others.Fleet, n int) {
	t.Helper()
	host := hostOf(t, fleet, "hv01")
	for i := 1; i <= n; i++ {
		addAdapter(t, host, vmID(i))
		run(t, host.StartVM(t.Context(), vmID(i)))
	}
}

// Placement is the simulator's own where Microsoft says only that it is automatic.
func TestPlacementFillsTheEmptierGPU(t *testing.T) {
	fleet := newFleet(t, 4)
	startWithPartitions(t, fleet, 3)
	wantSeats(t, fleet, vmID(1), "hv01 "+gpu1+" 0")
	wantSeats(t, fleet, vmID(2), "hv01 "+gpu2+" 0")
	wantSeats(t, fleet, vmID(3), "hv01 "+gpu1+" 1")
	host := hostOf(t, fleet, "hv01")
	run(t, host.TurnOffVM(t.Context(), vmID(1)))
	addAdapter(t, host, vmID(4))
	run(t, host.StartVM(t.Context(), vmID(4)))
	wantSeats(t, fleet, vmID(4), "hv01 "+gpu1+" 0") // the lowest PartitionId that is free
}

func TestMoveVM(t *testing.T) {
	fleet := newFleet(t, 2)
	startWithPartitions(t, fleet, 1)
	run(t,
		fleet.SetGuest(t.Context(), "vm-1", simulated.Guest{Locked: true}),
		fleet.MoveVM(t.Context(), "vm-1", "hv02"),
		fleet.MoveVM(t.Context(), "vm-2", "hv02"))
	if got := state(t, fleet, "hv02", vmID(1)); got != gpu.VMRunning {
		t.Errorf("the VM that ran is %s", got)
	}
	if got := state(t, fleet, "hv02", vmID(2)); got != gpu.VMOff {
		t.Errorf("the VM that was off is %s", got)
	}
	if got := len(inventory(t, fleet, "hv01").VMs); got != 0 {
		t.Errorf("%d VMs stayed behind", got)
	}
	wantSeats(t, fleet, vmID(1), "hv02 "+gpu1+" 0")
	wantCode(t, hostOf(t, fleet, "hv02").ShutDownVM(t.Context(), vmID(1), false), backend.Locked) // the guest moved along
	_, err := hostOf(t, fleet, "hv01").AddPartitionAdapter(t.Context(), vmID(1), gpu.PartitionAdapter{})
	wantCode(t, err, backend.NotFound)
}

func TestMoveVMToAFullHost(t *testing.T) {
	fleet := newFleet(t, 1)
	startWithPartitions(t, fleet, 1)
	run(t, fleet.RemoveGPU(t.Context(), "hv02", gpu1), fleet.RemoveGPU(t.Context(), "hv02", gpu2))
	wantCode(t, fleet.MoveVM(t.Context(), "vm-1", "hv02"), backend.Insufficient)
	if got := state(t, fleet, "hv02", vmID(1)); got != gpu.VMOff {
		t.Errorf("the VM is %s", got)
	}
	wantSeats(t, fleet, vmID(1))
}

func TestMoveVMWithAPin(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	_, err := host.AddPartitionAdapter(t.Context(), vmID(1), gpu.PartitionAdapter{PinnedGPU: gpu2})
	run(t, err, host.StartVM(t.Context(), vmID(1)), fleet.RemoveGPU(t.Context(), "hv02", gpu2))
	wantCode(t, fleet.MoveVM(t.Context(), "vm-1", "hv02"), backend.Insufficient)
	if vm := inventory(t, fleet, "hv02").VMs[0]; vm.PartitionAdapters[0].PinnedGPU != gpu2 {
		t.Errorf("the pin is %q", vm.PartitionAdapters[0].PinnedGPU)
	}
}

func TestReboot(t *testing.T) {
	fleet := newFleet(t, 3)
	startWithPartitions(t, fleet, 2)
	before := inventory(t, fleet, "hv01").GPUs[0].Partitionable.Partitions[0]
	run(t,
		fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
			s.GPUs = map[string]simulated.Hidden{gpu2: {CountAfterReboot: 8}}
		}),
		fleet.Reboot(t.Context(), "hv01"))
	h := inventory(t, fleet, "hv01")
	for i, want := range []gpu.VMState{gpu.VMRunning, gpu.VMRunning, gpu.VMOff} {
		if got := h.VMs[i].State; got != want {
			t.Errorf("%s is %s, want %s", h.VMs[i].Name, got, want)
		}
	}
	if a, b := h.GPUs[0].Partitionable.Count, h.GPUs[1].Partitionable.Count; a != 4 || b != 8 {
		t.Errorf("the counts are %d and %d, want 4 and 8", a, b)
	}
	if got := len(seats(t, fleet, vmID(1))) + len(seats(t, fleet, vmID(2))); got != 2 {
		t.Errorf("%d partitions are held, want 2", got)
	}
	after := h.GPUs[0].Partitionable.Partitions
	if len(after) > 0 && after[0].VFLUID == before.VFLUID {
		t.Errorf("the virtual function is still %s", before.VFLUID)
	}
}

// A VM that gets only one of its two partitions after the boot holds none.
func TestRebootIntoTooFewPartitions(t *testing.T) {
	fleet := newFleet(t, 2)
	host := hostOf(t, fleet, "hv01")
	run(t, fleet.RemoveGPU(t.Context(), "hv01", gpu2))
	addAdapter(t, host, vmID(1))
	addAdapter(t, host, vmID(1))
	addAdapter(t, host, vmID(2))
	run(t,
		host.StartVM(t.Context(), vmID(1)), host.StartVM(t.Context(), vmID(2)),
		fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
			s.GPUs = map[string]simulated.Hidden{gpu1: {CountAfterReboot: 1}}
		}),
		fleet.Reboot(t.Context(), "hv01"))
	wantSeats(t, fleet, vmID(1))
	wantSeats(t, fleet, vmID(2), "hv01 "+gpu1+" 0")
	if got := state(t, fleet, "hv01", vmID(1)); got != gpu.VMOff {
		t.Errorf("the VM that found too little is %s", got)
	}
}

// What a failed change did before it failed is neither in the file nor in the cache.
func TestForeignChangeThatFailsLeavesNoTrace(t *testing.T) {
	fleet := newFleet(t, 9)
	startWithPartitions(t, fleet, 8)
	run(t, fleet.SetVMState(t.Context(), "vm-9", gpu.VMRunning))
	before := inventory(t, fleet, "hv01")
	_, err := fleet.AddForeignAdapter(t.Context(), "vm-9")
	wantCode(t, err, backend.Insufficient)
	if diff := cmp.Diff(before, inventory(t, fleet, "hv01")); diff != "" {
		t.Errorf("the host changed (-before +after):\n%s", diff)
	}
}

func TestForeignAdapter(t *testing.T) {
	fleet := newFleet(t, 2)
	run(t, fleet.SetVMState(t.Context(), "vm-1", gpu.VMRunning))
	for _, vm := range []string{"vm-1", "vm-2"} {
		if id, err := fleet.AddForeignAdapter(t.Context(), vm); err != nil || id == "" {
			t.Fatalf("id %q, error %v", id, err)
		}
	}
	h := inventory(t, fleet, "hv01")
	if len(h.VMs[0].PartitionAdapters) != 1 || len(h.VMs[1].PartitionAdapters) != 1 {
		t.Errorf("the adapters are %v and %v", h.VMs[0].PartitionAdapters, h.VMs[1].PartitionAdapters)
	}
	wantSeats(t, fleet, vmID(1), "hv01 "+gpu1+" 0")
	wantSeats(t, fleet, vmID(2))
}

func TestSetVMState(t *testing.T) {
	fleet := newFleet(t, 1)
	addAdapter(t, hostOf(t, fleet, "hv01"), vmID(1))
	for _, step := range []struct {
		state gpu.VMState
		seats int
	}{{gpu.VMRunning, 1}, {gpu.VMPaused, 1}, {gpu.VMRunning, 1}, {gpu.VMSaved, 0}, {gpu.VMRunning, 1}, {gpu.VMOff, 0}} {
		run(t, fleet.SetVMState(t.Context(), "VM-1", step.state))
		if got := state(t, fleet, "hv01", vmID(1)); got != step.state {
			t.Errorf("the VM is %s, want %s", got, step.state)
		}
		if got := len(seats(t, fleet, vmID(1))); got != step.seats {
			t.Errorf("%s: %d partitions, want %d", step.state, got, step.seats)
		}
	}
}

func TestForeignChangesWorkOnAHostThatWeCannotReach(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t,
		fleet.SetUnreachable(t.Context(), "hv01", true),
		fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpAny}),
		fleet.SetCountOutside(t.Context(), "hv01", gpu1, 8),
		fleet.RenameVM(t.Context(), "vm-1", "renamed"),
		fleet.SetVMState(t.Context(), "renamed", gpu.VMRunning))
	s, err := fleet.Snapshot(t.Context())
	run(t, err)
	h := s.Hosts[0]
	if h.GPUs[0].Partitionable.Count != 8 || h.VMs[0].Name != "renamed" || h.VMs[0].State != gpu.VMRunning {
		t.Errorf("count %d, VM %s %s", h.GPUs[0].Partitionable.Count, h.VMs[0].Name, h.VMs[0].State)
	}
}

func TestSetNodeStateIsSeenByTheWholeCluster(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t, fleet.SetNodeState(t.Context(), "hv01", gpu.NodePaused))
	for _, name := range fleet.Hosts() {
		h := inventory(t, fleet, name)
		if got := h.Cluster.Nodes[0].State; got != gpu.NodePaused {
			t.Errorf("%s sees hv01 as %s", name, got)
		}
		if got := h.Cluster.Nodes[1].State; got != gpu.NodeUp {
			t.Errorf("%s sees hv02 as %s", name, got)
		}
	}
	wantCode(t, hostOf(t, fleet, "hv01").StartVM(t.Context(), vmID(1)), backend.Unavailable)
	if err := fleet.SetNodeState(t.Context(), "hv99", gpu.NodeDown); err == nil {
		t.Error("a node that is not there was paused")
	}
}

func TestAddAndRemoveGPU(t *testing.T) {
	fleet := newFleet(t, 2)
	startWithPartitions(t, fleet, 2)
	const third = "PCIROOT(48)#PCI(0000)#PCI(0000)"
	run(t, fleet.RemoveGPU(t.Context(), "hv01", strings.ToLower(gpu1)), fleet.AddGPU(t.Context(), "hv01", a2(third)))
	h := inventory(t, fleet, "hv01")
	if len(h.GPUs) != 2 || h.GPUs[1].ID != third || h.GPUs[1].Status != gpu.Partitioned {
		t.Errorf("the GPUs are %v", h.GPUs)
	}
	if got := state(t, fleet, "hv01", vmID(1)); got != gpu.VMOff {
		t.Errorf("the VM on the removed GPU is %s", got)
	}
	if got := state(t, fleet, "hv01", vmID(2)); got != gpu.VMRunning {
		t.Errorf("the VM on the other GPU is %s", got)
	}
	if err := fleet.AddGPU(t.Context(), "hv01", a2(third)); err == nil {
		t.Error("one slot took two GPUs")
	}
}

func TestVMNameThatIsNotUnique(t *testing.T) {
	fleet := newFleet(t, 2)
	run(t, fleet.RenameVM(t.Context(), "vm-2", "vm-1"))
	if err := fleet.SetVMState(t.Context(), "vm-1", gpu.VMRunning); err == nil || !strings.Contains(err.Error(), "2 VMs") {
		t.Errorf("got %v", err)
	}
	run(t, fleet.SetVMState(t.Context(), vmID(2), gpu.VMRunning))
	if got := state(t, fleet, "hv01", vmID(1)); got != gpu.VMOff {
		t.Errorf("the other VM is %s", got)
	}
}

func TestStartFailsOnlyWithAGPU(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	run(t, fleet.SetGuest(t.Context(), "vm-1", simulated.Guest{StartFails: simulated.StartFailsWithGPU}),
		host.StartVM(t.Context(), vmID(1)), host.TurnOffVM(t.Context(), vmID(1)))
	addAdapter(t, host, vmID(1))
	wantCode(t, host.StartVM(t.Context(), vmID(1)), backend.Failed)
	wantSeats(t, fleet, vmID(1))
}

func TestLinuxHostIsListedAndNotChanged(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t, fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts = append(s.Hosts, gpu.Host{Name: "node1", Platform: gpu.Linux})
		return nil
	}))
	host := hostOf(t, fleet, "node1")
	if _, err := host.Inventory(t.Context()); err != nil {
		t.Error(err)
	}
	run(t, host.Update(t.Context(), func(s *backend.State) error { s.Fence = 1; return nil }))
	wantCode(t, host.CreatePool(t.Context(), "p"), backend.NotSupported)
}

// A device whose GPU was mounted behind our back is an orphan that keeps its VM off.
func TestOrphanedDevice(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	run(t, host.DismountDevice(t.Context(), gpu1, true))
	_, err := host.AddDevice(t.Context(), vmID(1), gpu.DeviceAssignment{GPU: gpu1})
	run(t, err, fleet.RemoveGPU(t.Context(), "hv01", gpu1))
	err = host.StartVM(t.Context(), vmID(1))
	wantCode(t, err, backend.Failed)
	if err != nil && !strings.Contains(err.Error(), "element not found") {
		t.Errorf("got %v", err)
	}
}

func TestThousandVMs(t *testing.T) {
	fleet := newFleet(t, 1000)
	host := hostOf(t, fleet, "hv01")
	for n := 1; n <= 1000; n += 100 {
		run(t, host.StartVM(t.Context(), vmID(n)))
	}
	running := 0
	for _, vm := range inventory(t, fleet, "hv01").VMs {
		if vm.Runs() {
			running++
		}
	}
	if running != 10 {
		t.Errorf("%d VMs run, want 10", running)
	}
}

func BenchmarkChangeInAFleetOfThousandHosts(b *testing.B) {
	s := gpu.Snapshot{}
	for i := range 1000 {
		h := twoNodes(10).Hosts[0]
		h.Name = fmt.Sprintf("hv%04d", i)
		for len(h.GPUs) < 16 {
			h.GPUs = append(h.GPUs, a2(fmt.Sprintf("PCIROOT(%d)", 100+len(h.GPUs))))
		}
		s.Hosts = append(s.Hosts, h)
	}
	fleet, err := others.Create(b.TempDir()+"/fleet.json", s)
	if err != nil {
		b.Fatal(err)
	}
	count := 4
	for b.Loop() {
		count = 12 - count // 8 and 4 by turns
		if err := fleet.SetCountOutside(b.Context(), "hv0500", gpu1, count); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInventoryOfThousandVMs(b *testing.B) {
	fleet, err := others.Create(b.TempDir()+"/fleet.json", twoNodes(1000))
	if err != nil {
		b.Fatal(err)
	}
	host, err := fleet.Host("hv01")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := host.Inventory(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
