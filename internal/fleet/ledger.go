package fleet

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Ledger records what each resource instance of one run means to hold, so that two
// resources that cannot both have their way are found at plan.
//
// Terraform never tells a provider a resource's address, and plans a replacement
// with two calls. So an instance is named by a token that it keeps in private
// state: the second call brings back the token of the first. A token of another
// run has another nonce and counts for nothing.
type Ledger struct {
	nonce string
	book  *whatif.Book

	mu      sync.Mutex
	next    int
	entries map[string]entry // by instance
	keys    map[string]bool  // of the entries
	// reshaped are the ids of the partition configs that will change a partition count.
	reshaped map[string]bool
	// seen are the claim tokens of the resources that the run has read.
	seen map[string]bool
	// deleted are the VMs, as written, whose assignments have left the state since every host says that they
	// are gone.
	deleted map[string]bool
	// handovers lets what goes wait for what takes it over.
	handovers *handovers
	told      told
	reported  reported
}

// entry is what the ledger knows of an instance: its key in the book, and what it
// had before this run.
type entry struct {
	key   string
	prior gpu.Want
}

func newLedger(patience time.Duration) *Ledger {
	return &Ledger{
		nonce: rand.Text()[:10], book: whatif.NewBook(), entries: map[string]entry{}, keys: map[string]bool{},
		seen: map[string]bool{}, deleted: map[string]bool{}, reshaped: map[string]bool{}, handovers: newHandovers(patience),
		told: told{first: map[string]string{}, silent: map[string][]rules.Finding{}},
	}
}

// Instance returns the name of the instance being planned. previous is the name
// that the instance's private state holds, if any.
func (l *Ledger) Instance(previous string) string {
	if strings.HasPrefix(previous, l.nonce+"/") {
		return previous
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return l.nonce + "/" + strconv.Itoa(l.next)
}

// Begin says that a resource is read or planned, until end is called. changes tells that it is made or changed, and neither
// stays as it is nor ends.
func (l *Ledger) Begin(changes bool) (end func()) { return l.handovers.begin(changes) }

// MarkSeen notes that the run has the resource of a claim's token, whatever becomes of it.
func (l *Ledger) MarkSeen(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[token] = true
}

// NoteDeleted notes that the VM of an assignment is gone, and the assignment with it.
func (l *Ledger) NoteDeleted(vm string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleted[gpu.FoldID(vm)] = true
}

// Deleted reports whether the run has found that the VM of an assignment is gone.
func (l *Ledger) Deleted(vm string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deleted[gpu.FoldID(vm)]
}

// has reports whether a resource of the run has a claim's token.
func (l *Ledger) has(token string) bool {
	l.mu.Lock()
	seen := l.seen[token]
	l.mu.Unlock()
	_, planned := l.book.Plan(token)
	return seen || planned
}

// record replaces what an instance means to hold and returns what the check finds
// wrong with it. Both happen under one lock, which the caller holds: of two instances in
// conflict the one that comes second always sees the first. In the book an instance that has a claim
// goes by its claim's token, so that the plan counts and not the claim.
func (l *Ledger) record(instance string, p change.Change, check func(change.Change) []rules.Finding) []rules.Finding {
	if p.Prior.Empty() {
		// The second call for a replacement does not tell what is replaced.
		p.Prior = l.entries[instance].prior
		p.Replaces = !p.Prior.Empty()
	}
	l.forget(instance)
	l.book.Open(instance, change.Change{})
	if l.keys[p.Token] { // of another instance: one object was imported under two addresses
		p.Token, p.Adopt, p.Unchanged = "", true, false
	}
	if p.Token == "" {
		p.Token = instance
	}
	findings := check(p)
	l.book.Put(p.Token, p)
	l.handovers.ring()
	l.entries[instance], l.keys[p.Token] = entry{key: p.Token, prior: p.Prior}, true
	return findings
}

// approved is what a change may disturb: for a partition config also the VMs that the run
// stops for their assignments, whichever of the two is applied first.
func (l *Ledger) approved(ch change.Change) *change.Approved {
	if ch.Want.Config == nil {
		return ch.Approved
	}
	return ch.Approved.WithVMs(l.book.Assigned()...)
}

// Prior is what an instance had before this run, as its last record told: the second
// call for a replacement does not tell it.
func (l *Ledger) Prior(instance string) gpu.Want {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[instance].prior
}

// Forget takes back what an instance meant to hold: it is not known any more.
func (l *Ledger) Forget(instance string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(instance)
}

func (l *Ledger) forget(instance string) {
	if e, ok := l.entries[instance]; ok {
		l.book.Delete(e.key)
		delete(l.entries, instance)
		delete(l.keys, e.key)
	}
}

// Declare records what an assignment lets be done to its VM, and returns what the check
// finds wrong with it, as Fleet.Record does.
func (l *Ledger) Declare(instance string, p whatif.Policy, check func() []rules.Finding) []rules.Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book.Declare(instance, p)
	return l.reported.keep(p.Label, check())
}

// Open forgets what a partition config means to hold, as Forget does. What it had before
// counts until its plan is known.
func (l *Ledger) Open(instance string, prior change.Change, check func() []rules.Finding) []rules.Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(instance)
	l.book.Open(instance, prior)
	return l.reported.keep(prior.Subject, check())
}

// Config returns the partition config of that id that this run plans.
func (l *Ledger) Config(id string) (change.Change, bool) { return l.book.Config(id) }

// Pool returns the pool of that id that this run plans.
func (l *Ledger) Pool(id string) (change.Change, bool) { return l.book.Pool(id) }

// Reshape records whether this run changes the count of a GPU that the partition
// config has: the VMs on it then get other partitions.
func (l *Ledger) Reshape(config string, yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reshaped[config] = yes
}

// Reshaped tells what Reshape recorded.
func (l *Ledger) Reshaped(config string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reshaped[config]
}
