package gpu_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// FuzzSnapshot reads inventories, which come from a host or from a file.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(
		`{"format":"gpu-fleet/v1","hosts":[{"name":"hv01","platform":"hyperv","os":{"name":"x"},"policies":{},"gpus":[{"id":"a",` +
			`"partitionable":{"valid_counts":[1],"count":1}}],"vms":[{"id":"v","name":"v","state":"off",` +
			`"settings":{"high_memory_mapped_io_space_bytes":1}}],"pools":[]}]}`))
	f.Add([]byte(
		`{"format":"gpu-fleet/v1","hosts":[{"name":"n","platform":"linux","gpus":[{"id":"GPU-1","mig":{"enabled":true,` +
			`"instances":[{"profile":"1g.10gb","start":0}]}}],"claims":[{"kind":"share","id":"s","want":{"share":{"name":"s"}}}]}]}`))
	f.Add([]byte(`{"format":"gpu-fleet/v9"}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := gpu.ParseSnapshot(data)
		if err != nil {
			return
		}
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := gpu.ParseSnapshot(doc)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, again, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("there and back (-read +again):\n%s", d)
		}
	})
}
