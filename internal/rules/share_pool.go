package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// checkPoolQuota compares what labels have of a pool, over all hosts, with their quotas.
func checkPoolQuota(r *run) {
	switch w := r.plan.Want; {
	case w.Share != nil && w.Share.Pool != "":
		r.checkShareQuota(w.Share)
	case w.Pool != nil:
		r.checkQuotasLeft(w.Pool)
	}
}

// checkShareQuota asks whether the label of a share has quota left for it.
func (r *run) checkShareQuota(s *gpu.Share) {
	pool := r.poolOf(s.Pool)
	if pool == nil || len(pool.Quotas) == 0 || placement.CheckShare(s) != nil {
		return
	}
	quota, has := pool.Quotas[s.Label]
	if !has {
		r.reportNoQuota(s, pool)
		return
	}
	before := r.poolUsage(pool, s.Label)
	after := placement.Usage{GPUs: before.GPUs, Memory: before.Memory, Shares: before.Shares}
	after.Add(s, r.expected(s))
	err := placement.QuotaError(s, pool.Name, "", quota, before, after)
	if err == nil {
		return
	}
	f := ShareFinding(err)
	f.Wanted = fmt.Sprintf("%s counts against it: %s.", capital(r.label()), shareText(s))
	if r.hadAsMuch(s) {
		// The plans of others that want more may have come before this one was known.
		more := r.wantsMore(s)
		if more == nil || r.othersBefore || r.pending(r.hostsFor(s), gpu.ClaimShare) {
			return
		}
		if by, _ := r.book.told.LoadOrStore(key("quota", pool.ID, s.Label), r.plan.Token); by != r.plan.Token {
			return
		}
		f.Wanted, f.Other = fmt.Sprintf("%s counts against it too: %s.", capital(labelOf(more.plan)), shareText(more.plan.Want.Share)), labelOf(more.plan)
	}
	r.report(f, overflow("quota "+pool.ID+" "+s.Label, "", after.Beyond(quota))...)
}

// wantsMore is another plan of the run by which a share of the same label and pool takes
// more of the quota than it did; nil when there is none.
func (r *run) wantsMore(s *gpu.Share) *entry {
	for e := range r.others(sharesOf(s.Pool)) {
		o, was := e.plan.Want.Share, e.plan.Prior.Share
		if o == nil || o.Label != s.Label || !gpu.SameID(o.Pool, s.Pool) || e.plan.Unchanged {
			continue
		}
		if was == nil || !placement.WantsNoMore(o, r.expected(o), was, r.expected(was)) {
			return e
		}
	}
	return nil
}

// hadAsMuch tells whether a placed share wants no more of its label's quota than its state says.
func (r *run) hadAsMuch(s *gpu.Share) bool {
	was := r.plan.Prior.Share
	return was != nil && len(s.Devices) > 0 && placement.WantsNoMore(s, r.expected(s), was, r.expected(was))
}

// reportNoQuota warns of a label that no quota is for. Without a label there is nothing to
// look up.
func (r *run) reportNoQuota(s *gpu.Share, pool *placement.SharePool) {
	if s.Label == "" {
		return
	}
	r.report(Finding{
		Level: Warning, Path: "owner_label", Title: "The pool has no quota for this label",
		Found:  fmt.Sprintf("Pool %s has quotas for %s.", quote(pool.Name), join(quoteAll(sortedKeys(pool.Quotas)))),
		Wanted: fmt.Sprintf("%s has the label %s, which nothing limits.", capital(r.label()), quote(s.Label)),
		Fix:    "Write one of these labels, or add a quota for it to the gpu_pool.",
	}, key("no quota", pool.ID, s.Label))
}

// checkQuotasLeft warns of quotas below what the labels have already.
func (r *run) checkQuotasLeft(p *gpu.PoolConfig) {
	r.everyClaim = true
	defer func() { r.everyClaim = false }()
	for _, label := range sortedKeys(p.Quotas) {
		u := r.poolUsage(&placement.SharePool{ID: p.ID, Name: p.Name}, label)
		what, most, _, _, yes := u.Exceeds(p.Quotas[label], u)
		if !yes {
			continue
		}
		r.report(Finding{
			Level: Warning, Path: "quotas", Title: "A label exceeds its quota",
			Found:  fmt.Sprintf("%s%s of label %s %s in the pool.", verb(len(u.By), "Share ", "Shares "), join(quoteAll(u.By)), quote(label), verb(len(u.By), "is", "are")),
			Wanted: fmt.Sprintf("%s gives the label a quota of %s, which is less. Shares that are placed stay; new ones are refused.", capital(r.label()), quotaText(most, what)),
			Fix:    "Raise the quota, or destroy some of these shares.",
		}, overflow("quota "+p.ID+" "+label, "", u.Beyond(p.Quotas[label]))...)
	}
}

// quotaText is "1 share", "2 GPUs" or "10.0 GiB of memory".
func quotaText(most, what string) string {
	switch {
	case what == "memory":
		return most + " of memory"
	case most == "1":
		return most + " " + strings.TrimSuffix(what, "s")
	}
	return most + " " + what
}

// hostsFor are the hosts that a share may go to.
func (r *run) hostsFor(s *gpu.Share) []string {
	if s.Host != "" {
		return []string{s.Host}
	}
	return slices.DeleteFunc(r.poolHosts(s.Pool), func(host string) bool { return r.silent != nil && r.silent(host) })
}

