package provider_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestTwoResourcesSwapTheirVMs(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(a, b string, more ...string) string {
		part := "partition = { config = gpu_partition_config.vdi.id }"
		return r.block() + config4 + assignmentOf("a", a, part, mayStop) + assignmentOf("b", b, append(more, part, mayStop)...)
	}
	held := then(func() { r.wantHeld(gpu.VMRunning, "avd-01", "avd-04") })
	replaced := resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
		plancheck.ExpectResourceAction("gpu_vm_assignment.a", plancheck.ResourceActionReplace),
		plancheck.ExpectResourceAction("gpu_vm_assignment.b", plancheck.ResourceActionReplace),
	}}
	r.steps(
		resource.TestStep{Config: config("avd-01", "avd-04"), Check: held},
		resource.TestStep{Config: config("avd-04", "avd-01"), ConfigPlanChecks: replaced, Check: held},
		// In an order that is known: the plan of b comes after both calls for a.
		resource.TestStep{Config: config("avd-01", "avd-04", "depends_on = [gpu_vm_assignment.a]"), ConfigPlanChecks: replaced, Check: held},
		resource.TestStep{Config: config("avd-04", "avd-01", "depends_on = [gpu_vm_assignment.a]"), ConfigPlanChecks: replaced, Check: held},
	)
	r.wantFree(gpu.VMRunning, "avd-01", "avd-04")
}

func TestReplaceAndTaintEndWithOneAdapter(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	c.apply()
	for _, arrange := range [][]string{{"-replace=gpu_vm_assignment.a"}, nil} {
		before := r.token("avd-01")
		if arrange == nil {
			c.ok("taint", "gpu_vm_assignment.a")
		}
		wantSaid(t, c.apply(arrange...), "1 added, 0 changed, 1 destroyed")
		r.wantHeld(gpu.VMRunning, "avd-01")
		if r.token("avd-01") == before {
			t.Error("the claim still has the token of the instance that was replaced")
		}
		c.wantNoChanges()
	}
	c.destroy()
	r.wantFree(gpu.VMRunning, "avd-01")
}

func TestCreateBeforeDestroyTakesTheClaimOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop, "lifecycle { create_before_destroy = true }"))
	c.apply()
	before := r.token("avd-01")
	r.neverStops("avd-01", "hv01") // the new instance takes over what the VM has
	wantSaid(t, c.apply("-replace=gpu_vm_assignment.a"), "1 added, 0 changed, 1 destroyed")
	r.wantHeld(gpu.VMRunning, "avd-01")
	if after := r.token("avd-01"); after == before || after == "" {
		t.Errorf("the claim's token was %q and is %q", before, after)
	}
	c.wantNoChanges()
	r.clearFaults("hv01")
	c.destroy()
	r.wantFree(gpu.VMRunning, "avd-01")
}

func TestARenamedForEachKeyTakesTheClaimOver(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"one at a time": {"-parallelism=1"}, "in parallel": nil} {
		for _, lifecycle := range []string{"", "lifecycle { create_before_destroy = true }"} {
			t.Run(name+" "+lifecycle, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, twoNodes())
				config := func(key string) string {
					return r.block() + `
resource "gpu_vm_assignment" "avd" {
  for_each  = { ` + key + ` = "avd-01", other = "avd-02" }
  vm        = each.value
  partition = {}
  power     = { allow_shutdown = true }
  ` + lifecycle + `
}
`
				}
				c := newCLI(t, config("old"))
				c.apply()
				c.write(config("new"))
				wantSaid(t, c.apply(args...), "1 added, 0 changed, 1 destroyed")
				r.wantHeld(gpu.VMRunning, "avd-01", "avd-02")
				c.wantNoChanges()
				// The next destroy is of the instance that the state has.
				c.destroy()
				r.wantFree(gpu.VMRunning, "avd-01", "avd-02")
			})
		}
	}
}

func TestAMovedBlockChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	var token string
	r.steps(
		resource.TestStep{
			Config: r.block() + assignment("avd-01", anyPartition, mayStop),
			Check:  then(func() { token = r.token("avd-01"); r.neverStops("avd-01", "hv01") }),
		},
		resource.TestStep{
			Config:           r.block() + assignmentOf("b", "avd-01", anyPartition, mayStop) + "moved {\n  from = gpu_vm_assignment.a\n  to   = gpu_vm_assignment.b\n}\n",
			ConfigPlanChecks: planned("gpu_vm_assignment.b", plancheck.ResourceActionNoop),
			Check: then(func() {
				if r.token("avd-01") != token {
					t.Error("the claim has another token")
				}
				r.wantHeld(gpu.VMRunning, "avd-01")
				r.clearFaults("hv01")
			}),
		},
	)
}

func TestARemovedResourceFreesItsVMForANewOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + assignmentOf("a", "avd-01", anyPartition, mayStop)},
		resource.TestStep{
			Config: r.block() + assignmentOf("b", vmID(1), anyPartition, mayStop),
			Check:  then(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		},
		resource.TestStep{ // and nothing of it is lost with the next change
			Config: r.block() + assignmentOf("b", vmID(1), "partition = { max_partition_decode = 90 }", mayStop),
			Check:  then(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		},
	)
	r.wantFree(gpu.VMRunning, "avd-01")
}

func TestWithoutAnOwnerAVMChangesHandsInTwoApplies(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	block := r.blockOf("")
	r.steps(
		resource.TestStep{Config: block + assignmentOf("a", "avd-03", anyPartition)},
		resource.TestStep{Config: block + assignmentOf("b", "avd-03", anyPartition), ExpectError: says("a handover between two resources takes two applies")},
		resource.TestStep{PreConfig: func() { r.wantHeld(gpu.VMOff, "avd-03") }, Config: block},
		resource.TestStep{Config: block + assignmentOf("b", "avd-03", anyPartition), Check: then(func() { r.wantHeld(gpu.VMOff, "avd-03") })},
	)
}

func TestAChangedOwnerIsWrittenToTheHostsAndLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(owner string) string {
		return r.blockOf(owner) + config4 +
			assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id }", mayStop)
	}
	c := newCLI(t, config(""))
	c.apply()
	token := r.token("avd-01")
	r.neverStops("avd-01", "hv01")
	for _, owner := range []string{"one", "two"} {
		c.write(config(owner))
		wantSaid(t, c.apply(), `and the provider's owner is "`+owner+`"`, "0 added, 2 changed, 0 destroyed")
		c.wantNoChanges()
		for _, claim := range r.host("hv01").Claims {
			if claim.Owner != owner {
				t.Errorf("%s %s has the owner %q, want %q", claim.Kind, claim.ID, claim.Owner, owner)
			}
		}
	}
	r.wantHeld(gpu.VMRunning, "avd-01")
	if now := r.token("avd-01"); now != token {
		t.Errorf("the claim's token was %q and is %q", token, now)
	}
}

func TestATargetSeesAndChangesOnlyItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	part := "partition = { config = gpu_partition_config.vdi.id }"
	c := newCLI(t, r.block()+config4+assignmentOf("a", "avd-01", part, mayStop)+assignmentOf("b", "avd-01", part, mayStop)+assignmentOf("c", "avd-04", part, mayStop))
	// It misses conflicts with what is not targeted, and invents none.
	c.apply("-target=gpu_vm_assignment.a")
	r.wantHeld(gpu.VMRunning, "avd-01")
	r.wantFree(gpu.VMRunning, "avd-04")
	r.wantCounts(4, both...)
	c.destroy("-refresh=false", "-target=gpu_vm_assignment.a")
	r.wantFree(gpu.VMRunning, "avd-01")
	r.wantCounts(4, both...)
	c.apply("-target=gpu_vm_assignment.c")
	r.wantHeld(gpu.VMRunning, "avd-04")
}

// Saved plans: what happened to the VM between the plan and the apply.

