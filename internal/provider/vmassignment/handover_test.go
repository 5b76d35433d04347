package vmassignment_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccVMAssignment_TwoResourcesSwapTheirVMs(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(a, b string, more ...string) string {
		part := "partition = { config = gpu_partition_config.vdi.id }"
		return r.Block() + rig.Config4 + rig.AssignmentOf("a", a, part, rig.MayStop) +
			rig.AssignmentOf("b", b, append(more, part, rig.MayStop)...)
	}
	held := rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01", "avd-04") })
	replaced := resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
		plancheck.ExpectResourceAction("gpu_vm_assignment.a", plancheck.ResourceActionReplace),
		plancheck.ExpectResourceAction("gpu_vm_assignment.b", plancheck.ResourceActionReplace),
	}}
	r.Steps(
		resource.TestStep{Config: config("avd-01", "avd-04"), Check: held},
		resource.TestStep{Config: config("avd-04", "avd-01"), ConfigPlanChecks: replaced, Check: held},
		// In an order that is known: the plan of b comes after both calls for a.
		resource.TestStep{Config: config("avd-01", "avd-04", "depends_on = [gpu_vm_assignment.a]"), ConfigPlanChecks: replaced, Check: held},
		resource.TestStep{Config: config("avd-04", "avd-01", "depends_on = [gpu_vm_assignment.a]"), ConfigPlanChecks: replaced, Check: held},
	)
	r.WantFree(gpu.VMRunning, "avd-01", "avd-04")
}

// Resources that change VMs among themselves hand them over: nobody is stopped, and nobody is
// named. Where they are planned one at a time the first cannot know, and names whom it stops.
func TestAccVMAssignment_SwappedVMsAreHandedOver(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 10, 30} {
		t.Run(fmt.Sprintf("%d at a time", at), rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2), rig.Desktop("avd-03", 3))))
			config := func(vms ...string) string {
				text := r.Block()
				for i, vm := range vms {
					text += rig.AssignmentOf(string(rune('a'+i)), vm, rig.AnyPartition, rig.MayStop)
				}
				return text
			}
			c := rig.NewCLI(t, config("avd-01", "avd-02", "avd-03"))
			c.Apply()
			c.Write(config("avd-02", "avd-03", "avd-01"))
			parallel := fmt.Sprintf("-parallelism=%d", at)
			plan := rig.Sentence(c.Ok("plan", parallel, "-out=plan.out"))
			for _, vm := range []string{"avd-01", "avd-02", "avd-03"} {
				switch named := strings.Contains(plan, "VM "+vm+" is shut down"); {
				case !named:
					r.NeverStops(vm, "hv01")
				case at > 1:
					t.Errorf("%s is to be stopped:\n%s", vm, plan)
				}
			}
			c.Ok("apply", parallel, "plan.out")
			r.WantHeld(gpu.VMRunning, "avd-01", "avd-02", "avd-03")
			c.WantNoChanges()
		}))
	}
}

func TestAccVMAssignment_ReplaceAndTaintEndWithOneAdapter(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop))
	c.Apply()
	for _, arrange := range [][]string{{"-replace=gpu_vm_assignment.a"}, nil} {
		before := r.Token("avd-01")
		if arrange == nil {
			c.Ok("taint", "gpu_vm_assignment.a")
		}
		rig.WantSaid(t, c.Apply(arrange...), "1 added, 0 changed, 1 destroyed")
		r.WantHeld(gpu.VMRunning, "avd-01")
		if r.Token("avd-01") == before {
			t.Error("the claim still has the token of the instance that was replaced")
		}
		c.WantNoChanges()
	}
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01")
}

