//go:build linux

package cdi_test

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	fakecdi "github.com/gpufleet/terraform-provider-gpu/internal/fake/cdi"
)

// TestRuntime starts a container with a share in a real runtime, and lets it look around.
func TestRuntime(t *testing.T) {
	h := newHost(t)
	h.realNodes()
	s := fraction()
	s.MPS.Pipe, s.MPS.Shm = h.at("/pipe"), h.at("/shm")
	h.write("/pipe/control", "")
	h.write("/shm/segment", "")
	w := h.must(s)

	said := fakecdi.Run(t, h.Root, `
		echo "share $GPUFLEET_SHARE threads $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE visible $NVIDIA_VISIBLE_DEVICES"
		ls "$CUDA_MPS_PIPE_DIRECTORY" /dev/shm
		for node in nvidiactl nvidia0 nvidia-uvm foreign; do
			[ -c /dev/$node ] || echo "there is no $node"
			cat </dev/$node
		done
		ls /dev/nvidia3`, func(c *specs.Spec) {
		// A node that no CDI device has is there, but may not be opened.
		c.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/foreign", Type: "c", Major: fakecdi.Major, Minor: 99}}
	}, w.CDIDevice)
	for _, want := range []string{
		"share team-a-0 threads 12.5 visible void", "/tmp/nvidia-mps:\ncontrol", "/dev/shm:\nsegment",
		"cannot open /dev/foreign: Operation not permitted", "'/dev/nvidia3': No such file or directory",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the container does not say %q:\n%s", want, said)
		}
	}
	for _, node := range []string{"nvidiactl", "nvidia0", "nvidia-uvm"} {
		// Where there is no driver the open fails, but not for want of permission.
		if strings.Contains(said, "there is no "+node) || strings.Contains(said, "/dev/"+node+": Operation not permitted") {
			t.Errorf("the container may not open /dev/%s:\n%s", node, said)
		}
	}
}
