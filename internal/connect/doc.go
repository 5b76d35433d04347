// Package connect reaches the agent of a host: in this process, as a child process, over
// SSH or over TLS. Whatever the way, the result is one gRPC connection that carries the
// contract of package agent, and a host that is not reached is an *Error that says why
// and what to do.
package connect
