//go:build linux

package cdi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a process of the host needs is the same from the share and from its specification.
func TestEnvironment(t *testing.T) {
	h := newHost(t)
	h.install(toolkit) // which mounts pipes of its own
	several := fraction()
	several.Name, several.Devices, several.MPS.Priority = "several", whole().Devices, nil
	for _, test := range []struct {
		share *cdi.Share
		want  map[string]string
	}{
		{fraction(), map[string]string{
			"GPUFLEET_SHARE": "team-a-0", "CUDA_VISIBLE_DEVICES": gpu0, "CUDA_MPS_PIPE_DIRECTORY": "/run/gpu-mps/a/pipe",
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M", "CUDA_MPS_CLIENT_PRIORITY": "1",
		}},
		{several, map[string]string{
			"GPUFLEET_SHARE": "several", "CUDA_VISIBLE_DEVICES": gpu0 + "," + gpu3, "CUDA_MPS_PIPE_DIRECTORY": "/run/gpu-mps/a/pipe",
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M,1=20480M",
		}},
		{instance(), map[string]string{"GPUFLEET_SHARE": "team-b", "CUDA_VISIBLE_DEVICES": mig}},
		{whole(), map[string]string{"GPUFLEET_SHARE": "team-c", "CUDA_VISIBLE_DEVICES": gpu0 + "," + gpu3}},
	} {
		if diff := cmp.Diff(test.want, cdi.Environment(test.share)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.share.Name, diff)
		}
		h.must(test.share)
		if diff := cmp.Diff(test.want, h.found(test.share.Name).Environment); diff != "" {
			t.Errorf("%s, read (-want +got):\n%s", test.share.Name, diff)
		}
	}
}

// found is a share as it is listed.
func (h *host) found(name string) gpu.HandedShare {
	h.t.Helper()
	all, _, err := h.List()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	h.t.Fatalf("%s is not listed", name)
	return gpu.HandedShare{}
}

// What a share lacks is said for as long as it does, and where its file is not what would be
// written now.
func TestNotesAndWhatIsOutdated(t *testing.T) {
	h := newHost(t)
	const hook = `
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, apply-cuda-memory-limits, --gpu-id, ` + gpu0 + `]
  mounts:`
	hooked := strings.Replace(toolkit, "\n  mounts:", hook, 1)
	says := func(step, note, outdated string, limits bool) {
		t.Helper()
		found := h.found("team-a-0")
		if (note == "") != (found.Note == "") || !strings.Contains(found.Note, note) {
			t.Errorf("%s: the note is %q, and %q was wanted", step, found.Note, note)
		}
		if found.LimitsContainers != limits {
			t.Errorf("%s: it limits containers: %t", step, found.LimitsContainers)
		}
		if got, err := h.Outdated(fraction()); err != nil || got != outdated {
			t.Errorf("%s: it is outdated by %q (%v), and %q was wanted", step, got, err, outdated)
		}
	}
	again := func() { h.must(fraction()) }
	edit := func(old, with string) {
		t.Helper()
		text := h.text(file("team-a-0"))
		if !strings.Contains(text, old) {
			t.Fatalf("it has no %q:\n%s", old, text)
		}
		h.write(file("team-a-0"), strings.Replace(text, old, with, 1))
	}
	if got, err := h.Outdated(fraction()); got != "" || err != nil {
		t.Errorf("a share that is not there is outdated by %q (%v)", got, err)
	}
	again()
	says("without a toolkit", "The host has no CDI device nvidia.com/gpu="+gpu0, "", false)
	edit("PERCENTAGE=12.5", "PERCENTAGE=100")
	says("edited, without a toolkit", "The host has no CDI device", "has another variable CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", false)
	again()
	h.install(toolkit)
	says("with one since", "",
		"lacks /usr/lib/libcuda.so.580.65.06, hook update-ldcache --folder /usr/lib, variable NVIDIA_CTK_LIBCUDA_DIR, and has another device "+
			"node /dev/nvidia0", false)
	again()
	says("written again", "", "", false)
	h.install(strings.ReplaceAll(toolkit, "580.65.06", "590.10.01"))
	says("with another driver", "", "lacks /usr/lib/libcuda.so.590.10.01, and still has /usr/lib/libcuda.so.580.65.06", false)
	h.install(hooked)
	says("with a toolkit that limits", "", "lacks hook apply-cuda-memory-limits --gpu-id "+gpu0, false)
	again()
	says("written again for it", "", "", true)
	h.remove("/sys/fs/cgroup/cgroup.controllers")
	says("with version 1 of cgroups", "", "still has variable NVIDIA_GPU_MEMORY_LIMIT, variable NVIDIA_GPU_MEMORY_REQUEST", false)
	again()
	says("written again for them", "", "", false)
	edit("GPUFLEET_SHARE_DEVICES="+gpu0, "GPUFLEET_SHARE_DEVICES="+gpu3)
	says("edited to another GPU", "", "has another variable GPUFLEET_SHARE_DEVICES", false)
	again()
	h.remove("/etc/cdi/nvidia.yaml") // the libraries may be there all the same
	says("without a toolkit again", "The host has no CDI device", "", false)
	h.remove("/dev/nvidia0")
	if got, err := h.Outdated(fraction()); got != "" || err == nil {
		t.Errorf("without a device node it is outdated by %q (%v)", got, err)
	}
}

// A limit of one process is in the environment, and one of the container is for its runtime.
func TestContainerLimitsAreNotForTheHost(t *testing.T) {
	s := &cdi.Share{Name: "a", Devices: []cdi.Device{{UUID: gpu0}}, MemoryRequest: gpu.MiB, MemoryLimit: gpu.MiB}
	if got := cdi.Environment(s); len(got) != 2 {
		t.Errorf("the environment is %v", got)
	}
}
