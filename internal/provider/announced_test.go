package provider_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A plan is saved, then the host changes so that it would disturb one thing more: the apply
// fails before its first step and names it. A plan that names it goes through, and so does
// one of which less is left to disturb.
func TestAnApplyDisturbsNoMoreThanItsPlanHasAnnounced(t *testing.T) {
	t.Parallel()
	held := func(count int) string {
		return rig.ConfigOf(count, []string{"hv01"}, `max_disruption = "vm_restart"`, `on_destroy = "restore"`) +
			rig.Assign("avd-01", "allow_shutdown = true") + rig.Assign("avd-02", "allow_shutdown = true")
	}
	pairOf := func(vms ...gpu.VM) gpu.Snapshot { return rig.Standalone(rig.Node("hv01", vms...)) }
	start := func(vm string) func(*rig.Rig) {
		return func(r *rig.Rig) { r.Must(r.Fleet.SetVMState(r.T.Context(), vm, gpu.VMRunning)) }
	}
	off := func(vm string) func(*rig.Rig) {
		return func(r *rig.Rig) { r.Must(r.Fleet.SetVMState(r.T.Context(), vm, gpu.VMOff)) }
	}
	mps := func(more string) string {
		return rig.SharedConfig("mps", more+"\n  max_disruption = \"process_restart\"", "gpu01")
	}
	connects := func(r *rig.Rig) { r.Connects("gpu01", "mps", "python") }
	for name, x := range map[string]struct {
		fleet    gpu.Snapshot
		block    string
		had      string
		planned  string
		before   func(*rig.Rig) // the plan
		says     []string       // the plan
		between  func(*rig.Rig) // plan and apply
		names    string         // what the apply fails for; "" when it goes through
		disturbs string         // the host whose VMs may not be stopped
	}{
		"a count that changes under one VM more": {
			fleet: pairOf(rig.Desktop("avd-01", 1), rig.Off(rig.Desktop("avd-02", 2))), had: held(4), planned: held(8),
			says: []string{"hv01: VM avd-01 is shut down and started again"}, between: start("avd-02"), names: "VM \"avd-02\" would be shut down",
			disturbs: "hv01",
		},
		"and with the rule off that asks at plan": {
			fleet: pairOf(rig.Desktop("avd-01", 1), rig.Off(rig.Desktop("avd-02", 2))), had: held(4), planned: held(8),
			block:   `rules = { feasible-on-host = "off" }`,
			between: start("avd-02"), names: "VM \"avd-02\" would be shut down", disturbs: "hv01",
		},
		"and under one less": {
			fleet: pairOf(rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2)), had: held(4), planned: held(8),
			says: []string{"hv01: VMs avd-01 and avd-02 are shut down and started again"}, between: off("avd-02"),
		},
		"another partition for a VM that was off": {
			fleet: pairOf(rig.Off(rig.Desktop("avd-01", 1))), had: rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop),
			planned: rig.Assignment("avd-01", `partition = { max_partition_vram_mib = 512 }`, rig.MayStop),
			between: start("avd-01"), names: "VM \"avd-01\" would be shut down", disturbs: "hv01",
		},
		"the destroy of an assignment whose VM was off": {
			fleet: pairOf(rig.Off(rig.Desktop("avd-01", 1))), had: rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop),
			between: start("avd-01"), names: "VM \"avd-01\" would be shut down", disturbs: "hv01",
		},
		"its replacement by one for another VM": {
			fleet: pairOf(rig.Off(rig.Desktop("avd-01", 1)), rig.Desktop("avd-02", 2)), had: rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop),
			planned: rig.Assignment("avd-02", rig.AnyPartition, rig.MayStop), between: start("avd-01"), names: "VM \"avd-01\" would be shut down",
			disturbs: "hv01",
		},
		"and of one that ran": {
			fleet: pairOf(rig.Desktop("avd-01", 1)), had: rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop),
			says: []string{"VM avd-01 is shut down"}, between: func(*rig.Rig) {},
		},
		"a daemon that is started anew under one client more": {
			fleet: rig.Inference(1), had: mps(rig.ByMPS), planned: mps(`mps = { uid = 2000 }`), before: connects,
			says: []string{"which terminates its clients: process 4003"}, between: connects, names: "(python, container 3f2a) would end",
		},
		"a daemon that ends under a client": {
			fleet: rig.Inference(1), had: mps(rig.ByMPS), between: connects, names: "(python, container 3f2a) would end",
		},
		"a daemon that ends with the config's kind": {
			fleet: rig.Inference(1), had: mps(rig.ByMPS), planned: mps(rig.ByTurns), between: connects, names: "(python, container 3f2a) would end",
		},
		"a GPU that has to be reset by now": {
			fleet: rig.HGX(rig.A100, 1), had: rig.MIGOf("ml", rig.Halves, `max_disruption = "gpu_reset"`),
			planned: rig.MIGOf("ml", rig.SevenSmall, `max_disruption = "gpu_reset"`),
			between: func(r *rig.Rig) {
				r.DestroyOutside(0, rig.At("3g.40gb", 0))
				r.DestroyOutside(0, rig.At("3g.40gb", 4))
				r.Must(r.Fleet.SetMIGModeOutside(r.T.Context(), "hgx01", rig.MIGGPU(0), false))
				r.EditHost("hgx01", func(h *gpu.Host) { h.GPUs[0].MIG.Enabled = false })
			},
			names: "GPU " + rig.MIGGPU(0) + " would be reset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, x.fleet)
			c := rig.NewCLI(t, r.Block(x.block)+x.had)
			c.Apply()
			if x.before != nil {
				x.before(r)
			}
			c.Write(r.Block(x.block) + x.planned)
			rig.WantSaid(t, c.Ok("plan", "-out=approved"), x.says...)
			x.between(r)
			if x.disturbs != "" {
				r.NeverStops("", x.disturbs)
			}
			before := r.Snapshot()
			if x.names == "" {
				c.Ok("apply", "approved")
				r.WantSettled()
				c.WantNoChanges()
				return
			}
			rig.WantSaid(t, c.Fails("apply", "approved"), "The apply would disturb more than the plan announced", x.names, "Plan again")
			r.WantUnchanged(before)
			if x.disturbs != "" {
				r.ClearFaults(x.disturbs)
			}
			rig.WantSaid(t, c.Apply(), "") // which plans again, and says it
			r.WantSettled()
			c.WantNoChanges()
		})
	}
}

