//go:build linux && cgo

package nvidia_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// sickCodes are what NVML answers for a GPU that does not work: it is lost, needs a reset,
// does not answer in time, and nobody knows.
var sickCodes = []int{15, 16, 10, 999}

// ofTheDriver are calls that no GPU is asked by: without them nobody knows of any.
var ofTheDriver = []string{"nvmlInit", "nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount"}

// eight is a host with eight GPUs, each with instances and a process.
func eight(t *testing.T) *fixture {
	t.Helper()
	var h gpu.Host
	for n := range 8 {
		h.GPUs = append(h.GPUs, h100(t, n+1))
	}
	f := newFixture(t, h)
	for n := range 8 {
		f.machine.CreateInstance(n, "1g.10gb", 0)
		f.machine.CreateInstance(n, "3g.40gb", 4)
		f.StartProcess(t, uuid(n+1), &gpu.MIGPlacement{Profile: "1g.10gb", Start: 0}, "train")
	}
	return f
}

// TestEveryCallOfAnInventoryFailsInTurn: what one GPU does not tell is that GPU's problem. It
// names the call and the code, and the others are as they always are.
func TestEveryCallOfAnInventoryFailsInTurn(t *testing.T) {
	f := eight(t)
	whole, err := f.backend.Inventory(t.Context())
	if err != nil || len(whole.Unknown) > 0 {
		t.Fatalf("%v, %v", whole.Unknown, err)
	}
	calls := f.machine.Calls().ByFunction()
	t.Logf("an inventory makes %d kinds of calls", len(calls))
	most := 2 // places in the inventory where each call fails
	if testing.Short() {
		most = 1
	}
	for function, times := range calls {
		if slices.Contains(ofTheDriver, function) || !strings.HasPrefix(function, "nvml") {
			continue
		}
		for at := range min(most, times) {
			for _, code := range sickCodes {
				skip := at * (times - 1) / max(most-1, 1)
				t.Run(fmt.Sprintf("%s %d of %d answers %d", function, skip+1, times, code), func(t *testing.T) {
					f.reopen(t)
					f.machine.Fail(fakenvml.Fault{Function: function, Skip: skip, Code: code})
					defer f.machine.Heal()
					got, err := f.backend.Inventory(t.Context())
					if err != nil {
						t.Fatalf("one call hides the host: %v", err)
					}
					wantSevenOfEight(t, whole, got, function, code)
					f.machine.Heal()
					again, err := f.backend.Inventory(t.Context())
					if err != nil || !reflect.DeepEqual(again, whole) {
						t.Errorf("healed, it shows %+v, %v", again.Unknown, err)
					}
				})
			}
		}
	}
}

// wantSevenOfEight compares an inventory in which one call failed with a whole one.
func wantSevenOfEight(t *testing.T, whole, got gpu.Host, function string, code int) {
	t.Helper()
	if len(got.GPUs) != len(whole.GPUs) {
		t.Fatalf("it lists %d GPUs", len(got.GPUs))
	}
	var sick []gpu.GPU
	for i := range got.GPUs {
		if !reflect.DeepEqual(got.GPUs[i], whole.GPUs[i]) {
			sick = append(sick, got.GPUs[i])
		}
	}
	if len(sick) > 1 && function != "nvmlSystemGetDriverVersion" {
		t.Fatalf("%d GPUs are not as they are", len(sick))
	}
	names := func(text string) bool {
		return strings.Contains(text, function) && strings.Contains(text, fmt.Sprintf("(%d)", code))
	}
	for _, g := range sick {
		if function == "nvmlSystemGetDriverVersion" {
			break
		}
		if !names(g.Problem) {
			t.Errorf("GPU %s says %q", g.ID, g.Problem)
		}
		if _, unknown := got.UnknownGPU(g.ID); !unknown {
			t.Errorf("GPU %s differs, and nothing says that it could not be read", g.ID)
		}
		if strings.HasPrefix(g.ID, gpu.Unidentified) {
			for i := range whole.GPUs { // whichever it is, it is not said to be gone
				_, listed := got.GPU(whole.GPUs[i].ID)
				if _, unknown := got.UnknownGPU(whole.GPUs[i].ID); !listed && !unknown {
					t.Errorf("GPU %s is neither listed nor unknown", whole.GPUs[i].ID)
				}
			}
		}
	}
	for _, u := range got.Unknown {
		if !names(u.Why) {
			t.Errorf("it says %q", u)
		}
	}
	if len(sick) > 0 && len(got.Unknown) == 0 {
		t.Error("nothing tells what could not be read")
	}
}