// poolOf is a pool as this run plans it, or else as a claim tells; nil when nobody does.
func (r *run) poolOf(id string) *placement.SharePool {
	for _, p := range r.poolPlans(id) {
		return &placement.SharePool{ID: p.ID, Name: p.Name, Quotas: p.Quotas}
	}
	for _, c := range r.fleet.poolClaims[gpu.FoldID(id)] {
		if p := c.item.Want.Pool; p != nil && !r.superseded(c.item) && gpu.SameID(p.ID, id) {
			return &placement.SharePool{ID: p.ID, Name: p.Name, Quotas: p.Quotas}
		}
	}
	return nil
}

// poolUsage is what a label has of a pool on the hosts at hand, with the shares that the
// run plans and the checked one left out.
func (r *run) poolUsage(pool *placement.SharePool, label string) placement.Usage {
	var u placement.Usage
	counts := func(s *gpu.Share) bool { return gpu.SameID(s.Pool, pool.ID) && s.Label == label }
	for _, host := range r.poolHosts(pool.ID) {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		for _, held := range r.holdings(host, h) {
			if held.claim != nil && counts(held.share) {
				u.Add(held.share, r.expected(held.share, host))
			}
		}
	}
	for e := range r.others(sharesOf(pool.ID)) {
		s := e.plan.Want.Share
		if s == nil || !counts(s) || len(s.Devices) == 0 && r.made(s, r.hostsFor(s)) {
			continue
		}
		u.Add(s, r.expected(s))
	}
	slices.Sort(u.By)
	return u
}

// expected are the devices of a share, or the like of them for one that is not placed: the
// first of its pool that it may be on.
func (r *run) expected(s *gpu.Share, hosts ...string) []*placement.Device {
	if s.Host != "" || len(hosts) == 0 {
		hosts = r.hostsFor(s)
	}
	for _, host := range hosts {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		if len(s.Devices) > 0 {
			out := make([]*placement.Device, len(s.Devices))
			for i, at := range s.Devices {
				out[i] = placement.PlacedDevice(h, at)
			}
			return out
		}
		scope := r.sharedHost(host, h).Scoped(s)
		for _, d := range scope {
			alone := *d
			alone.Shares = nil
			if alone.Takes(s) {
				return slices.Repeat([]*placement.Device{&alone}, min(placement.DevicesWanted(s), len(scope)))
			}
		}
	}
	return nil
}

// checkPoolOneMode asks whether all GPUs of a Linux pool are shared in one way.
func checkPoolOneMode(r *run) {
	switch w := r.plan.Want; {
	case w.Pool != nil:
		r.reportModes(w.Pool.ID, w.Pool.Name, "members")
	case w.Config != nil:
		for _, p := range r.poolsOver(w.Config) {
			r.reportModes(p.ID, p.Name, "hosts")
		}
	}
}

// poolsOver are the Linux pools that GPUs of a config are in: those that this run plans,
// and those of other states. A pool of this state that is not planned yet says it itself.
func (r *run) poolsOver(c *gpu.PartitionConfig) []*placement.SharePool {
	var out []*placement.SharePool
	add := func(p *gpu.PoolConfig) {
		if !slices.ContainsFunc(out, func(x *placement.SharePool) bool { return gpu.SameID(x.ID, p.ID) }) {
			out = append(out, &placement.SharePool{ID: p.ID, Name: p.Name})
		}
	}
	common := func(host string, ids []string) bool {
		return slices.ContainsFunc(c.GPUs[host], func(id string) bool { return contains(ids, id) })
	}
	for host, h := range r.hostsAtHand(c.GPUs) {
		if h.Platform != gpu.Linux {
			continue
		}
		for e := range r.others(gpusOn(host)) {
			if p := e.plan.Want.Pool; p != nil && common(host, p.Members[host]) {
				add(p)
			}
		}
		for x := range h.ClaimsOf(gpu.ClaimPool) {
			if x.Want.Pool != nil && !r.ours(x) && common(host, x.GPUs) {
				add(x.Want.Pool)
			}
		}
	}
	return out
}

// reportModes compares the GPUs of a pool that configs cover. Of one that none does another
// resource of the run may say what it becomes: a pool and a config refer to each other
// nowhere, so that either may come first, at plan and at apply.
func (r *run) reportModes(id, name, path string) {
	byMode := map[string][]member{}
	for _, host := range r.poolHosts(id) {
		h, ok := r.host(host)
		if !ok || h.Platform != gpu.Linux {
			continue
		}
		then := r.laidOut(host, h)
		pool := placement.NewSharedHost(host, then, then).Pools[gpu.FoldID(id)]
		if pool == nil {
			continue
		}
		for g := range selected(then, pool.GPUs) {
			after := placement.LayoutOf(then, g)
			if after.Config == nil {
				continue
			}
			mode := after.ModeText()
			byMode[mode] = append(byMode[mode], member{host: host, gpu: g})
		}
	}
	if len(byMode) < 2 {
		return
	}
	modes := sortedKeys(byMode)
	most := modes[0]
	for _, m := range modes {
		if len(byMode[m]) > len(byMode[most]) {
			most = m
		}
	}
	var lines, keys []string
	var first member
	for _, m := range modes {
		lines = append(lines, m+": "+join(gpuTexts(byMode[m])))
		if m == most {
			continue
		}
		if first.gpu == nil {
			first = byMode[m][0]
		}
		keys = append(keys, keysOf("mode "+m, byMode[m])...)
	}
	r.report(Finding{
		Path: path, Title: "The GPUs of a pool have different modes", Host: first.host, GPU: first.gpu.ID,
		Found:  fmt.Sprintf("Pool %s has GPUs of these modes: %s.", quote(name), strings.Join(lines, "; ")),
		Wanted: "All GPUs of a pool must be shared in the same way, so that a share gets the same wherever it is placed.",
		Fix:    "Cover all GPUs of the pool with gpu_partition_configs of one kind, or make a pool for each kind.",
	}, keys...)
}
