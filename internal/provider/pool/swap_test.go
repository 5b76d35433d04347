package pool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// pools are pools of hv01, by their names at first, each with its name and its GPUs.
func pools(list ...[3]string) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "resource \"gpu_pool\" %q {\n  name = %q\n  members = { hv01 = [%s] }\n}\n", p[0], p[1], p[2])
	}
	return b.String()
}

// Pools that trade GPUs are changed in the order that the host needs, or refused at plan with
// what to do: a plan that is allowed comes about, and one that is not touches nothing.
func TestAccPool_PoolsThatTradeGPUs(t *testing.T) {
	t.Parallel()
	const one, two, both = `"` + rig.GPU0 + `"`, `"` + rig.GPU1 + `"`, `"` + rig.GPU0 + `", "` + rig.GPU1 + `"`
	vm := rig.Assignment("avd-01", "pool = { id = gpu_pool.a.id }", rig.WholeGPU(1), rig.MayStop)
	type members map[string][]string
	for name, c := range map[string]struct {
		before, after string
		refused       []string // what the plan says
		has           members  // afterwards
	}{
		"a GPU goes to another pool": {
			before: pools([3]string{"a", "a", both}, [3]string{"b", "b", ""}), after: pools([3]string{"a", "a", one}, [3]string{"b", "b", two}),
			has: members{"a": {rig.GPU0}, "b": {rig.GPU1}},
		},
		"a GPU goes to a new pool": {
			before: pools([3]string{"a", "a", both}), after: pools([3]string{"a", "a", one}, [3]string{"b", "b", two}),
			has: members{"a": {rig.GPU0}, "b": {rig.GPU1}},
		},
		"a GPU goes to a pool while a VM has another one": {
			before: pools([3]string{"a", "a", one}) + vm, after: pools([3]string{"a", "a", one}, [3]string{"b", "b", two}) + vm,
			has: members{"a": {rig.GPU0}, "b": {rig.GPU1}},
		},
		"a pool ends and its GPU goes to another one": {
			before: pools([3]string{"a", "a", one}, [3]string{"b", "b", two}), after: pools([3]string{"a", "a", both}),
			has: members{"a": {rig.GPU0, rig.GPU1}},
		},
		"two pools swap GPUs": {
			before: pools([3]string{"a", "a", one}, [3]string{"b", "b", two}), after: pools([3]string{"a", "a", two}, [3]string{"b", "b", one}),
			refused: []string{"is in pool", "in an apply of its own"}, has: members{"a": {rig.GPU0}, "b": {rig.GPU1}},
		},
		"two pools swap GPUs of which a VM has one": {
			before:  pools([3]string{"a", "a", one}, [3]string{"b", "b", two}) + vm,
			after:   pools([3]string{"a", "a", two}, [3]string{"b", "b", one}) + vm,
			refused: []string{"VM \"avd-01\" has it", "Shut the VM down or take the GPU from it first"},
			has:     members{"a": {rig.GPU0}, "b": {rig.GPU1}},
		},
		"a GPU that a VM has goes to another pool": {
			before:  pools([3]string{"a", "a", one}, [3]string{"b", "b", two}) + vm,
			after:   pools([3]string{"a", "a", ""}, [3]string{"b", "b", both}) + vm,
			refused: []string{"it is in pool \"a\"", "Take it out of pool \"a\" first"}, has: members{"a": {rig.GPU0}, "b": {rig.GPU1}},
		},
		"a pool has another name": {
			before: pools([3]string{"a", "a", one}), after: pools([3]string{"a", "c", one}), has: members{"c": {rig.GPU0}},
		},
		"a pool that a VM draws from has another name": {
			before: pools([3]string{"a", "a", one}) + vm, after: pools([3]string{"a", "c", one}) + vm,
			has: members{"c": {rig.GPU0}}, // the VM gives its GPU back before the pool goes
		},
	} {
		for _, parallel := range []string{"1", "10"} {
			t.Run(name+", "+parallel+" at a time", func(t *testing.T) {
				t.Parallel()
				r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
				cli := rig.NewCLI(t, r.Block()+c.before)
				cli.Apply()
				before := r.Snapshot()
				cli.Write(r.Block() + c.after)
				if c.refused != nil {
					rig.WantSaid(t, cli.Fails("plan"), c.refused...)
					cli.Fails("apply", "-auto-approve", "-parallelism="+parallel)
					r.WantUnchanged(before)
				} else {
					if out, code := cli.Run("apply", "-auto-approve", "-parallelism="+parallel); code != 0 && parallel != "1" {
						t.Fatalf("the apply fails:\n%s", out)
					} else if code != 0 { // one at a time nothing can make way meanwhile
						cli.Apply()
					}
					cli.WantNoChanges()
				}
				for name, gpus := range c.has {
					r.WantPool(name, gpus, "hv01")
				}
				if got := len(r.Host("hv01").Pools); got != len(c.has) && !strings.Contains(name, "another name") {
					t.Errorf("hv01 has %d pools", got)
				}
				if v, _ := r.VM("avd-01"); v.State != gpu.VMRunning {
					t.Errorf("avd-01 is %s", v.State)
				}
			})
		}
	}
}

// A pool in use cannot be replaced alone. The plan says so, and not that it cannot be replaced with what uses it.
func TestAccPool_ReplacingAPoolInUseIsToldAtPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+pools([3]string{"a", "a", `"` + rig.GPU0 + `"`})+
		rig.Assignment("avd-01", "pool = { id = gpu_pool.a.id }", rig.WholeGPU(1), rig.MayStop))
	c.Apply()
	rig.WantSaid(t, c.Ok("plan", "-replace=gpu_pool.a"), "Warning: What is in use is replaced", `these VMs use it: "avd-01"`,
		"The apply will refuse to replace it unless what uses it is replaced in the same run")
	before := r.Host("hv01")
	rig.WantSaid(t, c.Fails("apply", "-auto-approve", "-replace=gpu_pool.a"), `these VMs use it: "avd-01"`)
	if diff := cmp.Diff(before.Pools, r.Host("hv01").Pools); diff != "" {
		t.Errorf("the pools have changed (-before +after):\n%s", diff)
	}
	rig.WantSaid(t, c.Apply("-replace=gpu_pool.a", "-replace=gpu_vm_assignment.a"), "2 added, 0 changed, 2 destroyed")
	c.WantNoChanges()
}
