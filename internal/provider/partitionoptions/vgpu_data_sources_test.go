package partitionoptions_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccPartitionOptions_PartitionOptionsListVGPUTypes(t *testing.T) {
	t.Parallel()
	s := rig.KVM(rig.L40s(0), rig.L40s(1))
	s.Hosts[0].GPUs[1].VGPU.Types = append(s.Hosts[0].GPUs[1].VGPU.Types[1:2:2],
		gpu.VGPUType{Name: "L40S-1-12Q", FrameBuffer: 12 * 1024 * gpu.MiB, Max: 4, MIGProfile: "1g.12gb"})
	r := rig.New(t, s)
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	const data = "data.gpu_partition_options.all"
	r.Steps(resource.TestStep{
		Config: r.Block() + "data \"gpu_partition_options\" \"all\" {\n  host = \"kvm01\"\n}\n",
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(data, rig.Jsonpath("common_vgpu_types"), knownvalue.ListExact([]knownvalue.Check{text("L40S-12Q")})),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("common_mig_profiles"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", rig.VGPUCard(0), "vgpu_heterogeneous_supported"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", rig.VGPUCard(0), "mig_enabled"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", rig.VGPUCard(0), "vgpu_types", 1),
				knownvalue.ObjectExact(map[string]knownvalue.Check{
					"type": text("L40S-12Q"), "frame_buffer_mib": number(12288), "max": number(4), "max_per_vm": number(16),
					"mig_profile": knownvalue.Null(),
				})),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", rig.VGPUCard(1), "vgpu_types", 1),
				knownvalue.ObjectExact(map[string]knownvalue.Check{
					"type": text("L40S-1-12Q"), "frame_buffer_mib": number(12288), "max": number(4), "max_per_vm": knownvalue.Null(),
					"mig_profile": text("1g.12gb"),
				})),
		},
	})
}
