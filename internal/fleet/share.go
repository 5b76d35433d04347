package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Claimed tells whether a host of a view has a claim for an object.
func Claimed(v View, kind gpu.ClaimKind, id string) bool {
	for _, h := range v.Hosts {
		if _, ok := h.Claim(kind, id); ok {
			return true
		}
	}
	return false
}

// ShareHosts are the hosts that a share has to do with: its own, and all of its pool,
// whose quotas it counts against.
func (f *Fleet) ShareHosts(ctx context.Context, s gpu.Share) []string {
	var names []string
	if s.Pool != "" {
		names = f.PoolHosts(ctx, s.Pool)
	}
	if s.Host != "" && !slices.Contains(names, s.Host) {
		names = append(names, s.Host)
	}
	return names
}

// Displaces names the plan of this run by which the config or the pool of a share takes its device away, or
// lays it out otherwise; "" for none.
func (f *Fleet) Displaces(v View, s *gpu.Share) string {
	if p := whatif.Displaces(f.world(v).World, s); p != nil {
		return whatif.Label(*p)
	}
	return ""
}

// PoolHosts are the hosts of a pool: as this run plans it, or else as its claims say. The
// claim of a pool whose members were declared one by one tells those of its own host only,
// so that the others may be any.
func (f *Fleet) PoolHosts(ctx context.Context, id string) []string {
	if p, ok := f.Ledger.Pool(id); ok {
		return slices.Sorted(maps.Keys(p.Want.Pool.Members))
	}
	if first, _, _ := strings.Cut(id, "/"); f.Has(first) {
		if h, err := f.Snapshot(ctx, []string{first}).Host(first); err == nil {
			if p, ok := claimedPool(h, id); ok && len(p.Scope.Hosts) > 0 {
				return p.Scope.Hosts
			}
		}
	}
	return f.HostNames()
}

// claimedPool is a pool as a host's claim has it.
func claimedPool(h *gpu.Host, id string) (*gpu.PoolConfig, bool) {
	for c := range h.ClaimsOf(gpu.ClaimPool) {
		if p := c.Want.Pool; p != nil && gpu.SameID(p.ID, id) {
			return p, true
		}
	}
	return nil, false
}

// ShareTakenOver is the host of a pool on which a share of this owner has that name
// already: a resource of the same name takes it over there, as one that was renamed does.
func (f *Fleet) ShareTakenOver(v View, s gpu.Share) (host string, ok bool) {
	if f.opt.Owner == "" || s.Pool == "" {
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(v.Hosts)) {
		c, has := v.Hosts[name].Claim(gpu.ClaimShare, s.Name)
		if has && c.Owner == f.opt.Owner && c.Want.Share != nil && gpu.SameID(c.Want.Share.Pool, s.Pool) {
			return name, true
		}
	}
	return "", false
}

// ApplyShare is Apply for a share, and tells on which host it is, and how that is then. A share of a pool that
// was not placed yet goes to the fullest host that has room; when that refuses it, because
// another run has taken the room meanwhile, to the next one.
func (f *Fleet) ApplyShare(ctx context.Context, req Request) (host string, is *gpu.Host, err error) {
	if f.opt.ReadOnly != "" {
		return "", nil, &ReadOnlyError{Reason: f.opt.ReadOnly}
	}
	if err := f.Ledger.silent(req.Subject); err != nil {
		return "", nil, err
	}
	var res *Result
	err = f.waits.change(ctx, func() (err error) {
		host, res, err = f.placeShare(ctx, req)
		return err
	})
	if failure, ok := errors.AsType[*Failure](err); ok {
		res = &failure.Result
	}
	if res != nil {
		is = res.Hosts[host]
	}
	return host, is, err
}

// placeShare is one attempt of ApplyShare. The shares of this run are placed as if one came
// after the other, as their plan has it: each choice sees those before it.
func (f *Fleet) placeShare(ctx context.Context, req Request) (host string, res *Result, err error) {
	want := *req.Want.Share
	if want.Host != "" {
		f.placing.RLock()
		defer f.placing.RUnlock()
		res, err := f.applyOnce(ctx, req)
		return want.Host, res, err
	}
	f.placing.Lock()
	defer f.placing.Unlock()
	hosts, err := f.hostsForShare(ctx, want, req)
	if err != nil {
		return "", nil, err
	}
	var first error
	for _, host := range hosts {
		placed := want
		placed.Host, req.Want.Share = host, &placed
		res, err := f.applyOnce(ctx, req)
		if err == nil || !refused(err) {
			return host, res, err
		}
		if first == nil {
			first = err
		}
	}
	return "", nil, first
}

// hostsForShare are the hosts of a pool that have room for a share, the best first; at
// least one, or an error that says what each lacks.
func (f *Fleet) hostsForShare(ctx context.Context, want gpu.Share, req Request) ([]string, error) {
	v := f.Snapshot(ctx, f.PoolHosts(ctx, want.Pool))
	if host, ok := f.ShareTakenOver(v, want); ok {
		return []string{host}, nil
	}
	fit, lacks := placement.RankHosts(v.Hosts, &want, req.Token)
	if len(fit) > 0 {
		return fit, nil
	}
	failure := &Failure{Label: req.Subject}
	for _, name := range v.Silent() {
		failure.Host, failure.Err = name, v.Errors[name]
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(lacks))) {
		failure.Host = name
		failure.Err = &agent.Error{Code: agent.Refused, Host: name, Cause: &backend.Error{
			Code: backend.Insufficient, Op: "place the share", Object: "share " + want.Name, Detail: lacks[name].Found(),
		}}
	}
	errs, _ := split(f.CheckAlone(v, req.Change))
	if len(errs) > 0 { // these tell of all hosts at once
		failure.Host, failure.Err = errs[0].Host, &agent.Error{Code: agent.RuleViolation, Host: errs[0].Host, Findings: errs}
	}
	return nil, failure
}

// refused tells whether a host did not take a share, and was not touched: another one may.
func refused(err error) bool {
	failure, ok := errors.AsType[*Failure](err)
	if !ok || failure.Begun() {
		return false
	}
	ae, ok := errors.AsType[*agent.Error](err)
	return ok && (ae.Code == agent.RuleViolation || ae.Code == agent.Refused && ae.Cause != nil && ae.Cause.Code == backend.Insufficient)
}
