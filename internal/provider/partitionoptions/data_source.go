// Package partitionoptions is the data source gpu_partition_options: the partition
// counts, MIG profiles and vGPU types that GPUs offer, the memory that each yields, and how
// many clients MPS takes on a GPU.
package partitionoptions

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// DataSourceType is the data source's name in configurations.
const DataSourceType = "gpu_partition_options"

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// DataSource is gpu_partition_options.
type DataSource struct{ lifecycle.DataSource }

// New makes the data source.
func New() datasource.DataSource { return &DataSource{lifecycle.DataSource{Type: DataSourceType}} }

type model struct {
	Host   types.String        `tfsdk:"host"`
	GPUID  types.String        `tfsdk:"gpu_id"`
	Common []int               `tfsdk:"common_partition_counts"`
	MIG    []string            `tfsdk:"common_mig_profiles"`
	VGPU   []string            `tfsdk:"common_vgpu_types"`
	GPUs   map[string]gpuModel `tfsdk:"gpus"`
}

type gpuModel struct {
	Model          string         `tfsdk:"model"`
	PartitionCount *int64         `tfsdk:"partition_count"`
	Options        []optionModel  `tfsdk:"options"`
	MIGEnabled     *bool          `tfsdk:"mig_enabled"`
	MIGProfiles    []profileModel `tfsdk:"mig_profiles"`
	Heterogeneous  *bool          `tfsdk:"vgpu_heterogeneous_supported"`
	VGPUTypes      []vgpuModel    `tfsdk:"vgpu_types"`
	MPSClients     *int64         `tfsdk:"mps_max_clients"`
}

type profileModel struct {
	Profile   string  `tfsdk:"profile"`
	Max       int64   `tfsdk:"max"`
	MemoryMiB *int64  `tfsdk:"memory_mib"`
	Slices    int64   `tfsdk:"compute_slices"`
	Size      int64   `tfsdk:"memory_slices"`
	Starts    []int64 `tfsdk:"starts"`
}

type vgpuModel struct {
	Type           string  `tfsdk:"type"`
	FrameBufferMiB int64   `tfsdk:"frame_buffer_mib"`
	Max            int64   `tfsdk:"max"`
	MaxPerVM       *int64  `tfsdk:"max_per_vm"`
	MIGProfile     *string `tfsdk:"mig_profile"`
}

