package change_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// opCase is a step on a host that it changes.
type opCase struct {
	on   func() gpu.Host
	edit func(*gpu.Host)
	step change.Step
}

func assignmentClaim(token string) *gpu.Claim {
	return &gpu.Claim{Kind: gpu.ClaimAssignment, ID: vmID(0), Token: token, Revision: 3}
}

// equipped gives the first VM adapters and GPUs, one each by hand.
func equipped(h *gpu.Host) {
	h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{
		{ID: "by-hand"}, {ID: "ours", PinnedGPU: split1, Quotas: gpu.Quotas{Compute: gpu.Quota{Min: new(uint64(100))}}},
	}
	h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "by-hand-too", GPU: whole3}, {ID: "ours-too", Pool: "dda", GPU: whole2}}
	h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{whole1, whole2}}}
	for i := range h.GPUs {
		if g := &h.GPUs[i]; g.Partitionable == nil {
			g.Dismounted, g.Status, g.InstancePath = true, gpu.Assigned, "PCIP"+g.InstancePath[3:]
		}
	}
	h.GPUs[2].Status = gpu.ReadyForDDA
	h.GPUs[0].Partitionable.Partitions = []gpu.Partition{{VMID: vmID(0)}, {VMID: vmID(0)}}
}

func off(n int) func(*gpu.Host) {
	return func(h *gpu.Host) {
		equipped(h)
		h.VMs[n].State, h.GPUs[0].Partitionable.Partitions = gpu.VMOff, nil
		h.VMs[n].Devices[1].GPU = ""
		h.GPUs[3].Status = gpu.ReadyForDDA
	}
}

func divided(h *gpu.Host) {
	h.GPUs[1].TimeSlice = ""
	h.GPUs[1].MIG.Enabled, h.GPUs[1].MIG.Pending = true, true
	*h = change.Project(*h, change.Step{
		Op: change.OpCreateInstance, GPU: cardID(1), Instance: &gpu.MIGPlacement{Profile: "3g.40gb", Start: 4},
	})
}

func mixed(h *gpu.Host) {
	v := h.GPUs[0].VGPU
	v.FunctionsOn, v.Heterogeneous = true, true
	v.Instances = []gpu.VGPUInstance{{VGPUPlace: gpu.VGPUPlace{Type: "L40S-12Q", Function: 3}}}
}

// backed is a GPU with vGPUs in GPU instances.
func backed(h *gpu.Host) {
	g := &h.GPUs[0]
	g.MIG = card(0, "H100 80GB HBM3").MIG
	g.MIG.Enabled, g.MIG.Pending, g.VGPU.FunctionsOn = true, true, true
	g.VGPU.Types = []gpu.VGPUType{{Name: "H100-1-10C", FrameBuffer: 10 * gib, Max: 7, MIGProfile: "1g.10gb"}}
	g.VGPU.Instances = []gpu.VGPUInstance{{VGPUPlace: gpu.VGPUPlace{Type: "H100-1-10C", Function: 3}}}
	*h = change.Project(*h, change.Step{Op: change.OpCreateInstance, GPU: cardID(0), Instance: &gpu.MIGPlacement{Profile: "1g.10gb"}})
}

func vgpuStep(op change.Op, enable bool, function int) change.Step {
	s := change.Step{Op: op, GPU: cardID(0), Enable: enable}
	if op == change.OpCreateVGPU || op == change.OpRemoveVGPU {
		s.VGPU = &gpu.VGPUPlace{Type: "L40S-12Q", Function: function}
	}
	return s
}

// served has a daemon with a client, and a share that it serves, with its claims.
func served(h *gpu.Host) {
	daemon := gpu.MPSDaemonSpec{Name: "inference", Devices: []gpu.SharedDevice{{GPU: cardID(2)}}, MultiUser: true}
	h.MPS.Daemons = []gpu.MPSDaemon{{MPSDaemonSpec: daemon, PID: 77, Clients: []gpu.Process{{PID: 4711, Name: "server"}}}}
	h.Shares = []gpu.HandedShare{{Name: "team-a", CDIDevice: gpu.CDIDevice("team-a"), Note: "as it was"}}
	config := &gpu.PartitionConfig{
		ID: "inference", Kind: gpu.KindMPS, Name: "inference", MPS: &gpu.MPSLayout{MultiUser: true}, GPUs: map[string][]string{name: {cardID(2)}},
	}
	share := &gpu.Share{Name: "team-a", Host: name, Config: "inference", Count: 1, MemoryRequest: 10 * gib, Devices: daemon.Devices}
	h.Claims = []gpu.Claim{
		{Kind: gpu.ClaimConfig, ID: "inference", Token: "c", GPUs: []string{cardID(2)}, Want: gpu.Want{Config: config}},
		{Kind: gpu.ClaimShare, ID: "team-a", Token: "s", GPUs: []string{cardID(2)}, Want: gpu.Want{Share: share}},
	}
}

