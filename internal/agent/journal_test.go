package agent

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What an agent has written itself it need not read, and a write leaves the other changes of the
// journal as they were written.
func TestTheJournalIsNotReadForEachWrite(t *testing.T) {
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}})
	if err != nil {
		t.Fatal(err)
	}
	host, err := fleet.Host("hv01")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(host, host)
	fence, err := s.acquireLease(t.Context(), LeaseRequest{Run: "r", Owner: "o", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var first []byte
	for n := range 3 {
		e := &entry{
			ID: fmt.Sprint("change-", n), Host: "hv01", Run: "r", Worker: s.worker, Status: running,
			Steps: []change.Step{{Op: change.OpStopVM, VM: "v"}}, Undo: [][]change.Step{{{Op: change.OpStartVM, VM: "v"}}},
		}
		for begun := range 2 {
			e.Begun = begun
			if err := s.record(t.Context(), fence, e); err != nil {
				t.Fatal(err)
			}
			st, err := host.Load(t.Context())
			if err != nil || len(st.Journal) != n+1 {
				t.Fatalf("%d changes in the journal, %v", len(st.Journal), err)
			}
			for i, doc := range st.Journal {
				if id := s.store.sound.id(doc); id != fmt.Sprint("change-", i) {
					t.Errorf("change %d is to be read again: %q", i, id)
				}
			}
			if n == 0 {
				first = st.Journal[0]
			}
			if !bytes.Equal(st.Journal[0], first) {
				t.Error("a change was written again with another one")
			}
		}
	}
	if err := s.strike(t.Context(), fence, &entry{ID: "change-1"}); err != nil {
		t.Fatal(err)
	}
	st, err := host.Load(t.Context())
	if err != nil || len(st.Journal) != 2 {
		t.Fatalf("%d changes in the journal, %v", len(st.Journal), err)
	}
}

// While a change is under way, the journal tells of the VMs that are off by it at the step that it has come to, and
// after one that was cut off, of those that are owed a start.
func TestTheJournalTellsWhichVMsAreOff(t *testing.T) {
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}})
	if err != nil {
		t.Fatal(err)
	}
	host, err := fleet.Host("hv01")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(host, host)
	fence, err := s.acquireLease(t.Context(), LeaseRequest{Run: "r", Owner: "o", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	stop := func(vm string) change.Step { return change.Step{Op: change.OpStopVM, VM: vm} }
	start := func(vm string) change.Step { return change.Step{Op: change.OpStartVM, VM: vm} }
	e := &entry{
		ID: "c", Subject: "s", Host: "hv01", Run: "r", Worker: s.worker, Status: running,
		Steps: []change.Step{stop("a"), start("a"), stop("b"), start("b")},
		Undo:  [][]change.Step{{start("a")}, {stop("a")}, {start("b")}, {stop("b")}},
	}
	for _, at := range []struct {
		begun int
		off   string
	}{{1, "a"}, {2, "a"}, {3, "b"}, {4, "b"}, {3, "b"}, {2, "a"}, {1, "a"}} { // and back, when it is undone
		e.Begun = at.begun
		if err := s.record(t.Context(), fence, e); err != nil {
			t.Fatal(err)
		}
		j, err := s.openJournal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		off := ""
		for _, d := range j.PendingStarts {
			off += d.VM
		}
		if off != at.off || len(j.Changes) != 1 || j.Changes[0].Begun != at.begun {
			t.Errorf("at step %d %q are off, want %q: %+v", at.begun, off, at.off, j.Changes)
		}
	}
}
