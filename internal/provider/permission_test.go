package provider_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	restarts  = `max_disruption = "vm_restart"`
	providing = `power = { allow_shutdown = true }`
)

// countStops lets a rig count how often VMs of its hosts are stopped.
func countStops(r *rig.Rig, hosts ...string) (stops func() int) {
	r.T.Helper()
	return countStopsOf(r, "", hosts...)
}

// countStopsOf is countStops for one VM.
func countStopsOf(r *rig.Rig, vm string, hosts ...string) (stops func() int) {
	r.T.Helper()
	if vm != "" {
		_, host := r.VM(vm)
		hosts = []string{host}
	}
	const many = 1 << 30
	for _, h := range hosts {
		for _, op := range []simulated.Op{simulated.OpShutDownVM, simulated.OpTurnOffVM} {
			r.Fail(h, op, vm, many, 0)
		}
	}
	return func() int {
		r.T.Helper()
		n := 0
		for _, h := range hosts {
			r.Must(r.Fleet.EditSimulation(context.Background(), h, func(s *simulated.Simulation) {
				for i := range s.Faults {
					if f := &s.Faults[i]; f.Object == vm {
						n += many - f.After
						f.After = many
					}
				}
			}))
		}
		return n
	}
}

// claimPower is the policy on record for a VM.
func claimPower(r *rig.Rig, vm string) gpu.Power {
	r.T.Helper()
	v, host := r.VM(vm)
	for _, c := range r.Host(host).Claims {
		if c.Is(gpu.ClaimAssignment, v.ID) {
			return c.Want.Assignment.Power
		}
	}
	r.T.Fatalf("there is no claim for %s", vm)
	return gpu.Power{}
}

// A permission that is given or taken back in the provider block is a change of each
// assignment that it is for: it is planned, and it is on the host afterwards.
func TestAPermissionOfTheProviderIsAppliedLikeOneOfTheResource(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(count int, defaults string) string {
		return r.Block(defaults) + rig.ConfigOf(count, rig.Both, restarts) + rig.Assign("avd-03", "")
	}
	power := tfjsonpath.New("effective_power")
	changes := func(to bool) resource.ConfigPlanChecks {
		var shown knownvalue.Check = knownvalue.Null() // where `power` says all of it
		if to {
			shown = knownvalue.ObjectPartial(map[string]knownvalue.Check{"allow_shutdown": knownvalue.Bool(true)})
		}
		address := "gpu_vm_assignment.avd-03"
		return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate), plancheck.ExpectKnownValue(address, power, shown),
			plancheck.ExpectResourceAction(rig.VDI, plancheck.ResourceActionNoop),
		}}
	}
	var stops func() int
	quiet := func(permits bool) resource.TestCheckFunc {
		return rig.Then(func() {
			r.WantVM("avd-03", gpu.VMRunning, 1)
			if n := stops(); n != 0 {
				t.Errorf("VMs were stopped %d times", n)
			}
			if got := claimPower(r, "avd-03").AllowShutdown; got != permits {
				t.Errorf("the claim permits a shutdown: %t, want %t", got, permits)
			}
		})
	}
	r.Steps(
		resource.TestStep{Config: config(4, "")},
		resource.TestStep{
			PreConfig: func() {
				r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))
				stops = countStops(r, rig.Both...)
			},
			Config: config(4, providing), ConfigPlanChecks: changes(true), Check: quiet(true),
		},
		resource.TestStep{Config: config(4, "power = { allow_shutdown = false }"), ConfigPlanChecks: changes(false), Check: quiet(false)},
		r.Rejects(config(8, ""), "Running VMs hold the partitions", `"avd-03" (its assignment does not allow a shutdown`),
		resource.TestStep{Config: config(4, providing), ConfigPlanChecks: changes(true), Check: quiet(true)},
		resource.TestStep{Config: config(8, providing), Check: rig.Then(func() {
			r.WantCounts(8, rig.Both...)
			r.WantVM("avd-03", gpu.VMRunning, 1)
			if n := stops(); n != 1 {
				t.Errorf("the VM was stopped %d times, want 1", n)
			}
		})},
	)
}

