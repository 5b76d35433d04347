package rules_test

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// a10 turns a GPU into another model of the same family.
func a10(g *gpu.GPU) {
	g.Model, g.PCI, g.VRAM = "NVIDIA A10", gpu.PCIID{Vendor: "10DE", Device: "2236"}, 24*1024*gpu.MiB
}

// t4 turns a GPU into a model of another family.
func t4(g *gpu.GPU) {
	g.Model, g.PCI, g.VRAM = "NVIDIA T4", gpu.PCIID{Vendor: "10DE", Device: "1EB8"}, 16*1024*gpu.MiB
}

// oneIsOlder are what agents of hosts lack of what is new: draining.
type oneIsOlder map[string][]string

func (oneIsOlder) Asks(c change.Change) []string {
	for _, w := range []gpu.Want{c.Want, c.Prior} {
		if w.Config != nil && w.Config.Drain {
			return []string{"want.partition_config.drain"}
		}
	}
	return nil
}

func (o oneIsOlder) Lacks(host string) (fields []string, version string) { return o[host], "1.0.0" }

func put(w *rules.World, token string, want gpu.Want) { w.Others.Put(token, create(token, want)) }

func scenarios() []scenario {
	var all []scenario
	all = append(all, existenceScenarios()...)
	all = append(all, exclusiveScenarios()...)
	all = append(all, hardwareScenarios()...)
	all = append(all, capacityScenarios()...)
	all = append(all, powerScenarios()...)
	all = append(all, maintenanceWindowScenarios()...)
	all = append(all, vmScenarios()...)
	all = append(all, migScenarios()...)
	all = append(all, vgpuScenarios()...)
	all = append(all, vgpuVMScenarios()...)
	all = append(all, libvirtScenarios()...)
	all = append(all, mpsScenarios()...)
	all = append(all, shareScenarios()...)
	all = append(all, underSharesScenarios()...)
	all = append(all, linuxPoolScenarios()...)
	all = append(all, feasibleScenarios()...)
	return all
}

