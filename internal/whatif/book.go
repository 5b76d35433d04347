package whatif

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
	plans   map[string]*Entry
	subject map[string][]*Entry // see subjects
	// policies are the power policies of VMs as the run declares them, by folded id of
	// the VM and then by instance. They are known even where the plan is not.
	policies map[string]map[string]Policy
	// openConfigs are partition configs whose plan is not known until apply, by instance, as they
	// were before.
	openConfigs map[string]change.Change
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

// Entry is one plan of the run.
type Entry struct {
	token string
	Plan  change.Change
}

// NewBook makes a book of plans, each under its own token.
func NewBook(plans ...change.Change) *Book {
	b := &Book{
		plans: map[string]*Entry{}, subject: map[string][]*Entry{}, policies: map[string]map[string]Policy{},
		openConfigs: map[string]change.Change{},
	}
	for _, p := range plans {
		b.Put(p.Token, p)
	}
	return b
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
		delete(b.openConfigs, instance)
		return
	}
	b.openConfigs[instance] = prior
}

// Config finds the plan of the run that wants the partition config of an id.
func (b *Book) Config(id string) (change.Change, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, e := range b.about(ConfigNamed(id)) {
		if c := e.Plan.Want.Config; c != nil && gpu.SameID(c.ID, id) {
			return e.Plan, true
		}
	}
	return change.Change{}, false
}

// Pool returns the pool of that id that the run plans.
func (b *Book) Pool(id string) (change.Change, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, e := range b.about(PoolNamed(id)) {
		if p := e.Plan.Want.Pool; p != nil && gpu.SameID(p.ID, id) {
			return e.Plan, true
		}
	}
	return change.Change{}, false
}

// Plan returns the plan of a token.
func (b *Book) Plan(token string) (change.Change, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.plans[token]
	if token == "" || e == nil {
		return change.Change{}, false
	}
	return e.Plan, true
}

// Plans are all plans, in no order.
func (b *Book) Plans() []change.Change {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := make([]change.Change, 0, len(b.plans))
	for _, e := range b.plans {
		out = append(out, e.Plan)
	}
	return out
}

// Assigned are the VMs whose assignments the run makes or changes, and which it may stop for
// that. One that was off when its assignment was read is none of them.
func (b *Book) Assigned() []string {
	var out []string
	for _, p := range b.Plans() {
		if a := p.Want.Assignment; a != nil && !p.Unchanged && (p.Approved == nil || p.Approved.HasVM(a.VMID)) {
			out = append(out, a.VMID)
		}
	}
	return out
}

