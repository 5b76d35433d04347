package backend_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// FuzzState reads state files. What is read in full is written and read again as it was;
// what is not is told, and what is written then has every byte of it.
func FuzzState(f *testing.F) {
	st := backend.State{
		Fence: 7, Agent: "1.2.3",
		Lease: &backend.Lease{
			Run: "run-1", Owner: "vdi", Fence: 7, Since: time.Unix(100, 0).UTC(), Expires: time.Unix(160, 0).UTC(), TTL: time.Minute,
		},
		Claims: []gpu.Claim{
			{Kind: gpu.ClaimConfig, ID: "vdi", Token: "token", OriginalLayouts: gpu.Layouts{"a": {Partitions: 1}}}, {Kind: gpu.ClaimShare, ID: "s"},
		},
		Journal: []json.RawMessage{json.RawMessage(`{"id":"a"}`)},
	}
	whole, err := st.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(bytes.Replace(whole, []byte(`"token"`), []byte(`{token"`), 1))
	f.Add(bytes.Replace(whole, []byte("v2"), []byte("v3"), 1))
	f.Add([]byte(""))
	f.Add([]byte(`{"format":"gpu-agent-state/v2","records":[[[[[[]]]]]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		st := backend.DecodeState(data)
		if err := st.Err(); (err != nil) != (len(st.Unreadable) > 0) {
			t.Fatalf("error %v, unreadable %v", err, st.Unreadable)
		}
		written, err := st.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		for _, r := range st.Unreadable {
			if !bytes.Contains(written, r.Raw) {
				t.Errorf("%s lost bytes: %q", r.Record, r.Raw)
			}
		}
		again := backend.DecodeState(written)
		if len(st.Unreadable) == 0 {
			if d := cmp.Diff(st, again); d != "" {
				t.Errorf("there and back (-read +again):\n%s", d)
			}
		}
		// A whole record that stands alone is no file, but in one it is a record again.
		if records(again) < records(st) {
			t.Errorf("read %+v, again %+v", st, again)
		}
	})
}

func records(st backend.State) int {
	n := len(st.Claims) + len(st.Journal) + len(st.Unreadable)
	if st.Lease != nil {
		n++
	}
	return n
}
