package gpu_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM that has a vGPU by its assignment is not gone while nothing tells which VMs there are; a reservation needs none.
func TestAVMIsUnknownWhileItsManagerIsAway(t *testing.T) {
	claim := func(attach gpu.Attach) gpu.Claim {
		return gpu.Claim{Kind: gpu.ClaimAssignment, ID: "web-01", Want: gpu.Want{Assignment: &gpu.Assignment{
			Kind: gpu.AssignPartition, VM: "web-01", Partition: &gpu.PartitionWant{Attach: attach},
		}}}
	}
	for name, test := range map[string]struct {
		host gpu.Host
		want bool
	}{
		"away":          {gpu.Host{Platform: gpu.Linux, Claims: []gpu.Claim{claim("")}}, true},
		"there":         {gpu.Host{Platform: gpu.Linux, Claims: []gpu.Claim{claim("")}, VMManager: &gpu.VMManager{Name: gpu.Libvirt}}, false},
		"only reserved": {gpu.Host{Platform: gpu.Linux, Claims: []gpu.Claim{claim(gpu.AttachNone)}}, false},
		"no claim":      {gpu.Host{Platform: gpu.Linux}, false},
		"Hyper-V":       {gpu.Host{Platform: gpu.HyperV, Claims: []gpu.Claim{claim("")}}, false},
	} {
		if _, got := test.host.UnknownVM("web-01"); got != test.want {
			t.Errorf("%s: unknown is %t, want %t", name, got, test.want)
		}
	}
}
