package statedir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Format is the format of the state file. An agent reads no newer one: what it does
// not know it would lose at the next write.
const Format = formatName + "1"

const formatName = "gpu-agent-state/v"

// document is the state file.
type document struct {
	Format string `json:"format"`
	backend.State
}

func encode(state backend.State) ([]byte, error) {
	data, err := json.MarshalIndent(document{Format: Format, State: state}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("the state cannot be written as JSON: %w", err)
	}
	return append(data, '\n'), nil
}

func decode(path string, data []byte) (backend.State, error) {
	// The format first: a newer file may look quite different.
	var head struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return backend.State{}, corrupt(path, len(data), err)
	}
	if head.Format != Format {
		version, isOurs := strings.CutPrefix(head.Format, formatName)
		if n, err := strconv.Atoi(version); isOurs && err == nil && n > 1 {
			return backend.State{}, newer(path, fmt.Sprintf("its format is %q, and this agent reads %q", head.Format, Format))
		}
		return backend.State{}, corrupt(path, len(data), fmt.Errorf("its format is %q, not %q", head.Format, Format))
	}
	var doc document
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&doc); err != nil {
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return backend.State{}, newer(path, "it has a field "+field+", which this agent does not know")
		}
		return backend.State{}, corrupt(path, len(data), err)
	}
	if _, err := in.Token(); err != io.EOF {
		return backend.State{}, corrupt(path, len(data), fmt.Errorf("something follows the state"))
	}
	return doc.State, nil
}
