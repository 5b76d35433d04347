package fakemps

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// The programs.
const (
	controlName   = "nvidia-cuda-mps-control"
	serverName    = "nvidia-cuda-mps-server"
	clientName    = "cuda-client"
	systemctlName = "systemctl"
)

// Behaviour is how the programs behave.
type Behaviour struct {
	// Driver is the driver's branch: 535 or 550.
	Driver int `json:"driver"`
	// GPU lets servers live. Without one they end at once.
	GPU bool `json:"gpu"`
	// MultiUser is whether the daemon knows -multiuser-server.
	MultiUser bool `json:"multi_user"`
	// FailsToStart lets the daemon end at its start without a word.
	FailsToStart bool `json:"fails_to_start"`
	// Deaf lets the daemon take commands and never answer.
	Deaf bool `json:"deaf"`
	// Clings has clients stay that are terminated.
	Clings bool `json:"clings"`
	// Faults lets every server of a daemon that starts then have a fault.
	Faults bool `json:"faults"`
	// UnitDir is where systemctl finds units.
	UnitDir string `json:"unit_dir"`
	// ProcDir is a /proc of a test, in which daemons, servers and clients appear; "" for none.
	ProcDir string `json:"proc_dir"`
}

// Programs are installed in a directory.
type Programs struct {
	t   testing.TB
	dir string
}

const behaviourFile = "behaviour.json"

// Run runs the tests of a package, and removes at their end what Install has built.
func Run(m *testing.M) int {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	return code
}

var built string

// build builds the programs, once for a test binary. They are a binary of their own: a suite
// starts thousands of them, and a test binary takes five times as long to begin.
var build = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "fakemps")
	if err != nil {
		return err
	}
	built = filepath.Join(dir, "program")
	cmd := command("go", "build", "-o", built, "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
})

// Install installs the programs. The package's TestMain calls Run.
func Install(t testing.TB, b Behaviour) *Programs {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	p := &Programs{t: t, dir: t.TempDir()}
	for _, name := range []string{controlName, serverName, clientName, systemctlName} {
		if err := os.Symlink(built, filepath.Join(p.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.Behave(b)
	return p
}

// Behave changes how programs behave that are started from now on.
func (p *Programs) Behave(b Behaviour) {
	p.t.Helper()
	data, err := json.Marshal(b)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, behaviourFile), data, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Control is the path of nvidia-cuda-mps-control.
func (p *Programs) Control() string { return filepath.Join(p.dir, controlName) }

// Systemctl is the path of systemctl.
func (p *Programs) Systemctl() string { return filepath.Join(p.dir, systemctlName) }

// Main runs the program under whose name it was started, and does not return. CUDA processes
// have any name.
func Main() {
	run := compute
	switch filepath.Base(os.Args[0]) {
	case controlName:
		run = control
	case serverName:
		run = serve
	case systemctlName:
		run = systemctl
	}
	me := self{path: os.Args[0], args: os.Args[1:]}
	var b Behaviour
	data, err := os.ReadFile(filepath.Join(filepath.Dir(me.path), behaviourFile))
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakemps:", err)
		os.Exit(255)
	}
	os.Exit(run(me, b))
}

// self is the program that runs.
type self struct {
	path string
	args []string
}

// appear puts the process into the /proc of the test. It leaves it with the machine's.
func (b Behaviour) appear() {
	if b.ProcDir == "" {
		return
	}
	pid := strconv.Itoa(os.Getpid())
	entry := filepath.Join(b.ProcDir, pid)
	_ = os.RemoveAll(entry) // of a process that had the number before
	if err := os.Symlink(filepath.Join("/proc", pid), entry); err != nil {
		fmt.Fprintln(os.Stderr, "fakemps:", err)
	}
}

func (s self) sibling(name string) string { return filepath.Join(filepath.Dir(s.path), name) }

// The programs end with their processes, and need no context of their own.

func command(path string, args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), path, args...)
}

func dial(socket string) (net.Conn, error) {
	return new(net.Dialer).DialContext(context.Background(), "unix", filepath.Join(pipeDir(), socket))
}

func listenOn(socket string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "unix", filepath.Join(pipeDir(), socket))
}