func TestAccVMAssignment_CreateBeforeDestroyTakesTheClaimOver(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop, "lifecycle { create_before_destroy = true }"))
	c.Apply()
	before := r.Token("avd-01")
	r.NeverStops("avd-01", "hv01") // the new instance takes over what the VM has
	rig.WantSaid(t, c.Apply("-replace=gpu_vm_assignment.a"), "1 added, 0 changed, 1 destroyed")
	r.WantHeld(gpu.VMRunning, "avd-01")
	if after := r.Token("avd-01"); after == before || after == "" {
		t.Errorf("the claim's token was %q and is %q", before, after)
	}
	c.WantNoChanges()
	r.ClearFaults("hv01")
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01")
}

func TestAccVMAssignment_ARenamedForEachKeyTakesTheClaimOver(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"one at a time": {"-parallelism=1"}, "in parallel": nil} {
		for _, lifecycle := range []string{"", "lifecycle { create_before_destroy = true }"} {
			t.Run(name+" "+lifecycle, func(t *testing.T) {
				t.Parallel()
				r := rig.New(t, rig.TwoNodes())
				config := func(key string) string {
					return r.Block() + `
resource "gpu_vm_assignment" "avd" {
  for_each  = { ` + key + ` = "avd-01", other = "avd-02" }
  vm        = each.value
  partition = {}
  power     = { allow_shutdown = true }
  ` + lifecycle + `
}
`
				}
				c := rig.NewCLI(t, config("old"))
				c.Apply()
				c.Write(config("new"))
				rig.WantSaid(t, c.Apply(args...), "1 added, 0 changed, 1 destroyed")
				r.WantHeld(gpu.VMRunning, "avd-01", "avd-02")
				c.WantNoChanges()
				// The next destroy is of the instance that the state has.
				c.Destroy()
				r.WantFree(gpu.VMRunning, "avd-01", "avd-02")
			})
		}
	}
}

func TestAccVMAssignment_AMovedBlockChangesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	var token string
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop),
			Check:  rig.Then(func() { token = r.Token("avd-01"); r.NeverStops("avd-01", "hv01") }),
		},
		resource.TestStep{
			Config: r.Block() + rig.AssignmentOf("b", "avd-01", rig.AnyPartition, rig.MayStop) +
				"moved {\n  from = gpu_vm_assignment.a\n  to   = gpu_vm_assignment.b\n}\n",
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.b", plancheck.ResourceActionNoop),
			Check: rig.Then(func() {
				if r.Token("avd-01") != token {
					t.Error("the claim has another token")
				}
				r.WantHeld(gpu.VMRunning, "avd-01")
				r.ClearFaults("hv01")
			}),
		},
	)
}

func TestAccVMAssignment_ARemovedResourceFreesItsVMForANewOne(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.AssignmentOf("a", "avd-01", rig.AnyPartition, rig.MayStop)},
		resource.TestStep{
			Config: r.Block() + rig.AssignmentOf("b", rig.VMID(1), rig.AnyPartition, rig.MayStop),
			Check:  rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") }),
		},
		resource.TestStep{ // and nothing of it is lost with the next change
			Config: r.Block() + rig.AssignmentOf("b", rig.VMID(1), "partition = { max_partition_decode = 90 }", rig.MayStop),
			Check:  rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") }),
		},
	)
	r.WantFree(gpu.VMRunning, "avd-01")
}

func TestAccVMAssignment_WithoutAnOwnerAVMChangesHandsInTwoApplies(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	block := r.BlockOf("")
	r.Steps(
		resource.TestStep{Config: block + rig.AssignmentOf("a", "avd-03", rig.AnyPartition)},
		resource.TestStep{
			Config:      block + rig.AssignmentOf("b", "avd-03", rig.AnyPartition),
			ExpectError: rig.Says("a handover between two resources takes two applies"),
		},
		resource.TestStep{PreConfig: func() { r.WantHeld(gpu.VMOff, "avd-03") }, Config: block},
		resource.TestStep{
			Config: block + rig.AssignmentOf("b", "avd-03", rig.AnyPartition), Check: rig.Then(func() { r.WantHeld(gpu.VMOff, "avd-03") }),
		},
	)
}

