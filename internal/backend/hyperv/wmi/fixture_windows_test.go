//go:build wmifixture

package wmi_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi/comserver"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// rig is a simulated host behind COM and a connection to it.
type rig struct {
	fleet   *others.Fleet
	machine *fakewmi.Machine
	hyperv.WMI
}

// newRig serves hv01, a node of a cluster with two A2 and some VMs. When the test is
// over, no object may be left that the connection has not released.
func newRig(t testing.TB, vms int) *rig {
	t.Helper()
	fleet, err := others.InMemory(hosts(vms))
	if err != nil {
		t.Fatal(err)
	}
	machine, err := fakewmi.New(fleet, "hv01")
	if err != nil {
		t.Fatal(err)
	}
	unregister, err := comserver.Register(machine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unregister()
		settles(t, "objects held", 0, comserver.Held)
		if n := comserver.Misused(); n > 0 {
			t.Errorf("objects were used %d times after they had been released", n)
		}
	})
	conn, err := wmi.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{fleet: fleet, machine: machine, WMI: conn}
}

func hosts(vms int) gpu.Snapshot {
	s := gpu.Snapshot{Hosts: []gpu.Host{{
		Name: "hv01", Platform: gpu.HyperV, OS: gpu.OS{Name: "Azure Local", Version: "24H2", Build: 26100},
		Cluster: &gpu.Cluster{Name: "cl1", Nodes: []gpu.Node{{Name: "hv01", State: gpu.NodeUp}}},
		GPUs:    []gpu.GPU{a2("PCIROOT(16)#PCI(0000)#PCI(0000)"), a2("PCIROOT(30)#PCI(0000)#PCI(0000)")},
	}}}
	for n := 1; n <= vms; n++ {
		s.Hosts[0].VMs = append(s.Hosts[0].VMs, gpu.VM{
			ID: vmID(n), Name: fmt.Sprintf("vm-%d", n), State: gpu.VMOff, Generation: 2, Clustered: true,
		})
	}
	return s
}

func vmID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func a2(id string) gpu.GPU {
	return gpu.GPU{
		ID: id, InstancePath: `PCI\VEN_10DE&DEV_25B6\` + id, Model: "NVIDIA A2", Vendor: "NVIDIA",
		PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6"}, VRAM: 16 * 1024 * gpu.MiB,
		Partitionable: &gpu.Partitionable{
			Name: `\\?\PCI#VEN_10DE&DEV_25B6#` + id, ValidCounts: []int{1, 2, 4, 8, 16}, Count: 4,
			VRAM: gpu.Capacity{Total: 17179869184, Available: 17179869184, Min: 4294967296, Max: 4294967296, Optimal: 4294967296},
		},
	}
}

// one is the only row of a query.
func (r *rig) one(t testing.TB, namespace, wql string, properties ...string) hyperv.Row {
	t.Helper()
	rows, err := r.Query(t.Context(), namespace, wql, properties...)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 {
		t.Fatalf("%s: got %d rows, want one", wql, len(rows))
	}
	return rows[0]
}

// first is the first row of a query.
func (r *rig) first(t testing.TB, namespace, wql string, properties ...string) hyperv.Row {
	t.Helper()
	rows, err := r.Query(t.Context(), namespace, wql, properties...)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		t.Fatalf("%s: no rows", wql)
	}
	return rows[0]
}

// addAdapter gives a VM a GPU partition adapter and returns the path of the job.
func (r *rig) addAdapter(t testing.TB, vm string) hyperv.Result {
	t.Helper()
	template := r.one(t, hyperv.Virtualization,
		`SELECT * FROM Msvm_GpuPartitionSettingData WHERE InstanceID LIKE 'Microsoft:Definition%Default'`)
	text, err := r.Text(t.Context(), hyperv.Virtualization, template.Path)
	if err != nil {
		t.Fatal(err)
	}
	settings := r.one(t, hyperv.Virtualization,
		`SELECT * FROM Msvm_VirtualSystemSettingData WHERE VirtualSystemType='Microsoft:Hyper-V:System:Realized' AND VirtualSystemIdentifier='`+
			vm+`'`)
	result, err := r.Invoke(t.Context(), hyperv.Virtualization, r.service(t), "AddResourceSettings",
		map[string]any{"AffectedConfiguration": settings.Path, "ResourceSettings": []string{text}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (r *rig) service(t testing.TB) string {
	t.Helper()
	return r.one(t, hyperv.Virtualization, "SELECT * FROM Msvm_VirtualSystemManagementService").Path
}

// adapters counts the GPU partition adapters of a VM in the fleet.
func (r *rig) adapters(t testing.TB, vm string) int {
	t.Helper()
	s, err := r.fleet.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, ok := s.Hosts[0].VM(vm)
	if !ok {
		t.Fatalf("there is no VM %s", vm)
	}
	return len(v.PartitionAdapters)
}

// settles waits for a number that others still change.
func settles(t testing.TB, what string, want int, number func() int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for number() != want && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond) // COM objects end on threads of their own
	}
	if got := number(); got != want {
		t.Errorf("%s: got %d, want %d", what, got, want)
	}
}

func wantCode(t testing.TB, err error, want hyperv.Code) {
	t.Helper()
	f, ok := errors.AsType[*hyperv.Fault](err)
	if !ok || f.Code != want {
		t.Errorf("got %v, want a fault %v", err, want)
	}
}
