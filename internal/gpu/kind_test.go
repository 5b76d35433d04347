package gpu_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestKindIsNeverGuessed takes every combination of what a config can have: of each kind only
// what is of that kind is valid, and without a kind nothing is.
func TestKindIsNeverGuessed(t *testing.T) {
	t.Parallel()
	valid := map[gpu.Kind]int{}
	for bits := range 1 << 6 {
		c := &gpu.PartitionConfig{ID: "c"}
		if bits&1 != 0 {
			c.Count = 4
		}
		if bits&2 != 0 {
			c.MIG = &gpu.MIGLayout{}
		}
		if bits&4 != 0 {
			c.VGPU = &gpu.VGPULayout{}
		}
		if bits&8 != 0 {
			c.MPS = &gpu.MPSLayout{}
		}
		if bits&16 != 0 {
			c.TimeSlicing = &gpu.TimeSlicing{}
		}
		if bits&32 != 0 {
			if bits&2 == 0 {
				continue
			}
			c.MIG.Off = true
		}
		of := 0
		for _, kind := range append(gpu.Kinds(), "", "sriov_v2") {
			c.Kind = kind
			claim := gpu.Claim{Kind: gpu.ClaimConfig, ID: "c", Want: gpu.Want{Config: c}}
			err := claim.Want.Validate()
			if (err == nil) != (claim.Validate() == nil) {
				t.Errorf("%s: a want and a claim differ: %v, %v", kind, err, claim.Validate())
			}
			if err == nil {
				of++
				valid[kind]++
			}
		}
		if of > 1 {
			t.Errorf("%+v is of %d kinds", c, of)
		}
	}
	// A count of 0 is left out of documents; MIG may be alone, with MPS or with time slices, and off alone.
	want := map[gpu.Kind]int{gpu.KindGPUP: 2, gpu.KindMIG: 4, gpu.KindVGPU: 1, gpu.KindMPS: 1, gpu.KindTimeSlicing: 1}
	for _, kind := range append(gpu.Kinds(), "", "sriov_v2") {
		if valid[kind] != want[kind] {
			t.Errorf("%d combinations are of kind %q, want %d", valid[kind], kind, want[kind])
		}
	}
}

// TestAnAssignmentHasWhatItsKindSays takes every combination of what an assignment can give, with
// every kind, in a change and in a claim.
func TestAnAssignmentHasWhatItsKindSays(t *testing.T) {
	t.Parallel()
	for bits := range 8 {
		var gives []gpu.AssignmentKind
		a := gpu.Assignment{VM: "v"}
		if bits&1 != 0 {
			a.Partition, gives = &gpu.PartitionWant{}, append(gives, gpu.AssignPartition)
		}
		if bits&2 != 0 {
			a.Pool, gives = &gpu.PoolWant{}, append(gives, gpu.AssignPool)
		}
		if bits&4 != 0 {
			a.Device, gives = &gpu.DeviceWant{}, append(gives, gpu.AssignDevice)
		}
		for _, kind := range []gpu.AssignmentKind{"", gpu.AssignPartition, gpu.AssignPool, gpu.AssignDevice, "slice"} {
			a.Kind = kind
			valid := len(gives) == 1 && gives[0] == kind
			want := gpu.Want{Assignment: &a}
			for where, err := range map[string]error{
				"a change":              want.Validate(),
				"a claim":               (&gpu.Claim{Kind: gpu.ClaimAssignment, ID: "v", Want: want}).Validate(),
				"what a claim's VM has": (&gpu.Claim{Kind: gpu.ClaimAssignment, ID: "v", HeldUntilOff: &a}).Validate(),
			} {
				if (err == nil) != valid {
					t.Errorf("%s of kind %q with %v: %v", where, kind, gives, err)
				}
			}
		}
	}
}
