package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Journal is what a host has not settled yet.
type Journal struct {
	// Lease says who may change the host now.
	Lease   *backend.Lease `json:"lease,omitempty"`
	Changes []Unsettled    `json:"changes"`
	// Unreadable are the records of the host that its agent cannot read, claims included.
	// The host is not changed as long as there are any.
	Unreadable []gpu.UnreadableRecord `json:"unreadable,omitempty"`
	// PendingStarts are the VMs that changes stopped, without those that a change under way has started again since.
	PendingStarts []gpu.PendingStart `json:"owed_starts,omitempty"`
}

// Unsettled is a change that was begun and is neither kept nor put back.
type Unsettled struct {
	ID      string   `json:"id"`
	Subject string   `json:"subject"`
	Run     string   `json:"run"`
	Status  string   `json:"status"` // running: being made or put back; applied: made, not settled
	Steps   []string `json:"steps"`
	Begun   int      `json:"begun"` // how many steps may have run
}

func (s *Server) openJournal(ctx context.Context) (Journal, error) {
	state, err := backend.LoadReadable(ctx, s.store)
	if err != nil {
		return Journal{}, failure("read the journal", err)
	}
	entries, err := readJournal(&state)
	if err != nil {
		return Journal{}, err
	}
	j := Journal{Changes: []Unsettled{}, Unreadable: unreadableRecords(&state)}
	if cluster, err := s.clusterRecords(ctx); err == nil { // else what concerns the host is still told
		j.Unreadable = append(j.Unreadable, cluster...)
	}
	if !s.expired(&state) {
		j.Lease = state.Lease
	}
	for _, e := range entries {
		u := Unsettled{ID: e.ID, Subject: e.Subject, Run: e.Run, Status: string(e.Status), Begun: e.Begun}
		for _, step := range e.Steps {
			u.Steps = append(u.Steps, step.String())
		}
		j.Changes = append(j.Changes, u)
	}
	j.PendingStarts = slices.DeleteFunc(slices.Clone(state.PendingStarts), func(d gpu.PendingStart) bool {
		return slices.ContainsFunc(entries, func(e *entry) bool { return e.Status == running && e.isOf(d) && !e.isOff(d.VM) })
	})
	return j, nil
}

// isOf tells whether a change stopped the VM of a pending start, or is about to.
func (e *entry) isOf(d gpu.PendingStart) bool {
	return e.Run == d.Run && e.Subject == d.Subject && e.stops(d.VM)
}

// isOff tells whether a VM is off by the steps of a change that have begun. The last of these may be under way still.
func (e *entry) isOff(vm string) bool {
	off := false
	for i, s := range e.Steps[:min(e.Begun, len(e.Steps))] {
		switch {
		case !gpu.SameID(s.VM, vm):
		case s.Op == change.OpStopVM:
			off = true
		case s.Op == change.OpStartVM && i < e.Begun-1:
			off = false
		}
	}
	return off
}

// entry is one change in the journal, from before its first step until it is
// settled.
type entry struct {
	ID      string `json:"id"`
	Subject string `json:"subject"`
	Host    string `json:"host"`
	Run     string `json:"run"`
	// Worker is the process that works on the change.
	Worker string        `json:"worker"`
	Status phase         `json:"status"`
	Steps  []change.Step `json:"steps"`
	// Before is what the host showed of all that the steps change, but for the claims. A
	// host that shows it again was put back by an attempt that could not write so.
	Before change.Facts `json:"before,omitempty"`
	// Undo holds, for each step, what puts it back. It was worked out before the first
	// step ran, and each list may be run again from its beginning.
	Undo [][]change.Step `json:"undo"`
	// Begun counts the steps that may have run. It is raised before a step and lowered
	// after it has been put back.
	Begun int `json:"begun"`
	// Restarted says that an attempt to put the change back failed and started the VMs all the
	// same: the next one has to stop them again.
	Restarted bool `json:"restarted,omitempty"`
	// Left says that the claim is to say that the change is not complete, though all is put back that
	// is this host's to put back. It is for the attempt after one that was cut off.
	Left leftover `json:"left,omitempty"`
	// Attempts counts how often a later run tried to put the change back.
	Attempts int `json:"attempts,omitempty"`
}

type phase string

const (
	running phase = "running" // being made, or being put back
	applied phase = "applied" // made, and to be kept or put back
)

type leftover string

const (
	leftRecorded   leftover = "recorded"   // the change had come to write the claim
	leftUnrecorded leftover = "unrecorded" // it had not
)

type journal []*entry

// readJournal reads the journal. The store has left out what cannot be read.
func readJournal(st *backend.State) (journal, error) {
	var j journal
	for _, doc := range st.Journal {
		e, err := readEntry(doc)
		if err != nil {
			return nil, &Error{Code: Internal, Message: fmt.Sprintf("the journal of the host cannot be read: %v", err)}
		}
		j = append(j, e)
	}
	return j, nil
}

func (j journal) write(st *backend.State) {
	st.Journal = nil
	for _, e := range j {
		st.Journal = append(st.Journal, document.Encode(e))
	}
}

func (j journal) find(id string) *entry {
	i := slices.IndexFunc(j, func(e *entry) bool { return e.ID == id })
	if i < 0 {
		return nil
	}
	return j[i]
}

func (j journal) without(drop func(*entry) bool) journal {
	return slices.DeleteFunc(slices.Clone(j), drop)
}

// busyElsewhere tells whether another process may be working on a change.
func (j journal) busyElsewhere(worker string) bool {
	return slices.ContainsFunc(j, func(e *entry) bool { return e.Status == running && e.Worker != worker })
}

// record writes an entry to the journal, under the lease, and with it what its steps change of
// the claims of this host alone.
func (s *Server) record(ctx context.Context, fence int64, e *entry, claims ...change.Step) error {
	if err := s.addPendingTogether(ctx, fence, e.pendingStarts(s.clock())); err != nil {
		return err
	}
	return s.rewrite(ctx, fence, e, func(st *backend.State) bool {
		st.PendingStarts = withPending(st.PendingStarts, e.pendingStarts(s.clock())...)
		st.Claims = edited(st.Claims, claims)
		return true
	})
}

// strike takes an entry out of the journal, under the lease.
func (s *Server) strike(ctx context.Context, fence int64, e *entry) error {
	return s.rewrite(ctx, fence, e, func(*backend.State) bool { return false })
}

// rewrite edits the records, and writes an entry as it is now, or takes it out. The others stay as
// they were written.
func (s *Server) rewrite(ctx context.Context, fence int64, e *entry, edit func(*backend.State) (keep bool)) error {
	return s.guarded(ctx, fence, func(st *backend.State) error {
		st.Journal = slices.DeleteFunc(slices.Clone(st.Journal), func(doc json.RawMessage) bool {
			id, err := s.store.idOf(doc)
			return err == nil && id == e.ID
		})
		if edit(st) {
			doc := document.Encode(e)
			s.store.sound.wrote(doc, e.ID)
			st.Journal = append(st.Journal, doc)
		}
		return nil
	})
}

// underLease reads the journal and the lease that it is read under.
func (s *Server) underLease(ctx context.Context, fence int64) (j journal, lease backend.Lease, err error) {
	st, err := s.reach(ctx, fence)
	if err == nil {
		lease = *st.Lease
		j, err = readJournal(&st)
	}
	if err != nil {
		return nil, lease, failure("read the journal", err)
	}
	return j, lease, nil
}
