package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

func minVRAM(least gpu.Bytes) func(*gpu.Assignment) {
	return func(a *gpu.Assignment) { a.Partition.Quotas.VRAM.Min = new(uint64(least)) }
}

// TestCountUnderRunningVMs checks what becomes of the VMs when the layout under them
// changes.
func TestCountUnderRunningVMs(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	r.done(
		layout("c0", "config", nil, config("vdi", 4, gpuP1)),
		assign("a0", "vm1", nil, partitionOf(run1, minVRAM(3*gib))),
		assign("a1", "vm2", nil, partitionOf(run2, minVRAM(gib))),
		assign("a2", "vm3", nil, partitionOf(off1, minVRAM(3*gib))),
		assign("a3", "vm4", nil, partitionOf(off2, minVRAM(gib))),
	)
	r.done(layout("x", "config", config("vdi", 4, gpuP1), config("vdi", 8, gpuP1)))

	if n := r.count(gpuP1); n != 8 {
		t.Errorf("the GPU has %d partitions", n)
	}
	for name, want := range map[string]struct {
		state  gpu.VMState
		quotas bool
	}{
		"run-1": {gpu.VMRunning, false}, // 3 GiB do not fit into 2
		"run-2": {gpu.VMRunning, true},
		"off-1": {gpu.VMOff, false},
		"off-2": {gpu.VMOff, true},
	} {
		vm := r.vm(name)
		if vm.State != want.state || len(vm.PartitionAdapters) != 1 || vm.PartitionAdapters[0].Quotas.Equal(gpu.Quotas{}) == want.quotas {
			t.Errorf("VM %s is %s with adapters %+v", name, vm.State, vm.PartitionAdapters)
		}
	}
	c, _ := r.claim(gpu.ClaimConfig, "vdi")
	if d := cmp.Diff(gpu.Layouts{gpuP1: {Partitions: 4}}, c.OriginalLayouts); d != "" {
		t.Error(d)
	}
	if _, ok := c.Want.Config.GPUs["elsewhere"]; ok || len(c.Want.Config.GPUs[host]) != 1 {
		t.Errorf("the claim repeats other hosts: %+v", c.Want.Config.GPUs)
	}
}

// TestCountNotAllowed checks that nobody's VM is a bystander's price, with the rules
// that say so first switched off: the agent refuses by itself.
func TestCountNotAllowed(t *testing.T) {
	levels := rules.Levels{}
	for _, rule := range rules.All() {
		levels[rule.ID] = rules.Off
	}
	for _, tt := range []struct {
		name   string
		assign func(*agent.Change)
		config func(*gpu.PartitionConfig)
		change func(*agent.Change)
		meddle func(*testing.T, *rig)
		want   string
	}{
		{
			name: "the config allows no restart", config: func(c *gpu.PartitionConfig) { c.MaxDisruption = gpu.DisruptNone }, want: "max_disruption",
		},
		{
			name: "the VM allows no shutdown", assign: func(ch *agent.Change) { ch.Want.Assignment.Power = gpu.Power{} },
			want:   "power.allow_shutdown",
			meddle: func(t *testing.T, r *rig) { check(t, r.sim.StartVM(t.Context(), off1)) },
		},
		{
			name: "the VM waits for its next power-off", assign: func(ch *agent.Change) { ch.Want.Assignment.Power.NextOff = true },
			want:   "power.when",
			meddle: func(t *testing.T, r *rig) { check(t, r.sim.StartVM(t.Context(), off1)) },
		},
		{name: "the VM is another state's", assign: func(ch *agent.Change) { ch.Owner = "lab" }, want: `owner "lab"`},
		{
			name: "neither state has a name", want: "a state without an owner",
			assign: func(ch *agent.Change) { ch.Owner = "" }, change: func(ch *agent.Change) { ch.Owner = "" },
		},
		{
			name: "nobody of ours manages the VM", assign: func(ch *agent.Change) { ch.Want = gpu.Want{} }, want: "no gpu_vm_assignment",
			meddle: func(t *testing.T, r *rig) {
				_, err := r.fleet.AddForeignAdapter(t.Context(), off1)
				check(t, err)
			},
		},
		{name: "the VM is paused", want: "paused", meddle: func(t *testing.T, r *rig) {
			check(t, r.sim.StartVM(t.Context(), off1))
			check(t, r.fleet.SetVMState(t.Context(), off1, gpu.VMPaused))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, onlyOneGPUP)
			give := assign("a", "vm3", nil, partitionOf(off1, nil))
			give.Levels = levels
			if tt.assign != nil {
				tt.assign(&give)
			}
			if !give.Want.Empty() {
				r.done(give)
			}
			if tt.meddle != nil {
				tt.meddle(t, r)
			}
			if r.vm("off-1").State == gpu.VMOff {
				check(t, r.sim.StartVM(t.Context(), off1))
			}
			before := r.look()
			c := config("vdi", 8, gpuP1)
			if tt.config != nil {
				tt.config(c)
			}
			ch := layout("x", "config", nil, c)
			ch.Levels = levels
			if tt.change != nil {
				tt.change(&ch)
			}
			_, err := r.apply(ch)
			e := codeOf(t, err, agent.Refused)
			if e.Cause == nil || !strings.Contains(e.Error(), tt.want) || !strings.Contains(e.Error(), "off-1") {
				t.Errorf("error = %v", e)
			}
			wantSame(t, before, r.look())
		})
	}
}

