package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const shutdownPermitted = "shutdown-permitted"

// Policy is what an assignment lets be done to its VM, as the configuration of this
// run says. What its claim says was written by an earlier run.
type Policy struct {
	Label string // names the assignment for people, as in change.Change
	VMID  string
	Host  string // where the VM is, as the provider names it; "" when that is not known
	Power gpu.Power
	// Unknown is true when the policy is known only at apply.
	Unknown bool
}

// Declare records a policy, or replaces the one of the same instance for the VM.
func (b *Book) Declare(instance string, p Policy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := gpu.FoldID(p.VMID)
	if b.policies[id] == nil {
		b.policies[id] = map[string]Policy{}
	}
	b.policies[id][instance] = p
}

// Open records that the plan of a partition config is not known until apply, or with
// an empty plan that it is.
func (b *Book) Open(instance string, prior change.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if prior.Prior.Config == nil {
		delete(b.open, instance)
		return
	}
	b.open[instance] = prior
}

// checkShutdownPermitted finds VMs that a partition config stops by a permission in
// their claims that this run takes back: the config is applied before the claim is
// written again.
func checkShutdownPermitted(r *run) {
	if !r.transition() || r.plan.Want.Config == nil {
		return
	}
	r.reportAllLifted(r.plan)
}

func (r *run) reportAllLifted(config change.Change) {
	for _, host := range sortedKeys(r.fleet.hosts) {
		for _, vm := range r.inTheWay(host, config) {
			of := r.book.policies[gpu.FoldID(vm.ID)]
			for _, instance := range sortedKeys(of) {
				r.reportLifted(host, config.Subject, vm, of[instance])
			}
		}
	}
}

// CheckPolicy is shutdown-permitted seen from the assignment: whichever of the two is
// planned second finds the other.
func CheckPolicy(w World, p Policy) []Finding {
	r, done := begin(w, change.Change{Subject: p.Label})
	defer done()
	at, ok := r.locate(&gpu.Assignment{VMID: p.VMID, Host: p.Host})
	if !ok {
		return nil
	}
	var configs []change.Change
	for _, e := range r.book.about(gpusOn(at.key)) {
		if e.plan.Want.Config != nil && !e.plan.Unchanged {
			configs = append(configs, e.plan)
		}
	}
	for _, instance := range sortedKeys(r.book.open) {
		configs = append(configs, r.book.open[instance])
	}
	for _, config := range configs {
		for _, vm := range r.inTheWay(at.key, config) {
			if gpu.SameID(vm.ID, p.VMID) {
				r.reportLifted(at.key, config.Subject, vm, p)
			}
		}
	}
	return r.lifted()
}

// CheckOpen is shutdown-permitted for a partition config whose plan is not known yet.
func CheckOpen(w World, config change.Change) []Finding {
	r, done := begin(w, config)
	defer done()
	r.reportAllLifted(config)
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

// inTheWay are the running VMs on a host that a config's plan stops, or, while that is
// not known, that hold its GPUs.
func (r *run) inTheWay(host string, config change.Change) []*gpu.VM {
	h, ok := r.host(host)
	if !ok {
		return nil
	}
	var ids []string
	if config.Want.Config != nil {
		for _, s := range r.foresee(host, h, config).Stops {
			ids = append(ids, s.VM)
		}
	} else if config.Prior.Config != nil {
		for g := range selected(h, config.Prior.Config.GPUs[host]) {
			ids = append(ids, holderIDs(g)...)
		}
	}
	var out []*gpu.VM
	for _, id := range ids {
		if vm, ok := h.VM(id); ok {
			out = append(out, vm)
		}
	}
	return out
}

// reportLifted reports what the VM's claim permits and the declared policy does not.
// What the claim does not permit either is partition-in-use's.
func (r *run) reportLifted(host, config string, vm *gpu.VM, p Policy) {
	claim, _ := r.claimOnVM(host, vm.ID)
	if _, hold := change.MayStop(vm, claim, r.owner); hold != "" {
		return
	}
	why := lifted(claim.Want.Assignment.Power, p)
	if len(why) == 0 {
		return
	}
	r.report(Finding{
		Path:   "power",
		Host:   host,
		VM:     vm.Name,
		Title:  "The power policy of a VM changes in the same run",
		Found:  fmt.Sprintf("VM %s on %s runs and holds a partition. Its claim on the host still has the policy that was applied last. %s now differs from it: %s.", quote(vm.Name), hostText(host), p.Label, joinAll(why)),
		Wanted: fmt.Sprintf("%s changes the partitions of GPUs and would stop the VM before the new policy is on record.", config),
		Fix:    "Apply the change of `power` first, without the change of the partition config.",
	}, key("lifted", host, vm.ID))
}

// lifted lists what a claim permits and a policy does not.
func lifted(claim gpu.Power, p Policy) []string {
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
