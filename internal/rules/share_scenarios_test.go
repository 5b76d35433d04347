package rules_test

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// onMPS plans a share on gpu01, whose GPUs a config with MPS covers and which has shares.
func onMPS(s gpu.Share, there ...gpu.Share) func() (rules.World, change.Change) {
	return func() (rules.World, change.Change) {
		return world(has(laidOut(shareServer(), mpsConfig("ml", "gpu01")), "vdi", there...)), shareP(s)
	}
}

func pinned(s gpu.Share, ids ...string) gpu.Share {
	s.GPUIDs = ids
	return s
}

func shareScenarios() []scenario {
	limited := share("b", 10*gib)
	limited.MemoryLimit = 60 * gib
	big := onto(share("a", 10*gib), migGPU0)
	big.MemoryLimit = 30 * gib
	oversubscribed := func(w *rules.World, ratio float64) {
		w.Hosts["gpu01"].Claims[0].Want.Config.MPS.Oversubscription = ratio
	}
	return []scenario{
		{
			rule: "gpu-exists", name: "pinned share", level: rules.Error, path: "gpu_ids", says: []string{"GPU-99", migGPU0, "NVIDIA H100"},
			build: func() (rules.World, change.Change) {
				return world(shareServer()), shareP(pinned(share("a", 0), "GPU-99"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.GPUIDs = []string{strings.ToLower(migGPU1)} },
		},
		{
			rule: "known-config", name: "of a share", level: rules.Error, path: "config", says: []string{`"nope"`},
			build: func() (rules.World, change.Change) {
				s := share("a", 0)
				s.Config = "nope"
				return world(shareServer()), shareP(s)
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "c", mpsConfig("nope", "gpu01")) },
		},
		{
			rule: "known-config", name: "of a share, for VMs", level: rules.Error, path: "config",
			says: []string{"is of kind `vgpu`", "`time_slicing`"},
			build: func() (rules.World, change.Change) {
				s := share("a", 0)
				s.Config = "vdi"
				return world(laidOut(shareServer(l40s(migGPU0), l40s(migGPU1)), vgpuConfig("vdi", vgpuTypes(q12, 1), "gpu01"))), shareP(s)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Config = "" },
		},
		{
			rule: "known-pool", name: "of a share", level: rules.Error, path: "pool", says: []string{`"gpu01/nope"`},
			build: func() (rules.World, change.Change) {
				return world(shareServer()), shareP(fromShares(share("a", 0), "gpu01/nope"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "p", sharePool("nope", "gpu01")) },
		},
		{
			rule: "unique-name", name: "two shares of one host", level: rules.Error, path: "name", says: []string{`share "a"`, "-refresh=false"},
			hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(shareServer())
				put(&w, "o", wantShare(share("A", 0)))
				return w, shareP(share("a", 0))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				other := share("a", 0)
				other.Host = "gpu02"
				put(w, "o", wantShare(other))
			},
		},
		{
			rule: "unique-name", name: "a share of a pool and one of its host", level: rules.Error, path: "name",
			says: []string{`share "a"`}, hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(pooled(shareServer(), sharePool("team", "gpu01")))
				put(&w, "o", wantShare(share("a", 0)))
				return w, shareP(fromShares(share("a", 0), "gpu01/team"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Name = "b" },
		},
		{
			rule: "not-our-claim", firm: true, name: "a share", level: rules.Error, path: "name", says: []string{`share "a"`, `"platform"`},
			build: func() (rules.World, change.Change) {
				return world(has(shareServer(), "platform", onto(share("a", 0), migGPU0))), shareP(share("a", 0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Name = "b" },
		},
		{
			rule: "foreign-controller", name: "mig-manager beside a share", level: rules.Error, path: "host", says: []string{"nvidia-mig-manager"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				h.Controllers = []gpu.Controller{{Name: "nvidia-mig-manager", Role: gpu.LayoutController}}
				return world(h), shareP(share("a", 0))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].Controllers = nil },
		},
		{
			rule: "kind-on-platform", name: "a share on Hyper-V", level: rules.Error, path: "host",
			says: []string{`"gpu01" is a Hyper-V host`, "A gpu_share"},
			build: func() (rules.World, change.Change) {
				w := world(host("gpu01"))
				return w, shareP(share("a", 0))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"] = shareServer() },
		},
		{
			rule: "share-name", name: "a slash", level: rules.Error, path: "name", says: []string{`"team/a"`, "letters, digits"}, hostless: true,
			build:   func() (rules.World, change.Change) { return world(shareServer()), shareP(share("team/a", 0)) },
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Name = "team-a" },
		},
		{
			rule: "share-name", name: "too long", level: rules.Error, path: "name", says: []string{"129 characters"}, hostless: true,
			build: func() (rules.World, change.Change) {
				return world(shareServer()), shareP(share(strings.Repeat("a", 129), 0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Name = strings.Repeat("a", 128) },
		},
		{
			rule: "fraction-not-in-mode", name: "a percentage of a whole GPU", level: rules.Error, path: "active_thread_percentage",
			says:    []string{"is of mode whole_gpu", "25 % of the threads"},
			build:   func() (rules.World, change.Change) { return world(shareServer()), shareP(part("a", 25)) },
			satisfy: func(w *rules.World, _ *change.Change) { laidOut(w.Hosts["gpu01"], mpsConfig("ml", "gpu01")) },
		},
		{
			rule: "fraction-not-in-mode", name: "a percentage with time-slicing", level: rules.Error, path: "active_thread_percentage",
			says: []string{"is of mode time_slicing"},
			build: func() (rules.World, change.Change) {
				return world(laidOut(shareServer(), slicesConfig("ml", 4, "gpu01"))), shareP(part("a", 25))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.ActiveThreadPercentage = 0 },
		},
		{
			rule: "fraction-not-in-mode", name: "a priority of an instance", level: rules.Error, path: "client_priority",
			says: []string{"is of mode mig", "`client_priority`"},
			build: func() (rules.World, change.Change) {
				s := share("a", 0)
				s.ClientPriority = ptr(1)
				return world(shareServer(h100(migGPU0, at("3g.40gb", 0)))), shareP(s)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.ClientPriority = nil },
		},
		{
			rule: "fraction-not-in-mode", name: "no size of a static partition", level: rules.Error, path: "active_thread_percentage",
			says: []string{"has static partitions", "`active_thread_percentage`"},
			build: func() (rules.World, change.Change) {
				w := mpsConfig("ml", "gpu01")
				w.Config.MPS.PerGPU, w.Config.MPS.StaticPartitions = true, true
				return world(laidOut(partitionable(), w)), shareP(share("a", 0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.ActiveThreadPercentage = 25 },
		},
		{
			rule: "fraction-not-in-mode", name: "a part of a memory that is not known", level: rules.Error,
			path: "memory", says: []string{"does not tell how much memory it has"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				for i := range h.GPUs {
					h.GPUs[i].VRAM = 0
				}
				return world(h), shareP(share("a", 4*gib))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.MemoryRequest, p.Want.Share.MemoryLimit = 0, 0 },
		},
		{
			rule: "fraction-not-in-mode", name: "percentage 101", level: rules.Error, path: "active_thread_percentage",
			says: []string{"is 101", "at most 100"}, hostless: true,
			build: onMPS(part("a", 101)), satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.ActiveThreadPercentage = 100 },
		},
		{
			rule: "fraction-not-in-mode", name: "a request above the limit", level: rules.Error, path: "memory",
			says: []string{"20.0 GiB", "10.0 GiB"}, hostless: true,
			build: func() (rules.World, change.Change) {
				s := share("a", 20*gib)
				s.MemoryLimit = 10 * gib
				return onMPS(s)()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.MemoryLimit = 0 },
		},
		{
			rule: "fraction-not-in-mode", name: "more memory than the GPU", level: rules.Error, path: "memory",
			says:  []string{"has 80.0 GiB", "wanted: 81.0 GiB"},
			build: onMPS(share("a", 81*gib)), satisfy: func(_ *rules.World, p *change.Change) { *p.Want.Share = share("a", 80*gib) },
		},
		{
			rule: "fraction-not-in-mode", name: "more memory than the whole GPU", level: rules.Error, path: "memory", says: []string{"has 80.0 GiB"},
			build:   func() (rules.World, change.Change) { return world(shareServer()), shareP(share("a", 81*gib)) },
			satisfy: func(_ *rules.World, p *change.Change) { *p.Want.Share = share("a", 80*gib) },
		},
		{
			rule: "share-placement", name: "no memory is left", level: rules.Error, path: "host",
			says: []string{
				`"gpu01"`, migGPU0, migGPU1, "has 20.0 GiB of 80.0 GiB left beside share \"a\"", "has 10.0 GiB of 80.0 GiB left beside share \"b\"",
				"1 device with 30.0 GiB of memory",
			},
			build:   onMPS(share("c", 30*gib), onto(share("a", 60*gib), migGPU0), onto(share("b", 70*gib), migGPU1)),
			satisfy: func(_ *rules.World, p *change.Change) { *p.Want.Share = share("c", 20*gib) },
		},
		{
			rule: "share-placement", name: "no replica is left", level: rules.Error, path: "gpu_ids",
			says: []string{"has 2 replicas and none left beside shares \"a\" and \"b\"", "Raise `replicas`"},
			build: func() (rules.World, change.Change) {
				h := laidOut(shareServer(), slicesConfig("ml", 2, "gpu01"))
				return world(has(h, "vdi", onto(share("a", 0), migGPU0), onto(share("b", 0), migGPU0))), shareP(pinned(share("c", 0), migGPU0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.GPUIDs = nil },
		},
		{
			rule: "share-placement", name: "every GPU is taken", level: rules.Error, path: "host",
			says: []string{`is taken by share "a"`, `is taken by share "b"`},
			build: func() (rules.World, change.Change) {
				return world(has(shareServer(), "platform", onto(share("a", 0), migGPU0), onto(share("b", 0), migGPU1))), shareP(share("c", 0))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].Claims = w.Hosts["gpu01"].Claims[:1] },
		},
		{
			rule: "share-placement", name: "no instance of the profile", level: rules.Error, path: "host",
			says: []string{"instance 3g.40gb@0", "is of another profile"},
			build: func() (rules.World, change.Change) {
				s := share("a", 0)
				s.Profile = "1g.10gb"
				return world(shareServer(h100(migGPU0, at("3g.40gb", 0)))), shareP(s)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Profile = "3g.40gb" },
		},
		{
			rule: "share-placement", name: "two instances for one process", level: rules.Error, path: "host",
			says: []string{"beside which a process reaches no other"},
			build: func() (rules.World, change.Change) {
				s := share("a", 0)
				s.Count = 2
				return world(shareServer(h100(migGPU0, at("3g.40gb", 0), at("3g.40gb", 4)))), shareP(s)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Count = 1 },
		},
		{
			rule: "share-placement", name: "GPUs of two daemons", level: rules.Error, path: "host",
			says: []string{"wants 2 devices that one process reaches", migGPU0, migGPU1},
			build: func() (rules.World, change.Change) {
				a, b := mpsConfig("a", "gpu01"), mpsConfig("b", "gpu01")
				a.Config.GPUs["gpu01"], b.Config.GPUs["gpu01"] = []string{migGPU0}, []string{migGPU1}
				s := share("s", 0)
				s.Count = 2
				return world(laidOut(laidOut(shareServer(), a), b)), shareP(s)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Count = 1 },
		},
		{
			rule: "share-placement", name: "the GPUs are a pool's", level: rules.Error, path: "host",
			says: []string{`is in pool "team"`, "Draw from it with `pool`"},
			build: func() (rules.World, change.Change) {
				return world(pooled(shareServer(), sharePool("team", "gpu01"))), shareP(share("a", 0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { *p.Want.Share = fromShares(*p.Want.Share, "gpu01/team") },
		},
		{
			rule: "share-placement", name: "the pool is full on both hosts", level: rules.Error, path: "pool",
			says: []string{`host "gpu01"`, `host "gpu02"`, "is taken by"},
			build: func() (rules.World, change.Change) {
				second := shareServer()
				second.Name = "gpu02"
				w := world(pooled(shareServer(), sharePool("team", "gpu01", "gpu02")), pooled(second, sharePool("team", "gpu01", "gpu02")))
				for name, h := range w.Hosts {
					a, b := onto(share("a-"+name, 0), migGPU0), onto(share("b-"+name, 0), migGPU1)
					a.Pool, b.Pool = "gpu01/team", "gpu01/team"
					has(h, "vdi", a, b)
					stay(w.Others, h)
				}
				return w, shareP(fromShares(share("c", 0), "gpu01/team"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				h := w.Hosts["gpu02"]
				w.Others.Put(h.Claims[2].Token, change.Change{Token: h.Claims[2].Token, Prior: h.Claims[2].Want})
			},
		},
		{
			rule: "share-placement", name: "together they do not fit", level: rules.Error, path: "host", change: true,
			says: []string{
				"Placed largest first", `"a" (1 device with 50.0 GiB of memory)`, `"c" (1 device with 50.0 GiB of memory)`,
				"30.0 GiB of 80.0 GiB left", "-refresh=false",
			},
			build: func() (rules.World, change.Change) {
				w, p := onMPS(share("c", 50*gib))()
				put(&w, "a", wantShare(share("a", 50*gib)))
				put(&w, "b", wantShare(share("b", 50*gib)))
				return w, p
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("b") },
		},
		{
			rule: "share-placement", name: "they fit in some orders only", level: rules.Error, path: "host", change: true,
			says: []string{"is not moved", "Pin them", "`gpu_ids = [\"" + migGPU0 + "\"]`"},
			build: func() (rules.World, change.Change) {
				w, p := onMPS(share("d", 48*gib))()
				put(&w, "a", wantShare(share("a", 32*gib)))
				put(&w, "b", wantShare(share("b", 32*gib)))
				put(&w, "c", wantShare(share("c", 48*gib)))
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Share.MemoryRequest, p.Want.Share.MemoryLimit = 16*gib, 16*gib
			},
		},
		{
			rule: "share-placement", name: "a config of the run comes before it or after it", level: rules.Error, path: "host", change: true,
			says: []string{"whole_gpu", "is of mode mps", "`config = gpu_partition_config.NAME.id`"},
			build: func() (rules.World, change.Change) {
				w := world(shareServer())
				put(&w, "c", mpsConfig("ml", "gpu01"))
				return w, shareP(share("a", 0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Config = "ml" },
		},
		{
			rule: "share-placement", name: "the layout that is planned has no room", level: rules.Error,
			path: "host", says: []string{"is taken by share \"b\""},
			build: func() (rules.World, change.Change) {
				h := shareServer(h100(migGPU0))
				w := world(has(h, "platform", into(share("b", 0), at("7g.80gb", 0))))
				c := migConfig("ml", profiles("7g.80gb", 1), "gpu01")
				c.Config.GPUs["gpu01"] = []string{migGPU0}
				put(&w, "c", c)
				s := share("a", 0)
				s.Config = "ml"
				return w, shareP(s)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["gpu01"].Claims = nil
			},
		},
		{
			rule: "share-placement", name: "a host that its config does not cover", level: rules.Error, path: "config",
			says: []string{`partition config "ml", which is not on host "gpu02"`},
			build: func() (rules.World, change.Change) {
				other := shareServer()
				other.Name = "gpu02"
				s := share("a", gib)
				s.Host, s.Config = "gpu02", "ml"
				return world(laidOut(shareServer(), mpsConfig("ml", "gpu01")), other), shareP(s)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Host = "gpu01" },
		},
		{
			rule: "share-placement", name: "a host that is not in its pool", level: rules.Error, path: "pool",
			says: []string{`pool "gpu01/team", which is not on host "gpu02"`},
			build: func() (rules.World, change.Change) {
				other := shareServer()
				other.Name = "gpu02"
				s := share("a", gib)
				s.Host, s.Pool = "gpu02", "gpu01/team"
				return world(pooled(laidOut(shareServer(), mpsConfig("ml", "gpu01")), sharePool("team", "gpu01")), other), shareP(s)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.Host = "gpu01" },
		},
		{
			rule: "share-placement", name: "a planned config changes the mode under it", level: rules.Error,
			path: "name", says: []string{"from mode mps to time_slicing", "in an apply of its own first"},
			build: func() (rules.World, change.Change) {
				w, p := onMPS(onto(share("a", gib), migGPU0))()
				p.Prior = wantShare(onto(share("a", 2*gib), migGPU0))
				w.Others.Put("claim-ml", change.Change{Subject: "c", Want: slicesConfig("ml", 4, "gpu01"), Prior: mpsConfig("ml", "gpu01")})
				return w, p
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "claim-ml", mpsConfig("ml", "gpu01")) },
		},
		{
			rule: "share-placement", name: "a share that grows in its place", level: rules.Error, path: "host",
			says:    []string{"20.0 GiB of 80.0 GiB left beside share \"b\""},
			build:   onMPS(onto(share("a", 30*gib), migGPU0), onto(share("b", 60*gib), migGPU0)),
			satisfy: func(_ *rules.World, p *change.Change) { *p.Want.Share = onto(share("a", 20*gib), migGPU0) },
		},
		{
			rule: "mps-client-limit", name: "a GPU before Volta", level: rules.Error, path: "gpu_ids", says: []string{"takes 16 MPS clients"},
			build: func() (rules.World, change.Change) {
				var there []gpu.Share
				for i := range 16 {
					there = append(there, onto(share(string(rune('a'+i)), 0), migGPU0))
				}
				w, p := onMPS(pinned(share("z", 0), migGPU0), there...)()
				w.Hosts["gpu01"].GPUs[0].ComputeCapability = "6.1"
				return w, p
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].GPUs[0].ComputeCapability = "7.0" },
		},
		{
			rule: "share-oversubscription", name: "limits, not allowed", level: rules.Error, path: "memory",
			says:  []string{"allows memory limits of 50.0 GiB more", "a limit of 60.0 GiB", "`oversubscription`"},
			build: func() (rules.World, change.Change) { return onMPS(pinned(limited, migGPU0), big)() },
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Share.MemoryLimit = 50 * gib
			},
		},
		{
			rule: "share-oversubscription", name: "percentages, not allowed", level: rules.Error, path: "active_thread_percentage",
			says:    []string{"has 40 % of its threads left", "50 %"},
			build:   onMPS(pinned(part("b", 50), migGPU0), onto(part("a", 60), migGPU0)),
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.ActiveThreadPercentage = 40 },
		},
		{
			rule: "share-oversubscription", name: "limits, allowed", level: rules.Warning, path: "memory",
			says: []string{"90.0 GiB of 80.0 GiB (1.12 times)", "allows 1.5 times"},
			build: func() (rules.World, change.Change) {
				w, p := onMPS(pinned(limited, migGPU0), big)()
				oversubscribed(&w, 1.5)
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.MemoryLimit = 50 * gib },
		},
		{
			rule: "share-oversubscription", name: "percentages, allowed", level: rules.Warning, path: "active_thread_percentage",
			says: []string{"add up to 110 % (1.1 times)"},
			build: func() (rules.World, change.Change) {
				w, p := onMPS(pinned(part("b", 50), migGPU0), onto(part("a", 60), migGPU0))()
				oversubscribed(&w, 2)
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.ActiveThreadPercentage = 40 },
		},
		{
			rule: "gpu-vm-xor-share", name: "a share of a GPU with vGPUs", level: rules.Error, path: "gpu_ids",
			says: []string{migGPU0, "vgpu:1xL40S-12Q"},
			build: func() (rules.World, change.Change) {
				return world(shareServer(l40s(migGPU0, q12), l40s(migGPU1))), shareP(pinned(share("a", 0), migGPU0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Share.GPUIDs = nil },
		},
		{
			rule: "gpu-vm-xor-share", name: "a share of a GPU whose vGPUs are planned", level: rules.Error,
			path: "host", says: []string{"which makes vGPUs of it"},
			build: func() (rules.World, change.Change) {
				w := world(shareServer(l40s(migGPU0), l40s(migGPU1)))
				put(&w, "c", vgpuConfig("vdi", vgpuTypes(q12, 1), "gpu01"))
				return w, shareP(share("a", 0))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("c") },
		},
	}
}
