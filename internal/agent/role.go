package agent

import (
	"context"
	"fmt"
)

// Role is what the host lets a caller do. It is decided on the host (a forced command,
// a subsystem, a client certificate) and never by the caller.
type Role string

// Roles.
const (
	Operator Role = "operator" // everything
	Reader   Role = "reader"   // what touches nothing
)

// Valid tells whether there is such a role.
func (r Role) Valid() bool { return r == Operator || r == Reader }

// access is what a call does to the host.
type access bool

const (
	reads  access = false
	writes access = true
)

// admit tells whether the caller's role allows a call.
func (s *Server) admit(ctx context.Context, a access) (Role, error) {
	role, err := s.role(ctx)
	switch {
	case err != nil:
		return "", &Error{Code: Denied, Message: err.Error()}
	case !role.Valid():
		return "", &Error{Code: Denied, Message: fmt.Sprintf("the host gave this caller the role %q, which does not exist", role)}
	case a == writes && role != Operator:
		return role, &Error{Code: Denied, Message: "the host lets this caller only read (role reader), and the call would change the host; " +
			"use the key or certificate of an operator"}
	}
	return role, nil
}
