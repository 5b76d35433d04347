package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The claim of a clustered VM, and its pending start, are in the store of its
// cluster: the VM outlives the node that it was on when they were written.

// remember adds to a host what its agent has on record, and of what its cluster has the part
// that concerns the host: that of its own VMs, and of those that no node has any more. A
// cluster whose records cannot be read makes them unknown.
func (s *Server) remember(ctx context.Context, host *gpu.Host) (own backend.State, err error) {
	if own, err = backend.LoadReadable(ctx, s.store); err != nil {
		return own, failure("read the claims", err)
	}
	host.Claims, host.Unreadable = own.Claims, unreadableRecords(&own)
	host.HeldBy = s.alive("the host", "", own.Lease)
	pending := own.PendingStarts
	cluster, shared, err := s.sharedState(ctx)
	switch {
	case err != nil:
		if _, known := host.UnknownPart(gpu.PartCluster); !known {
			host.Unknown = append(slices.Clone(host.Unknown), gpu.Unknown{
				Part: gpu.PartCluster, Why: "the records that its nodes keep in common: " + err.Error(),
			})
		}
	case cluster != nil && host.Cluster != nil:
		c := *host.Cluster
		c.Records = true
		host.Cluster = &c
		host.HeldBy = cmp.Or(host.HeldBy, s.alive("cluster "+cluster.Name, cluster.Node, shared.Lease))
		host.Unreadable = append(host.Unreadable, unreadableRecords(&shared)...)
		*host = change.WithClaims(*host, slices.DeleteFunc(slices.Clone(shared.Claims), func(c gpu.Claim) bool {
			_, here := host.VM(c.ID)
			return !here && cluster.HasVM(c.ID)
		}))
		pending = withPending(shared.PendingStarts, pending...)
	}
	host.PendingStarts = stillPending(pending, host)
	return own, nil
}

// sharedState is what the nodes of the host's cluster have in common, and nil when it is in
// none.
func (s *Server) sharedState(ctx context.Context) (*backend.Cluster, backend.State, error) {
	cluster, err := s.cluster(ctx)
	if err != nil || cluster == nil {
		return nil, backend.State{}, err
	}
	state, err := backend.LoadReadable(ctx, cluster.Store)
	return cluster, state, err
}

// together changes what the nodes have in common, under the leases of the host and of the
// cluster.
func (s *Server) together(ctx context.Context, fence int64, write func(*backend.State)) error {
	own, err := s.store.Load(ctx)
	if err != nil {
		return err
	}
	if err := s.claim(&own, fence); err != nil {
		return err
	}
	cluster, err := s.cluster(ctx)
	if err != nil {
		return err
	}
	if cluster == nil {
		return errLeft
	}
	return cluster.Store.Update(ctx, func(st *backend.State) error {
		if has, _ := inCluster(own.Lease, st); !has {
			return lost(st, "cluster "+cluster.Name)
		}
		write(st)
		return nil
	})
}

// recordClaim makes a step that concerns a claim. Each object has one: whoever keeps it now,
// the other one's is dropped.
func (s *Server) recordClaim(ctx context.Context, fence int64, step change.Step) error {
	edit := func(st *backend.State) { st.Claims = editClaims(st.Claims, step) }
	if cluster, err := s.cluster(ctx); err != nil || step.Claim.Cluster == "" || cluster == nil ||
		!gpu.SameID(cluster.Name, step.Claim.Cluster) {
		if err != nil && step.Claim.Cluster != "" {
			return err
		}
		return s.guarded(ctx, fence, func(st *backend.State) error {
			if _, own := (&gpu.Host{Claims: st.Claims}).Claim(step.Claim.Kind, step.Claim.ID); step.Claim.Cluster != "" && cluster == nil && !own {
				return errAway
			}
			edit(st)
			return nil
		})
	}
	if err := s.together(ctx, fence, edit); err != nil {
		return err
	}
	return s.guarded(ctx, fence, func(st *backend.State) error {
		st.Claims = change.DropClaim(st.Claims, step.Claim.Kind, step.Claim.ID)
		return nil
	})
}

var errAway = &Error{Code: StepFailed, Message: "the claim is in the records of a cluster that the host has left"}

// away tells, on a host that has left the cluster that has the claim of a change, which of its steps
// wait until the host is in a cluster again: those in the records of the cluster, and those that a VM
// has taken along. It is nil on any other host.
func (s *Server) away(ctx context.Context, e *entry) func(change.Step) bool {
	recorded := func(step change.Step) bool { return step.Claim != nil && step.Claim.Cluster != "" }
	if cluster, err := s.cluster(ctx); err != nil || cluster != nil || !slices.ContainsFunc(e.Steps, recorded) {
		return nil
	}
	host, err := s.backend.Inventory(ctx)
	return func(step change.Step) bool { return recorded(step) || err == nil && left(&host, step.VM) }
}

