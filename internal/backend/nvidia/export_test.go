//go:build linux && cgo

package nvidia

// Run is run.
var Run = run