func TestAccVMAssignment_AChangedOwnerIsWrittenToTheHostsAndLosesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(owner string) string {
		return r.BlockOf(owner) + rig.Config4 +
			rig.Assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop)
	}
	c := rig.NewCLI(t, config(""))
	c.Apply()
	token := r.Token("avd-01")
	r.NeverStops("avd-01", "hv01")
	for _, owner := range []string{"one", "two"} {
		c.Write(config(owner))
		rig.WantSaid(t, c.Apply(), `declared is the owner "`+owner+`"; another state has it`, "0 added, 2 changed, 0 destroyed")
		c.WantNoChanges()
		for _, claim := range r.Host("hv01").Claims {
			if claim.Owner != owner {
				t.Errorf("%s %s has the owner %q, want %q", claim.Kind, claim.ID, claim.Owner, owner)
			}
		}
	}
	r.WantHeld(gpu.VMRunning, "avd-01")
	if now := r.Token("avd-01"); now != token {
		t.Errorf("the claim's token was %q and is %q", token, now)
	}
}

func TestAccVMAssignment_ATargetSeesAndChangesOnlyItself(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	part := "partition = { config = gpu_partition_config.vdi.id }"
	c := rig.NewCLI(t, r.Block()+rig.Config4+rig.AssignmentOf("a", "avd-01", part, rig.MayStop)+
		rig.AssignmentOf("b", "avd-01", part, rig.MayStop)+rig.AssignmentOf("c", "avd-04", part, rig.MayStop))
	// It misses conflicts with what is not targeted, and invents none.
	c.Apply("-target=gpu_vm_assignment.a")
	r.WantHeld(gpu.VMRunning, "avd-01")
	r.WantFree(gpu.VMRunning, "avd-04")
	r.WantCounts(4, rig.Both...)
	c.Destroy("-refresh=false", "-target=gpu_vm_assignment.a")
	r.WantFree(gpu.VMRunning, "avd-01")
	r.WantCounts(4, rig.Both...)
	c.Apply("-target=gpu_vm_assignment.c")
	r.WantHeld(gpu.VMRunning, "avd-04")
}

func TestAccVMAssignment_AVMThatStartedSinceThePlanIsNotStopped(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-03", rig.AnyPartition))
	c.Ok("plan", "-out=plan.out")
	r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))
	rig.WantSaid(t, c.Fails("apply", "plan.out"), "The VM must be off", `VM "avd-03" on host "hv01" is running`)
	r.WantFree(gpu.VMRunning, "avd-03")
	if strings.Contains(c.Ok("state", "list"), "gpu_vm_assignment") {
		t.Error("the state has the assignment")
	}
}

func TestAccVMAssignment_AVMThatStoppedSinceThePlanStaysOff(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop))
	c.Ok("plan", "-out=plan.out")
	r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff))
	c.Ok("apply", "plan.out")
	r.WantHeld(gpu.VMOff, "avd-01")
	c.WantNoChanges()
}

func TestAccVMAssignment_AVMThatMovedSinceThePlanIsServedWhereItIs(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(quotas string) string {
		return r.Block() + rig.Config4 + rig.Assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id"+quotas+" }", rig.MayStop)
	}
	c := rig.NewCLI(t, config(""))
	for _, step := range []struct{ quotas, to string }{{"", "hv02"}, {", max_partition_decode = 90", "hv01"}} {
		c.Write(config(step.quotas))
		c.Ok("plan", "-out=plan.out")
		r.Must(r.Fleet.MoveVM(context.Background(), "avd-01", step.to))
		c.Ok("apply", "plan.out")
		r.WantHeld(gpu.VMRunning, "avd-01") // its claim moved with it
		if _, host := r.VM("avd-01"); host != step.to {
			t.Errorf("avd-01 is on %s, want %s", host, step.to)
		}
		c.WantNoChanges()
	}
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01")
}

func TestAccVMAssignment_AVMThatGotAPartitionSinceThePlanIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop))
	c.Ok("plan", "-out=plan.out")
	r.AddForeignAdapter("avd-01")
	rig.WantSaid(t, c.Fails("apply", "plan.out"), "that no Terraform resource manages")
	r.WantVM("avd-01", gpu.VMRunning, 1)
	if r.Token("avd-01") != "" {
		t.Error("there is a claim for avd-01")
	}
}

