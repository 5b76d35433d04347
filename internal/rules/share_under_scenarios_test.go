package rules_test

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// under plans a config over GPUs of gpu01 that another state's shares have part in.
func under(before, after gpu.Want, there ...gpu.Share) func() (rules.World, change.Change) {
	return func() (rules.World, change.Change) {
		h := laidOut(shareServer(), before)
		p := change.Change{Subject: label(before), Token: "claim-" + before.Config.ID, Want: after, Prior: before}
		return world(has(h, "platform", there...)), p
	}
}

// edited is a config with a change.
func edited(w gpu.Want, edit func(*gpu.PartitionConfig)) gpu.Want {
	c := *w.Config
	if c.MPS != nil {
		l := *c.MPS
		c.MPS = &l
	}
	edit(&c)
	return gpu.Want{Config: &c}
}

func underSharesScenarios() []scenario {
	mpsML, slices4 := mpsConfig("ml", "gpu01"), slicesConfig("ml", 4, "gpu01")
	gone := func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].Claims = w.Hosts["gpu01"].Claims[:1] }
	roomy := edited(mpsML, func(c *gpu.PartitionConfig) { c.MPS.Oversubscription = 2 })
	a, b := onto(share("a", 10*gib), migGPU0), onto(share("b", 10*gib), migGPU0)
	a.MemoryLimit, b.MemoryLimit = 60*gib, 60*gib
	return []scenario{
		{
			rule: "share-placement", name: "a config is destroyed under a share", level: rules.Error, path: "hosts",
			says:  []string{`Share "a" on host "gpu01" uses ` + migGPU0, "from mode mps to whole_gpu"},
			build: under(mpsML, gpu.Want{}, onto(share("a", gib), migGPU0)), satisfy: gone,
		},
		{
			rule: "share-placement", name: "a GPU leaves under a share", level: rules.Error, path: "hosts",
			says: []string{migGPU1, "from mode mps to whole_gpu"},
			build: under(mpsML, edited(mpsML, func(c *gpu.PartitionConfig) {
				c.GPUs = map[string][]string{"gpu01": {migGPU0}}
			}), onto(share("a", gib), migGPU1)), satisfy: gone,
		},
		{
			rule: "share-placement", name: "another kind", level: rules.Error, path: "hosts", says: []string{"from mode mps to time_slicing"},
			build: under(mpsML, slices4, onto(share("a", gib), migGPU1)), satisfy: gone,
		},
		{
			rule: "share-placement", name: "fewer replicas than shares", level: rules.Error, path: "hosts",
			says: []string{`Shares "a", "b" and "c"`, "2 replicas for 3 shares"},
			build: under(slices4, slicesConfig("ml", 2, "gpu01"), onto(share("a", 0), migGPU0), onto(share("b", 0), migGPU0),
				onto(share("c", 0), migGPU0)),
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = slicesConfig("ml", 3, "gpu01") },
		},
		{
			rule: "share-oversubscription", name: "less than there is", level: rules.Error, path: "hosts",
			says:  []string{`Shares "a" and "b"`, "add up to 120.0 GiB of 80.0 GiB"},
			build: under(roomy, mpsML, a, b), satisfy: func(_ *rules.World, p *change.Change) { p.Want = roomy },
		},
		{
			rule: "mig-placement", name: "an instance with a share", level: rules.Error, path: "mig", change: true,
			says: []string{`2g.20gb at 4 (share "a")`},
			build: func() (rules.World, change.Change) {
				h := shareServer(h100(migGPU0, at("2g.20gb", 0), at("2g.20gb", 4)), h100(migGPU1, at("3g.40gb", 0)))
				w := migConfig("ml", profiles("3g.40gb", 1), "gpu01")
				return world(has(h, "platform", into(share("a", 0), at("2g.20gb", 4)))), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Config.MIG.Profiles["2g.20gb"] = 1
			},
		},
		{
			rule: "share-placement", name: "instances are put back to what they were", level: rules.Error,
			path: "hosts", says: []string{migGPU0 + "/2g.20gb@4", "is destroyed"},
			build: func() (rules.World, change.Change) {
				w := migConfig("ml", profiles("2g.20gb", 2), "gpu01")
				w.Config.Restore = true
				h := laidOut(shareServer(h100(migGPU0, at("2g.20gb", 0), at("2g.20gb", 4))), w)
				h.Claims[0].OriginalLayouts = gpu.Layouts{
					migGPU0: {MIG: &gpu.MIGState{Enabled: true, Placements: []gpu.MIGPlacement{at("2g.20gb", 0)}}},
				}
				return world(has(h, "platform", into(share("a", 0), at("2g.20gb", 4)))), change.Change{Subject: "x", Token: "claim-ml", Prior: w}
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Prior.Config.Restore = false },
		},
		{
			rule: "gpu-vm-xor-share", name: "vGPUs under a share", level: rules.Error, path: "hosts", says: []string{`Share "a"`, "goes to VMs"},
			build: func() (rules.World, change.Change) {
				h := shareServer(l40s(migGPU0), l40s(migGPU1))
				return world(has(h, "platform", onto(share("a", 0), migGPU0))), create("t", vgpuConfig("vdi", vgpuTypes(q12, 1), "gpu01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["gpu01"] = []string{migGPU1} },
		},
		{
			rule: "mps-client-limit", name: "MPS inside a small instance", level: rules.Error, path: "hosts",
			drift: true, says: []string{"serves 6 MPS clients for 7 shares"},
			build: func() (rules.World, change.Change) {
				c := migConfig("ml", profiles("1g.10gb", 1), "gpu01")
				c.Config.MPS = mps()
				g := h100(migGPU0, at("1g.10gb", 0))
				c.Config.GPUs["gpu01"] = []string{migGPU0}
				h := laidOut(shareServer(g), c)
				for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
					has(h, "platform", into(share(name, 0), at("1g.10gb", 0)))
				}
				p := create("claim-ml", c)
				return world(h), p
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				h := w.Hosts["gpu01"]
				h.Claims = h.Claims[:len(h.Claims)-1]
			},
		},
		{
			rule: "share-placement", name: "a GPU leaves its pool under a share", level: rules.Error, path: "members",
			says: []string{`Share "a"`, `leaves pool "team"`},
			build: func() (rules.World, change.Change) {
				w := sharePool("team", "gpu01")
				s := onto(share("a", 0), migGPU1)
				s.Pool = "gpu01/team"
				less := sharePool("team", "gpu01")
				less.Pool.Members["gpu01"] = []string{migGPU0}
				p := create("claim-team", less)
				p.Prior = w
				return world(has(pooled(shareServer(), w), "platform", s)), p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = p.Prior },
		},
	}
}

