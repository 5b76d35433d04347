//go:build linux

// Package libvirtd starts libvirt's own daemon for tests, with software emulation and no hardware. It runs in
// namespaces of its own, of mounts and of processes, and touches nothing of the machine's: its configuration,
// VMs and sockets are in memory, and end with it.
package libvirtd

import (
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
)

// programs are what it takes.
var programs = []string{"/usr/sbin/libvirtd", "/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so", "/usr/bin/qemu-system-x86_64"}

// missing says what is missing to start a daemon, "" for nothing.
func missing() string {
	for _, p := range programs {
		if found, _ := filepath.Glob(p); len(found) == 0 { // the patterns are good
			return "there is no " + filepath.Base(p) +
				": apt-get install --no-install-recommends libvirt-daemon libvirt-daemon-driver-qemu qemu-system-x86"
		}
	}
	return ""
}

//go:embed daemon.sh
var script string

// Daemon is a daemon that runs.
type Daemon struct {
	t     *testing.T
	root  string // of its mounts, as this process sees them
	stdin io.Writer
	log   *os.File
}

// patience is how long the daemon may take to answer.
const patience = time.Minute

// Start starts a daemon, which ends with the test, where `make test-libvirt` asks for it. That nothing of it is
// missing is the test's to see to.
func Start(t *testing.T) *Daemon {
	t.Helper()
	switch {
	case os.Getenv("GPU_TEST_LIBVIRT") == "":
		t.Skip("make test-libvirt runs it with libvirt's own daemon")
	case os.Geteuid() != 0:
		t.Skip("libvirtd runs in namespaces of its own, which takes root")
	}
	if missing := missing(); missing != "" {
		t.Fatal(missing)
	}
	d := &Daemon{t: t}
	var err error
	if d.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/bash", "-c", script) //nolint:noctx // it ends with its standard input
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Setpgid: true}
	cmd.Stdout, cmd.Stderr = d.log, d.log
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.stdin, d.root = stdin, fmt.Sprintf("/proc/%d/root", cmd.Process.Pid)
	t.Cleanup(func() {
		_ = stdin.Close() // by which all of it ends
		_ = cmd.Wait()    // as whoever is killed
	})
	d.answers("")
	return d
}

// Root is where the machine of the daemon is.
func (d *Daemon) Root() string { return d.root }

func (d *Daemon) socket() string { return filepath.Join(d.root, "run/libvirt/libvirt-sock") }

func (d *Daemon) process() string {
	pid, err := os.ReadFile(filepath.Join(d.root, "run/libvirtd.pid"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(pid))
}

// answers waits for a daemon of another process than the one of before.
func (d *Daemon) answers(before string) {
	d.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if d.process() == before {
			continue
		}
		if conn, err := net.Dial("unix", d.socket()); err == nil { //nolint:noctx // it is there or not
			virt := golibvirt.NewWithDialer(dialers.NewAlreadyConnected(conn))
			err = virt.Connect()
			_ = conn.Close()
			if err == nil {
				return
			}
		}
	}
	text, err := os.ReadFile(d.log.Name())
	d.t.Fatalf("libvirtd has not answered within %s: %s %v", patience, text, err)
}

// Restart ends the daemon, with a signal such as TERM, and waits for the next one. VMs run on.
func (d *Daemon) Restart(signal string) {
	d.t.Helper()
	before := d.process()
	if _, err := io.WriteString(d.stdin, signal+"\n"); err != nil {
		d.t.Fatal(err)
	}
	d.answers(before)
}

// On does something through a connection of its own.
func (d *Daemon) On(do func(*golibvirt.Libvirt) error) {
	d.t.Helper()
	conn, err := net.Dial("unix", d.socket()) //nolint:noctx // it is there
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	virt := golibvirt.NewWithDialer(dialers.NewAlreadyConnected(conn))
	if err := virt.Connect(); err != nil {
		d.t.Fatal(err)
	}
	if err := do(virt); err != nil {
		d.t.Fatal(err)
	}
}

// Define defines a VM with devices.
func (d *Daemon) Define(name, devices string) {
	d.t.Helper()
	d.On(func(virt *golibvirt.Libvirt) error {
		_, err := virt.DomainDefineXML("<domain type='qemu'><name>" + name + "</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>" +
			"<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>" +
			"<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>" + devices + "</devices></domain>")
		return err
	})
}

// Do does something with a VM.
func (d *Daemon) Do(name string, do func(*golibvirt.Libvirt, golibvirt.Domain) error) {
	d.t.Helper()
	d.On(func(virt *golibvirt.Libvirt) error {
		vm, err := virt.DomainLookupByName(name)
		if err != nil {
			return err
		}
		return do(virt, vm)
	})
}

// Run starts a VM.
func (d *Daemon) Run(name string) {
	d.t.Helper()
	d.Do(name, func(virt *golibvirt.Libvirt, vm golibvirt.Domain) error { return virt.DomainCreate(vm) })
}

// Save saves a VM that runs, and ends it.
func (d *Daemon) Save(name string) {
	d.t.Helper()
	d.Do(name, func(virt *golibvirt.Libvirt, vm golibvirt.Domain) error { return virt.DomainManagedSave(vm, 0) })
}

// Attach gives a VM a device at its next start.
func (d *Daemon) Attach(name, device string) {
	d.t.Helper()
	d.Do(name, func(virt *golibvirt.Libvirt, vm golibvirt.Domain) error {
		return virt.DomainAttachDeviceFlags(vm, device, uint32(golibvirt.DomainAffectConfig))
	})
}

// Undefine removes a VM that is off, and what is saved of it.
func (d *Daemon) Undefine(name string) {
	d.t.Helper()
	d.Do(name, func(virt *golibvirt.Libvirt, vm golibvirt.Domain) error {
		return virt.DomainUndefineFlags(vm, golibvirt.DomainUndefineManagedSave)
	})
}
