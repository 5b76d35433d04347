//go:build linux && cgo

package fakenvml_test

import (
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
)

func TestFaults(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	d := device(t, session(t, m), 0)
	m.Fail(fakenvml.Fault{Function: "nvmlDeviceCreateGpuInstanceWithPlacement", Skip: 1, Times: 2, Code: int(nvml.ERROR_UNKNOWN)})
	for start, want := range []nvml.Return{nvml.SUCCESS, nvml.ERROR_UNKNOWN, nvml.ERROR_UNKNOWN, nvml.SUCCESS} {
		_, r := create(d, id1g, start)
		is(t, r, want)
	}
	if got := len(m.GPU(0).Instances); got != 2 {
		t.Errorf("%d instances", got)
	}
	m.Fail(fakenvml.Fault{Function: "nvmlDeviceCreateGpuInstanceWithPlacement", Code: int(nvml.ERROR_TIMEOUT), Effect: true})
	_, r := create(d, id1g, 6)
	is(t, r, nvml.ERROR_TIMEOUT)
	if got := len(m.GPU(0).Instances); got != 3 {
		t.Errorf("%d instances after a call that failed and did its work", got)
	}
}

func TestCallsAndDelay(t *testing.T) {
	m := machine(t, hopper())
	d := device(t, session(t, m), 0)
	m.ForgetCalls()
	m.Delay("*", time.Millisecond)
	m.Delay("nvmlDeviceGetName", 50*time.Millisecond)
	start := time.Now()
	for range 5 {
		_, r := d.GetUUID()
		ok(t, r)
	}
	if took := time.Since(start); took < 5*time.Millisecond {
		t.Errorf("five calls took %v", took)
	}
	start = time.Now()
	_, r := d.GetName()
	ok(t, r)
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("the slow call took %v", took)
	}
	_, r = d.GetPciInfo()
	ok(t, r)
	calls := m.Calls()
	if len(calls) != 7 || calls.Count("nvmlDeviceGetUUID") != 5 || calls.Count("nvmlDeviceGetPciInfo_v3") != 1 {
		t.Errorf("calls %v", calls.ByFunction())
	}
	m.Delay("nvmlDeviceGetUUID", time.Hour)
	m.Heal()
	_, r = d.GetUUID() // at once
	ok(t, r)
}

func TestMissingFunctions(t *testing.T) {
	const lacking = "nvmlDeviceSetMemoryLimits_v1"
	for _, missing := range [][]string{{lacking}, nil} {
		m := fakenvml.New(t, fakenvml.Options{GPUs: []fakenvml.GPU{hopper()}, Missing: missing})
		lib := session(t, m)
		err := lib.Extensions().LookupSymbol(lacking)
		if (err != nil) != (missing != nil) {
			t.Errorf("missing %v: %v", missing, err)
		}
		if err := lib.Extensions().LookupSymbol("nvmlDeviceGetName"); err != nil {
			t.Error(err)
		}
		// Calls go to the library that was loaded first, whatever its build.
		if got := device(t, lib, 0); got == nil {
			t.Error("no GPU")
		}
	}
}

// What the fake does not know is refused, not absent: go-nvml would abort.
func TestOtherFunctions(t *testing.T) {
	d := device(t, session(t, machine(t, hopper())), 0)
	_, r := d.GetFanSpeed()
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	_, r = d.GetPowerUsage()
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
}