// Whatever takes a permission back, a partition config of the same run does not stop
// the VM by what is still on record.
func TestAPermissionThatIsTakenBackStopsNoVMInTheSameRun(t *testing.T) {
	t.Parallel()
	no, yes := "allow_shutdown = false", "allow_shutdown = true"
	independent := func(power string) string { return rig.Assignment("avd-03", rig.AnyPartition, rig.Power(power)) }
	dependent := func(power string) string { return rig.Assign("avd-03", power) }
	first := func(power string) string { // planned, and applied, before the config
		return independent(power) + `
resource "terraform_data" "after" { input = gpu_vm_assignment.a.vm_id }
`
	}
	after := "depends_on = [terraform_data.after]"
	for name, c := range map[string]struct {
		assignment      func(power string) string
		config          string // more arguments of the partition config
		before, now     string // power of the assignment
		given, withdraw string // arguments of the provider
		says            string
	}{
		"provider block": {assignment: dependent, given: providing, says: "`power.allow_shutdown` is `false`"},
		"provider block, written out": {
			assignment: dependent, given: providing, withdraw: "power = { " + no + " }", says: "`power.allow_shutdown` is `false`",
		},
		"resource": {assignment: dependent, before: yes, now: no, says: "`power.allow_shutdown` is `false`"},
		"resource, over the provider": {
			assignment: dependent, now: no, given: providing, withdraw: providing, says: "`power.allow_shutdown` is `false`",
		},
		"both":                         {assignment: dependent, before: yes, given: providing, says: "`power.allow_shutdown` is `false`"},
		"no order":                     {assignment: independent, before: yes, now: no, says: "same run"},
		"assignment first":             {assignment: first, config: after, before: yes, now: no},
		"assignment first, provider":   {assignment: first, config: after, given: providing},
		"waits for the next power-off": {assignment: dependent, before: yes, now: yes + `, when = "next_off"`, says: "`power.when`"},
		"power may not be cut": {
			assignment: dependent, before: yes + ", allow_turn_off = true", now: yes, says: "`power.allow_turn_off` is `false`",
		},
		"not by force": {
			assignment: dependent, before: yes + ", force_shutdown = true", now: yes, says: "`power.force_shutdown` is `false`",
		},
		"to be started again": {assignment: dependent, before: yes + `, start_after = "never"`, now: yes, says: "`power.start_after`"},
		"to be left off": {
			assignment: dependent, before: yes, now: yes + `, start_after = "never"`, says: "`power.start_after` is `\"never\"`",
		},
		"more time": {
			assignment: dependent, before: yes + `, allow_turn_off = true`, now: yes + `, allow_turn_off = true, shutdown_timeout = "10m"`,
			says: "`power.shutdown_timeout` is longer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			config := func(count int, provider, power string) string {
				return r.Block(provider) + rig.ConfigOf(count, rig.Both, restarts, c.config) + c.assignment(power)
			}
			var stops func() int
			quiet := func() {
				r.WantCounts(4, rig.Both...)
				r.WantVM("avd-03", gpu.VMRunning, 1)
				if n := stops(); n != 0 {
					t.Errorf("VMs were stopped %d times", n)
				}
			}
			r.Steps(
				resource.TestStep{Config: config(4, c.given, c.before)},
				resource.TestStep{
					PreConfig: func() {
						r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))
						stops = countStops(r, rig.Both...)
					},
					Config:      config(8, c.withdraw, c.now),
					ExpectError: rig.Says(c.says, "first"),
				},
				resource.TestStep{
					PreConfig: quiet, Config: config(4, c.withdraw, c.now), Check: rig.Then(quiet), // the way out
				},
				resource.TestStep{Config: config(4, c.given, yes), Check: rig.Then(quiet)}, // so that it can be destroyed
			)
		})
	}
}

// A replacement destroys first, and Terraform shows the destroy nothing but the state.
func TestAPermissionThatIsTakenBackCountsForAReplacementToo(t *testing.T) {
	t.Parallel()
	yes, no := "power = { allow_shutdown = true }", "power = { allow_shutdown = false }"
	for name, c := range map[string]struct {
		before, now string // power of the assignment
		given, end  string // arguments of the provider
		vm          string
		args        []string
	}{
		"resource":                   {before: yes, now: no, args: []string{"-replace=gpu_vm_assignment.a"}},
		"provider block":             {given: yes, args: []string{"-replace=gpu_vm_assignment.a"}},
		"another VM":                 {before: yes, now: no, vm: "avd-03"},
		"another VM, provider block": {given: yes, vm: "avd-03"},
		"destroy, provider block":    {given: yes, args: []string{"-destroy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			config := func(provider, vm, power string) string {
				return r.Block(provider) + rig.Assignment(vm, rig.AnyPartition, power)
			}
			cli := rig.NewCLI(t, config(c.given, "avd-01", c.before))
			cli.Apply()
			stops := countStops(r, rig.Both...)
			vm := "avd-01"
			if c.vm != "" {
				vm = c.vm
			}
			cli.Write(config(c.end, vm, c.now))
			out, code := cli.Run(append([]string{"plan"}, c.args...)...)
			if code != 1 {
				t.Errorf("the plan ended with %d:\n%s", code, out)
			}
			rig.WantSaid(t, out, "The VM must be off")
			r.WantVM("avd-01", gpu.VMRunning, 1)
			if n := stops(); n != 0 {
				t.Errorf("VMs were stopped %d times", n)
			}
		})
	}
}