// awaits tells of a change that all that is left of it, or all that can be, waits so. Nobody there
// knows that it is to be put back: the change stays in the journal, and keeps nobody from the host
// meanwhile.
func (s *Server) awaits(ctx context.Context, e *entry) bool {
	if e.Status != running {
		return false
	}
	away := s.away(ctx, e)
	if away == nil || e.Attempts >= maxAttempts {
		return away != nil
	}
	waits := false
	for i, step := range e.Steps[:e.Begun] {
		waits = waits || away(step)
		if !away(step) && len(e.Undo[i]) > 0 {
			return false
		}
	}
	return waits
}

// left tells whether a host no longer has a VM.
func left(host *gpu.Host, vm string) bool {
	_, here := host.VM(vm)
	_, unknown := host.UnknownVM(vm)
	return vm != "" && !here && !unknown
}

// elsewhere tells of which steps what they did is not this host's to put back any more: the VM
// has moved to another node, where others may have changed it since, or its claim is not the
// one that the step left. A claim that is not there may be one that the run died before it wrote.
func (s *Server) elsewhere(ctx context.Context, e *entry) func(change.Step) bool {
	host, err := s.backend.Inventory(ctx)
	if err != nil {
		return func(change.Step) bool { return false }
	}
	cluster, shared, err := s.sharedState(ctx)
	if err != nil || cluster == nil {
		return func(change.Step) bool { return false }
	}
	known := gpu.Host{Claims: shared.Claims}
	var last change.Step
	if e.Begun > 0 && e.Begun <= len(e.Steps) {
		last = e.Steps[e.Begun-1]
	}
	return func(step change.Step) bool {
		moved := func(vm string) bool { return left(&host, vm) && cluster.HasVM(vm) }
		c := step.Claim
		if c == nil || c.Cluster == "" {
			return moved(step.VM)
		}
		now, there := known.Claim(c.Kind, c.ID)
		if step.Op == change.OpPutClaim {
			if !there {
				return last.Op != change.OpPutClaim
			}
			return now.Revision != c.Revision || now.Token != c.Token
		}
		return there || moved(c.ID)
	}
}

// leftBehind tells whether a VM took along what a change had made of it when it moved to another
// node, and nobody has recorded the VM since: then the record of the change stays with it.
func (e *entry) leftBehind(gone func(change.Step) bool) bool {
	left := false
	for i, s := range e.Steps[:min(e.Begun, len(e.Steps))] {
		switch {
		case s.Op == change.OpPutClaim && gone(s):
			return false
		case s.VM != "" && s.Op != change.OpStopVM && s.Op != change.OpStartVM && len(e.Undo[i]) > 0:
			left = left || gone(s)
		}
	}
	return left
}

// putUnlessOthers writes a claim, unless another resource has one by now, or a later change. One
// of its own revision is another node's where the change had not come to write it.
func putUnlessOthers(claims []gpu.Claim, c gpu.Claim, unrecorded bool) []gpu.Claim {
	if now, ok := (&gpu.Host{Claims: claims}).Claim(c.Kind, c.ID); ok &&
		(now.Token != c.Token || now.Revision > c.Revision || unrecorded && now.Revision == c.Revision) {
		return claims
	}
	return change.PutClaim(claims, c)
}

// addPendingTogether writes the pending starts of clustered VMs into the cluster's records before they are
// stopped.
func (s *Server) addPendingTogether(ctx context.Context, fence int64, pending []gpu.PendingStart) error {
	if len(pending) == 0 {
		return nil
	}
	cluster, shared, err := s.sharedState(ctx)
	if err != nil || cluster == nil {
		return err
	}
	pending = slices.DeleteFunc(pending, func(d gpu.PendingStart) bool { return !cluster.HasVM(d.VM) })
	if len(withPending(shared.PendingStarts, pending...)) == len(shared.PendingStarts) {
		return nil
	}
	return s.together(ctx, fence, func(st *backend.State) { st.PendingStarts = withPending(st.PendingStarts, pending...) })
}

// dropStartedTogether takes from the cluster's records the starts that a host shows not to be pending any more, and
// those of VMs that a change stops for good. The host is nil when it could not be read, and
// the change when none was made.
func (s *Server) dropStartedTogether(ctx context.Context, fence int64, host *gpu.Host, made *entry) error {
	cluster, shared, err := s.sharedState(ctx)
	if err != nil || len(shared.PendingStarts) == 0 || host == nil {
		return err
	}
	known := change.WithClaims(*host, shared.Claims)
	over := func(d gpu.PendingStart) bool {
		_, here := host.VM(d.VM)
		return made != nil && made.stops(d.VM) || !here && !cluster.HasVM(d.VM) || here && len(stillPending([]gpu.PendingStart{d}, &known)) == 0
	}
	if !slices.ContainsFunc(shared.PendingStarts, over) {
		return nil
	}
	return s.together(ctx, fence, func(st *backend.State) { st.PendingStarts = slices.DeleteFunc(slices.Clone(st.PendingStarts), over) })
}
