//go:build wmifixture

package wmi_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi/comserver"
)

func TestServiceThatComesBack(t *testing.T) {
	r := newRig(t, 0)
	r.first(t, hyperv.Virtualization, gpus)
	r.machine.Gone(0)
	for range 2 {
		_, err := r.Query(t.Context(), hyperv.Virtualization, gpus)
		wantCode(t, err, hyperv.ServerUnavail)
	}
	r.machine.Back()
	r.first(t, hyperv.Virtualization, gpus)
}

func TestRestartedServiceIsNotNoticed(t *testing.T) {
	r := newRig(t, 1)
	path := r.first(t, hyperv.Virtualization, gpus).Path
	comserver.Restart()
	r.first(t, hyperv.Virtualization, gpus)
	comserver.Restart()
	if err := r.Put(t.Context(), hyperv.Virtualization, path, map[string]any{"PartitionCount": int32(8)}); err != nil {
		t.Error(err)
	}
	comserver.Restart()
	r.addAdapter(t, vmID(1))
}

// What may have been done already is not done again.
func TestMethodIsCalledOnce(t *testing.T) {
	r := newRig(t, 1)
	service := r.service(t)
	r.machine.Gone(1) // reading the service's instance is the call that passes
	_, err := r.Invoke(t.Context(), hyperv.Virtualization, service, "AddResourceSettings",
		map[string]any{"AffectedConfiguration": "x", "ResourceSettings": []string{"x"}})
	wantCode(t, err, hyperv.ServerUnavail)
	r.machine.Back()
	r.first(t, hyperv.Virtualization, gpus)
}

func TestManyAtOnce(t *testing.T) {
	r := newRig(t, 20)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			vm := vmID(n + 1)
			for range 10 {
				rows, err := r.Query(t.Context(), hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+vm+"'", "Name", "ElementName")
				if err != nil || len(rows) != 1 || rows[0].String("Name") != vm {
					t.Errorf("%s: got %v, %v", vm, rows, err)
				}
				rows, err = r.Query(t.Context(), hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'",
					"Name", "PrivateProperties")
				if err != nil || len(rows) != 20 {
					t.Errorf("%s: got %d resources, %v", vm, len(rows), err)
				}
			}
		})
	}
	time.AfterFunc(50*time.Millisecond, comserver.Restart)
	all.Wait()
}

func TestCallThatHangs(t *testing.T) {
	r := newRig(t, 0)
	r.first(t, hyperv.Virtualization, gpus)
	resume := comserver.Hang()
	defer resume()

	for range 2 { // the second waits for the first
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := r.Query(ctx, hyperv.Virtualization, gpus)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the time", err)
		}
	}
	time.AfterFunc(100*time.Millisecond, resume)
	r.first(t, hyperv.Virtualization, gpus)
}

