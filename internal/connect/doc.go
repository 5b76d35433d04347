// Package connect reaches the agent of a host. Whatever the way, the result is one
// gRPC connection that carries the contract of package agent.
package connect
