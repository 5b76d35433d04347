package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// vdi is a config of two partitions per GPU that puts back what was there.
const vdi = "resource \"gpu_partition_config\" \"vdi\" {\n  name = \"vdi\"\n  hosts = [\"edge\"]\n  gpu_p = { partition_count = 2 }\n  " +
	"on_destroy = \"restore\"\n}\n"

// What a host would refuse is an error of the plan, for every kind of resource, and nothing
// is touched.
func TestAPlanRefusesTheDestroysThatItsHostsWould(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		fleet      gpu.Snapshot
		users, of  string
		disturb    func(*rig.Rig)
		says       []string
		permission string // with which all goes
	}{
		"a config under a VM that stays": {
			fleet: rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))), of: vdi,
			users: rig.Assignment("vm-1", `partition = { config = "vdi" }`, rig.MayStop),
			says:  []string{"its partitions are held by \"vm-1\""},
		},
		"a config under a VM of nobody": {
			fleet: rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))), of: vdi,
			disturb: func(r *rig.Rig) { r.AddForeignAdapter("vm-1") },
			says:    []string{"its partitions are held by \"vm-1\"", `on_destroy = "keep"`},
		},
		"a pool of whole GPUs under a VM that stays": {
			fleet: rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))),
			of:    "resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { edge = [\"" + rig.GPU1 + "\"] }\n}\n",
			users: rig.Assignment("vm-1", `pool = { id = "edge/render" }`, rig.MayStop, rig.WholeGPU(1)),
			says:  []string{`these VMs use it: "vm-1"`},
		},
		"a pool under a share that stays": {
			fleet: rig.Inference(1), of: rig.MLPool([]string{"gpu01"}),
			users: rig.MPSOn01 + rig.ShareOf("a", `pool = "gpu01/ml"`, rig.OfMPS, rig.Quarter),
			says:  []string{`hare "a"`},
		},
		"a config under a share that stays": {
			fleet: rig.Inference(1), of: rig.MPSOn01,
			users: rig.ShareOf("a", rig.OnGPU01, `config = "mps"`, rig.Quarter),
			says:  []string{`hare "a"`},
		},
		"a share with a process": {
			fleet: rig.Inference(1), of: rig.ShareOf("a", rig.OnGPU01),
			disturb: func(r *rig.Rig) { r.Computes("gpu01", r.PlacedOn("gpu01", "a")[0], nil, "a", "python") },
			says:    []string{"it is in use by", "Stop them first."},
		},
		"MPS with clients": {
			fleet: rig.Inference(1), of: rig.MPSOn01,
			disturb: func(r *rig.Rig) { r.Connects("gpu01", "mps", "python") },
			says:    []string{"(python, container 3f2a)", "process_restart"},
		},
		"MIG under a process": {
			fleet: rig.HGX(rig.H100, 1), of: rig.MIGOf("ml", rig.Halves, `on_destroy = "restore"`),
			disturb: func(r *rig.Rig) { r.Runs(0, &gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}, "python") },
			says:    []string{"(python, container 3f2a)", `on_destroy = "keep"`},
		},
		"an assignment that may not stop its VM": {
			fleet: rig.Standalone(rig.Node("edge", rig.Off(rig.Desktop("vm-1", 1)))), of: rig.Assignment("vm-1", rig.AnyPartition),
			disturb: func(r *rig.Rig) { r.Must(r.Fleet.SetVMState(r.T.Context(), "vm-1", gpu.VMRunning)) },
			says:    []string{"The VM must be off"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 3 { // Terraform plans in any order
				r := rig.New(t, x.fleet)
				c := rig.NewCLI(t, r.Block()+x.of)
				c.Apply()
				if x.users != "" {
					c.Write(r.Block() + x.of + x.users)
					c.Apply()
				}
				if x.disturb != nil {
					x.disturb(r)
				}
				before := r.File()
				c.Write(r.Block() + x.users)
				rig.WantSaid(t, c.Fails("plan"), x.says...)
				r.WantUntouched(before)
				if x.users == "" {
					rig.WantSaid(t, c.Fails("plan", "-destroy"), x.says...)
					rig.WantSaid(t, c.Fails("plan", "-destroy", "-refresh=false"), x.says...)
					r.WantUntouched(before)
					continue
				}
				c.Write(r.Block() + x.of + x.users)
				c.Ok("plan", "-destroy") // its users go as well
				c.Write(r.Block())
				c.Run("apply", "-auto-approve") // written out, an id tells Terraform no order
				c.Apply()
				r.WantSettled()
			}
		})
	}
}