func TestAVMThatStartedSinceThePlanIsNotStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-03", anyPartition))
	c.ok("plan", "-out=plan.out")
	r.must(r.fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))
	wantSaid(t, c.fails("apply", "plan.out"), "The VM must be off", `VM "avd-03" on host "hv01" is running`)
	r.wantFree(gpu.VMRunning, "avd-03")
	if strings.Contains(c.ok("state", "list"), "gpu_vm_assignment") {
		t.Error("the state has the assignment")
	}
}

func TestAVMThatStoppedSinceThePlanStaysOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	c.ok("plan", "-out=plan.out")
	r.must(r.fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff))
	c.ok("apply", "plan.out")
	r.wantHeld(gpu.VMOff, "avd-01")
	c.wantNoChanges()
}

func TestAVMThatMovedSinceThePlanIsServedWhereItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(quotas string) string {
		return r.block() + config4 + assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id"+quotas+" }", mayStop)
	}
	c := newCLI(t, config(""))
	for _, step := range []struct{ quotas, to string }{{"", "hv02"}, {", max_partition_decode = 90", "hv01"}} {
		c.write(config(step.quotas))
		c.ok("plan", "-out=plan.out")
		r.must(r.fleet.MoveVM(context.Background(), "avd-01", step.to))
		c.ok("apply", "plan.out")
		r.wantHeld(gpu.VMRunning, "avd-01") // its claim moved with it
		if _, host := r.vm("avd-01"); host != step.to {
			t.Errorf("avd-01 is on %s, want %s", host, step.to)
		}
		c.wantNoChanges()
	}
	c.destroy()
	r.wantFree(gpu.VMRunning, "avd-01")
}

func TestAVMThatGotAPartitionSinceThePlanIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	c.ok("plan", "-out=plan.out")
	r.addForeignAdapter("avd-01")
	wantSaid(t, c.fails("apply", "plan.out"), "that no Terraform resource manages")
	r.wantVM("avd-01", gpu.VMRunning, 1)
	if r.token("avd-01") != "" {
		t.Error("there is a claim for avd-01")
	}
}

func TestAFailoverIsNotAChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(more string) string {
		return r.block() + config4 + assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id }", mayStop, more) +
			"output \"host\" {\n  value = gpu_vm_assignment.a.vm_id\n}\n"
	}
	owner := func(host string) []statecheck.StateCheck {
		return []statecheck.StateCheck{statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("owner_host"), knownvalue.StringExact(host))}
	}
	r.steps(
		resource.TestStep{Config: config(""), ConfigStateChecks: owner("hv01")},
		resource.TestStep{
			PreConfig:         func() { r.must(r.fleet.MoveVM(context.Background(), "avd-01", "hv02")) },
			Config:            config(""),
			ConfigPlanChecks:  resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			ConfigStateChecks: owner("hv02"),
		},
		// The next change finds the VM, and its claim moves to it.
		resource.TestStep{
			PreConfig:        func() { r.neverStops("avd-01", "hv02") },
			Config:           config(`automatic_stop_action = "turn_off"`),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check:            then(func() { r.wantHeld(gpu.VMRunning, "avd-01"); r.clearFaults("hv02") }),
		},
		resource.TestStep{
			PreConfig: func() { r.must(r.fleet.MoveVM(context.Background(), "avd-01", "hv01")) },
			Config:    config(`automatic_stop_action = "turn_off"`),
		},
	)
	// Destroyed where it is, its claim where it was; the setting is put back.
	r.wantFree(gpu.VMRunning, "avd-01")
	if v, _ := r.vm("avd-01"); *v.Settings.AutomaticStopAction != gpu.StopSave {
		t.Errorf("the stop action is %s, want save", *v.Settings.AutomaticStopAction)
	}
}

