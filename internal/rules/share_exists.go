package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// checkKnownShareConfig asks that the config of a share is there, and is one whose GPUs
// containers share.
func (r *run) checkKnownShareConfig(s *gpu.Share) {
	if s.Config == "" || !r.complete {
		return
	}
	kind, known := r.configKind(s.Config)
	if known && kind != gpu.KindGPUP && kind != gpu.KindVGPU {
		return
	}
	f := r.missing(configNamed(s.Config), "partition config", s.Config, Finding{
		Path:   "config",
		Wanted: fmt.Sprintf("%s is drawn from its GPUs.", capital(r.label())),
		Fix:    "Refer to the resource, as in `config = gpu_partition_config.NAME.id`, or leave `config` out to take any GPU.",
	})
	k := key("config", s.Config)
	if known {
		f.Title = "The partition config is for VMs"
		f.Found = fmt.Sprintf("Partition config %s is of kind `%s`, which is for VMs.", quote(s.Config), kind)
		f.Fix = "Refer to a gpu_partition_config with `mig`, `mps` or `time_slicing`."
		k = key("config kind", s.Config)
	}
	r.report(f, k)
}

// configKind is the kind of a config that this run plans or a host knows.
func (r *run) configKind(id string) (kind gpu.Kind, known bool) {
	if c := r.plan.Want.Config; c != nil && gpu.SameID(c.ID, id) {
		return c.Kind, true
	}
	for e := range r.others(configNamed(id)) {
		if c := e.plan.Want.Config; c != nil && gpu.SameID(c.ID, id) {
			return c.Kind, true
		}
	}
	for _, p := range r.fleet.configClaims[gpu.FoldID(id)] {
		if c := p.item.Want.Config; c != nil && !r.superseded(p.item) {
			return c.Kind, true
		}
	}
	return "", false
}

func (r *run) checkKnownSharePool(s *gpu.Share) {
	if s.Pool == "" || !r.complete || r.poolOf(s.Pool) != nil {
		return
	}
	r.report(r.missing(poolNamed(s.Pool), "pool", s.Pool, Finding{
		Path:   "pool",
		Wanted: fmt.Sprintf("%s is drawn from it.", capital(r.label())),
		Fix:    "Refer to the resource, as in `pool = gpu_pool.NAME.id`.",
	}), key("pool", s.Pool))
}

// checkShareTwins finds two shares of one name that go to one host: those of a pool may go
// to any of its hosts.
func (r *run) checkShareTwins(s *gpu.Share) {
	about := []string{sharesOn(s.Host)}
	if s.Pool != "" && s.Host == "" {
		about = []string{sharesOf(s.Pool)}
		for _, host := range r.poolHosts(s.Pool) {
			about = append(about, sharesOn(host))
		}
	}
	for e := range r.others(about...) {
		if o := e.plan.Want.Share; o != nil && gpu.SameID(o.Name, s.Name) && (s.Host == "" || o.Host == "" || s.Host == o.Host) {
			r.reportTwin(e, "name", "share "+quote(s.Name), "Give one of the two another `name`.")
		}
	}
}

// checkOnePoolPerGPU finds GPUs of Linux hosts that two pools have.
func (r *run) checkOnePoolPerGPU(p *gpu.PoolConfig) {
	for host, h := range r.hostsAtHand(p.Members) {
		if h.Platform != gpu.Linux {
			continue
		}
		for g := range selected(h, p.Members[host]) {
			f := Finding{
				Path: "members", Title: "Two pools for one GPU", Host: host, GPU: g.ID,
				Wanted: "A GPU is in one pool, or its shares would escape the quotas.",
				Fix:    "Leave the GPU out of one of the two.",
			}
			if e := r.conflict(host, func(w gpu.Want) bool { return w.Pool != nil && contains(w.Pool.Members[host], g.ID) }); e != nil {
				f.Other, f.Found = labelOf(e.plan), fmt.Sprintf("%s both have %s.", r.both(e), gpuOn(host, g))
				f.Fix += wayOut
				r.report(f, key("pools", host, g.ID, f.Other))
				continue
			}
			i := slices.IndexFunc(h.Claims, func(c gpu.Claim) bool {
				return c.Kind == gpu.ClaimPool && c.Covers(g.ID) && !r.ours(&c) && !gpu.SameID(c.ID, p.Name)
			})
			if i >= 0 {
				f.Found = fmt.Sprintf("Pool %s of %s has %s.", quote(h.Claims[i].ID), whose(&h.Claims[i]), gpuOn(host, g))
				r.report(f, key("pools", host, g.ID))
			}
		}
	}
}

// checkPoolPlatform asks that a pool is of hosts of one platform, and finds settings that
// the platform has no use for.
func (r *run) checkPoolPlatform(p *gpu.PoolConfig) {
	on := map[gpu.Platform][]string{}
	for host, h := range r.hostsAtHand(p.Members) {
		on[h.Platform] = append(on[h.Platform], host)
	}
	linux, hyperv := on[gpu.Linux], on[gpu.HyperV]
	if len(linux) > 0 && len(hyperv) > 0 {
		r.report(Finding{
			Path: "members", Title: "A pool spans two platforms", Host: linux[0],
			Found:  fmt.Sprintf("%s %s Hyper-V, and %s Linux.", capital(join(quoteAll(hyperv))), verb(len(hyperv), "runs", "run"), join(quoteAll(linux))+verb(len(linux), " runs", " run")),
			Wanted: "On Hyper-V a pool gives whole GPUs to VMs, on Linux it is what shares are drawn from.",
			Fix:    "Make a pool for each platform.",
		}, key("platforms"))
		return
	}
	useless := func(path, platform, wanted string, hosts []string) {
		r.report(Finding{
			Path: path, Title: "Not supported on Linux hosts", Host: hosts[0],
			Found:  fmt.Sprintf("%s %s, and `%s` is set.", join(quoteAll(hosts)), verb(len(hosts), "is a "+platform+" host", "are "+platform+" hosts"), path),
			Wanted: wanted, Fix: "Leave `" + path + "` out.",
		}, key("pool setting", path))
	}
	switch {
	case len(linux) > 0 && p.MountBack:
		useless("on_destroy", "Linux", "On Linux a pool dismounts nothing, so that there is nothing to mount back.", linux)
	case len(linux) > 0 && p.Force:
		useless("dismount", "Linux", "On Linux a pool dismounts nothing.", linux)
	case len(hyperv) > 0 && len(p.Quotas) > 0:
		useless("quotas", "Hyper-V", "Quotas are for shares, which are for Linux hosts.", hyperv)
	}
}
