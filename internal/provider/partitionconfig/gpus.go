package partitionconfig

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// hostModel is one host in the attribute gpus.
type hostModel struct {
	GPUs types.Map `tfsdk:"gpus"`
}

// gpuModel is one GPU in the attribute gpus.
type gpuModel struct {
	Model            types.String `tfsdk:"model"`
	Address          types.String `tfsdk:"address"`
	Minor            types.Int64  `tfsdk:"device_minor"`
	Cores            types.String `tfsdk:"cpu_cores"`
	Layout           types.String `tfsdk:"layout"`
	PartitionCount   types.Int64  `tfsdk:"partition_count"`
	PartitionVRAMMiB types.Int64  `tfsdk:"partition_vram_mib"`
	Instances        types.List   `tfsdk:"instances"`
	VGPUs            types.List   `tfsdk:"vgpus"`
}

var (
	gpuType       = types.ObjectType{AttrTypes: tfschema.TypesOf(gpuAttributes())}
	gpusOfHost    = types.MapType{ElemType: gpuType}
	hostType      = types.ObjectType{AttrTypes: map[string]attr.Type{"gpus": gpusOfHost}}
	instanceType  = elementOf("instances")
	vgpuType      = elementOf("vgpus")
	noInstances   = types.ListValueMust(instanceType, []attr.Value{})
	unknownOnHost = types.ObjectValueMust(hostType.AttrTypes, map[string]attr.Value{"gpus": types.MapUnknown(gpusOfHost.ElemType)})
)

func elementOf(list string) types.ObjectType {
	return gpuType.AttrTypes[list].(types.ListType).ElemType.(types.ObjectType) //nolint:forcetypeassert // it is as below
}

func gpusAttribute() schema.MapNestedAttribute {
	return tfschema.ComputedMap("The GPUs that the config covers, by host, as the host reports them.", tfschema.Attributes{
		"gpus": tfschema.ComputedMap("The host's GPUs, by GPU id.", gpuAttributes()),
	})
}

func gpuAttributes() tfschema.Attributes {
	return tfschema.Attributes{
		"model":        tfschema.ComputedText("Model, as the driver names it."),
		"address":      tfschema.ComputedText("PCI address. Linux only."),
		"device_minor": tfschema.ComputedNumber("Number of the device node, `3` for `/dev/nvidia3`. Linux only."),
		"cpu_cores":    tfschema.ComputedText("CPU cores beside the GPU, such as `0-15`, as Slurm counts them. Linux only."),
		"layout": tfschema.ComputedText("Such as `gpu_p:4`, `mig:1g.10gb@0+3g.40gb@4` (profile and first memory slice), `vgpu:2xL40S-12Q`, " +
			"`mps:exclusive_process` (the compute mode; `mps:none` without a daemon) or `time_slicing:default` (the time slice)."),
		"partition_count":    tfschema.ComputedNumber("Partitions. GPU-P only."),
		"partition_vram_mib": tfschema.ComputedNumber("Memory of one partition, in MiB. GPU-P only."),
		"instances": tfschema.ComputedList("MIG instances.", tfschema.Attributes{
			"profile":    tfschema.ComputedText("Profile, such as `1g.10gb`."),
			"start":      tfschema.ComputedNumber("First memory slice."),
			"memory_mib": tfschema.ComputedNumber("Memory, in MiB."),
			"uuid": tfschema.ComputedText("UUID of the MIG device, by which workloads find it. It is new each time that the instance is " +
				"created."),
			"capabilities": tfschema.ComputedListOf(types.Int64Type, "Numbers of the devices in `/dev/nvidia-caps` of the instance and of its "+
				"compute instance."),
		}),
		"vgpus": tfschema.ComputedList("The vGPUs that are on the GPU, by type and place.", tfschema.Attributes{
			"type":     tfschema.ComputedText("Type, such as `L40S-12Q`."),
			"function": tfschema.ComputedNumber("Index of the virtual function; null on the GPU itself."),
			"address":  tfschema.ComputedText("PCI address."),
			"uuid":     tfschema.ComputedText("UUID of a mediated device, else null."),
		}),
	}
}

// gpus are the GPUs that a model lists, by host and id. Those of a host of which they are not known yet are none.
func (m *model) gpus(diags *diag.Diagnostics) map[string]map[string]gpuModel {
	out := map[string]map[string]gpuModel{}
	if m == nil {
		return out
	}
	for host, of := range m.GPUs.Elements() {
		o, _ := of.(types.Object)
		out[host] = map[string]gpuModel{}
		on := object.Decode[hostModel](o, diags)
		if on == nil {
			continue
		}
		for id, of := range on.GPUs.Elements() {
			o, _ := of.(types.Object)
			if g := object.Decode[gpuModel](o, diags); g != nil {
				out[host][id] = *g
			}
		}
	}
	return out
}

// setGPUs is gpus' inverse.
func (m *model) setGPUs(ctx context.Context, all map[string]map[string]gpuModel, diags *diag.Diagnostics) {
	hosts := map[string]hostModel{}
	for host, gpus := range all {
		hosts[host] = hostModel{GPUs: object.MapOf(ctx, gpuType, gpus, diags)}
	}
	m.GPUs = object.MapOf(ctx, hostType, hosts, diags)
}

