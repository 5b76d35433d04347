//go:build !windows && !(linux && cgo)

package main

import (
	"context"
	"errors"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// platform is the backend of a host when nothing else is said; this build has
// none: NVML, on Linux, needs cgo.
const platform = ""

func openPlatform(context.Context, map[string]gpu.ControllerRole) (backend.Backend, error) {
	return nil, errors.New("this build has no backend for this platform (on Linux, gpu-agent has to be built with cgo); --backend simulated " +
		"--fleet FILE --host NAME works on a simulated host")
}
