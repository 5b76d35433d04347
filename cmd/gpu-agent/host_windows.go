package main

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// platform is the backend of a host when nothing else is said.
const platform = "hyperv"

// openPlatform opens the backend of this platform. The connection lives as long as the
// process.
func openPlatform(ctx context.Context, declared map[string]gpu.ControllerRole) (backend.Backend, error) {
	service, err := wmi.Open(ctx)
	if err != nil {
		return nil, err
	}
	shared := func(dir string) (backend.Store, error) { return statedir.Open(dir) }
	return hyperv.New(service).WithClusterStore(shared).WithControllers(declared), nil
}
