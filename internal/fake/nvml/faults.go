//go:build linux

package fakenvml

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"
)

// Fault is something that goes wrong in calls of a function. All versions of a function
// are one: "nvmlDeviceGetCount" is nvmlDeviceGetCount_v2 too, and "nvidia-smi" is the
// program.
type Fault struct {
	Function string
	// Skip calls pass, the next Times fail. Times is 1 when it is 0.
	Skip, Times int
	// Code is what they return: NVML's, or the exit status of nvidia-smi.
	Code int
	// Effect has the call do its work, and then fail nevertheless.
	Effect bool
	// Kill has the calling process die instead: before the work, or after it with
	// Effect.
	Kill bool
}

// Fail adds a fault.
func (m *Machine) Fail(f Fault) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Faults = append(s.Faults, faultRecord{
			Function: f.Function, Skip: f.Skip, Times: max(f.Times, 1), Code: f.Code, Effect: f.Effect, Kill: f.Kill,
		})
		return nil
	})
}

// Delay has every call of a function take a while; "*" is all that have no delay of
// their own.
func (m *Machine) Delay(function string, d time.Duration) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Delays = append(s.Delays, delayRecord{Function: function, Microseconds: int(d.Microseconds())})
		return nil
	})
}

// Heal ends all faults and delays.
func (m *Machine) Heal() {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Faults, s.Delays = nil, nil
		return nil
	})
}

// Call is one call of NVML, or run of nvidia-smi, and what it returned.
type Call struct {
	PID      int
	Function string // without its version
	Result   int
}

// Calls are calls in their order, of all processes.
type Calls []Call

// Count is how many calls of a function there were.
func (c Calls) Count(function string) int { return c.ByFunction()[unversioned(function)] }

// Inits is how often NVML was initialised.
func (c Calls) Inits() int { return c.Count("nvmlInit") + c.Count("nvmlInitWithFlags") }

// ByFunction counts the calls of each function.
func (c Calls) ByFunction() map[string]int {
	count := map[string]int{}
	for _, call := range c {
		count[call.Function]++
	}
	return count
}

var version = regexp.MustCompile(`_v\d+$`)

func unversioned(function string) string { return version.ReplaceAllString(function, "") }

// Calls returns all calls since the start, or since ForgetCalls.
func (m *Machine) Calls() Calls {
	m.tb.Helper()
	text, err := os.ReadFile(m.calls())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.tb.Fatal(err)
	}
	var calls Calls
	for line := range strings.Lines(string(text)) {
		var c Call
		if _, err := fmt.Sscan(line, &c.PID, &c.Function, &c.Result); err != nil {
			m.tb.Fatalf("fakenvml: %s: %q: %v", m.calls(), line, err)
		}
		c.Function = unversioned(c.Function)
		calls = append(calls, c)
	}
	return calls
}

// ForgetCalls starts to count again.
func (m *Machine) ForgetCalls() {
	m.tb.Helper()
	if err := os.Remove(m.calls()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.tb.Fatal(err)
	}
}

func (m *Machine) calls() string { return m.path() + ".calls" }
