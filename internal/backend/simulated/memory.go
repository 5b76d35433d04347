package simulated

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// memory is what an agent remembers, as it stands in the fleet file. What cannot be read
// of it is written back as it is.
type memory struct {
	backend.State
	source json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (m memory) MarshalJSON() ([]byte, error) {
	if m.source != nil {
		return m.source, nil
	}
	return m.Encode()
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *memory) UnmarshalJSON(data []byte) error {
	*m = memory{State: backend.DecodeState(data)}
	if len(m.Unreadable) > 0 {
		m.source = slices.Clone(data)
	}
	return nil
}

// update lets f change what an agent remembers.
func (m *memory) update(f func(*backend.State) error) error {
	if err := m.Err(); err != nil {
		return err
	}
	return f(&m.State)
}

// repair implements backend.Repairer.
func (m *memory) repair(f func(*backend.State) error) error {
	before := m.State
	if err := f(&m.State); err != nil {
		return err
	}
	if len(m.Unreadable) == len(before.Unreadable) && len(m.Journal) == len(before.Journal) {
		return before.Err() // nothing was given up
	}
	m.source = nil
	return nil
}

// at says in which file the records are that cannot be read.
func at(place string, s backend.State) backend.State {
	s.Unreadable = slices.Clone(s.Unreadable)
	for i := range s.Unreadable {
		s.Unreadable[i].File = place
	}
	return s
}

// Load reads what the agent remembers.
func (h *Host) Load(ctx context.Context) (backend.State, error) {
	rec, err := h.look(ctx, call{op: OpLoadState})
	if err != nil {
		return backend.State{}, err
	}
	state := h.state(rec)
	return state, state.Err()
}

// Update changes what the agent remembers. An error of f is returned as it is. The
// records lie in the fleet file, so f may read the fleet but not change it: a change
// would wait for the lock that f runs under.
func (h *Host) Update(ctx context.Context, f func(*backend.State) error) error {
	return h.change(ctx, (*memory).update, f)
}

// Repair implements backend.Repairer.
func (h *Host) Repair(ctx context.Context, f func(*backend.State) error) error {
	return h.change(ctx, (*memory).repair, f)
}

// Place implements backend.Repairer.
func (h *Host) Place() string { return "host " + h.name + " in " + h.fleet.file.path }

func (h *Host) change(ctx context.Context, how func(*memory, func(*backend.State) error) error, f func(*backend.State) error) error {
	return h.do(ctx, call{op: OpUpdateState}, func(r *record) error {
		m := memory{State: h.state(r), source: r.Agent.source}
		if err := how(&m, f); err != nil {
			return err
		}
		r.Claims, m.Claims = m.Claims, nil
		r.Agent = m
		return nil
	})
}

// state is what the agent remembers. The claims are with the host.
func (h *Host) state(r *record) backend.State {
	state := at(h.Place(), r.Agent.State)
	state.Claims = r.Claims
	return state
}