func linuxPoolScenarios() []scenario {
	quotas := func(q gpu.PoolQuota) gpu.Want {
		w := sharePool("team", "gpu01")
		w.Pool.Quotas = map[string]gpu.PoolQuota{"red": q}
		return w
	}
	red := func(s gpu.Share) gpu.Share {
		s.Pool, s.Label = "gpu01/team", "red"
		return s
	}
	// drawn plans a share of the label from a pool with MPS of which it has 40 GiB.
	drawn := func(q gpu.PoolQuota) func() (rules.World, change.Change) {
		return func() (rules.World, change.Change) {
			h := pooled(laidOut(shareServer(), mpsConfig("ml", "gpu01")), quotas(q))
			return world(has(h, "vdi", red(onto(share("a", 40*gib), migGPU0)))), shareP(red(fromShares(share("b", 20*gib), "gpu01/team")))
		}
	}
	other := func(_ *rules.World, p *change.Change) { p.Want.Share.Label = "" }
	return []scenario{
		{
			rule: "kind-on-platform", name: "a pool of two platforms", level: rules.Error, path: "members", says: []string{`"hv01"`, `"gpu01"`},
			build: func() (rules.World, change.Change) {
				return world(shareServer(), host("hv01")), create("t", pool("p", "gpu01", "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { delete(p.Want.Pool.Members, "hv01") },
		},
		{
			rule: "kind-on-platform", name: "a Linux pool that mounts back", level: rules.Error, path: "on_destroy",
			says: []string{"is a Linux host", "`on_destroy`"},
			build: func() (rules.World, change.Change) {
				w := sharePool("team", "gpu01")
				w.Pool.MountBack = true
				return world(shareServer()), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.MountBack = false },
		},
		{
			rule: "kind-on-platform", name: "a Linux pool that dismounts", level: rules.Error, path: "dismount", says: []string{"dismounts nothing"},
			build: func() (rules.World, change.Change) {
				w := sharePool("team", "gpu01")
				w.Pool.Force = true
				return world(shareServer()), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Force = false },
		},
		{
			rule: "kind-on-platform", name: "quotas on Hyper-V", level: rules.Error, path: "quotas", says: []string{"is a Hyper-V host"},
			build: func() (rules.World, change.Change) {
				w := pool("p", "hv01")
				w.Pool.Quotas = map[string]gpu.PoolQuota{"red": {}}
				return world(host("hv01")), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Quotas = nil },
		},
		{
			rule: "one-config-per-gpu", name: "two pools of one GPU", level: rules.Error, path: "members",
			says: []string{migGPU1, "escape the quotas"},
			build: func() (rules.World, change.Change) {
				w := world(shareServer())
				blue := sharePool("blue", "gpu01")
				blue.Pool.Members["gpu01"] = []string{migGPU1}
				put(&w, "o", blue)
				return w, create("t", sharePool("red", "gpu01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Members["gpu01"] = []string{migGPU0} },
		},
		{
			rule: "one-config-per-gpu", name: "another state's pool", level: rules.Error, path: "members", says: []string{migGPU1, `"platform"`},
			build: func() (rules.World, change.Change) {
				blue := sharePool("blue", "gpu01")
				blue.Pool.Members["gpu01"] = []string{migGPU1}
				h := pooled(shareServer(), blue)
				h.Claims[0].Owner = "platform"
				return world(h), create("t", sharePool("red", "gpu01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Members["gpu01"] = []string{migGPU0} },
		},
		{
			rule: "gpu-vm-xor-share", name: "a pool with a GPU for VMs", level: rules.Error, path: "members",
			says: []string{migGPU1, "which makes vGPUs of it"},
			build: func() (rules.World, change.Change) {
				c := vgpuConfig("vdi", vgpuTypes(q12, 1), "gpu01")
				c.Config.GPUs["gpu01"] = []string{migGPU1}
				return world(laidOut(shareServer(l40s(migGPU0), l40s(migGPU1)), c)), create("t", sharePool("team", "gpu01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Members["gpu01"] = []string{migGPU0} },
		},
		{
			rule: "gpu-vm-xor-share", name: "vGPUs on a GPU of a planned pool", level: rules.Error, path: "hosts",
			says: []string{migGPU1, `pool "team"`},
			build: func() (rules.World, change.Change) {
				w := world(shareServer(l40s(migGPU0), l40s(migGPU1)))
				put(&w, "o", sharePool("team", "gpu01"))
				c := vgpuConfig("vdi", vgpuTypes(q12, 1), "gpu01")
				c.Config.GPUs["gpu01"] = []string{migGPU1}
				return w, create("t", c)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				p := sharePool("team", "gpu01")
				p.Pool.Members["gpu01"] = []string{migGPU0}
				put(w, "o", p)
			},
		},
		{
			rule: "homogeneous-gpus", name: "a Linux pool of unlike models", level: rules.Warning, path: "members",
			says: []string{"has other memory or speed"},
			build: func() (rules.World, change.Change) {
				h := shareServer(freeGPU(migGPU0), l40s(migGPU1))
				return world(h), create("t", sharePool("team", "gpu01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].GPUs[1] = freeGPU(migGPU1) },
		},
		{
			rule: "pool-one-mode", name: "MPS on one GPU of two", level: rules.Error, path: "members",
			says: []string{"mps: GPU " + migGPU0, "time_slicing: GPU " + migGPU1},
			build: func() (rules.World, change.Change) {
				c, other := mpsConfig("ml", "gpu01"), slicesConfig("ts", 4, "gpu01")
				c.Config.GPUs["gpu01"], other.Config.GPUs["gpu01"] = []string{migGPU0}, []string{migGPU1}
				return world(laidOut(laidOut(shareServer(), c), other)), create("t", sharePool("team", "gpu01"))
			},
			// Another config of the run may cover it.
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Others.Delete("claim-ts")
				w.Hosts["gpu01"].Claims = w.Hosts["gpu01"].Claims[:1]
			},
		},
		{
			rule: "pool-one-mode", name: "a config over one GPU of another state's pool", level: rules.Error,
			path: "hosts", says: []string{"mig with time_slicing", "mps"},
			build: func() (rules.World, change.Change) {
				c := migConfig("ml", profiles("1g.10gb", 7), "gpu01")
				c.Config.TimeSlicing = &gpu.TimeSlicing{Replicas: 2}
				c.Config.GPUs["gpu01"] = []string{migGPU0}
				other := mpsConfig("theirs", "gpu01")
				other.Config.GPUs["gpu01"] = []string{migGPU1}
				h := laidOut(pooled(shareServer(), sharePool("team", "gpu01")), other)
				h.Claims[0].Owner, h.Claims[1].Owner = "platform", "platform"
				return world(h), create("t", c)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].Claims = w.Hosts["gpu01"].Claims[:1] },
		},
		{
			rule: "pool-quota", name: "memory", level: rules.Error, path: "pool",
			says:  []string{`label "red"`, "its quota of memory is 50.0 GiB", `share "a" has 40.0 GiB`},
			build: drawn(gpu.PoolQuota{Memory: ptr(50 * gib)}), satisfy: other,
		},
		{
			rule: "pool-quota", name: "shares", level: rules.Error, path: "pool", says: []string{"its quota of shares is 1"}, hostless: true,
			build: drawn(gpu.PoolQuota{Shares: ptr(1)}), satisfy: other,
		},
		{
			rule: "pool-quota", name: "GPUs", level: rules.Error, path: "pool", says: []string{"its quota of GPUs is 0.6", "has 0.5"},
			build: drawn(gpu.PoolQuota{GPUs: ptr(0.6)}),
			satisfy: func(_ *rules.World, p *change.Change) {
				*p.Want.Share = red(fromShares(share("b", 8*gib), "gpu01/team"))
			},
		},
		{
			rule: "pool-quota", name: "with a share that is planned", level: rules.Error, path: "pool", says: []string{`"a" and "c" have 60.0 GiB`},
			build: func() (rules.World, change.Change) {
				w, p := drawn(gpu.PoolQuota{Memory: ptr(60 * gib)})()
				put(&w, "c", wantShare(red(fromShares(share("c", 20*gib), "gpu01/team"))))
				return w, p
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("c") },
		},
		{
			rule: "pool-quota", name: "a label without a quota", level: rules.Warning, path: "owner_label",
			says: []string{`"red"`, `"blue"`}, hostless: true,
			build: func() (rules.World, change.Change) {
				w, p := drawn(gpu.PoolQuota{Shares: ptr(9)})()
				p.Want.Share.Label = "blue"
				return w, p
			},
			satisfy: other,
		},
		{
			rule: "pool-quota", name: "below what there is", level: rules.Warning, path: "quotas",
			says: []string{`"a"`, `"red"`, "30.0 GiB of memory"},
			build: func() (rules.World, change.Change) {
				w, _ := drawn(gpu.PoolQuota{})()
				p := create("claim-team", quotas(gpu.PoolQuota{Memory: ptr(30 * gib)}))
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = quotas(gpu.PoolQuota{Memory: ptr(40 * gib)}) },
		},
	}
}
