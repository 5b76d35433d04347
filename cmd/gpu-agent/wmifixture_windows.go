//go:build wmifixture

package main

import (
	"fmt"
	"os"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi/comserver"
)

// The build for tests has a Hyper-V host of its own: a host of a fleet file stands
// behind COM in this process, so that everything above runs as it does in a release.
// Only the tag wmifixture brings it in, and no release is built with it.
const (
	fixtureFleet = "GPU_AGENT_WMI_FIXTURE"      // the fleet file
	fixtureHost  = "GPU_AGENT_WMI_FIXTURE_HOST" // its host
)

func init() {
	if os.Getenv(fixtureFleet) == "" {
		return
	}
	if err := serveFixture(os.Getenv(fixtureFleet), os.Getenv(fixtureHost)); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-agent:", err)
		os.Exit(exitFailed)
	}
}

// serveFixture serves the host until the process ends.
func serveFixture(file, host string) error {
	fleet, err := others.Open(file)
	if err != nil {
		return err
	}
	machine, err := fakewmi.New(fleet, host)
	if err != nil {
		return err
	}
	_, err = comserver.Register(machine)
	return err
}
