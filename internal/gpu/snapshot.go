package gpu

import (
	"encoding/json"
	"fmt"
)

// SnapshotFormat names the version of the snapshot format.
const SnapshotFormat = "gpu-fleet/v1"

// Snapshot is a set of hosts in a file: a simulated fleet, or what a real fleet
// looked like when it was recorded.
type Snapshot struct {
	Format string `json:"format"`
	Hosts  []Host `json:"hosts"`
	// Recorded is when hosts were recorded, by name. Those of a simulated fleet were not.
	Recorded map[string]Recording `json:"recorded,omitempty"`
}

// ParseSnapshot reads and checks a snapshot. Fields that this version does not
// know are ignored, so that an older provider reads a newer recording.
func ParseSnapshot(data []byte) (Snapshot, error) {
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return Snapshot{}, fmt.Errorf("not a fleet snapshot: %w", err)
	}
	return s, s.Validate()
}

// Validate checks what every reader relies on: the format, unique host names,
// unique GPU and VM ids on each host.
func (s Snapshot) Validate() error {
	if s.Format != SnapshotFormat {
		return fmt.Errorf("the format is %q, but %q is wanted", s.Format, SnapshotFormat)
	}
	if len(s.Hosts) == 0 {
		return fmt.Errorf("there are no hosts in it")
	}
	hosts := map[string]bool{}
	for i, h := range s.Hosts {
		if h.Name == "" {
			return fmt.Errorf("host %d has no name", i)
		}
		if hosts[FoldID(h.Name)] {
			return fmt.Errorf("there are two hosts called %q", h.Name)
		}
		hosts[FoldID(h.Name)] = true
		if h.Platform != HyperV && h.Platform != Linux {
			return fmt.Errorf("host %q: the platform is %q, but must be %q or %q", h.Name, h.Platform, HyperV, Linux)
		}
		ids := map[string]bool{}
		for _, g := range h.GPUs {
			if g.ID == "" || ids[FoldID(g.ID)] {
				return fmt.Errorf("host %q: GPU id %q is empty or used twice", h.Name, g.ID)
			}
			ids[FoldID(g.ID)] = true
		}
		vms := map[string]bool{}
		for _, v := range h.VMs {
			if v.ID == "" || vms[FoldID(v.ID)] {
				return fmt.Errorf("host %q: VM id %q is empty or used twice", h.Name, v.ID)
			}
			vms[FoldID(v.ID)] = true
		}
	}
	return nil
}
