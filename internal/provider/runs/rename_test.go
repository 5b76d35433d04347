package runs_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// renames are objects of every kind under keys, and what runs on them.
var renames = map[string]struct {
	fleet  func() gpu.Snapshot
	config string // with %s for the set of keys, %q for one of them
	runs   func(*rig.Rig)
}{
	"assignments": {
		fleet: func() gpu.Snapshot {
			h := rig.Node("hv01")
			for n := range 9 { // ten destroys at a time may keep all that would take over from their turn
				h.VMs = append(h.VMs, rig.Desktop(fmt.Sprintf("avd-%02d", n+1), n+1))
			}
			return rig.Standalone(h)
		},
		config: "resource \"gpu_vm_assignment\" \"x\" {\n  for_each = { for n in range(1, 10) : format(\"%[1]s-%%02d\", n) => " +
			"format(\"avd-%%02d\", n) }\n  vm = each.value\n  partition = {}\n  power = { allow_shutdown = true }\n}\n",
	},
	"assignments of a config that is renamed too": {
		fleet: func() gpu.Snapshot {
			return rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2)))
		},
		config: "resource \"gpu_partition_config\" \"x\" {\n  for_each = toset([\"%[1]s\"])\n  name = \"vdi\"\n  hosts = [\"hv01\"]\n  gpu_p = " +
			"{ partition_count = 4 }\n  on_destroy = \"restore\"\n  max_disruption = \"vm_restart\"\n}\n" +
			"resource \"gpu_vm_assignment\" \"x\" {\n  for_each = { %[1]s-1 = \"avd-01\", %[1]s-2 = \"avd-02\" }\n  vm = each.value\n  partition " +
			"= { config = gpu_partition_config.x[\"%[1]s\"].id }\n  power = { allow_shutdown = true }\n}\n",
	},
	"pool": {
		fleet: func() gpu.Snapshot { return rig.Standalone(rig.Node("hv01")) },
		config: "resource \"gpu_pool\" \"x\" {\n  for_each = toset([\"%[1]s\"])\n  name = \"render\"\n  members = { hv01 = [\"" +
			rig.GPU1 + "\"] }\n  on_destroy = \"mount_back\"\n}\n",
	},
	"MIG instances": {
		fleet: func() gpu.Snapshot { return rig.HGX(rig.H100, 2) },
		config: "resource \"gpu_partition_config\" \"x\" {\n  for_each = toset([\"%[1]s\"])\n  name = \"ml\"\n  hosts = [\"hgx01\"]\n  mig = { " +
			rig.Halves + " }\n  max_disruption = \"gpu_reset\"\n  on_destroy = \"restore\"\n}\n",
	},
	"MPS with a client": {
		fleet: func() gpu.Snapshot { return rig.GPUHost(1) },
		config: "resource \"gpu_partition_config\" \"x\" {\n  for_each = toset([\"%[1]s\"])\n  name = \"mps\"\n  hosts = [\"gpu01\"]\n  mps = " +
			"{ " + rig.HalfEach + " }\n  max_disruption = \"process_restart\"\n}\n",
		runs: func(r *rig.Rig) { r.Connects("gpu01", "mps", "python") },
	},
	"shares": {
		fleet: func() gpu.Snapshot { return rig.Inference(1) },
		config: rig.SharedConfig("mps", rig.ByMPS, "gpu01") +
			"resource \"gpu_share\" \"x\" {\n  for_each = { %[1]s-1 = \"a\", %[1]s-2 = \"b\" }\n  name = each.value\n  host = \"gpu01\"\n  config " +
			"= gpu_partition_config.mps.id\n}\n",
	},
}

// bare is a fleet without the claims, which change hands.
func bare(s gpu.Snapshot) gpu.Snapshot {
	for i := range s.Hosts {
		s.Hosts[i].Claims = nil
	}
	return s
}

// An object with another address is handed over as it is: no VM is started anew, no process
// ends, nothing is made again. Where Terraform's order hides that, the plan says so.
func TestAnotherAddressTouchesNothing(t *testing.T) {
	t.Parallel()
	refreshes := []string{"true", "false"}
	if os.Getenv("TF_ACC") != "" {
		refreshes = refreshes[:1] // the second is tried in this process, by `make test`
	}
	for name, x := range renames {
		for _, at := range []int{1, 10, 30} {
			for _, refresh := range refreshes {
				t.Run(fmt.Sprintf("%s/%d at a time, refresh %s", name, at, refresh), rig.WithoutWaiting(func(t *testing.T) {
					r := rig.New(t, x.fleet())
					config := func(key string) string {
						return r.Block() + "data \"gpu_inventory\" \"all\" {}\noutput \"orphans\" { value = " +
							"jsonencode(data.gpu_inventory.all.orphaned_claims) }\n" +
							strings.ReplaceAll(fmt.Sprintf(x.config, key), "%%", "%")
					}
					c := rig.NewCLI(t, config("old"))
					c.Apply()
					if x.runs != nil {
						x.runs(r)
					}
					if c.Terminal != nil {
						c.Terminal.Shuffle = rand.New(rand.NewPCG(uint64(at), 1)).IntN //nolint:gosec // repeatable
					}
					before := bare(r.Snapshot())
					c.Write(config("new"))
					plan := c.Ok("plan", fmt.Sprintf("-parallelism=%d", at), "-refresh="+refresh, "-out=plan.out")
					hidden := strings.Contains(plan, "moved {")
					if hidden && at > 1 {
						t.Errorf("what comes at the same time is not seen:\n%s", plan)
					}
					if strings.Contains(plan, "orphans") {
						t.Errorf("a claim of its own run is called an orphan:\n%s", plan)
					}
					out, code := c.Run("apply", fmt.Sprintf("-parallelism=%d", at), "plan.out")
					if code != 0 && !hidden {
						t.Errorf("the apply fails:\n%s", out)
					}
					if code != 0 { // a config that is destroyed first, under VMs that are handed over, stays
						c.Apply()
					}
					if diff := cmp.Diff(before, bare(r.Snapshot())); diff != "" && !hidden {
						t.Errorf("the hosts are not as they were (-before +after):\n%s\n%s", diff, out)
					}
					c.WantNoChanges()
				}))
			}
		}
	}
}

