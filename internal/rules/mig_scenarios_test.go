package rules_test

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// GPUs of the hosts that gpuServer makes.
const (
	migGPU0 = "GPU-00000000-0000-4000-8000-000000000000"
	migGPU1 = "GPU-00000000-0000-4000-8000-000000000001"
)

func at(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

// h100 is an NVIDIA H100 in MIG mode with instances, of which the driver lists ids from
// one on.
func h100(id string, instances ...gpu.MIGPlacement) gpu.GPU {
	g := gpu.GPU{
		ID: id, Model: "NVIDIA H100 80GB HBM3", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "2330"},
		VRAM: 80 * 1024 * gpu.MiB, Driver: gpu.Driver{Version: "580.82.07"}, MIG: &gpu.MIG{Enabled: true, Pending: true},
	}
	g.MIG.Profiles = placement.MIGProfiles(&g)
	for i, p := range instances {
		profile, _ := g.MIG.Profile(p.Profile)
		g.MIG.Instances = append(g.MIG.Instances, gpu.GPUInstance{
			ID: i + 1, Profile: p.Profile, Start: p.Start, Size: profile.Size, Memory: profile.Memory,
			Compute: []gpu.ComputeInstance{{UUID: fmt.Sprintf("MIG-%s-%d", id, i), Slices: profile.Slices}},
		})
	}
	return g
}

// migOff turns MIG mode off.
func migOff(g gpu.GPU) gpu.GPU {
	g.MIG.Enabled, g.MIG.Pending, g.MIG.Instances = false, false, nil
	return g
}

// ampere turns a GPU into an A100, whose mode changes with a reset.
func ampere(g gpu.GPU) gpu.GPU {
	g.Model, g.PCI.Device, g.MIG.NeedsReset = "NVIDIA A100-SXM4-80GB", "20B2", true
	return g
}

// runsIn lets a process run in an instance, or on the GPU beside them with 0.
func runsIn(g *gpu.GPU, instance, pid int) {
	p := gpu.Process{PID: pid, Name: "python", Holder: "container 3f2a"}
	if instance > 0 {
		p.GPUInstance = &instance
	}
	g.Processes = append(g.Processes, p)
}

