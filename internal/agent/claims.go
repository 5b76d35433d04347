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
	err = s.guarded(ctx, fence, func(st *backend.State) error {
		entries, err := readJournal(st)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if slices.ContainsFunc(e.Steps, func(step change.Step) bool { return step.Claim != nil && step.Claim.Is(kind, id) }) {
				return &Error{Kind: Refused, Message: fmt.Sprintf("a change that is not settled (%s) writes the claim for %s; it has to end first",
					e.Subject, change.DescribeObject(kind, id))}
			}
		}
		left := change.DropClaim(st.Claims, kind, id)
		if len(left) == len(st.Claims) {
			return &Error{Kind: BadRequest, Message: fmt.Sprintf("there is no claim for %s on this host", change.DescribeObject(kind, id))}
		}
		st.Claims = left
		return nil
	})
	if err != nil {
		return failure("forget the claim", err)
	}
	return nil
}

// markIncomplete writes the claim that a half-done change was to leave, so that the
// next plan knows whose the remains are. A delete keeps the claim that it had: it can
// simply be tried again.
func markIncomplete(st *backend.State, steps []change.Step) {
	for _, s := range slices.Backward(steps) {
		switch s.Op {
		case change.OpPutClaim:
			c := *s.Claim
			c.Incomplete = true
			st.Claims = change.PutClaim(st.Claims, c)
			return
		case change.OpDropClaim:
			return
		}
	}
}