// Configs and pools that change places among resources, names and all, are handed over under the VMs
// that use them, as a renamed one is. One at a time the first
// cannot know: a plan may be refused, or an apply have to be repeated.
func TestSwappedNamesAreHandedOver(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 10, 30} {
		t.Run(fmt.Sprintf("%d at a time", at), rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1)), rig.Node("hv02", rig.Desktop("avd-02", 2))))
			config := func(x, y string) string { // the labels of what is on hv01 and on hv02
				text := r.Block()
				for label, host := range map[string]string{x: "hv01", y: "hv02"} {
					text += fmt.Sprintf("resource \"gpu_partition_config\" %[1]q {\n  name = %[2]q\n  hosts = [%[2]q]\n  selector = { gpu_ids = { %[2]s "+
						"= [%[3]q] } }\n  gpu_p = { partition_count = 4 }\n  on_destroy = \"restore\"\n}\n", label, host, rig.GPU0)
					text += fmt.Sprintf("resource \"gpu_pool\" %[1]q {\n  name = \"pool-%[2]s\"\n  members = { %[2]s = [%[3]q] }\n  on_destroy = "+
						"\"mount_back\"\n}\n", label, host, rig.GPU1)
				}
				return text + rig.AssignmentOf("one", "avd-01", "partition = { config = gpu_partition_config."+x+".id }", rig.MayStop) +
					rig.AssignmentOf("two", "avd-02", "pool = { id = gpu_pool."+y+".id }", rig.WholeGPU(1), rig.MayStop)
			}
			c := rig.NewCLI(t, config("x", "y"))
			c.Apply()
			before := bare(r.Snapshot())
			r.NeverStops("avd-01", "hv01")
			r.NeverStops("avd-02", "hv02")
			c.Write(config("y", "x"))
			parallel := fmt.Sprintf("-parallelism=%d", at)
			if out, code := c.Run("plan", parallel, "-out=plan.out"); code != 0 {
				if at > 1 {
					t.Fatalf("the plan is refused:\n%s", out)
				}
				rig.WantSaid(t, out, "is destroyed in the same run")
				parallel = "-parallelism=2"
				c.Ok("plan", parallel, "-out=plan.out")
			}
			if out, code := c.Run("apply", parallel, "plan.out"); code != 0 {
				if at > 1 {
					t.Fatalf("the apply fails:\n%s", out)
				}
				rig.WantSaid(t, out, "No host was changed.", "as with -parallelism=1, only apply again.")
				c.Apply()
			}
			if diff := cmp.Diff(before, bare(r.Snapshot())); diff != "" {
				t.Errorf("the hosts are not as they were (-before +after):\n%s", diff)
			}
			c.WantNoChanges()
		}))
	}
}

// What the plan cannot know in Terraform's order is said with the way out, and an apply that
// does several things at a time knows it in time.
func TestAHandoverThatTerraformsOrderHides(t *testing.T) { rig.WithoutWaiting(hiddenHandover)(t) }

func hiddenHandover(t *testing.T) {
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	config := func(key string) string {
		return r.Block() +
			fmt.Sprintf("resource \"gpu_vm_assignment\" \"x\" {\n  for_each = { %s = \"avd-01\" }\n  vm = each.value\n  partition = {}\n  power = "+
				"{ allow_shutdown = true }\n}\n", key)
	}
	c := rig.NewCLI(t, config("old"))
	c.Apply()
	before := bare(r.Snapshot())
	c.Write(config("new"))
	seed := uint64(0)
	for plan := ""; !strings.Contains(plan, "may be stopped twice"); seed++ {
		if seed == 10 {
			t.Fatalf("no order hides a handover:\n%s", plan)
		}
		if c.Terminal != nil {
			c.Terminal.Shuffle = rand.New(rand.NewPCG(seed, 2)).IntN //nolint:gosec // repeatable
		}
		plan = c.Ok("plan", "-parallelism=1", "-out=plan.out")
		if strings.Contains(plan, "may be stopped twice") {
			rig.WantSaid(t, plan, "Warning: VM avd-01 may be stopped twice", "Terraform planned that before this resource",
				"moved { from = gpu_vm_assignment.OLD to = gpu_vm_assignment.NEW }")
		}
	}
	c.Ok("apply", "-parallelism=30", "plan.out")
	if diff := cmp.Diff(before, bare(r.Snapshot())); diff != "" {
		t.Errorf("the hosts are not as they were (-before +after):\n%s", diff)
	}
	c.WantNoChanges()
}
