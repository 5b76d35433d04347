//go:build linux

package fakenvml_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
)

func TestProcTree(t *testing.T) {
	tree := fakenvml.NewProcTree(t)
	tree.Add(fakenvml.Proc{
		PID: 42, Parent: 1, Args: []string{"/usr/bin/jupyterhub-singleuser", "--port=1"}, UID: 1000, Start: 777,
		Cgroup: fakenvml.UnitCgroup("jupyter.service"),
	})
	tree.Add(fakenvml.Proc{PID: 43, Comm: "python3", Cgroup: "/docker/abc", V1: true})
	tree.Add(fakenvml.QEMU(44, 3, "web-01", "5c1f"))
	for file, want := range map[string]string{
		"42/comm":    "jupyterhub-sing\n",
		"42/cmdline": "/usr/bin/jupyterhub-singleuser\x00--port=1\x00",
		"42/cgroup":  "0::/system.slice/jupyter.service\n",
		"43/cgroup":  "12:devices:/docker/abc\n11:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n",
		"44/cgroup":  `0::/machine.slice/machine-qemu\x2d3\x2dweb\x2d01.scope/libvirt/emulator` + "\n",
	} {
		if got := read(t, filepath.Join(tree.Proc(), file)); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if fields := strings.Fields(read(t, filepath.Join(tree.Proc(), "42/stat"))); fields[3] != "1" || fields[21] != "777" {
		t.Errorf("stat %q", fields)
	}
	procs := filepath.Join(tree.Cgroups(), "system.slice/jupyter.service/cgroup.procs")
	if got := read(t, procs); got != "42\n" {
		t.Errorf("cgroup.procs %q", got)
	}
	tree.Remove(42)
	if got := read(t, procs); got != "" {
		t.Errorf("cgroup.procs %q after the end of its process", got)
	}
	if _, err := os.Stat(filepath.Join(tree.Proc(), "42")); !os.IsNotExist(err) {
		t.Errorf("the process is there: %v", err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
