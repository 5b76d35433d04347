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

// wantHeld asserts that each VM has one partition and one claim, on its own host, and
// is in the state that it should be in.
func (r *rig) wantHeld(state gpu.VMState, vms ...string) {
	r.t.Helper()
	for _, name := range vms {
		r.wantVM(name, state, 1)
		v, host := r.vm(name)
		for _, h := range r.snapshot().Hosts {
			n := 0
			for _, c := range h.Claims {
				if c.Is(gpu.ClaimAssignment, v.ID) {
					n++
				}
			}
			if want := map[bool]int{true: 1}[h.Name == host]; n != want {
				r.t.Errorf("host %s has %d claims for %s, want %d", h.Name, n, name, want)
			}
		}
	}
}

// wantFree asserts that VMs have no partition and no claim, and run.
func (r *rig) wantFree(state gpu.VMState, vms ...string) {
	r.t.Helper()
	for _, name := range vms {
		r.wantVM(name, state, 0)
		v, _ := r.vm(name)
		for _, h := range r.snapshot().Hosts {
			for _, c := range h.Claims {
				if c.Is(gpu.ClaimAssignment, v.ID) {
					r.t.Errorf("host %s has a claim for %s", h.Name, name)
				}
			}
		}
	}
}

// token is the token of a VM's claim.
func (r *rig) token(vm string) string {
	r.t.Helper()
	v, host := r.vm(vm)
	for _, c := range r.host(host).Claims {
		if c.Is(gpu.ClaimAssignment, v.ID) {
			return c.Token
		}
	}
	return ""
}

var apply = []string{"apply", "-auto-approve", "-input=false"}

func TestTwoResourcesSwapTheirVMs(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(a, b string, more ...string) string {
		part := "partition = { config = gpu_partition_config.vdi.id }"
		return r.block() + config4 + assignmentOf("a", a, part, mayStop) + assignmentOf("b", b, append(more, part, mayStop)...)
	}
	held := afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-01", "avd-04") })
	replaced := resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
		plancheck.ExpectResourceAction("gpu_vm_assignment.a", plancheck.ResourceActionReplace),
		plancheck.ExpectResourceAction("gpu_vm_assignment.b", plancheck.ResourceActionReplace),
	}}
	r.play(
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
	c.ok(apply...)
	for _, arrange := range [][]string{{"-replace=gpu_vm_assignment.a"}, nil} {
		before := r.token("avd-01")
		if arrange == nil {
			c.ok("taint", "gpu_vm_assignment.a")
		}
		out := c.ok(append(apply, arrange...)...)
		wantSaid(t, out, "1 added, 0 changed, 1 destroyed")
		r.wantHeld(gpu.VMRunning, "avd-01")
		if r.token("avd-01") == before {
			t.Error("the claim still has the token of the instance that was replaced")
		}
		c.wantNoChanges()
	}
	c.ok("destroy", "-auto-approve", "-input=false")
	r.wantFree(gpu.VMRunning, "avd-01")
}

func TestCreateBeforeDestroyTakesTheClaimOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop, "lifecycle { create_before_destroy = true }"))
	c.ok(apply...)
	before := r.token("avd-01")
	r.neverStops("hv01", "avd-01") // the new instance takes over what the VM has
	wantSaid(t, c.ok(append(apply, "-replace=gpu_vm_assignment.a")...), "1 added, 0 changed, 1 destroyed")
	r.wantHeld(gpu.VMRunning, "avd-01")
	if after := r.token("avd-01"); after == before || after == "" {
		t.Errorf("the claim's token was %q and is %q", before, after)
	}
	c.wantNoChanges()
	r.clearFaults("hv01")
	c.ok("destroy", "-auto-approve", "-input=false")
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
				c.ok(apply...)
				c.write(config("new"))
				wantSaid(t, c.ok(append(apply, args...)...), "1 added, 0 changed, 1 destroyed")
				r.wantHeld(gpu.VMRunning, "avd-01", "avd-02")
				c.wantNoChanges()
				// The next destroy is of the instance that the state has.
				c.ok("destroy", "-auto-approve", "-input=false")
				r.wantFree(gpu.VMRunning, "avd-01", "avd-02")
			})
		}
	}
}

func TestAMovedBlockChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	var token string
	r.play(
		resource.TestStep{
			Config: r.block() + assignment("avd-01", anyPartition, mayStop),
			Check:  afterwards(func() { token = r.token("avd-01"); r.neverStops("hv01", "avd-01") }),
		},
		resource.TestStep{
			Config:           r.block() + assignmentOf("b", "avd-01", anyPartition, mayStop) + "moved {\n  from = gpu_vm_assignment.a\n  to   = gpu_vm_assignment.b\n}\n",
			ConfigPlanChecks: planned("gpu_vm_assignment.b", plancheck.ResourceActionNoop),
			Check: afterwards(func() {
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
	r.play(
		resource.TestStep{Config: r.block() + assignmentOf("a", "avd-01", anyPartition, mayStop)},
		resource.TestStep{
			Config: r.block() + assignmentOf("b", vmID(1), anyPartition, mayStop),
			Check:  afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		},
		resource.TestStep{ // and nothing of it is lost with the next change
			Config: r.block() + assignmentOf("b", vmID(1), "partition = { max_partition_decode = 90 }", mayStop),
			Check:  afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		},
	)
	r.wantFree(gpu.VMRunning, "avd-01")
}

func TestWithoutAnOwnerAVMChangesHandsInTwoApplies(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	block := strings.Replace(r.block(), `owner = "test"`, "", 1)
	r.play(
		resource.TestStep{Config: block + assignmentOf("a", "avd-03", anyPartition)},
		resource.TestStep{Config: block + assignmentOf("b", "avd-03", anyPartition), ExpectError: wrapped("a handover between two resources takes two applies")},
		resource.TestStep{PreConfig: func() { r.wantHeld(gpu.VMOff, "avd-03") }, Config: block},
		resource.TestStep{Config: block + assignmentOf("b", "avd-03", anyPartition), Check: afterwards(func() { r.wantHeld(gpu.VMOff, "avd-03") })},
	)
}

func TestATargetSeesAndChangesOnlyItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	part := "partition = { config = gpu_partition_config.vdi.id }"
	c := newCLI(t, r.block()+config4+assignmentOf("a", "avd-01", part, mayStop)+assignmentOf("b", "avd-01", part, mayStop)+assignmentOf("c", "avd-04", part, mayStop))
	// It misses conflicts with what is not targeted, and invents none.
	c.ok(append(apply, "-target=gpu_vm_assignment.a")...)
	r.wantHeld(gpu.VMRunning, "avd-01")
	r.wantFree(gpu.VMRunning, "avd-04")
	r.wantCounts(4, "hv01", "hv02")
	c.ok("destroy", "-auto-approve", "-input=false", "-refresh=false", "-target=gpu_vm_assignment.a")
	r.wantFree(gpu.VMRunning, "avd-01")
	r.wantCounts(4, "hv01", "hv02")
	c.ok(append(apply, "-target=gpu_vm_assignment.c")...)
	r.wantHeld(gpu.VMRunning, "avd-04")
}

// Saved plans: what happened to the VM between the plan and the apply.

func TestAVMThatStartedSinceThePlanIsNotStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-03", anyPartition))
	c.ok("plan", "-input=false", "-out=plan.out")
	r.must(r.fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))
	out, code := c.run("apply", "-input=false", "plan.out")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantSaid(t, out, "The VM must be off", `VM "avd-03" on host "hv01" is running`)
	r.wantFree(gpu.VMRunning, "avd-03")
	if strings.Contains(c.ok("state", "list"), "gpu_vm_assignment") {
		t.Error("the state has the assignment")
	}
}

func TestAVMThatStoppedSinceThePlanStaysOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	c.ok("plan", "-input=false", "-out=plan.out")
	r.must(r.fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff))
	c.ok("apply", "-input=false", "plan.out")
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
		c.ok("plan", "-input=false", "-out=plan.out")
		r.must(r.fleet.MoveVM(context.Background(), "avd-01", step.to))
		c.ok("apply", "-input=false", "plan.out")
		r.wantHeld(gpu.VMRunning, "avd-01") // its claim moved with it
		if _, host := r.vm("avd-01"); host != step.to {
			t.Errorf("avd-01 is on %s, want %s", host, step.to)
		}
		c.wantNoChanges()
	}
	c.ok("destroy", "-auto-approve", "-input=false")
	r.wantFree(gpu.VMRunning, "avd-01")
}

