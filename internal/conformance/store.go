package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func storeScenarios() []scenario {
	claim := gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: alpha, Token: "token-1", Owner: "vdi-prod", GPUs: []string{gpuA},
		OriginalLayouts: gpu.Layouts{gpuA: {Partitions: 4}}, SettingsBefore: gpu.VMSettings{GuestControlledCache: no()}, Revision: 3,
	}
	lease := &backend.Lease{
		Run: "run-1", Owner: "vdi-prod", Fence: 7,
		Since: time.Date(2026, 8, 1, 12, 0, 0, 5000, time.UTC), Expires: time.Date(2026, 8, 1, 12, 1, 0, 0, time.UTC),
	}
	whole := backend.State{
		Claims: []gpu.Claim{claim}, Lease: lease, Fence: 7,
		Journal: []json.RawMessage{json.RawMessage(`{"change":"c1","steps":[1,2]}`)},
	}
	return []scenario{
		{
			name: "a host that was never managed remembers nothing",
			do:   nothing,
			then: []check{remembers(backend.State{})},
		},
		{
			name:  "what is stored is there afterwards",
			do:    store(whole),
			again: true,
			then:  []check{remembers(whole), unchanged},
		},
		{
			name:  "claims are changed one by one",
			first: []action{store(whole)},
			do: update(func(s *backend.State) error {
				s.Claims = append(s.Claims, gpu.Claim{Kind: gpu.ClaimConfig, ID: "vdi", Token: "token-2"})
				return nil
			}),
			then: []check{remembers(func() backend.State {
				s := whole
				s.Claims = []gpu.Claim{claim, {Kind: gpu.ClaimConfig, ID: "vdi", Token: "token-2"}}
				return s
			}())},
		},
		{
			name:  "everything is forgotten when it is dropped",
			first: []action{store(whole)},
			do:    store(backend.State{}),
			again: true,
			then:  []check{remembers(backend.State{})},
		},
		{
			name:  "an update that fails changes nothing",
			first: []action{store(whole)},
			do: func(ctx context.Context, b *bench) error {
				mine := errors.New("the claim is another's")
				err := b.Store().Update(ctx, func(s *backend.State) error {
					s.Claims[0].Token, s.Lease.Owner = "mine", "me" // in place
					s.Claims, s.Fence = append(s.Claims, gpu.Claim{}), 99
					return mine
				})
				if !errors.Is(err, mine) {
					return fmt.Errorf("the error is %w, want the caller's own", err)
				}
				return nil
			},
			then: []check{remembers(whole), unchanged},
		},
		{
			name:  "what was loaded may be changed by its reader",
			first: []action{store(whole)},
			do: func(ctx context.Context, b *bench) error {
				s, err := b.Store().Load(ctx)
				if err != nil {
					return err
				}
				s.Claims[0].Token, s.Claims[0].GPUs[0], s.Lease.Fence = "mine", "changed", 0
				return nil
			},
			then: []check{remembers(whole)},
		},
		{
			name:  "changes of the host leave the records alone",
			first: []action{store(whole)},
			do:    each(setCount(gpuA, 8), withPartition(alpha)),
			then:  []check{remembers(whole), hasCount(gpuA, 8), hasSeats(alpha, 1)},
		},
		{
			name: "the journal keeps its bytes' meaning",
			do:   store(backend.State{Journal: []json.RawMessage{json.RawMessage(`{"n":18446744073709551615}`)}}),
			then: []check{func(t *testing.T, b *bench) {
				s, err := b.Store().Load(t.Context())
				if err != nil || len(s.Journal) != 1 {
					t.Fatalf("journal %v, error %v", s.Journal, err)
				}
				var entry struct{ N uint64 }
				if err := json.Unmarshal(s.Journal[0], &entry); err != nil || entry.N != noLimit {
					t.Errorf("the entry is %s, error %v", s.Journal[0], err)
				}
			}},
		},
	}
}

func update(f func(*backend.State) error) action {
	return func(ctx context.Context, b *bench) error { return b.Store().Update(ctx, f) }
}

func store(want backend.State) action {
	return update(func(s *backend.State) error {
		*s = want
		return nil
	})
}

func remembers(want backend.State) check {
	return func(t *testing.T, b *bench) {
		t.Helper()
		got, err := b.Store().Load(t.Context())
		if err != nil {
			t.Errorf("load: %v", err)
			return
		}
		compact := cmp.Transformer("compact", func(raw json.RawMessage) string {
			var v any
			if json.Unmarshal(raw, &v) != nil {
				return string(raw)
			}
			return fmt.Sprint(v)
		})
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), compact); diff != "" {
			t.Errorf("the records differ (-want +got):\n%s", diff)
		}
	}
}
