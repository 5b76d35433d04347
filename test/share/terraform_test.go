//go:build linux && cgo

package share_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/opencontainers/runtime-spec/specs-go"

	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
)

// fleet is two GPUs with MPS, in a pool, and one with time-slicing in its GPU instances. A
// batch is a share of an instance, a notebook of the pool.
const fleet = `
resource "gpu_partition_config" "inference" {
  name     = "inference"
  hosts    = ["gpu01"]
  selector = { gpu_ids = { gpu01 = [%[1]q, %[2]q] } }
  mps      = { uid = %[4]d, active_thread_percentage = 50 }
}

resource "gpu_partition_config" "sliced" {
  name       = "sliced"
  hosts      = ["gpu01"]
  selector   = { gpu_ids = { gpu01 = [%[3]q] } }
  mig        = { profiles = { "3g.40gb" = 2 }, time_slicing = { replicas = 2 } }
  on_destroy = "restore"
}

resource "gpu_pool" "inference" {
  name     = "inference"
  hosts    = ["gpu01"]
  selector = { gpu_ids = { gpu01 = [%[1]q, %[2]q] } }
  quotas   = { search = { gpus = 1, memory_mib = 40960, shares = 2 } }
}

resource "gpu_share" "batch" {
  name        = "batch"
  host        = "gpu01"
  config      = gpu_partition_config.sliced.id
  mig_profile = "3g.40gb"
}

data "gpu_utilization" "all" {
  window     = "100ms"
  depends_on = [gpu_share.batch%[5]s]
}

output "allocated" {
  value = { for id, g in data.gpu_utilization.all.utilization["gpu01"].gpus : id => g.allocated_fraction }
}
`

// quarter is a quarter of a GPU's memory, in MiB.
const quarter = 20480

// notebook is a quarter of the threads of a GPU, and as much memory as is said.
const notebook = `
resource "gpu_share" "notebook" {
  name                     = "notebook"
  pool                     = gpu_pool.inference.id
  config                   = gpu_partition_config.inference.id
  owner_label              = "search"
  memory                   = { limit_mib = %d }
  active_thread_percentage = 25
}
`

// wants writes the configuration, without a notebook when that has no memory.
func (s *site) wants(memory int) {
	s.T.Helper()
	also, more := "", ""
	if memory > 0 {
		also, more = ", gpu_share.notebook", fmt.Sprintf(notebook, memory)
	}
	s.Write([]string{s.host}, fmt.Sprintf(fleet, uuid(0), uuid(1), uuid(sliced), os.Geteuid(), also)+more)
}

func unchanged(*specs.Spec) {}

// TestTerraform takes shares from plan to destroy, with the daemon of fakemps, and clients
// on it.
func TestTerraform(t *testing.T) {
	bin := newBin(t)
	programs := fakemps.Install(t, fakemps.Behaviour{Driver: 550, GPU: true, ProcDir: filepath.Join(rootOf(bin), "proc")})
	program(t, bin, controlProgram, fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", programs.Control()))
	s := newSite(t, bin)
	d := s.begin()

	// A process in a share keeps it, and the refusal names it.
	client := s.connect(programs, d)
	s.wants(0)
	said, code := s.Run("apply", "-auto-approve")
	if code == 0 {
		t.Error("a share went from under a process")
	}
	cli.WantSays(t, said, fmt.Sprint("process ", client.PID, " (trainer)"))
	s.handed("notebook")

	// Nor does it end for a daemon that was killed, and whose server has outlived it.
	s.wants(quarter)
	s.kill(d.PID)
	said, code = s.Run("apply", "-auto-approve")
	if code != 0 {
		t.Errorf("what cannot be put right stops the apply:\n%s", said)
	}
	cli.WantSays(t, said, "This apply cannot put it right", "1 of its clients would end", fmt.Sprint("process ", client.PID, " (trainer)"))
	client.Stop()
	s.machine.StopProcess(client.PID)
	s.dayTwo(d)
}

// TestReal is the same with NVIDIA's own daemon, which lives without a GPU, and a container
// that reaches it. Without a GPU it has no clients.
func TestReal(t *testing.T) {
	if os.Getenv("GPU_TEST_MPS") == "" {
		t.Skip("with NVIDIA's own MPS daemon and runc this runs in `make test-mps`")
	}
	nvidias, err := exec.LookPath(controlProgram)
	if err != nil {
		t.Fatalf("%s is not installed: it is in package nvidia-cuda-mps of Debian's component non-free", controlProgram)
	}
	bin := newBin(t)
	program(t, bin, controlProgram, fmt.Sprintf(appearing, nvidias, filepath.Join(rootOf(bin), "proc")))
	s := newSite(t, bin)
	d := s.begin()
	said := s.inContainer("gpufleet.com/share=notebook", fmt.Sprintf(`
		echo "share $GPUFLEET_SHARE threads $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
		echo "daemon $(echo get_default_active_thread_percentage | %s)"
		for node in nvidiactl nvidia-uvm nvidia0 nvidia1; do [ -c /dev/$node ] && echo "node $node"; done`, nvidias))
	for _, want := range []string{"share notebook threads 25\n", "daemon 50.0\n", "node nvidiactl\n", "node nvidia-uvm\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("the container does not say %q:\n%s", want, said)
		}
	}
	if n := strings.Count(said, "node nvidia0\n") + strings.Count(said, "node nvidia1\n"); n != 1 {
		t.Errorf("the container has %d GPUs, want one:\n%s", n, said)
	}
	s.kill(d.PID)
	s.dayTwo(d)
}

