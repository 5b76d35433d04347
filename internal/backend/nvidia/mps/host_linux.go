package mps

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// Options say where a host's parts are. What is left out is where a Linux host has it.
type Options struct {
	// Root is put before the directories that are left out.
	Root string
	// Program and Systemctl are nvidia-cuda-mps-control and systemctl, by path or name.
	Program, Systemctl string
	// RunDir and LogDir hold a directory for each daemon. The path of RunDir is short:
	// the sockets below it have at most 106 characters.
	RunDir, LogDir string
	// UnitDir is where units are written that end with the next boot. systemd has made it
	// where systemd runs; without it daemons are processes.
	UnitDir string
	// ProcDir is /proc.
	ProcDir string
	// Computing tells who computes through MPS on devices, nil for every GPU, as the driver
	// shows it, and whether that is known. It is asked for the clients of servers that have
	// outlived their daemon.
	Computing func(devices []string) (clients []Client, known bool)
	// StartTimeout, StopTimeout and CommandTimeout bound a daemon's start, what its
	// clients get to end when it stops, and one command.
	StartTimeout, StopTimeout, CommandTimeout time.Duration
	// SystemctlTimeout bounds one systemctl, which waits for longer than a unit may take.
	SystemctlTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.Program = cmp.Or(o.Program, controlProgram)
	o.Systemctl = cmp.Or(o.Systemctl, "systemctl")
	o.RunDir = cmp.Or(o.RunDir, filepath.Join("/", o.Root, "run/gpu-mps"))
	o.LogDir = cmp.Or(o.LogDir, filepath.Join("/", o.Root, "var/log/gpu-mps"))
	o.UnitDir = cmp.Or(o.UnitDir, filepath.Join("/", o.Root, "run/systemd/system"))
	o.ProcDir = cmp.Or(o.ProcDir, filepath.Join("/", o.Root, "proc"))
	o.StartTimeout = cmp.Or(o.StartTimeout, 15*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 10*time.Second)
	o.CommandTimeout = cmp.Or(o.CommandTimeout, defaultTimeout)
	o.SystemctlTimeout = cmp.Or(o.SystemctlTimeout, time.Minute)
	return o
}

// Host is the daemons of a host. Its callers change one daemon at a time.
type Host struct {
	opt    Options
	asking sync.Mutex // Options.Computing is called by one reader at a time
}

// New is the host that the options describe. Nothing is touched yet.
func New(o Options) *Host { return &Host{opt: o.withDefaults()} }

// Program is the absolute path of nvidia-cuda-mps-control, "" when it is not installed.
func (h *Host) Program() string {
	path, err := exec.LookPath(h.opt.Program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return ""
	}
	return path
}

// Declared tells whether there is a daemon of a name, whether or not it runs.
func (h *Host) Declared(name string) (bool, error) {
	if !mpsconf.IsName(name) {
		return false, nil
	}
	rec, err := h.load(name)
	if err != nil {
		return false, failed("read it", name, err)
	}
	return rec != nil, nil
}

// control speaks to a daemon of ours.
func (h *Host) control(name string) *Control {
	return &Control{Name: name, Program: h.opt.Program, PipeDir: h.pipeDir(name), LogDir: h.logDir(name), Timeout: h.opt.CommandTimeout}
}

// PipeDir is CUDA_MPS_PIPE_DIRECTORY of a daemon's clients, whether or not it runs.
func (h *Host) PipeDir(name string) string { return h.pipeDir(name) }

func (h *Host) dir(name string) string          { return filepath.Join(h.opt.RunDir, name) }
func (h *Host) pipeDir(name string) string      { return filepath.Join(h.dir(name), "pipe") }
func (h *Host) recordPath(name string) string   { return filepath.Join(h.dir(name), "daemon.json") }
func (h *Host) commandsPath(name string) string { return filepath.Join(h.dir(name), "commands") }
func (h *Host) logDir(name string) string       { return filepath.Join(h.opt.LogDir, name) }
func (h *Host) controlLog(name string) string   { return filepath.Join(h.logDir(name), controlLog) }

func (h *Host) starter(systemd bool) starter {
	if systemd {
		return &units{opt: h.opt}
	}
	return &processes{opt: h.opt}
}

// hasSystemd tells whether systemd runs here, as sd_booted(3) does.
func (h *Host) hasSystemd() bool {
	info, err := os.Stat(h.opt.UnitDir)
	if err != nil || !info.IsDir() {
		return false
	}
	_, err = exec.LookPath(h.opt.Systemctl)
	return err == nil
}

// launch is all that a daemon is started with.
type launch struct {
	name    string
	program string
	args    []string
	env     []string
	pipeDir string
	// commands is a file of commands that each start needs.
	commands string
}

// starter starts a daemon. It returns when the daemon listens, or has failed to.
type starter interface {
	start(ctx context.Context, l launch) error
}

// longestSocket is what the daemon takes, seen with 535 and 550: one less than Linux does.
const longestSocket = 106

func (h *Host) launch(spec mpsconf.Spec) (launch, error) {
	program := h.Program()
	if program == "" {
		return launch{}, missingProgram("start it", spec.Name, h.opt.Program)
	}
	pipe := h.pipeDir(spec.Name)
	if n := len(filepath.Join(pipe, "control_privileged")); n > longestSocket {
		return launch{},
			refuse(backend.InvalidParameter, "start it", spec.Name,
				"the path of its socket in %s has %d characters, and a socket has at most %d: choose a shorter name", pipe, n, longestSocket)
	}
	l := launch{name: spec.Name, program: program, args: []string{"-d"}, pipeDir: pipe, commands: h.commandsPath(spec.Name)}
	l.env = append(environment(pipe, h.logDir(spec.Name)), visibleDevices+"="+joinDevices(spec.Devices))
	if spec.MultiUser {
		l.args = append(l.args, multiUserFlag)
	}
	if spec.StaticPartitions {
		l.args = append(l.args, partitionsFlag)
	}
	return l, nil
}
