package functions

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

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
			"`CUDA_VISIBLE_DEVICES` of a job is the position of its GPU among those of its node here, one type after the other, MIG " +
			"devices included, and no number of a device; it names the job's own only where `ConstrainDevices=yes` closes the others to " +
			"the job. GPUs of a node that are not listed stay open to its jobs even so, and come first if their numbers are lower.\n\n" +
			"Seen with Slurm 22.05.8 and 24.11.5.",
		Parameters: []function.Parameter{
			anything("nodes", "Either GPUs by host, as attribute `gpus` of a `gpu_partition_config` or attribute `inventory` of a "+
				"`gpu_inventory` has them; or a list of such values and of objects, each for one node or for several that are alike, with\n\n"+
				"- `name`: the node's name in `slurm.conf`, as in `gpu01` or `gpu[01-04]`;\n"+
				"- `auto_detect`: `nvml` or `nvidia` (from Slurm 24.11 on) to have Slurm ask the driver too, which drains a node that differs, "+
				"`off` to keep it from that; optional;\n"+
				"- `type`: the type of GPUs in `gpus` that have none; optional;\n"+
				"- `gpus`: GPUs of one host as those resources have them, or a list of objects, also when GPUs are detected, with\n"+
				"  - `device`: the number of the device node, 3 for `/dev/nvidia3`;\n"+
				"  - `type`: what jobs ask for, as in `a100`, in upper or lower case as here; of all GPUs of a node or of none;\n"+
				"  - `cores`: the CPU cores beside the GPU, as in `0-15`; optional. Slurm counts cores, socket after socket, as `lstopo -l` "+
				"does, while `nvidia-smi topo -m` lists hardware threads; 24.11.5 drains a node that has fewer;\n"+
				"  - at most one of `mps`, the number of its parts (usually 100, for percents of threads), `shards`, the number of jobs "+
				"that may have it at once, and `mig`, a list of MIG devices as objects with `type`, as in `1g.10gb`, and `capabilities`, "+
				"the numbers of the capability devices of its GPU instance and of its compute instance, from "+
				"`/proc/driver/nvidia-caps/mig-minors`.\n\n"+
				"Values by host may also be objects without `name`. Of what a resource tells, a whole GPU has the type that Slurm itself gives its "+
				"model, as in `nvidia_h100_80gb_hbm3`, and a MIG device that of its profile; a GPU in MIG mode without instances is left out. "+
				"What a plan does not know yet is passed over, and the rest is checked."),
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
	nodes, err := decodeNodes(v)
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	if len(nodes) == 0 && !v.IsFullyKnown() {
		return nil, nil
	}
	var of []slurm.Node
	for _, n := range nodes {
		if len(n.GPUs) == 0 && n.more {
			n.GPUs = []slurm.GPU{{}}
		}
		of = append(of, n.Node)
	}
	out, err := slurm.Render(of)
	return gres(out), err
}

// node is a node, which may have more GPUs than are known.
type node struct {
	slurm.Node
	more bool
}

// decodeNodes reads nodes, GPUs by host, or a list of both. What several values by host tell of one is one node.
func decodeNodes(v tftypes.Value) ([]node, error) {
	if !isList(v) {
		const otherwise = "a list is wanted, or GPUs by host as gpu_partition_config and gpu_inventory have them"
		if hosts, err := object(v); err == nil && len(hosts) == 0 {
			return nil, errors.New(otherwise)
		}
		return nodesByHost(v, otherwise)
	}
	var written, hosts []node
	_, err := elements(v, func(i int, item tftypes.Value) (none struct{}, err error) {
		var found []node
		if fields, is := object(item); is == nil && fields["name"].Type() != nil && !isHosts(item) {
			one, wrong := decodeNode(fmt.Sprintf("unknown%d", i), fields)
			written, err = append(written, one), wrong
		} else {
			found, err = nodesByHost(item, "an object is wanted")
			hosts = append(hosts, found...)
		}
		if err != nil {
			err = fmt.Errorf("entry %d: %w", i+1, err)
		}
		return none, err
	})
	return append(written, joined(hosts)...), err
}

// joined makes one node of those of a name. A GPU that is in several is as in the first.
func joined(nodes []node) []node {
	var out []node
	for _, n := range nodes {
		at := slices.IndexFunc(out, func(o node) bool { return o.Name == n.Name })
		if at < 0 {
			out = append(out, n)
			continue
		}
		to := &out[at]
		to.AutoDetect, to.more = cmp.Or(to.AutoDetect, n.AutoDetect), to.more || n.more
		for _, g := range n.GPUs {
			if !slices.ContainsFunc(to.GPUs, func(o slurm.GPU) bool { return o.Minor == g.Minor }) {
				to.GPUs = append(to.GPUs, g)
			}
		}
		slices.SortFunc(to.GPUs, func(a, b slurm.GPU) int { return cmp.Compare(a.Minor, b.Minor) })
	}
	return out
}

