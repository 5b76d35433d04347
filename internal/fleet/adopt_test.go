package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// othersMade are hosts with an object of every kind: some that nobody has a record of, some that
// "lab" or "other" has one of, and some that no import can take.
func othersMade() map[string]*gpu.Host {
	cut := func(id string, count int) gpu.GPU {
		return gpu.GPU{
			ID: id, Model: "NVIDIA A2", Vendor: "NVIDIA", Status: gpu.Partitioned,
			Partitionable: &gpu.Partitionable{ValidCounts: []int{1, 2, 4}, Count: count},
		}
	}
	whole := func(id string) gpu.GPU {
		return gpu.GPU{ID: id, Model: "NVIDIA T4", Vendor: "NVIDIA", Status: gpu.ReadyForDDA}
	}
	instance := func(profile string, start, size, slices int) gpu.GPUInstance {
		return gpu.GPUInstance{Profile: profile, Start: start, Size: size, Compute: []gpu.ComputeInstance{{Slices: slices}}}
	}
	mig := func(id string, instances ...gpu.GPUInstance) gpu.GPU {
		return gpu.GPU{ID: id, Model: "NVIDIA H100", Vendor: "NVIDIA", MIG: &gpu.MIG{Enabled: true, Pending: true, Instances: instances}}
	}
	place := gpu.VGPUPlace{Type: "L40S-12Q"}
	vm := func(name string, devices ...gpu.DeviceAssignment) gpu.VM {
		return gpu.VM{ID: "id-" + name, Name: name, Devices: devices}
	}
	seat := vm("seat")
	seat.PartitionAdapters = []gpu.PartitionAdapter{{ID: "a", PinnedGPU: "p0"}}
	blind := vm("blind", gpu.DeviceAssignment{GPU: "t4"})
	hv := &gpu.Host{
		Name: "hv", Platform: gpu.HyperV, GPUs: []gpu.GPU{
			cut("p0", 4), cut("p1", 4), cut("p2", 2), whole("t0"), whole("t1"), whole("t2"), whole("t3"), whole("t4"),
		},
		Pools: []gpu.Pool{{Name: "render", GPUs: []string{"t0", "t1"}}},
		VMs: []gpu.VM{
			seat, vm("drawn", gpu.DeviceAssignment{GPU: "t1", Pool: "render"}), vm("given", gpu.DeviceAssignment{GPU: "t2"}),
			vm("ours", gpu.DeviceAssignment{GPU: "t3"}), vm("theirs", gpu.DeviceAssignment{GPU: "t3"}), blind, vm("none"),
		},
		Claims: []gpu.Claim{
			{
				Kind: gpu.ClaimAssignment, ID: "id-ours", Token: "1", Owner: "lab",
				Want: gpu.Want{
					Assignment: &gpu.Assignment{
						Kind: gpu.AssignDevice, VM: "ours", VMID: "id-ours", VMName: "ours", Device: &gpu.DeviceWant{Host: "hv", GPUIDs: []string{"t3"}},
					},
				},
			},
			{
				Kind: gpu.ClaimAssignment, ID: "id-theirs", Token: "2", Owner: "other",
				Want: gpu.Want{Assignment: &gpu.Assignment{VM: "theirs", VMID: "id-theirs"}},
			},
			{Kind: gpu.ClaimPool, ID: "old", Token: "3", Owner: "lab"},
		},
		Unknown: []gpu.Unknown{{Part: gpu.PartGPUs, GPU: "t4", Why: "no answer"}, {Part: gpu.PartPools, Why: "access denied"}},
	}
	shared := whole("s0")
	shared.ComputeMode, shared.TimeSlice = gpu.ComputeExclusiveProcess, gpu.TimeSliceLong
	half := mig("m3", gpu.GPUInstance{Profile: "3g.40gb", Size: 4})
	ending := mig("m4", instance("3g.40gb", 0, 4, 3))
	ending.MIG.Pending = false
	linux := &gpu.Host{
		Name: "linux", Platform: gpu.Linux,
		GPUs: []gpu.GPU{
			mig("m0", instance("3g.40gb", 0, 4, 3)), mig("m1", instance("3g.40gb", 4, 4, 3)), mig("m2"), half, ending, shared,
			{
				ID: "v0", Model: "NVIDIA L40S", Vendor: "NVIDIA", VGPU: &gpu.VGPU{
					Functions: 2, FunctionsOn: true, Types: []gpu.VGPUType{{Name: "L40S-12Q", Max: 4}}, Instances: []gpu.VGPUInstance{{VGPUPlace: place}},
				},
			},
		},
		MPS:    &gpu.MPSHost{Daemons: []gpu.MPSDaemon{{MPSDaemonSpec: gpu.MPSDaemonSpec{Devices: []gpu.SharedDevice{{GPU: "s0"}}}}}},
		Shares: []gpu.HandedShare{{Name: "stray"}, {Name: "web"}},
		Claims: []gpu.Claim{
			{Kind: gpu.ClaimShare, ID: "web", Token: "4", Owner: "lab", Want: gpu.Want{Share: &gpu.Share{Name: "web", Host: "linux"}}},
		},
	}
	return map[string]*gpu.Host{"hv": hv, "linux": linux}
}

