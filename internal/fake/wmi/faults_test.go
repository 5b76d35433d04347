package fakewmi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccessDeniedToMethods(t *testing.T) {
	r := newRig(t)
	vm := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+alpha+"'").Path
	start := map[string]any{"RequestedState": int32(2)}
	r.machine.Deny("msvm_computersystem.requeststatechange")
	_, err := r.wmi.Invoke(t.Context(), hyperv.Virtualization, vm, "RequestStateChange", start)
	wantFault(t, "a method", err, hyperv.AccessDenied)
	r.machine.Allow("Msvm_ComputerSystem.RequestStateChange")
	r.returns(done, vm, "RequestStateChange", start)

	face := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu")[0].Path
	r.machine.Deny("Msvm_PartitionableGpu.Put")
	wantFault(t, "a write", r.wmi.Put(t.Context(), hyperv.Virtualization, face, map[string]any{"PartitionCount": int32(2)}),
		hyperv.AccessDenied)
	if count := r.host().GPUs[0].Partitionable.Count; count != 4 {
		t.Errorf("the count is %d", count)
	}
	r.query(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu")
}

func TestAHostWithoutHyperV(t *testing.T) {
	vmms := func(r *rig) []hyperv.Row {
		return r.query(hyperv.CIMv2, "SELECT * FROM Win32_Service WHERE Name='vmms'", "State")
	}
	namespaces := func(r *rig) []string {
		var out []string
		for _, row := range r.query("root", "SELECT * FROM __NAMESPACE", "Name") {
			out = append(out, row.String("Name"))
		}
		return out
	}
	r := newRig(t)
	if rows := vmms(r); len(rows) != 1 || rows[0].String("State") != "Running" || !slices.Contains(namespaces(r), "virtualization") {
		t.Errorf("the service is %+v", rows)
	}
	r.machine.StopHyperV()
	_, err := r.wmi.Query(t.Context(), hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem")
	wantFault(t, "a stopped service", err, hyperv.ProviderNoLoad)
	if rows := vmms(r); len(rows) != 1 || rows[0].String("State") != "Stopped" {
		t.Errorf("the service is %+v", rows)
	}

	r = newRig(t)
	r.machine.Hide("root/virtualization/v2")
	_, err = r.machine.Open(hyperv.Virtualization)
	wantFault(t, "a host without Hyper-V", err, hyperv.InvalidNamespace)
	if rows := vmms(r); len(rows) != 0 || slices.Contains(namespaces(r), "virtualization") {
		t.Errorf("the service is %+v", rows)
	}

	r = newRig(t)
	host := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='hv01'")[0].Path
	r.machine.Unprivileged()
	if rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem"); len(rows) != 0 {
		t.Errorf("an account without rights sees %+v", rows)
	}
	_, err = r.wmi.Get(t.Context(), hyperv.Virtualization, host, "Name")
	wantFault(t, "the host to an account without rights", err, hyperv.NotFound)
	r.query(hyperv.CIMv2, "SELECT * FROM Win32_PnPEntity")
}

func TestClusterServices(t *testing.T) {
	state := func(r *rig) uint64 {
		return hyperv.Row{Values: r.invoke(hyperv.MSCluster, "MSCluster_Cluster", "GetNodeClusterState", nil).Out}.Uint("ClusterState")
	}
	r := newRig(t)
	r.machine.ClusterService(fakewmi.ClusterNotConfigured)
	if rows := r.query(hyperv.MSCluster, "SELECT * FROM MSCluster_Cluster"); len(rows) != 0 || state(r) != fakewmi.ClusterNotConfigured {
		t.Errorf("a host in no cluster shows %+v", rows)
	}
	r = newRig(t, inCluster)
	if state(r) != fakewmi.ClusterRunning {
		t.Errorf("the service is %d", state(r))
	}
	r.machine.ClusterService(fakewmi.ClusterNotRunning)
	if rows := r.query(hyperv.MSCluster, "SELECT * FROM CIM_ManagedSystemElement"); len(rows) != 0 || state(r) != fakewmi.ClusterNotRunning {
		t.Errorf("a node whose service stands shows %+v", rows)
	}
	r.machine.ClusterService(fakewmi.ClusterRunning)
	r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_Cluster")

	r.machine.SharedVolumes(`C:\ClusterStorage\A`, `C:\ClusterStorage\B`)
	if rows := r.query(hyperv.MSCluster, "SELECT * FROM MSCluster_ClusterSharedVolume", "Name"); len(rows) != 2 ||
		rows[1].String("Name") != `C:\ClusterStorage\B` {
		t.Errorf("the volumes are %+v", rows)
	}
}

// A job that vanishes does what it should all the same.
func TestJobsVanish(t *testing.T) {
	r := newRig(t)
	r.machine.DropJob("AddResourceSettings")
	path, method, in := r.add()
	res := r.invoke(hyperv.Virtualization, path, method, in)
	job, _ := res.Out["Job"].(string)
	_, err := r.wmi.Get(t.Context(), hyperv.Virtualization, job, "JobState")
	wantFault(t, "a job that vanished", err, hyperv.NotFound)
	r.machine.Wait()
	if n := len(r.vm(alpha).PartitionAdapters); n != 1 {
		t.Errorf("there are %d adapters", n)
	}
	r.returns(done, path, method, in) // the next one stays
}

// A VM whose job fails is not on its way any more.
func TestAStartThatFailsEnds(t *testing.T) {
	r := newRig(t)
	vm := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+alpha+"'").Path
	r.machine.FailJob("RequestStateChange", 32768, "not now")
	r.returns(32768, vm, "RequestStateChange", map[string]any{"RequestedState": int32(2)})
	r.machine.Wait()
	row := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+alpha+"'", "EnabledState")
	if row.Uint("EnabledState") != 3 {
		t.Errorf("the VM is %d", row.Uint("EnabledState"))
	}
	r.returns(done, vm, "RequestStateChange", map[string]any{"RequestedState": int32(2)})
}

// A partition shows the path of its GPU, or of its virtual function, which is no other
// GPU's.
func TestPathsOfPartitions(t *testing.T) {
	r := newRig(t, func(s *gpu.Snapshot) {
		s.Hosts[0].VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "AAAAAAAA-0000-4000-8000-000000000001", PinnedGPU: gpuA}}
	})
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning))
	path := func() string {
		return r.one(hyperv.Virtualization, "SELECT * FROM Msvm_GpuPartition", "DeviceInstancePath").String("DeviceInstancePath")
	}
	if path() != nameA {
		t.Errorf("the path is %s", path())
	}
	r.machine.FunctionPaths()
	if got := path(); got == instanceA || !strings.HasPrefix(got, strings.TrimSuffix(instanceA, "0000")) {
		t.Errorf("the path is %s", got)
	}
}