func nodesByHost(v tftypes.Value, otherwise string) ([]node, error) {
	hosts, err := object(v)
	if err != nil {
		return nil, errors.New(otherwise)
	}
	var out []node
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if !hosts[host].IsKnown() {
			continue
		}
		fields, err := object(hosts[host])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", host, err)
		}
		if platform := fields["platform"]; platform.Type() != nil { // of an inventory, with much more than GPUs
			if name, err := text(platform); platform.IsKnown() && err == nil && name != "linux" {
				return nil, fmt.Errorf("%q: it is a host of platform %s, whose GPUs have no device nodes; leave it out", host, name)
			}
			fields = map[string]tftypes.Value{"gpus": fields["gpus"]}
		}
		if _, named := fields["name"]; named {
			return nil, fmt.Errorf("%q: name is the key already; leave it out", host)
		}
		one, err := decodeNode(host, fields)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", host, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// decodeNode reads a node, which is called as given where it has no name, or one that is not known.
func decodeNode(called string, fields map[string]tftypes.Value) (node, error) {
	out := node{Node: slurm.Node{Name: called}}
	var kind string
	err := decodeFields(fields, map[string]reader{
		"auto_detect": into(&out.AutoDetect, text),
		"gpus":        func(tftypes.Value) error { return nil }, // below, once its type is read
		"name":        into(&out.Name, text),
		"type":        into(&kind, text),
	})
	gpus := fields["gpus"]
	if err != nil || gpus.Type() == nil || gpus.IsNull() {
		return out, err
	}
	if gpus.IsKnown() {
		if out.GPUs, err = decodeGPUs(gpus, out.Name, kind); err != nil {
			return out, fmt.Errorf("gpus: %w", err)
		}
	}
	out.more = !gpus.IsFullyKnown()
	return out, nil
}

// decodeGPUs reads a list of GPUs, or those of a host by their ids. What is not known as a whole is looked at, and left out.
func decodeGPUs(v tftypes.Value, host, kind string) ([]slurm.GPU, error) {
	var out []slurm.GPU
	if isList(v) {
		_, err := elements(v, func(i int, item tftypes.Value) (none struct{}, err error) {
			fields, err := object(item)
			if err != nil {
				return none, fmt.Errorf("entry %d: %w", i+1, err)
			}
			if isHostGPU(fields) {
				g, err := decodeHostGPU(host, fmt.Sprintf("%d of the list", i+1), fields)
				if err == nil && item.IsFullyKnown() {
					out, err = g.addSlurm(out, kind)
				}
				if err != nil {
					return none, fmt.Errorf("entry %d: %w", i+1, err)
				}
				return none, nil
			}
			g, err := decodeGPU(fields)
			if err != nil {
				return none, fmt.Errorf("entry %d: %w", i+1, err)
			}
			if g.Type == "" && len(g.MIG) == 0 {
				g.Type = kind
			}
			if item.IsFullyKnown() {
				out = append(out, g)
			}
			return none, nil
		})
		return out, err
	}
	gpus, err := gpusOfHost(host, v)
	if err != nil {
		return nil, err
	}
	for i := range gpus {
		if out, err = gpus[i].addSlurm(out, kind); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addSlurm adds what Slurm gives out of a GPU, which is nothing in MIG mode without instances.
func (g *hostGPU) addSlurm(to []slurm.GPU, kind string) ([]slurm.GPU, error) {
	if err := g.sharedByHost("Slurm"); err != nil {
		return nil, err
	}
	if g.mig && len(g.instances) == 0 {
		return to, nil
	}
	if g.minor == nil {
		return nil, fmt.Errorf("GPU %s: device_minor is null: the host does not tell the number of its device node, as a host whose "+
			"gpu-agent is older than the provider; write the GPU by hand, with device", g.id)
	}
	out := slurm.GPU{Minor: *g.minor, Cores: g.cores}
	for _, in := range g.instances {
		if !g.mig {
			break
		}
		if in.capabilities == nil {
			return nil, fmt.Errorf("GPU %s: the capabilities of its instance %s are null: the host does not tell the numbers of its devices, as "+
				"where /proc/driver/nvidia-caps/mig-minors cannot be read", g.id, in.profile)
		}
		out.MIG = append(out.MIG, slurm.MIGDevice{Type: in.profile, Capabilities: in.capabilities})
	}
	if len(out.MIG) == 0 {
		out.Type = cmp.Or(kind, slurm.TypeOf(g.model))
	}
	return append(to, out), nil
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
		if v, ok := fields[name]; err == nil && ok && v.IsKnown() && !v.IsNull() && max(out.MPS, out.Shards) == 0 {
			return out, fmt.Errorf("%s is 0, but a GPU in parts has at least one; leave it out for a GPU that is given out whole", name)
		}
	}
	if v, ok := fields["mig"]; err == nil && ok && v.IsFullyKnown() && !v.IsNull() && len(out.MIG) == 0 {
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
