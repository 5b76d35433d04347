//go:build linux

package cdi_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
)

func TestWrite(t *testing.T) {
	h := newHost(t)
	node := func(path string) *specs.DeviceNode {
		return &specs.DeviceNode{Path: path, HostPath: h.at(path)}
	}
	common := []*specs.DeviceNode{node("/dev/nvidiactl"), node("/dev/nvidia-uvm"), node("/dev/nvidia-uvm-tools")}
	options := []string{"rw", "nosuid", "nodev", "bind"}
	for _, test := range []struct {
		share *cdi.Share
		want  specs.ContainerEdits
	}{
		{fraction(), specs.ContainerEdits{
			Env: []string{
				"GPUFLEET_SHARE=team-a-0", "GPUFLEET_SHARE_DEVICES=" + gpu0, "NVIDIA_VISIBLE_DEVICES=void",
				"NVIDIA_GPU_MEMORY_REQUEST=10240", "NVIDIA_GPU_MEMORY_LIMIT=20480",
				"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12.5", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M",
				"CUDA_MPS_CLIENT_PRIORITY=1",
			},
			DeviceNodes: append(common[:3:3], node("/dev/nvidia0")),
			Mounts: []*specs.Mount{
				{HostPath: "/run/gpu-mps/a/pipe", ContainerPath: "/tmp/nvidia-mps", Options: options},
				{HostPath: "/run/gpu-mps/a/shm", ContainerPath: "/dev/shm", Options: options},
			},
		}},
		{instance(), specs.ContainerEdits{
			Env: []string{
				"GPUFLEET_SHARE=team-b", "GPUFLEET_SHARE_DEVICES=" + mig, "NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=" + mig,
			},
			DeviceNodes: append(common[:3:3], node("/dev/nvidia3"), node("/dev/nvidia-caps/nvidia-cap30"), node("/dev/nvidia-caps/nvidia-cap31")),
		}},
		{whole(), specs.ContainerEdits{
			Env:         []string{"GPUFLEET_SHARE=team-c", "GPUFLEET_SHARE_DEVICES=" + gpu0 + "," + gpu3, "NVIDIA_VISIBLE_DEVICES=void"},
			DeviceNodes: append(common[:3:3], node("/dev/nvidia0"), node("/dev/nvidia3")),
		}},
	} {
		w := h.must(test.share)
		want := specs.Spec{
			Version: "0.5.0", // because of the nodes' path on the host
			Kind:    "gpufleet.com/share",
			Devices: []specs.Device{{Name: test.share.Name, ContainerEdits: test.want}},
		}
		if diff := cmp.Diff(want, h.spec(test.share.Name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.share.Name, diff)
		}
		if !w.Changed || w.CDIDevice != "gpufleet.com/share="+test.share.Name ||
			!strings.Contains(w.Note, "The host has no CDI device nvidia.com/gpu="+test.share.Devices[0].UUID) {
			t.Errorf("it says %+v", w)
		}
		path := h.at(file(test.share.Name))
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s is for %v (%v), but runtimes of users read it", path, info.Mode(), err)
		}
	}
	if got := h.shares(); got != "team-a-0 team-b team-c" {
		t.Errorf("there are %q", got)
	}
}

// Each GPU of a share has the limit, by its ordinal.
func TestLimitsOfSeveralGPUs(t *testing.T) {
	h := newHost(t)
	s := fraction()
	s.Devices = whole().Devices
	h.must(s)
	if env := strings.Join(h.spec(s.Name).Devices[0].ContainerEdits.Env, " "); !strings.Contains(env,
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M,1=20480M") {
		t.Errorf("the environment is %s", env)
	}
}

