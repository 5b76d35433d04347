package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// recordStore is the store of an agent that reads what it has recorded strictly: it
// changes nothing beside a change in the journal that it cannot read.
type recordStore struct {
	backend.Store
	version string
	sound   *sound // nil for none
}

// sound are the ids of the changes of a journal that were read without fault, or written here, by
// their text. Each write reads the whole journal, of which one change at most differs from the
// time before.
type sound struct {
	mu  sync.Mutex
	ids map[string]string
}

// id is that of a change, "" for one that is to be read first.
func (s *sound) id(doc json.RawMessage) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[string(doc)]
}

// keep forgets all others.
func (s *sound) keep(ids map[string]string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = ids
}

// wrote adds one.
func (s *sound) wrote(doc json.RawMessage, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[string(doc)] = id
}

// Load implements backend.Store.
func (r recordStore) Load(ctx context.Context) (backend.State, error) {
	st, err := backend.LoadReadable(ctx, r.Store)
	if err != nil {
		return st, err
	}
	st.Journal, st.Unreadable = r.readable(&st)
	return st, st.Err()
}

// Update implements backend.Store.
func (r recordStore) Update(ctx context.Context, f func(*backend.State) error) error {
	err := r.Store.Update(ctx, func(st *backend.State) error {
		if _, bad := r.readable(st); len(bad) > 0 {
			return &backend.UnreadableError{Records: bad}
		}
		st.Agent = r.version
		return f(st)
	})
	if ue := (*backend.UnreadableError)(nil); errors.As(err, &ue) {
		if _, all := r.Load(ctx); all != nil {
			return all // what the store cannot read, and what the agent cannot
		}
	}
	return err
}

var errNoRecord = &Error{Code: BadRequest, Message: "there is no record with this id that cannot be read; `gpu-agent records` lists them"}

// repair gives up the record with an id and returns it.
func (r recordStore) repair(ctx context.Context, id string, now time.Time, refusal func(*backend.Lease) *Error) (dropped backend.Unreadable,
	err error,
) {
	store, ok := r.Store.(backend.Repairer)
	if !ok {
		return dropped, &Error{Code: BadRequest, Message: "the records of this host cannot be given up one by one"}
	}
	err = store.Repair(ctx, func(st *backend.State) error {
		if held := refusal(st.Lease); held != nil {
			return held
		}
		byID := func(u backend.Unreadable) bool { return u.ID == id }
		if i := slices.IndexFunc(st.Unreadable, byID); i >= 0 {
			dropped = st.Unreadable[i]
			st.Unreadable = slices.Delete(slices.Clone(st.Unreadable), i, i+1)
		} else {
			_, bad := r.readable(st)
			i := slices.IndexFunc(bad, byID)
			if i < 0 {
				return errNoRecord
			}
			dropped = bad[i]
			st.Journal = slices.DeleteFunc(slices.Clone(st.Journal), func(doc json.RawMessage) bool { return bytes.Equal(doc, dropped.Raw) })
		}
		st.Agent = r.version
		// Which fences were given out may be what was lost. A run that still has one must not
		// get its lease again.
		st.Fence = max(st.Fence, now.Unix())
		st.Lease = nil
		return nil
	})
	return dropped, err
}

// readable are the changes in the journal that this agent can read, and all records that it
// cannot, those that the store could not read included.
func (r recordStore) readable(st *backend.State) ([]json.RawMessage, []backend.Unreadable) {
	var entries []json.RawMessage
	bad := slices.Clone(st.Unreadable)
	ids := map[string]string{}
	for i, doc := range st.Journal {
		id, err := r.idOf(doc)
		if err != nil {
			bad = append(bad, r.unreadableEntry(st, i, doc, err))
			continue
		}
		ids[string(doc)] = id
		entries = append(entries, doc)
	}
	r.sound.keep(ids)
	return entries, bad
}

// idOf is the id of a change in the journal.
func (r recordStore) idOf(doc json.RawMessage) (string, error) {
	if id := r.sound.id(doc); id != "" {
		return id, nil
	}
	e, err := readEntry(doc)
	if err != nil {
		return "", err
	}
	return e.ID, nil
}

func (r recordStore) unreadableEntry(st *backend.State, i int, doc json.RawMessage, err error) backend.Unreadable {
	name := fmt.Sprintf("change %d of the journal", i+1)
	var about struct {
		Subject string `json:"subject"`
	}
	if json.Unmarshal(doc, &about) == nil && about.Subject != "" {
		name += ", for " + about.Subject
	}
	var ne *newerError
	u := backend.NewUnreadable(name, doc, errors.As(err, &ne), "%v", err)
	u.Agent = st.Agent
	if store, ok := r.Store.(backend.Repairer); ok {
		u.File = store.Place()
	}
	return u
}

// newerError is what only an agent could have written that is newer than this one.
type newerError struct{ found string }