// gpuServer is a Linux host.
func gpuServer(name string, gpus ...gpu.GPU) *gpu.Host {
	return &gpu.Host{Name: name, Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04"}, GPUs: gpus}
}

// migConfig covers both GPUs of hosts.
func migConfig(id string, l gpu.MIGLayout, hosts ...string) gpu.Want {
	gpus := map[string][]string{}
	for _, h := range hosts {
		gpus[h] = []string{migGPU0, migGPU1}
	}
	return gpu.Want{Config: &gpu.PartitionConfig{ID: id, Kind: gpu.KindMIG, Name: id, MIG: &l, GPUs: gpus, Scope: gpu.Scope{Hosts: hosts}}}
}

func profiles(name string, n int) gpu.MIGLayout {
	return gpu.MIGLayout{Profiles: map[string]int{name: n}}
}

func migScenarios() []scenario {
	return []scenario{
		{
			rule: "kind-on-platform", name: "gpu_p on Linux", level: rules.Error, path: "hosts",
			says: []string{`"hgx01" is a Linux host`, "with `mig`"},
			build: func() (rules.World, change.Change) {
				w := config("vdi", 4, "hgx01")
				w.Config.GPUs["hgx01"] = nil
				return world(gpuServer("hgx01", h100(migGPU0))), create("t", w)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hgx01"] = host("hgx01") },
		},
		{
			rule: "kind-on-platform", name: "mig on Hyper-V", level: rules.Error, path: "hosts",
			says: []string{`"hv01" is a Hyper-V host`, "with `gpu_p`"},
			build: func() (rules.World, change.Change) {
				w := migConfig("ml", profiles("3g.40gb", 1), "hv01")
				w.Config.GPUs["hv01"] = nil
				return world(host("hv01")), create("t", w)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"] = gpuServer("hv01", h100(migGPU0), h100(migGPU1))
			},
		},
		{
			rule: "kind-on-platform", name: "a VM on Linux", level: rules.Error, path: "vm",
			says: []string{"VMs of Linux hosts get vGPUs"},
			build: func() (rules.World, change.Change) {
				h := gpuServer("kvm01", h100(migGPU0))
				h.VMs = []gpu.VM{vm("a", gpu.VMOff)}
				return world(h), create("t", fromPool("a", "kvm01", "kvm01/dda", "dda"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].Platform = gpu.HyperV },
		},
		{
			rule: "nothing-selected", name: "no MIG", level: rules.Error, path: "hosts",
			says: []string{"its driver offers no MIG", "wants GPUs with MIG"},
			build: func() (rules.World, change.Change) {
				g := h100(migGPU0)
				g.MIG = nil
				w := migConfig("ml", profiles("3g.40gb", 1), "hgx01")
				w.Config.GPUs["hgx01"] = nil
				return world(gpuServer("hgx01", g)), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hgx01"] = []string{migGPU0} },
		},
		{
			rule: "known-config", name: "of kind mig", level: rules.Error, path: "partition.config", says: []string{"is of kind `mig`"},
			build: func() (rules.World, change.Change) {
				p := partition("a", "hv01")
				p.Assignment.Partition.Config = "ml"
				w := world(host("hv01", vm("a", gpu.VMOff)))
				put(&w, "c", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "c", config("ml", 4, "hv01")) },
		},
		{
			rule: "homogeneous-gpus", name: "MIG on unlike models", level: rules.Warning, path: "selector",
			says: []string{"A100-SXM4-80GB", "profile of the same name"},
			build: func() (rules.World, change.Change) {
				return world(gpuServer("hgx01", h100(migGPU0), ampere(h100(migGPU1)))), create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hgx01"].GPUs[1] = h100(migGPU1) },
		},
		{
			rule: "foreign-controller", name: "a device plugin", level: rules.Warning, path: "hosts",
			says: []string{"k8s-device-plugin", "restart the software"}, change: true,
			build: func() (rules.World, change.Change) {
				h := gpuServer("hgx01", h100(migGPU0), h100(migGPU1))
				h.Controllers = []gpu.Controller{{Name: "k8s-device-plugin", Role: gpu.ConsumerController}}
				return world(h), create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				for i, id := range []string{migGPU0, migGPU1} {
					w.Hosts["hgx01"].GPUs[i] = h100(id, at("3g.40gb", 4))
				}
			},
		},
		{
			rule: "foreign-controller", name: "slurmd and MIG mode without instances", level: rules.Warning, path: "hosts",
			says: []string{"slurmd", "restart the software", "AutoDetect=nvml", `strategy "single"`, "ConstrainDevices=yes"}, change: true,
			build: func() (rules.World, change.Change) {
				h := gpuServer("hgx01", h100(migGPU0, at("3g.40gb", 4)))
				h.Controllers = []gpu.Controller{{Name: "slurmd", Role: gpu.ConsumerController}}
				return world(h), create("t", migConfig("ml", profiles("3g.40gb", 0), "hgx01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hgx01"].GPUs[0] = h100(migGPU0) },
		},
		{
			rule: "mig-profile-supported", name: "no MIG", level: rules.Error, path: "selector", says: []string{migGPU1, "offers no MIG"},
			build: func() (rules.World, change.Change) {
				g := h100(migGPU1)
				g.MIG = nil
				return world(gpuServer("hgx01", h100(migGPU0), g)), create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hgx01"] = []string{migGPU0} },
		},
		{
			rule: "mig-profile-supported", name: "another model's profile", level: rules.Error, path: "mig",
			says: []string{migGPU0, migGPU1, `"hgx01"`, "There is no profile 3g.20gb", "3g.40gb", "7g.80gb", "1 × 3g.20gb"},
			build: func() (rules.World, change.Change) {
				return world(gpuServer("hgx01", h100(migGPU0), h100(migGPU1))), create("t", migConfig("ml", profiles("3g.20gb", 1), "hgx01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MIG.Profiles = map[string]int{"3g.40gb": 1} },
		},
		{
			rule: "mig-profile-supported", name: "documented, no host can be asked", level: rules.Warning, path: "mig", hostless: true,
			says: []string{"The hosts cannot be asked", "NVIDIA H200", "3g.71gb"},
			build: func() (rules.World, change.Change) {
				w := migConfig("ml", profiles("3g.40gb", 1), "hgx01")
				w.Config.GPUs, w.Config.Scope.Selector = nil, &gpu.Selector{Models: []string{"H200"}}
				return world(), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MIG.Profiles = map[string]int{"3g.71gb": 1} },
			change:  true,
		},
		{
			rule: "mig-placement", name: "documented, no host can be asked", level: rules.Error, path: "mig", hostless: true,
			says: []string{"The hosts cannot be asked", "the GPU takes 2 at most", "Write at most 2 for 3g.40gb"},
			build: func() (rules.World, change.Change) {
				w := migConfig("ml", profiles("3g.40gb", 3), "hgx01")
				w.Config.GPUs, w.Config.Scope.Selector = nil, &gpu.Selector{Models: []string{"A100-SXM4-80GB"}}
				return world(), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MIG.Profiles = map[string]int{"3g.40gb": 2} },
			change:  true,
		},
		{
			rule: "mig-placement", name: "too many", level: rules.Error, path: "mig", says: []string{"the GPU takes 2 at most", migGPU0, migGPU1},
			build: func() (rules.World, change.Change) {
				return world(gpuServer("hgx01", h100(migGPU0), h100(migGPU1))), create("t", migConfig("ml", profiles("3g.40gb", 3), "hgx01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MIG.Profiles = map[string]int{"3g.40gb": 2} },
		},
		{
			rule: "mig-placement", name: "overlap", level: rules.Error, path: "mig", says: []string{"overlap", "3g.40gb@4+1g.10gb@6"},
			build: func() (rules.World, change.Change) {
				l := gpu.MIGLayout{Placements: []gpu.MIGPlacement{at("3g.40gb", 4), at("1g.10gb", 6)}}
				return world(gpuServer("hgx01", h100(migGPU0), h100(migGPU1))), create("t", migConfig("ml", l, "hgx01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Config.MIG.Placements = []gpu.MIGPlacement{at("3g.40gb", 4)}
			},
		},
		{
			rule: "mig-placement", name: "in use", level: rules.Error, path: "mig", change: true,
			says: []string{migGPU1, "1g.10gb at 4", "process 4711 (python, container 3f2a)", "keep them in the layout"},
			build: func() (rules.World, change.Change) {
				busy := h100(migGPU1, at("1g.10gb", 4))
				runsIn(&busy, 1, 4711)
				return world(gpuServer("hgx01", h100(migGPU0), busy)), create("t", migConfig("ml", profiles("7g.80gb", 1), "hgx01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hgx01"].GPUs[1].Processes = nil },
		},
		{
			rule: "mig-mode", name: "used", level: rules.Error, path: "mig", change: true,
			says: []string{migGPU0, "process 4711 (python, container 3f2a)", "`quiesce_units`"},
			build: func() (rules.World, change.Change) {
				busy := migOff(h100(migGPU0))
				runsIn(&busy, 0, 4711)
				return world(gpuServer("hgx01", busy, h100(migGPU1))), create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
			},
			satisfy: func(w *rules.World, p *change.Change) {
				w.Hosts["hgx01"].GPUs[0].Processes[0].Holder = "unit nvidia-dcgm.service"
				p.Want.Config.QuiesceUnits = []string{"nvidia-dcgm"}
			},
		},
		{
			rule: "mig-mode", name: "a reset", level: rules.Error, path: "max_disruption", change: true,
			says: []string{migGPU1, "only with a reset", `"none" only`},
			build: func() (rules.World, change.Change) {
				h := gpuServer("hgx01", ampere(h100(migGPU0)), migOff(ampere(h100(migGPU1))))
				return world(h), create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MaxDisruption = gpu.DisruptGPUReset },
		},
		{
			rule: "mig-mode", name: "a service that watches", level: rules.Warning, path: "quiesce_units", change: true,
			says: []string{`"nvidia-dcgm.service" runs, which watches GPUs`},
			build: func() (rules.World, change.Change) {
				h := gpuServer("hgx01", migOff(ampere(h100(migGPU0))), ampere(h100(migGPU1)))
				h.Units = []string{"nvidia-dcgm.service", "sshd.service"}
				p := create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
				p.Want.Config.MaxDisruption = gpu.DisruptGPUReset
				return world(h), p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.QuiesceUnits = []string{"nvidia-dcgm"} },
		},
		{
			rule: "mig-mode", name: "a former layout in use", level: rules.Error, path: "on_destroy", change: true,
			says: []string{migGPU1, "process 4711", "no MIG mode before"},
			build: func() (rules.World, change.Change) {
				busy := h100(migGPU1, at("3g.40gb", 4))
				runsIn(&busy, 1, 4711)
				h := gpuServer("hgx01", h100(migGPU0, at("3g.40gb", 4)), busy)
				h.Claims = []gpu.Claim{{
					Kind: gpu.ClaimConfig, ID: "ml", Token: "t", Owner: "vdi", GPUs: []string{migGPU0, migGPU1},
					OriginalLayouts: gpu.Layouts{migGPU0: {MIG: &gpu.MIGState{}}, migGPU1: {MIG: &gpu.MIGState{}}},
				}}
				p := create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01"))
				p.Prior = migConfig("ml", profiles("3g.40gb", 1), "hgx01")
				p.Want.Config.GPUs, p.Want.Config.Restore = map[string][]string{"hgx01": {migGPU0}}, true
				return world(h), p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Restore = false },
		},
	}
}
