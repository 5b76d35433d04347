package connect

import (
	"fmt"
	"strings"
	"sync"
)

// ending says how the process at the other end of a stream ended: what it wrote to its
// standard error, and its exit status if that is known. It is asked after the stream
// has ended, and may wait shortly for both.
type ending func() (stderr string, exit int, known bool)

// endedEarly is the error of a process that ended before it had answered. printed is
// what it wrote to its standard output instead.
func endedEarly(host, printed string, ended ending) *Error {
	stderr, exit, known := ended()
	said := strings.TrimSpace(strings.TrimSpace(printed) + "\n" + strings.TrimSpace(stderr))
	code, found, fix := explain(said, exit, known)
	if code == Ended && printed != "" && !strings.HasPrefix(Preamble, printed) {
		return garbage(host, printed)
	}
	if known {
		found += fmt.Sprintf(" (exit status %d)", exit)
	}
	if said != "" {
		found += "; it said " + quote(said, maxTail)
	}
	return &Error{Host: host, Code: code, Found: found, Fix: fix}
}

// explain tells from what was said, and from the exit status, why an agent did not run.
// Shells and operating systems say it in different words, and the status alone tells
// little: cmd.exe and PowerShell give 1 for everything.
func explain(said string, exit int, known bool) (code Code, found, fix string) {
	text := strings.ToLower(said)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	// An agent that runs may say "permission denied" of something else; a shell says it
	// of the agent, and then has its own exit status.
	shell := !known || exit == 126 || exit == 127
	switch {
	case has("sudo:") && has("password is required", "terminal is required", "not allowed", "not in the sudoers"):
		return Authentication, "sudo does not let this user run the agent without a password",
			"add to sudoers: USER ALL=(root) NOPASSWD: /path/to/gpu-agent serve --stdio"
	case has("glibc_") && has("not found"):
		return WrongPlatform, "the host's C library (glibc) is older than the agent needs",
			"the released agents start with glibc 2.28 and later (RHEL 8, Ubuntu 20.04, Debian 11); build one for the host with `make build`"
	case has("exec format error", "cannot execute binary file", "bad cpu type in executable", "error while loading shared libraries",
		"not a valid win32 application", "not compatible with the version of windows", "machine type mismatch",
		"not a valid application for this os platform"):
		return WrongPlatform, "the file that was started as the agent is built for another platform",
			"install the gpu-agent for the host's operating system and architecture"
	case has("application control", "group policy", "blocked by your administrator", "potentially unwanted software"),
		shell && has("operation not permitted"):
		return Blocked, "the host's application control does not let the agent run",
			"install the agent's package and allow it in the policy (App Control for Business, AppLocker, fapolicyd, SELinux)"
	case known && exit == 126, !known && has("permission denied", "access is denied"), has("sudo: unable to execute"):
		return Blocked, "the host does not let this user run the agent",
			"look at the file's mode, and whether its directory is mounted noexec"
	case known && exit == 127, has("command not found", "is not recognized"),
		!known && has("not found", "no such file", "cannot find the file", "cannot find the path"):
		return NoAgent, "there is no gpu-agent",
			"install the agent's package, or say in agent_path where it is; over SSH, upload = \"auto\" brings it"
	}
	return Ended, "the agent ended before it had answered", "start the agent on the host by hand and look what it says"
}

// maxQuote is how much of a text that is not ours is quoted.
const maxQuote = 200

// quote makes a foreign text safe to show: control characters are made visible, and
// what is too long is cut.
func quote(text string, limit int) string {
	cut := ""
	if r := []rune(text); len(r) > limit {
		text, cut = string(r[:limit]), " (cut)"
	}
	return fmt.Sprintf("%q", text) + cut
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - maxTail; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
