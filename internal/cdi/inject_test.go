//go:build linux

package cdi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	fakecdi "github.com/gpufleet/terraform-provider-gpu/internal/fake/cdi"
)

// inject has the library give devices to a container, as container runtimes do.
func (h *host) inject(into *specs.Spec, devices ...string) {
	h.t.Helper()
	fakecdi.Inject(h.t, h.Root, into, devices...)
}

func container() *specs.Spec {
	return &specs.Spec{Process: &specs.Process{Env: []string{"NVIDIA_VISIBLE_DEVICES=all"}}, Linux: &specs.Linux{}}
}

func paths(s *specs.Spec) []string {
	var out []string
	for _, d := range s.Linux.Devices {
		out = append(out, d.Path)
	}
	return out
}

func mounts(s *specs.Spec) map[string]string {
	out := map[string]string{}
	for _, m := range s.Mounts {
		out[m.Destination] = m.Source
	}
	return out
}

// With the toolkit's specification a share is complete.
func TestInjectWithTheDriver(t *testing.T) {
	h := newHost(t)
	h.realNodes()
	h.install(toolkit)
	w := h.must(fraction())
	if w.Note != "" {
		t.Errorf("it says %s", w.Note)
	}
	c := container()
	h.inject(c, w.CDIDevice)

	if got := strings.Join(paths(c), " "); got != "/dev/nvidiactl /dev/nvidia0 /dev/nvidia-uvm /dev/nvidia-uvm-tools" {
		t.Errorf("the devices are %s", got)
	}
	for _, want := range []string{
		"NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12.5", "GPUFLEET_SHARE=team-a-0",
	} {
		if !slices.Contains(c.Process.Env, want) {
			t.Errorf("%s is missing in %q", want, c.Process.Env)
		}
	}
	got := mounts(c)
	if got["/tmp/nvidia-mps"] != "/run/gpu-mps/a/pipe" || got["/dev/shm"] != "/run/gpu-mps/a/shm" ||
		got["/usr/lib/libcuda.so.580.65.06"] == "" || len(c.Mounts) != 3 {
		t.Errorf("the mounts are %v", got)
	}
	if c.Hooks == nil || len(c.Hooks.CreateContainer) != 1 {
		t.Errorf("the hooks are %+v", c.Hooks)
	}
	// The toolkit's own permissions of the node stand.
	if i := slices.IndexFunc(c.Linux.Resources.Devices, func(d specs.LinuxDeviceCgroup) bool { return d.Access == "rw" }); i < 0 {
		t.Errorf("the cgroup allows %+v", c.Linux.Resources.Devices)
	}
}

// What two GPUs have in common is there once.
func TestInjectSeveralGPUs(t *testing.T) {
	h := newHost(t)
	h.realNodes()
	h.install(toolkit)
	c := container()
	h.inject(c, h.must(whole()).CDIDevice)
	if got := strings.Join(paths(c), " "); got != "/dev/nvidiactl /dev/nvidia0 /dev/nvidia3 /dev/nvidia-uvm /dev/nvidia-uvm-tools" {
		t.Errorf("the devices are %s", got)
	}
	if len(c.Hooks.CreateContainer) != 1 || mounts(c)["/tmp/nvidia-mps"] != "/tmp/nvidia-mps" {
		t.Errorf("the hooks are %+v, the mounts %v", c.Hooks, c.Mounts)
	}
	if spec := h.spec("team-c"); len(spec.Devices[0].ContainerEdits.Hooks) != 1 || len(spec.Devices[0].ContainerEdits.Env) != 4 {
		t.Errorf("the specification repeats itself: %+v", spec.Devices[0].ContainerEdits)
	}
}

// Without it, a container may ask for both devices.
func TestInjectBesideTheDriver(t *testing.T) {
	h := newHost(t)
	h.realNodes()
	w := h.must(fraction())
	h.install(toolkit)
	c := container()
	h.inject(c, "nvidia.com/gpu="+gpu0, w.CDIDevice)
	if got := mounts(c); got["/tmp/nvidia-mps"] != "/run/gpu-mps/a/pipe" || got["/usr/lib/libcuda.so.580.65.06"] == "" {
		t.Errorf("the mounts are %v", got)
	}
	if !slices.Contains(c.Process.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("the environment is %q", c.Process.Env)
	}
}

func TestInjectMIG(t *testing.T) {
	h := newHost(t)
	h.realNodes()
	c := container()
	h.inject(c, h.must(instance()).CDIDevice)
	if got := paths(c); !slices.Contains(got, "/dev/nvidia-caps/nvidia-cap30") || !slices.Contains(got, "/dev/nvidia-caps/nvidia-cap31") ||
		slices.Contains(got, "/dev/nvidia0") {
		t.Errorf("the devices are %s", got)
	}
}

// A specification of the toolkit's that cannot be read is named, and does not stop a share.
func TestBrokenToolkit(t *testing.T) {
	h := newHost(t)
	h.install(strings.Replace(toolkit, "cdiVersion: 0.5.0", "cdiVersion: 9.9.9", 1))
	w := h.must(fraction())
	if !strings.Contains(w.Note, h.at("/etc/cdi/nvidia.yaml")+" cannot be read") || !strings.Contains(w.Note, "9.9.9") ||
		!strings.Contains(w.Note, "nvidia-ctk cdi generate") {
		t.Errorf("it says %s", w.Note)
	}
}
