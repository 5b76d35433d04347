package connect

import (
	"fmt"
	"strings"
)

// Kind is why a host could not be reached.
type Kind string

// Kinds.
const (
	Unreachable    Kind = "unreachable"    // nothing answers at the address
	HostKey        Kind = "host_key"       // the host's key is unknown, or not the known one
	Authentication Kind = "authentication" // the host does not let this user in
	NoAgent        Kind = "no_agent"       // the host has no gpu-agent
	Blocked        Kind = "blocked"        // the host does not let the agent run
	WrongPlatform  Kind = "wrong_platform" // the agent is built for another platform
	Garbage        Kind = "garbage"        // something was printed before the protocol
	Ended          Kind = "ended"          // the agent ended before it had answered
	Version        Kind = "version"        // the two ends speak different protocols
	Certificate    Kind = "certificate"    // one end does not accept the other's certificate
	Settings       Kind = "settings"       // a setting or a file on this machine is wrong
)

// Error is a host that was not reached, or whose agent did not answer as one. Match it
// with errors.As. It never holds a secret.
type Error struct {
	Host  string // the provider's name
	Kind  Kind
	Found string // what was found, a sentence without a full stop
	Fix   string // what to do, the same
	Err   error
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Host != "" {
		fmt.Fprintf(&b, "host %s: ", e.Host)
	}
	b.WriteString(e.Found)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Fix != "" {
		fmt.Fprintf(&b, ". Fix: %s", e.Fix)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

func unreachable(host, address string, err error) *Error {
	return &Error{Host: host, Kind: Unreachable, Found: "nothing answers at " + address, Err: err, Fix: "look at the address, the firewall, and whether the host is up"}
}