func TestAReferenceChangesBetweenNameAndIDInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	token := ""
	step := func(vm string, a plancheck.ResourceActionType) resource.TestStep {
		return resource.TestStep{
			Config:           r.block() + assignment(vm, anyPartition, mayStop),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", a),
			Check:            then(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		}
	}
	renamed := step(vmID(1), plancheck.ResourceActionNoop)
	renamed.PreConfig = func() { r.must(r.fleet.RenameVM(context.Background(), "avd-01", "finance-01")) }
	renamed.Check = then(func() { r.wantHeld(gpu.VMRunning, "finance-01"); r.clearFaults("hv01") })
	r.steps(
		resource.TestStep{
			Config: r.block() + assignment("avd-01", anyPartition, mayStop),
			Check:  then(func() { token = r.token("avd-01"); r.neverStops("avd-01", "hv01") }),
		},
		step(vmID(1), plancheck.ResourceActionUpdate),
		step("AVD-01", plancheck.ResourceActionUpdate),
		step("{"+strings.ToLower(vmID(1))+"}", plancheck.ResourceActionUpdate),
		step(vmID(1), plancheck.ResourceActionUpdate),
		renamed,
	)
	if token == "" {
		t.Error("there was no claim")
	}
	r.wantFree(gpu.VMRunning, "finance-01")
}

func TestANameThatIsOutOfDateIsAWarningAndStillMeansItsVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	c.apply()
	r.must(r.fleet.RenameVM(context.Background(), "avd-01", "finance-01"))
	r.must(r.fleet.RenameVM(context.Background(), "avd-02", "avd-01")) // a trap
	wantSaid(t, c.ok("plan", "-detailed-exitcode"), "The VM has another name now", `is called "finance-01" on hv01`)
	c.write(r.block() + assignment("avd-01", "partition = { max_partition_decode = 90 }", mayStop))
	c.apply()
	r.wantHeld(gpu.VMRunning, "finance-01")
	r.wantFree(gpu.VMRunning, "avd-01")
	c.destroy()
	r.wantFree(gpu.VMRunning, "finance-01", "avd-01")
}

func TestAVMThatIsKnownOnlyAtApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	machine := func(id string) string {
		return "resource \"terraform_data\" \"vm\" {\n  input            = \"" + id + "\"\n  triggers_replace = \"" + id + "\"\n}\n"
	}
	config := func(id string) string {
		return r.block() + machine(id) + strings.Replace(assignment("X", anyPartition, mayStop), `"X"`, "terraform_data.vm.output", 1)
	}
	r.steps(
		resource.TestStep{
			Config: config(vmID(1)),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("vm")),
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("vm_id")),
			}},
			Check: then(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		},
		// The VM is made anew: whichever it will be, the assignment is replaced.
		resource.TestStep{
			Config:           config(vmID(4)),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", plancheck.ResourceActionReplace),
			Check:            then(func() { r.wantHeld(gpu.VMRunning, "avd-04"); r.wantFree(gpu.VMRunning, "avd-01") }),
		},
		resource.TestStep{Config: config("0F1E2D3C-0000-4000-8000-00000000FFFF"), ExpectError: says("VM does not exist")},
		resource.TestStep{Config: config(vmID(1)), Check: then(func() { r.wantHeld(gpu.VMRunning, "avd-01") })},
	)
	r.wantFree(gpu.VMRunning, "avd-01", "avd-04")
}

