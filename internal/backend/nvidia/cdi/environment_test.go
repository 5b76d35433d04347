//go:build linux

package cdi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/cdi"
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
func (h *host) found(name string) cdi.Found {
	h.t.Helper()
	all, err := h.List()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	h.t.Fatalf("%s is not listed", name)
	return cdi.Found{}
}

// What a share lacks is said for as long as it does.
func TestNotes(t *testing.T) {
	h := newHost(t)
	note := func(step, want string) {
		t.Helper()
		if got := h.found("team-a-0").Note; (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: the note is %q, and %q was wanted", step, got, want)
		}
	}
	h.must(fraction())
	note("without a toolkit", "The host has no CDI device nvidia.com/gpu="+gpu0)
	h.install(toolkit)
	note("with one since", "libcuda.so.580.65.06 now, which the share has not")
	h.must(fraction())
	note("written again", "")
	h.install(strings.ReplaceAll(toolkit, "580.65.06", "590.10.01"))
	note("with another driver", "libcuda.so.590.10.01 now, which the share has not")
}

// A limit of one process is in the environment, and one of the container is for its runtime.
func TestContainerLimitsAreNotForTheHost(t *testing.T) {
	s := &cdi.Share{Name: "a", Devices: []cdi.Device{{UUID: gpu0}}, MemoryRequest: gpu.MiB, MemoryLimit: gpu.MiB}
	if got := cdi.Environment(s); len(got) != 2 {
		t.Errorf("the environment is %v", got)
	}
}
