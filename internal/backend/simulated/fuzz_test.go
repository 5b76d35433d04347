package simulated

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzFleetFile reads fleet files, and edits every host of those that it can read: what is
// written is a fleet file again, with the fields of an editor.
func FuzzFleetFile(f *testing.F) {
	f.Add([]byte(
		`{"format":"gpu-fleet/v1","note":1,"hosts":[{"name":"hv01","rack":[1],"platform":"hyperv","os":{"name":"x"},"policies":{},"gpus":[],` +
			`"vms":[{"id":"v","name":"v","state":"stopping"}],"pools":[],"simulation":{"guests":{"v":{"locked":true,` +
			`"off_at":"2026-01-01T00:00:00Z"}},"faults":[{"op":"any"}]}}]}`))
	f.Add([]byte(
		`{"format":"gpu-fleet/v1","hosts":[{"name":"hv01","platform":"linux","gpus":[],"agent":{"format":"gpu-agent-state/v9","x":[]}}],` +
			`"clusters":{"c":{"format":"gpu-agent-state/v2","fence":1}}}`))
	f.Add([]byte(`{"format":"gpu-fleet/v1","hosts":[`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parse(data, nil)
		if err != nil {
			return
		}
		next := d.fork()
		for _, e := range d.hosts {
			if _, ok := next.edit(e.rec.Name, time.Unix(0, 0)); !ok {
				t.Fatalf("host %q is not found", e.rec.Name)
			}
		}
		if _, err := next.encode(); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		var written bytes.Buffer
		if err := next.write(&written); err != nil {
			t.Fatal(err)
		}
		again, err := parse(written.Bytes(), nil)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, &written)
		}
		if diff := cmp.Diff(snapshot(next.format, next.hosts), snapshot(again.format, again.hosts), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("there and back (-read +again):\n%s", diff)
		}
		for i := range d.hosts {
			was, is := d.hosts[i].rec.Agent.State, again.hosts[i].rec.Agent.State
			if len(was.Unreadable) != len(is.Unreadable) || len(was.Journal) != len(is.Journal) || was.Fence != is.Fence {
				t.Errorf("the agent's memory was %+v and is %+v", was, is)
			}
		}
	})
}
