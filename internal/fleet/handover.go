package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// handovers lets the end of an object wait for a plan of the same run that wants it. Terraform
// plans, and applies, what has another address now in any order, and what it does at once
// cannot be told from what it has not begun. So an end waits as long as plans are under way or
// come in: after a lull the ends go on, and all of them no longer than patience. Where as many are under
// way as Terraform is known to run at a time they go on one by one, the oldest first, since each may keep
// its successor from its turn.
type handovers struct {
	lull time.Duration

	mu      sync.Mutex
	next    int
	waiting []int
	// passed is the last of those for whom a lull was long enough.
	passed int
	// left is how much of patience the run has left while nothing waits.
	left time.Duration
	// until is when patience ends while something waits.
	until time.Time
	// lullEnds is when the lull is over that goes on unless something is planned before.
	lullEnds time.Time
	// under are the reads and plans under way, and most how many have been at a time.
	under, most int
	// begins is true once something was planned that its resource did not have before.
	begins bool
	// none is true when the plan has found that no successor comes.
	none bool
	// bell is closed when something was planned.
	bell chan struct{}
	// ended are the destroys that were planned without a successor and change a host, by
	// what they end.
	ended map[string]change.Change
}

func newHandovers(patience time.Duration) *handovers {
	return &handovers{left: patience, lull: patience / lullsInPatience, bell: make(chan struct{}), ended: map[string]change.Change{}}
}

// ring says that something was planned.
func (h *handovers) ring() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rung()
}

func (h *handovers) rung() {
	h.lullEnds = time.Now().Add(h.lull)
	close(h.bell)
	h.bell = make(chan struct{})
}

// begin says that a read or a plan is under way, until end is called. begins tells that it is the plan of a change.
func (h *handovers) begin(begins bool) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.under++
	h.most, h.begins = max(h.most, h.under), h.begins || begins
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.under--
		h.rung()
	}
}

// noneComes says what the plan has found: that nothing of this run takes over what another gives up.
func (h *handovers) noneComes() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.none = true
	h.rung()
}

// await waits until something is so, or until it is not to be expected any more. It tells whether nothing of
// the run has changed until then although Terraform could have had its turn: a run that only ends objects.
func (h *handovers) await(ctx context.Context, applies bool, is func() bool) (ends bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	ticket := h.next
	if len(h.waiting) == 0 {
		h.until = time.Now().Add(h.left)
	}
	h.waiting = append(h.waiting, ticket)
	h.rung() // whoever waits already may be next only now that this one does not do anything either
	for ctx.Err() == nil && !h.none {
		bell := h.bell
		h.mu.Unlock()
		done := is()
		h.mu.Lock()
		until := h.until
		free := h.under < h.most && !applies // what is applied takes turns too, and is not counted
		if myTurn := (free || h.waiting[0] == ticket) && h.under <= len(h.waiting); myTurn && h.lullEnds.Before(until) {
			until = h.lullEnds
		}
		if late := ticket <= h.passed || !time.Now().Before(until); done || late {
			if free && !done {
				h.passed = h.next
			}
			ends = late && !done && !h.begins && (ticket <= h.passed || until.Equal(h.until))
			break
		}
		h.mu.Unlock()
		select {
		case <-bell:
		case <-time.After(time.Until(until)):
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(t int) bool { return t == ticket })
	if len(h.waiting) == 0 {
		h.left = time.Until(h.until)
	}
	h.rung()
	return ends
}

// awaitSuccessor waits for a plan of the run that wants what a change ends, and lists the
// hosts on which it does. Without an owner nothing is taken over. ends is what await tells.
func (f *Fleet) awaitSuccessor(ctx context.Context, v View, ch change.Change) (hosts []string, ends bool) {
	if f.opt.Owner == "" || ch.Token == "" {
		return nil, false
	}
	w := f.world(v)
	ends = f.Ledger.handovers.await(ctx, f.Applies(), func() bool {
		hosts = whatif.TakenOver(w.World, ch)
		return len(hosts) > 0
	})
	return hosts, ends
}

// AwaitNamed waits for the plan of the config or pool that a change begins to name, where no host
// has it: without a reference Terraform plans the two in any order.
func (f *Fleet) AwaitNamed(ctx context.Context, v View, p change.Change) {
	configs, pool := p.Want.Uses()
	if was, from := p.Prior.Uses(); p.Unchanged || slices.Equal(configs, was) && pool == from {
		return
	}
	configs = slices.DeleteFunc(slices.Clone(configs), func(id string) bool {
		_, claimed := v.Claim(gpu.ClaimConfig, id)
		return claimed
	})
	for _, h := range v.Hosts {
		if slices.ContainsFunc(h.Claims, func(c gpu.Claim) bool { return c.Want.Pool != nil && p.Want.RefersTo(c.Want) }) {
			pool = ""
		}
	}
	if len(configs) == 0 && pool == "" {
		return
	}
	f.Ledger.handovers.await(ctx, f.Applies(), func() bool {
		_, pooled := f.Ledger.Pool(pool)
		return (pooled || pool == "") && !slices.ContainsFunc(configs, func(id string) bool {
			_, made := f.Ledger.Config(id)
			return !made
		})
	})
}

// object names what a want is about, across resources.
func object(w gpu.Want) string {
	switch {
	case w.Config != nil:
		return "config " + gpu.FoldID(w.Config.ID)
	case w.Pool != nil:
		return "pool " + gpu.FoldID(w.Pool.ID)
	case w.Share != nil:
		return "share " + w.Share.Host + " " + gpu.FoldID(w.Share.Name)
	case w.Assignment != nil:
		return "vm " + gpu.FoldID(w.Assignment.VMID)
	}
	return ""
}

// endsFirst remembers a destroy that was planned before any successor.
func (h *handovers) endsFirst(ch change.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended[object(ch.Prior)] = ch
}

// comesLate finds that a resource wants what a destroy that was planned before takes down: the
// order in which Terraform planned the two has hidden that it is handed over.
func (f *Fleet) comesLate(p change.Change) []rules.Finding {
	h := f.Ledger.handovers
	h.mu.Lock()
	defer h.mu.Unlock()
	ch, ok := h.ended[object(p.Want)]
	if !ok || f.opt.Owner == "" || ch.Token == p.Token {
		return nil
	}
	delete(h.ended, object(p.Want))
	x := rules.Finding{Level: rules.Warning, Other: ch.Subject, Title: "The object may be removed and made again"}
	kind := "gpu_partition_config"
	switch w := p.Want; {
	case w.Assignment != nil:
		kind, x.VM, x.Host = "gpu_vm_assignment", w.Assignment.VMName, w.Assignment.Host
		x.Title = fmt.Sprintf("VM %s may be stopped twice", words.Name(w.Assignment.VMName))
	case w.Pool != nil:
		kind = "gpu_pool"
	case w.Share != nil:
		kind = "gpu_share"
	}
	x.Found = fmt.Sprintf("%s is destroyed in this run, and Terraform planned that before this resource, which wants the same object. The "+
		"destroy may take it down before this resource makes it again.", ch.Subject)
	x.Fix = fmt.Sprintf("If this is the same resource with a new address, write a `moved` block; then no host is touched:\n\n  moved {\n    "+
		"from = %[1]s.OLD\n    to   = %[1]s.NEW\n  }\n", kind)
	return []rules.Finding{x}
}
