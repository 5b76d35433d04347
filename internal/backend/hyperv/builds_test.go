package hyperv_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAHostWithoutHyperV(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.Hide(hyperv.Virtualization)
	_, err := r.backend.Inventory(t.Context())
	refuses(t, err, backend.NotSupported, "the host has no Hyper-V", "Install-WindowsFeature Hyper-V")
	refuses(t, r.backend.StartVM(t.Context(), alpha), backend.NotSupported, "the host has no Hyper-V")
	for _, answer := range r.backend.SelfTest(t.Context()) {
		if e, ok := errors.AsType[*backend.Error](answer.Err); answer.Err != nil && (!ok || e.Code != backend.NotSupported) {
			t.Errorf("%s: %v", answer.Assumption, answer.Err)
		}
	}

	r = newRig(t)
	r.machine.StopHyperV()
	_, err = r.backend.Inventory(t.Context())
	refuses(t, err, backend.Unavailable, "Start-Service vmms")
}

// A namespace that shows nothing says nothing about the VMs: the service tells why.
func TestHyperVShowsNothing(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]backend.Code{
		"Running": backend.AccessDenied, "Stopped": backend.Unavailable, "": backend.NotSupported,
	} {
		r := newRig(t)
		r.machine.Unprivileged()
		r.wire.change(func(w *wire) {
			w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
				if wql != "SELECT * FROM Win32_Service WHERE Name='vmms'" {
					return rows
				}
				if state == "" {
					return nil
				}
				rows[0].Values["State"] = state
				return rows
			}
		})
		_, err := r.backend.Inventory(t.Context())
		refuses(t, err, want)
	}
}

// What a build does not have is absent, and asking for it is refused as not supported.
func TestOldBuilds(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) {
		h.OS = gpu.OS{Name: "Windows Server 2022 Datacenter", Build: 20348}
		for _, i := range []int{0, 1} {
			h.GPUs[i].Partitionable.SupportsIncomingLiveMigration = ptr(true)
		}
	}))
	r.seated(alpha)
	host := r.host()
	a := gpuOf(host, gpuA)
	if host.OS.Build != 20348 || a.Partitionable.SupportsIncomingLiveMigration != nil {
		t.Errorf("Windows Server 2022 has %+v, %+v", host.OS, a.Partitionable)
	}
	for _, g := range host.GPUs {
		if g.Partitionable != nil && slices.ContainsFunc(g.Partitionable.Partitions,
			func(p gpu.Partition) bool { return p.SupportsOutgoingLiveMigration != nil }) {
			t.Errorf("its partitions are %+v", g.Partitionable.Partitions)
		}
	}

	for class, lost := range map[string]func(gpu.Host) bool{
		"Msvm_PartitionableGpu":        func(h gpu.Host) bool { return gpuOf(h, gpuA).Partitionable == nil },
		"Msvm_GpuPartition":            func(h gpu.Host) bool { return len(gpuOf(h, gpuA).Partitionable.Partitions) == 0 },
		"Msvm_GpuPartitionSettingData": func(h gpu.Host) bool { return len(vmOf(h, alpha).PartitionAdapters) == 0 },
		"Msvm_PciExpress":              func(h gpu.Host) bool { return len(h.Pools[0].GPUs) == 0 },
		"Msvm_PciExpressSettingData":   func(h gpu.Host) bool { return len(vmOf(h, alpha).Devices) == 0 },
	} {
		r := newRig(t, onHost(withAdapter), onHost(withDevice))
		r.machine.Hide(class)
		if h := r.host(); !lost(h) || len(h.VMs) != 2 {
			t.Errorf("without %s the host is %+v", class, h)
		}
	}
}

func TestWhatABuildCannotDo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.Hide("Msvm_GpuPartitionSettingData")
	r.machine.Hide("Msvm_AssignableDeviceService")
	r.machine.Hide("Msvm_ResourcePoolConfigurationService")
	before := r.host()
	_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
	refuses(t, err, backend.NotSupported, "Msvm_GpuPartitionSettingData", "this build of Windows cannot do it")
	refuses(t, r.backend.DismountDevice(t.Context(), gpuA, false), backend.NotSupported, "Msvm_AssignableDeviceService",
		"enabled and mounted as before")
	refuses(t, r.backend.MountDevice(t.Context(), gpuD), backend.NotSupported, "Msvm_AssignableDeviceService")
	refuses(t, r.backend.CreatePool(t.Context(), "new"), backend.NotSupported, "Msvm_ResourcePoolConfigurationService")
	same(t, before, r.host())

	r = newRig(t)
	r.machine.Hide("Msvm_PartitionableGpu.ValidPartitionCounts")
	refuses(t, r.backend.SetPartitionCount(t.Context(), gpuA, 8), backend.InvalidParameter)
	r = newRig(t)
	r.machine.Hide("Msvm_PartitionableGpu")
	refuses(t, r.backend.SetPartitionCount(t.Context(), gpuA, 8), backend.NotSupported, "no GPU partitioning")
	r = newRig(t)
	r.machine.Hide("Msvm_ShutdownComponent")
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning))
	refuses(t, r.backend.ShutDownVM(t.Context(), alpha, false), backend.NotSupported, "Msvm_ShutdownComponent")
}

// The feature of clusters may be there without a cluster, and a cluster without its
// service. A node whose service stands still owns nothing that it shows.
func TestClusterServices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if h := r.host(); h.Cluster != nil {
		t.Errorf("a host in no cluster is in %+v", h.Cluster)
	}
	r.machine.ClusterService(fakewmi.ClusterNotConfigured)
	if h := r.host(); h.Cluster != nil || h.VMs[0].Clustered {
		t.Errorf("a host with the feature alone is in %+v", h.Cluster)
	}
	r.run(r.backend.StartVM(t.Context(), alpha))
	refuses(t, r.backend.ApplyVMSettings(t.Context(), beta, gpu.VMSettings{OfflineAction: ptr(gpu.OfflineSave)}),
		backend.NotSupported, "not clustered")

	r = newRig(t, inCluster)
	r.machine.ClusterService(fakewmi.ClusterNotRunning)
	wantUnknown(t, r.host(), gpu.PartCluster, "cluster service does not run", "Start-ClusterNode")
	r.machine.ClusterService(fakewmi.ClusterRunning)
	r.host()

	r = newRig(t, inCluster)
	r.wire.change(func(w *wire) {
		w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
			if wql == "SELECT * FROM MSCluster_Cluster" {
				return nil
			}
			return rows
		}
	})
	wantUnknown(t, r.host(), gpu.PartCluster, "shows no cluster", "Grant-ClusterAccess")
}