func TestNothingIsDoneForACallerWhoHasGone(t *testing.T) {
	r := newRig(t, 0)
	path := r.first(t, hyperv.Virtualization, gpus).Path
	resume := comserver.Hang()
	defer resume()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := r.Put(ctx, hyperv.Virtualization, path, map[string]any{"PartitionCount": int32(8)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the time", err)
	}
	resume()
	time.Sleep(100 * time.Millisecond) // as long as a count takes to become visible, and longer
	if row := r.first(t, hyperv.Virtualization, gpus, "PartitionCount"); row.Uint("PartitionCount") != 4 {
		t.Errorf("the partition count is %v", row.Values)
	}
}

func TestCallThatIsCancelledBefore(t *testing.T) {
	r := newRig(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Query(ctx, hyperv.Virtualization, gpus); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := wmi.Open(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestClose(t *testing.T) {
	r := newRig(t, 0)
	r.first(t, hyperv.Virtualization, gpus)
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := r.Query(t.Context(), hyperv.Virtualization, gpus)
	wantCode(t, err, hyperv.Disconnected)
}

func TestCloseWhileACallHangs(t *testing.T) {
	r := newRig(t, 0)
	resume := comserver.Hang()
	defer resume()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Query(ctx, hyperv.Virtualization, gpus); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the time", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsLeaked(t *testing.T) {
	r := newRig(t, 10)
	service := r.service(t)
	use := func() {
		for range 10 {
			r.first(t, hyperv.Virtualization, gpus, "Name", "ValidPartitionCounts", "TotalVRAM", "NoSuchProperty")
			r.first(t, hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'", "PrivateProperties")
			_, err := r.Query(t.Context(), hyperv.Virtualization, "SELECT * FROM Msvm_Nothing")
			wantCode(t, err, hyperv.InvalidClass)
			_, err = r.Invoke(t.Context(), hyperv.Virtualization, service, "AddResourceSettings", map[string]any{"Nothing": "x"})
			wantCode(t, err, hyperv.InvalidParameter)
		}
	}
	use()
	objects, handles := comserver.Held(), handleCount(t)
	for range 25 { // 1,000 calls
		use()
	}
	settles(t, "objects held", objects, comserver.Held)
	// The runtime may have started threads meanwhile.
	if now := handleCount(t); now > handles+50 {
		t.Errorf("the process had %d handles, and has %d", handles, now)
	}
}

func handleCount(t *testing.T) int {
	t.Helper()
	var n uint32
	proc := windows.NewLazySystemDLL("kernel32.dll").NewProc("GetProcessHandleCount")
	if ok, _, err := proc.Call(uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&n))); ok == 0 {
		t.Fatal(err)
	}
	return int(n)
}

// BenchmarkInventory reads what an inventory of a host with 100 VMs reads.
func BenchmarkInventory(b *testing.B) {
	r := newRig(b, 100)
	queries := []struct {
		namespace, wql string
		properties     []string
	}{
		{hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem", []string{"Name", "ElementName", "EnabledState", "HealthState"}},
		{
			hyperv.Virtualization, gpus, []string{
				"Name", "PartitionCount", "ValidPartitionCounts", "TotalVRAM", "AvailableVRAM", "MinPartitionVRAM",
				"MaxPartitionVRAM", "OptimalPartitionVRAM",
			},
		},
		{hyperv.Virtualization, "SELECT * FROM Msvm_GpuPartition", []string{"SystemName", "PartitionId", "DeviceInstancePath"}},
		{hyperv.Virtualization, "SELECT * FROM Msvm_GpuPartitionSettingData", []string{"InstanceID", "HostResource", "PoolID"}},
		{hyperv.Virtualization, "SELECT * FROM Msvm_PciExpress", []string{"SystemName", "DeviceInstancePath", "LocationPath"}},
		{hyperv.Virtualization, "SELECT * FROM Msvm_PciExpressSettingData", []string{"InstanceID", "HostResource", "PoolID"}},
		{hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE ResourceType=32769", []string{"PoolID", "Primordial"}},
		{
			hyperv.Virtualization, "SELECT * FROM Msvm_VirtualSystemSettingData WHERE VirtualSystemType='Microsoft:Hyper-V:System:Realized'",
			[]string{
				"VirtualSystemIdentifier", "VirtualSystemSubType", "LowMmioGapSize", "HighMmioGapSize", "GuestControlledCacheTypes",
				"AutomaticShutdownAction", "UserSnapshotType",
			},
		},
		{hyperv.CIMv2, "SELECT * FROM Win32_PnPEntity WHERE PNPClass='Display'", []string{"DeviceID", "Name", "Manufacturer", "Status"}},
		{
			hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'",
			[]string{"Name", "OwnerNode", "State", "PrivateProperties"},
		},
	}
	for b.Loop() {
		for _, q := range queries {
			if _, err := r.Query(b.Context(), q.namespace, q.wql, q.properties...); err != nil {
				b.Fatal(err)
			}
		}
	}
}