func TestMissingNodes(t *testing.T) {
	for path, says := range map[string]string{
		"/dev/nvidiactl":                      "the driver: there is no device node /dev/nvidiactl; load the driver",
		"/dev/nvidia-uvm":                     "/dev/nvidia-uvm; ",
		"/dev/nvidia3":                        "GPU " + mig + ": there is no device node /dev/nvidia3",
		"/dev/nvidia-caps/nvidia-cap31":       "/dev/nvidia-caps/nvidia-cap31",
		"/proc/driver/nvidia-caps/mig-minors": "capability devices of MIG",
		"/dev/nvidia-uvm-tools":               "", // a host does without
	} {
		h := newHost(t)
		h.remove(path)
		err := h.Write(instance())
		if says == "" {
			if err != nil || strings.Contains(h.text(file("team-b")), path) {
				t.Errorf("without %s: %v", path, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `share "team-b"`) || h.shares() != "" {
			t.Errorf("without %s: %v", path, err)
		}
	}
	h := newHost(t)
	s := instance()
	s.Devices[0].Instance.GPU = 1 // another GPU's
	if err := h.Write(s); err == nil || !strings.Contains(err.Error(), `no line "gpu3/gi1/access"`) {
		t.Errorf("an instance that the driver does not know: %v", err)
	}
}

// A share is written again after each boot and each update of the driver.
func TestWriteAgain(t *testing.T) {
	h := newHost(t)
	h.install(toolkit)
	h.must(fraction())
	first := h.text(file("team-a-0"))
	if w := h.must(fraction()); w.Changed || w.Note != "" || h.text(file("team-a-0")) != first {
		t.Errorf("nothing is new, but it says %+v", w)
	}
	h.install(strings.ReplaceAll(toolkit, "580.65.06", "590.10.01"))
	if w := h.must(fraction()); !w.Changed || !strings.Contains(h.text(file("team-a-0")), "libcuda.so.590.10.01") {
		t.Errorf("the driver is new, but it says %+v", w)
	}
	s := fraction()
	s.MPS.ThreadPercentage = 50
	if w := h.must(s); !w.Changed || !strings.Contains(h.text(file("team-a-0")), "PERCENTAGE=50") {
		t.Errorf("the share is new, but it says %+v", w)
	}
	if left, err := filepath.Glob(h.at("/var/run/cdi/*")); err != nil || len(left) != 1 {
		t.Errorf("there are %q: %v", left, err)
	}
}

func TestRemove(t *testing.T) {
	h := newHost(t)
	h.must(fraction())
	h.must(whole())
	for range 2 { // the second time there is nothing to do
		if err := h.Remove("team-a-0"); err != nil {
			t.Error(err)
		}
		if got := h.shares(); got != "team-c" {
			t.Errorf("there are %q", got)
		}
	}
	if err := h.Remove("../../etc/passwd"); err == nil {
		t.Error("it took a path for a name")
	}
	if err := newHost(t).Remove("team-a-0"); err != nil {
		t.Errorf("without the directory: %v", err)
	}
}

// What others wrote is theirs, even under our name or of our kind.
func TestForeign(t *testing.T) {
	ours := func(h *host) string { h.must(fraction()); return h.text(file("team-a-0")) }
	for name, change := range map[string]func(string) string{
		"of another kind":   func(s string) string { return strings.Replace(s, "gpufleet.com/share", "example.com/share", 1) },
		"without our mark":  func(s string) string { return strings.Replace(s, "GPUFLEET_SHARE", "SHARE", 1) },
		"of another device": func(s string) string { return strings.Replace(s, `"name": "team-a-0"`, `"name": "x"`, 1) },
		"no specification":  func(string) string { return "{" },
		"empty":             func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			before := change(ours(h))
			h.write(file("team-a-0"), before)
			h.write("/var/run/cdi/nvidia.yaml", "broken: yes")
			if got := h.shares(); got != "" {
				t.Errorf("it lists %q", got)
			}
			if found, foreign, err := h.List(); err != nil || len(found) > 0 || !slices.Equal(foreign, []string{"team-a-0"}) {
				t.Errorf("it finds %+v and %q: %v", found, foreign, err)
			}
			err := h.Write(fraction())
			for _, err := range []error{err, h.Remove("team-a-0")} {
				if err == nil || !strings.Contains(err.Error(), h.at(file("team-a-0"))+" was not written by this provider") {
					t.Errorf("got %v", err)
				}
			}
			h.must(whole())
			if err := h.Remove("team-c"); err != nil {
				t.Error(err)
			}
			if h.text(file("team-a-0")) != before || h.text("/var/run/cdi/nvidia.yaml") != "broken: yes" {
				t.Error("it was changed")
			}
		})
	}
}

