package rules

import (
	"cmp"
	"slices"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Book holds the plans of one run by token, indexed by what they are about. It is
// safe for concurrent use. A plan that was put must not be changed afterwards.
type Book struct {
	mu      sync.RWMutex
	plans   map[string]*entry
	subject map[string][]*entry // see subjects
	// policies are the power policies of VMs as the run declares them, by folded id of
	// the VM and then by instance. They are known even where the plan is not.
	policies map[string]map[string]Policy
	// open are partition configs whose plan is not known until apply, by instance, as they
	// were before.
	open map[string]change.Change
	// undecided are plans with which something is wrong unless others of this state let go of what
	// they have, which the run has not planned yet, by rule and token.
	undecided sync.Map
	// projected are hosts with plans made on them, by name; each is a *projection.
	projected sync.Map
	// configured are hosts with a partition config made on them; likewise.
	configured sync.Map
	// drained is what configs do to clusters with plans made there, by token and node; each is a
	// *drainage.
	drained sync.Map
	// draining is how many of the plans drain nodes.
	draining int
	// told is what was said of the run as a whole, and is not said again.
	told sync.Map
}

// entry is one plan of the run.
type entry struct {
	token string
	plan  change.Change
}

// NewBook makes a book of plans, each under its own token.
func NewBook(plans ...change.Change) *Book {
	b := &Book{plans: map[string]*entry{}, subject: map[string][]*entry{}, policies: map[string]map[string]Policy{}, open: map[string]change.Change{}}
	for _, p := range plans {
		b.Put(p.Token, p)
	}
	return b
}

// Put records a plan or replaces the one with the same token. A plan that destroys
// belongs in the book too: it says that what its claim holds is going.
func (b *Book) Put(token string, p change.Change) {
	p.Token = token
	e := &entry{token: token, plan: p}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(token)
	b.plans[token] = e
	if drains(p) {
		b.draining++
	}
	for _, s := range subjects(p) {
		list := b.subject[s]
		at, _ := slices.BinarySearchFunc(list, e, compareEntries)
		b.subject[s] = slices.Insert(list, at, e)
	}
}

// Delete forgets a plan.
func (b *Book) Delete(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(token)
}

func (b *Book) drop(token string) {
	old := b.plans[token]
	if old == nil {
		return
	}
	delete(b.plans, token)
	if drains(old.plan) {
		b.draining--
	}
	for _, s := range subjects(old.plan) {
		list := b.subject[s]
		if at, ok := slices.BinarySearchFunc(list, old, compareEntries); ok {
			b.subject[s] = slices.Delete(list, at, at+1)
		}
		if len(b.subject[s]) == 0 {
			delete(b.subject, s)
		}
	}
}

// InPoolsWith are the hosts of planned pools that some hosts are in.
func (b *Book) InPoolsWith(hosts []string) []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []string
	for _, host := range hosts {
		for _, e := range b.subject[gpusOn(host)] {
			for _, w := range []gpu.Want{e.plan.Want, e.plan.Prior} {
				if w.Pool != nil {
					out = append(out, sortedKeys(w.Pool.Members)...)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// has tells whether a plan of the run goes by that token, so that a claim with it
// is out of date.
func (b *Book) has(token string) bool { return token != "" && b.plans[token] != nil }

// about lists the plans that concern one of the subjects, each once.
func (b *Book) about(subjects ...string) []*entry {
	if len(subjects) == 1 {
		return b.subject[subjects[0]]
	}
	var out []*entry
	for _, s := range subjects {
		out = append(out, b.subject[s]...)
	}
	slices.SortFunc(out, compareEntries)
	return slices.Compact(out)
}

// compareEntries orders by label first: tokens are random, and two runs should
// name the same side of a conflict.
func compareEntries(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.plan.Subject, b.plan.Subject), cmp.Compare(a.token, b.token))
}

// Subjects of a plan, as index keys.
func vmsOn(host string) string     { return "vms on " + host }
func gpusOn(host string) string    { return "gpus on " + host }
func configNamed(id string) string { return "config " + gpu.FoldID(id) }
func usersOf(id string) string     { return "users of " + gpu.FoldID(id) } // a config, or a pool
func poolNamed(id string) string   { return "pool " + gpu.FoldID(id) }
func vmWithID(id string) string    { return "vm id " + gpu.FoldID(id) }
func vmNamed(name string) string   { return "vm name " + gpu.FoldID(name) }
func sharesOn(host string) string  { return "shares on " + host }
func sharesOf(pool string) string  { return "shares of " + gpu.FoldID(pool) }

// subjects are the index keys of a plan, of what it wants and of what it had.
func subjects(p change.Change) []string {
	var out []string
	for _, w := range []gpu.Want{p.Want, p.Prior} {
		switch {
		case w.Config != nil:
			out = append(out, configNamed(w.Config.ID))
			for host := range w.Config.GPUs {
				out = append(out, gpusOn(host))
			}
		case w.Pool != nil:
			out = append(out, poolNamed(w.Pool.ID))
			for host := range w.Pool.Members {
				out = append(out, gpusOn(host))
			}
		case w.Assignment != nil:
			out = append(out, vmSubjects(w.Assignment)...)
			if w.Assignment.Host != "" {
				out = append(out, vmsOn(w.Assignment.Host))
			}
			if d := w.Assignment.Device; d != nil && d.Host != "" {
				out = append(out, gpusOn(d.Host))
			}
		case w.Share != nil:
			if w.Share.Host != "" {
				out = append(out, sharesOn(w.Share.Host))
			}
			if w.Share.Pool != "" {
				out = append(out, sharesOf(w.Share.Pool))
			}
		}
		config, pool := w.Uses()
		for _, id := range []string{config, pool} {
			if id != "" {
				out = append(out, usersOf(id))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// vmSubjects are the ids and names by which an assignment's VM may be known. What
// the user wrote may be either.
func vmSubjects(a *gpu.Assignment) []string {
	var out []string
	if a.VMID != "" {
		out = append(out, vmWithID(a.VMID))
	}
	if a.VMName != "" {
		out = append(out, vmNamed(a.VMName))
	}
	if a.VM != "" {
		out = append(out, vmWithID(a.VM), vmNamed(a.VM))
	}
	return out
}