// A VM that comes to a host between plan and apply is not stopped with those that the plan
// names.
func TestAVMThatMovesUnderAPlanIsNotStopped(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(count int) string {
		return r.Block() +
			fmt.Sprintf("resource \"gpu_partition_config\" \"vdi\" {\n  name = \"vdi\"\n  hosts = [\"hv01\"]\n  gpu_p = { partition_count = %d "+
				"}\n  max_disruption = \"vm_restart\"\n}\n", count) +
			rig.AssignmentOf("stays", "avd-01", rig.AnyPartition, rig.MayStop) + rig.AssignmentOf("moves", "avd-04", rig.AnyPartition, rig.MayStop)
	}
	c := rig.NewCLI(t, config(4))
	c.Apply()
	c.Write(config(8))
	rig.WantSaid(t, c.Ok("plan", "-out=approved"), "hv01: VM avd-01 is shut down and started again")
	r.Must(r.Fleet.MoveVM(t.Context(), "avd-04", "hv01"))
	r.NeverStops("", rig.Both...)
	rig.WantSaid(t, c.Fails("apply", "approved"), "VM \"avd-04\" would be shut down", "Plan again")
	r.WantVM("avd-04", gpu.VMRunning, 1)
	r.WantVM("avd-01", gpu.VMRunning, 1)
	r.WantSettled()
}