func (e *newerError) Error() string { return e.found }

// readEntry reads one change in the journal, and checks all that the agent relies on when
// it goes on with it.
func readEntry(doc json.RawMessage) (*entry, error) {
	e := &entry{}
	if err := document.Read(doc, e); err != nil {
		if _, unknown := errors.AsType[*document.UnknownError](err); unknown {
			return nil, &newerError{found: err.Error()}
		}
		return nil, err
	}
	return e, e.validate()
}

func (e *entry) validate() error {
	switch {
	case e.ID == "":
		return errors.New("id is empty")
	case e.Status != running && e.Status != applied:
		return &newerError{found: fmt.Sprintf("status is %q, which this agent does not know", e.Status)}
	case len(e.Undo) != len(e.Steps):
		return fmt.Errorf("undo has %d lists of steps for %d steps", len(e.Undo), len(e.Steps))
	case e.Begun < 0 || e.Begun > len(e.Steps):
		return fmt.Errorf("begun is %d of %d steps", e.Begun, len(e.Steps))
	case e.Attempts < 0:
		return fmt.Errorf("attempts is %d", e.Attempts)
	}
	for i, s := range e.Steps {
		if err := s.Validate(); err != nil {
			return inField(err, "steps[%d]", i)
		}
		for j, back := range e.Undo[i] {
			if err := back.Validate(); err != nil {
				return inField(err, "undo[%d][%d]", i, j)
			}
		}
	}
	return nil
}

func inField(err error, format string, args ...any) error {
	err = fmt.Errorf("%s.%w", fmt.Sprintf(format, args...), err)
	if unknown := (*change.UnknownOpError)(nil); errors.As(err, &unknown) {
		return &newerError{found: err.Error()}
	}
	return err
}

// clusterRecords are those of the host's cluster that this agent cannot read.
func (s *Server) clusterRecords(ctx context.Context) ([]gpu.UnreadableRecord, error) {
	cluster, err := s.cluster(ctx)
	if err != nil || cluster == nil {
		return nil, err
	}
	state, err := backend.LoadReadable(ctx, cluster.Store)
	return unreadableRecords(&state), err
}

// UnreadableRecords are the records of this host, and of its cluster, that the agent
// cannot read, with their bytes.
func (s *Server) UnreadableRecords(ctx context.Context) ([]backend.Unreadable, error) {
	state, err := backend.LoadReadable(ctx, s.store)
	if err != nil {
		return nil, failure("read the records", err)
	}
	cluster, err := s.cluster(ctx)
	if err != nil {
		return nil, failure("find the host's cluster", err)
	}
	if cluster == nil {
		return state.Unreadable, nil
	}
	shared, err := backend.LoadReadable(ctx, cluster.Store)
	if err != nil {
		return nil, failure("read the records of the cluster", err)
	}
	return append(state.Unreadable, shared.Unreadable...), nil
}

// DropRecord gives up a record that the agent cannot read, and returns it. A claim, or a
// change that was cut off, is then no longer known: what it stood for stays as it is, VMs
// that such a change stopped included. It waits for a run that is at work as long as it is
// told.
func (s *Server) DropRecord(ctx context.Context, id string, wait time.Duration) (backend.Unreadable, error) {
	release, err := s.take(ctx)
	if err != nil {
		return backend.Unreadable{}, err
	}
	defer release()
	for until := s.bootClock() + wait; ; {
		dropped, err := s.dropRecord(ctx, id)
		if err == nil {
			return dropped, nil
		}
		if held, ok := errors.AsType[*Error](err); !ok || held.Code != LeaseHeld || s.bootClock() >= until {
			return dropped, failure("give up a record", err)
		}
		select {
		case <-time.After(lastLeasePoll):
		case <-ctx.Done():
			return dropped, failure("give up a record", err)
		}
	}
}

func (s *Server) dropRecord(ctx context.Context, id string) (backend.Unreadable, error) {
	under := func(of, node string) func(*backend.Lease) *Error {
		return func(l *backend.Lease) *Error {
			if left := s.left(of, node, l); left > 0 {
				return s.heldBy(of, l, left)
			}
			return nil
		}
	}
	dropped, err := s.store.repair(ctx, id, s.clock(), under("the host", ""))
	if cluster, none := s.cluster(ctx); errors.Is(err, errNoRecord) && none == nil && cluster != nil {
		if shared, ok := cluster.Store.(recordStore); ok {
			return shared.repair(ctx, id, s.clock(), under("cluster "+cluster.Name, cluster.Node))
		}
	}
	return dropped, err
}

// unreadableRecords are those facts of an inventory.
func unreadableRecords(st *backend.State) []gpu.UnreadableRecord {
	var out []gpu.UnreadableRecord
	for _, u := range st.Unreadable {
		out = append(out, u.UnreadableRecord)
	}
	return out
}