type optionModel struct {
	PartitionCount   int64  `tfsdk:"partition_count"`
	PartitionVRAMMiB *int64 `tfsdk:"partition_vram_mib"`
	Estimated        bool   `tfsdk:"estimated"`
}

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "What the GPUs of a host can be cut into: the partition counts of GPU-P, the profiles of MIG, or the types of " +
			"vGPUs, and the memory that each partition, instance or vGPU would get; and how many clients of MPS they take.",
		Attributes: map[string]schema.Attribute{
			"host": schema.StringAttribute{
				MarkdownDescription: "The host, as the provider names it.", Required: true,
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"gpu_id": tfschema.OptionalText("One GPU. Default: every GPU of the host that offers partitions, MIG or vGPUs, "+
				"or that processes can share.", stringvalidator.LengthAtLeast(1)),
			"common_partition_counts": tfschema.ComputedListOf(types.Int64Type, "The counts that all of these GPUs with GPU-P offer."),
			"common_mig_profiles":     tfschema.ComputedListOf(types.StringType, "The MIG profiles that all of these GPUs with MIG offer."),
			"common_vgpu_types":       tfschema.ComputedListOf(types.StringType, "The vGPU types that all of these GPUs with vGPUs offer."),
			"gpus": tfschema.ComputedMap("The GPUs, by id.", tfschema.Attributes{
				"model":           tfschema.ComputedText("The model."),
				"partition_count": tfschema.ComputedNumber("The count that the GPU has now; null without GPU-P."),
				"options": tfschema.ComputedList("The valid counts, ascending.", tfschema.Attributes{
					"partition_count":    tfschema.ComputedNumber("The count."),
					"partition_vram_mib": tfschema.ComputedNumber("Memory of one partition in MiB; null where the host does not tell it."),
					"estimated": tfschema.ComputedFlag("Whether the memory is an estimate. Hyper-V reports it for the present count only; " +
						"for others the same memory is shared evenly."),
				}),
				"mig_enabled": tfschema.ComputedFlag("Whether the GPU is in MIG mode; null without MIG."),
				"mig_profiles": tfschema.ComputedList("The MIG profiles of the GPU, in the driver's order. Some drivers list them only in MIG mode; "+
					"until then they are those that are documented for the model.", tfschema.Attributes{
					"profile":        tfschema.ComputedText("The profile's name."),
					"max":            tfschema.ComputedNumber("How many instances of the profile an empty GPU takes."),
					"memory_mib":     tfschema.ComputedNumber("Memory of one instance in MiB."),
					"compute_slices": tfschema.ComputedNumber("Compute slices of one instance."),
					"memory_slices":  tfschema.ComputedNumber("Memory slices of one instance."),
					"starts":         tfschema.ComputedListOf(types.Int64Type, "The memory slices at which an instance may begin."),
				}),
				"vgpu_heterogeneous_supported": tfschema.ComputedFlag("Whether vGPUs of different frame buffer sizes can share the " +
					"GPU; null without vGPUs."),
				"vgpu_types": tfschema.ComputedList("The vGPU types of the GPU, in the driver's order.", tfschema.Attributes{
					"type":             tfschema.ComputedText("The type's name."),
					"frame_buffer_mib": tfschema.ComputedNumber("Frame buffer of one vGPU in MiB."),
					"max":              tfschema.ComputedNumber("How many vGPUs of the type an empty GPU takes."),
					"max_per_vm":       tfschema.ComputedNumber("How many of them one VM takes; null when the driver does not say."),
					"mig_profile": tfschema.ComputedText("The GPU instance profile that the type lives in; null for a type that shares the GPU by " +
						"time slices. `gpu_partition_config` makes the instances of the types that it is given."),
				}),
				"mps_max_clients": tfschema.ComputedNumber("How many client processes MPS takes on the GPU, as NVIDIA documents; a GPU instance " +
					"takes them by its part of the compute slices. Null on a host without `nvidia-cuda-mps-control`."),
			}),
		},
	}
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !report.NotYet(&resp.Diagnostics, d.Fleet, DataSourceType, fleet.View{}) {
		return
	}
	name := m.Host.ValueString()
	if !d.Fleet.Has(name) {
		resp.Diagnostics.AddAttributeError(path.Root("host"), "Unknown host", scope.UnknownHost(d.Fleet, name))
		return
	}
	view := d.Fleet.Snapshot(ctx, []string{name})
	host, ok := view.Hosts[name]
	if !ok {
		if report.NotYet(&resp.Diagnostics, d.Fleet, DataSourceType, view) && report.Unreachable(&resp.Diagnostics, d.Fleet, DataSourceType,
			view) {
			resp.Diagnostics.AddError("Host does not answer", fmt.Sprintf("Host: %s\nThe options of its GPUs are not known without it.", name))
		}
		return
	}
	wanted := m.GPUID.ValueString()
	m.describe(host, wanted)
	if wanted != "" && len(m.GPUs) == 0 {
		resp.Diagnostics.AddAttributeError(path.Root("gpu_id"), "GPU cannot be partitioned", fmt.Sprintf(
			"Found: Host %s has no GPU %q that offers partitions, MIG or vGPUs, or that processes can share.\n"+
				"Fix: Data source gpu_inventory lists the host's GPUs with their status.", name, wanted))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// describe fills in the GPUs of a host, or the wanted one, and what they have in common.
func (m *model) describe(host *gpu.Host, wanted string) {
	m.GPUs = map[string]gpuModel{}
	var counts shared[int]
	var profiles, vgpus shared[string]
	for i := range host.GPUs {
		g := &host.GPUs[i]
		if wanted != "" && !gpu.SameID(wanted, g.ID) {
			continue
		}
		partitions := g.Partitionable != nil && !g.Partitionable.Paravirtual
		shares := sharedByProcesses(host, g)
		if !partitions && !shares && g.MIG == nil && g.VGPU == nil {
			continue
		}
		out := gpuModel{Model: g.Model, Options: []optionModel{}, MIGProfiles: []profileModel{}, VGPUTypes: []vgpuModel{}}
		if partitions {
			counts.and(out.options(g))
		}
		if g.MIG != nil {
			profiles.and(out.profiles(g))
		}
		if g.VGPU != nil {
			vgpus.and(out.vgpus(g.VGPU))
		}
		if shares && host.MPS != nil && host.MPS.Program != "" {
			out.MPSClients = new(int64(catalog.MPSClients(g.ComputeCapability, g.Driver.Branch())))
		}
		m.GPUs[g.ID] = out
	}
	m.Common, m.MIG, m.VGPU = counts.all(), profiles.all(), vgpus.all()
}

func sharedByProcesses(host *gpu.Host, g *gpu.GPU) bool {
	return host.Platform == gpu.Linux && g.Vendor == "NVIDIA"
}

// shared is what several lists have in common.
type shared[T comparable] struct {
	values []T
	begun  bool
}

func (s *shared[T]) and(list []T) {
	if !s.begun {
		s.values, s.begun = slices.Clone(list), true
		return
	}
	s.values = slices.DeleteFunc(s.values, func(v T) bool { return !slices.Contains(list, v) })
}

// all is an empty list, and not nil, where there is nothing.
func (s *shared[T]) all() []T { return append([]T{}, s.values...) }

// options fills in the counts of GPU-P and returns them.
func (m *gpuModel) options(g *gpu.GPU) []int {
	counts := slices.Sorted(slices.Values(g.Partitionable.ValidCounts))
	m.PartitionCount = new(int64(g.Partitionable.Count))
	for _, c := range counts {
		m.Options = append(m.Options, optionModel{
			PartitionCount: int64(c), PartitionVRAMMiB: object.MiBIfKnown(g.Partitionable.EstimatedPartitionVRAM(c)),
			Estimated: c != g.Partitionable.Count,
		})
	}
	return counts
}

// profiles fills in the profiles of MIG and returns their names.
func (m *gpuModel) profiles(g *gpu.GPU) []string {
	m.MIGEnabled = &g.MIG.Enabled
	var names []string
	for _, p := range placement.MIGProfiles(g) {
		x := profileModel{
			Profile: p.Name, Max: int64(p.Max), MemoryMiB: object.MiBIfKnown(p.Memory),
			Slices: int64(p.Slices), Size: int64(p.Size), Starts: []int64{},
		}
		for _, s := range p.Starts {
			x.Starts = append(x.Starts, int64(s))
		}
		m.MIGProfiles = append(m.MIGProfiles, x)
		names = append(names, p.Name)
	}
	return names
}

// vgpus fills in the types of vGPUs and returns their names.
func (m *gpuModel) vgpus(v *gpu.VGPU) []string {
	m.Heterogeneous = &v.HeterogeneousSupported
	var names []string
	for _, t := range v.Types {
		x := vgpuModel{Type: t.Name, FrameBufferMiB: t.FrameBuffer.MiB(), Max: int64(t.Max), MIGProfile: object.NilIfEmpty(t.MIGProfile)}
		if t.MaxPerVM > 0 {
			x.MaxPerVM = new(int64(t.MaxPerVM))
		}
		names = append(names, t.Name)
		m.VGPUTypes = append(m.VGPUTypes, x)
	}
	return names
}
