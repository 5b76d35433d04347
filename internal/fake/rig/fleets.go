package rig

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// GPU ids of the hosts that node makes: every host has the same, as identical
// machines do.
const (
	GPU0 = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	GPU1 = "PCIROOT(B0)#PCI(0200)#PCI(0000)"
)

// GPU2 is a third slot, for a GPU that is plugged in later.
const GPU2 = "PCIROOT(C0)#PCI(0100)#PCI(0000)"

// Usable is the memory that all partitions of an NVIDIA A2 have together.
const Usable = 15168 * gpu.MiB

// A2 is an NVIDIA A2 with 16 partitions.
func A2(id string) gpu.GPU {
	part := uint64(Usable / 16)
	capacity := func(total uint64) gpu.Capacity {
		return gpu.Capacity{Total: total, Available: total, Min: total / 16, Max: total / 16, Optimal: total / 16}
	}
	path := map[string]string{GPU0: "4&18416dc3&0&0000", GPU1: "4&5906f5e&0&0010"}[id]
	return gpu.GPU{
		ID: id, InstancePath: `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\` + path,
		Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
		VRAM: 16 * 1024 * gpu.MiB, Driver: gpu.Driver{Version: "573.39"}, Status: gpu.Partitioned,
		MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16*1024*gpu.MiB + 32*gpu.MiB},
		Partitionable: &gpu.Partitionable{
			Name:        `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#` + path + `#{064092b3-625e-43bf-9eb5-dc845897dd59}`,
			ValidCounts: []int{1, 2, 4, 8, 16}, Count: 16,
			VRAM:   gpu.Capacity{Total: uint64(Usable), Available: uint64(Usable), Min: part, Max: part, Optimal: part},
			Encode: capacity(1600), Decode: capacity(1600), Compute: capacity(16000),
		},
	}
}

// A16 is one GPU of an NVIDIA A16 board: it may not share a cluster with A2s.
func A16(id string) gpu.GPU {
	g := A2(id)
	g.Model, g.PCI.Subsystem = "NVIDIA A16", "14A910DE"
	return g
}

// Unpartitionable is a GPU whose driver offers no partitions.
func Unpartitionable(id string) gpu.GPU {
	g := A2(id)
	g.Model, g.PCI, g.Partitionable, g.Status = "NVIDIA T4", gpu.PCIID{Vendor: "10DE", Device: "1EB8"}, nil, gpu.ReadyForDDA
	return g
}

// Console is the display adapter of a management controller: no GPU to give away.
func Console() gpu.GPU {
	return gpu.GPU{
		ID: "PCIROOT(0)#PCI(1C00)#PCI(0000)#PCI(0000)", InstancePath: `PCI\VEN_1A03&DEV_2000&SUBSYS_20001A03&REV_52\6&1`,
		Model:  "ASPEED Graphics",
		Vendor: "ASPEED", PCI: gpu.PCIID{Vendor: "1A03", Device: "2000"}, Status: gpu.NotAssignable, HostDisplay: true,
	}
}

// VMID makes a VM id from a number.
func VMID(n int) string { return fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012X", n) }

// Desktop is a Generation 2 VM that runs.
func Desktop(name string, n int) gpu.VM {
	low, high, cache, stop := 128*gpu.MiB, 512*gpu.MiB, false, gpu.StopSave
	return gpu.VM{
		ID: VMID(n), Name: name, State: gpu.VMRunning, Generation: 2, Checkpoints: gpu.CheckpointsDisabled,
		Settings: gpu.VMSettings{
			LowMemoryMappedIOSpace: &low, HighMemoryMappedIOSpace: &high, GuestControlledCache: &cache, AutomaticStopAction: &stop,
		},
	}
}

// Off turns a VM off.
func Off(v gpu.VM) gpu.VM {
	v.State = gpu.VMOff
	return v
}

// Node is a host with two A2 and some VMs.
func Node(name string, vms ...gpu.VM) gpu.Host {
	return gpu.Host{
		Name: name, Platform: gpu.HyperV, OS: gpu.OS{Name: "Azure Local", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{A2(GPU0), A2(GPU1)}, VMs: vms, Pools: []gpu.Pool{},
	}
}

// Cluster joins hosts to a failover cluster and makes their VMs its roles.
func Cluster(name string, hosts ...gpu.Host) gpu.Snapshot {
	c := &gpu.Cluster{Name: name}
	for _, h := range hosts {
		c.Nodes = append(c.Nodes, gpu.Node{Name: h.Name, State: gpu.NodeUp})
	}
	for i := range hosts {
		hosts[i].Cluster = &gpu.Cluster{Name: c.Name, Nodes: slices.Clone(c.Nodes)}
		for j := range hosts[i].VMs {
			action := gpu.OfflineForcedShutdown
			hosts[i].VMs[j].Clustered, hosts[i].VMs[j].Settings.OfflineAction = true, &action
		}
	}
	return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: hosts}
}

// Standalone is hosts without a cluster.
func Standalone(hosts ...gpu.Host) gpu.Snapshot {
	return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: hosts}
}

// TwoNodes is the usual fleet: hv01 with avd-01 (runs), avd-02 (runs), avd-03 (off),
// hv02 with avd-04 (runs), avd-05 (runs), avd-06 (off).
func TwoNodes() gpu.Snapshot {
	return Cluster("azl",
		Node("hv01", Desktop("avd-01", 1), Desktop("avd-02", 2), Off(Desktop("avd-03", 3))),
		Node("hv02", Desktop("avd-04", 4), Desktop("avd-05", 5), Off(Desktop("avd-06", 6))))
}

// MixedNodes are twoNodes with an A16 in hv02.
func MixedNodes() gpu.Snapshot {
	s := TwoNodes()
	s.Hosts[1].GPUs[1] = A16(GPU1)
	return s
}

// FourNodes is a cluster of four nodes without VMs.
func FourNodes() gpu.Snapshot {
	return Cluster("azl", Node("hv01"), Node("hv02"), Node("hv03"), Node("hv04"))
}

// The hosts of twoNodes and of fourNodes.
var (
	Both = []string{"hv01", "hv02"}
	Four = []string{"hv01", "hv02", "hv03", "hv04"}
)

// Desktops are n running VMs, 14 on each host.
func Desktops(n int) (fleet gpu.Snapshot, names []string) {
	var hosts []gpu.Host
	for i := range n {
		if i%14 == 0 {
			hosts = append(hosts, Node(fmt.Sprintf("hv%02d", i/14+1)))
		}
		name := fmt.Sprintf("avd-%02d", i+1)
		names = append(names, name)
		h := &hosts[len(hosts)-1]
		h.VMs = append(h.VMs, Desktop(name, i+1))
	}
	return Standalone(hosts...), names
}

// SameHardware asserts that nothing but claims has changed.
func SameHardware(t testing.TB, before, after gpu.Snapshot) {
	t.Helper()
	if diff := cmp.Diff(unclaimed(before), unclaimed(after)); diff != "" {
		t.Errorf("the hosts changed (-before +after):\n%s", diff)
	}
}

// unclaimed is a fleet without claims, as text.
func unclaimed(s gpu.Snapshot) string {
	s.Hosts = slices.Clone(s.Hosts)
	for i := range s.Hosts {
		s.Hosts[i].Claims = nil
	}
	raw, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
