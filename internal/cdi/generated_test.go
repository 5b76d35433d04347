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
`, []string{"--vendor=example.com", "--class=gpu", "--device-name-strategy=type-index", "--driver-root=/run/driver", "--nvidia-ctk-path=/opt/nvidia/nvidia-ctk"}},
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
