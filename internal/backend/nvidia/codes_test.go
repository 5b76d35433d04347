//go:build linux && cgo

package nvidia_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestEveryCodeIsNamed in words beside its number, those of drivers to come too.
func TestEveryCodeIsNamed(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
	codes := []int{999, 12345}
	for code := 1; code <= 30; code++ { // all that NVML has today
		codes = append(codes, code)
	}
	ofTheHost := []int{1, 9, 18} // the driver's own loss
	seen := 0
	for _, code := range codes {
		f.reopen(t)
		f.machine.Fail(fakenvml.Fault{Function: "nvmlDeviceGetComputeRunningProcesses", Code: code})
		host, err := f.backend.Inventory(t.Context())
		f.machine.Heal()
		if slices.Contains(ofTheHost, code) {
			if err == nil {
				t.Errorf("code %d is not the host's", code)
			}
			continue
		}
		if err != nil {
			t.Errorf("code %d hides the host: %v", code, err)
			continue
		}
		if host.GPUs[0].Problem == "" { // the GPU has no such thing
			continue
		}
		seen++
		if named := regexp.MustCompile(fmt.Sprintf(`nvmlDeviceGetComputeRunningProcesses: [A-Za-z][^()]+ \(%d\)`,
			code)); !named.MatchString(host.GPUs[0].Problem) {
			t.Errorf("it says %q", host.GPUs[0].Problem)
		}
		if unnamed := strings.Contains(host.GPUs[0].Problem, "has no name for"); unnamed != (code == 12345) {
			t.Errorf("it says %q", host.GPUs[0].Problem)
		}
	}
	if seen < 20 {
		t.Errorf("only %d codes were told of", seen)
	}
}
