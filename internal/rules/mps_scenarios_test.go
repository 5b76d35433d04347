package rules_test

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// mpsPlan plans MPS on both GPUs of a host.
func mpsPlan(h *gpu.Host, edit func(*gpu.PartitionConfig)) func() (rules.World, change.Change) {
	return func() (rules.World, change.Change) {
		w := mpsConfig("ml", "gpu01")
		if edit != nil {
			edit(w.Config)
		}
		return world(h), create("t", w)
	}
}

// served lets a daemon of that name serve both GPUs of a host, with a client.
func served(h *gpu.Host, name string) *gpu.Host {
	h.MPS.Daemons = []gpu.MPSDaemon{{
		MPSDaemonSpec: gpu.MPSDaemonSpec{Name: name, MultiUser: true, Devices: []gpu.SharedDevice{{GPU: migGPU0}, {GPU: migGPU1}}},
		PID:           100, Clients: []gpu.Process{{PID: 4711, Name: "python", Holder: "container 3f2a"}},
	}}
	for i := range h.GPUs {
		h.GPUs[i].ComputeMode = gpu.ComputeExclusiveProcess
		h.GPUs[i].Processes = []gpu.Process{{PID: 4711, Name: "python", Holder: "container 3f2a"}, {PID: 101, Name: "nvidia-cuda-mps-server"}}
	}
	return h
}