func TestAccVMAssignment_AFailoverIsNotAChange(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(more string) string {
		return r.Block() + rig.Config4 + rig.Assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop, more) +
			"output \"host\" {\n  value = gpu_vm_assignment.a.vm_id\n}\n"
	}
	owner := func(host string) []statecheck.StateCheck {
		return []statecheck.StateCheck{
			statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("owner_host"), knownvalue.StringExact(host)),
		}
	}
	r.Steps(
		resource.TestStep{Config: config(""), ConfigStateChecks: owner("hv01")},
		resource.TestStep{
			PreConfig:         func() { r.Must(r.Fleet.MoveVM(context.Background(), "avd-01", "hv02")) },
			Config:            config(""),
			ConfigPlanChecks:  resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			ConfigStateChecks: owner("hv02"),
		},
		// The next change finds the VM, and its claim moves to it.
		resource.TestStep{
			PreConfig:        func() { r.NeverStops("avd-01", "hv02") },
			Config:           config(`automatic_stop_action = "turn_off"`),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01"); r.ClearFaults("hv02") }),
		},
		resource.TestStep{
			PreConfig: func() { r.Must(r.Fleet.MoveVM(context.Background(), "avd-01", "hv01")) },
			Config:    config(`automatic_stop_action = "turn_off"`),
		},
	)
	// Destroyed where it is, its claim where it was; the setting is put back.
	r.WantFree(gpu.VMRunning, "avd-01")
	if v, _ := r.VM("avd-01"); *v.Settings.AutomaticStopAction != gpu.StopSave {
		t.Errorf("the stop action is %s, want save", *v.Settings.AutomaticStopAction)
	}
}

func TestAccVMAssignment_AReferenceChangesBetweenNameAndIDInPlace(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	token := ""
	step := func(vm string, a plancheck.ResourceActionType) resource.TestStep {
		return resource.TestStep{
			Config:           r.Block() + rig.Assignment(vm, rig.AnyPartition, rig.MayStop),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", a),
			Check:            rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") }),
		}
	}
	renamed := step(rig.VMID(1), plancheck.ResourceActionNoop)
	renamed.PreConfig = func() { r.Must(r.Fleet.RenameVM(context.Background(), "avd-01", "finance-01")) }
	renamed.Check = rig.Then(func() { r.WantHeld(gpu.VMRunning, "finance-01"); r.ClearFaults("hv01") })
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop),
			Check:  rig.Then(func() { token = r.Token("avd-01"); r.NeverStops("avd-01", "hv01") }),
		},
		step(rig.VMID(1), plancheck.ResourceActionUpdate),
		step("AVD-01", plancheck.ResourceActionUpdate),
		step("{"+strings.ToLower(rig.VMID(1))+"}", plancheck.ResourceActionUpdate),
		step(rig.VMID(1), plancheck.ResourceActionUpdate),
		renamed,
	)
	if token == "" {
		t.Error("there was no claim")
	}
	r.WantFree(gpu.VMRunning, "finance-01")
}

func TestAccVMAssignment_ANameThatIsOutOfDateIsAWarningAndStillMeansItsVM(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop))
	c.Apply()
	r.Must(r.Fleet.RenameVM(context.Background(), "avd-01", "finance-01"))
	r.Must(r.Fleet.RenameVM(context.Background(), "avd-02", "avd-01")) // a trap
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "The VM has another name now", `is called "finance-01" on hv01`)
	c.Write(r.Block() + rig.Assignment("avd-01", "partition = { max_partition_decode = 90 }", rig.MayStop))
	c.Apply()
	r.WantHeld(gpu.VMRunning, "finance-01")
	r.WantFree(gpu.VMRunning, "avd-01")
	c.Destroy()
	r.WantFree(gpu.VMRunning, "finance-01", "avd-01")
}

