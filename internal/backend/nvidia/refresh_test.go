//go:build linux && cgo

package nvidia_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
		b, root, calls := toolHost(t, map[string]string{
			"systemctl": "[ $1 = show ] && echo loaded; true", "nvidia-ctk": "", "nvidia-modprobe": "",
		})
		access := filepath.Join(root, "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access")
		put(t, access)
		put(t, filepath.Join(root, "var/run/cdi/nvidia.yaml"))
		if err := b.RefreshDevices(t.Context()); err != nil {
			t.Fatal(err)
		}
		said := calls()
		if !strings.Contains(said, "systemctl restart nvidia-cdi-refresh.service") || !strings.Contains(said, "nvidia-modprobe -f "+access) ||
			strings.Contains(said, "nvidia-ctk") {
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
- {name: `+uuid(1)+`, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
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
		want := "cdi generate --output=" + spec + " --device-name-strategy=index --device-name-strategy=uuid --driver-root=/run/nvidia/driver " +
			"--dev-root=/ --nvidia-cdi-hook-path=/opt/bin/nvidia-cdi-hook\n"
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
	for name, tool := range map[string]map[string]string{
		"a toolkit": {"nvidia-ctk": "echo no devices >&2; exit 1"},
		"a unit":    {"systemctl": "[ $1 = show ] && echo loaded; [ $1 != restart ]"},
	} {
		t.Run(name+" that fails while GPUs in MIG mode have no instance", func(t *testing.T) {
			b, root, calls := toolHost(t, tool)
			put(t, filepath.Join(root, "etc/cdi/nvidia.yaml"))
			p := gpu.MIGPlacement{Profile: "1g.10gb"}
			if err := errors.Join(b.CreateInstance(t.Context(), uuid(1), p), b.DestroyInstance(t.Context(), uuid(1), p)); err != nil {
				t.Fatal(err)
			}
			if before := inventory(t, b).Stale; len(before) != 1 {
				t.Fatalf("before it is tried, it says %q", before)
			}
			if err := b.RefreshDevices(t.Context()); err != nil {
				t.Error(err)
			}
			if said := calls(); !strings.Contains(said, "cdi generate") && !strings.Contains(said, "systemctl restart") {
				t.Errorf("it called\n%s", said)
			}
			if after := inventory(t, b).Stale; len(after) > 0 {
				t.Errorf("with nothing to hand over, it says %q", after)
			}
		})
	}
}

// TestAShareIsWrittenAfterAnotherTry at files that are behind: what still fails is noted and keeps no
// share from its container, and what does not is made good.
func TestAShareIsWrittenAfterAnotherTry(t *testing.T) {
	f := newShareFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}, ContainerToolkit: "1.18.0"})
	tool := filepath.Join(f.bin, "nvidia-ctk")
	works, err := os.ReadFile(tool)
	if err != nil {
		t.Fatal(err)
	}
	f.write(tool, "#!/bin/sh\necho no driver >&2; exit 3\n", 0o700)
	p := gpu.MIGPlacement{Profile: "1g.10gb"}
	if err := f.backend.CreateInstance(t.Context(), uuid(1), p); err != nil {
		t.Fatal(err)
	}
	wantCode(t, f.backend.RefreshDevices(t.Context()), backend.Failed, "no driver")
	share := gpu.ShareSpec{Name: "team-a", Devices: []gpu.SharedDevice{{GPU: uuid(1), Instance: &p}}}
	for _, c := range []struct{ script, stale string }{{"#!/bin/sh\necho no driver yet >&2; exit 3\n", "no driver yet"}, {string(works), ""}} {
		f.write(tool, c.script, 0o700)
		if err := f.backend.WriteShare(t.Context(), share); err != nil {
			t.Fatal(err)
		}
		h := inventory(t, f.backend)
		if stale := strings.Join(h.Stale, ""); !strings.Contains(stale, c.stale) || c.stale == "" && stale != "" {
			t.Errorf("it says %q, want %q", stale, c.stale)
		}
		handed, ok := h.HandedShare("team-a")
		if !ok || c.stale == "" && handed.Note != "" {
			t.Errorf("handed over: %v, %+v", ok, handed)
		}
	}
}

// TestToolsThatHang are given up on after their time, or when nobody waits any more, also where
// what they started keeps their output open.
func TestToolsThatHang(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
	for name, script := range map[string]string{
		"itself": "exec sleep 60", "what it started": "sleep 60 & exit 0", "both": "sleep 60 & sleep 60",
	} {
		t.Run(name, func(t *testing.T) {
			tool := filepath.Join(t.TempDir(), "nvidia-ctk")
			f.write(tool, "#!/bin/sh\n"+script+"\n", 0o700)
			_, err := nvidia.Run(t.Context(), 50*time.Millisecond, tool, "cdi", "generate")
			if err == nil || name != "what it started" && !strings.Contains(err.Error(), "nvidia-ctk cdi generate: it has not ended within 50ms") {
				t.Errorf("it says %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := nvidia.Run(ctx, time.Hour, tool); err == nil {
				t.Error("nobody waits, and it has ended well")
			}
		})
	}
}
