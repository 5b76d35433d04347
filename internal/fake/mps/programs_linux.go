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
	// Driver is the driver's branch: 535, 550 or 615.
	Driver int `json:"driver"`
	// GPU lets servers live. Without one they end at once.
	GPU bool `json:"gpu"`
	// MultiUser is whether the daemon knows -multiuser-server.
	MultiUser bool `json:"multi_user"`
	// FailsToStart lets the daemon end at its start without a word.
	FailsToStart bool `json:"fails_to_start"`
	// Deaf lets the daemon take commands and never answer.
	Deaf bool `json:"deaf"`
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

// Install installs the programs.
func Install(t testing.TB, b Behaviour) *Programs {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Programs{t: t, dir: t.TempDir()}
	for _, name := range []string{controlName, serverName, clientName, systemctlName} {
		if err := os.Symlink(self, filepath.Join(p.dir, name)); err != nil {
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

// roleVariable is the program that the test binary runs as under another name.
const roleVariable = "MPSTEST_ROLE"

// Main runs the program under whose name the test binary was started, and does not
// return. Started as a test, it returns at once.
func Main() {
	name := os.Getenv(roleVariable)
	if name == "" {
		name = filepath.Base(os.Args[0])
	}
	run, known := map[string]func(self, Behaviour) int{
		controlName:   control,
		serverName:    serve,
		clientName:    compute,
		systemctlName: systemctl,
	}[name]
	if !known {
		return
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
