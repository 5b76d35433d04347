package fleet

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// stray is a claim of this owner that no resource has which this run has read or planned.
type stray struct {
	host  string
	claim gpu.Claim
}

func (f *Fleet) strays(v View, hosts ...string) iter.Seq[stray] {
	return func(yield func(stray) bool) {
		for _, name := range hosts {
			if h, ok := v.Hosts[name]; ok {
				for i := range h.Claims {
					if c := &h.Claims[i]; f.isStray(c) && !yield(stray{name, *c}) {
						return
					}
				}
			}
		}
	}
}

func (f *Fleet) isStray(c *gpu.Claim) bool {
	return c.Owner == f.opt.Owner && c.Owner != "" && !f.Ledger.has(c.Token)
}

// straysOn are those for the object of a want.
func (f *Fleet) straysOn(v View, w gpu.Want) []stray {
	var out []stray
	if a := w.Assignment; a != nil {
		if at, err := FindVMNear(v, a.VMID, a.Host); err == nil {
			if c, ok := RecordOf(v, at); ok && f.isStray(c) {
				out = append(out, stray{at.Host, *c})
			}
		}
		return out
	}
	kind, id := w.Object()
	on := members(w)
	for host, c := range v.Claims(kind, id) {
		if on[host] && f.isStray(c) {
			out = append(out, stray{host, *c})
		}
	}
	return out
}

func (s stray) String() string {
	switch a := s.claim.Want.Assignment; {
	case s.claim.Kind == gpu.ClaimConfig:
		return fmt.Sprintf("partition config %q", s.claim.ID)
	case a != nil:
		return fmt.Sprintf("VM %s (id %s)", words.Name(a.VMName), s.claim.ID)
	}
	return fmt.Sprintf("%s %q", s.claim.Kind, s.claim.ID)
}

// Elsewhere finds what a resource that was just planned takes over from one that is not in this
// run, that one of those has taken its own object, and, once for each host, claims of this owner
// that nothing of this run has. Terraform tells nobody when it has planned all: what is missing
// counts as not in the run when nothing more comes.
func (f *Fleet) Elsewhere(ctx context.Context, v View, p change.Change) []rules.Finding {
	if f.opt.Owner == "" {
		return nil
	}
	lost := f.lost(v, p)
	if f.Applies() || f.replanning.Load() { // only a plan knows what the run destroys
		return lost
	}
	if p.Prior.Empty() && !p.Want.Empty() {
		lost = f.takeover(ctx, v, p)
	}
	return append(lost, f.abandoned(ctx, p)...)
}

// lost finds that another resource of this owner, from another provider block or state, has taken
// over what a resource goes on wanting: two that stay would do so by turns.
func (f *Fleet) lost(v View, p change.Change) []rules.Finding {
	if p.Token == "" || object(p.Want) != object(p.Prior) {
		return nil
	}
	list := slices.DeleteFunc(f.straysOn(v, p.Prior), func(s stray) bool { return s.claim.Token == p.Token })
	if len(list) == 0 {
		return nil
	}
	x := rules.Finding{
		Level: rules.Error, Title: "Another resource manages " + list[0].String(),
		Found: fmt.Sprintf("Since this resource was applied, another resource of owner %q has taken it over on %s, from another provider block or another state.", f.opt.Owner, words.JoinAll(hostsOf(list))),
		Fix:   "Keep one of the two. Removing this one touches nothing on the hosts.",
	}
	if p.Unchanged {
		x.Level = rules.Warning
	}
	for _, s := range list {
		f.Ledger.Met(s.claim.Token) // said, so that it is no claim that nothing has
	}
	return []rules.Finding{x}
}

func hostsOf(list []stray) []string {
	return words.Each(list, func(s stray) string { return s.host })
}

func (f *Fleet) takeover(ctx context.Context, v View, p change.Change) []rules.Finding {
	held := func() []stray { return f.straysOn(v, p.Want) }
	if len(held()) == 0 {
		return nil
	}
	f.Ledger.handovers.await(ctx, func() bool { return f.Applies() || len(held()) == 0 })
	list := held()
	if len(list) == 0 || f.Applies() {
		return nil
	}
	return []rules.Finding{{
		Level: rules.Warning, Title: words.Capital(list[0].String()) + " is taken over",
		Found: fmt.Sprintf("On %s a resource of owner %q manages it that this run does not have: one of another workspace or state, or of a state that was lost.", words.JoinAll(hostsOf(list)), f.opt.Owner),
		Fix: "If another state is in use, give each its own `owner`, with workspaces for example `owner = \"vdi-${terraform.workspace}\"`. " +
			"Otherwise apply: this resource takes the place of the other one.",
	}}
}

