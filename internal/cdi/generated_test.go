//go:build linux

package cdi_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
)

func TestGeneratedWith(t *testing.T) {
	t.Parallel()
	const edits = "\n    containerEdits: { env: [A=b] }\n"
	for name, x := range map[string]struct {
		spec string
		want []string
	}{
		"as the tool does by itself": {`
kind: nvidia.com/gpu
devices: []
containerEdits:
  mounts: [{ hostPath: /usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1 }]
  hooks: [{ hookName: createContainer, path: /usr/bin/nvidia-cdi-hook }]
`, nil},
		"another class, and names by UUID and index": {
			`
kind: nvidia.com/half
devices:
  - name: "0"` + edits + `  - name: GPU-1` + edits + `  - name: all` + edits,
			[]string{"--class=half", "--device-name-strategy=index", "--device-name-strategy=uuid"},
		},
		"another vendor, names of MIG instances, and a container with the driver": {`
kind: example.com/gpu
devices:
  - name: mig0:1` + edits + `containerEdits:
  mounts:
    - { hostPath: /etc/nvidia.conf, containerPath: /etc/nvidia.conf }
    - { hostPath: /run/driver/usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1 }
    - { hostPath: /mnt/usr/bin/nvidia-smi, containerPath: /usr/bin/nvidia-smi }
  hooks:
    - { hookName: createContainer, path: /usr/bin/other }
    - { hookName: createContainer, path: /opt/nvidia/nvidia-ctk }
    - { hookName: createContainer, path: /nowhere/nvidia-cdi-hook }
`, []string{
			"--vendor=example.com", "--class=gpu", "--device-name-strategy=type-index", "--driver-root=/run/driver",
			"--nvidia-ctk-path=/opt/nvidia/nvidia-ctk",
		}},
		"a container with the driver, and the device nodes of the host": {`
kind: nvidia.com/gpu
devices:
  - { name: GPU-1, containerEdits: { deviceNodes: [{ path: /dev/nvidia0 }] } }
containerEdits:
  mounts: [{ hostPath: /run/driver/usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1 }]
`, []string{"--device-name-strategy=uuid", "--driver-root=/run/driver", "--dev-root=/"}},
		"a container with both": {`
kind: nvidia.com/gpu
devices:
  - { name: GPU-1, containerEdits: { deviceNodes: [{ path: /dev/nvidia0, hostPath: /run/driver/dev/nvidia0 }] } }
containerEdits:
  mounts: [{ hostPath: /run/driver/usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1 }]
`, []string{"--device-name-strategy=uuid", "--driver-root=/run/driver"}},
		"device nodes elsewhere alone": {`
kind: nvidia.com/gpu
devices:
  - { name: GPU-1, containerEdits: { env: [A=b] } }
containerEdits:
  deviceNodes: [{ path: /dev/nvidiactl, hostPath: /nodes/dev/nvidiactl }]
`, []string{"--device-name-strategy=uuid", "--dev-root=/nodes"}},
		"device nodes of the host": {`
kind: nvidia.com/gpu
devices:
  - { name: GPU-1, containerEdits: { deviceNodes: [{ path: /dev/nvidia0, hostPath: /dev/nvidia0 }] } }
`, []string{"--device-name-strategy=uuid"}},
		"nothing that can be read": {"kind: [", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "nvidia.yaml")
			if err := os.WriteFile(file, []byte("cdiVersion: 0.6.0"+x.spec), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(x.want, cdi.GeneratedWith(file)); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}