// TestRestore checks what a GPU that leaves gets back.
func TestRestore(t *testing.T) {
	t.Run("the layout of when it joined", func(t *testing.T) {
		r := newRig(t, nil)
		r.done(
			layout("1", "config", nil, config("vdi", 8, gpuP1)),
			layout("2", "config", config("vdi", 8, gpuP1), config("vdi", 2, gpuP1, gpuP2)),
			layout("3", "config", config("vdi", 2, gpuP1, gpuP2), config("vdi", 2, gpuP2)),
		)
		if r.count(gpuP1) != 4 || r.count(gpuP2) != 2 {
			t.Errorf("counts are %d and %d", r.count(gpuP1), r.count(gpuP2))
		}
		c, _ := r.claim(gpu.ClaimConfig, "vdi")
		if d := cmp.Diff(gpu.Layouts{gpuP2: {Partitions: 4}}, c.OriginalLayouts); d != "" {
			t.Error(d)
		}
	})
	t.Run("nothing when kept", func(t *testing.T) {
		r := newRig(t, nil)
		c := config("vdi", 8, gpuP1)
		c.Restore = false
		r.done(layout("1", "config", nil, c), layout("2", "config", c, nil))
		if n := r.count(gpuP1); n != 8 {
			t.Errorf("count is %d", n)
		}
		if _, ok := r.claim(gpu.ClaimConfig, "vdi"); ok {
			t.Error("the claim is still there")
		}
	})
	t.Run("an error while a VM holds it", func(t *testing.T) {
		r := newRig(t, onlyOneGPUP)
		c := config("vdi", 8, gpuP1)
		r.done(layout("1", "config", nil, c), assign("2", "vm1", nil, partitionOf(run1, nil)))
		before := r.look()
		_, err := r.apply(layout("3", "config", c, nil))
		e := codeOf(t, err, agent.Refused)
		if e.Cause.Code != backend.InUse || !strings.Contains(e.Error(), "run-1") {
			t.Errorf("error = %v", e)
		}
		wantSame(t, before, r.look())
	})
	t.Run("not when the claim is another instance's", func(t *testing.T) {
		r := newRig(t, nil)
		c := config("vdi", 8, gpuP1)
		r.done(layout("1", "config", nil, c))
		before := r.look()
		r.done(layout("2", "other", c, nil))
		wantSame(t, before, r.look())
	})
	t.Run("not when incomplete", func(t *testing.T) {
		r := newRig(t, nil)
		c := config("vdi", 8, gpuP1)
		mark := layout("2", "config", c, c)
		mark.ClaimOnly, mark.Incomplete = true, true
		r.done(layout("1", "config", nil, c), mark, layout("3", "config", c, nil))
		if n := r.count(gpuP1); n != 8 {
			t.Errorf("count is %d", n)
		}
	})
}

