// Package agent is the contract with a host, and both of its ends: the server that
// runs next to a backend, and the client that the provider talks to.
//
// A change goes through a host like this: lease, fresh inventory, rules, steps,
// journal, each step, read-back. Every step is journaled together with its inverse
// before the first one runs, so that a change that was cut off anywhere is put back
// by whoever takes the lease next.
package agent
