//go:build linux && cgo

package fakenvml_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
)

// The test binary runs itself with this to be another process on the same machine.
const roleVariable = "GPU_TEST_NVML_ROLE"

// What the other process does with the first GPU.
const (
	roleCreate = "create" // one instance, or nothing
	roleRace   = "race"   // all the instances that it gets
	roleLimit  = "limit"  // a memory limit, which takes a function of new drivers
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(role string) error {
	lib := nvml.New() // by the usual name
	if r := lib.Init(); r != nvml.SUCCESS {
		return fmt.Errorf("init: %w", r)
	}
	d, r := lib.DeviceGetHandleByIndex(0)
	if r != nvml.SUCCESS {
		return fmt.Errorf("GPU 0: %w", r)
	}
	switch role {
	case roleCreate:
		if _, r := create(d, id2g, 2); r != nvml.SUCCESS {
			return fmt.Errorf("create: %w", r)
		}
	case roleRace:
		for start := range 7 {
			if _, r := create(d, id1g, start); r != nvml.SUCCESS && r != nvml.ERROR_INSUFFICIENT_RESOURCES {
				return fmt.Errorf("create at %d: %w", start, r)
			}
		}
	case roleLimit:
		if r := d.SetMemoryLimits_v1("/", 1, 2); r != nvml.SUCCESS {
			return fmt.Errorf("limit: %w", r)
		}
	default:
		return fmt.Errorf("no role %q", role)
	}
	if r := lib.Shutdown(); r != nvml.SUCCESS {
		return fmt.Errorf("shutdown: %w", r)
	}
	return nil
}

// other is the other process, and what it prints.
func other(t *testing.T, m *fakenvml.Machine, role string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	c := exec.CommandContext(t.Context(), binary)
	c.Env = append(append(os.Environ(), m.Environ()...), roleVariable+"="+role)
	c.Stderr, c.Stdout = out, out
	return c, out
}

func TestSharedByProcesses(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	d := device(t, session(t, m), 0)
	mustCreate(t, d, id1g, 0)
	if c, out := other(t, m, roleCreate); c.Run() != nil {
		t.Fatal(out)
	}
	if got := m.GPU(0).Instances; len(got) != 2 || got[1].Profile != "2g.20gb" {
		t.Fatalf("%+v", got)
	}
	_, r := create(d, id1g, 3)
	is(t, r, nvml.ERROR_INSUFFICIENT_RESOURCES)
}

func TestRace(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	var all []func() error
	for range 3 {
		c, out := other(t, m, roleRace)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, func() error {
			if err := c.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for _, wait := range all {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	made := 0
	for _, call := range m.Calls() {
		if call.Function == "nvmlDeviceCreateGpuInstanceWithPlacement" && call.Result == 0 {
			made++
		}
	}
	if got := len(m.GPU(0).Instances); got != 7 || made != 7 {
		t.Errorf("%d instances, %d calls succeeded", got, made)
	}
}

func TestKilledInACall(t *testing.T) {
	for _, effect := range []bool{false, true} {
		m := machine(t, inMIG(hopper()))
		m.Fail(fakenvml.Fault{Function: "nvmlDeviceCreateGpuInstanceWithPlacement", Kill: true, Effect: effect})
		c, out := other(t, m, roleCreate)
		err := c.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.String() != "signal: killed" {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := len(m.GPU(0).Instances); (got == 1) != effect {
			t.Errorf("effect %v: %d instances", effect, got)
		}
		if out, code := smi(t, m, "--gpu-reset"); code != 0 {
			t.Errorf("the dead process still holds the GPU: %s", out)
		}
	}
}

// This is what go-nvml does to a program that does not look a symbol up first.
func TestMissingFunctionAborts(t *testing.T) {
	m := fakenvml.New(t, fakenvml.Options{GPUs: []fakenvml.GPU{hopper()}, Missing: []string{"nvmlDeviceSetMemoryLimits_v1"}})
	c, out := other(t, m, roleLimit)
	err := c.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 127 || !strings.Contains(out.String(), "symbol lookup error") {
		t.Fatalf("%v\n%s", err, out)
	}
}