func TestAdoptables(t *testing.T) {
	t.Parallel()
	found, left := fleet.Adoptables(othersMade(), "lab")
	var got []string
	for i := range found {
		a := &found[i]
		whose := "nobody's"
		if a.Claim != nil {
			whose = a.Claim.Owner + "'s"
		}
		got = append(got, string(a.Kind())+" "+a.String()+": "+a.ImportID()+", "+whose)
	}
	if diff := cmp.Diff([]string{
		"vm_assignment VM ours on hv: id-ours, lab's",
		"share share web on linux: linux/web, lab's",
		"partition_config gpu_p 4 partitions on p0, p1 of hv: hv:gpu_p@p0,p1, nobody's",
		"partition_config gpu_p 2 partitions on p2 of hv: hv:gpu_p@p2, nobody's",
		"partition_config mig 1 × 3g.40gb on m0, m1 of linux: linux:mig@m0,m1, nobody's",
		"partition_config mig MIG mode without instances on m2 of linux: linux:mig@m2, nobody's",
		"partition_config vgpu 1 × L40S-12Q on linux: linux:vgpu, nobody's",
		"pool pool render on hv: hv/render, nobody's",
		"vm_assignment VM seat on hv: id-seat, nobody's",
		"vm_assignment VM drawn on hv: id-drawn, nobody's",
		"vm_assignment VM given on hv: id-given, nobody's",
	}, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	got = nil
	for _, l := range left {
		got = append(got, string(l.Kind)+" "+l.Host+" "+l.Object+": "+l.Why)
	}
	if diff := cmp.Diff([]string{
		`vm_assignment hv the assignment of VM id-theirs: it is claimed by owner "other"`,
		`pool hv pool "old": its record does not say what was asked for`,
		"partition_config hv GPU t4: it could not be read: no answer",
		"partition_config linux GPU m3: it has 1 × 3g.40gb, and not as a configuration can declare it: a GPU instance has no compute instance",
		"partition_config linux GPU m4: it has 1 × 3g.40gb, and not as a configuration can declare it: its next reset ends MIG mode",
		"pool hv the pools: it could not be read: access denied",
		"partition_config linux GPU s0: processes share it (compute mode exclusive_process, time slice long, an MPS daemon), which only a new " +
			"config of kind mps or time_slicing can declare",
		`share linux share "stray": its host has no record of it, and what was asked for is nowhere else`,
		"vm_assignment hv VM blind on hv: GPU t4 could not be read: no answer",
	}, got); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// TestAdoptMIGBackedVGPUs imports the vGPUs, and not the GPU instances that they live in, as a
// config of its own: one config covers a GPU. What a config of vGPUs
// cannot declare is left, with the reason.
func TestAdoptMIGBackedVGPUs(t *testing.T) {
	t.Parallel()
	types := []gpu.VGPUType{
		{Name: "H100-1-10C", FrameBuffer: 10 << 30, Max: 7, MIGProfile: "1g.10gb"},
		{Name: "H100-3-40C", FrameBuffer: 40 << 30, Max: 2, MIGProfile: "3g.40gb"},
	}
	instance := func(id int, profile string, start, size, slices int) gpu.GPUInstance {
		return gpu.GPUInstance{ID: id, Profile: profile, Start: start, Size: size, Compute: []gpu.ComputeInstance{{Slices: slices}}}
	}
	card := func(id string, vgpus []string, instances ...gpu.GPUInstance) gpu.GPU {
		g := gpu.GPU{
			ID: id, Model: "NVIDIA H100", Vendor: "NVIDIA",
			MIG: &gpu.MIG{Enabled: true, Pending: true, Instances: instances, Profiles: []gpu.MIGProfile{
				{Name: "1g.10gb", Size: 1, Slices: 1, Max: 7, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
				{Name: "3g.40gb", Size: 4, Slices: 3, Max: 2, Starts: []int{0, 4}},
			}},
			VGPU: &gpu.VGPU{Functions: 16, FunctionsOn: true, Types: types},
		}
		for i, name := range vgpus {
			g.VGPU.Instances = append(g.VGPU.Instances, gpu.VGPUInstance{
				VGPUPlace: gpu.VGPUPlace{Type: name, Function: i}, GPUInstance: &instances[i].ID,
			})
		}
		return g
	}
	host := func(name string, gpus ...gpu.GPU) *gpu.Host {
		return &gpu.Host{Name: name, Platform: gpu.Linux, GPUs: gpus}
	}
	for name, tt := range map[string]struct {
		host        *gpu.Host
		found, left []string
	}{
		"of one type": {
			host:  host("kvm", card("g0", []string{"H100-1-10C", "H100-1-10C"}, instance(7, "1g.10gb", 0, 1, 1), instance(8, "1g.10gb", 1, 1, 1))),
			found: []string{"vgpu 2 × H100-1-10C on kvm: kvm:vgpu"},
		},
		"of several types": {
			host:  host("kvm", card("g0", []string{"H100-3-40C", "H100-1-10C"}, instance(1, "3g.40gb", 4, 4, 3), instance(7, "1g.10gb", 0, 1, 1))),
			found: []string{"vgpu 1 × H100-1-10C, 1 × H100-3-40C on kvm: kvm:vgpu"},
		},
		"beside a GPU with instances alone": {
			host: host("kvm", card("g0", []string{"H100-1-10C"}, instance(7, "1g.10gb", 0, 1, 1)), card("g1", nil, instance(1, "3g.40gb", 0, 4, 3))),
			found: []string{
				"mig 3g.40gb@0 on g1 of kvm: kvm:mig@g1",
				"vgpu 1 × H100-1-10C on g0 of kvm: kvm:vgpu@g0",
			},
		},
		"beside an instance that is of no use to a vGPU": {
			host: host("kvm", card("g0", []string{"H100-1-10C"}, instance(7, "1g.10gb", 0, 1, 1), instance(1, "3g.40gb", 4, 4, 3))),
			left: []string{
				"GPU g0: it has 1 × H100-1-10C, and not as a configuration can declare it: its GPU instances, modes or numbers of vGPUs are not " +
					"those that follow from the types",
			},
		},
		"of a type that the driver does not list": {
			host: host("kvm", card("g0", []string{"H100-2-20C"}, instance(3, "2g.20gb", 0, 2, 2))),
			left: []string{
				"GPU g0: it has 1 × H100-2-20C, and not as a configuration can declare it: a vGPU is of a type that the GPU's driver does not list",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, left := fleet.Adoptables(map[string]*gpu.Host{tt.host.Name: tt.host}, "lab")
			var gotFound, gotLeft []string
			for i := range found {
				gotFound = append(gotFound, found[i].String()+": "+found[i].ImportID())
			}
			for _, l := range left {
				gotLeft = append(gotLeft, l.Object+": "+l.Why)
			}
			if diff := cmp.Diff([][]string{tt.found, tt.left}, [][]string{gotFound, gotLeft}); diff != "" {
				t.Errorf("found and left (-want +got):\n%s", diff)
			}
		})
	}
}
