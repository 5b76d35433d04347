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
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if h.Name == "" {
			return fmt.Errorf("host %d has no name", i)
		}
		if len(h.Name) > mostOfID || Printable(h.Name) != h.Name {
			return fmt.Errorf("the name of host %d, %q, is longer than %d characters, or has others than printable ones",
				i, Said(h.Name, mostOfID), mostOfID)
		}
		if hosts[FoldID(h.Name)] {
			return fmt.Errorf("there are two hosts called %q", h.Name)
		}
		hosts[FoldID(h.Name)] = true
		if h.Platform != HyperV && h.Platform != Linux {
			return fmt.Errorf("host %q: the platform is %q, but must be %q or %q", h.Name, h.Platform, HyperV, Linux)
		}
		if err := h.Validate(); err != nil {
			return fmt.Errorf("host %q: %w", h.Name, err)
		}
	}
	return nil
}

// Validate checks what every reader of a host relies on: its GPUs and VMs each have an id of their
// own, as platforms give them. Names, which people choose, may have anything in them.
func (h *Host) Validate() error {
	gpus, vms := ids{}, ids{}
	for i := range h.GPUs {
		if err := gpus.add("GPU", h.GPUs[i].ID); err != nil {
			return err
		}
	}
	for i := range h.VMs {
		if err := vms.add("VM", h.VMs[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// ids are those of the objects of one host.
type ids map[string]bool

func (seen ids) add(kind, id string) error {
	switch {
	case id == "" || seen[FoldID(id)]:
		return fmt.Errorf("%s id %q is empty or used twice", kind, Said(id, mostOfID))
	case len(id) > mostOfID || Printable(id) != id:
		return fmt.Errorf("%s id %q is longer than %d characters, or has others than printable ones", kind, Said(id, mostOfID), mostOfID)
	}
	seen[FoldID(id)] = true
	return nil
}

// mostOfID is far more than the path of a device behind many bridges has.
const mostOfID = 1_000
