package rules_test

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

const (
	gpu0 = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpu1 = "PCIROOT(17)#PCI(0000)#PCI(0000)"
)

func ptr[T any](v T) *T { return &v }

// a2 is an NVIDIA A2 with four partitions.
func a2(id string) gpu.GPU {
	return gpu.GPU{
		ID: id, Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6"},
		VRAM: 15 * 1024 * gpu.MiB, Driver: gpu.Driver{Version: "573.39"}, Status: gpu.Partitioned,
		MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16416 * gpu.MiB},
		Partitionable: &gpu.Partitionable{
			Name: `\\?\PCI#` + id, ValidCounts: []int{1, 2, 4, 8, 16}, Count: 4,
			VRAM:                          gpu.Capacity{Min: uint64(3800 * gpu.MiB)},
			SupportsIncomingLiveMigration: ptr(true),
		},
	}
}

// vm is a virtual machine that every rule is content with.
func vm(name string, state gpu.VMState) gpu.VM {
	return gpu.VM{
		ID: "ID-" + name, Name: name, State: state, Generation: 2, Checkpoints: gpu.CheckpointsDisabled,
		Settings: gpu.VMSettings{
			LowMemoryMappedIOSpace: ptr(1024 * gpu.MiB), HighMemoryMappedIOSpace: ptr(65536 * gpu.MiB),
			AutomaticStopAction: ptr(gpu.StopTurnOff),
		},
	}
}

// host is a standalone host with two A2.
func host(name string, vms ...gpu.VM) *gpu.Host {
	return &gpu.Host{
		Name: name, Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Build: 26100},
		GPUs: []gpu.GPU{a2(gpu0), a2(gpu1)}, VMs: vms,
	}
}

// world has the given hosts, each under its own name.
func world(hosts ...*gpu.Host) rules.World {
	w := rules.World{World: whatif.World{Hosts: map[string]*gpu.Host{}, Owner: "vdi", Others: whatif.NewBook()}, Complete: true}
	for _, h := range hosts {
		w.Hosts[h.Name] = h
		stay(w.Others, h)
	}
	return w
}

// stay plans that what this state has of shares on a host stays as it is.
func stay(b *whatif.Book, h *gpu.Host) {
	for _, c := range h.Claims {
		if h.Platform == gpu.Linux && c.Owner == "vdi" && c.Token != "" {
			b.Put(c.Token, change.Change{
				Subject: fmt.Sprintf("gpu_%s %q", c.Kind, c.ID), Token: c.Token, Want: c.Want, Prior: c.Want, Unchanged: true,
			})
		}
	}
}

// clustered puts the hosts into one cluster.
func clustered(hosts ...*gpu.Host) rules.World {
	var nodes []gpu.Node
	for _, h := range hosts {
		nodes = append(nodes, gpu.Node{Name: h.Name, State: gpu.NodeUp})
	}
	for _, h := range hosts {
		h.Cluster = &gpu.Cluster{Name: "clu", Nodes: nodes}
	}
	return world(hosts...)
}

// holds gives a VM of the host an adapter and, when it runs, a partition of a GPU.
func holds(h *gpu.Host, vmName string, on int) {
	for i := range h.VMs {
		v := &h.VMs[i]
		if v.Name != vmName {
			continue
		}
		v.PartitionAdapters = append(v.PartitionAdapters, gpu.PartitionAdapter{ID: "A-" + vmName})
		if v.Runs() {
			p := h.GPUs[on].Partitionable
			p.Partitions = append(p.Partitions, gpu.Partition{ID: len(p.Partitions), VMID: v.ID})
		}
	}
}

func claimVM(h *gpu.Host, owner, vmName string, a gpu.Assignment) {
	a.VM, a.VMID = vmName, "ID-"+vmName
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: "ID-" + vmName, Token: "claim-" + vmName, Owner: owner, Want: gpu.Want{Assignment: &a},
	})
}

func claimConfig(h *gpu.Host, owner, id string, count int, gpus ...string) {
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimConfig, ID: id, Token: "claim-" + id, Owner: owner, GPUs: gpus,
		Want: gpu.Want{Config: &gpu.PartitionConfig{ID: id, Kind: gpu.KindGPUP, Count: count, GPUs: map[string][]string{h.Name: gpus}}},
	})
}

// config covers both GPUs of the hosts.
func config(id string, count int, hosts ...string) gpu.Want {
	gpus := map[string][]string{}
	for _, h := range hosts {
		gpus[h] = []string{gpu0, gpu1}
	}
	return gpu.Want{Config: &gpu.PartitionConfig{ID: id, Kind: gpu.KindGPUP, Name: id, Count: count, GPUs: gpus}}
}

// pool takes the first GPU of the hosts.
func pool(name string, hosts ...string) gpu.Want {
	members := map[string][]string{}
	for _, h := range hosts {
		members[h] = []string{gpu0}
	}
	return gpu.Want{Pool: &gpu.PoolConfig{ID: hosts[0] + "/" + name, Name: name, Members: members}}
}

func partition(vmName, host string) gpu.Want {
	return gpu.Want{
		Assignment: &gpu.Assignment{
			Kind: gpu.AssignPartition, VM: vmName, Host: host, Partition: &gpu.PartitionWant{}, Power: gpu.Power{AllowShutdown: true},
		},
	}
}

func fromPool(vmName, host, id, name string) gpu.Want {
	return gpu.Want{Assignment: &gpu.Assignment{
		Kind: gpu.AssignPool,
		VM:   vmName, Host: host, Pool: &gpu.PoolWant{ID: id, Name: name, Count: 1}, Power: gpu.Power{AllowShutdown: true},
	}}
}

func device(vmName, host, deviceHost string, ids ...string) gpu.Want {
	return gpu.Want{Assignment: &gpu.Assignment{
		Kind: gpu.AssignDevice,
		VM:   vmName, Host: host, Device: &gpu.DeviceWant{Host: deviceHost, GPUIDs: ids}, Power: gpu.Power{AllowShutdown: true},
	}}
}

// create is the plan of a new resource.
func create(token string, w gpu.Want) change.Change {
	return change.Change{Subject: label(w), Token: token, Want: w}
}

func label(w gpu.Want) string {
	switch {
	case w.Config != nil:
		return fmt.Sprintf("gpu_partition_config %q", w.Config.ID)
	case w.Pool != nil:
		return fmt.Sprintf("gpu_pool %q", w.Pool.Name)
	case w.Share != nil:
		return fmt.Sprintf("gpu_share %q", w.Share.Name)
	}
	return fmt.Sprintf("gpu_vm_assignment for VM %q", w.Assignment.VM)
}

// of keeps the findings of one rule.
func of(rule string, found []rules.Finding) []rules.Finding {
	var out []rules.Finding
	for _, f := range found {
		if f.Rule == rule {
			out = append(out, f)
		}
	}
	return out
}

// fixed tells whether no level lifts the rule.
func fixed(id string) bool {
	return slices.ContainsFunc(rules.All(), func(r rules.Rule) bool { return r.ID == id && r.Fixed })
}

// known tells whether there is a rule of that id.
func known(id string) bool {
	return slices.ContainsFunc(rules.All(), func(r rules.Rule) bool { return r.ID == id })
}