// TestNoVMIsStoppedThatTheConfigurationForbids changes policies, partition counts and
// VMs' assignments at random, many at once. Whether a run succeeds or is refused, it
// stops no VM that its own configuration says must not be stopped.
func TestNoVMIsStoppedThatTheConfigurationForbids(t *testing.T) {
	t.Parallel()
	const seed, rounds = 7, 14
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := rig.New(t, rig.TwoNodes())
	type policy struct{ text, allow string } // allow is "" where the next level decides
	policies := []policy{
		{},
		{`power = { allow_turn_off = true }`, ""},
		{`power = { allow_shutdown = true }`, "yes"},
		{`power = { allow_shutdown = true, allow_turn_off = true }`, "yes"},
		{`power = { allow_shutdown = false }`, "no"},
		{`power = { allow_shutdown = true, when = "next_off" }`, "no"},
	}
	pick := func() policy { // mostly permissive: else hardly any run gets beyond its plan
		if rnd.IntN(2) == 0 {
			return policies[2+rnd.IntN(2)]
		}
		return policies[rnd.IntN(len(policies))]
	}
	vms := []string{"avd-01", "avd-02", "avd-04"}
	stops := map[string]func() int{}
	for _, vm := range vms {
		stops[vm] = countStopsOf(r, vm)
	}
	cli := rig.NewCLI(t, "")
	own := map[string]policy{} // as applied last
	applied, refused := 0, 0
	for round := range rounds {
		provider := pick()
		if strings.Contains(provider.text, "next_off") { // it would be inherited whatever the resource allows
			provider = policy{}
		}
		count := []int{4, 8, 16}[rnd.IntN(3)]
		text := r.Block(provider.text) + rig.ConfigOf(count, rig.Both, restarts)
		now, gone := map[string]policy{}, map[string]bool{}
		for i, vm := range vms {
			if round > 0 && rnd.IntN(8) == 0 {
				gone[vm], now[vm] = true, own[vm]
				continue
			}
			if p, had := own[vm]; had && rnd.IntN(2) == 0 {
				now[vm] = p
			} else {
				now[vm] = pick()
			}
			from := "partition = { config = gpu_partition_config.vdi.id }"
			if i == 1 {
				from = rig.AnyPartition // planned in no order with the config
			}
			text += rig.AssignmentOf(vm, vm, from, now[vm].text)
		}
		cli.Write(text)
		args := []string{"apply", "-auto-approve"}
		if vm := vms[rnd.IntN(len(vms))]; rnd.IntN(5) == 0 && !gone[vm] {
			args = append(args, "-replace=gpu_vm_assignment."+vm)
		}
		out, code := cli.Run(args...)
		for _, vm := range vms {
			allow := now[vm].allow
			if allow == "" {
				allow = provider.allow
			}
			if n := stops[vm](); n > 0 && allow != "yes" {
				t.Fatalf("round %d stopped %s, which may not be stopped, %d times:\n%s\n%s", round, vm, n, text, out)
			}
			if got, _ := r.VM(vm); got.State != gpu.VMRunning {
				t.Fatalf("round %d left %s %s:\n%s\n%s", round, vm, got.State, text, out)
			}
		}
		if code != 0 {
			refused++
			continue
		}
		applied++
		for _, vm := range vms {
			if delete(own, vm); !gone[vm] {
				own[vm] = now[vm]
			}
		}
		if out, code := cli.Run("plan", "-detailed-exitcode"); code != 0 {
			t.Fatalf("round %d: the second plan ends with %d:\n%s\n%s", round, code, text, out)
		}
	}
	t.Logf("%d runs, %d refused", applied+refused, refused)
	if applied == 0 || refused == 0 {
		t.Errorf("%d runs were applied and %d refused; the test shows something only with both", applied, refused)
	}
}

// What is known only at apply may turn out either way: nothing is stopped on a guess.
func TestWhatIsNotKnownYetPermitsNothing(t *testing.T) {
	t.Parallel()
	yes, no := "allow_shutdown = true", "allow_shutdown = false"
	late := func(value any) string {
		return fmt.Sprintf("resource \"terraform_data\" \"late\" { input = %v }\n", value)
	}
	count := func(n string) string {
		return "resource \"gpu_partition_config\" \"vdi\" {\n name = \"vdi\"\n hosts = [\"hv01\", \"hv02\"]\n " +
			restarts + "\n gpu_p = { partition_count = " + n + " }\n}\n"
	}
	for name, c := range map[string]struct{ now, says string }{
		"the partition count": {late(8) + count("terraform_data.late.output") + rig.Assign("avd-01", no), "`power.allow_shutdown` is `false`"},
		"the permission": {
			late(true) + count("8") + rig.Assign("avd-01", "allow_shutdown = terraform_data.late.output"), "known only at apply",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			cli := rig.NewCLI(t, r.Block()+count("4")+rig.Assign("avd-01", yes))
			cli.Apply()
			stops := countStops(r, rig.Both...)
			cli.Write(r.Block() + c.now)
			out, code := cli.Run("apply", "-auto-approve")
			if code == 0 {
				t.Error("the apply succeeded")
			}
			rig.WantSaid(t, out, "The power policy of a VM changes in the same run", c.says)
			r.WantVM("avd-01", gpu.VMRunning, 1)
			r.WantCounts(4, rig.Both...)
			if n := stops(); n != 0 {
				t.Errorf("VMs were stopped %d times", n)
			}
		})
	}
}