// TestGPUMovesBetweenConfigs checks that a GPU's claim and its history move with it.
func TestGPUMovesBetweenConfigs(t *testing.T) {
	r := newRig(t, nil)
	r.done(
		layout("1", "config", nil, config("vdi", 8, gpuP1, gpuP2)),
		layout("2", "other", nil, config("big", 2, gpuP2)),
	)
	vdi, _ := r.claim(gpu.ClaimConfig, "vdi")
	big, _ := r.claim(gpu.ClaimConfig, "big")
	if d := cmp.Diff([]string{gpuP1}, vdi.GPUs); d != "" || vdi.Token != "config" {
		t.Errorf("claim of the first config: %+v", vdi)
	}
	if d := cmp.Diff(gpu.Layouts{gpuP1: {Partitions: 4}}, vdi.OriginalLayouts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(gpu.Layouts{gpuP2: {Partitions: 4}}, big.OriginalLayouts); d != "" {
		t.Error(d)
	}
	// The first config, whose state still has both GPUs, gives back only its own.
	r.done(layout("3", "config", config("vdi", 8, gpuP1, gpuP2), nil))
	if r.count(gpuP1) != 4 || r.count(gpuP2) != 2 {
		t.Errorf("counts are %d and %d", r.count(gpuP1), r.count(gpuP2))
	}

	foreign := layout("4", "third", nil, config("lab", 8, gpuP2))
	foreign.Owner = "lab"
	foreign.Levels = rules.Levels{"one-config-per-gpu": rules.Off, "not-our-claim": rules.Off}
	_, err := r.apply(foreign)
	wantCode(t, err, agent.NotOwner)
}

// TestConfigRefusesGPU asks for GPUs that cannot be partitioned.
func TestConfigRefusesGPU(t *testing.T) {
	levels := rules.Levels{}
	for _, rule := range rules.All() {
		levels[rule.ID] = rules.Off
	}
	r := newRig(t, nil)
	r.done(pools("p", "pool", nil, pool("dda", gpuD2)))
	for id, code := range map[string]backend.Code{
		gpuD1: backend.NotSupported, gpuD2: backend.InvalidState, "PCIROOT(99)": backend.NotFound,
	} {
		ch := layout("x", "config", nil, config("vdi", 8, gpuP1, id))
		ch.Levels = levels
		before := r.look()
		_, err := r.apply(ch)
		if e := codeOf(t, err, agent.Refused); e.Cause.Code != code {
			t.Errorf("GPU %s: %v", id, e)
		}
		wantSame(t, before, r.look())
	}
}

func TestPool(t *testing.T) {
	dda := pool("dda", gpuD1, gpuD2)
	t.Run("members are dismounted and mounted back", func(t *testing.T) {
		r := newRig(t, nil)
		r.done(pools("1", "pool", nil, dda))
		h := r.look()
		p, _ := h.Pool("dda")
		if p == nil || len(p.GPUs) != 2 {
			t.Fatalf("pools = %+v", h.Pools)
		}
		c, _ := r.claim(gpu.ClaimPool, "DDA")
		if d := cmp.Diff([]string{gpuD1, gpuD2}, c.Dismounted); d != "" {
			t.Error(d)
		}
		smaller := pool("dda", gpuD2)
		r.done(pools("2", "pool", dda, smaller))
		h = r.look()
		if g, _ := h.GPU(gpuD1); g.Dismounted {
			t.Error("the GPU that left is not mounted")
		}
		if c, _ := r.claim(gpu.ClaimPool, "dda"); !cmp.Equal([]string{gpuD2}, c.Dismounted) {
			t.Errorf("claim = %+v", c)
		}
		r.done(pools("3", "pool", smaller, nil))
		h = r.look()
		if g, _ := h.GPU(gpuD2); g.Dismounted || len(h.Pools) != 0 || len(h.Claims) != 0 {
			t.Errorf("pools %+v, claims %+v", h.Pools, h.Claims)
		}
	})
	t.Run("kept dismounted", func(t *testing.T) {
		r := newRig(t, nil)
		keep := *dda
		keep.MountBack = false
		r.done(pools("1", "pool", nil, &keep), pools("2", "pool", &keep, nil))
		h := r.look()
		if g, _ := h.GPU(gpuD1); !g.Dismounted || len(h.Pools) != 0 {
			t.Errorf("GPU = %+v, pools = %+v", g, h.Pools)
		}
	})
	t.Run("a VM that is off draws from it", func(t *testing.T) {
		r := newRig(t, nil)
		r.done(pools("1", "pool", nil, dda), assign("2", "vm3", nil, poolFor(off1, "dda", 1)))
		before := r.look()
		ch := pools("3", "pool", dda, nil)
		_, err := r.apply(ch)
		e := codeOf(t, err, agent.Refused)
		if e.Cause.Code != backend.InUse || !strings.Contains(e.Error(), "off-1") {
			t.Errorf("error = %v", e)
		}
		wantSame(t, before, r.look())
	})
	t.Run("a member that leaves is held", func(t *testing.T) {
		r := newRig(t, nil)
		one := pool("dda", gpuD1)
		r.done(pools("1", "pool", nil, one), assign("2", "vm1", nil, poolFor(run1, "dda", 1)))
		before := r.look()
		ch := pools("3", "pool", one, pool("dda", gpuD2))
		ch.Levels = rules.Levels{"partition-in-use": rules.Off, "capacity": rules.Off}
		_, err := r.apply(ch)
		e := codeOf(t, err, agent.Refused)
		if e.Cause.Code != backend.InUse || !strings.Contains(e.Error(), "run-1") {
			t.Errorf("error = %v", e)
		}
		wantSame(t, before, r.look())
	})
	t.Run("one that nobody manages is not taken over", func(t *testing.T) {
		r := newRig(t, nil)
		check(t, r.sim.CreatePool(t.Context(), "dda"))
		ch := pools("1", "pool", nil, dda)
		ch.Levels = rules.Levels{"existing-pool": rules.Off}
		_, err := r.apply(ch)
		wantCode(t, err, agent.NotOwner)
		r.wantSteps(pools("2", "pool", pool("dda"), dda), change.OpDismount, change.OpDismount, change.OpSetPoolMembers, change.OpPutClaim)
	})
}

// TestChangeFromElsewhere checks that the steps of one host do not depend on others.
func TestChangeFromElsewhere(t *testing.T) {
	r := newRig(t, nil)
	c := config("vdi", 8, gpuP1)
	p, err := r.Prepare(t.Context(), layout("x", "config", nil, c))
	check(t, err)
	c.GPUs["third"] = []string{"Y"}
	q, err := r.Prepare(t.Context(), layout("x", "config", nil, c))
	check(t, err)
	if d := cmp.Diff(p, q, cmpopts.IgnoreUnexported(rules.Finding{})); d != "" {
		t.Error(d)
	}
}