func daemonStep(op change.Op, daemon string, gpuID string) change.Step {
	return change.Step{
		Op: op, Force: true, Daemon: &gpu.MPSDaemonSpec{Name: daemon, Devices: []gpu.SharedDevice{{GPU: gpuID}}, MultiUser: true},
	}
}

// opCases have every op on a host that it changes, and, where it can, on one of which it
// takes something away.
var opCases = map[change.Op][]opCase{
	change.OpSetPartitionCount: {{on: hyperV, step: change.Step{GPU: split1, Count: 8}}},
	change.OpAddAdapter: {
		{on: hyperV, edit: equipped, step: change.Step{VM: vmID(0), Adapter: &gpu.PartitionAdapter{PinnedGPU: split2}}},
	},
	change.OpSetQuotas: {{on: hyperV, edit: equipped, step: change.Step{VM: vmID(0), Adapter: &gpu.PartitionAdapter{
		ID: "ours", PinnedGPU: split1, Quotas: gpu.Quotas{VRAM: gpu.Quota{Max: new(uint64(1 << 30))}},
	}}}},
	change.OpRemoveAdapters: {
		{on: hyperV, edit: equipped, step: change.Step{VM: vmID(0), Keep: []string{"BY-HAND"}}},
		{on: hyperV, edit: equipped, step: change.Step{VM: vmID(0)}},
	},
	change.OpDismount: {{on: hyperV, step: change.Step{GPU: whole1}}},
	change.OpMount:    {{on: hyperV, edit: equipped, step: change.Step{GPU: whole1}}},
	change.OpCreatePool: {
		{on: hyperV, step: change.Step{Pool: "dda"}},
		{on: hyperV, edit: equipped, step: change.Step{Pool: "second"}},
	},
	change.OpDeletePool:     {{on: hyperV, edit: equipped, step: change.Step{Pool: "DDA"}}},
	change.OpSetPoolMembers: {{on: hyperV, edit: equipped, step: change.Step{Pool: "dda", GPUs: []string{whole1}}}},
	change.OpAddDevice: {
		{on: hyperV, edit: off(0), step: change.Step{VM: vmID(0), Device: &gpu.DeviceAssignment{Pool: "dda"}}},
		{on: hyperV, edit: equipped, step: change.Step{VM: vmID(0), Device: &gpu.DeviceAssignment{GPU: whole1}}},
	},
	change.OpRemoveDevices: {
		{on: hyperV, edit: off(0), step: change.Step{VM: vmID(0), Keep: []string{"by-hand-too"}}},
		{on: hyperV, edit: off(0), step: change.Step{VM: vmID(0), Keep: []string{"ours-too"}}},
	},
	change.OpVMSettings: {{on: hyperV, step: change.Step{VM: vmID(0), Settings: &gpu.VMSettings{
		GuestControlledCache: new(true), HighMemoryMappedIOSpace: new(256 * gib),
	}}}},
	change.OpDrainNode: {{on: hyperV, step: change.Step{}}},
	change.OpResumeNode: {{
		on: hyperV, edit: func(h *gpu.Host) { h.Cluster.Nodes[0].State = gpu.NodePaused },
		step: change.Step{},
	}},
	change.OpStopVM:  {{on: hyperV, edit: equipped, step: change.Step{VM: vmID(0)}}},
	change.OpStartVM: {{on: hyperV, edit: off(0), step: change.Step{VM: vmID(0)}}},
	change.OpSetMIGMode: {
		{on: linux, step: change.Step{GPU: cardID(0), Enable: true, Force: true}},
		{on: linux, edit: divided, step: change.Step{GPU: cardID(1)}},
	},
	change.OpCreateInstance: {{on: linux, edit: divided, step: change.Step{GPU: cardID(1), Instance: &gpu.MIGPlacement{Profile: "1g.10gb"}}}},
	change.OpDestroyInstance: {
		{on: linux, edit: divided, step: change.Step{GPU: cardID(1), Instance: &gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}}},
		{on: kvm, edit: backed, step: change.Step{GPU: cardID(0), Instance: &gpu.MIGPlacement{Profile: "1g.10gb"}}},
	},
	change.OpStopUnit:  {{on: linux, step: change.Step{Unit: "nvidia-dcgm"}}},
	change.OpStartUnit: {{on: linux, step: change.Step{Unit: "nvidia-persistenced"}}},
	change.OpSetFunctions: {
		{on: kvm, step: vgpuStep(change.OpSetFunctions, true, 0)}, {on: kvm, edit: mixed, step: vgpuStep(change.OpSetFunctions, true, 0)},
	},
	change.OpSetHeterogeneous: {{on: kvm, edit: mixed, step: vgpuStep(change.OpSetHeterogeneous, false, 0)}},
	change.OpCreateVGPU:       {{on: kvm, edit: mixed, step: vgpuStep(change.OpCreateVGPU, false, 4)}},
	change.OpRemoveVGPU: {
		{on: kvm, edit: mixed, step: vgpuStep(change.OpRemoveVGPU, false, 3)},
		{on: kvm, edit: backed, step: change.Step{GPU: cardID(0), VGPU: &gpu.VGPUPlace{Type: "H100-1-10C", Function: 3}}},
	},
	change.OpSetComputeMode: {{on: linux, step: change.Step{GPU: cardID(2), ComputeMode: gpu.ComputeExclusiveProcess}}},
	change.OpSetTimeSlice:   {{on: linux, step: change.Step{GPU: cardID(2), TimeSlice: gpu.TimeSliceLong}}},
	change.OpEnsureDaemon: {
		{on: linux, step: daemonStep(change.OpEnsureDaemon, "inference", cardID(2))},
		{on: linux, edit: served, step: daemonStep(change.OpEnsureDaemon, "inference", cardID(1))},
		{on: linux, edit: served, step: daemonStep(change.OpEnsureDaemon, "a-second", cardID(1))},
	},
	change.OpRemoveDaemon: {{on: linux, edit: served, step: change.Step{Force: true, Daemon: &gpu.MPSDaemonSpec{Name: "inference"}}}},
	change.OpWriteShare: {
		{on: linux, step: change.Step{Share: &gpu.ShareSpec{Name: "team-a"}}},
		{
			on: linux, edit: served, step: change.Step{
				Share: &gpu.ShareSpec{Name: "team-a"}, Handed: &gpu.HandedShare{Name: "team-a", Note: "another"},
			},
		},
	},
	change.OpRemoveShare: {{on: linux, edit: served, step: change.Step{Share: &gpu.ShareSpec{Name: "team-a"}}}},
	change.OpPutClaim: {
		{on: hyperV, step: change.Step{Claim: assignmentClaim("mine")}},
		{
			on: hyperV, edit: func(h *gpu.Host) { h.Claims = []gpu.Claim{*assignmentClaim("theirs")} },
			step: change.Step{Claim: assignmentClaim("mine")},
		},
	},
	change.OpDropClaim: {
		{
			on: hyperV, edit: func(h *gpu.Host) { h.Claims = []gpu.Claim{*assignmentClaim("mine")} },
			step: change.Step{Claim: assignmentClaim("mine")},
		},
	},
}

