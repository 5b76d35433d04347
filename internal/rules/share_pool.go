package rules

import (
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// checkPoolQuota compares what labels have of a pool, over all hosts, with their quotas.
func checkPoolQuota(r *run) {
	switch w := r.Plan.Want; {
	case w.Share != nil && w.Share.Pool != "":
		checkShareQuota(r, w.Share)
	case w.Pool != nil:
		checkQuotasLeft(r, w.Pool)
	}
}

// checkShareQuota asks whether the label of a share has quota left for it.
func checkShareQuota(r *run, s *gpu.Share) {
	pool := r.Shares().PoolOf(s.Pool)
	if pool == nil || len(pool.Quotas) == 0 || placement.CheckShare(s) != nil {
		return
	}
	quota, has := pool.Quotas[s.Label]
	if !has {
		reportNoQuota(r, s, pool)
		return
	}
	before := r.Shares().PoolUsage(pool, s.Label)
	after := placement.Usage{GPUs: before.GPUs, Memory: before.Memory, Shares: before.Shares}
	after.Add(s, r.Shares().Expected(s))
	refused := placement.QuotaRefusal(s, pool.Name, "", quota, before, after)
	if refused == nil {
		return
	}
	f := FindingOf(refused)
	f.Wanted = fmt.Sprintf("%s counts against it: %s.", capital(r.label()), shareText(s))
	if r.Shares().HadAsMuch(s) {
		// The plans of others that want more may have come before this one was known.
		more := r.Shares().WantsMore(s)
		if more == nil || r.Mode.Past || r.Shares().Pending(r.Shares().HostsFor(s), gpu.ClaimShare) {
			return
		}
		if !r.Tells(key("quota", pool.ID, s.Label)) {
			return
		}
		f.Wanted, f.Other = fmt.Sprintf("%s counts against it too: %s.", capital(whatif.Label(more.Plan)), shareText(more.Plan.Want.Share)),
			whatif.Label(more.Plan)
	}
	r.report(f, overflow("quota "+pool.ID+" "+s.Label, "", after.Beyond(quota))...)
}

// reportNoQuota warns of a label that no quota is for. Without a label there is nothing to
// look up.
func reportNoQuota(r *run, s *gpu.Share, pool *placement.SharePool) {
	if s.Label == "" {
		return
	}
	labels := whatif.SortedKeys(pool.Quotas)
	r.report(Finding{
		Level: Warning, Path: "owner_label", Title: "The pool has no quota for this label",
		Found:  fmt.Sprintf("Pool %s has quotas for %s.", quote(pool.Name), words.Some(quote(s.Label), quoteAll(labels))),
		Wanted: fmt.Sprintf("%s has the label %s, which nothing limits.", capital(r.label()), quote(s.Label)),
		Fix:    words.Meant(s.Label, labels, "Write one of these labels, or add a quota for it to the gpu_pool."),
	}, key("no quota", pool.ID, s.Label))
}

// checkQuotasLeft warns of quotas below what the labels have already.
func checkQuotasLeft(r *run, p *gpu.PoolConfig) {
	counted := r.In(r.Mode.WithEveryClaim()).Shares()
	for _, label := range whatif.SortedKeys(p.Quotas) {
		u := counted.PoolUsage(&placement.SharePool{ID: p.ID, Name: p.Name}, label)
		what, most, _, _, yes := u.Exceeds(p.Quotas[label], u)
		if !yes {
			continue
		}
		r.report(Finding{
			Level: Warning, Path: "quotas", Title: "A label exceeds its quota",
			Found: fmt.Sprintf("%s%s of label %s %s in the pool.", verb(len(u.By), "Share ", "Shares "),
				join(quoteAll(u.By)), quote(label), verb(len(u.By), "is", "are")),
			Wanted: fmt.Sprintf("%s gives the label a quota of %s, which is less. Shares that are placed stay; new ones are refused.",
				capital(r.label()), quotaText(most, what)),
			Fix: "Raise the quota, or destroy some of these shares.",
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

// checkPoolOneMode asks whether all GPUs of a Linux pool are shared in one way.
func checkPoolOneMode(r *run) {
	switch w := r.Plan.Want; {
	case w.Pool != nil:
		reportModes(r, w.Pool.ID, w.Pool.Name, "members")
	case w.Config != nil:
		for _, p := range r.Shares().PoolsOver(w.Config) {
			reportModes(r, p.ID, p.Name, "hosts")
		}
	}
}

// reportModes compares the GPUs of a pool that configs cover. Of one that none does another
// resource of the run may say what it becomes: a pool and a config refer to each other
// nowhere, so that either may come first, at plan and at apply.
func reportModes(r *run, id, name, path string) {
	byMode := map[string][]member{}
	for _, host := range r.Shares().PoolHosts(id) {
		h, ok := r.Host(host)
		if !ok || h.Platform != gpu.Linux {
			continue
		}
		then := r.Shares().LaidOut(host, h)
		pool := placement.NewSharedHost(host, then, then).Pools[gpu.FoldID(id)]
		if pool == nil {
			continue
		}
		for g := range whatif.Selected(then, pool.GPUs) {
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
	modes := whatif.SortedKeys(byMode)
	most := modes[0]
	for _, m := range modes {
		if len(byMode[m]) > len(byMode[most]) {
			most = m
		}
	}
	var lines, keys []string
	var first member
	for _, m := range modes {
		lines = append(lines, m+": "+r.gpuList(byMode[m]))
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