// A full /run loses neither the share's old specification nor anybody's container.
func TestFullDisk(t *testing.T) {
	h := newHost(t)
	run := h.at("/var/run/cdi")
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", run, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("a small disk cannot be mounted (%v); run the tests as root to include this one", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(run, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h.must(fraction())
	before := h.text(file("team-a-0"))
	for size := 16 << 10; size > 0; size -= 512 { // as much as there is room for
		if os.WriteFile(h.at("/var/run/cdi/ballast"), make([]byte, size), 0o600) == nil {
			break
		}
	}
	s := fraction()
	s.MPS.ThreadPercentage = 50
	if err := h.Write(s); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("got %v", err)
	}
	if h.text(file("team-a-0")) != before || h.shares() != "team-a-0" {
		t.Error("the old specification is lost")
	}
	h.remove("/var/run/cdi/ballast")
	if w := h.must(s); !w.Changed {
		t.Errorf("with room again it says %+v", w)
	}
	if left, err := filepath.Glob(filepath.Join(run, ".*")); err != nil || len(left) != 0 {
		t.Errorf("there are %q: %v", left, err)
	}
}

// What cannot be read in the directories costs only itself: other shares are listed, written and
// removed beside it, and it stays.
func TestUnreadableFiles(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"a directory":      func(path string) error { return os.Mkdir(path, 0o755) },
		"a link to itself": func(path string) error { return os.Symlink(path, path) },
		"a dangling link":  func(path string) error { return os.Symlink("/nowhere", path) },
		"a FIFO":           func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a FIFO that somebody writes to": func(path string) error {
			if err := unix.Mkfifo(path, 0o644); err != nil {
				return err
			}
			writer, err := os.OpenFile(path, os.O_RDWR, 0)
			if err == nil {
				t.Cleanup(func() { _ = writer.Close() })
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.must(whole())
			for _, path := range []string{file("team-a-0"), "/var/run/cdi/others.yaml", "/etc/cdi/others.json"} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(h.at(path)), 0o755), spoil(h.at(path))); err != nil {
					t.Fatal(err)
				}
			}
			found, _, err := h.List()
			if err != nil || len(found) == 0 || found[len(found)-1].Name != "team-c" || found[len(found)-1].Environment == nil {
				t.Errorf("it finds %+v: %v", found, err)
			} else if barred := "others.json is no file"; strings.Contains(name, "FIFO") && !strings.Contains(found[len(found)-1].Note, barred) {
				t.Errorf("it does not say %q: %s", barred, found[len(found)-1].Note)
			}
			if err := h.Write(fraction()); err == nil || !strings.Contains(err.Error(), h.at(file("team-a-0"))) {
				t.Errorf("it writes over it: %v", err)
			}
			h.must(instance())
			if err := h.Remove("team-c"); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(h.at(file("team-a-0"))); err != nil {
				t.Error(err)
			}
		})
	}
}

// A read-only directory is named, and what is in it is listed.
func TestReadOnlyDirectory(t *testing.T) {
	h := newHost(t)
	h.must(fraction())
	run := h.at("/var/run/cdi")
	if err := unix.Mount(run, run, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("nothing can be mounted (%v); run the tests as root to include this one", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(run, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", run, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	before := h.text(file("team-a-0"))
	if w := h.must(fraction()); w.Changed {
		t.Errorf("what is as it should be is written again: %+v", w)
	}
	s := fraction()
	s.MPS.ThreadPercentage = 50
	err := h.Write(s)
	for _, err := range []error{err, h.Remove("team-a-0")} {
		if err == nil || !strings.Contains(err.Error(), "read-only file system") || !strings.Contains(err.Error(), run) {
			t.Errorf("got %v", err)
		}
	}
	if h.shares() != "team-a-0" || h.text(file("team-a-0")) != before {
		t.Error("the old specification is lost")
	}
}

// Every name that is taken can be written, found, and removed, and is its own file.
func TestNames(t *testing.T) {
	h := newHost(t)
	h.must(whole())
	rapid.Check(t, func(rt *rapid.T) {
		s := fraction()
		s.Name = rapid.StringMatching(`[ -~]{1,6}`).Draw(rt, "name")
		if cdi.ValidateName(s.Name) != nil {
			if err := h.Write(s); err == nil {
				rt.Fatalf("it was written, though the name is not valid")
			}
			return
		}
		if err := h.Write(s); err != nil {
			rt.Fatal(err)
		}
		if got := strings.Fields(h.shares()); len(got) != 2 || got[0] != s.Name && got[1] != s.Name {
			rt.Fatalf("there are %q", got)
		}
		if err := h.Remove(s.Name); err != nil {
			rt.Fatal(err)
		}
		if got := h.shares(); got != "team-c" {
			rt.Fatalf("there are %q", got)
		}
	})
}
