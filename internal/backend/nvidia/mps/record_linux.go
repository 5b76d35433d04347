package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// record is what a later agent needs to know of a daemon. It is written before the
// daemon starts, and once more when its process is known.
type record struct {
	Format  string       `json:"format"`
	Spec    mpsconf.Spec `json:"spec"`
	Systemd bool         `json:"systemd"`
	PID     int          `json:"pid,omitempty"`
	Started uint64       `json:"started,omitempty"` // as in process
}

const recordFormat = "gpu-mps/v1"

// load reads a daemon's record, nil when there is none.
func (h *Host) load(name string) (*record, error) {
	path := h.recordPath(name)
	data, err := document.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w. Remove %s once no process uses it", path, err, h.dir(name))
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("%s has format %q, and this agent knows %q: use the agent that wrote it", path, r.Format, recordFormat)
	}
	return &r, nil
}

func (h *Host) save(r record) error {
	r.Format = recordFormat
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replace(h.recordPath(r.Spec.Name), append(data, '\n'))
}

// replace writes a file as a whole. A link in its place is replaced, not followed.
func replace(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o644, renameio.WithStaticPermissions(0o644), renameio.WithTempDir(filepath.Dir(path)))
}
