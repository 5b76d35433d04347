//go:build linux

// Package fakecdi does with CDI devices what container runtimes do, for tests.
package fakecdi

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// required makes a failure of what else is a skipped test.
const required = "GPU_TEST_MPS"

// lacking skips a test, or fails it where nothing may be missing.
func lacking(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(required) != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Inject has the library give devices to a container. The specifications are those of the
// host that is seen at a root.
func Inject(t testing.TB, root string, into *oci.Spec, devices ...string) {
	t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(filepath.Join(root, cdi.DefaultStaticDir), filepath.Join(root, cdi.DefaultDynamicDir)),
		cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if broken := cache.GetErrors(); len(broken) > 0 {
		t.Fatalf("the library finds %v", broken)
	}
	if _, err := cache.InjectDevices(into, devices...); err != nil {
		t.Fatal(err)
	}
}

// Major is the major number of the driver's devices. Without the driver nothing is behind
// them.
const Major = 195

// MakeNodes makes devices of the files in a directory, as the driver has them.
func MakeNodes(t testing.TB, dir string) {
	t.Helper()
	minor := uint32(0)
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		minor++
		return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(Major, minor)))
	})
	if err != nil {
		lacking(t, "device nodes cannot be made here (%v); run the tests as root, with CAP_MKNOD, to include this one", err)
	}
}

// Run runs a shell script in a container of runc that has devices, and returns what it says.
// The container has the host's programs, and what change gives it.
func Run(t testing.TB, root, script string, change func(*oci.Spec), devices ...string) string {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		lacking(t, "there is no OCI runtime: apt-get install --no-install-recommends runc")
	}
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
	var c oci.Spec
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	const began = "fakecdi: the container runs"
	c.Process.Terminal = false
	// The runtime copies each stream by itself: in one, errors stay where they were said.
	c.Process.Args = []string{"/bin/sh", "-c", "exec 2>&1; echo '" + began + "'\n" + script}
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr"} {
		if _, err := os.Stat(dir); err == nil {
			c.Mounts = append(c.Mounts, oci.Mount{Destination: dir, Source: dir, Type: "bind", Options: []string{"rbind", "ro"}})
		}
	}
	change(&c)
	Inject(t, root, &c, devices...)
	if data, err = json.Marshal(&c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, data, 0o600); err != nil {
		t.Fatal(err)
	}
	// Two containers of one name share a cgroup, and the end of one would end both.
	name := "gpu-share-test-" + rand.Text()
	out, err := exec.CommandContext(t.Context(), runc, "--root", t.TempDir(), "run", "--bundle", bundle, name).CombinedOutput()
	_, said, isRunning := strings.Cut(string(out), began+"\n")
	if !isRunning {
		lacking(t, "containers cannot be started here (%v: %s); run the tests as root on a machine that allows namespaces and cgroups to "+
			"include this one", err, strings.TrimSpace(string(out)))
	}
	return said
}