// TestSickGPURefusesChanges names the call and the code, and the GPU beside it changes.
func TestSickGPURefusesChanges(t *testing.T) {
	for _, code := range sickCodes {
		f := eight(t)
		p := gpu.MIGPlacement{Profile: "1g.10gb", Start: 1}
		for range 4 { // for as long as the test asks
			f.machine.Fail(fakenvml.Fault{Function: "nvmlDeviceGetMigMode", Code: code})
		}
		err := f.backend.CreateInstance(t.Context(), uuid(1), p)
		if err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetMigMode") || !strings.Contains(err.Error(), fmt.Sprintf("(%d)", code)) {
			t.Errorf("it says %v", err)
		}
		f.machine.Heal()
		if err := f.backend.CreateInstance(t.Context(), uuid(2), p); err != nil {
			t.Error(err)
		}
		if n := len(f.machine.GPU(1).Instances); n != 3 {
			t.Errorf("the GPU beside it has %d instances", n)
		}
	}
}

// TestDriverThatGoesIsTheHostsProblem: without it there is no GPU to speak of.
func TestDriverThatGoesIsTheHostsProblem(t *testing.T) {
	for _, code := range []int{1, 9, 18} {
		f := eight(t)
		f.machine.Fail(fakenvml.Fault{Function: "nvmlDeviceGetMigMode", Skip: 3, Code: code})
		_, err := f.backend.Inventory(t.Context())
		wantCode(t, err, backend.Unavailable, "nvmlDeviceGetMigMode")
		if _, err := f.backend.Inventory(t.Context()); err != nil {
			t.Errorf("it is there again, and: %v", err)
		}
	}
}

// reopen has a new backend ask, which has read nothing yet.
func (f *fixture) reopen(t *testing.T) {
	t.Helper()
	if err := f.backend.Close(); err != nil {
		t.Error(err)
	}
	f.open()
}

// TestGPUThatHangs is named within the patience, next time at once, and hides no other; who
// is cancelled is answered, and what needs no driver does not wait for one.
func TestGPUThatHangs(t *testing.T) {
	f := eight(t)
	whole, err := f.backend.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.patience = 3 * time.Second // the backend waits for a call in C, and a busy machine takes its time for those of the others
	f.reopen(t)
	f.machine.Hang(3, time.Hour)
	for range 2 {
		got, err := f.backend.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.GPUs {
			if u, unknown := got.UnknownGPU(got.GPUs[i].ID); i == 3 &&
				(!unknown || !strings.Contains(u.Why, "has not answered within 3s") || got.GPUs[i].ID != uuid(4)) {
				t.Errorf("of the GPU that hangs it says %+v", got.GPUs[i])
			} else if i != 3 && !reflect.DeepEqual(got.GPUs[i], whole.GPUs[i]) {
				t.Errorf("GPU %d is not as it is", i)
			}
		}
	}
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		_ = f.backend.CreateInstance(t.Context(), uuid(4), gpu.MIGPlacement{Profile: "1g.10gb", Start: 1}) // it takes as long as it takes
	}()
	eventually(t, "an inventory waits for the call", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = f.backend.Inventory(ctx)
		return err != nil && strings.Contains(err.Error(), "create the GPU instance")
	})
	wantCode(t, err, backend.Timeout, "has not ended", "create the GPU instance")
	if err := f.backend.RemoveShare(t.Context(), "none", false); err != nil {
		t.Error(err)
	}
	f.machine.Hang(3, 0)
	<-stuck
	if _, err := f.backend.Inventory(t.Context()); err != nil {
		t.Error(err)
	}
}
