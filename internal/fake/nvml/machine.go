//go:build linux

package fakenvml

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofrs/flock"
)

// stateVariable names the machine's file for the library and its programs.
const stateVariable = "NVMLTEST_STATE"

// Options are a machine at its first start. What is left out is made up.
type Options struct {
	// Driver and NVML are versions: "580.95.05" and "13.580.95.05" by default. CUDA is
	// the driver's, 13000 by default.
	Driver, NVML string
	CUDA         int
	// ProfilesNeedMIG has the driver list MIG profiles in MIG mode only, as driver 535
	// does.
	ProfilesNeedMIG bool
	// Missing are functions that the library lacks, as an older one does:
	// "nvmlDeviceSetMemoryLimits_v1".
	Missing []string
	GPUs    []GPU
}

// Machine is the host. Its methods end the test when they fail, so they are for the
// goroutine of the test.
type Machine struct {
	tb    testing.TB
	build string // the directory of the library and the programs
	dir   string // the directory of the state
}

// New makes a machine, and makes it the one that NVML in this process talks to. It is
// gone with the test.
func New(tb testing.TB, o Options) *Machine {
	tb.Helper()
	m := &Machine{tb: tb, build: Build(tb, o.Missing...), dir: tb.TempDir()}
	s, err := o.state()
	if err != nil {
		tb.Fatal(err)
	}
	m.must(m.save(s))
	m.must(m.writeSMI())
	tb.Setenv(stateVariable, m.path())
	return m
}

// Library is the path of the machine's libnvidia-ml.so.1.
func (m *Machine) Library() string { return filepath.Join(m.build, libraryFile) }

// SMI is the path of the machine's nvidia-smi. It needs nothing from the environment.
func (m *Machine) SMI() string { return filepath.Join(m.dir, "bin", smiFile) }

// Environ is what another process needs in its environment to find the machine by the
// usual names: its state, its library, its nvidia-smi.
func (m *Machine) Environ() []string {
	return []string{
		stateVariable + "=" + m.path(),
		"LD_LIBRARY_PATH=" + before("LD_LIBRARY_PATH", m.build),
		"PATH=" + before("PATH", filepath.Dir(m.SMI())),
	}
}

func before(variable, dir string) string {
	if rest := os.Getenv(variable); rest != "" {
		return dir + string(filepath.ListSeparator) + rest
	}
	return dir
}

func (m *Machine) path() string { return filepath.Join(m.dir, "state") }

func (m *Machine) writeSMI() error {
	script := fmt.Sprintf("#!/bin/sh\n%s='%s' exec '%s' \"$@\"\n", stateVariable, m.path(), filepath.Join(m.build, smiFile))
	if err := os.Mkdir(filepath.Dir(m.SMI()), 0o755); err != nil {
		return err
	}
	return os.WriteFile(m.SMI(), []byte(script), 0o755)
}

func (m *Machine) must(err error) {
	m.tb.Helper()
	if err != nil {
		m.tb.Fatal(err)
	}
}

// read returns the machine as it is. It needs no lock: the file is replaced as a whole.
func (m *Machine) read() *state {
	m.tb.Helper()
	text, err := os.ReadFile(m.path())
	m.must(err)
	s, err := unmarshal(text)
	m.must(err)
	return s
}

// change changes the machine under its lock.
func (m *Machine) change(how func(*state) error) {
	m.tb.Helper()
	lock := flock.New(m.path() + ".lock")
	m.must(lock.Lock())
	defer func() { m.must(lock.Unlock()) }()
	s := m.read()
	m.must(how(s))
	m.must(m.save(s))
}

// save replaces the file. A test's machine need not outlive a power cut.
func (m *Machine) save(s *state) error {
	next := m.path() + ".next"
	if err := os.WriteFile(next, marshal(s), 0o600); err != nil {
		return err
	}
	return os.Rename(next, m.path())
}

// operate runs the operator's program, which knows the rules of the hardware.
func (m *Machine) operate(args ...string) error {
	c := exec.CommandContext(context.Background(), filepath.Join(m.build, operatorFile), args...)
	c.Env = append(os.Environ(), stateVariable+"="+m.path())
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("fakenvml: %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
	}
	return nil
}
