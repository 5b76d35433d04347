package change_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// moved is a host with a VM that has moved there with the setting of a GPU of another node. Here
// the GPU with that id is dismounted for somebody else, or belongs to the host.
func moved(dismounted bool) gpu.Host {
	h := hyperV()
	vm := &h.VMs[2]
	vm.Clustered, vm.Devices = true, []gpu.DeviceAssignment{{ID: "away", GPU: whole1}}
	g, _ := h.GPU(whole1)
	if g.Dismounted = dismounted; dismounted {
		g.Status = gpu.Assigned
		h.VMs[3].Devices = []gpu.DeviceAssignment{{ID: "here", GPU: whole1}}
	}
	return h
}

func deviceOf(host string) gpu.Want {
	return gpu.Want{
		Assignment: &gpu.Assignment{VM: "vm-2", VMID: vmID(2), VMName: "vm-2", Device: &gpu.DeviceWant{Host: host, GPUIDs: []string{whole1}}},
	}
}

func opsOf(steps []change.Step) []change.Op {
	var out []change.Op
	for _, s := range steps {
		out = append(out, s.Op)
	}
	return out
}

// A setting that no host would take is not given back: putting the change back would fail for ever.
func TestASettingOfAnotherNodesGPUIsNotGivenBack(t *testing.T) {
	t.Parallel()
	for _, dismounted := range []bool{false, true} {
		h := moved(dismounted)
		undo, _ := change.Schedule(h, []change.Step{{Op: change.OpRemoveDevices, VM: vmID(2), Name: "vm-2"}})
		if got := opsOf(undo[0]); !slices.Equal(got, []change.Op{change.OpRemoveDevices}) {
			t.Errorf("the GPU is dismounted here %v: the change is put back by %v", dismounted, got)
		}
	}
}

// A GPU that the assignment dismounted on one node is not mounted on another one, where the GPU
// with its id may be dismounted for somebody else.
func TestAGPUIsMountedBackOnItsOwnNodeOnly(t *testing.T) {
	t.Parallel()
	for host, want := range map[string][]change.Op{
		"host2": {change.OpRemoveDevices, change.OpDropClaim},
		name:    {change.OpRemoveDevices, change.OpMount, change.OpDropClaim},
	} {
		h := moved(true)
		h.VMs[3].Devices = nil
		prior := deviceOf(host)
		h.Claims = []gpu.Claim{
			{Kind: gpu.ClaimAssignment, ID: vmID(2), Token: "token", Want: prior, GPUs: []string{whole1}, Dismounted: []string{whole1}},
		}
		steps, err := change.Plan(h, name, change.Change{Subject: "vm-2", Token: "token", Prior: prior})
		if got := opsOf(steps); err != nil || !slices.Equal(got, want) {
			t.Errorf("GPUs of %s: %v, %v; want %v", host, got, err, want)
		}
	}
}
