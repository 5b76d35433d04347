// Package crash proves that no death in the middle of a change loses anything. Real
// processes change a simulated host, and at each write that a change makes one of
// them is killed, the connection is cut, the disk is full or the host reboots. The
// host must then be as it was before the change or as it is after it, every virtual
// machine that ran must run, nothing else may have moved, and no journal and no lease
// may be left. The same holds for agents that are stopped for longer than their lease
// lives, and for those whose records are taken away in the middle of a change.
//
// The package has tests alone. `go test ./test/crash` tries a sample of all points,
// `make crash-matrix` each of them.
package crash
