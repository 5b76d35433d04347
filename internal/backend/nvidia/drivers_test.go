//go:build linux && cgo

package nvidia_test

import (
	"slices"
	"strings"
	"testing"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// came says with which driver functions came that the agent uses: NVIDIA's change log of NVML has
// them (https://docs.nvidia.com/deploy/nvml-api/change-log.html).
var came = []struct {
	driver    string
	functions []string
}{
	{"510", []string{"nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlGpuInstanceGetComputeInstanceProfileInfoV", "nvmlDeviceGetMemoryInfo_v2"}},
	{"525", []string{ // with 520, between the branches that there are tests for
		"nvmlGpmMetricsGet", "nvmlGpmSampleFree", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet", "nvmlGpmQueryDeviceSupport",
	}},
	{"535", []string{
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
	}},
	{"550", []string{"nvmlDeviceSetVgpuHeterogeneousMode", "nvmlDeviceGetVgpuHeterogeneousMode", "nvmlDeviceGetNumaNodeId"}},
	{"615", []string{"nvmlDeviceGetMemoryLimits_v1", "nvmlDeviceSetMemoryLimits_v1"}},
}

// driverOf is a driver of a branch, without what came later. Before 550 they list MIG profiles in
// MIG mode only.
func driverOf(branch string) fakenvml.Options {
	o := fakenvml.Options{Driver: branch + ".82.01", NVML: "12." + branch + ".82.01", ProfilesNeedMIG: branch < "550"}
	for _, c := range came {
		if branch < c.driver {
			o.Missing = append(o.Missing, c.functions...)
		}
	}
	return o
}

// TestDriversInTurn has each branch of drivers from the oldest that is supported. On each of them a
// GPU is read whole, divided, shared through MPS and CDI, in turns and measured, and is as it was
// afterwards: a function that a driver lacks would end the process if it were called.
func TestDriversInTurn(t *testing.T) {
	branches := []string{"470", "510", "525", "535", "550", "570", "580", "595", "615"}
	if testing.Short() { // each takes some seconds
		branches = []string{"470", "535", "615"}
	}
	for _, branch := range branches {
		t.Run(branch, func(t *testing.T) {
			f := newShareFixtureOf(t, trialHost(t), driverOf(branch))
			before := f.sharingPicture()
			host := inventory(t, f.backend)
			if len(host.GPUs) != 4 {
				t.Fatalf("it lists %d GPUs", len(host.GPUs))
			}
			for i := range host.GPUs {
				g := &host.GPUs[i]
				if g.Problem != "" || !strings.HasPrefix(g.Driver.Version, branch) || g.VRAM == 0 || (g.MIG == nil) != (i == 3) {
					t.Errorf("GPU %d is %+v", i, g)
				}
				if g.MIG != nil && g.MIG.Enabled && !slices.ContainsFunc(g.MIG.Profiles,
					func(p gpu.MIGProfile) bool { return p.Name == "3g.40gb" && len(p.Starts) == 2 }) {
					t.Errorf("GPU %d has the profiles %+v", i, g.MIG.Profiles)
				}
			}
			if _, _, err := f.backend.Measure(t.Context(), 0); err != nil {
				t.Errorf("it cannot be measured: %v", err)
			}
			// Hopper, and a GPU without MIG.
			wantSteps(t, f.backend.SelfTestChange(t.Context(), "", uuid(2)), slices.Concat(trialOfMIG, trialOfSharing)...)
			wantSteps(t, f.backend.SelfTestChange(t.Context(), "", uuid(4)), trialOfSharing...)
			before.is(t, f.sharingPicture())
		})
	}
}