// A level that is lowered changes nothing about what the hosts do.
func TestARelaxedRuleAnnouncesNoShutdownThatIsForbidden(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Off(rig.Desktop("vm-1", 1)))))
	relaxed := r.Block(`rules = { vm-must-be-off = "warning" }`)
	c := rig.NewCLI(t, relaxed+rig.Assignment("vm-1", rig.AnyPartition))
	c.Apply()
	r.Must(r.Fleet.SetVMState(t.Context(), "vm-1", gpu.VMRunning))
	before := r.File()
	c.Write(relaxed)
	out := c.Fails("plan")
	rig.WantSaid(t, out, "does not allow a shutdown", "Set power.allow_shutdown = true, or shut the VM down first.")
	if strings.Contains(rig.Sentence(out), "is shut down") {
		t.Errorf("a shutdown is announced that is forbidden:\n%s", out)
	}
	r.WantUntouched(before)

	relaxed = r.Block(`rules = { vm-must-be-off = "warning", feasible-on-host = "warning" }`)
	c.Write(relaxed + rig.Assignment("vm-1", `partition = { max_partition_vram_mib = 512 }`))
	if out := c.Ok("plan"); strings.Contains(rig.Sentence(out), "shut down") {
		t.Errorf("an update announces a shutdown that is forbidden:\n%s", out)
	}
	r.WantUntouched(before)
}

// A destroy says what it ends, resets and makes anew, as an update does.
func TestAPlanOfADestroySaysWhatItDisturbs(t *testing.T) {
	t.Parallel()
	t.Run("clients of MPS", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.Inference(1))
		c := rig.NewCLI(t, r.Block()+rig.SharedConfig("mps", rig.ByMPS+"\n  max_disruption = \"process_restart\"", "gpu01"))
		c.Apply()
		pid := r.Connects("gpu01", "mps", "python")
		says := []string{
			`gpu01: gpu_partition_config "mps" terminates 1 MPS client`,
			fmt.Sprintf("MPS daemon mps is stopped, which terminates its clients: process %d (python, container 3f2a)", pid), "1 to destroy",
		}
		rig.WantSaid(t, c.Ok("plan", "-destroy"), says...)
		c.Write(r.Block())
		rig.WantSaid(t, c.Apply(), says...)
		r.WantDaemons("gpu01")
		c.WantNoChanges()
	})
	t.Run("a reset", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.HGX(rig.A100, 1))
		c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves, `max_disruption = "gpu_reset"`, `on_destroy = "restore"`))
		c.Apply()
		rig.WantSaid(t, c.Ok("plan", "-destroy"), "MIG mode is switched off, which resets this GPU; removes 3g.")
		c.Destroy()
		r.WantLayout("off", 0)
	})
	for name, then := range map[string]struct{ pinned, counts string }{
		"clients of a share that goes":  {"", "0 to add, 0 to change, 1 to destroy"},
		"clients of a share that moves": {fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, 1)), "1 to add, 0 to change, 1 to destroy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(1))
			of := func(pinned string) string {
				if pinned == "" {
					return r.Block() + rig.MPSOn01
				}
				return r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, pinned, `max_disruption = "process_restart"`)
			}
			c := rig.NewCLI(t, of(fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, 0))))
			c.Apply()
			pid, err := r.Fleet.StartInShare(t.Context(), "gpu01", "a", gpu.Process{Name: "trainer"})
			r.Must(err)
			c.Write(of(then.pinned))
			says := []string{`gpu01: gpu_share "a" on gpu01 terminates 1 MPS client`, fmt.Sprintf("process %d (trainer", pid), then.counts}
			plan := c.Ok("plan")
			rig.WantSaid(t, plan, says...)
			if n := strings.Count(rig.Sentence(plan), says[0]); n != 1 {
				t.Errorf("said %d times, want once:\n%s", n, plan)
			}
			c.Apply()
			if clients := r.Host("gpu01").MPS.Daemons[0].Clients; len(clients) > 0 {
				t.Errorf("clients of the share go on: %+v", clients)
			}
			c.WantNoChanges()
		})
	}
	t.Run("a closed maintenance window", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.HGX(rig.A100, 1))
		never := r.Block(closedNow())
		ml := rig.MIGOf("ml", rig.Halves, `max_disruption = "gpu_reset"`, `on_destroy = "restore"`)
		c := rig.NewCLI(t, r.Block()+ml)
		c.Apply()
		c.Write(never + ml)
		rig.WantSaid(t, c.Ok("plan", "-destroy"), "The maintenance window is closed", "resets this GPU")
		rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "The maintenance window is closed")
		r.WantLayout("3g.40gb@0 3g.40gb@4", 0)
	})
	t.Run("by another kind", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.Inference(1))
		config := func(kind string) string {
			return r.Block() + rig.SharedConfig("mps", kind+"\n  max_disruption = \"process_restart\"", "gpu01")
		}
		c := rig.NewCLI(t, config(rig.ByMPS))
		c.Apply()
		pid := r.Connects("gpu01", "mps", "python")
		c.Write(config(rig.ByTurns))
		rig.WantSaid(t, c.Ok("plan"), fmt.Sprintf("MPS daemon mps is stopped, which terminates its clients: process %d", pid),
			"1 to add, 0 to change, 1 to destroy")
		c.Apply()
		r.WantDaemons("gpu01")
		c.WantNoChanges()
	})
}