func TestAccVMAssignment_AVMThatIsKnownOnlyAtApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	machine := func(id string) string {
		return "resource \"terraform_data\" \"vm\" {\n  input            = \"" + id + "\"\n  triggers_replace = \"" + id + "\"\n}\n"
	}
	config := func(id string) string {
		return r.Block() + machine(id) + strings.Replace(rig.Assignment("X", rig.AnyPartition, rig.MayStop), `"X"`, "terraform_data.vm.output", 1)
	}
	r.Steps(
		resource.TestStep{
			Config: config(rig.VMID(1)),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("vm")),
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("vm_id")),
			}},
			Check: rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") }),
		},
		// The VM is made anew: whichever it will be, the assignment is replaced.
		resource.TestStep{
			Config:           config(rig.VMID(4)),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionReplace),
			Check:            rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-04"); r.WantFree(gpu.VMRunning, "avd-01") }),
		},
		resource.TestStep{Config: config("0F1E2D3C-0000-4000-8000-00000000FFFF"), ExpectError: rig.Says("VM does not exist")},
		resource.TestStep{Config: config(rig.VMID(1)), Check: rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") })},
	)
	r.WantFree(gpu.VMRunning, "avd-01", "avd-04")
}

func TestAccVMAssignment_TwoInstancesThatTurnOutToMeanOneVMStopAtTheSecond(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+`
resource "terraform_data" "vm" {
  for_each = toset(["x", "y"])
  input    = "avd-03"
}
resource "gpu_vm_assignment" "a" {
  for_each  = terraform_data.vm
  vm        = each.value.output
  partition = {}
}
`)
	rig.WantSaid(t, c.Ok("plan"), "Plan: 4 to add")
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), `Two instances of gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`)
	if n := strings.Count(c.Ok("state", "list"), "gpu_vm_assignment"); n > 1 {
		t.Errorf("the state has %d assignments, want one at most", n)
	}
	if v, _ := r.VM("avd-03"); len(v.PartitionAdapters) > 1 {
		t.Errorf("avd-03 has %d partition adapters", len(v.PartitionAdapters))
	}
	c.Destroy("-refresh=false")
	r.WantFree(gpu.VMOff, "avd-03")
}

func TestAccVMAssignment_UnknownPartsWaitForTheApplyAndNeverCrash(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))))
	// Step by step: each value is first unknown, as the output of a resource that the
	// same run makes or changes, and known when it is applied.
	config := func(value, body string) string {
		return r.Block() + "resource \"terraform_data\" \"x\" {\n  input = " + value + "\n}\n" + rig.Assignment("vm-1", body)
	}
	running := rig.Then(func() { r.WantVM("vm-1", gpu.VMRunning, 1) })
	power := `power = terraform_data.x.output`
	allow := `{ allow_shutdown = true, force_shutdown = null, allow_turn_off = null, start_after = null, shutdown_timeout = null, when = ` +
		`null }`
	r.Steps(
		// power as a whole, and nothing else changes with it: it turns out to be policy.
		resource.TestStep{Config: config(allow, rig.AnyPartition+"\n"+power), Check: running},
		resource.TestStep{
			PreConfig: func() { r.NeverStops("vm-1", "edge") },
			Config:    config(strings.Replace(allow, "force_shutdown = null", "force_shutdown = true", 1), rig.AnyPartition+"\n"+power),
			Check:     rig.Then(func() { r.WantVM("vm-1", gpu.VMRunning, 1); r.ClearFaults("edge") }),
		},
		// partition as a whole.
		resource.TestStep{
			Config: config(`{ max_partition_decode = 80 }`,
				rig.MayStop+"\npartition = { max_partition_decode = terraform_data.x.output.max_partition_decode }"), Check: running,
		},
		// One value inside partition, then one inside power.
		resource.TestStep{
			Config: config(`"`+rig.GPU1+`"`, rig.MayStop+"\npartition = { gpu_id = terraform_data.x.output, vram_mib = 948 }"),
			Check: rig.Then(func() {
				if id, _ := r.PartitionOf("vm-1"); id != rig.GPU1 {
					t.Errorf("vm-1 has a partition of GPU %q, want %q", id, rig.GPU1)
				}
			}),
		},
		resource.TestStep{
			Config: config(`"90s"`, "power = { allow_shutdown = true, shutdown_timeout = terraform_data.x.output }\npartition = { gpu_id = \""+
				rig.GPU1+"\" }"), Check: running,
		},
		// Sets and settings.
		resource.TestStep{Config: config(`["edge"]`, rig.MayStop+"\npartition = {}\nhosts = toset(terraform_data.x.output)"), Check: running},
		resource.TestStep{
			Config: config(`33280`, rig.MayStop+"\npartition = {}\nhigh_memory_mapped_io_space_mib = terraform_data.x.output"), Check: running,
		},
		// A check that waited is not passed over.
		resource.TestStep{
			Config:      config(`"PCIROOT(99)"`, rig.MayStop+"\npartition = { gpu_id = terraform_data.x.output }"),
			ExpectError: rig.Says("GPU not found on the host"),
		},
		resource.TestStep{
			Config:      config(`"soon"`, "power = { allow_shutdown = true, shutdown_timeout = terraform_data.x.output }\npartition = {}"),
			ExpectError: rig.Says("must be a positive duration"),
		},
		resource.TestStep{Config: config(`"x"`, rig.MayStop+"\npartition = {}\nhigh_memory_mapped_io_space_mib = 33280"), Check: running},
	)
}

