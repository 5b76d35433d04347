//go:build linux

package slurm_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// deviceController is where the first version of cgroups closes devices to processes.
	deviceController = "/sys/fs/cgroup/devices"
	patience         = time.Minute
	// The major numbers of NVIDIA's devices and of the capabilities. Nothing serves them here: to
	// open one fails in one way where it is open to a process, and in another where it is not.
	gpuMajor, capabilityMajor = 195, 235
)

// confines tells whether this machine has what Slurm closes devices with.
func confines() bool {
	_, err := os.Stat(deviceController)
	return err == nil
}

// needSlurm skips a test, or fails it where a program is missing.
func needSlurm(t *testing.T) {
	t.Helper()
	if os.Getenv(required) == "" {
		t.Skip("with Slurm's own daemons this runs in `make test-slurm`")
	}
	for program, pkg := range map[string]string{"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("there is no %s: apt-get install --no-install-recommends %s", program, pkg)
		}
	}
}

// files are what Slurm reads.
type files struct {
	// gres and cgroup are gres.conf and cgroup.conf; main are lines of slurm.conf.
	gres, cgroup string
	main         []string
}

// cluster is a controller and a daemon for each node, all on this machine.
type cluster struct {
	t   *testing.T
	dir string
}

var device = regexp.MustCompile(`/dev/nvidia[-a-z/]*([0-9]+)`)

// write puts files into a folder, and the devices that they name, and others, into /dev. Nodes get
// what Slurm needs for several on one machine.
func write(t *testing.T, f files, others ...string) (dir string, nodes []string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // munged wants the way to its socket to be open
		t.Fatal(err)
	}
	old, err := filepath.Glob("/dev/nvidia*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range append(device.FindAllString(f.gres, -1), others...) {
		minor, err := strconv.Atoi(device.FindStringSubmatch(path)[1])
		if err != nil {
			t.Fatal(err)
		}
		major := gpuMajor
		if strings.Contains(path, "caps") {
			major = capabilityMajor
		}
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := node(path, major, minor); err != nil {
			t.Fatal(err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	port := freePorts(t, 12)
	for _, line := range f.main {
		if name, ok := strings.CutPrefix(strings.Fields(line)[0], "NodeName="); ok {
			own := expand(t, name)
			nodes = append(nodes, own...)
			for _, n := range own {
				if err := os.Mkdir(filepath.Join(dir, "spool-"+n), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			line += fmt.Sprintf(" NodeHostname=%s NodeAddr=127.0.0.1 CPUs=64 Port=[%d-%d]", host, port+1, port+len(own))
			port += len(own)
		}
		lines = append(lines, line)
	}
	main := fmt.Sprintf(`ClusterName=test
SlurmctldHost=%[2]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmUser=root
AuthInfo=socket=%[1]s/munge.socket
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool-%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd-%%n.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=100000
MpiDefault=none
SlurmdParameters=config_overrides
%[4]s
PartitionName=all Nodes=ALL Default=YES State=UP
`, dir, host, port+1, strings.Join(lines, "\n"))
	for name, text := range map[string]string{
		"slurm.conf": main, "gres.conf": f.gres, "cgroup.conf": f.cgroup, "key": rand.Text() + rand.Text(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, nodes
}

// freePorts is the first of several ports, one after the other, on which nobody listens.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for {
		var listeners []net.Listener
		first := 0
		for len(listeners) < n {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":"+strconv.Itoa(first+len(listeners)))
			if err != nil {
				break
			}
			listeners = append(listeners, l)
			if first == 0 {
				first = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
			}
		}
		for _, l := range listeners {
			_ = l.Close()
		}
		if len(listeners) == n {
			return first
		}
	}
}

// expand has Slurm tell which nodes a name stands for.
func expand(t *testing.T, name string) []string {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "slurm.conf") // it wants one, whatever it says
	if err := os.WriteFile(conf, []byte("ClusterName=test\nSlurmctldHost=localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "scontrol", "show", "hostnames", name)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.Fields(string(out))
}

// start starts a cluster that ends with the test.
func start(t *testing.T, f files, others ...string) *cluster {
	t.Helper()
	dir, nodes := write(t, f, others...)
	c := &cluster{t: t, dir: dir}
	c.munged()
	c.daemon("slurmctld", "-D", "-f", dir+"/slurm.conf")
	for _, n := range nodes {
		c.daemon("slurmd", "-D", "-N", n, "-f", dir+"/slurm.conf")
	}
	c.eventually("nodes", func() bool {
		out, err := c.command(t.Context(), "sinfo", "-h", "-N", "-o", "%t").Output()
		return err == nil && strings.Count(string(out), "idle\n") == len(nodes)
	})
	return c
}

// munged starts what vouches for who asks.
func (c *cluster) munged() (end func()) {
	c.t.Helper()
	socket := c.dir + "/munge.socket"
	end = c.daemon("munged", "--force", "--foreground", "--key-file="+c.dir+"/key", "--socket="+socket, "--pid-file="+c.dir+"/munged.pid",
		"--log-file="+c.dir+"/munged.log", "--seed-file="+c.dir+"/seed")
	c.eventually("munged", func() bool { _, err := os.Stat(socket); return err == nil })
	return end
}

// daemon starts a program that ends with the test, or before.
func (c *cluster) daemon(program string, args ...string) (end func()) {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, "daemons.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := c.command(context.WithoutCancel(c.t.Context()), program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c.t.Cleanup(end)
	return end
}

func (c *cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.dir+"/slurm.conf")
	return cmd
}

// eventually waits until something is so.
func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(c.dir, "daemons.log"))
			out, _ := c.command(c.t.Context(), "scontrol", "show", "nodes").CombinedOutput()
			c.t.Fatalf("%s: not ready after %s\n%s\n%s", what, patience, log, out)
		}
	}
}