// TestEveryStepIsPutBack makes each kind of step, puts it back, and wants the host as it
// was, also where the step did not run.
func TestEveryStepIsPutBack(t *testing.T) {
	t.Parallel()
	for _, op := range ops(t) {
		if op == change.OpRefreshDevices { // no inventory shows it
			continue
		}
		if len(opCases[op]) == 0 {
			t.Errorf("there is no case for %s", op)
		}
		for _, c := range opCases[op] {
			host := c.on()
			if c.edit != nil {
				c.edit(&host)
			}
			c.step.Op = op
			after := cutAnywhere(t, host, []change.Step{c.step})
			if op == change.OpSetQuotas || op == change.OpStopVM || op == change.OpStartVM {
				if diff := change.Verify(&host, &after, []change.Step{c.step}); len(diff) == 0 {
					t.Errorf("%s: the step shows nothing", c.step)
				}
			}
			if again, _ := change.Schedule(after, []change.Step{c.step}); op == change.OpDismount || op == change.OpMount ||
				op == change.OpStopVM || op == change.OpStartVM {
				if len(again[0]) > 0 {
					t.Errorf("%s on a host that is so already is put back by %v", c.step, again[0])
				}
			}
		}
	}
}

// TestPendingStartIsNotTakenBack starts a VM that an earlier change owes its start: when this
// change is put back the VM goes on running.
func TestPendingStartIsNotTakenBack(t *testing.T) {
	t.Parallel()
	host := hyperV()
	off(0)(&host)
	host.PendingStarts = []gpu.PendingStart{{VM: vmID(0)}}
	undo, _ := change.Schedule(host, []change.Step{{Op: change.OpStartVM, VM: vmID(0)}})
	if len(undo[0]) > 0 {
		t.Errorf("the start that is owed is taken back by %v", undo[0])
	}
}