func TestAccVMAssignment_AnUnknownConfigIsCheckedAtApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(id string) string {
		return r.Block() + "resource \"terraform_data\" \"x\" {\n  input = \"" + id + "\"\n}\n" + rig.Config4 +
			rig.Assignment("avd-03", "partition = { config = terraform_data.x.output }", "depends_on = [gpu_partition_config.vdi]")
	}
	r.Steps(
		resource.TestStep{
			Config: config("nosuch"), ExpectError: rig.Says(`No host has a partition config "nosuch", and nothing in this run has made one so far.`),
		},
		resource.TestStep{Config: config("vdi"), Check: rig.Then(func() { r.WantHeld(gpu.VMOff, "avd-03") })},
	)
}

// A VM that was deleted is told, and keeps nothing else from being changed, or all from being destroyed.
func TestAccVMAssignment_AVMThatWasDeletedLeavesTheState(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*rig.Rig, *rig.CLI) {
		t.Helper()
		r := rig.New(t, rig.TwoNodes())
		c := rig.NewCLI(t, r.Block()+rig.AssignmentOf("a", "avd-03", rig.AnyPartition)+rig.AssignmentOf("b", "avd-06", rig.AnyPartition))
		c.Apply()
		r.EditHost("hv01", func(h *gpu.Host) {
			h.VMs = slices.DeleteFunc(h.VMs, func(v gpu.VM) bool { return v.Name == "avd-03" })
		})
		return r, c
	}
	t.Run("and is still configured", func(t *testing.T) {
		t.Parallel()
		r, c := begin(t)
		rig.WantSaid(t, c.Ok("plan"), "Warning: The VM was deleted", "gpu_vm_assignment.a: create", "1 to add, 0 to change, 0 to destroy")
		rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "avd-03")
		c.Write(r.Block() + rig.AssignmentOf("b", "avd-06", rig.AnyPartition))
		c.WantNoChanges()
		if got := strings.Fields(c.Ok("state", "list")); !slices.Equal(got, []string{"gpu_vm_assignment.b"}) {
			t.Errorf("the state has %v", got)
		}
	})
	t.Run("and an apply failed for it", func(t *testing.T) {
		t.Parallel()
		r, c := begin(t)
		c.Fails("apply", "-auto-approve")
		rig.WantSaid(t, c.Ok("plan"), "Warning: The VM was deleted", "gpu_vm_assignment.a: create")
		rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "avd-03")
		c.Destroy()
		if got := c.Ok("state", "list"); got != "" {
			t.Errorf("the state has %v", got)
		}
		r.WantClaims(rig.Both)
	})
	t.Run("and is configured no more", func(t *testing.T) {
		t.Parallel()
		r, c := begin(t)
		c.Write(r.Block() + rig.AssignmentOf("b", "avd-06", rig.AnyPartition))
		rig.WantSaid(t, c.Ok("plan"), "Warning: The record of a VM that was deleted is left", "Host: hv01", "No changes")
		c.Write(r.Block() + rig.AssignmentOf("b", "avd-06", rig.AnyPartition, rig.MayStop))
		c.Apply()
		r.WantClaims([]string{"hv01"})
	})
	t.Run("and all is destroyed", func(t *testing.T) {
		t.Parallel()
		r, c := begin(t)
		c.Destroy()
		r.WantHeld(gpu.VMOff)
		for _, host := range []string{"hv01", "hv02"} {
			if claims := r.Host(host).Claims; len(claims) > 0 {
				t.Errorf("%s has claims after the destroy: %+v", host, claims)
			}
		}
	})
}

