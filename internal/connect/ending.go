package connect

import (
	"fmt"
	"strings"
	"sync"
)

// endedEarly is the error of a process that ended before it had said anything. Shells
// and operating systems say why in different words; the exit status alone tells little.
func endedEarly(host string, ended ending) *Error {
	stderr, exit, known := ended()
	said := printable(strings.TrimSpace(stderr))
	e := &Error{Host: host, Kind: Ended, Found: "the agent ended before it had answered", Fix: "start the agent on the host by hand and look what it says"}
	text := strings.ToLower(stderr)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("sudo:") && has("password is required", "terminal is required", "not allowed", "not in the sudoers"):
		e.Kind, e.Found = Authentication, "sudo does not let this user run the agent without a password"
		e.Fix = "add to sudoers: USER ALL=(root) NOPASSWD: /path/to/gpu-agent serve --stdio"
	case has("application control", "group policy", "blocked by your administrator", "0xc0e90002"),
		exit == 126 && has("operation not permitted"):
		e.Kind, e.Found = Blocked, "the host's application control does not let the agent run"
		e.Fix = "install the agent's package and allow it in the policy (Windows Defender Application Control, fapolicyd, SELinux)"
	case has("exec format error", "cannot execute binary file", "not a valid win32 application", "not compatible with the version of windows", "machine type mismatch", "is not a valid application for this os platform"):
		e.Kind, e.Found = WrongPlatform, "the file that was started as the agent is built for another platform"
		e.Fix = "install the gpu-agent for the host's operating system and architecture"
	case exit == 126, has("sudo: unable to execute"):
		e.Kind, e.Found = Blocked, "the host does not let this user run the agent"
		e.Fix = "look at the file's mode, and whether its directory is mounted noexec"
	case exit == 127, has("command not found", "is not recognized"):
		e.Kind, e.Found = NoAgent, "there is no gpu-agent on the host"
		e.Fix = "install the agent's package, say in agent_path where it is, or set upload = \"auto\""
	}
	if known {
		e.Found += fmt.Sprintf(" (exit status %d)", exit)
	}
	if said != "" {
		e.Found += fmt.Sprintf("; it said %q", said)
	}
	return e
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