func TestAVMThatGotAPartitionSinceThePlanIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	c.ok("plan", "-input=false", "-out=plan.out")
	if _, err := r.fleet.AddForeignAdapter(context.Background(), "avd-01"); err != nil {
		t.Fatal(err)
	}
	out, code := c.run("apply", "-input=false", "plan.out")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantSaid(t, out, "that no Terraform resource manages")
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
	r.play(
		resource.TestStep{Config: config(""), ConfigStateChecks: owner("hv01")},
		resource.TestStep{
			PreConfig:         func() { r.must(r.fleet.MoveVM(context.Background(), "avd-01", "hv02")) },
			Config:            config(""),
			ConfigPlanChecks:  resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			ConfigStateChecks: owner("hv02"),
		},
		// The next change finds the VM, and its claim moves to it.
		resource.TestStep{
			PreConfig:        func() { r.neverStops("hv02", "avd-01") },
			Config:           config(`automatic_stop_action = "turn_off"`),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check:            afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-01"); r.clearFaults("hv02") }),
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
			Check:            afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		}
	}
	renamed := step(vmID(1), plancheck.ResourceActionNoop)
	renamed.PreConfig = func() { r.must(r.fleet.RenameVM(context.Background(), "avd-01", "finance-01")) }
	renamed.Check = afterwards(func() { r.wantHeld(gpu.VMRunning, "finance-01"); r.clearFaults("hv01") })
	r.play(
		resource.TestStep{
			Config: r.block() + assignment("avd-01", anyPartition, mayStop),
			Check:  afterwards(func() { token = r.token("avd-01"); r.neverStops("hv01", "avd-01") }),
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
	c.ok(apply...)
	r.must(r.fleet.RenameVM(context.Background(), "avd-01", "finance-01"))
	r.must(r.fleet.RenameVM(context.Background(), "avd-02", "avd-01")) // a trap
	out, code := c.run("plan", "-detailed-exitcode", "-input=false")
	if code != 0 {
		t.Errorf("exit code %d, want 0 (no changes)", code)
	}
	wantSaid(t, out, "The VM has another name now", `is called "finance-01" on hv01`)
	c.write(r.block() + assignment("avd-01", "partition = { max_partition_decode = 90 }", mayStop))
	c.ok(apply...)
	r.wantHeld(gpu.VMRunning, "finance-01")
	r.wantFree(gpu.VMRunning, "avd-01")
	c.ok("destroy", "-auto-approve", "-input=false")
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
	r.play(
		resource.TestStep{
			Config: config(vmID(1)),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("vm")),
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("vm_id")),
			}},
			Check: afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-01") }),
		},
		// The VM is made anew: whichever it will be, the assignment is replaced.
		resource.TestStep{
			Config:           config(vmID(4)),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", plancheck.ResourceActionReplace),
			Check:            afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-04"); r.wantFree(gpu.VMRunning, "avd-01") }),
		},
		resource.TestStep{Config: config("0F1E2D3C-0000-4000-8000-00000000FFFF"), ExpectError: wrapped("VM does not exist")},
		resource.TestStep{Config: config(vmID(1)), Check: afterwards(func() { r.wantHeld(gpu.VMRunning, "avd-01") })},
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
	wantSaid(t, c.ok("plan", "-input=false"), "Plan: 4 to add")
	out, code := c.run(apply...)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantSaid(t, out, `Two instances of gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`)
	if n := strings.Count(c.ok("state", "list"), "gpu_vm_assignment"); n > 1 {
		t.Errorf("the state has %d assignments, want one at most", n)
	}
	if v, _ := r.vm("avd-03"); len(v.PartitionAdapters) > 1 {
		t.Errorf("avd-03 has %d partition adapters", len(v.PartitionAdapters))
	}
	c.ok("destroy", "-auto-approve", "-input=false", "-refresh=false")
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
	running := afterwards(func() { r.wantVM("vm-1", gpu.VMRunning, 1) })
	power := `power = terraform_data.x.output`
	allow := `{ allow_shutdown = true, force_shutdown = null, allow_turn_off = null, start_after = null, shutdown_timeout = null, when = null }`
	r.play(
		// power as a whole, and nothing else changes with it: it turns out to be policy.
		resource.TestStep{Config: config(allow, anyPartition+"\n"+power), Check: running},
		resource.TestStep{
			PreConfig: func() { r.neverStops("edge", "vm-1") },
			Config:    config(strings.Replace(allow, "force_shutdown = null", "force_shutdown = true", 1), anyPartition+"\n"+power),
			Check:     afterwards(func() { r.wantVM("vm-1", gpu.VMRunning, 1); r.clearFaults("edge") }),
		},
		// partition as a whole.
		resource.TestStep{Config: config(`{ max_partition_decode = 80 }`, mayStop+"\npartition = { max_partition_decode = terraform_data.x.output.max_partition_decode }"), Check: running},
		// One value inside partition, then one inside power.
		resource.TestStep{Config: config(`"`+gpu1+`"`, mayStop+"\npartition = { gpu_id = terraform_data.x.output, vram_mib = 948 }"), Check: afterwards(func() {
			if id, _ := r.partitionOf("vm-1"); id != gpu1 {
				t.Errorf("vm-1 has a partition of GPU %q, want %q", id, gpu1)
			}
		})},
		resource.TestStep{Config: config(`"90s"`, "power = { allow_shutdown = true, shutdown_timeout = terraform_data.x.output }\npartition = { gpu_id = \""+gpu1+"\" }"), Check: running},
		// Sets and settings.
		resource.TestStep{Config: config(`["edge"]`, mayStop+"\npartition = {}\nhosts = toset(terraform_data.x.output)"), Check: running},
		resource.TestStep{Config: config(`33280`, mayStop+"\npartition = {}\nhigh_memory_mapped_io_space_mib = terraform_data.x.output"), Check: running},
		// A check that waited is not passed over.
		resource.TestStep{Config: config(`"PCIROOT(99)"`, mayStop+"\npartition = { gpu_id = terraform_data.x.output }"), ExpectError: wrapped("The host does not have this GPU")},
		resource.TestStep{Config: config(`"soon"`, "power = { allow_shutdown = true, shutdown_timeout = terraform_data.x.output }\npartition = {}"), ExpectError: wrapped("must be a positive duration")},
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
	r.play(
		resource.TestStep{Config: config("nosuch"), ExpectError: wrapped(`Neither this run nor any host knows a partition config "nosuch".`)},
		resource.TestStep{Config: config("vdi"), Check: afterwards(func() { r.wantHeld(gpu.VMOff, "avd-03") })},
	)
}

func TestAVMThatWasDeletedLeavesTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignmentOf("a", "avd-03", anyPartition)+assignmentOf("b", "avd-06", anyPartition))
	c.ok(apply...)
	r.must(r.fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		s.Hosts[0].VMs = slices.DeleteFunc(s.Hosts[0].VMs, func(v gpu.VM) bool { return v.Name == "avd-03" })
		return nil
	}))
	out, code := c.run("plan", "-input=false")
	if code != 1 {
		t.Errorf("exit code %d, want 1: the configuration still names the VM", code)
	}
	wantSaid(t, out, "VM does not exist")
	c.ok("apply", "-refresh-only", "-auto-approve", "-input=false")
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
	c.ok(apply...)
	r.must(r.fleet.SetUnreachable(context.Background(), "hv01", true))

	out, code := c.run("plan", "-input=false")
	if code != 1 {
		t.Errorf("exit code %d of the plan, want 1", code)
	}
	wantSaid(t, out, "Host does not answer", `on_unreachable = "keep"`)
	if out, code = c.run("destroy", "-auto-approve", "-input=false", "-refresh=false"); code != 1 {
		t.Errorf("exit code %d of the destroy, want 1\n%s", code, out)
	}
	if list := c.ok("state", "list"); !strings.Contains(list, "gpu_vm_assignment.a") {
		t.Errorf("the state has %s", list)
	}

	c.write(config(`on_unreachable = "keep"`))
	out, _ = c.run("plan", "-input=false")
	wantSaid(t, out, "Warning: Host does not answer", "What the state knows of this host is kept")
	if list := c.ok("state", "list"); !strings.Contains(list, "gpu_vm_assignment.a") {
		t.Errorf("the state has %s", list)
	}

	r.must(r.fleet.SetUnreachable(context.Background(), "hv01", false))
	c.ok(apply...)
	r.wantHeld(gpu.VMOff, "avd-03", "avd-06")
}

func TestAnUnreachableHostIsGivenUpWithAWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block(`on_unreachable = "keep"`)+assignment("avd-03", anyPartition))
	c.ok(apply...)
	r.must(r.fleet.SetUnreachable(context.Background(), "hv01", true))
	out := c.ok("destroy", "-auto-approve", "-input=false")
	wantSaid(t, out, "The VM was left as it is")
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
	r.play(
		resource.TestStep{Config: config("allow_shutdown = true"), Check: afterwards(func() { writes(); r.neverStops("hv01", "avd-01") })},
		resource.TestStep{
			Config:           config(`allow_shutdown = true, shutdown_timeout = "90s", when = "now"`),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check: afterwards(func() {
				if got := writes(); len(got) != 0 {
					t.Errorf("a change of policy called the host: %v", got)
				}
			}),
		},
		resource.TestStep{
			Config: config("allow_shutdown = true, force_shutdown = true, allow_turn_off = true"),
			Check: afterwards(func() {
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
	c.ok(apply...)
	r.must(r.fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		s.Hosts[0].Claims = nil
		return nil
	}))
	c.wantNoChanges()
	out := c.ok("destroy", "-auto-approve", "-input=false")
	wantSaid(t, out, "The VM was left as it is", "terraform import ADDRESS "+vmID(3))
	r.wantVM("avd-03", gpu.VMOff, 1)
	// What the warning says works.
	c.ok("import", "-input=false", "gpu_vm_assignment.a", vmID(3))
	c.wantNoChanges()
	c.ok("destroy", "-auto-approve", "-input=false")
	r.wantFree(gpu.VMOff, "avd-03")
}
