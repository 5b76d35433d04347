//go:build !windows

package main

import (
	"context"
	"errors"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// platform is the backend of a host when nothing else is said; this platform has none
// yet.
const platform = ""

func openPlatform(context.Context) (backend.Backend, error) {
	return nil, errors.New("this build has no backend for this platform yet; --backend simulated --fleet FILE --host NAME works on a simulated host")
}
