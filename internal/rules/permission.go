package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

const shutdownPermitted = "shutdown-permitted"

// checkShutdownPermitted finds VMs that a partition config stops by a permission in
// their claims that this run takes back: the config is applied before the claim is
// written again.
func checkShutdownPermitted(r *run) {
	if !r.Transition() || r.Plan.Want.Config == nil {
		return
	}
	reportAllLifted(r, r.Plan)
}

func reportAllLifted(r *run, config change.Change) {
	for _, host := range r.HostNames() {
		for _, vm := range r.InTheWay(host, config) {
			for _, policy := range r.PoliciesFor(vm.ID) {
				reportLifted(r, host, config.Subject, vm, policy)
			}
		}
	}
}

// CheckPolicy is shutdown-permitted seen from the assignment: whichever of the two is
// planned second finds the other.
func CheckPolicy(w World, p whatif.Policy) []Finding {
	r, done := begin(w, change.Change{Subject: p.Label})
	defer done()
	at, ok := r.Locate(&gpu.Assignment{VMID: p.VMID, Host: p.Host})
	if !ok {
		return nil
	}
	configs := r.UnknownConfigs()
	for e := range r.Others(whatif.GPUsOn(at.Key)) {
		if e.Plan.Want.Config != nil && !e.Plan.Unchanged {
			configs = append(configs, e.Plan)
		}
	}
	for _, config := range configs {
		for _, vm := range r.InTheWay(at.Key, config) {
			if gpu.SameID(vm.ID, p.VMID) {
				reportLifted(r, at.Key, config.Subject, vm, p)
			}
		}
	}
	return r.lifted()
}

// CheckOpen is shutdown-permitted for a partition config whose plan is not known yet.
func CheckOpen(w World, config change.Change) []Finding {
	r, done := begin(w, config)
	defer done()
	reportAllLifted(r, config)
	return r.lifted()
}

func (r *run) lifted() []Finding {
	var out []Finding
	for _, v := range r.found {
		v.Rule, v.Level = shutdownPermitted, Error
		out = append(out, v.Finding)
	}
	return out
}

// reportLifted reports what the VM's claim permits and the declared policy does not.
// What the claim does not permit either is partition-in-use's.
func reportLifted(r *run, host, config string, vm *gpu.VM, p whatif.Policy) {
	claim, _ := r.ClaimOnVM(host, vm.ID)
	if _, hold := change.MayStop(vm, claim, r.Owner); hold != "" {
		return
	}
	why := lifted(claim.Want.Assignment.Power, p)
	if len(why) == 0 {
		return
	}
	r.report(Finding{
		Path:  "power",
		Host:  host,
		VM:    vm.Name,
		Title: "The power policy of a VM changes in the same run",
		Found: fmt.Sprintf("VM %s on %s runs and holds a partition. Its claim on the host still has the policy that was applied last. %s now "+
			"differs from it: %s.", quote(vm.Name), hostText(host), p.Label, joinAll(why)),
		Wanted: fmt.Sprintf("%s changes the partitions of GPUs and would stop the VM before the new policy is on record.", config),
		Fix:    "Apply the change of `power` first, without the change of the partition config.",
	}, key("lifted", host, vm.ID))
}

// lifted lists what a claim permits and a policy does not.
func lifted(claim gpu.Power, p whatif.Policy) []string {
	now := p.Power
	switch {
	case p.Unknown:
		return []string{"what `power` allows is known only at apply"}
	case !now.AllowShutdown:
		return []string{"`power.allow_shutdown` is `false`"}
	case now.NextOff:
		return []string{"`power.when` is `\"next_off\"`"}
	}
	var why []string
	if claim.ForceShutdown && !now.ForceShutdown {
		why = append(why, "`power.force_shutdown` is `false`")
	}
	if claim.AllowTurnOff && !now.AllowTurnOff {
		why = append(why, "`power.allow_turn_off` is `false`")
	}
	if claim.AllowTurnOff && now.AllowTurnOff && now.Timeout() > claim.Timeout() {
		why = append(why, "`power.shutdown_timeout` is longer")
	}
	switch {
	case claim.StayOff && !now.StayOff:
		why = append(why, "`power.start_after` is `\"if_was_running\"`")
	case now.StayOff && !claim.StayOff:
		why = append(why, "`power.start_after` is `\"never\"`")
	}
	return why
}
