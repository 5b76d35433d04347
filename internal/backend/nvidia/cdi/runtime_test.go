//go:build linux

package cdi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestRuntime starts a container with a share in a real runtime, and lets it look around.
func TestRuntime(t *testing.T) {
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skip("there is no OCI runtime: apt-get install --no-install-recommends runc")
	}
	h := newHost(t)
	h.realNodes()
	s := fraction()
	s.MPS.Pipe, s.MPS.Shm = h.at("/pipe"), h.at("/shm")
	h.write("/pipe/control", "")
	h.write("/shm/segment", "")
	w := h.must(s)

	bundle := t.TempDir()
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), runc, "spec", "--bundle", bundle).CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v: %s", err, out)
	}
	config := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	var c specs.Spec
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	c.Process.Terminal = false
	c.Process.Args = []string{"/bin/sh", "-c", `
		echo "share $GPUFLEET_SHARE threads $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE visible $NVIDIA_VISIBLE_DEVICES"
		ls "$CUDA_MPS_PIPE_DIRECTORY" /dev/shm
		for node in nvidiactl nvidia0 nvidia-uvm foreign; do
			[ -c /dev/$node ] || echo "there is no $node"
			cat </dev/$node
		done
		ls /dev/nvidia3`}
	// A node that no CDI device has is there, but may not be opened.
	c.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/foreign", Type: "c", Major: nvidiaMajor, Minor: 99}}
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr"} { // the host's own programs
		if _, err := os.Stat(dir); err == nil {
			c.Mounts = append(c.Mounts, specs.Mount{Destination: dir, Source: dir, Type: "bind", Options: []string{"rbind", "ro"}})
		}
	}
	h.inject(&c, w.Device)
	if data, err = json.Marshal(&c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, data, 0o600); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("gpu-share-test-%d", os.Getpid())
	out, err := exec.CommandContext(t.Context(), runc, "--root", t.TempDir(), "run", "--bundle", bundle, name).CombinedOutput()
	said := string(out)
	if !strings.Contains(said, "share team-a-0") && strings.Contains(said, "operation not permitted") {
		t.Skipf("containers cannot be started here (%s); run the tests as root on a machine that allows namespaces and cgroups to include this one", strings.TrimSpace(said))
	}
	for _, want := range []string{
		"share team-a-0 threads 12.5 visible void", "/tmp/nvidia-mps:\ncontrol", "/dev/shm:\nsegment",
		"cannot open /dev/foreign: Operation not permitted", "'/dev/nvidia3': No such file or directory",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the container does not say %q (%v):\n%s", want, err, said)
		}
	}
	for _, node := range []string{"nvidiactl", "nvidia0", "nvidia-uvm"} {
		// Where there is no driver the open fails, but not for want of permission.
		if strings.Contains(said, "there is no "+node) || strings.Contains(said, "/dev/"+node+": Operation not permitted") {
			t.Errorf("the container may not open /dev/%s:\n%s", node, said)
		}
	}
}
