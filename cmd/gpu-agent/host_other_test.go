//go:build !windows && !(linux && cgo)

package main_test

import "testing"

func TestPlatformWithoutABackend(t *testing.T) {
	r := newRig(t)
	r.env = append(r.env, "GPU_AGENT_BACKEND=")
	_, said := r.run(1, "inventory")
	wantSaid(t, said, "no backend for this platform")
}
