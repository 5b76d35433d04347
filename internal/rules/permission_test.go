package rules_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// A config stops a VM by the permission in its claim. Where the run takes that back, whichever of
// the two is planned second says so, in the same words, and also while the config's plan is not known.
func TestAPermissionThatTheRunTakesBack(t *testing.T) {
	t.Parallel()
	all := gpu.Power{AllowShutdown: true, ForceShutdown: true, AllowTurnOff: true}
	for name, c := range map[string]struct {
		policy whatif.Policy
		says   string // "" for nothing
	}{
		"it stays":             {policy: whatif.Policy{Power: all}},
		"known only at apply":  {policy: whatif.Policy{Power: all, Unknown: true}, says: "what `power` allows is known only at apply"},
		"no shutdown any more": {policy: whatif.Policy{}, says: "`power.allow_shutdown` is `false`"},
		"at the next power-off only": {
			policy: whatif.Policy{Power: gpu.Power{AllowShutdown: true, NextOff: true}}, says: "`power.when` is `\"next_off\"`",
		},
		"not by force": {
			policy: whatif.Policy{Power: gpu.Power{AllowShutdown: true, AllowTurnOff: true}}, says: "`power.force_shutdown` is `false`",
		},
		"not turned off": {
			policy: whatif.Policy{Power: gpu.Power{AllowShutdown: true, ForceShutdown: true}}, says: "`power.allow_turn_off` is `false`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := host("hv01", vm("a", gpu.VMRunning))
			holds(h, "a", 0)
			claimConfig(h, "vdi", "vdi", 4, gpu0, gpu1)
			claimVM(h, "vdi", "a", gpu.Assignment{Kind: gpu.AssignPartition, Host: "hv01", Partition: &gpu.PartitionWant{}, Power: all})
			p := c.policy
			p.Label, p.VMID = `gpu_vm_assignment for VM "a"`, "ID-a"
			prior, want := config("vdi", 4, "hv01"), config("vdi", 8, "hv01")
			want.Config.MaxDisruption = gpu.DisruptVMRestart
			changes := change.Change{Subject: label(want), Token: "claim-vdi", Prior: prior, Want: want}
			open := change.Change{Subject: label(want), Token: "claim-vdi", Prior: prior}
			for order, ask := range map[string]func(rules.World) []rules.Finding{
				"the config second": func(w rules.World) []rules.Finding {
					w.Others.Declare("i", p)
					return of("shutdown-permitted", rules.Check(w, changes, nil))
				},
				"the assignment second": func(w rules.World) []rules.Finding {
					w.Others.Put(changes.Token, changes)
					return rules.CheckPolicy(w, p)
				},
				"the config second, not known": func(w rules.World) []rules.Finding {
					w.Others.Declare("i", p)
					return rules.CheckOpen(w, open)
				},
				"the assignment second, the config not known": func(w rules.World) []rules.Finding {
					w.Others.Open("c", open)
					return rules.CheckPolicy(w, p)
				},
				"the config is known by then": func(w rules.World) []rules.Finding {
					w.Others.Open("c", open)
					w.Others.Open("c", change.Change{})
					w.Others.Put(changes.Token, changes)
					return rules.CheckPolicy(w, p)
				},
			} {
				found := ask(world(h))
				wanted := "VM \"a\" on host \"hv01\" runs and holds a partition. Its claim on the host still has the policy that was applied last. " +
					"gpu_vm_assignment for VM \"a\" now differs from it: " + c.says + "."
				if c.says == "" && len(found) > 0 || c.says != "" && (len(found) != 1 || found[0].Found != wanted || found[0].Level != rules.Error) {
					t.Errorf("%s: %+v", order, found)
				}
			}
		})
	}
}

// What a plan gives up and another one of the run wants goes over as it is, on the hosts that both
// have, and only within one owner's state.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	placed := share("s", 0)
	placed.Host = "gpu01"
	elsewhere := placed
	elsewhere.Host = "gpu02"
	a := partition("a", "hv01")
	a.Assignment.VMID = "ID-a"
	for name, c := range map[string]struct {
		prior, other gpu.Want
		want         []string
	}{
		"a config on a host of both":  {config("vdi", 4, "hv01", "hv02"), config("vdi", 8, "hv02", "hv03"), []string{"hv02"}},
		"another config":              {config("vdi", 4, "hv01"), config("other", 4, "hv01"), nil},
		"a pool":                      {pool("dda", "hv01", "hv02"), pool("dda", "hv01"), []string{"hv01"}},
		"another pool":                {pool("dda", "hv01"), pool("other", "hv01"), nil},
		"a share":                     {wantShare(placed), wantShare(placed), []string{"gpu01"}},
		"a share on another host":     {wantShare(placed), wantShare(elsewhere), nil},
		"the assignment of one VM":    {a, a, []string{"hv01"}},
		"an assignment of another VM": {a, partition("b", "hv01"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world(host("hv01", vm("a", gpu.VMOff), vm("b", gpu.VMOff)))
			w.Others.Put("other", create("other", c.other))
			gone := change.Change{Subject: label(c.prior), Token: "gone", Prior: c.prior}
			if got := whatif.TakenOver(w.World, gone); !slices.Equal(got, c.want) {
				t.Errorf("it is taken over on %q, want %q", got, c.want)
			}
			w.Owner = ""
			if got := whatif.TakenOver(w.World, gone); len(got) > 0 {
				t.Errorf("without an owner it is taken over on %q", got)
			}
		})
	}
}
