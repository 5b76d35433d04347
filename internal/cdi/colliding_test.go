//go:build linux

package cdi_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// named is the toolkit's specification of devices that mark a container.
func named(mark string, devices ...string) string {
	text := "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n"
	for _, name := range devices {
		text += fmt.Sprintf("- {name: %q, containerEdits: {env: [MARK=%s]}}\n", name, mark)
	}
	return text
}

// files are those of a host's that a text names.
func (h *host) files(text string) []string {
	return regexp.MustCompile(regexp.QuoteMeta(h.Root)+`[^ ,;:]+\.(?:json|yaml)`).FindAllString(text, -1)
}

// resolves reports whether runtimes find a device of the host.
func (h *host) resolves(device string) bool {
	h.t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(h.at("/etc/cdi"), h.at("/var/run/cdi")), cdi.WithAutoRefresh(false))
	if err != nil {
		h.t.Fatal(err)
	}
	return cache.GetDevice(device) != nil
}

// Whatever files a host has: the note says so exactly if containers do not get the GPU, and whoever does as it says once for each
// directory has the GPU in containers.
func TestCollidingFilesAreAdvisedOn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHost(t)
		device := rapid.SampledFrom([][]string{{gpu0}, {gpu0, "all"}, {"all"}, {"0", "all"}})
		some := false
		for _, dir := range []string{"/etc/cdi", "/var/run/cdi"} {
			for i := range rapid.IntRange(0, 3).Draw(rt, dir) {
				names := device.Draw(rt, "devices")
				some = some || slices.Contains(names, gpu0)
				h.write(fmt.Sprintf("%s/%d.yaml", dir, i), named(fmt.Sprint(dir, i), names...))
			}
		}
		share := whole()
		share.Devices = share.Devices[:1]
		for followed := 0; ; followed++ {
			note := h.must(share).Note
			found := h.resolves("nvidia.com/gpu=" + gpu0)
			if (note == "") != found || strings.Contains(note, "cannot be read") {
				rt.Fatalf("containers get the GPU: %v, but the note is %q", found, note)
			}
			if found {
				return
			}
			if !strings.Contains(note, "in several files of one directory") {
				if some || !strings.Contains(note, "nvidia-ctk cdi generate") {
					rt.Fatalf("it says %s", note)
				}
				return
			}
			named := h.files(note)
			if len(named) < 2 || followed == 2 {
				rt.Fatalf("after %d times it says %s", followed, note)
			}
			keep := rapid.IntRange(0, len(named)-1).Draw(rt, "keep")
			for i, file := range named {
				if i != keep {
					h.remove(strings.TrimPrefix(file, h.Root))
				}
			}
		}
	})
}

// Somebody's copy of a share's specification takes the share from containers, and is named.
func TestACopyOfAShareIsNamed(t *testing.T) {
	h := newHost(t)
	h.install(toolkit)
	h.must(fraction())
	h.write("/var/run/cdi/copy.json", h.text(file("team-a-0")))
	if h.resolves("gpufleet.com/share=team-a-0") {
		t.Fatal("containers get the share")
	}
	note := h.found("team-a-0").Note
	if files := h.files(note); len(files) != 1 || files[0] != h.at("/var/run/cdi/copy.json") {
		t.Fatalf("it says %s", note)
	}
	h.remove("/var/run/cdi/copy.json")
	if note := h.found("team-a-0").Note; note != "" || !h.resolves("gpufleet.com/share=team-a-0") {
		t.Errorf("it is not found, or it says %q", note)
	}
}

// Podman is asked what the library above is asked: 4.3.1 and 5.4.2 are Debian's.
func TestPodmanFindsNoCollidingDevice(t *testing.T) {
	for _, program := range []string{"podman", "unshare", "runc", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install --no-install-recommends podman runc busybox-static util-linux", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root gives containers devices; run the tests as root to include this one")
	}
	h := newHost(t)
	rootfs := h.at("/rootfs")
	for _, dir := range []string{"bin", "tmp", "dev", "proc", "etc"} {
		if err := os.MkdirAll(filepath.Join(rootfs, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write("/etc/cdi/nvidia.yaml", named("first", gpu0))
	h.write("/etc/cdi/other.json", strings.ReplaceAll(`{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"GPU",
		"containerEdits":{"env":["MARK=second"]}}]}`, "GPU", gpu0))
	h.write("/var/run/cdi/nvidia.yaml", named("above", gpu0))
	share := whole()
	share.Devices = share.Devices[:1]
	files := h.files(h.must(share).Note)
	if len(files) != 2 {
		t.Fatalf("it says %s", h.found(share.Name).Note)
	}
	// The directories of this machine are seen by nobody else, and lie below an overlay that is read only.
	script := `set -eu
		mount --make-rprivate /
		mount -t overlay overlay -o "lowerdir=$ROOT/etc:/etc" /etc || { echo NO OVERLAY; exit 0; }
		mount -t tmpfs tmpfs /run
		mkdir /run/cdi /run/lock
		cp "$ROOT"/var/run/cdi/nvidia.yaml /run/cdi
		p() {
			podman --root "$ROOT/store" --runroot /run/podman --storage-driver vfs --cgroup-manager=cgroupfs --runtime "$(command -v runc)" "$@"
		}
		cp "$(command -v busybox)" "$ROOT/rootfs/bin/sh"
		tar -C "$ROOT/rootfs" -c . | p import -q - share:1 >/dev/null
		run() {
			p run --rm --network=none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --device "nvidia.com/gpu=$GPU" share:1 \
				sh -c 'echo "mark $MARK"' 2>&1 || true
		}
		run
		rm "$FILE"
		run`
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", script)
	cmd.Env = append(os.Environ(), "ROOT="+h.Root, "GPU="+gpu0, "FILE="+files[0])
	out, err := cmd.CombinedOutput()
	said := string(out)
	switch {
	case strings.Contains(said, "NO OVERLAY"):
		t.Skip("nothing can be laid over /etc; run the tests as root, outside of a container, to include this one")
	case err != nil:
		t.Fatalf("%v: %s", err, said)
	}
	before, after, _ := strings.Cut(strings.TrimSpace(said), "\n")
	if !strings.Contains(before, "unresolvable CDI devices") || after != "mark above" {
		t.Errorf("Podman says %q, and with one of the files %q", before, after)
	}
}