// look is a job: it prints its environment and which devices it can open, and waits for its input to end.
const look = `env | grep -E '^(CUDA_|SLURM_(STEP_GPUS|GPUS_ON_NODE|SHARDS_ON_NODE)=)'
shopt -s nullglob
for d in /dev/nvidia[0-9]* /dev/nvidia-caps/*; do
  said=$( { exec 9<$d; } 2>&1 ) && said=
  case $said in *"Operation not permitted"*) ;; *) echo "open $d" ;; esac
done
echo ready
cat >/dev/null`

// job is a job that runs until it is ended.
type job struct {
	environment map[string]string
	open        []string // the devices that it can open
	end         func()
}

// run starts a job, and returns once it has looked around.
func (c *cluster) run(args ...string) job {
	c.t.Helper()
	j, err := c.try(patience, args...)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.dir, "daemons.log"))
		c.t.Fatalf("srun %v: %v\n%s", args, err, log)
	}
	return j
}

// try starts a job if there is room for it soon.
func (c *cluster) try(soon time.Duration, args ...string) (job, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	immediate := fmt.Sprintf("--immediate=%.0f", soon.Seconds())
	cmd := c.command(ctx, "srun", slices.Concat([]string{"--quiet", immediate}, args, []string{"bash", "-c", look})...)
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	j := job{environment: map[string]string{}, end: func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		cancel()
	}}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if line == "ready" {
			return j, nil
		}
		if path, ok := strings.CutPrefix(line, "open "); ok {
			j.open = append(j.open, path)
		} else if name, value, ok := strings.Cut(line, "="); ok {
			j.environment[name] = value
		}
	}
	j.end()
	return job{}, fmt.Errorf("it did not run: %s", said.String())
}

// sees starts a job and holds what it sees against what is wanted: its environment, and, where devices
// can be closed, those that are open to it.
func (c *cluster) sees(environment map[string]string, open []string, args ...string) job {
	c.t.Helper()
	j := c.run(args...)
	if !maps.Equal(j.environment, environment) {
		c.t.Errorf("%v: the environment is %v, and %v was wanted", args, j.environment, environment)
	}
	if open != nil && !slices.Equal(j.open, open) {
		c.t.Errorf("%v: %v can be opened, and %v was wanted", args, j.open, open)
	}
	return j
}

// waits checks that a job does not start beside those that run.
func (c *cluster) waits(args ...string) {
	c.t.Helper()
	if j, err := c.try(2*time.Second, args...); err == nil {
		j.end()
		c.t.Errorf("%v: it started at once with %v", args, j.environment)
	}
}
