package simulated_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	gpu1 = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpu2 = "PCIROOT(30)#PCI(0000)#PCI(0000)"
)

// vmID is the id of the n-th VM of a fleet.
func vmID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// newFleet is a cluster of two nodes with two A2 each; the VMs vm-1 ... live on hv01.
func newFleet(t *testing.T, vms int) *others.Fleet {
	t.Helper()
	fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), twoNodes(vms))
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

func twoNodes(vms int) gpu.Snapshot {
	s := gpu.Snapshot{Format: gpu.SnapshotFormat}
	for _, name := range []string{"hv01", "hv02"} {
		s.Hosts = append(s.Hosts, gpu.Host{
			Name: name, Platform: gpu.HyperV, OS: gpu.OS{Name: "Azure Local", Build: 26100},
			Cluster: &gpu.Cluster{Name: "cl1", Nodes: []gpu.Node{{Name: "hv01", State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}}},
			GPUs:    []gpu.GPU{a2(gpu1), a2(gpu2)},
		})
	}
	for n := 1; n <= vms; n++ {
		s.Hosts[0].VMs = append(s.Hosts[0].VMs, gpu.VM{
			ID: vmID(n), Name: fmt.Sprintf("vm-%d", n), State: gpu.VMOff, Generation: 2, Clustered: true,
		})
	}
	return s
}

func a2(id string) gpu.GPU {
	return gpu.GPU{
		ID: id, InstancePath: `PCI\VEN_10DE&DEV_25B6\` + id, Model: "NVIDIA A2", Vendor: "NVIDIA",
		PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6"}, VRAM: 16 * 1024 * gpu.MiB,
		Partitionable: &gpu.Partitionable{
			Name: `\\?\PCI#` + id, ValidCounts: []int{1, 2, 4, 8, 16}, Count: 4,
			VRAM: gpu.Capacity{Total: 16000, Available: 16000, Min: 4000, Max: 4000, Optimal: 4000},
		},
	}
}

func hostOf(t *testing.T, fleet *others.Fleet, name string) *simulated.Host {
	t.Helper()
	host, err := fleet.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func inventory(t *testing.T, fleet *others.Fleet, name string) gpu.Host {
	t.Helper()
	host, err := hostOf(t, fleet, name).Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// seats lists where a VM has partitions, as "host gpu id".
func seats(t *testing.T, fleet *others.Fleet, vm string) []string {
	t.Helper()
	s, err := fleet.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, h := range s.Hosts {
		for _, g := range h.GPUs {
			if g.Partitionable == nil {
				continue
			}
			for _, p := range g.Partitionable.Partitions {
				if gpu.SameID(p.VMID, vm) {
					out = append(out, fmt.Sprintf("%s %s %d", h.Name, g.ID, p.ID))
				}
			}
		}
	}
	return out
}

func state(t *testing.T, fleet *others.Fleet, host, vm string) gpu.VMState {
	t.Helper()
	h := inventory(t, fleet, host)
	v, ok := h.VM(vm)
	if !ok {
		t.Fatalf("VM %s is not on %s", vm, host)
	}
	return v.State
}

// run runs steps that must succeed.
func run(t *testing.T, steps ...error) {
	t.Helper()
	for i, err := range steps {
		if err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

func wantCode(t *testing.T, err error, want backend.Code) {
	t.Helper()
	refusal, ok := errors.AsType[*backend.Error](err)
	if !ok || refusal.Code != want {
		t.Errorf("got %v, want a refusal as %s", err, want)
	}
}

func addAdapter(t *testing.T, h *simulated.Host, vm string) {
	t.Helper()
	if _, err := h.AddPartitionAdapter(t.Context(), vm, gpu.PartitionAdapter{}); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
