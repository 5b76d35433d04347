//go:build linux

package cdi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	fakecdi "github.com/gpufleet/terraform-provider-gpu/internal/fake/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	gpu0 = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"
	gpu3 = "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5"
	mig  = "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
)

// host is a host's file system.
type host struct {
	cdi.Directory
	t *testing.T
}

// newHost has two GPUs, the second with a MIG instance. Its device nodes are plain files,
// which do until a container is to have them.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{Directory: cdi.Directory{Root: t.TempDir()}, t: t}
	for _, node := range []string{
		"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia3", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31",
	} {
		h.write("/dev/"+node, "")
	}
	h.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
	h.write("/proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu3/gi2/access 30\ngpu3/gi2/ci0/access 31\n")
	return h
}

// realNodes makes the device nodes nodes indeed.
func (h *host) realNodes() {
	h.t.Helper()
	fakecdi.MakeNodes(h.t, h.at("/dev"))
}

func (h *host) at(path string) string { return filepath.Join(h.Root, path) }

func (h *host) write(path, text string) {
	h.t.Helper()
	path = h.at(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(path string) {
	h.t.Helper()
	if err := os.Remove(h.at(path)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) text(path string) string {
	h.t.Helper()
	text, err := os.ReadFile(h.at(path))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// written is a share as the host has it once it was written.
type written struct {
	gpu.HandedShare
	// Changed tells whether its file is another one than before.
	Changed bool
}

// must writes a share that is all right.
func (h *host) must(s *cdi.Share) written {
	h.t.Helper()
	before, missing := os.Lstat(h.at(file(s.Name)))
	if err := h.Write(s); err != nil {
		h.t.Fatal(err)
	}
	after, err := os.Lstat(h.at(file(s.Name)))
	if err != nil {
		h.t.Fatal(err)
	}
	return written{h.found(s.Name), missing != nil || !os.SameFile(before, after)}
}

// spec is the specification of a share as it is on the disk.
func (h *host) spec(share string) specs.Spec {
	h.t.Helper()
	var out specs.Spec
	if err := json.Unmarshal([]byte(h.text(file(share))), &out); err != nil {
		h.t.Fatal(err)
	}
	return out
}

// shares are the names that the host has.
func (h *host) shares() string {
	h.t.Helper()
	found, _, err := h.List()
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	return strings.Join(names, " ")
}

func file(share string) string { return "/var/run/cdi/gpufleet.com-share_" + share + ".json" }

// fraction is a quarter of a GPU under MPS.
func fraction() *cdi.Share {
	priority := 1
	return &cdi.Share{
		Name:          "team-a-0",
		Devices:       []cdi.Device{{UUID: gpu0, Minor: 0}},
		MemoryRequest: gpu.FromMiB(10240),
		MemoryLimit:   gpu.FromMiB(20480),
		MPS: &cdi.MPS{
			Pipe: "/run/gpu-mps/a/pipe", Shm: "/run/gpu-mps/a/shm",
			ThreadPercentage: 12.5, MemoryLimit: gpu.FromMiB(20480), Priority: &priority,
		},
	}
}

// instance is a MIG device.
func instance() *cdi.Share {
	return &cdi.Share{Name: "team-b", Devices: []cdi.Device{{UUID: mig, Minor: 3, Instance: &cdi.Instance{GPU: 2, Compute: 0}}}}
}

// whole is two GPUs as they are.
func whole() *cdi.Share {
	return &cdi.Share{Name: "team-c", Devices: []cdi.Device{{UUID: gpu0, Minor: 0}, {UUID: gpu3, Minor: 3}}}
}

// toolkit is a specification as nvidia-ctk writes it.
const toolkit = `---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: ROOT/dev/nvidia0
      permissions: rw
- name: GPU-8a56a4bc-e184-a047-2620-be19fdf913d5
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia3
      hostPath: ROOT/dev/nvidia3
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=all, NVIDIA_CTK_LIBCUDA_DIR=/usr/lib]
  deviceNodes:
  - path: /dev/nvidiactl
    hostPath: ROOT/dev/nvidiactl
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib]
  mounts:
  - hostPath: /usr/lib/libcuda.so.580.65.06
    containerPath: /usr/lib/libcuda.so.580.65.06
    options: [ro, nosuid, nodev, rbind, rprivate]
  - hostPath: /tmp/nvidia-mps
    containerPath: /tmp/nvidia-mps
    options: [rw, nosuid, nodev, bind]
`

// install has the toolkit describe the host.
func (h *host) install(text string) {
	h.t.Helper()
	h.write("/etc/cdi/nvidia.yaml", strings.ReplaceAll(text, "ROOT", h.Root))
}