func TestAccVMAssignment_AVMWhoseHostDoesNotAnswerStaysInTheState(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(more ...string) string {
		return r.Block(more...) + rig.AssignmentOf("a", "avd-03", rig.AnyPartition) + rig.AssignmentOf("b", "avd-06", rig.AnyPartition)
	}
	c := rig.NewCLI(t, config())
	c.Apply()
	r.Must(r.Fleet.SetUnreachable(context.Background(), "hv01", true))

	out := c.Fails("plan")
	rig.WantSaid(t, out, "Host does not answer", `on_unreachable = "keep"`)
	c.Fails("destroy", "-auto-approve", "-refresh=false")
	if list := c.Ok("state", "list"); !strings.Contains(list, "gpu_vm_assignment.a") {
		t.Errorf("the state has %s", list)
	}

	c.Write(config(`on_unreachable = "keep"`))
	out, _ = c.Run("plan")
	rig.WantSaid(t, out, "Warning: Host does not answer", "What the state knows of this host is kept")
	if list := c.Ok("state", "list"); !strings.Contains(list, "gpu_vm_assignment.a") {
		t.Errorf("the state has %s", list)
	}

	r.Must(r.Fleet.SetUnreachable(context.Background(), "hv01", false))
	c.Apply()
	r.WantHeld(gpu.VMOff, "avd-03", "avd-06")
}

func TestAccVMAssignment_AnUnreachableHostIsGivenUpWithAWarning(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block(`on_unreachable = "keep"`)+rig.Assignment("avd-03", rig.AnyPartition))
	c.Apply()
	r.Must(r.Fleet.SetUnreachable(context.Background(), "hv01", true))
	rig.WantSaid(t, c.Destroy(), "The VM was left unchanged")
	r.Must(r.Fleet.SetUnreachable(context.Background(), "hv01", false))
	r.WantHeld(gpu.VMOff, "avd-03")
}

// A VM that moved to a host which does not answer keeps its GPU there, and the record of it stays on the host that it left.
func TestAccVMAssignment_TheRecordOfAVMThatMovedToASilentHostStays(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1)), rig.Node("hv02")))
	config := r.Block(`on_unreachable = "keep"`) + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop)
	c := rig.NewCLI(t, config)
	c.Apply()
	r.Must(r.Fleet.MoveVM(t.Context(), "avd-01", "hv02"))
	r.Silent(true, "hv02")
	rig.WantSaid(t, c.Destroy(), "The VM was left unchanged")
	r.WantClaims([]string{"hv01"}, "vm_assignment "+rig.VMID(1))
	r.Silent(false, "hv02")
	r.WantVM("avd-01", gpu.VMRunning, 1)
	// The next resource of this owner takes the VM over.
	c.Write(config + "import {\n  to = gpu_vm_assignment.a\n  id = \"hv02/avd-01\"\n}\n")
	c.Apply()
	c.WantNoChanges()
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01")
	r.WantClaims([]string{"hv01", "hv02"})
}

