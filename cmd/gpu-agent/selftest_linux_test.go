//go:build linux && cgo

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestSelftestOfAGPU prints a report of what a trial did and what it answered: with what it was
// done, each step, and a verdict for each assumption. A GPU that somebody uses is left alone.
func TestSelftestOfAGPU(t *testing.T) {
	const idle, used = "GPU-90000000-0000-4000-8000-000000000001", "GPU-90000000-0000-4000-8000-000000000002"
	m := fakenvml.New(t, fakenvml.Options{GPUs: []fakenvml.GPU{
		{Model: "NVIDIA L40S", Arch: fakenvml.Ada, UUID: idle}, {Model: "NVIDIA L40S", Arch: fakenvml.Ada, UUID: used},
	}})
	m.StartProcess(1, fakenvml.Compute, gpu.Process{PID: 4242, Name: "train"})
	root, nowhere := fakenvml.NewProcTree(t).Root(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"} {
		if err := os.WriteFile(filepath.Join(root, "dev", node), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	released := platformOptions
	t.Cleanup(func() { platformOptions = released })
	platformOptions = nvidia.Options{
		Library: m.Library(), SMI: m.SMI(), Root: root,
		Systemctl: filepath.Join(nowhere, "systemctl"), CTK: filepath.Join(nowhere, "nvidia-ctk"),
		Modprobe: filepath.Join(nowhere, "nvidia-modprobe"),
		MPS:      mps.Options{Program: filepath.Join(nowhere, "nvidia-cuda-mps-control")}, // and not this machine's
	}
	selftest := func(args ...string) (string, error) {
		cmd := newRoot()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"selftest", "--state-dir", filepath.Join(t.TempDir(), "state")}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	says := func(out string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("it does not say %q:\n%s", text, out)
			}
		}
	}
	before := []fakenvml.Device{m.GPU(0), m.GPU(1)}
	out, err := selftest("--answers")
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	says(out, "linux-time-slice-reset", "--change tries it", "assumptions: 0 hold, 0 do not,")
	if out, err = selftest("--change", "--gpu", idle); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	says(out, "Trying changes of GPU "+idle+", a NVIDIA L40S with driver ", "ok      set the time slice long",
		"ok      take the share back", "ok      compare with before")
	for _, a := range assumptions.Of(gpu.Linux) {
		says(out, a.ID+": "+a.Says)
	}
	if out, err = selftest("--change", "--gpu", used); err == nil || !strings.Contains(out, "failed") {
		t.Errorf("a GPU that is used: %v:\n%s", err, out)
	}
	says(out, "failed  choose the GPU: the GPU is in use by process 4242\n")
	for i, was := range before {
		if diff := cmp.Diff(was, m.GPU(i)); diff != "" {
			t.Errorf("GPU %d is another (-before +after):\n%s", i, diff)
		}
	}
}
