//go:build linux && cgo

package nvidia_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	t.Run("a tool that fails", func(t *testing.T) {
		b, root, _ := toolHost(t, map[string]string{"nvidia-ctk": "echo no driver >&2; exit 3"})
		put(t, filepath.Join(root, "etc/cdi/nvidia.yaml"))
		wantCode(t, b.RefreshDevices(t.Context()), backend.Failed, "no driver", "cdi generate")
	})
}
