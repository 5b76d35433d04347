//go:build linux && cgo

package nvidia_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// toolHost is a host with tools that write down how they were called.
func toolHost(t *testing.T, tools map[string]string) (b *nvidia.Backend, root string, calls func() string) {
	t.Helper()
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	o := nvidia.Options{Library: f.machine.Library(), Root: f.tree.Root(), SMI: f.machine.SMI()}
	for name, at := range map[string]*string{"systemctl": &o.Systemctl, "nvidia-ctk": &o.CTK, "nvidia-modprobe": &o.Modprobe} {
		*at = filepath.Join(bin, name)
		if body, there := tools[name]; there {
			f.write(*at, fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%q\n%s\n", name, log, body), 0o700)
		}
	}
	return nvidia.New(o), f.tree.Root(), func() string {
		text, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestRefresh(t *testing.T) {
	put := func(t *testing.T, file string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a host without any tool", func(t *testing.T) {
		b, _, _ := toolHost(t, nil)
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("a toolkit with its unit", func(t *testing.T) {
		b, root, calls := toolHost(t, map[string]string{"systemctl": "[ $1 = show ] && echo loaded; true", "nvidia-ctk": "", "nvidia-modprobe": ""})
		access := filepath.Join(root, "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access")
		put(t, access)
		put(t, filepath.Join(root, "var/run/cdi/nvidia.yaml"))
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Fatal(err)
		}
		said := calls()
		if !strings.Contains(said, "systemctl restart nvidia-cdi-refresh.service") || !strings.Contains(said, "nvidia-modprobe -f "+access) || strings.Contains(said, "nvidia-ctk") {
			t.Errorf("it called\n%s", said)
		}
	})
	t.Run("a toolkit without a unit", func(t *testing.T) {
		b, root, calls := toolHost(t, map[string]string{"systemctl": "[ $1 = show ] && echo not-found; true", "nvidia-ctk": ""})
		spec := filepath.Join(root, "var/run/cdi/nvidia.yaml")
		put(t, spec)
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := calls(); !strings.Contains(said, "nvidia-ctk cdi generate --output="+spec) {
			t.Errorf("it called\n%s", said)
		}
	})
	t.Run("a specification that was never written", func(t *testing.T) {
		b, _, calls := toolHost(t, map[string]string{"nvidia-ctk": ""})
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := calls(); said != "" {
			t.Errorf("it called\n%s", said)
		}
	})
	t.Run("a FIFO in the place of the specification", func(t *testing.T) {
		b, root, calls := toolHost(t, map[string]string{"nvidia-ctk": ""})
		spec := filepath.Join(root, "etc/cdi/nvidia.yaml")
		put(t, spec)
		if err := os.Remove(spec); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(spec, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.RefreshDevices(t.Context()); err != nil || calls() != "" {
			t.Errorf("it called\n%s: %v", calls(), err)
		}
	})
	t.Run("a unit that has met its limit", func(t *testing.T) {
		b, _, calls := toolHost(t, map[string]string{"systemctl": "[ $1 = show ] && echo loaded; true"})
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Fatal(err)
		}
		if reset, restart := strings.Index(calls(), "reset-failed"), strings.Index(calls(), "restart"); reset < 0 || reset > restart {
			t.Errorf("it called\n%s", calls())
		}
	})
	t.Run("the admin's options stay", func(t *testing.T) {
		b, root, calls := toolHost(t, map[string]string{"nvidia-ctk": ""})
		spec := filepath.Join(root, "etc/cdi/nvidia.yaml")
		put(t, spec)
		if err := os.WriteFile(spec, []byte(`cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- {name: GPU-5eed0000-0000-4000-8000-000000000001, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
containerEdits:
  hooks: [{hookName: createContainer, path: /opt/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache]}]
  mounts:
  - {hostPath: /run/nvidia/driver/usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1}
  - {hostPath: /run/nvidia/driver/usr/lib/libnvidia-ml.so.1, containerPath: /usr/lib/libnvidia-ml.so.1}
`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "cdi generate --output=" + spec + " --device-name-strategy=index --device-name-strategy=uuid --driver-root=/run/nvidia/driver --nvidia-cdi-hook-path=/opt/bin/nvidia-cdi-hook\n"
		if said := calls(); !strings.Contains(said, want) {
			t.Errorf("it called\n%swant\n%s", said, want)
		}
	})
	t.Run("a tool that fails", func(t *testing.T) {
		broken := map[string]string{"nvidia-ctk": "[ -e $(dirname $0)/mended ] && exit 0; echo no driver >&2; exit 3"}
		b, root, _ := toolHost(t, broken)
		put(t, filepath.Join(root, "etc/cdi/nvidia.yaml"))
		p := gpu.MIGPlacement{Profile: "1g.10gb"}
		if err := b.CreateInstance(t.Context(), uuid(1), p); err != nil {
			t.Fatal(err)
		}
		stale := func() string {
			h, err := b.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(h.Stale, "")
		}
		if said := stale(); !strings.Contains(said, "instances have changed") {
			t.Errorf("before it was tried, it says %q", said)
		}
		wantCode(t, b.RefreshDevices(t.Context()), backend.Failed, "no driver", "cdi generate")
		if said := stale(); !strings.Contains(said, "no driver") {
			t.Errorf("it says %q", said)
		}
	})
	t.Run("a toolkit that fails while a GPU in MIG mode has no instance", func(t *testing.T) {
		b, root, _ := toolHost(t, map[string]string{"nvidia-ctk": "echo no devices >&2; exit 1"})
		put(t, filepath.Join(root, "etc/cdi/nvidia.yaml"))
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