// TestPinnedVMsStartFirst changes the layout of two GPUs with one partition each. Were the
// VM that may have any of them started first, the one that is pinned could find none.
func TestPinnedVMsStartFirst(t *testing.T) {
	t.Parallel()
	host := hyperV()
	host.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "a", PinnedGPU: split1}}
	host.VMs[1].PartitionAdapters = []gpu.PartitionAdapter{{ID: "b"}}
	for i := range 2 {
		p := host.GPUs[i].Partitionable
		p.Count, p.Partitions = 1, []gpu.Partition{{VMID: vmID(i)}}
		host.Claims = append(host.Claims, gpu.Claim{
			Kind: gpu.ClaimAssignment, ID: vmID(i), Owner: "vdi", Token: "t",
			Want: gpu.Want{
				Assignment: &gpu.Assignment{
					Kind: gpu.AssignPartition, VMID: vmID(i), Partition: &gpu.PartitionWant{}, Power: gpu.Power{AllowShutdown: true},
				},
			},
		})
	}
	steps, err := change.Plan(host, name, change.Change{Owner: "vdi", Token: "c", Want: gpu.Want{Config: &gpu.PartitionConfig{
		ID: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{name: {split1, split2}}, MaxDisruption: gpu.DisruptVMRestart,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	cutAnywhere(t, host, steps)
	var started []string
	for _, s := range steps {
		if s.Op == change.OpStartVM {
			started = append(started, s.Name)
		}
	}
	if !slices.Equal(started, []string{"vm-0", "vm-1"}) {
		t.Errorf("%v are started in this order by %v", started, steps)
	}
}

// TestQuotasOfAnotherGPUStay changes a GPU under which a VM that is off is not: that another
// VM has the only partition of its own GPU is no reason to take its quotas.
func TestQuotasOfAnotherGPUStay(t *testing.T) {
	t.Parallel()
	for _, changed := range []string{split1, split2} {
		host := hyperV()
		quotas := gpu.Quotas{Compute: gpu.Quota{Min: new(uint64(100))}}
		host.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "a", PinnedGPU: split1}}
		host.VMs[2].PartitionAdapters = []gpu.PartitionAdapter{{ID: "c", PinnedGPU: split1, Quotas: quotas}}
		host.Claims = []gpu.Claim{
			{Kind: gpu.ClaimAssignment, ID: vmID(2), Owner: "vdi", Token: "t", Want: gpu.Want{Assignment: &gpu.Assignment{VMID: vmID(2)}}},
		}
		p := host.GPUs[0].Partitionable
		p.Count, p.Partitions = 1, []gpu.Partition{{VMID: vmID(0)}}
		count := map[string]int{split1: 1, split2: 8}[changed]
		steps, err := change.Plan(host, name, change.Change{Owner: "vdi", Token: "c", Want: gpu.Want{Config: &gpu.PartitionConfig{
			ID: "vdi", Kind: gpu.KindGPUP, Count: count, GPUs: map[string][]string{name: {changed}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		after := cutAnywhere(t, host, steps)
		if got := after.VMs[2].PartitionAdapters[0].Quotas; !got.Equal(quotas) {
			t.Errorf("a change of GPU %s takes the quotas by %v", changed, steps)
		}
	}
}

// TestUndoAfterAReboot loses in the middle of a change what a Linux host loses with a reboot.
// What undoes the change brings it back.
func TestUndoAfterAReboot(t *testing.T) {
	t.Parallel()
	for op, cases := range opCases {
		for _, c := range cases {
			host := c.on()
			if c.edit != nil {
				c.edit(&host)
			}
			c.step.Op = op
			switch op {
			case change.OpStopUnit, change.OpStartUnit: // systemd starts what is enabled
				continue
			case change.OpCreateInstance, change.OpCreateVGPU: // what others had is put back by their next apply
				continue
			}
			if host.Platform != gpu.Linux {
				continue
			}
			seen := []change.Step{c.step}
			if _, served := host.HandedShare("team-a"); served && c.step.Daemon != nil {
				seen = append(seen, change.Step{Op: change.OpWriteShare, Share: &gpu.ShareSpec{Name: "team-a"}})
			}
			undo, after := change.Schedule(host, []change.Step{c.step})
			back := rebooted(t, after)
			for _, s := range undo[0] {
				back = change.Project(back, s)
			}
			if c.step.Daemon != nil && c.step.Daemon.Name != "inference" {
				continue // the daemons of other changes are brought back by the next apply
			}
			if diff := change.Verify(&host, &back, seen); len(diff) > 0 {
				t.Errorf("%s, put back after a reboot by %v: %v", c.step, undo, diff)
			}
		}
	}
}

func rebooted(t *testing.T, h gpu.Host) gpu.Host {
	t.Helper()
	h = clone(t, h)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		g.ComputeMode, g.TimeSlice = gpu.ComputeDefault, gpu.TimeSliceDefault
		if m := g.MIG; m != nil {
			m.Enabled, m.Instances = m.Enabled && m.NeedsReset, nil
			m.Pending = m.Enabled
		}
		if v := g.VGPU; v != nil {
			v.FunctionsOn, v.Heterogeneous, v.Instances = false, false, nil
		}
	}
	if h.Shares = nil; h.MPS != nil {
		h.MPS.Daemons = nil
	}
	return h
}