func TestTwoInstancesThatTurnOutToMeanOneVMStopAtTheSecond(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+`
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
	wantSaid(t, c.ok("plan"), "Plan: 4 to add")
	wantSaid(t, c.fails("apply", "-auto-approve"), `Two instances of gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`)
	if n := strings.Count(c.ok("state", "list"), "gpu_vm_assignment"); n > 1 {
		t.Errorf("the state has %d assignments, want one at most", n)
	}
	if v, _ := r.vm("avd-03"); len(v.PartitionAdapters) > 1 {
		t.Errorf("avd-03 has %d partition adapters", len(v.PartitionAdapters))
	}
	c.destroy("-refresh=false")
	r.wantFree(gpu.VMOff, "avd-03")
}

func TestUnknownPartsWaitForTheApplyAndNeverCrash(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("edge", desktop("vm-1", 1))))
	// Step by step: each value is first unknown, as the output of a resource that the
	// same run makes or changes, and known when it is applied.
	config := func(value, body string) string {
		return r.block() + "resource \"terraform_data\" \"x\" {\n  input = " + value + "\n}\n" + assignment("vm-1", body)
	}
	running := then(func() { r.wantVM("vm-1", gpu.VMRunning, 1) })
	power := `power = terraform_data.x.output`
	allow := `{ allow_shutdown = true, force_shutdown = null, allow_turn_off = null, start_after = null, shutdown_timeout = null, when = null }`
	r.steps(
		// power as a whole, and nothing else changes with it: it turns out to be policy.
		resource.TestStep{Config: config(allow, anyPartition+"\n"+power), Check: running},
		resource.TestStep{
			PreConfig: func() { r.neverStops("vm-1", "edge") },
			Config:    config(strings.Replace(allow, "force_shutdown = null", "force_shutdown = true", 1), anyPartition+"\n"+power),
			Check:     then(func() { r.wantVM("vm-1", gpu.VMRunning, 1); r.clearFaults("edge") }),
		},
		// partition as a whole.
		resource.TestStep{Config: config(`{ max_partition_decode = 80 }`, mayStop+"\npartition = { max_partition_decode = terraform_data.x.output.max_partition_decode }"), Check: running},
		// One value inside partition, then one inside power.
		resource.TestStep{Config: config(`"`+gpu1+`"`, mayStop+"\npartition = { gpu_id = terraform_data.x.output, vram_mib = 948 }"), Check: then(func() {
			if id, _ := r.partitionOf("vm-1"); id != gpu1 {
				t.Errorf("vm-1 has a partition of GPU %q, want %q", id, gpu1)
			}
		})},
		resource.TestStep{Config: config(`"90s"`, "power = { allow_shutdown = true, shutdown_timeout = terraform_data.x.output }\npartition = { gpu_id = \""+gpu1+"\" }"), Check: running},
		// Sets and settings.
		resource.TestStep{Config: config(`["edge"]`, mayStop+"\npartition = {}\nhosts = toset(terraform_data.x.output)"), Check: running},
		resource.TestStep{Config: config(`33280`, mayStop+"\npartition = {}\nhigh_memory_mapped_io_space_mib = terraform_data.x.output"), Check: running},
		// A check that waited is not passed over.
		resource.TestStep{Config: config(`"PCIROOT(99)"`, mayStop+"\npartition = { gpu_id = terraform_data.x.output }"), ExpectError: says("The host does not have this GPU")},
		resource.TestStep{Config: config(`"soon"`, "power = { allow_shutdown = true, shutdown_timeout = terraform_data.x.output }\npartition = {}"), ExpectError: says("must be a positive duration")},
		resource.TestStep{Config: config(`"x"`, mayStop+"\npartition = {}\nhigh_memory_mapped_io_space_mib = 33280"), Check: running},
	)
}

func TestAnUnknownConfigIsCheckedAtApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(id string) string {
		return r.block() + "resource \"terraform_data\" \"x\" {\n  input = \"" + id + "\"\n}\n" + config4 +
			assignment("avd-03", "partition = { config = terraform_data.x.output }", "depends_on = [gpu_partition_config.vdi]")
	}
	r.steps(
		resource.TestStep{Config: config("nosuch"), ExpectError: says(`Neither this run nor any host knows a partition config "nosuch".`)},
		resource.TestStep{Config: config("vdi"), Check: then(func() { r.wantHeld(gpu.VMOff, "avd-03") })},
	)
}

func TestAVMThatWasDeletedLeavesTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignmentOf("a", "avd-03", anyPartition)+assignmentOf("b", "avd-06", anyPartition))
	c.apply()
	r.must(r.fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		s.Hosts[0].VMs = slices.DeleteFunc(s.Hosts[0].VMs, func(v gpu.VM) bool { return v.Name == "avd-03" })
		return nil
	}))
	wantSaid(t, c.fails("plan"), "VM does not exist")
	c.apply("-refresh-only")
	if got := strings.Fields(c.ok("state", "list")); !slices.Equal(got, []string{"gpu_vm_assignment.b"}) {
		t.Errorf("the state has %v", got)
	}
	c.write(r.block() + assignmentOf("b", "avd-06", anyPartition))
	c.wantNoChanges()
}

func TestAVMWhoseHostDoesNotAnswerStaysInTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(more ...string) string {
		return r.block(more...) + assignmentOf("a", "avd-03", anyPartition) + assignmentOf("b", "avd-06", anyPartition)
	}
	c := newCLI(t, config())
	c.apply()
	r.must(r.fleet.SetUnreachable(context.Background(), "hv01", true))

	out := c.fails("plan")
	wantSaid(t, out, "Host does not answer", `on_unreachable = "keep"`)
	c.fails("destroy", "-auto-approve", "-refresh=false")
	if list := c.ok("state", "list"); !strings.Contains(list, "gpu_vm_assignment.a") {
		t.Errorf("the state has %s", list)
	}

	c.write(config(`on_unreachable = "keep"`))
	out, _ = c.run("plan")
	wantSaid(t, out, "Warning: Host does not answer", "What the state knows of this host is kept")
	if list := c.ok("state", "list"); !strings.Contains(list, "gpu_vm_assignment.a") {
		t.Errorf("the state has %s", list)
	}

	r.must(r.fleet.SetUnreachable(context.Background(), "hv01", false))
	c.apply()
	r.wantHeld(gpu.VMOff, "avd-03", "avd-06")
}

func TestAnUnreachableHostIsGivenUpWithAWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block(`on_unreachable = "keep"`)+assignment("avd-03", anyPartition))
	c.apply()
	r.must(r.fleet.SetUnreachable(context.Background(), "hv01", true))
	wantSaid(t, c.destroy(), "The VM was left as it is")
	r.must(r.fleet.SetUnreachable(context.Background(), "hv01", false))
	r.wantHeld(gpu.VMOff, "avd-03")
}

func TestOnlyAPermissionIsToldToTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(power string) string {
		return r.block() + assignment("avd-01", anyPartition, "power = {"+power+"}")
	}
	permission := func() gpu.Power {
		for _, c := range r.host("hv01").Claims {
			if c.Is(gpu.ClaimAssignment, vmID(1)) {
				return c.Want.Assignment.Power
			}
		}
		return gpu.Power{}
	}
	writes := func() map[string]int {
		n := map[string]int{}
		for _, methods := range r.calls.take() {
			for m, times := range methods {
				if m != "Inventory" && m != "Hello" {
					n[m] += times
				}
			}
		}
		return n
	}
	r.steps(
		resource.TestStep{Config: config("allow_shutdown = true"), Check: then(func() { writes(); r.neverStops("avd-01", "hv01") })},
		resource.TestStep{
			Config:           config(`allow_shutdown = true, shutdown_timeout = "90s", when = "now"`),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check: then(func() {
				if got := writes(); len(got) != 0 {
					t.Errorf("a change of policy called the host: %v", got)
				}
			}),
		},
		resource.TestStep{
			Config: config("allow_shutdown = true, force_shutdown = true, allow_turn_off = true"),
			Check: then(func() {
				if got := writes(); got["Apply"] != 1 {
					t.Errorf("calls: %v, want one Apply", slices.Sorted(maps.Keys(got)))
				}
				if p := permission(); !p.AllowShutdown || !p.ForceShutdown || !p.AllowTurnOff {
					t.Errorf("the claim permits %+v", p)
				}
				r.wantHeld(gpu.VMRunning, "avd-01")
				r.clearFaults("hv01")
			}),
		},
	)
}

func TestAnAssignmentWhoseClaimWasLostIsLeftWithAWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-03", anyPartition))
	c.apply()
	r.must(r.fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		s.Hosts[0].Claims = nil
		return nil
	}))
	c.wantNoChanges()
	wantSaid(t, c.destroy(), "The VM was left as it is", "terraform import ADDRESS "+vmID(3))
	r.wantVM("avd-03", gpu.VMOff, 1)
	// What the warning says works.
	c.ok("import", "gpu_vm_assignment.a", vmID(3))
	c.wantNoChanges()
	c.destroy()
	r.wantFree(gpu.VMOff, "avd-03")
}