// abandoned waits in the plan of one assignment or share, on which hardly anything depends, for
// all others. Where these could not come meanwhile, only of a VM that no host has any more is it
// known that nothing needs its claim.
func (f *Fleet) abandoned(ctx context.Context, p change.Change) []rules.Finding {
	if p.Want.Assignment == nil && p.Want.Share == nil || !f.judge.TryLock() {
		return nil
	}
	defer f.judge.Unlock()
	v := f.Seen()
	taken := func(s stray) bool { // which its plan has said
		return len(whatif.TakenOver(f.world(v).World, change.Change{Token: s.claim.Token, Prior: s.claim.Want})) > 0
	}
	none := func() bool {
		at := f.seen.Changes()
		if v = f.Seen(); at == f.clean || f.Applies() {
			return true
		}
		for s := range f.strays(v, f.names...) {
			if !taken(s) {
				return false
			}
		}
		f.clean = at
		return true
	}
	if f.judged || none() {
		return nil
	}
	all := f.Ledger.handovers.quiet(ctx, none)
	if none() {
		return nil
	}
	gone := f.gone(v)
	f.judged = all || len(v.Hosts) == len(f.hosts)
	var out []rules.Finding
	shared := map[string]bool{} // by token: each node shows what its cluster keeps
	for _, name := range f.names {
		var names, forget []string
		for s := range f.strays(v, name) {
			goes := slices.ContainsFunc(gone, func(g stray) bool { return g.claim.Token == s.claim.Token })
			if shared[s.claim.Token] || taken(s) || !goes && !all {
				continue
			}
			shared[s.claim.Token] = s.claim.Cluster != ""
			if goes {
				names = append(names, s.String()+", which no host has any more")
				continue
			}
			names = append(names, s.String())
			forget = append(forget, fmt.Sprintf("`gpu-agent claims forget %s %s --yes`", s.claim.Kind, s.claim.ID))
		}
		if len(names) == 0 {
			continue
		}
		x := rules.Finding{
			Level: rules.Warning, Host: name, Title: "Claims on " + name + " that no resource of this run has",
			Found: fmt.Sprintf("Host %q holds for owner %q: %s.", name, f.opt.Owner, words.JoinAll(names)),
			Fix:   "The next change drops the claims of VMs that no host has.",
		}
		if len(forget) > 0 {
			x.Fix = fmt.Sprintf("Import them, or remove what they hold by hand and run on %s %s. Resources that `-target` leaves out count as missing. %s", name, words.JoinAll(forget), x.Fix)
		}
		out = append(out, x)
	}
	if all {
		out = append(out, f.stuck(v, p)...)
	}
	return out
}

// stuck is what plans of the run need that claims have which no resource of it has. More may still
// come after all, where what it depends on takes its time: it is no error yet.
func (f *Fleet) stuck(v View, last change.Change) []rules.Finding {
	w := f.world(v)
	w.Planned = true
	out := rules.Decided(w, last, f.opt.Levels, nil)
	for i := range out {
		x := &out[i]
		if x.Level == rules.Error {
			x.Level = rules.Warning
		}
		x.Found += " No resource of this run lets go of it, so that its apply is refused."
	}
	return out
}

// gone are the claims of this owner for VMs that no host has, where every host answers, and
// every node of a cluster is a host.
func (f *Fleet) gone(v View) []stray {
	if !f.whole(v) {
		return nil
	}
	ids := map[string]bool{}
	for _, h := range v.Hosts {
		for i := range h.VMs {
			ids[gpu.FoldID(h.VMs[i].ID)] = true
		}
	}
	var out []stray
	for _, name := range f.names {
		h := v.Hosts[name]
		if _, unknown := h.UnknownPart(gpu.PartVMs); unknown {
			return nil
		}
		if h.Cluster != nil && slices.ContainsFunc(h.Cluster.Nodes, func(n gpu.Node) bool { return len(f.byName[gpu.FoldID(n.Name)]) == 0 }) {
			return nil
		}
		for _, c := range h.Claims {
			if c.Kind != gpu.ClaimAssignment || c.Owner != f.opt.Owner {
				continue
			}
			if !ids[gpu.FoldID(VMID(c.ID))] {
				out = append(out, stray{name, c})
			}
		}
	}
	return out
}

// whole tells whether a view has every host.
func (f *Fleet) whole(v View) bool { return v.Complete() && len(v.Hosts) == len(f.hosts) }

// sweep drops the claims of VMs that are gone, once per run, as soon as it has looked at every
// host anyway. What fails, or goes later, the next run finds.
func (f *Fleet) sweep(ctx context.Context) {
	if f.opt.Owner == "" || f.swept.Load() {
		return
	}
	seen := f.Seen()
	if !f.whole(seen) || !f.swept.CompareAndSwap(false, true) || len(f.gone(seen)) == 0 {
		return
	}
	f.forgetSnapshots() // a VM may have moved between two of them
	for _, s := range f.gone(f.LookAll(ctx)) {
		// Which VM it is for, its id says, by which no host has the VM. What else the record says may be
		// about another host's VM.
		if s.claim.Want.Assignment == nil {
			continue
		}
		gone := *s.claim.Want.Assignment
		gone.VMID, gone.Host = s.claim.ID, s.host
		_, _ = f.applyOnce(ctx, Request{Change: change.Change{Subject: s.String(), Token: s.claim.Token, Prior: gpu.Want{Assignment: &gone}, ClaimOnly: true}})
	}
}