// A resource whose token no claim carries any more is destroyed without a word: neither the
// rules nor the host have anything to do with it.
func TestWhatNoClaimCarriesIsDestroyedWithoutACheck(t *testing.T) {
	t.Parallel()
	onEdge := rig.Standalone(rig.Node("edge", rig.Off(rig.Desktop("vm-1", 1))))
	runs := func(r *rig.Rig) { r.Must(r.Fleet.SetVMState(r.T.Context(), "vm-1", gpu.VMRunning)) }
	for name, x := range map[string]struct {
		fleet   gpu.Snapshot
		host    string
		hcl     string
		users   string // planned after it, without a reference
		kind    gpu.ClaimKind
		disturb func(*rig.Rig)
	}{
		"config under a VM": {onEdge, "edge", vdi, "", gpu.ClaimConfig, func(r *rig.Rig) { r.AddForeignAdapter("vm-1"); runs(r) }},
		"pool under a VM": {
			onEdge, "edge", "resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { edge = [\"" + rig.GPU1 + "\"] }\n}\n",
			"", gpu.ClaimPool, func(r *rig.Rig) { r.Draw("vm-1", "render") },
		},
		"pool under a share": {
			rig.Inference(1), "gpu01", rig.MLPool([]string{"gpu01"}), rig.MPSOn01 + rig.ShareOf("a", `pool = "gpu01/ml"`, rig.OfMPS, rig.Quarter),
			gpu.ClaimPool, func(*rig.Rig) {},
		},
		"MPS with clients": {
			rig.Inference(1), "gpu01", rig.MPSOn01, "", gpu.ClaimConfig, func(r *rig.Rig) { r.Connects("gpu01", "mps", "python") },
		},
		"share with a process": {rig.Inference(1), "gpu01", rig.ShareOf("a", rig.OnGPU01), "", gpu.ClaimShare, func(r *rig.Rig) {
			r.Computes("gpu01", r.PlacedOn("gpu01", "a")[0], nil, "a", "python")
		}},
		"assignment of a VM that runs": {onEdge, "edge", rig.Assignment("vm-1", rig.AnyPartition), "", gpu.ClaimAssignment, runs},
	} {
		for _, fate := range []string{"taken over", "lost"} {
			t.Run(name+", "+fate, func(t *testing.T) {
				t.Parallel()
				r := rig.New(t, x.fleet)
				c := rig.NewCLI(t, r.Block()+x.hcl)
				c.Apply()
				if x.users != "" {
					c.Write(r.Block() + x.hcl + x.users)
					c.Apply()
				}
				x.disturb(r)
				r.EditHost(x.host, func(h *gpu.Host) {
					var left []gpu.Claim
					for _, claim := range h.Claims {
						if claim.Kind == x.kind && fate == "lost" {
							continue
						}
						if claim.Kind == x.kind {
							claim.Token = "of another instance"
						}
						left = append(left, claim)
					}
					h.Claims = left
				})
				r.NeverStops("", x.host)
				before := r.Host(x.host)
				address := strings.Fields(strings.ReplaceAll(x.hcl, `"`, ""))
				target := "-target=" + address[1] + "." + address[2]
				if x.kind == gpu.ClaimAssignment && fate == "lost" {
					rig.WantSaid(t, c.Fails("plan", "-destroy", "-refresh=false", target), "the host has lost the record of that", "terraform state rm")
					rig.WantSaid(t, c.Fails("destroy", "-auto-approve", target), "the host has lost the record of that")
				} else {
					c.Ok("plan", "-destroy", target)
					c.Destroy(target)
				}
				after := r.Host(x.host)
				for i := range before.GPUs {
					if p, q := before.GPUs[i].Partitionable, after.GPUs[i].Partitionable; p != nil &&
						(p.Count != q.Count || len(p.Partitions) != len(q.Partitions)) {
						t.Errorf("GPU %s was touched: %+v, was %+v", before.GPUs[i].ID, q, p)
					}
				}
				if len(after.Pools) != len(before.Pools) || len(after.Shares) != len(before.Shares) ||
					after.MPS != nil && len(after.MPS.Daemons) != len(before.MPS.Daemons) {
					t.Errorf("%s was touched", x.host)
				}
			})
		}
	}
}

// Only who is in the way of a destroy is told to go, not whoever else is on the host.
func TestABystanderIsNotInTheWayOfADestroy(t *testing.T) {
	t.Parallel()
	pool := "resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { edge = [\"" + rig.GPU1 + "\"] }\n}\n"
	drawn := rig.Assignment("vm-1", `pool = { id = "edge/render" }`, rig.MayStop, rig.WholeGPU(1))
	beside := rig.AssignmentOf("b", "vm-2", rig.AnyPartition, rig.MayStop)
	for range 6 { // Terraform plans in any order
		r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1), rig.Desktop("vm-2", 2))))
		c := rig.NewCLI(t, r.Block()+pool)
		c.Apply()
		c.Write(r.Block() + pool + drawn + beside)
		c.Apply()
		c.Write(r.Block() + drawn + beside)
		before := r.File()
		out := c.Fails("apply", "-auto-approve")
		rig.WantSaid(t, out, `these VMs use it: "vm-1"`)
		if strings.Contains(out, "at gpu_vm_assignment.b") {
			t.Errorf("a bystander is in the way:\n%s", out)
		}
		r.WantUntouched(before)
	}
}
