package change

import (
	"fmt"
	"slices"
)

// fields are those that a step has, by their names in a document.
func (s Step) fields() []string {
	var out []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"gpu", s.GPU != ""},
		{"vm", s.VM != ""},
		{"pool", s.Pool != ""},
		{"unit", s.Unit != ""},
		{"compute_mode", s.ComputeMode != ""},
		{"time_slice", s.TimeSlice != ""},
		{"instance", s.Instance != nil},
		{"vgpu", s.VGPU != nil},
		{"mps_daemon", s.Daemon != nil && s.Daemon.Name != ""},
		{"share", s.Share != nil && s.Share.Name != ""},
		{"adapter", s.Adapter != nil},
		{"device", s.Device != nil},
		{"settings", s.Settings != nil},
		{"claim", s.Claim != nil && s.Claim.Validate() == nil},
	} {
		if f.has {
			out = append(out, f.name)
		}
	}
	return out
}

// UnknownOpError is a step with an op that this version does not know. A newer one may.
type UnknownOpError struct{ Op Op }

func (e *UnknownOpError) Error() string {
	return fmt.Sprintf("op is %q, which this agent does not know", e.Op)
}

// Validate checks a step that was written down: that there is such an op, and that it has
// all that the op needs. The error begins with the field.
func (s Step) Validate() error {
	of, ok := rows[s.Op]
	if !ok {
		return &UnknownOpError{Op: s.Op}
	}
	has := s.fields()
	for _, name := range of.needs {
		if !slices.Contains(has, name) {
			return fmt.Errorf("%s is missing, which %s needs", name, s.Op)
		}
	}
	if s.Count < 0 {
		return fmt.Errorf("count is %d", s.Count)
	}
	return nil
}
