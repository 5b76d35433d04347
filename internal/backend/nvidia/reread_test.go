//go:build linux && cgo

package nvidia_test

import (
	"reflect"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What others do to a GPU shows when it is read again, and costs no call for the others.
func TestRefreshReadsTheGPUsThatItIsAskedFor(t *testing.T) {
	f := eight(t)
	before, err := f.backend.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.machine.CreateInstance(1, "1g.10gb", 2)
	f.machine.CreateInstance(5, "1g.10gb", 2)
	f.machine.ForgetCalls()
	got, done, err := f.backend.Refresh(t.Context(), before, backend.Objects{GPUs: []string{uuid(2)}})
	if err != nil || !done {
		t.Fatalf("%t, %v", done, err)
	}
	if n := len(got.GPUs[1].MIG.Instances); n != 3 {
		t.Errorf("the GPU that was read again has %d instances", n)
	}
	for i := range got.GPUs {
		if i != 1 && !reflect.DeepEqual(got.GPUs[i], before.GPUs[i]) {
			t.Errorf("GPU %d was not asked for, and differs", i)
		}
	}
	if n := len(f.machine.Calls()); n > 26 {
		t.Errorf("it made %d calls to NVML for one GPU with three instances", n)
	}
}

// A host with a GPU that does not answer, or that has VMs, is read as a whole.
func TestRefreshLeavesToAnInventoryWhatOnlyThatTells(t *testing.T) {
	f := eight(t)
	before, err := f.backend.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, done, err := f.backend.Refresh(t.Context(), before, backend.Objects{VMs: []string{"a"}}); done || err != nil {
		t.Errorf("VMs: %t, %v", done, err)
	}
	f.machine.LoseGPU(1)
	if _, done, err := f.backend.Refresh(t.Context(), before, backend.Objects{GPUs: []string{uuid(2)}}); done || err != nil {
		t.Errorf("a GPU that is lost: %t, %v", done, err)
	}
	lost, err := f.backend.Inventory(t.Context())
	if err != nil || len(lost.Unknown) == 0 {
		t.Fatalf("%v, %v", lost.Unknown, err)
	}
	if _, done, err := f.backend.Refresh(t.Context(), lost, backend.Objects{GPUs: []string{uuid(1)}}); done || err != nil {
		t.Errorf("after an inventory that lacks something: %t, %v", done, err)
	}
}

// An instance that others have put elsewhere meanwhile may have the number of the one that was
// seen. It is not that one.
func TestAnInstanceIsFoundByItsPlace(t *testing.T) {
	f := eight(t)
	f.machine.StopProcess(f.machine.GPU(0).Processes[0].PID)
	if _, err := f.backend.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	number := f.machine.GPU(0).Instances[0].ID
	f.machine.DestroyInstance(0, 0)
	f.machine.CreateInstance(0, "1g.10gb", 2)
	if again := f.machine.GPU(0).Instances; again[0].Start != 2 || again[0].ID != number {
		t.Fatalf("the number was not given again: %+v", again)
	}
	if err := f.backend.DestroyInstance(t.Context(), uuid(1), gpu.MIGPlacement{Profile: "1g.10gb", Start: 0}); err != nil {
		t.Error(err)
	}
	if n := len(f.machine.GPU(0).Instances); n != 2 {
		t.Errorf("an instance at another place was destroyed: %+v", f.machine.GPU(0).Instances)
	}
	if err := f.backend.DestroyInstance(t.Context(), uuid(1), gpu.MIGPlacement{Profile: "1g.10gb", Start: 2}); err != nil {
		t.Error(err)
	}
	if n := len(f.machine.GPU(0).Instances); n != 1 {
		t.Errorf("it was not destroyed: %+v", f.machine.GPU(0).Instances)
	}
}
