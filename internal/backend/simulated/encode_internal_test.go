package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func crowd(vms int) gpu.Snapshot {
	h := gpu.Host{Name: "hv01", Platform: gpu.HyperV, GPUs: []gpu.GPU{{ID: "a"}, {ID: "b"}}, Pools: []gpu.Pool{}}
	for i := range vms {
		id := fmt.Sprintf("vm-%03d", i)
		h.VMs = append(h.VMs, gpu.VM{ID: id, Name: "<" + id + ">", State: gpu.VMOff, Generation: 2})
		h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: id, Owner: "test", Token: "t"})
	}
	other := gpu.Host{Name: "hv02", Platform: gpu.HyperV, GPUs: []gpu.GPU{}, VMs: []gpu.VM{}, Pools: []gpu.Pool{}}
	return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{h, other}}
}

// TestAHostIsWrittenInPartsAsItIsInOnePiece changes lists of a host in all ways, one change
// after the other, and compares what is put together from old and new parts with the host
// written at once.
func TestAHostIsWrittenInPartsAsItIsInOnePiece(t *testing.T) {
	data, err := marshal(crowd(12))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parse(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims := func(change func([]gpu.Claim) []gpu.Claim) func(*record) {
		return func(r *record) { r.Claims = change(r.Claims) }
	}
	for i, step := range []struct {
		op     Op
		change func(*record)
	}{
		{OpUpdateState, func(*record) {}},
		{OpUpdateState, func(r *record) { r.Agent.Fence = 7 }},
		{OpUpdateState, claims(func(c []gpu.Claim) []gpu.Claim { c[3].Token = "u"; return c })},
		{OpUpdateState, claims(func(c []gpu.Claim) []gpu.Claim { return slices.Delete(c, 0, 1) })},
		{OpUpdateState, claims(func(c []gpu.Claim) []gpu.Claim { return slices.Insert(c, 5, gpu.Claim{ID: "new \"]\n"}) })},
		{OpUpdateState, claims(func(c []gpu.Claim) []gpu.Claim { return slices.Delete(c, 1, 9) })},
		{OpUpdateState, claims(func(c []gpu.Claim) []gpu.Claim { slices.Reverse(c); return c })},
		{OpUpdateState, claims(func([]gpu.Claim) []gpu.Claim { return nil })},
		{OpUpdateState, claims(func([]gpu.Claim) []gpu.Claim { return []gpu.Claim{{ID: "again"}} })},
		{OpStartVM, func(r *record) { r.VMs[4].State = gpu.VMRunning }},
		{OpStartVM, func(r *record) { r.VMs[4].Name, r.VMs[5].Name = "\"vms\": [", "\n      ]" }},
		{OpStartVM, func(r *record) { r.VMs = slices.Delete(r.VMs, 2, 4) }},
		{OpStartVM, func(r *record) { r.VMs, r.GPUs = []gpu.VM{}, append(r.GPUs, gpu.GPU{ID: "c"}) }},
		{OpStartVM, func(r *record) { r.VMs, r.GPUs = nil, nil }},
	} {
		next := doc.fork()
		rec, ok := next.open("hv01", step.op, time.Unix(0, 0))
		if !ok {
			t.Fatal("there is no host")
		}
		step.change(rec)
		if _, err := next.encode(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if want, got := inOnePiece(t, next.hosts[0].rec), string(next.hosts[0].raw); got != want {
			t.Fatalf("step %d: the host is written as\n%s\nand in one piece it is\n%s", i, got, want)
		}
		if i > 0 && string(doc.hosts[0].raw) != inOnePiece(t, doc.hosts[0].rec) {
			t.Fatalf("step %d changed the host as it was before", i)
		}
		next.touched, next.recorded = nil, nil
		doc = next
	}
}

// inOnePiece is a host as it is written from nothing: indented, with each claim on a line.
func inOnePiece(t *testing.T, rec *record) string {
	t.Helper()
	text := func(v any, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s", v)
	}
	data, err := json.MarshalIndent(rec, "    ", "  ")
	all := text(data, err)
	for i := range rec.Claims {
		indented, err := json.MarshalIndent(&rec.Claims[i], "        ", "  ")
		line, lineErr := json.Marshal(&rec.Claims[i])
		all = strings.Replace(all, text(indented, err), text(line, lineErr), 1)
	}
	return all
}

// TestARecordCostsTheSameOnACrowdedHost: what the agent writes of one change makes no copy
// of the host's VMs, and writes none of them again.
func TestARecordCostsTheSameOnACrowdedHost(t *testing.T) {
	allocs := func(vms int) float64 {
		f, err := Create(filepath.Join(t.TempDir(), "fleet.json"), crowd(vms))
		if err != nil {
			t.Fatal(err)
		}
		h, err := f.Host("hv01")
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		return testing.AllocsPerRun(5, func() {
			n++
			if err := h.Update(context.Background(), func(s *backend.State) error { s.Fence = n; return nil }); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocs(10), allocs(400)
	if many > few+100 {
		t.Errorf("a record takes %.0f allocations on a host with 10 VMs, and %.0f with 400", few, many)
	}
}

// TestAWriteTakesNoRoomForTheFile: however many hosts the file has, an update takes room for
// its own host, and what this process wrote is not read again.
func TestAWriteTakesNoRoomForTheFile(t *testing.T) {
	one := crowd(4)
	room := func(hosts int) uint64 {
		s := gpu.Snapshot{Format: one.Format}
		for i := range hosts {
			h := one.Hosts[0]
			h.Name = fmt.Sprintf("hv%02d", i+1)
			s.Hosts = append(s.Hosts, h)
		}
		f, err := Create(filepath.Join(t.TempDir(), "fleet.json"), s)
		if err != nil {
			t.Fatal(err)
		}
		h, err := f.Host("hv01")
		if err != nil {
			t.Fatal(err)
		}
		record := func(n int64) {
			if err := h.Update(context.Background(), func(s *backend.State) error { s.Fence = n; return nil }); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Load(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for n := range int64(3) { // two buffers take turns
			record(n + 1)
		}
		f.file.readAt = time.Time{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 20
		for n := range int64(times) {
			record(n + 10)
		}
		runtime.ReadMemStats(&after)
		if !f.file.readAt.IsZero() {
			t.Error("the file that this process wrote was read")
		}
		return (after.TotalAlloc - before.TotalAlloc) / times
	}
	few, many := room(2), room(200)
	t.Logf("an update allocates %d bytes in a file of 2 hosts, and %d in one of 200", few, many)
	if many > few+32<<10 {
		t.Errorf("an update allocates %d bytes in a file of 2 hosts, and %d in one of 200", few, many)
	}
}
