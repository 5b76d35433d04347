//go:build linux && cgo

package nvidia_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	fakecdi "github.com/gpufleet/terraform-provider-gpu/internal/fake/cdi"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// realHost is a host behind the fake NVML with NVIDIA's own control daemon, which runs
// without a GPU.
func realHost(t *testing.T) *shareFixture {
	t.Helper()
	const program = "nvidia-cuda-mps-control"
	path, err := exec.LookPath(program)
	if err != nil {
		missing := "there is no " + program + ": apt-get install --no-install-recommends nvidia-cuda-mps, of Debian's component non-free"
		if os.Getenv("GPU_TEST_MPS") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	f := newShareFixture(t, gpu.Host{GPUs: []gpu.GPU{
		{ID: uuid(1), Model: "NVIDIA L40S", VRAM: 48 * gib}, {ID: uuid(2), Model: "NVIDIA L40S", VRAM: 48 * gib}, h100(t, 3),
	}})
	f.daemons.Program, f.daemons.ProcDir = path, "/proc"
	f.open()
	return f
}

const gib = 1024 * gpu.MiB

func (f *shareFixture) inventory() gpu.Host {
	f.t.Helper()
	host, err := f.backend.Inventory(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return host
}

func (f *shareFixture) ensure(d gpu.MPSDaemonSpec) *gpu.MPSDaemon {
	f.t.Helper()
	if err := f.backend.EnsureDaemon(f.t.Context(), d, false); err != nil {
		f.t.Fatal(err)
	}
	host := f.inventory()
	got, ok := host.Daemon(d.Name)
	if !ok || got.PID == 0 || got.Problem != "" || !got.Equal(&d) {
		f.t.Fatalf("%+v was wanted, and the host shows %+v", d, got)
	}
	return got
}

// TestRealDaemon is a daemon's life on the backend, with the real program.
func TestRealDaemon(t *testing.T) {
	f := realHost(t)
	spec := gpu.MPSDaemonSpec{
		Name: "team-a", Devices: []gpu.SharedDevice{{GPU: uuid(1)}, {GPU: uuid(2)}}, User: new(os.Geteuid()),
		ActiveThreadPercentage: 25, PinnedMemoryLimit: 4 * gib,
	}
	first := f.ensure(spec)
	if again := f.ensure(spec); again.PID != first.PID {
		t.Errorf("it was process %d, and is %d", first.PID, again.PID)
	}

	spec.ActiveThreadPercentage, spec.PinnedMemoryLimit = 12.5, 0
	if configured := f.ensure(spec); configured.PID != first.PID {
		t.Error("settings alone restarted it")
	}
	spec.Devices = spec.Devices[1:]
	second := f.ensure(spec)
	if second.PID == first.PID {
		t.Error("it serves other GPUs and was not restarted")
	}

	// A daemon for a GPU instance stands beside it.
	place := gpu.MIGPlacement{Profile: "1g.10gb", Start: 2}
	if err := f.backend.CreateInstance(t.Context(), uuid(3), place); err != nil {
		t.Fatal(err)
	}
	f.ensure(gpu.MPSDaemonSpec{Name: "slice", Devices: []gpu.SharedDevice{{GPU: uuid(3), Instance: &place}}, User: new(os.Geteuid())})

	if err := syscall.Kill(second.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon ends", func() bool { return !alive(second.PID) })
	host := f.inventory()
	if d, _ := host.Daemon(spec.Name); d == nil || d.PID != 0 || !strings.Contains(d.Problem, "was killed") ||
		!gpu.SameDevices(d.Devices, spec.Devices) {
		t.Errorf("killed it is %+v", d)
	}
	f.ensure(spec)

	for range 2 {
		if err := f.backend.RemoveDaemon(t.Context(), spec.Name, false); err != nil {
			t.Fatal(err)
		}
	}
	host = f.inventory()
	if d, ok := host.Daemon(spec.Name); ok {
		t.Errorf("it is still there: %+v", d)
	}
	if _, ok := host.Daemon("slice"); !ok {
		t.Error("the other one is gone too")
	}
}

// TestRealDaemonForEachGPU has the daemon of one GPU killed and started again beside that of another.
func TestRealDaemonForEachGPU(t *testing.T) {
	f := realHost(t)
	of := func(name string, n int) gpu.MPSDaemonSpec {
		return gpu.MPSDaemonSpec{
			Name: name, Devices: []gpu.SharedDevice{{GPU: uuid(n)}}, User: new(os.Geteuid()), PinnedMemoryLimit: gpu.Bytes(n) * gib,
		}
	}
	first, second := f.ensure(of("team-a", 1)), f.ensure(of("team-b", 2))
	if first.PID == second.PID || first.PipeDir == second.PipeDir {
		t.Fatalf("two GPUs have one daemon: %+v, %+v", first, second)
	}
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon ends", func() bool { return !alive(first.PID) })
	if again := f.ensure(of("team-a", 1)); again.PID == first.PID {
		t.Error("the killed one was not started again")
	}
	if other := f.ensure(of("team-b", 2)); other.PID != second.PID {
		t.Errorf("the daemon of the other GPU was process %d, and is %d", second.PID, other.PID)
	}
}

// TestRealDaemonOverStaleSockets starts where a killed one left its sockets.
func TestRealDaemonOverStaleSockets(t *testing.T) {
	f := realHost(t)
	f.LeaveSockets(t, "team-a")
	f.ensure(gpu.MPSDaemonSpec{Name: "team-a", Devices: []gpu.SharedDevice{{GPU: uuid(1)}}, User: new(os.Geteuid())})
}

// TestRealDaemonWithoutRoom has a full /run refused, and nothing left in it.
func TestRealDaemonWithoutRoom(t *testing.T) {
	f := realHost(t)
	if err := os.Mkdir(f.daemons.RunDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", f.daemons.RunDir, "tmpfs", 0, "size=1m,nr_inodes=7,mode=755"); err != nil {
		if os.Getenv("GPU_TEST_MPS") != "" {
			t.Fatal(err)
		}
		t.Skipf("a small disk cannot be mounted (%v); run the tests as root to include this one", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(f.daemons.RunDir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	fakemps.EndBelow(t, f.daemons.RunDir) // before it is unmounted
	spec := gpu.MPSDaemonSpec{Name: "team-a", Devices: []gpu.SharedDevice{{GPU: uuid(1)}}, User: new(os.Geteuid())}
	err := f.backend.EnsureDaemon(t.Context(), spec, false)
	wantCode(t, err, backend.Insufficient, "MPS daemon team-a", "The file system of "+f.daemons.RunDir)
	if host := f.inventory(); slices.ContainsFunc(host.MPS.Daemons, func(d gpu.MPSDaemon) bool { return d.Name != "" }) {
		t.Errorf("left are %+v", host.MPS.Daemons)
	}
	if err := syscall.Mount("none", f.daemons.RunDir, "tmpfs", syscall.MS_REMOUNT, "size=1m,nr_inodes=64,mode=755"); err != nil {
		t.Fatal(err)
	}
	f.ensure(spec)
}

// TestRealContainer runs a share in runc: it reaches the daemon by the pipes that it was
// given, and the device nodes of its GPU alone.
func TestRealContainer(t *testing.T) {
	f := realHost(t)
	fakecdi.MakeNodes(t, f.at("dev"))
	f.put("sys/fs/cgroup", "cgroup.controllers")
	d := f.ensure(gpu.MPSDaemonSpec{
		Name: "team-a", Devices: []gpu.SharedDevice{{GPU: uuid(1)}, {GPU: uuid(2)}}, User: new(os.Geteuid()), ActiveThreadPercentage: 50,
	})
	err := f.backend.WriteShare(t.Context(), gpu.ShareSpec{
		Name: "notebooks", Devices: []gpu.SharedDevice{{GPU: uuid(2)}}, Daemon: "team-a",
		ActiveThreadPercentage: 12.5, PinnedMemoryLimit: 8 * gib, MemoryLimit: 20 * gib,
	})
	if err != nil {
		t.Fatal(err)
	}
	host := f.inventory()
	share, ok := host.HandedShare("notebooks")
	if !ok || share.Environment["CUDA_MPS_PIPE_DIRECTORY"] != d.PipeDir {
		t.Fatalf("the host shows %+v", host.Shares)
	}
	said := fakecdi.Run(t, f.tree.Root(), fmt.Sprintf(`
		echo "share $GPUFLEET_SHARE threads $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE limit $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT memory `+
		`$NVIDIA_GPU_MEMORY_LIMIT"
		echo "daemon $(echo get_default_active_thread_percentage | %s)"
		for node in nvidiactl nvidia-uvm nvidia1; do [ -c /dev/$node ] && echo "node $node"; done
		[ -e /dev/nvidia0 ] && echo "the neighbour's GPU is there"
		touch /dev/shm/of-a-client && rm /dev/shm/of-a-client && echo "shared memory"`, f.daemons.Program), func(*specs.Spec) {}, share.CDIDevice)
	for _, want := range []string{
		"share notebooks threads 12.5 limit 0=8192M memory 20480\n", "daemon 50.0\n", "node nvidiactl\nnode nvidia-uvm\nnode nvidia1\n",
		"shared memory\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the container does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "neighbour") {
		t.Errorf("it has more than its share:\n%s", said)
	}

	// A process of the container is in the share, as the host sees it.
	if err := f.backend.RemoveShare(t.Context(), "notebooks", false); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(f.at("var/run/cdi/*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