// Put records a plan or replaces the one with the same token. A plan that destroys
// belongs in the book too: it says that what its claim holds is going.
func (b *Book) Put(token string, p change.Change) {
	p.Token = token
	e := &Entry{token: token, Plan: p}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(token)
	b.plans[token] = e
	if drains(p) {
		b.draining++
	}
	for _, s := range subjects(p) {
		list := b.subject[s]
		at, _ := slices.BinarySearchFunc(list, e, CompareEntries)
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
	if drains(old.Plan) {
		b.draining--
	}
	for _, s := range subjects(old.Plan) {
		list := b.subject[s]
		if at, ok := slices.BinarySearchFunc(list, old, CompareEntries); ok {
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
		for _, e := range b.subject[GPUsOn(host)] {
			for _, w := range []gpu.Want{e.Plan.Want, e.Plan.Prior} {
				if w.Pool != nil {
					out = append(out, SortedKeys(w.Pool.Members)...)
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
func (b *Book) about(subjects ...string) []*Entry {
	if len(subjects) == 1 {
		return b.subject[subjects[0]]
	}
	var out []*Entry
	for _, s := range subjects {
		out = append(out, b.subject[s]...)
	}
	slices.SortFunc(out, CompareEntries)
	return slices.Compact(out)
}

// Superseded tells whether the book has another plan for the resource by now. The end of what a replacement
// replaces goes on beside the plan that has taken its place in the book, unless it is made anew as it was.
func (b *Book) Superseded(p change.Change) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.plans[p.Token]
	return e == nil || e.Plan.Want != p.Want && (!p.Want.Empty() || len(halves(e.Plan)) == 1 || MadeAnew(e.Plan))
}

// CompareEntries orders by label first: tokens are random, and two runs should
// name the same side of a conflict.
func CompareEntries(a, b *Entry) int {
	return cmp.Or(cmp.Compare(a.Plan.Subject, b.Plan.Subject), cmp.Compare(a.token, b.token))
}

// vmsOn is the subject of the plans for VMs of a host; each of these is a key of the book's index.
func vmsOn(host string) string { return "vms on " + host }

// GPUsOn is the subject of the plans about GPUs of a host.
func GPUsOn(host string) string { return "gpus on " + host }

// ConfigNamed is the subject of the plans of a config.
func ConfigNamed(id string) string { return "config " + gpu.FoldID(id) }

// UsersOf is the subject of the plans that refer to a config or a pool.
func UsersOf(id string) string { return "users of " + gpu.FoldID(id) }

// PoolNamed is the subject of the plans of a pool.
func PoolNamed(id string) string { return "pool " + gpu.FoldID(id) }

func vmWithID(id string) string  { return "vm id " + gpu.FoldID(id) }
func vmNamed(name string) string { return "vm name " + gpu.FoldID(name) }

// SharesOn is the subject of the plans of shares that are on a host.
func SharesOn(host string) string { return "shares on " + host }

// SharesOf is the subject of the plans of shares that draw from a pool.
func SharesOf(pool string) string { return "shares of " + gpu.FoldID(pool) }

// subjects are the index keys of a plan, of what it wants and of what it had.
func subjects(p change.Change) []string {
	var out []string
	for _, w := range []gpu.Want{p.Want, p.Prior} {
		switch {
		case w.Config != nil:
			out = append(out, ConfigNamed(w.Config.ID))
			for host := range w.Config.GPUs {
				out = append(out, GPUsOn(host))
			}
		case w.Pool != nil:
			out = append(out, PoolNamed(w.Pool.ID))
			for host := range w.Pool.Members {
				out = append(out, GPUsOn(host))
			}
		case w.Assignment != nil:
			out = append(out, vmSubjects(w.Assignment)...)
			if w.Assignment.Host != "" {
				out = append(out, vmsOn(w.Assignment.Host))
			}
			if d := w.Assignment.Device; d != nil && d.Host != "" {
				out = append(out, GPUsOn(d.Host))
			}
		case w.Share != nil:
			if w.Share.Host != "" {
				out = append(out, SharesOn(w.Share.Host))
			}
			if w.Share.Pool != "" {
				out = append(out, SharesOf(w.Share.Pool))
			}
		}
		configs, pool := w.Uses()
		for _, id := range append(slices.Clip(configs), pool) {
			if id != "" {
				out = append(out, UsersOf(id))
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

// Undecided is a plan with which something is wrong by a rule, unless others of this state let go of
// what they have, which the run has not planned yet.
type Undecided struct {
	Rule string
	Plan change.Change
}

// undecidedOf is a rule that waits for the decision about a plan. A replacement has two plans of one token:
// its end, and the making.
type undecidedOf struct {
	rule, token string
	ends        bool
}

// Await records that.
func (b *Book) Await(u Undecided) {
	b.undecided.Store(undecidedOf{u.Rule, u.Plan.Token, u.Plan.Want.Empty()}, u.Plan)
}

// Decide forgets it again.
func (b *Book) Decide(rule string, p change.Change) {
	b.undecided.Delete(undecidedOf{rule, p.Token, p.Want.Empty()})
}

// Undecided lists them by the labels of the plans.
func (b *Book) Undecided() []Undecided {
	var out []Undecided
	b.undecided.Range(func(key, value any) bool {
		of, _ := key.(undecidedOf)
		p, _ := value.(change.Change)
		out = append(out, Undecided{Rule: of.rule, Plan: p})
		return true
	})
	slices.SortFunc(out, func(x, y Undecided) int {
		return cmp.Or(cmp.Compare(Label(x.Plan), Label(y.Plan)), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Plan.Token, y.Plan.Token))
	})
	return out
}

// PoliciesFor are the declared power policies of a VM.
func (r *Run) PoliciesFor(vmID string) []Policy {
	of := r.Book.policies[gpu.FoldID(vmID)]
	var out []Policy
	for _, instance := range SortedKeys(of) {
		out = append(out, of[instance])
	}
	return out
}

// UnknownConfigs are the partition configs whose plans are not known until apply, as they were
// before.
func (r *Run) UnknownConfigs() []change.Change {
	var out []change.Change
	for _, instance := range SortedKeys(r.Book.openConfigs) {
		out = append(out, r.Book.openConfigs[instance])
	}
	return out
}

// Tells tells whether it is for this plan to say what concerns the run as a whole: no other one has
// said it.
func (r *Run) Tells(key string) bool {
	by, _ := r.Book.told.LoadOrStore(key, r.Plan.Token)
	return by == r.Plan.Token
}

// ToldByAnother tells whether another plan has said it.
func (r *Run) ToldByAnother(key string) bool {
	by, told := r.Book.told.Load(key)
	return told && by != r.Plan.Token
}