func TestAccVMAssignment_OnlyAPermissionIsToldToTheHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(power string) string {
		return r.Block() + rig.Assignment("avd-01", rig.AnyPartition, "power = {"+power+"}")
	}
	permission := func() gpu.Power {
		for _, c := range r.Host("hv01").Claims {
			if c.Is(gpu.ClaimAssignment, rig.VMID(1)) {
				return c.Want.Assignment.Power
			}
		}
		return gpu.Power{}
	}
	writes := func() map[string]int {
		n := map[string]int{}
		for _, methods := range r.Calls.Take() {
			for m, times := range methods {
				if m != "Inventory" && m != "Hello" {
					n[m] += times
				}
			}
		}
		return n
	}
	r.Steps(
		resource.TestStep{Config: config("allow_shutdown = true"), Check: rig.Then(func() { writes(); r.NeverStops("avd-01", "hv01") })},
		resource.TestStep{
			Config:           config(`allow_shutdown = true, shutdown_timeout = "90s", when = "now"`),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				if got := writes(); len(got) != 0 {
					t.Errorf("a change of policy called the host: %v", got)
				}
			}),
		},
		resource.TestStep{
			Config: config("allow_shutdown = true, force_shutdown = true, allow_turn_off = true"),
			Check: rig.Then(func() {
				if got := writes(); got["Apply"] != 1 {
					t.Errorf("calls: %v, want one Apply", slices.Sorted(maps.Keys(got)))
				}
				if p := permission(); !p.AllowShutdown || !p.ForceShutdown || !p.AllowTurnOff {
					t.Errorf("the claim permits %+v", p)
				}
				r.WantHeld(gpu.VMRunning, "avd-01")
				r.ClearFaults("hv01")
			}),
		},
	)
}

func TestAccVMAssignment_AnAssignmentWhoseClaimWasLostIsNotDestroyed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-03", rig.AnyPartition))
	c.Apply()
	r.EditHost("hv01", func(h *gpu.Host) { h.Claims = nil })
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "the host has lost the record of that", "terraform state rm")
	if list := c.Ok("state", "list"); !strings.Contains(list, "gpu_vm_assignment.a") {
		t.Errorf("the state has %s", list)
	}
	r.WantVM("avd-03", gpu.VMOff, 1)
	// What the error says works.
	rig.WantSaid(t, c.Ok("plan"), "has lost its record of this resource", "0 to add, 1 to change, 0 to destroy")
	c.Apply()
	c.WantNoChanges()
	c.Destroy()
	r.WantFree(gpu.VMOff, "avd-03")
}

// What left the state without a destroy holds its GPU still, and no plan learns of it. The apply says how to get it back.
func TestAccVMAssignment_APoolsGPUHeldByWhatLeftTheState(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	pool := "resource \"gpu_pool\" \"render\" {\n  name = \"render\"\n  members = { hv01 = [\"" + rig.GPU1 + "\"] }\n}\n"
	of := func(label, vm string) string {
		return rig.AssignmentOf(label, vm, "pool = { id = gpu_pool.render.id }", rig.WholeGPU(1), rig.MayStop)
	}
	c := rig.NewCLI(t, r.Block()+pool+of("a", "avd-01"))
	c.Apply()
	c.Ok("state", "rm", "gpu_vm_assignment.a")
	c.Write(r.Block() + pool + of("b", "avd-02"))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "The pool has too few GPUs", `This state's owner has claims for "avd-01"`,
		"import it and destroy it")
	c.Write(r.Block() + pool + of("a", "avd-01"))
	c.Ok("import", "gpu_vm_assignment.a", "hv01/avd-01")
	c.Write(r.Block() + pool)
	c.Apply()
	c.Write(r.Block() + pool + of("b", "avd-02"))
	c.Apply()
	c.WantNoChanges()
}