const controlProgram = "nvidia-cuda-mps-control"

// appearing runs NVIDIA's program, and puts its daemon into the host's /proc.
const appearing = `#!/bin/sh
'%[1]s' "$@"
status=$?
for environ in $(grep -lsz "^CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY$" /proc/[0-9]*/environ); do
	process=${environ%%/environ}
	ln -sfn "$process" '%[2]s'"/${process#/proc/}"
done
exit $status
`

// begin applies, and checks what is there then.
func (s *site) begin() *gpu.MPSDaemon {
	s.T.Helper()
	s.machine.SetComputeMode(1, int(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	s.wants(quarter)
	s.OK("apply", "-auto-approve")
	d := s.serves("inference", 0, 1)
	s.standing(d)
	s.WantNoChanges()

	cli.WantSays(s.T, s.run("inventory"), "inference", fmt.Sprint("PID ", d.PID), "notebook", "batch",
		"gpufleet.com/share=notebook", "mps", "time_slicing")
	cli.WantSays(s.T, s.OK("output", "allocated"), fmt.Sprintf("%q = 0.25", uuid(0)), fmt.Sprintf("%q = 0.4286", uuid(sliced)))

	// A quota is kept before anything is done.
	s.wants(2*quarter + 1024)
	said, code := s.Run("plan")
	if code == 0 {
		s.T.Error("a share is planned beyond its quota")
	}
	cli.WantSays(s.T, said, "pool-quota")
	s.wants(quarter)
	return d
}

// standing checks that all is as it was declared.
func (s *site) standing(d *gpu.MPSDaemon) {
	s.T.Helper()
	s.modes(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.COMPUTEMODE_DEFAULT)
	s.instances(true, "3g.40gb", "3g.40gb")
	if env := s.handed("notebook").Environment; env["CUDA_MPS_PIPE_DIRECTORY"] != d.PipeDir ||
		env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "25" {
		s.T.Errorf("the notebook's processes get %v", env)
	}
	device := ""
	for _, in := range s.machine.GPU(sliced).Instances {
		if got := s.handed("batch").Environment["CUDA_VISIBLE_DEVICES"]; got == in.Compute[0].UUID {
			device = got
		}
	}
	if device == "" {
		s.T.Errorf("the batch's processes get %v, which is no GPU instance", s.handed("batch").Environment)
	}
}

// connect has a process compute in the notebook, as NVML and the daemon show it.
func (s *site) connect(programs *fakemps.Programs, d *gpu.MPSDaemon) *fakemps.Client {
	s.T.Helper()
	var env []string
	devices := ""
	for name, value := range s.handed("notebook").Environment {
		env = append(env, name+"="+value)
		if name == "CUDA_VISIBLE_DEVICES" {
			devices = value
		}
	}
	client := programs.StartProcess("trainer", os.Geteuid(), env...).Computes(s.T)
	for i := range gpus {
		if uuid(i) == devices {
			s.machine.StartProcess(i, fakenvml.MPS, gpu.Process{PID: client.PID, Name: "trainer", Memory: 512 * gpu.MiB})
		}
	}
	if now := s.serves(d.Name, 0, 1); len(now.Clients) != 1 || now.Clients[0].PID != client.PID || now.Clients[0].Share != "notebook" {
		s.T.Errorf("the daemon has the clients %+v", now.Clients)
	}
	return client
}

// dayTwo has a daemon that was killed put right, and what a reboot takes, and everything gone
// at the end.
func (s *site) dayTwo(d *gpu.MPSDaemon) {
	s.T.Helper()
	cli.WantSays(s.T, s.OK("plan"), "MPS daemon inference", "does not run: it has ended")
	s.OK("apply", "-auto-approve")
	second := s.serves("inference", 0, 1)
	s.standing(second)
	s.WantNoChanges()

	// A reboot takes all of it. The agent puts it back at boot.
	s.reboot(second.PID)
	s.instances(false)
	s.modes(nvml.COMPUTEMODE_DEFAULT, nvml.COMPUTEMODE_DEFAULT, nvml.COMPUTEMODE_DEFAULT)
	s.run("reconcile")
	third := s.serves("inference", 0, 1)
	s.standing(third)
	s.WantNoChanges()

	s.OK("destroy", "-auto-approve")
	s.nothingLeft(d.PID, second.PID, third.PID)
	s.instances(false)
	s.modes(nvml.COMPUTEMODE_DEFAULT, nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.COMPUTEMODE_DEFAULT)
}
