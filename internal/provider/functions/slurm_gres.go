package functions

import (
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/slurm"
)

// NewSlurmGres makes the function slurm_gres.
func NewSlurmGres() function.Function {
	return writer{name: "slurm_gres", write: writeGres, definition: function.Definition{
		Summary: "Writes Slurm's gres.conf for GPUs",
		MarkdownDescription: "Writes what Slurm has to be told of GPUs that are given out whole, as MIG devices, or in parts by MPS or " +
			"sharding. It returns an object with\n\n" +
			"- `conf`: the text of `gres.conf`;\n" +
			"- `gres_types`: the value of `GresTypes` in `slurm.conf`;\n" +
			"- `gres`: the value of `Gres` in `slurm.conf` for each node. Slurm drains nodes that have less than it says, and ignores " +
			"what they have beyond it;\n" +
			"- `cgroup_conf`: what `cgroup.conf` has to say, with `task/cgroup` among the plugins in `TaskPlugin` of `slurm.conf`. " +
			"`CUDA_VISIBLE_DEVICES` of a job is the position of its GPU among those of its node here, MIG devices included, and no number " +
			"of a device; it names the job's own only where `ConstrainDevices=yes` closes the others to the job. GPUs of a node that are " +
			"not listed stay open to its jobs even so, and come first if their numbers are lower.\n\n" +
			"Seen with Slurm 22.05.8 and 24.11.5.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "nodes",
				MarkdownDescription: "A list of objects, each for one node or for several that are alike, with\n\n" +
					"- `name`: the node's name in `slurm.conf`, as in `gpu01` or `gpu[01-04]`;\n" +
					"- `auto_detect`: `nvml` or `nvidia` (from Slurm 24.11 on) to have Slurm ask the driver too, which drains a node that differs, " +
					"`off` to keep it from that; optional;\n" +
					"- `gpus`: a list of objects, also when GPUs are detected, with\n" +
					"  - `device`: the number of the device node, 3 for `/dev/nvidia3`;\n" +
					"  - `type`: what jobs ask for, as in `a100`, in upper or lower case as here; of all GPUs of a node or of none;\n" +
					"  - `cores`: the CPU cores beside the GPU, as in `0-15`; optional. Slurm counts cores, socket after socket, as `lstopo -l` " +
					"does, while `nvidia-smi topo -m` lists hardware threads; 24.11.5 drains a node that has fewer;\n" +
					"  - at most one of `mps`, the number of its parts (usually 100, for percents of threads), `shards`, the number of jobs " +
					"that may have it at once, and `mig`, a list of MIG devices as objects with `type`, as in `1g.10gb`, and `capabilities`, " +
					"the numbers of the capability devices of its GPU instance and of its compute instance, from `/proc/driver/nvidia-caps/mig-minors`.",
			},
		},
		Return: function.ObjectReturn{AttributeTypes: gresType},
	}}
}

var gresType = map[string]attr.Type{
	"conf":        types.StringType,
	"gres_types":  types.StringType,
	"gres":        types.MapType{ElemType: types.StringType},
	"cgroup_conf": types.StringType,
}

// gres is the result as Terraform has it.
type gres struct {
	Conf   string            `tfsdk:"conf"`
	Types  string            `tfsdk:"gres_types"`
	Nodes  map[string]string `tfsdk:"gres"`
	Cgroup string            `tfsdk:"cgroup_conf"`
}

func writeGres(v tftypes.Value) (any, error) {
	nodes, err := objects(decodeNode)(v)
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	out, err := slurm.Render(nodes)
	return gres(out), err
}

func decodeNode(fields map[string]tftypes.Value) (slurm.Node, error) {
	var out slurm.Node
	err := decodeFields(fields, map[string]reader{
		"auto_detect": into(&out.AutoDetect, text),
		"gpus":        into(&out.GPUs, objects(decodeGPU)),
		"name":        into(&out.Name, text),
	})
	return out, err
}

func decodeGPU(fields map[string]tftypes.Value) (slurm.GPU, error) {
	var out slurm.GPU
	if v, ok := fields["device"]; !ok || v.IsNull() {
		return out, errors.New("device is missing")
	}
	err := decodeFields(fields, map[string]reader{
		"cores":  into(&out.Cores, text),
		"device": into(&out.Minor, whole),
		"mig":    into(&out.MIG, objects(decodeMIGDevice)),
		"mps":    into(&out.MPS, whole),
		"shards": into(&out.Shards, whole),
		"type":   into(&out.Type, text),
	})
	for _, name := range []string{"mps", "shards"} {
		if v, ok := fields[name]; err == nil && ok && !v.IsNull() && max(out.MPS, out.Shards) == 0 {
			return out, fmt.Errorf("%s is 0, but a GPU in parts has at least one; leave it out for a GPU that is given out whole", name)
		}
	}
	if v, ok := fields["mig"]; err == nil && ok && !v.IsNull() && len(out.MIG) == 0 {
		return out, errors.New("mig is an empty list; leave it out for a GPU that is given out whole, and the GPU for one in MIG mode " +
			"without instances")
	}
	return out, err
}

func decodeMIGDevice(fields map[string]tftypes.Value) (slurm.MIGDevice, error) {
	var out slurm.MIGDevice
	err := decodeFields(fields, map[string]reader{
		"capabilities": into(&out.Capabilities, indices),
		"type":         into(&out.Type, text),
	})
	return out, err
}
