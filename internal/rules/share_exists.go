package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// checkKnownShareConfig asks that the config of a share is there, and is one whose GPUs
// containers share.
func checkKnownShareConfig(r *run, s *gpu.Share) {
	if s.Config == "" || !r.world.Complete {
		return
	}
	kind, known := r.ConfigKind(s.Config)
	if known && kind != gpu.KindGPUP && kind != gpu.KindVGPU {
		return
	}
	f := r.missing(whatif.ConfigNamed(s.Config), "partition config", s.Config, Finding{
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

func checkKnownSharePool(r *run, s *gpu.Share) {
	if s.Pool == "" || !r.world.Complete || r.Shares().PoolOf(s.Pool) != nil {
		return
	}
	r.report(r.missing(whatif.PoolNamed(s.Pool), "pool", s.Pool, Finding{
		Path:   "pool",
		Wanted: fmt.Sprintf("%s is drawn from it.", capital(r.label())),
		Fix:    "Refer to the resource, as in `pool = gpu_pool.NAME.id`.",
	}), key("pool", s.Pool))
}

// checkShareTwins finds two shares of one name that go to one host: those of a pool may go
// to any of its hosts.
func checkShareTwins(r *run, s *gpu.Share) {
	about := []string{whatif.SharesOn(s.Host)}
	if s.Pool != "" && s.Host == "" {
		about = []string{whatif.SharesOf(s.Pool)}
		for _, host := range r.Shares().PoolHosts(s.Pool) {
			about = append(about, whatif.SharesOn(host))
		}
	}
	for e := range r.Others(about...) {
		if o := e.Plan.Want.Share; o != nil && gpu.SameID(o.Name, s.Name) && (s.Host == "" || o.Host == "" || s.Host == o.Host) {
			reportTwin(r, e, "name", "share "+quote(s.Name), "Give one of the two another `name`.")
		}
	}
}

// checkOnePoolPerGPU finds GPUs of Linux hosts that two pools have.
func checkOnePoolPerGPU(r *run, p *gpu.PoolConfig) {
	for host, h := range r.HostsAtHand(p.Members) {
		if h.Platform != gpu.Linux {
			continue
		}
		for g := range whatif.Selected(h, p.Members[host]) {
			f := Finding{
				Path: "members", Title: "Two pools for one GPU", Host: host, GPU: g.ID,
				Wanted: "A GPU is in one pool, or its shares would escape the quotas.",
				Fix:    "Leave the GPU out of one of the two.",
			}
			if e := r.Conflict(host, func(w gpu.Want) bool { return w.Pool != nil && gpu.HasID(w.Pool.Members[host], g.ID) }); e != nil {
				f.Other, f.Found = whatif.Label(e.Plan), fmt.Sprintf("%s both have %s.", r.both(e), gpuOn(host, g))
				f.Fix += wayOut
				r.report(f, key("pools", host, g.ID, f.Other))
				continue
			}
			i := slices.IndexFunc(h.Claims, func(c gpu.Claim) bool {
				return c.Kind == gpu.ClaimPool && c.Covers(g.ID) && !r.Ours(&c) && !gpu.SameID(c.ID, p.Name)
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
func checkPoolPlatform(r *run, p *gpu.PoolConfig) {
	on := map[gpu.Platform][]string{}
	for host, h := range r.HostsAtHand(p.Members) {
		on[h.Platform] = append(on[h.Platform], host)
	}
	linux, hyperv := on[gpu.Linux], on[gpu.HyperV]
	if len(linux) > 0 && len(hyperv) > 0 {
		r.report(Finding{
			Path: "members", Title: "A pool spans two platforms", Host: linux[0],
			Found: fmt.Sprintf("%s %s Hyper-V, and %s Linux.", capital(join(quoteAll(hyperv))), verb(len(hyperv), "runs", "run"),
				join(quoteAll(linux))+verb(len(linux), " runs", " run")),
			Wanted: "On Hyper-V a pool gives whole GPUs to VMs, on Linux it is what shares are drawn from.",
			Fix:    "Make a pool for each platform.",
		}, key("platforms"))
		return
	}
	useless := func(path, platform, wanted string, hosts []string) {
		r.report(Finding{
			Path: path, Title: "Not supported on Linux hosts", Host: hosts[0],
			Found: fmt.Sprintf("%s %s, and `%s` is set.", join(quoteAll(hosts)),
				verb(len(hosts), "is a "+platform+" host", "are "+platform+" hosts"), path),
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