func mpsScenarios() []scenario {
	return []scenario{
		{
			rule: "kind-on-platform", name: "mps on Hyper-V", level: rules.Error, path: "hosts",
			says: []string{`"hv01" is a Hyper-V host`, "with `mps`", "`gpu_p`"},
			build: func() (rules.World, change.Change) {
				w := mpsConfig("ml", "hv01")
				w.Config.GPUs["hv01"] = nil
				return world(host("hv01")), create("t", w)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Platform = gpu.Linux },
		},
		{
			rule: "nothing-selected", name: "all in MIG mode", level: rules.Error, path: "hosts",
			says: []string{"in MIG mode, which `mig` is for, and which a config of `mig = { enabled = false }` switches off", "wants GPUs with MPS"},
			build: func() (rules.World, change.Change) {
				w := mpsConfig("ml", "gpu01")
				w.Config.GPUs["gpu01"] = nil
				return world(shareServer(h100(migGPU0))), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["gpu01"] = []string{migGPU0} },
		},
		{
			rule: "known-config", name: "of kind mps", level: rules.Error, path: "partition.config",
			says: []string{"is of kind `mps`", "containers of the host"},
			build: func() (rules.World, change.Change) {
				p := partition("a", "hv01")
				p.Assignment.Partition.Config = "ml"
				w := world(host("hv01", vm("a", gpu.VMOff)))
				put(&w, "c", mpsConfig("ml", "gpu01"))
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "c", config("ml", 4, "hv01")) },
		},
		{
			rule: "homogeneous-gpus", name: "shared unlike models", level: rules.Warning, path: "selector",
			says: []string{"has other memory or speed"},
			build: func() (rules.World, change.Change) {
				other := freeGPU(migGPU1)
				other.Model, other.PCI.Device = "NVIDIA A100-SXM4-80GB", "20B2"
				return world(shareServer(freeGPU(migGPU0), other)), create("t", mpsConfig("ml", "gpu01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].GPUs[1] = freeGPU(migGPU1) },
		},
		{
			rule: "foreign-controller", name: "a consumer of shared GPUs", level: rules.Warning, path: "hosts", change: true,
			says: []string{"nvidia-device-plugin on \"gpu01\"", "`device_plugin_config`"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				h.Controllers = []gpu.Controller{{Name: "nvidia-device-plugin", Role: gpu.ConsumerController}}
				return world(h), create("t", mpsConfig("ml", "gpu01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].Controllers = nil },
		},
		{
			rule: "foreign-controller", name: "Slurm on a host whose GPUs are shared", level: rules.Warning, path: "hosts", change: true,
			says: []string{"slurmd on \"gpu01\"", "`slurm_gres`", "`ConstrainDevices=yes`", "higher numbers"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				h.Controllers = []gpu.Controller{{Name: "slurmd", Role: gpu.ConsumerController}}
				return world(h), create("t", mpsConfig("ml", "gpu01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].Controllers = nil },
		},
		{
			rule: "mps-supported", name: "not installed", level: rules.Error, path: "hosts",
			says:  []string{"nvidia-cuda-mps-control is not installed", `"gpu01"`},
			build: func() (rules.World, change.Change) { h := shareServer(); h.MPS.Program = ""; return mpsPlan(h, nil)() },
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["gpu01"].MPS.Program = "/usr/bin/nvidia-cuda-mps-control"
			},
		},
		{
			rule: "mps-supported", name: "prohibited", level: rules.Error, path: "selector",
			says: []string{migGPU1, "compute mode prohibited", "nvidia-smi -c DEFAULT"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				h.GPUs[1].ComputeMode = gpu.ComputeProhibited
				return mpsPlan(h, nil)()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["gpu01"] = []string{migGPU0} },
		},
		{
			rule: "mps-supported", name: "percentage 101", level: rules.Error, path: "mps", says: []string{"is 101", "at most 100"}, hostless: true,
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) { c.MPS.ActiveThreadPercentage = 101 })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.ActiveThreadPercentage = 100 },
		},
		{
			rule: "mps-supported", name: "oversubscription below one", level: rules.Error, path: "mps", says: []string{"`oversubscription` is 0.5"},
			hostless: true,
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) { c.MPS.Oversubscription = 0.5 })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.Oversubscription = 1.5 },
		},
		{
			rule: "mps-supported", name: "static partitions of a daemon for several GPUs", level: rules.Error,
			path: "mps", says: []string{"`static_partitions` takes `daemons = \"per_gpu\"`"}, hostless: true,
			build: func() (rules.World, change.Change) {
				return mpsPlan(partitionable(), func(c *gpu.PartitionConfig) { c.MPS.StaticPartitions = true })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.PerGPU = true },
		},
		{
			rule: "mps-supported", name: "static partitions with an old driver", level: rules.Error, path: "mps",
			says: []string{migGPU1, "no static partitions", "R590", "`static_partitions`"},
			build: func() (rules.World, change.Change) {
				h := partitionable()
				h.GPUs[1].Driver.Version = "580.95.05"
				return mpsPlan(h, func(c *gpu.PartitionConfig) { c.MPS.StaticPartitions, c.MPS.PerGPU = true, true })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["gpu01"] = []string{migGPU0} },
		},
		{
			rule: "mps-supported", name: "static partitions of a GPU that does not tell its compute capability",
			level: rules.Error, path: "mps", says: []string{migGPU0, "does not tell the compute capability"},
			build: func() (rules.World, change.Change) {
				h := partitionable()
				h.GPUs[0].ComputeCapability = ""
				return mpsPlan(h, func(c *gpu.PartitionConfig) { c.MPS.StaticPartitions, c.MPS.PerGPU = true, true })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.StaticPartitions = false },
		},
		{
			rule: "mps-supported", name: "static partitions before Ampere", level: rules.Error, path: "mps",
			says: []string{migGPU0, "from Ampere on"},
			build: func() (rules.World, change.Change) {
				h := partitionable()
				h.GPUs[0].ComputeCapability = "7.5"
				return mpsPlan(h, func(c *gpu.PartitionConfig) { c.MPS.StaticPartitions, c.MPS.PerGPU = true, true })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.StaticPartitions = false },
		},
		{
			rule: "mps-supported", name: "compute mode", level: rules.Error, path: "mps", says: []string{`"prohibited"`}, hostless: true,
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) { c.MPS.ComputeMode = gpu.ComputeProhibited })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.ComputeMode = gpu.ComputeDefault },
		},
		{
			rule: "mps-supported", name: "limit that daemons do not take", level: rules.Error, path: "mps",
			says: []string{"is 1536", "1024 or 2048 would do"},
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) { c.MPS.PinnedMemoryLimit = 1536 * gpu.MiB })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.PinnedMemoryLimit = 2048 * gpu.MiB },
		},
		{
			rule: "mps-supported", name: "limit above the GPU", level: rules.Error, path: "mps",
			says: []string{migGPU0, "80.0 GiB", "81.0 GiB", "pinned_memory_limit_mib"},
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) { c.MPS.PinnedMemoryLimit = 81 * gib })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.PinnedMemoryLimit = 80 * gib },
		},
		{
			rule: "mps-supported", name: "limit above the instance", level: rules.Error, path: "mig.mps",
			says: []string{"in its smallest instance", "9.8 GiB"},
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) {
					c.Kind, c.MIG, c.MPS.PinnedMemoryLimit = gpu.KindMIG, ptr(profiles("1g.10gb", 7)), 20*gib
				})()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MIG.Profiles = map[string]int{"3g.40gb": 2} },
		},
		{
			rule: "mps-not-on-mig-gpu", name: "MPS", level: rules.Error, path: "selector",
			says:  []string{migGPU1, "is in MIG mode", "mps = { ... }"},
			build: mpsPlan(shareServer(freeGPU(migGPU0), h100(migGPU1, at("3g.40gb", 0))), nil),
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Config.Kind, p.Want.Config.MIG = gpu.KindMIG, ptr(profiles("3g.40gb", 1))
			},
		},
		{
			rule: "mps-not-on-mig-gpu", name: "time-slicing, from the next reset on", level: rules.Error,
			path: "selector", says: []string{migGPU1, "time_slicing = { ... }"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				h.GPUs[1].MIG.Pending = true
				return world(h), create("t", slicesConfig("ml", 4, "gpu01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].GPUs[1].MIG.Pending = false },
		},
		{
			rule: "mps-one-user", name: "nobody is named", level: rules.Error, path: "mps", says: []string{"Neither `uid` nor `multi_user`"},
			hostless: true,
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) { c.MPS.MultiUser = false })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.User = ptr(1000) },
		},
		{
			rule: "mps-one-user", name: "both", level: rules.Error, path: "mig.mps", says: []string{"Both `uid` and `multi_user`"}, hostless: true,
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) {
					c.Kind, c.MPS.User, c.MIG = gpu.KindMIG, ptr(0), ptr(profiles("1g.10gb", 7))
				})()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.MultiUser = false },
		},
		{
			rule: "mps-one-user", name: "below zero", level: rules.Error, path: "mps", says: []string{"`uid` is -1"}, hostless: true,
			build: func() (rules.World, change.Change) {
				return mpsPlan(shareServer(), func(c *gpu.PartitionConfig) { c.MPS.User, c.MPS.MultiUser = ptr(-1), false })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.User = ptr(0) },
		},
		{
			rule: "mps-in-use", name: "a process beside MPS", level: rules.Error, path: "selector", change: true,
			says: []string{migGPU1, "process 4711 (python, container 3f2a)", "No process is ever killed"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				runsIn(&h.GPUs[1], 0, 4711)
				return mpsPlan(h, nil)()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.ComputeMode = gpu.ComputeDefault },
		},
		{
			rule: "mps-in-use", name: "a daemon of somebody else", level: rules.Error, path: "selector",
			change: true, says: []string{"the MPS control daemon of somebody else (process 100)"},
			build:   func() (rules.World, change.Change) { return mpsPlan(served(shareServer(), ""), nil)() },
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].MPS.Daemons[0].Name = "ml" },
		},
		{
			rule: "mps-in-use", name: "clients would end", level: rules.Error, path: "max_disruption", change: true,
			says: []string{"1 client", `"ml" (restart)`, "process 4711 (python, container 3f2a)", "process_restart"},
			build: func() (rules.World, change.Change) {
				return mpsPlan(served(shareServer(), "ml"), func(c *gpu.PartitionConfig) { c.MPS.User, c.MPS.MultiUser = ptr(2000), false })()
			},
			satisfy: func(_ *rules.World, p *change.Change) { // a daemon takes a limit as it runs
				m := p.Want.Config.MPS
				m.User, m.MultiUser, m.ActiveThreadPercentage = nil, true, 25
			},
		},
		{
			rule: "mps-in-use", name: "clients of a killed daemon's servers would end", level: rules.Error, path: "max_disruption", change: true,
			says: []string{"1 client", `"ml" (start)`, "process 4711 (python, container 3f2a)", "process_restart"},
			build: func() (rules.World, change.Change) {
				h := served(shareServer(), "ml")
				h.MPS.Daemons[0].PID = 0
				return mpsPlan(h, nil)()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MaxDisruption = gpu.DisruptProcessRestart },
		},
		{
			rule: "mps-in-use", name: "clients would end with the config", level: rules.Error, path: "max_disruption",
			change: true, says: []string{`"ml" (remove)`, "on_destroy"},
			build: func() (rules.World, change.Change) {
				w := mpsConfig("ml", "gpu01")
				w.Config.Restore = true
				return world(laidOut(served(shareServer(), "ml"), w)), change.Change{Subject: "x", Token: "claim-ml", Prior: w}
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Prior.Config.Restore = false },
		},
		{
			rule: "gpu-kept-initialized", name: "the compute mode of MPS", level: rules.Warning, path: "selector",
			says: []string{
				migGPU1 + " (NVIDIA H100 80GB HBM3) on host \"gpu01\" is not in persistence mode", "compute mode exclusive_process",
				"past MPS", "nvidia-persistenced --persistence-mode",
			},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				h.GPUs[0].Persistence, h.GPUs[1].Persistence = new(true), new(false)
				return mpsPlan(h, nil)()
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MPS.ComputeMode = gpu.ComputeDefault },
		},
		{
			rule: "gpu-kept-initialized", name: "a time slice", level: rules.Warning, path: "selector", says: []string{migGPU0, "time slice long"},
			build: func() (rules.World, change.Change) {
				h, w := shareServer(), slicesConfig("ml", 4, "gpu01")
				h.GPUs[0].Persistence, w.Config.TimeSlicing.Interval = new(false), gpu.TimeSliceLong
				return world(h), create("t", w)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].GPUs[0].Persistence = new(true) },
		},
		{
			rule: "time-slicing-no-isolation", name: "a config", level: rules.Warning, path: "time_slicing",
			says: []string{"4 shares take turns"}, hostless: true,
			build: func() (rules.World, change.Change) {
				return world(shareServer()), create("t", slicesConfig("ml", 4, "gpu01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = mpsConfig("ml", "gpu01") },
		},
		{
			rule: "time-slicing-no-isolation", name: "a limit that nothing holds", level: rules.Warning,
			path: "memory", says: []string{migGPU0, "driver 580.82.07", "20.0 GiB"},
			build: func() (rules.World, change.Change) {
				return world(laidOut(shareServer(), slicesConfig("ml", 4, "gpu01"))), shareP(share("a", 20*gib))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				h := w.Hosts["gpu01"]
				h.ContainerToolkit, h.GPUs[0].Driver.Version, h.GPUs[1].Driver.Version = "1.20.1", "615.10", "615.10"
			},
		},
		{
			rule: "gpu-vm-xor-share", name: "MPS on a GPU with vGPUs", level: rules.Error, path: "selector",
			says: []string{migGPU1, "vgpu:1xL40S-12Q"},
			build: func() (rules.World, change.Change) {
				return world(shareServer(l40s(migGPU0), l40s(migGPU1, q12))), create("t", mpsConfig("ml", "gpu01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["gpu01"] = []string{migGPU0} },
		},
		{
			rule: "gpu-vm-xor-share", name: "time-slicing on a GPU for passthrough", level: rules.Error,
			path: "selector", says: []string{migGPU1, "passthrough to a VM"},
			build: func() (rules.World, change.Change) {
				h := shareServer()
				h.GPUs[1].Dismounted = true
				return world(h), create("t", slicesConfig("ml", 2, "gpu01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["gpu01"].GPUs[1].Dismounted = false },
		},
	}
}