func existenceScenarios() []scenario {
	return []scenario{
		{
			rule: "gpu-exists", name: "pool member", level: rules.Error, path: "members", says: []string{"PCIROOT(99)", gpu0, `"hv01"`, "NVIDIA A2"},
			build: func() (rules.World, change.Change) {
				p := pool("p", "hv01")
				p.Pool.Members["hv01"] = []string{"PCIROOT(99)"}
				return world(host("hv01")), create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Members["hv01"] = []string{gpu1} },
		},
		{
			rule: "gpu-exists", name: "by an index", level: rules.Error, path: "members",
			says: []string{"Write " + gpu1 + " for 1, which is the index of that GPU."},
			build: func() (rules.World, change.Change) {
				p := pool("p", "hv01")
				p.Pool.Members["hv01"] = []string{"1"}
				return world(host("hv01")), create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Members["hv01"] = []string{gpu1} },
		},
		{
			rule: "gpu-exists", name: "pinned", level: rules.Error, path: "partition.gpu_id", says: []string{"PCIROOT(99)"},
			build: func() (rules.World, change.Change) {
				p := partition("a", "hv01")
				p.Assignment.Partition.PinnedGPU = "PCIROOT(99)"
				return world(host("hv01", vm("a", gpu.VMOff))), create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Partition.PinnedGPU = "pciroot(16)#pci(0000)#pci(0000)"
			},
		},
		{
			rule: "readable", name: "GPU", level: rules.Error, path: "selector", says: []string{gpu0, "its query (0x80041003)", `"hv01"`},
			change: true,
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.GPUs[0].Partitionable = nil
				h.Unknown = []gpu.Unknown{{Part: gpu.PartGPUs, GPU: gpu0, Why: "its query (0x80041003)"}}
				return world(h), create("t", config("vdi", 8, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv01"] = []string{gpu1} },
		},
		{
			rule: "readable", name: "who holds partitions", level: rules.Error, path: "selector", says: []string{"Msvm_GpuPartition"}, change: true,
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.Unknown = []gpu.Unknown{{Part: gpu.PartPartitions, Why: "Msvm_GpuPartition (0x80041001)"}}
				return world(h), create("t", config("vdi", 8, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Count = 4 },
		},
		{
			rule: "readable", name: "pools", level: rules.Error, path: "members", says: []string{"Msvm_ResourcePool"}, change: true,
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.Unknown = []gpu.Unknown{{Part: gpu.PartPools, Why: "Msvm_ResourcePool (0x80041001)"}}
				return world(h), create("t", pool("p", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Unknown[0].Part = gpu.PartHost },
		},
		{
			rule: "readable", name: "VM", level: rules.Error, path: "vm", says: []string{"ID-a", "Msvm_VirtualSystemSettingData"}, change: true,
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff), vm("b", gpu.VMOff))
				h.Unknown = []gpu.Unknown{{Part: gpu.PartVMs, VM: "ID-a", Why: "Msvm_VirtualSystemSettingData (0x80041001)"}}
				return world(h), create("t", partition("a", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Unknown[0].VM = "ID-b" },
		},
		{
			rule: "nothing-selected", name: "one host", level: rules.Error, path: "selector",
			says: []string{`"hv02"`, "in pool \"dda\"", "dismounted from the host"},
			build: func() (rules.World, change.Change) {
				h := host("hv02")
				h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
				h.GPUs[1].Dismounted = true
				p := config("vdi", 4, "hv01", "hv02")
				p.Config.GPUs["hv02"] = nil
				return world(host("hv01"), h), create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv02"] = []string{gpu1} },
		},
		{
			rule: "known-config", name: "neither planned nor claimed", level: rules.Error, path: "partition.config", says: []string{`"nope"`},
			build: func() (rules.World, change.Change) {
				p := partition("a", "hv01")
				p.Assignment.Partition.Config = "nope"
				return world(host("hv01", vm("a", gpu.VMOff))), create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "c", config("nope", 4, "hv01")) },
		},
		{
			rule: "known-config", name: "destroyed in this run", level: rules.Error, path: "partition.config",
			says: []string{"is destroyed in this run."},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				claimConfig(h, "vdi", "vdi", 4, gpu0)
				w := world(h)
				w.Others.Put("claim-vdi", change.Change{Subject: "c", Prior: config("vdi", 4, "hv01")})
				p := partition("a", "hv01")
				p.Assignment.Partition.Config = "vdi"
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("claim-vdi") },
		},
		{
			rule: "known-pool", name: "neither planned nor there", level: rules.Error, path: "pool.id", says: []string{`"hv01/nope"`},
			build: func() (rules.World, change.Change) {
				return world(host("hv01", vm("a", gpu.VMOff))), create("t", fromPool("a", "hv01", "hv01/nope", "nope"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "p", pool("nope", "hv01")) },
		},
		{
			rule: "unique-name", name: "two configs", level: rules.Error, path: "name", says: []string{`"vdi"`, "-refresh=false"}, hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"), host("hv02"))
				put(&w, "o", config("VDI", 4, "hv02"))
				return w, create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("o") },
		},
		{
			rule: "unique-name", name: "two pools on one host", level: rules.Error, path: "name", hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"))
				o := pool("dda", "hv01")
				o.Pool.ID, o.Pool.Members["hv01"] = "other", []string{gpu1}
				put(&w, "o", o)
				return w, create("t", pool("DDA", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				o := pool("dda", "hv02")
				put(w, "o", o)
			},
		},
		{
			rule: "unique-name", name: "two pool assignments for one VM", level: rules.Error, path: "vm", hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(host("hv01", vm("a", gpu.VMOff)))
				put(&w, "o", device("A", "hv01", "hv01", gpu1))
				return w, create("t", fromPool("a", "hv01", "hv01/p", "p"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "o", device("b", "hv01", "hv01", gpu1)) },
		},
		{
			rule: "readable-records", name: "damaged", level: rules.Error, path: "hosts", change: true,
			says: []string{"Record 2 (claim)", "state.json", "checksum", "gpu-agent records"},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.Unreadable = []gpu.UnreadableRecord{{ID: "3fa9", File: "state.json", Record: "record 2 (claim)", Found: "its checksum is wrong"}}
				return world(h), create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Unreadable = nil },
		},
		{
			rule: "agent-knows", name: "an older agent", level: rules.Error, path: "hosts", change: true,
			says: []string{`"hv01"`, "version 1.0.0", `"partition_config.drain"`, "Upgrade gpu-agent"},
			build: func() (rules.World, change.Change) {
				w, c := world(host("hv01"), host("hv02")), config("vdi", 4, "hv01", "hv02")
				w.Agents, c.Config.Drain = oneIsOlder{"hv01": {"want.partition_config.drain", "want.share"}}, true
				return w, create("t", c)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Drain = false },
		},
		{
			rule: "agent-knows", name: "a destroy", level: rules.Error, path: "hosts", change: true, says: []string{`"hv01"`},
			build: func() (rules.World, change.Change) {
				h, c := host("hv01"), config("vdi", 4, "hv01")
				claimConfig(h, "vdi", "vdi", 4, gpu0)
				w := world(h)
				w.Agents, c.Config.Drain = oneIsOlder{"hv01": {"want.partition_config.drain"}}, true
				p := create("claim-vdi", c)
				p.Want, p.Prior = gpu.Want{}, c
				return w, p
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Agents = nil },
		},
		{
			rule: "existing-pool", name: "unmanaged", level: rules.Error, path: "name", says: []string{"terraform import ADDRESS hv01/DDA"},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.Pools = []gpu.Pool{{Name: "DDA"}}
				return world(h), create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"].Claims = []gpu.Claim{{Kind: gpu.ClaimPool, ID: "dda", Token: "old", Owner: "vdi"}}
			},
		},
		{
			rule: "not-our-claim", firm: true, name: "VM", level: rules.Error, path: "vm", says: []string{`"platform"`, "VM \"a\""},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				claimVM(h, "platform", "a", gpu.Assignment{})
				return world(h), create("t", partition("a", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Owner = "platform" },
		},
		{
			rule: "not-our-claim", firm: true, name: "nobody has a name", level: rules.Error, path: "vm", says: []string{"two applies", "`owner`"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				claimVM(h, "", "a", gpu.Assignment{})
				w := world(h)
				w.Owner = ""
				return w, create("t", partition("a", "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Token = "claim-a" },
		},
		{
			rule: "not-our-claim", firm: true, name: "pool", level: rules.Error, path: "name", says: []string{`"platform"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.Claims = []gpu.Claim{{Kind: gpu.ClaimPool, ID: "dda", Token: "x", Owner: "platform"}}
				return world(h), create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "x", pool("other", "hv02")) },
		},
	}
}

func exclusiveScenarios() []scenario {
	return []scenario{
		{
			rule: "single-partition-per-vm", name: "two plans", level: rules.Error, path: "vm", says: []string{"avd-02"}, hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(host("hv01", vm("avd-02", gpu.VMOff)))
				put(&w, "o", partition("AVD-02", "hv01"))
				return w, create("t", partition("avd-02", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "o", partition("avd-03", "hv01")) },
		},
		{
			rule: "single-partition-per-vm", name: "same name, other VM", level: rules.Error, path: "vm", hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(host("hv01", vm("a", gpu.VMOff)), host("hv02"))
				put(&w, "o", partition("a", ""))
				return w, create("t", partition("a", "hv01"))
			},
			// Now two VMs have the name, and it proves nothing.
			satisfy: func(w *rules.World, _ *change.Change) {
				other := vm("a", gpu.VMOff)
				other.ID = "ID-2"
				w.Hosts["hv02"].VMs = []gpu.VM{other}
			},
		},
		{
			rule: "single-partition-per-vm", name: "foreign holder", level: rules.Error, path: "vm",
			says: []string{"avd-02", "no Terraform resource manages", "terraform import ADDRESS ID-avd-02"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("avd-02", gpu.VMOff))
				holds(h, "avd-02", 0)
				return world(h), create("t", partition("avd-02", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { claimVM(w.Hosts["hv01"], "vdi", "avd-02", gpu.Assignment{}) },
		},
		{
			rule: "single-partition-per-vm", name: "another state's holder", level: rules.Error, path: "vm", says: []string{`"platform"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimVM(h, "platform", "a", gpu.Assignment{})
				return world(h), create("t", partition("a", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].VMs[0].PartitionAdapters = nil },
		},
		{
			rule: "single-partition-per-vm", name: "one of ours and a foreign one", level: rules.Error, path: "vm",
			says: []string{"2 GPU partition adapters"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				holds(h, "a", 0)
				holds(h, "a", 0)
				claimVM(h, "vdi", "a", gpu.Assignment{})
				return world(h), create("t", partition("a", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"].VMs[0].PartitionAdapters = w.Hosts["hv01"].VMs[0].PartitionAdapters[:1]
			},
		},
		{
			rule: "dda-xor-partition", name: "config and pool in one run", level: rules.Error, path: "selector",
			says: []string{gpu0, "NVIDIA A2", `"hv01"`},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"))
				put(&w, "o", pool("dda", "hv01"))
				return w, create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv01"] = []string{gpu1} },
		},
		{
			rule: "dda-xor-partition", name: "pool and config in one run", level: rules.Error, path: "members",
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"))
				put(&w, "o", config("vdi", 4, "hv01"))
				return w, create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("o") },
		},
		{
			rule: "dda-xor-partition", name: "config on a pool's GPU", level: rules.Error, path: "selector", says: []string{`pool "dda"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
				return world(h), create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Pools = nil },
		},
		{
			rule: "dda-xor-partition", name: "device that VMs hold partitions of", level: rules.Error, path: "device.gpu_ids", says: []string{`"b"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff), vm("b", gpu.VMRunning))
				holds(h, "b", 0)
				return world(h), create("t", device("a", "hv01", "hv01", gpu0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Device.GPUIDs = []string{gpu1} },
		},
		{
			rule: "dda-xor-partition", name: "pool on another state's config", level: rules.Error, path: "members", says: []string{`"platform"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				claimConfig(h, "platform", "theirs", 4, gpu0)
				return world(h), create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Others.Put("claim-theirs", change.Change{Prior: config("theirs", 4, "hv01")})
			},
		},
		{
			rule: "dda-xor-partition", name: "pool on a config of this state that is not planned yet", level: rules.Warning, path: "members",
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				claimConfig(h, "vdi", "ours", 4, gpu0)
				return world(h), create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Others.Put("claim-ours", change.Change{Prior: config("ours", 4, "hv01")})
			},
		},
		{
			rule: "dda-xor-partition", name: "a partition and a pool for one VM", level: rules.Error, path: "vm", hostless: true,
			build: func() (rules.World, change.Change) {
				w := world(host("hv01", vm("a", gpu.VMOff)))
				put(&w, "o", fromPool("a", "hv01", "hv01/p", "p"))
				return w, create("t", partition("a", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("o") },
		},
		{
			rule: "one-config-per-gpu", name: "two plans", level: rules.Error, path: "selector", says: []string{gpu0, gpu1},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"))
				put(&w, "o", config("other", 4, "hv01"))
				return w, create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "o", config("other", 4, "hv02")) },
		},
		{
			rule: "one-config-per-gpu", name: "another state", level: rules.Error, path: "selector", says: []string{`"platform"`, `"theirs"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				claimConfig(h, "platform", "theirs", 4, gpu0)
				return world(h), create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Claims[0].Owner = "vdi" },
		},
		{
			rule: "one-config-per-gpu", name: "a state without a name", level: rules.Error, path: "selector", says: []string{"no owner name"},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				claimConfig(h, "", "theirs", 4, gpu0)
				return world(h), create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv01"] = []string{gpu1} },
		},
	}
}

func hardwareScenarios() []scenario {
	cfg := create("t", config("vdi", 4, "hv01", "hv02"))
	return []scenario{
		{
			rule: "homogeneous-gpus", name: "model", level: rules.Error, path: "selector", says: []string{"NVIDIA A10", "NVIDIA A2", gpu1, `"hv02"`},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"), host("hv02"))
				a10(&w.Hosts["hv02"].GPUs[1])
				return w, create("t", config("vdi", 4, "hv01", "hv02"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv02"] = []string{gpu0} },
		},
		{
			rule: "homogeneous-gpus", name: "family", level: rules.Error, path: "members", says: []string{"NVIDIA T4"},
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01"), host("hv02"), host("hv03"))
				t4(&w.Hosts["hv03"].GPUs[0])
				return w, create("t", pool("dda", "hv01", "hv02", "hv03"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv03"].GPUs[0] = a2(gpu0) },
		},
		{
			rule: "homogeneous-gpus", name: "size", level: rules.Error, path: "selector",
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"), host("hv02"))
				w.Hosts["hv02"].GPUs[1].VRAM = 8 * 1024 * gpu.MiB
				return w, create("t", config("vdi", 4, "hv01", "hv02"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv02"].GPUs[1].VRAM = 15*1024*gpu.MiB - 5*gpu.MiB },
		},
		{
			rule: "homogeneous-gpus", name: "unknown models", level: rules.Error, path: "selector",
			says: []string{"are not alike", "Accel 1", "Accel 2"},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"))
				for i, m := range []string{"Accel 1", "Accel 2"} {
					g := &w.Hosts["hv01"].GPUs[i]
					g.Vendor, g.Model, g.PCI = "Acme", m, gpu.PCIID{Vendor: "ACME", Device: "0001"}
				}
				return w, create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].GPUs[1].Model = "Accel 1" },
		},
		{
			rule: "homogeneous-gpus", name: "driver branch", level: rules.Warning, path: "selector", says: []string{"550", "573"},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"), host("hv02"))
				w.Hosts["hv02"].GPUs[0].Driver.Version = "550.90"
				return w, cfg
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv02"].GPUs[0].Driver.Version = "573.76" },
		},
		{
			rule: "homogeneous-gpus", name: "lost", level: rules.Warning, path: "selector", says: []string{"fallen off the bus"},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"), host("hv02"))
				w.Hosts["hv02"].GPUs[0].Problem = "fallen off the bus"
				return w, cfg
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv02"].GPUs[0].Problem = "" },
		},
		{
			rule: "homogeneous-gpus", name: "neighbour in the cluster", level: rules.Warning, path: "selector",
			says: []string{`"hv02"`, "NVIDIA A10"},
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01"), host("hv02"))
				a10(&w.Hosts["hv02"].GPUs[0])
				return w, create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv02"].Cluster = nil },
		},
		{
			rule: "homogeneous-layout", name: "two plans in one cluster", level: rules.Error, path: "gpu_p.partition_count",
			says: []string{`"clu"`, "4 by", "8 by"},
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01"), host("hv02"))
				put(&w, "o", config("other", 8, "hv02"))
				return w, create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "o", config("other", 4, "hv02")) },
		},
		{
			rule: "homogeneous-layout", name: "uncovered node", level: rules.Warning, path: "gpu_p.partition_count",
			says: []string{`"hv02"`, "4 partitions"},
			build: func() (rules.World, change.Change) {
				return clustered(host("hv01"), host("hv02")), create("t", config("vdi", 8, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = config("vdi", 8, "hv01", "hv02") },
		},
		{
			rule: "foreign-controller", name: "layout", level: rules.Error, path: "hosts", says: []string{"SomeManager"},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.Controllers = []gpu.Controller{{Name: "SomeManager", Role: gpu.LayoutController}}
				return world(h), create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Controllers[0].Role = gpu.ConsumerController },
		},
		{
			rule: "foreign-controller", name: "broker", level: rules.Warning, path: "vm", change: true, says: []string{"SCVMM agent"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.Controllers = []gpu.Controller{{Name: "SCVMM agent", Role: gpu.BrokerController}}
				return world(h), create("t", partition("a", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Controllers = nil },
		},
		{
			rule: "os-build", name: "Windows Server 2022", level: rules.Error, path: "hosts", says: []string{"20348", `"hv02"`},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"), host("hv02"))
				w.Hosts["hv02"].OS.Build = 20348
				return w, create("t", config("vdi", 4, "hv01", "hv02"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv02"].OS.Build = 20349 },
		},
		{
			rule: "os-build", name: "pool in an old cluster", level: rules.Error, path: "members",
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01"))
				w.Hosts["hv01"].OS.Build = 17763
				return w, create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Cluster = nil },
		},
		{
			rule: "gpu-not-paravirtual", name: "config", level: rules.Error, path: "selector", says: []string{"SR-IOV", gpu0},
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.GPUs[0].Partitionable.Paravirtual = true
				return world(h), create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv01"] = []string{gpu1} },
		},
		{
			rule: "gpu-assignable", name: "pool members", level: rules.Error, path: "members",
			says: []string{gpu0, `"hv01"`, "drives the host's own display", `"hv02"`, "status not_assignable"},
			build: func() (rules.World, change.Change) {
				one, two := host("hv01"), host("hv02")
				one.GPUs[0].HostDisplay = true
				two.GPUs[0].Status = gpu.NotAssignable
				return world(one, two), create("t", pool("dda", "hv01", "hv02"))
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Pool.Members["hv01"], p.Want.Pool.Members["hv02"] = []string{gpu1}, []string{gpu1}
			},
		},
		{
			rule: "gpu-assignable", name: "device that does not work", level: rules.Error, path: "device.gpu_ids", says: []string{gpu0, "code 43"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.GPUs[0].Problem, h.GPUs[0].Dismounted = "code 43", true
				return world(h), create("t", device("a", "hv01", "hv01", gpu0))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].GPUs[0].Problem = "" },
		},
		{
			rule: "gpu-assignable", name: "device of the host's console", level: rules.Error, path: "device.gpu_ids",
			says: []string{gpu0, "own display"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.GPUs[0].HostDisplay = true
				return world(h), create("t", device("a", "hv01", "hv01", gpu0))
			},
			// A host that has dismounted it has let go of it.
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].GPUs[0].Dismounted = true },
		},
		{
			rule: "valid-partition-count", name: "refused", level: rules.Error, path: "gpu_p.partition_count",
			says: []string{"1 (about 14.8 GiB each), 2 (about 7.4 GiB each), 4 (3.7 GiB each)", "partition_count = 2 }"},
			build: func() (rules.World, change.Change) {
				return world(host("hv01")), create("t", config("vdi", 3, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Count = 16 },
		},
		{
			rule: "valid-partition-count", name: "not told", level: rules.Error, path: "gpu_p.partition_count",
			says: []string{"does not tell which partition counts"},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01"))
				for i := range w.Hosts["hv01"].GPUs {
					w.Hosts["hv01"].GPUs[i].Partitionable.ValidCounts = nil
				}
				return w, create("t", config("vdi", 8, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Count = 4 },
		},
		{
			rule: "valid-partition-count", name: "no GPU-P driver", level: rules.Error, path: "selector",
			build: func() (rules.World, change.Change) {
				h := host("hv01")
				h.GPUs[1].Partitionable = nil
				return world(h), create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv01"] = []string{gpu0} },
		},
		{
			rule: "live-migration-support", name: "not reported", level: rules.Warning, path: "hosts",
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01"))
				w.Hosts["hv01"].GPUs[0].Partitionable.SupportsIncomingLiveMigration = nil
				return w, create("t", config("vdi", 4, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Cluster = nil },
		},
		{
			rule: "pool-counts", name: "unequal", level: rules.Warning, path: "members", says: []string{`1 GPU on "hv02" and 2 GPUs on "hv01"`},
			build: func() (rules.World, change.Change) {
				p := pool("dda", "hv01", "hv02")
				p.Pool.Members["hv01"] = []string{gpu0, gpu1}
				return clustered(host("hv01"), host("hv02")), create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Pool.Members["hv02"] = []string{gpu0, gpu1} },
		},
	}
}

func capacityScenarios() []scenario {
	// full is a host with one GPU of two partitions, both held by running VMs, and
	// two more VMs.
	full := func(state gpu.VMState) *gpu.Host {
		h := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning), vm("c", state), vm("d", gpu.VMOff))
		h.GPUs = h.GPUs[:1]
		h.GPUs[0].Partitionable.Count = 2
		holds(h, "a", 0)
		holds(h, "b", 0)
		return h
	}
	return []scenario{
		{
			rule: "capacity", name: "no partition left", level: rules.Error, path: "partition", says: []string{`"a" and "b"`, "2 partitions"},
			build: func() (rules.World, change.Change) {
				return world(full(gpu.VMRunning)), create("t", partition("c", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "o", config("vdi", 4, "hv01")) },
		},
		{
			rule: "capacity", name: "others of the run count", level: rules.Error, path: "partition", says: []string{`"b" (planned in this run)`},
			build: func() (rules.World, change.Change) {
				h := full(gpu.VMRunning)
				h.VMs[1].PartitionAdapters = nil
				h.GPUs[0].Partitionable.Partitions = h.GPUs[0].Partitionable.Partitions[:1]
				w := world(h)
				put(&w, "o", partition("b", "hv01"))
				return w, create("t", partition("c", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Others.Delete("o")
			},
		},
		{
			rule: "capacity", name: "a pinned VM that may come too late", level: rules.Error, path: "partition", says: []string{`"b"`, `"c"`, gpu0},
			build: func() (rules.World, change.Change) {
				h := full(gpu.VMRunning)
				for i := range h.VMs {
					h.VMs[i].PartitionAdapters = nil
				}
				h.GPUs = append(h.GPUs, a2(gpu1))
				h.GPUs[0].Partitionable.Partitions, h.GPUs[0].Partitionable.Count = nil, 1
				h.GPUs[1].Partitionable.Count = 1
				w := world(h)
				put(&w, "o", partition("b", "hv01"))
				p := partition("c", "hv01")
				p.Assignment.Partition.PinnedGPU = gpu0
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				p := partition("b", "hv01")
				p.Assignment.Partition.PinnedGPU = gpu1
				put(w, "o", p)
			},
		},
		{
			rule: "capacity", name: "a seat that this run frees", level: rules.Error, path: "partition",
			build: func() (rules.World, change.Change) {
				return world(full(gpu.VMRunning)), create("t", partition("c", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				goes(w, "hv01", "a", partition("a", "hv01"))
			},
		},
		{
			rule: "capacity", name: "configured overcommit", level: rules.Warning, path: "partition",
			build: func() (rules.World, change.Change) {
				return world(full(gpu.VMOff)), create("t", partition("c", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "o", config("vdi", 4, "hv01")) },
		},
		{
			rule: "capacity", name: "config with too few", drift: true, level: rules.Error, path: "gpu_p.partition_count",
			says: []string{`"a" and "b"`},
			build: func() (rules.World, change.Change) {
				return world(full(gpu.VMOff)),
					create("t", gpu.Want{Config: &gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 1, GPUs: map[string][]string{"hv01": {gpu0}}}})
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Count = 2 },
		},
		{
			rule: "capacity", name: "config with too few for pinned VMs", drift: true, level: rules.Error,
			path: "gpu_p.partition_count", says: []string{`"a" and "b" (planned in this run)`, gpu0, "1 partition"},
			build: func() (rules.World, change.Change) {
				h := full(gpu.VMOff)
				h.VMs[0].PartitionAdapters[0].PinnedGPU = gpu0
				h.VMs[1].PartitionAdapters = nil
				h.GPUs[0].Partitionable.Partitions = h.GPUs[0].Partitionable.Partitions[:1]
				h.GPUs = append(h.GPUs, a2(gpu1))
				w := world(h)
				p := partition("b", "hv01")
				p.Assignment.Partition.PinnedGPU = gpu0
				put(&w, "o", p)
				return w, create("t", config("vdi", 1, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Count = 2 },
		},
		{
			rule: "capacity", name: "config with too few for VMs that are off", drift: true, level: rules.Warning,
			path: "gpu_p.partition_count", says: []string{`"a", "b" and "c"`, "2 partitions"},
			build: func() (rules.World, change.Change) {
				h := full(gpu.VMOff)
				holds(h, "c", 0)
				h.GPUs[0].Partitionable.Count = 4
				return world(h),
					create("t", gpu.Want{Config: &gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": {gpu0}}}})
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Count = 4 },
		},
		{
			rule: "capacity", name: "pool", level: rules.Error, path: "pool", says: []string{`"a"`, "1 GPU"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning))
				h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
				h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "d", Pool: "DDA"}}
				return world(h), create("t", fromPool("b", "hv01", "hv01/dda", "dda"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Pools[0].GPUs = []string{gpu0, gpu1} },
		},
		{
			rule: "capacity", name: "pool of VMs that are off", level: rules.Warning, path: "pool",
			says: []string{`"a"`, "1 GPU", "not all of them can run"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff), vm("b", gpu.VMOff))
				h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
				h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "d", Pool: "dda"}}
				return world(h), create("t", fromPool("b", "hv01", "hv01/dda", "dda"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Pools[0].GPUs = []string{gpu0, gpu1} },
		},
		{
			rule: "capacity", name: "pool that shrinks", level: rules.Error, path: "members", says: []string{`"a"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
				h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "d", Pool: "dda"}}
				p := pool("dda", "hv01")
				p.Pool.Members["hv01"] = []string{}
				return world(h), create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				goes(w, "hv01", "a", fromPool("a", "hv01", "hv01/dda", "dda"))
			},
		},
		{
			rule: "capacity", name: "pool with the GPU of a VM", level: rules.Error, path: "members", says: []string{gpu0, `"a"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "D", GPU: gpu0}}
				return world(h), create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				goes(w, "hv01", "a", device("a", "hv01", "hv01", gpu0))
			},
		},
		{
			rule: "capacity", name: "GPU of a pool by itself", level: rules.Error, path: "device.gpu_ids", says: []string{gpu0, `"dda"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
				return world(h), create("t", device("a", "hv01", "hv01", gpu0))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				p := pool("dda", "hv01")
				w.Others.Put("o", change.Change{Subject: label(p), Prior: p})
			},
		},
		{
			rule: "capacity", name: "GPU of a planned pool by itself", level: rules.Error, path: "device.gpu_ids",
			says: []string{"gpu_pool", "both take"},
			build: func() (rules.World, change.Change) {
				w := world(host("hv01", vm("a", gpu.VMRunning)))
				put(&w, "o", pool("dda", "hv01"))
				return w, create("t", device("a", "hv01", "hv01", gpu0))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("o") },
		},
		{
			rule: "capacity", name: "device of another VM", level: rules.Error, path: "device.gpu_ids", says: []string{`VM "a"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff), vm("b", gpu.VMOff))
				h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "d", GPU: gpu0}}
				return world(h), create("t", device("b", "hv01", "hv01", gpu0))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				goes(w, "hv01", "a", device("a", "hv01", "hv01", gpu0))
			},
		},
		{
			rule: "failover-headroom", name: "no room", level: rules.Warning, path: "gpu_p.partition_count",
			says: []string{`host "hv01" fails`, "2 running VMs"},
			build: func() (rules.World, change.Change) {
				h := full(gpu.VMOff)
				h.VMs[0].Clustered, h.VMs[1].Clustered = true, true
				small := host("hv02")
				small.GPUs = small.GPUs[:1]
				small.GPUs[0].Partitionable.Count = 1
				c := gpu.Want{Config: &gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": {gpu0}}}}
				return clustered(h, small), create("t", c)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["hv02"] = []string{gpu0} },
		},
		{
			rule: "failover-headroom", name: "one VM more than fits", level: rules.Warning, path: "partition", change: true,
			says: []string{`a node of cluster "clu" fails`},
			build: func() (rules.World, change.Change) {
				h, small := host("hv01", vm("a", gpu.VMRunning)), host("hv02", vm("b", gpu.VMRunning))
				h.VMs[0].Clustered = true
				small.GPUs = small.GPUs[:1]
				small.GPUs[0].Partitionable.Count = 1
				holds(small, "b", 0)
				p := partition("a", "hv01")
				p.Assignment.Power.AllowShutdown = true
				return clustered(h, small), create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv02"].GPUs[0].Partitionable.Count = 2 },
		},
	}
}

func powerScenarios() []scenario {
	return []scenario{
		{
			rule: "vm-must-be-off", name: "running", level: rules.Error, path: "power", change: true,
			says: []string{"allow_shutdown = true", "next_off", "a partition is added"},
			build: func() (rules.World, change.Change) {
				p := partition("a", "hv01")
				p.Assignment.Power.AllowShutdown = false
				return world(host("hv01", vm("a", gpu.VMRunning))), create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Power.AllowShutdown = true },
		},
		{
			rule: "vm-must-be-off", name: "taken over as it is", level: rules.Error, path: "power", change: true,
			build: func() (rules.World, change.Change) {
				p := partition("a", "hv01")
				p.Assignment.Power.AllowShutdown = false
				return world(host("hv01", vm("a", gpu.VMRunning))), create("t", p)
			},
			// Its resource was renamed.
			satisfy: func(w *rules.World, _ *change.Change) {
				holds(w.Hosts["hv01"], "a", 0)
				claimVM(w.Hosts["hv01"], "vdi", "a", gpu.Assignment{Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{}})
			},
		},
		{
			rule: "vm-must-be-off", name: "saved", level: rules.Error, path: "power", change: true, says: []string{"saved"},
			build: func() (rules.World, change.Change) {
				return world(host("hv01", vm("a", gpu.VMSaved))), create("t", partition("a", "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Power.NextOff = true },
		},
		{
			rule: "vm-must-be-off", name: "settings", level: rules.Error, path: "power", change: true, says: []string{"memory-mapped IO space"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				p := partition("a", "hv01")
				p.Assignment.Power.AllowShutdown = false
				plan := create("t", p)
				plan.Prior = partition("a", "hv01")
				plan.Want.Assignment.Settings.LowMemoryMappedIOSpace = ptr(3072 * gpu.MiB)
				return world(h), plan
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Settings = gpu.VMSettings{AutomaticStopAction: ptr(gpu.StopShutDown)}
			},
		},
		{
			rule: "vm-must-be-off", name: "settings that are no longer set", level: rules.Error, path: "power",
			change: true, says: []string{"memory-mapped IO space"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimVM(h, "vdi", "a", gpu.Assignment{Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{}})
				h.Claims[0].SettingsBefore.LowMemoryMappedIOSpace = ptr(128 * gpu.MiB)
				p := create("claim-a", partition("a", "hv01"))
				p.Want.Assignment.Power.AllowShutdown = false
				p.Prior = partition("a", "hv01")
				return world(h), p
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Settings.LowMemoryMappedIOSpace = ptr(1024 * gpu.MiB)
			},
		},
		{
			rule: "vm-must-be-off", name: "unassign what is complete", level: rules.Error, path: "power", change: true,
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimVM(h, "vdi", "a", gpu.Assignment{Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{}})
				p := partition("a", "hv01")
				p.Assignment.Power.AllowShutdown = false
				return world(h), change.Change{Subject: label(p), Token: "claim-a", Prior: p}
			},
			// Of what a failed change left only the claim goes.
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Claims[0].Incomplete = true },
		},
		{
			rule: "vm-must-be-off", name: "unassign", level: rules.Error, path: "power", change: true, says: []string{"apply this attribute first"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimVM(h, "vdi", "a", gpu.Assignment{Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{}})
				p := partition("a", "hv01")
				p.Assignment.Power.AllowShutdown = false
				return world(h), change.Change{Subject: label(p), Token: "claim-a", Prior: p}
			},
			// A renamed resource: the new one has taken the VM over.
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "o", partition("a", "hv01")) },
		},
		{
			rule: "partition-in-use", name: "not allowed by the config", level: rules.Error, path: "max_disruption",
			change: true, says: []string{`"a"`, "vm_restart"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimVM(h, "vdi", "a", gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})
				return world(h), create("t", config("vdi", 8, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MaxDisruption = gpu.DisruptVMRestart },
		},
		{
			rule: "partition-in-use", name: "a partition of a VM that is off", level: rules.Error, path: "gpu_p.partition_count",
			change: true, says: []string{`VM "a": it is off`, "Start the VM and shut it down once"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				h.VMs[0].State = gpu.VMOff
				return world(h), create("t", config("vdi", 8, "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].GPUs[0].Partitionable.Partitions = nil },
		},
		{
			rule: "partition-in-use", name: "a paused VM", level: rules.Error, path: "gpu_p.partition_count",
			change: true, says: []string{`"a" (it is paused, and has to run or to be off)`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				h.VMs[0].State = gpu.VMPaused
				claimVM(h, "vdi", "a", gpu.Assignment{
					Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{}, Power: gpu.Power{AllowShutdown: true},
				})
				p := config("vdi", 8, "hv01")
				p.Config.MaxDisruption = gpu.DisruptVMRestart
				return world(h), create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].VMs[0].State = gpu.VMRunning },
		},
		{
			rule: "partition-in-use", name: "the VM waits for its next power-off", level: rules.Error, path: "gpu_p.partition_count", change: true,
			says: []string{`"a" (its assignment waits for its next power-off`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimVM(h, "vdi", "a", gpu.Assignment{Power: gpu.Power{AllowShutdown: true, NextOff: true}})
				p := config("vdi", 8, "hv01")
				p.Config.MaxDisruption = gpu.DisruptVMRestart
				return world(h), create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"].Claims[0].Want.Assignment.Power.NextOff = false
			},
		},
		{
			rule: "partition-in-use", name: "not allowed by the VM", level: rules.Error, path: "gpu_p.partition_count", change: true,
			says: []string{`"a"`, `"b" (no gpu_vm_assignment manages it)`, "allow_shutdown"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning))
				h.VMs[1].Clustered = true
				holds(h, "a", 0)
				holds(h, "b", 1)
				claimVM(h, "vdi", "a", gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})
				other := host("hv03") // which is none of the cluster's nodes, whatever it says
				claimVM(other, "vdi", "b", gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})
				p := config("vdi", 8, "hv01")
				p.Config.MaxDisruption = gpu.DisruptVMRestart
				w := clustered(h, host("hv02"))
				other.Cluster = h.Cluster
				w.Hosts["hv03"] = other
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				// The claim may lie on another node, where these have no records in common.
				claimVM(w.Hosts["hv02"], "vdi", "b", gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})
			},
		},
		{
			rule: "shutdown-permitted", name: "the permission is taken back in the same run", level: rules.Error, path: "power", change: true,
			says: []string{`VM "a"`, "`power.allow_shutdown` is `false`", "first"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimVM(h, "vdi", "a", gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})
				w, p := world(h), config("vdi", 8, "hv01")
				p.Config.MaxDisruption = gpu.DisruptVMRestart
				w.Others.Declare("i", whatif.Policy{Label: "gpu_vm_assignment for VM \"a\"", VMID: "id-A"})
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Others.Declare("i", whatif.Policy{VMID: "ID-a", Power: gpu.Power{AllowShutdown: true, ForceShutdown: true, AllowTurnOff: true}})
			},
		},
		{
			rule: rules.Feasible, name: "restore", level: rules.Error, path: "name", change: true, says: []string{"held by \"a\"", gpu0},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				holds(h, "a", 0)
				claimConfig(h, "vdi", "vdi", 4, gpu0, gpu1)
				h.Claims[0].OriginalLayouts = gpu.Layouts{gpu0: {Partitions: 16}, gpu1: {Partitions: 16}}
				p := config("vdi", 4, "hv01")
				p.Config.Restore = true
				return world(h), change.Change{Subject: label(p), Token: "claim-vdi", Prior: p}
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Prior.Config.Restore = false },
		},
		{
			rule: rules.Feasible, name: "a destroy that a new partition would stop", level: rules.Error,
			path: "vm", change: true, says: []string{"held by \"a\"", "before"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMRunning))
				claimConfig(h, "vdi", "vdi", 4, gpu0, gpu1)
				h.Claims[0].OriginalLayouts = gpu.Layouts{gpu0: {Partitions: 16}, gpu1: {Partitions: 16}}
				w, ends, p := world(h), config("vdi", 4, "hv01"), partition("a", "hv01")
				ends.Config.Restore = true
				w.Others.Put("claim-vdi", change.Change{Subject: label(ends), Prior: ends})
				p.Assignment.VMID, p.Assignment.Power.AllowShutdown = "ID-a", true
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				ends := config("vdi", 4, "hv01")
				w.Others.Put("claim-vdi", change.Change{Subject: label(ends), Prior: ends})
			},
		},
		{
			rule: rules.Feasible, name: "a config that a new partition would hold up", level: rules.Error, path: "vm", change: true,
			says: []string{"\"a\" would have to be restarted", "created before", "`partition = { config = ... }`"},
			build: func() (rules.World, change.Change) {
				w, p := world(host("hv01", vm("a", gpu.VMRunning))), partition("a", "hv01")
				put(&w, "o", config("vdi", 8, "hv01"))
				p.Assignment.VMID = "ID-a"
				return w, create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.Config = "vdi" },
		},
		{
			rule: rules.Feasible, name: "a drain that a new partition would keep from", level: rules.Error, path: "vm", change: true,
			says: []string{
				"\"a\" is created before", "VM \"a\" holds a partition and is not clustered", "shut down: \"a\" and \"b\"",
				"`partition = { config = ... }`",
			},
			build: func() (rules.World, change.Change) {
				h, p, b := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning)), partition("a", "hv01"), partition("b", "hv01")
				h.VMs[1].Clustered = true
				holds(h, "b", 0)
				h.GPUs[0].Partitionable.Partitions[0].SupportsOutgoingLiveMigration = ptr(true)
				claimVM(h, "vdi", "b", *b.Assignment)
				drains := config("vdi", 8, "hv01", "hv02")
				drains.Config.Drain, drains.Config.MaxDisruption = true, gpu.DisruptVMRestart
				w := clustered(h, host("hv02"))
				put(&w, "o", drains)
				p.Assignment.VMID = "ID-a"
				return w, create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.Config = "vdi" },
		},
		{
			rule: rules.Feasible, name: "a drain that a new partition brings about", level: rules.Warning, path: "vm", change: true,
			says: []string{"\"a\" is created before", "live migration moves these VMs", "\"a\" and \"b\""},
			build: func() (rules.World, change.Change) {
				h, to, p := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning)), host("hv02"), partition("a", "hv01")
				h.VMs[0].Clustered, h.VMs[1].Clustered = true, true
				for _, h := range []*gpu.Host{h, to} {
					for i := range h.GPUs {
						h.GPUs[i].Partitionable.SupportsIncomingLiveMigration = ptr(true)
					}
				}
				drains := config("vdi", 8, "hv01", "hv02")
				drains.Config.Drain, drains.Config.MaxDisruption = true, gpu.DisruptVMRestart
				w := clustered(h, to)
				put(&w, "o", drains)
				p.Assignment.VMID = "ID-a"
				return w, create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.Config = "vdi" },
		},
		{
			rule: rules.Feasible, name: "a config that a destroyed assignment would hold up", level: rules.Error, path: "name", change: true,
			says: []string{"\"a\" is destroyed before", "no gpu_vm_assignment manages it"},
			build: func() (rules.World, change.Change) {
				h, was := host("hv01", vm("a", gpu.VMRunning)), partition("a", "hv01")
				was.Assignment.VMID = "ID-a"
				holds(h, "a", 0)
				h.VMs[0].PartitionAdapters = append(h.VMs[0].PartitionAdapters, gpu.PartitionAdapter{ID: "by hand"})
				claimVM(h, "vdi", "a", *was.Assignment)
				w, p := world(h), config("vdi", 8, "hv01")
				p.Config.MaxDisruption = gpu.DisruptVMRestart
				w.Others.Put("claim-a", change.Change{Subject: label(was), Prior: was})
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("claim-a") },
		},
		{
			rule: rules.Feasible, name: "a GPU that goes from a config that is kept", level: rules.Error, path: "name", change: true,
			says: []string{`"ml" releases GPU`, `"turns" covers it`},
			build: func() (rules.World, change.Change) {
				was := mpsConfig("ml", "gpu01")
				h := laidOut(served(shareServer(), placement.Daemons(shareServer(), was.Config, was.Config.GPUs["gpu01"])[0].Name), was)
				h.MPS.Daemons[0].Clients = nil
				for i := range h.GPUs {
					h.GPUs[i].Processes = nil
				}
				h.Claims[0].OriginalLayouts = gpu.Layouts{migGPU0: {ComputeMode: gpu.ComputeDefault}, migGPU1: {ComputeMode: gpu.ComputeDefault}}
				w := world(h)
				w.Others.Put("claim-ml", change.Change{Subject: label(was), Prior: was})
				return w, create("t", slicesConfig("turns", 2, "gpu01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				was := mpsConfig("ml", "gpu01")
				was.Config.Restore = true
				w.Others.Put("claim-ml", change.Change{Subject: label(was), Prior: was})
			},
		},
		{
			rule: rules.Feasible, name: "an instance that is kept while a share uses it", level: rules.Error, path: "name", change: true,
			says: []string{`If gpu_share "a" is destroyed first`, "other GPU instances"},
			build: func() (rules.World, change.Change) {
				was := migConfig("ml", profiles("3g.40gb", 2), "gpu01")
				was.Config.GPUs["gpu01"] = []string{migGPU0}
				uses := gpu.Share{
					Name: "a", Config: "ml", Count: 1, Devices: []gpu.SharedDevice{{GPU: migGPU0, Instance: &gpu.MIGPlacement{Profile: "3g.40gb"}}},
				}
				w := world(has(laidOut(gpuServer("gpu01", h100(migGPU0, at("3g.40gb", 0), at("3g.40gb", 4))), was), "vdi", uses))
				uses.Host = "gpu01"
				w.Others.Put("claim-a", change.Change{Subject: `gpu_share "a"`, Token: "claim-a", Prior: gpu.Want{Share: &uses}})
				want := migConfig("ml", gpu.MIGLayout{Profiles: map[string]int{"3g.40gb": 1, "1g.10gb": 2}}, "gpu01")
				want.Config.GPUs["gpu01"] = []string{migGPU0}
				p := create("claim-ml", want)
				p.Prior = was
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Config.MIG = &gpu.MIGLayout{Placements: []gpu.MIGPlacement{at("3g.40gb", 4), at("1g.10gb", 0), at("1g.10gb", 1)}}
			},
		},
		{
			rule: "node-in-service", name: "config", level: rules.Error, path: "hosts", change: true, says: []string{`ost "hv01" is paused`},
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01"))
				w.Hosts["hv01"].Cluster.Nodes[0].State = gpu.NodePaused
				return w, create("t", config("vdi", 8, "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Count = 4 },
		},
		{
			rule: "node-in-service", name: "VM", level: rules.Error, path: "vm", change: true, says: []string{"draining"},
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01", vm("a", gpu.VMOff)))
				w.Hosts["hv01"].Cluster.Nodes[0].State = gpu.NodeDraining
				return w, create("t", partition("a", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].Cluster.Nodes[0].State = gpu.NodeUp },
		},
		{
			rule: "node-in-service", name: "pool", level: rules.Error, path: "hosts", change: true,
			build: func() (rules.World, change.Change) {
				w := clustered(host("hv01"))
				w.Hosts["hv01"].Cluster.Nodes[0].State = gpu.NodeJoining
				return w, create("t", pool("dda", "hv01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"].Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
			},
		},
	}
}

func vmScenarios() []scenario {
	// given builds a world with one VM after changing it.
	given := func(want gpu.Want, edit func(*gpu.Host, *gpu.VM)) func() (rules.World, change.Change) {
		return func() (rules.World, change.Change) {
			h := host("hv01", vm("a", gpu.VMOff))
			edit(h, &h.VMs[0])
			a := *want.Assignment
			if a.Partition != nil {
				p := *a.Partition
				a.Partition = &p
			}
			return world(h), create("t", gpu.Want{Assignment: &a})
		}
	}
	theVM := func(w *rules.World) *gpu.VM { return &w.Hosts["hv01"].VMs[0] }
	asserted := partition("a", "hv01")
	asserted.Assignment.Partition.VRAM = ptr(4000 * gpu.MiB)
	ofVDI := partition("a", "hv01")
	ofVDI.Assignment.Partition.Config = "vdi"
	ofEither := func() gpu.Want {
		w := partition("a", "hv01")
		w.Assignment.Partition.Configs = []string{"a16", "vdi"}
		return w
	}
	quotas := partition("a", "hv01")
	quotas.Assignment.Partition.Quotas.Compute = gpu.Quota{Min: ptr(uint64(10)), Max: ptr(uint64(5))}
	tooBig := partition("a", "hv01")
	tooBig.Assignment.Partition.Quotas.VRAM = gpu.Quota{Max: ptr(uint64(4096 * gpu.MiB))}
	pinned := partition("a", "hv01")
	pinned.Assignment.Partition.PinnedGPU = gpu0
	dda := device("a", "hv01", "hv01", gpu0)
	offline := partition("a", "hv01")
	offline.Assignment.Settings.OfflineAction = ptr(gpu.OfflineForcedShutdown)
	none := func(*gpu.Host, *gpu.VM) {}

	return []scenario{
		{
			rule: "policy-gate", name: "set", level: rules.Error, path: "vm", says: []string{"RequireSecureDeviceAssignment"},
			build: given(partition("a", "hv01"), func(h *gpu.Host, _ *gpu.VM) { h.Policies.RequireSecureDeviceAssignment = ptr(true) }),
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"].Policies.RequireSecureDeviceAssignment = ptr(false)
			},
		},
		{
			rule: "pool-covers-possible-owners", name: "node without the pool", level: rules.Warning, path: "pool.id", says: []string{`"hv02"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.VMs[0].Clustered = true
				h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
				return clustered(h, host("hv02")), create("t", fromPool("a", "hv01", "hv01/dda", "dda"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).PossibleOwners = []string{"HV01"} },
		},
		{
			rule: "pool-covers-possible-owners", name: "pool", level: rules.Warning, path: "members", says: []string{`"hv02"`, `"a"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.VMs[0].Clustered = true
				h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "d", Pool: "dda"}}
				return clustered(h, host("hv02")), create("t", pool("dda", "hv01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = pool("dda", "hv01", "hv02") },
		},
		{
			rule: "vm-and-gpu-same-host", name: "device", level: rules.Error, path: "device.host", says: []string{`"hv01"`, `"hv02"`},
			build:   given(device("a", "hv01", "hv02", gpu0), none),
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = device("a", "hv01", "hv01", gpu0) },
		},
		{
			rule: "vm-and-gpu-same-host", name: "pinned", level: rules.Error, path: "partition.gpu_id", says: []string{"PCIROOT(77)", `"hv02"`},
			build: func() (rules.World, change.Change) {
				h := host("hv02")
				h.GPUs[0].ID = "PCIROOT(77)"
				p := partition("a", "hv01")
				p.Assignment.Partition.PinnedGPU = "PCIROOT(77)"
				return world(host("hv01", vm("a", gpu.VMOff)), h), create("t", p)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.PinnedGPU = gpu1 },
		},
		{
			rule: "pinned-gpu-on-clustered-vm", name: "partition", level: rules.Error, path: "partition.gpu_id", says: []string{"gpu_id"},
			build:   given(pinned, func(_ *gpu.Host, v *gpu.VM) { v.Clustered = true }),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).Clustered = false },
		},
		{
			rule: "pinned-gpu-on-clustered-vm", name: "device", level: rules.Warning, path: "device",
			build:   given(dda, func(_ *gpu.Host, v *gpu.VM) { v.Clustered = true }),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).Clustered = false },
		},
		{
			rule: "generation-2", name: "generation 1", level: rules.Error, path: "vm", says: []string{`VM "a"`},
			build:   given(partition("a", "hv01"), func(_ *gpu.Host, v *gpu.VM) { v.Generation = 1 }),
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = device("a", "hv01", "hv01", gpu0) },
		},
		{
			rule: "supported-guest", name: "an old server", level: rules.Warning, path: "vm", says: []string{"Windows Server 2016 Datacenter"},
			build:   given(partition("a", "hv01"), func(_ *gpu.Host, v *gpu.VM) { v.Guest = "Windows Server 2016 Datacenter" }),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).Guest = "Windows Server 2019 Standard" },
		},
		{
			rule: "supported-guest", name: "another Linux", level: rules.Warning, path: "vm", says: []string{"Debian"},
			build:   given(partition("a", "hv01"), func(_ *gpu.Host, v *gpu.VM) { v.Guest = "Debian GNU/Linux 12 (bookworm)" }),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).Guest = "Ubuntu 22.04.5 LTS" },
		},
		{
			rule: "partition-of-config", name: "another host", level: rules.Error, path: "partition.config",
			says: []string{`"hv01"`, `"vdi"`, `VM "a"`},
			build: func() (rules.World, change.Change) {
				w, p := given(ofVDI, none)()
				put(&w, "c", config("vdi", 4, "hv02"))
				return w, p
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "c", config("vdi", 4, "hv01")) },
		},
		{
			rule: "partition-of-config", name: "a possible owner", level: rules.Error, path: "partition.config", says: []string{`"hv02"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.VMs[0].Clustered = true
				w := clustered(h, host("hv02"))
				put(&w, "c", config("vdi", 4, "hv01"))
				return w, create("t", gpu.Want{Assignment: ptr(*ofVDI.Assignment)})
			},
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).PossibleOwners = []string{"HV01"} },
		},
		{
			rule: "partition-of-config", name: "another size on a possible owner", level: rules.Error, path: "partition.config",
			says: []string{gpu1, `"hv02"`, "3800 MiB", "7600 MiB"},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.VMs[0].Clustered = true
				other := host("hv02")
				other.GPUs[1].Partitionable.Count, other.GPUs[1].Partitionable.VRAM.Min = 2, uint64(7600*gpu.MiB)
				w := clustered(h, other)
				c := config("vdi", 4, "hv01", "hv02")
				c.Config.GPUs["hv02"] = []string{gpu0}
				put(&w, "c", c)
				return w, create("t", gpu.Want{Assignment: ptr(*ofVDI.Assignment)})
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "c", config("vdi", 4, "hv01", "hv02")) },
		},
		{
			rule: "partition-of-config", name: "none of several on a possible owner", level: rules.Error, path: "partition.configs",
			says: []string{`"hv02"`, `"a16" and "vdi"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.VMs[0].Clustered = true
				w := clustered(h, host("hv02"))
				put(&w, "c", config("vdi", 4, "hv01"))
				put(&w, "d", config("a16", 4, "hv03"))
				return w, create("t", ofEither())
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "d", config("a16", 4, "hv02")) },
		},
		{
			rule: "partition-of-config", name: "another size of another config", level: rules.Error, path: "partition.config",
			says: []string{gpu1, `"hv02"`, "7600 MiB", `any of the configs "a16" and "vdi"`},
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				h.VMs[0].Clustered = true
				other := host("hv02")
				other.GPUs[1].Partitionable.Count, other.GPUs[1].Partitionable.VRAM.Min = 2, uint64(7600*gpu.MiB)
				w := clustered(h, other)
				c, d := config("vdi", 4, "hv01", "hv02"), config("a16", 2, "hv02")
				c.Config.GPUs["hv02"], d.Config.GPUs["hv02"] = []string{gpu0}, []string{gpu1}
				put(&w, "c", c)
				put(&w, "d", d)
				return w, create("t", gpu.Want{Assignment: ptr(*ofVDI.Assignment)})
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = ofEither() },
		},
		{
			rule: "known-config", name: "one of several", level: rules.Error, path: "partition.configs", says: []string{`"a16"`},
			build: func() (rules.World, change.Change) {
				w, p := given(ofVDI, none)()
				put(&w, "c", config("vdi", 4, "hv01"))
				p.Want = ofEither()
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = gpu.Want{Assignment: ptr(*ofVDI.Assignment)} },
		},
		{
			rule: "partition-of-config", name: "pinned beside it", level: rules.Error, path: "partition.gpu_id", says: []string{gpu1, `"vdi"`},
			build: func() (rules.World, change.Change) {
				w, p := given(ofVDI, none)()
				p.Want.Assignment.Partition.PinnedGPU = gpu1
				c := config("vdi", 4, "hv01")
				c.Config.GPUs["hv01"] = []string{gpu0}
				put(&w, "c", c)
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.PinnedGPU = gpu0 },
		},
		{
			rule: "partition-of-config", name: "a config that leaves", level: rules.Warning, path: "hosts",
			says: []string{`"a"`, `"hv01"`}, change: true,
			build: func() (rules.World, change.Change) {
				h := host("hv01", vm("a", gpu.VMOff))
				claimVM(h, "vdi", "a", *ofVDI.Assignment)
				p := create("t", config("vdi", 4, "hv02"))
				p.Prior = config("vdi", 4, "hv01", "hv02")
				return world(h, host("hv02")), p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = config("vdi", 4, "hv01", "hv02") },
		},
		{
			rule: "vram-matches-partition", name: "exact", level: rules.Error, path: "partition.vram_mib",
			says:    []string{"3800 MiB", "vram_mib = 3800"},
			build:   given(asserted, none),
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.VRAM = ptr(3800*gpu.MiB + 12) },
		},
		{
			rule: "vram-matches-partition", name: "of a size that the host does not tell", level: rules.Error,
			path: "partition.vram_mib", says: []string{"does not tell how much memory"},
			build: func() (rules.World, change.Change) {
				w, p := given(asserted, none)()
				for i := range w.Hosts["hv01"].GPUs {
					w.Hosts["hv01"].GPUs[i].Partitionable.VRAM = gpu.Capacity{}
				}
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.VRAM = nil },
		},
		{
			rule: "vram-matches-partition", name: "estimated", level: rules.Error, path: "partition.vram_mib", says: []string{"about 1900 MiB"},
			build: func() (rules.World, change.Change) {
				w, p := given(asserted, none)()
				put(&w, "c", config("vdi", 8, "hv01"))
				p.Want.Assignment.Partition.Config = "vdi"
				return w, p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.VRAM = ptr(1850 * gpu.MiB) },
		},
		{
			rule: "vram-matches-partition", name: "quota order", level: rules.Error, path: "partition", says: []string{"compute"}, hostless: true,
			build: given(quotas, none),
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Partition.Quotas.Compute.Max = ptr(^uint64(0))
			},
		},
		{
			rule: "vram-matches-partition", name: "quota too big", level: rules.Error, path: "partition", says: []string{"4096 MiB"},
			build: given(tooBig, none),
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Partition.Quotas.VRAM.Max = ptr(uint64(3800 * gpu.MiB))
			},
		},
		{
			rule: "vm-settings", name: "checkpoints", level: rules.Warning, path: "vm", says: []string{"production"},
			build:   given(partition("a", "hv01"), func(_ *gpu.Host, v *gpu.VM) { v.Checkpoints = gpu.CheckpointsProduction }),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).Checkpoints = gpu.CheckpointsProductionOnly },
		},
		{
			rule: "vm-settings", name: "dynamic memory with a device", level: rules.Error, path: "vm",
			build:   given(dda, func(_ *gpu.Host, v *gpu.VM) { v.DynamicMemory = true }),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).DynamicMemory = false },
		},
		{
			rule: "vm-settings", name: "dynamic memory with a partition", level: rules.Warning, path: "vm",
			build:   given(partition("a", "hv01"), func(_ *gpu.Host, v *gpu.VM) { v.DynamicMemory = true }),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).DynamicMemory = false },
		},
		{
			rule: "vm-settings", name: "MMIO with a device", level: rules.Error, path: "high_memory_mapped_io_space_mib",
			says:  []string{"high_memory_mapped_io_space_mib = 16928"},
			build: given(dda, func(_ *gpu.Host, v *gpu.VM) { v.Settings.HighMemoryMappedIOSpace = ptr(512 * gpu.MiB) }),
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Settings.HighMemoryMappedIOSpace = ptr(16928 * gpu.MiB)
			},
		},
		{
			rule: "vm-settings", name: "saved when its host stops", level: rules.Error, path: "automatic_stop_action",
			build: given(dda, func(_ *gpu.Host, v *gpu.VM) { v.Settings.AutomaticStopAction = ptr(gpu.StopSave) }),
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Settings.AutomaticStopAction = ptr(gpu.StopTurnOff)
			},
		},
		{
			rule: "offline-action-for-cluster", name: "not clustered", level: rules.Error, path: "offline_action",
			build:   given(offline, none),
			satisfy: func(w *rules.World, _ *change.Change) { theVM(w).Clustered = true },
		},
		{
			rule: "offline-action-for-cluster", name: "clustered VM would be saved", level: rules.Warning,
			path: "offline_action", says: []string{"force_shutdown"},
			build: given(partition("a", "hv01"), func(_ *gpu.Host, v *gpu.VM) {
				v.Clustered, v.Settings.OfflineAction = true, ptr(gpu.OfflineSave)
			}),
			satisfy: func(_ *rules.World, p *change.Change) {
				p.Want.Assignment.Settings.OfflineAction = ptr(gpu.OfflineForcedShutdown)
			},
		},
	}
}

// goes has this run destroy an assignment that a host has a claim for.
func goes(w *rules.World, host, vmName string, prior gpu.Want) {
	claimVM(w.Hosts[host], w.Owner, vmName, *prior.Assignment)
	w.Others.Put("claim-"+vmName, change.Change{Prior: prior})
}
