//go:build linux && cgo

package main

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// platform is the backend of a host when nothing else is said.
const platform = "nvidia"

// platformOptions say where the driver's parts are: in a release where a driver puts them.
var platformOptions nvidia.Options

// openPlatform opens the backend of this platform, which loads the driver's library when
// it is first asked and keeps it as long as the process lives.
func openPlatform(_ context.Context, declared map[string]gpu.ControllerRole) (backend.Backend, error) {
	o := platformOptions
	o.Controllers = declared
	return nvidia.New(o), nil
}
