package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// forget drops a claim, under the lease. A claim that a change in the journal writes is
// left: putting the change back would bring it again.
func (s *Server) forget(ctx context.Context, fence int64, kind gpu.ClaimKind, id string) error {
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	shared := false
	if _, state, err := s.sharedState(ctx); err == nil {
		_, shared = (&gpu.Host{Claims: state.Claims}).Claim(kind, id)
	}
	err = s.guarded(ctx, fence, func(st *backend.State) error {
		entries, err := readJournal(st)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if slices.ContainsFunc(e.Steps, func(step change.Step) bool { return step.Claim != nil && step.Claim.Is(kind, id) }) {
				return &Error{Code: Refused, Message: fmt.Sprintf("a change that is not settled (%s) writes the claim for %s; it has to end first",
					e.Subject, change.DescribeObject(kind, id))}
			}
		}
		left := change.DropClaim(st.Claims, kind, id)
		if len(left) == len(st.Claims) && !shared {
			return &Error{Code: BadRequest, Message: fmt.Sprintf("there is no claim for %s on this host", change.DescribeObject(kind, id))}
		}
		st.Claims = left
		return nil
	})
	if err == nil && shared {
		err = s.together(ctx, fence, func(st *backend.State) { st.Claims = change.DropClaim(st.Claims, kind, id) })
	}
	if err != nil {
		return failure("forget the claim", err)
	}
	return nil
}

// leaves is the claim for what a half-done change leaves, so that the next plan knows whose
// the remains are, and what the object had before. A delete keeps the claim that it had: it can
// simply be tried again.
func (e *entry) leaves() *gpu.Claim {
	for i, s := range slices.Backward(e.Steps) {
		if s.Op == change.OpDropClaim {
			return nil
		}
		if s.Op == change.OpPutClaim {
			c := *s.Claim
			c.Incomplete = true
			if i < len(e.Undo) {
				for _, back := range e.Undo[i] {
					if back.Op != change.OpPutClaim {
						continue
					}
					had := back.Claim
					c.SettingsBefore = had.SettingsBefore.Overlay(c.SettingsBefore) // a setting may not have gone back yet
					if c.HeldUntilOff = had.Want.Assignment; had.Pending || had.Incomplete {
						c.HeldUntilOff = had.HeldUntilOff
					}
				}
			}
			return &c
		}
	}
	return nil
}
