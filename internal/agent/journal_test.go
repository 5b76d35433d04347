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
