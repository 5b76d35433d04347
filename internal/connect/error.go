package connect

import (
	"fmt"
	"strings"
)

// Code is why a host could not be reached.
type Code string

// Codes.
const (
	Unreachable    Code = "unreachable"    // nothing answers at the address
	HostKey        Code = "host_key"       // the host's key is unknown, or not the known one
	Authentication Code = "authentication" // the host does not let this user in
	NoAgent        Code = "no_agent"       // the host has no gpu-agent
	Blocked        Code = "blocked"        // the host does not let the agent run
	WrongPlatform  Code = "wrong_platform" // the agent is built for another platform
	Garbage        Code = "garbage"        // something was printed before the protocol
	Ended          Code = "ended"          // the agent ended before it had answered
	Version        Code = "version"        // the two ends speak different protocols
	Certificate    Code = "certificate"    // one end does not accept the other's certificate
	WrongCluster   Code = "wrong_cluster"  // the host is not in the cluster that it is said to be in
	Settings       Code = "settings"       // a setting or a file on this machine is wrong
)

// Error is a host that was not reached, or whose agent did not answer as one. Match it
// with errors.As. It never holds a secret.
type Error struct {
	Host  string // the provider's name
	Code  Code
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
	return &Error{
		Host: host, Code: Unreachable, Found: "nothing answers at " + address, Err: err,
		Fix: "look at the address, the firewall, and whether the host is up",
	}
}