// foresee fills in what an update leaves of the GPUs that the state lists, by configuration and state alone. Which GPUs the config then
// has is not known where the hosts or the selector change, but for hosts that join, and where GPUs come or go without our doing.
func (m *model) foresee(ctx context.Context, want gpu.PartitionConfig, state *model, differs []change.Difference, diags *diag.Diagnostics) {
	if state == nil || !m.ID.Equal(state.ID) || !m.Cluster.Equal(state.Cluster) || !m.Selector.Equal(state.Selector) ||
		want.Kind != state.kind() || !slices.Equal(state.held(diags), m.staying(ctx, state, diags)) || otherGPUs(differs) {
		return
	}
	block := slices.IndexFunc(layoutKinds, func(k layoutKind) bool { return k.kind == want.Kind })
	same := len(differs) == 0 && m.blocks()[block].Equal(*state.blocks()[block])
	if !same && layoutKinds[block].foresee == nil {
		return
	}
	all := state.gpus(diags)
	for _, gpus := range all {
		for id, was := range gpus {
			if !same {
				gpus[id] = layoutKinds[block].foresee(was, want)
			}
		}
	}
	m.setGPUs(ctx, all, diags)
	joining := m.joining(ctx, all, diags)
	if len(joining) > 0 {
		hosts := m.GPUs.Elements()
		for _, name := range joining {
			hosts[name] = unknownOnHost
		}
		m.GPUs = types.MapValueMust(hostType, hosts)
	} else if same {
		m.Daemons, m.Isolation = state.Daemons, state.Isolation
	}
	if want.Kind == gpu.KindGPUP && object.Known(m.GPUs) {
		m.PartitionVRAMMiB = sizeOfAll(all)
	}
}

// staying are those of the hosts of a state that the configuration has, too. The nodes of a cluster are.
func (m *model) staying(ctx context.Context, state *model, diags *diag.Diagnostics) []string {
	if !m.Cluster.IsNull() {
		return state.held(diags)
	}
	hosts := object.Strings(ctx, m.Hosts, diags)
	return slices.DeleteFunc(state.held(diags), func(name string) bool { return !slices.Contains(hosts, name) })
}

// joining are the declared hosts of which there is nothing yet.
func (m *model) joining(ctx context.Context, there map[string]map[string]gpuModel, diags *diag.Diagnostics) []string {
	return slices.DeleteFunc(object.Strings(ctx, m.Hosts, diags), func(name string) bool { return there[name] != nil })
}

// otherGPUs reports whether what differs may be which GPUs there are, and not what they are cut into.
func otherGPUs(differs []change.Difference) bool {
	return slices.ContainsFunc(differs, func(d change.Difference) bool {
		return d.Cause != change.CauseReboot && d.Cause != change.CauseOtherTool
	})
}

// asPlanned keeps what was planned of an apply that ended well. What came about otherwise by others' doing, the next Read says.
func (m *model) asPlanned(ctx context.Context, planned *model, diags *diag.Diagnostics) {
	if !planned.PartitionVRAMMiB.IsUnknown() {
		m.PartitionVRAMMiB = planned.PartitionVRAMMiB
	}
	if !planned.Isolation.IsUnknown() {
		m.Isolation = planned.Isolation
	}
	if !planned.Daemons.IsUnknown() {
		m.Daemons = planned.Daemons
	}
	if planned.GPUs.IsUnknown() {
		return
	}
	all, now := planned.gpus(diags), m.gpus(diags)
	for host, gpus := range all {
		if planned.GPUs.Elements()[host].Equal(unknownOnHost) {
			all[host] = now[host]
			continue
		}
		for id, g := range gpus {
			seen, there := now[host][id]
			if !there {
				seen = gpuModel{Instances: types.ListNull(instanceType), VGPUs: types.ListNull(vgpuType)}
			}
			gpus[id] = g.completed(seen)
		}
	}
	m.setGPUs(ctx, all, diags)
}

// completed is a planned entry with what is known now where it was unknown.
func (m gpuModel) completed(now gpuModel) gpuModel {
	if m.Layout.IsUnknown() {
		m.Layout = now.Layout
	}
	if m.PartitionVRAMMiB.IsUnknown() {
		m.PartitionVRAMMiB = now.PartitionVRAMMiB
	}
	if m.Instances.IsUnknown() {
		m.Instances = now.Instances
	}
	if m.VGPUs.IsUnknown() {
		m.VGPUs = now.VGPUs
	}
	return m
}

// sizeOfAll is the memory of a partition, null where the GPUs differ.
func sizeOfAll(all map[string]map[string]gpuModel) types.Int64 {
	size := types.Int64Null()
	for _, gpus := range all {
		for _, g := range gpus {
			switch {
			case g.PartitionVRAMMiB.IsNull():
			case size.IsNull():
				size = g.PartitionVRAMMiB
			case !size.Equal(g.PartitionVRAMMiB):
				return types.Int64Null()
			}
		}
	}
	return size
}
