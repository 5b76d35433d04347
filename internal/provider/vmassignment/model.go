package vmassignment

import (
	"context"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

type model struct {
	VM        types.String   `tfsdk:"vm"`
	Hosts     types.Set      `tfsdk:"hosts"`
	Cluster   types.String   `tfsdk:"cluster"`
	Partition types.Object   `tfsdk:"partition"`
	Pool      types.Object   `tfsdk:"pool"`
	Device    types.Object   `tfsdk:"device"`
	Power     types.Object   `tfsdk:"power"`
	LowMMIO   types.Int64    `tfsdk:"low_memory_mapped_io_space_mib"`
	HighMMIO  types.Int64    `tfsdk:"high_memory_mapped_io_space_mib"`
	Cache     types.Bool     `tfsdk:"guest_controlled_cache_types"`
	Stop      types.String   `tfsdk:"automatic_stop_action"`
	Offline   types.String   `tfsdk:"offline_action"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`

	VMID             types.String `tfsdk:"vm_id"`
	OwnerHost        types.String `tfsdk:"owner_host"`
	GPUIDs           types.Set    `tfsdk:"gpu_ids"`
	PartitionID      types.Int64  `tfsdk:"partition_id"`
	PartitionVRAMMiB types.Int64  `tfsdk:"partition_vram_mib"`
	PartitionAddress types.String `tfsdk:"partition_address"`
	PartitionUUID    types.String `tfsdk:"partition_uuid"`
	Pending          types.Bool   `tfsdk:"pending"`
	EffectivePower   types.Object `tfsdk:"effective_power"`
	Drift            types.List   `tfsdk:"drift"`
}

type identityModel struct {
	VMID types.String `tfsdk:"vm_id"`
}

type partitionModel struct {
	Config         types.String `tfsdk:"config"`
	Configs        types.Set    `tfsdk:"configs"`
	VRAMMiB        types.Int64  `tfsdk:"vram_mib"`
	GPUID          types.String `tfsdk:"gpu_id"`
	Type           types.String `tfsdk:"type"`
	Attach         types.String `tfsdk:"attach"`
	MinVRAMMiB     types.Int64  `tfsdk:"min_partition_vram_mib"`
	MaxVRAMMiB     types.Int64  `tfsdk:"max_partition_vram_mib"`
	OptimalVRAMMiB types.Int64  `tfsdk:"optimal_partition_vram_mib"`
	MinEncode      types.Number `tfsdk:"min_partition_encode"`
	MaxEncode      types.Number `tfsdk:"max_partition_encode"`
	OptimalEncode  types.Number `tfsdk:"optimal_partition_encode"`
	MinDecode      types.Number `tfsdk:"min_partition_decode"`
	MaxDecode      types.Number `tfsdk:"max_partition_decode"`
	OptimalDecode  types.Number `tfsdk:"optimal_partition_decode"`
	MinCompute     types.Number `tfsdk:"min_partition_compute"`
	MaxCompute     types.Number `tfsdk:"max_partition_compute"`
	OptimalCompute types.Number `tfsdk:"optimal_partition_compute"`
}

type poolModel struct {
	ID    types.String `tfsdk:"id"`
	Count types.Int64  `tfsdk:"count"`
}

type deviceModel struct {
	Host   types.String `tfsdk:"host"`
	GPUIDs types.Set    `tfsdk:"gpu_ids"`
	// Dismount is a scope.Dismount.
	Dismount types.Object `tfsdk:"dismount"`
}

var (
	partitionType = tfschema.TypesOf(partitionAttributes())
	poolType      = map[string]attr.Type{"id": types.StringType, "count": types.Int64Type}
	deviceType    = map[string]attr.Type{
		"host": types.StringType, "gpu_ids": types.SetType{ElemType: types.StringType},
		"dismount": types.ObjectType{AttrTypes: scope.DismountType},
	}
)

// declared reads what the configuration asks for, once all is known that matters.
func (m *model) declared(ctx context.Context, defaults gpu.Power, diags *diag.Diagnostics) gpu.Assignment {
	a := gpu.Assignment{VM: m.VM.ValueString(), Power: power.Decode(m.Power, defaults, diags)}
	if p := object.Decode[partitionModel](m.Partition, diags); p != nil {
		a.Kind, a.Partition = gpu.AssignPartition, &gpu.PartitionWant{
			Config: p.Config.ValueString(), Configs: object.Strings(ctx, p.Configs, diags), VRAM: object.BytesFromMiB(p.VRAMMiB),
			PinnedGPU: p.GPUID.ValueString(), Type: p.Type.ValueString(), Attach: gpu.Attach(p.Attach.ValueString()),
			Quotas: gpu.Quotas{
				VRAM:    gpu.Quota{Min: vramUnits(p.MinVRAMMiB), Max: vramUnits(p.MaxVRAMMiB), Optimal: vramUnits(p.OptimalVRAMMiB)},
				Encode:  gpu.Quota{Min: units(p.MinEncode), Max: units(p.MaxEncode), Optimal: units(p.OptimalEncode)},
				Decode:  gpu.Quota{Min: units(p.MinDecode), Max: units(p.MaxDecode), Optimal: units(p.OptimalDecode)},
				Compute: gpu.Quota{Min: units(p.MinCompute), Max: units(p.MaxCompute), Optimal: units(p.OptimalCompute)},
			},
		}
	}
	if p := a.Partition; p != nil {
		if slices.Sort(p.Configs); len(p.Configs) == 1 {
			p.Config, p.Configs = p.Configs[0], nil
		}
	}
	if p := object.Decode[poolModel](m.Pool, diags); p != nil {
		a.Kind, a.Pool = gpu.AssignPool, &gpu.PoolWant{ID: p.ID.ValueString(), Name: poolName(p.ID.ValueString()), Count: 1}
		if !p.Count.IsNull() {
			a.Pool.Count = int(p.Count.ValueInt64())
		}
	}
	if d := object.Decode[deviceModel](m.Device, diags); d != nil {
		a.Kind, a.Device = gpu.AssignDevice, &gpu.DeviceWant{
			Host: d.Host.ValueString(), GPUIDs: object.Strings(ctx, d.GPUIDs, diags),
			Force: scope.ByForce(d.Dismount, diags),
		}
		slices.Sort(a.Device.GPUIDs)
	}
	a.Settings = gpu.VMSettings{
		LowMemoryMappedIOSpace: object.BytesFromMiB(m.LowMMIO), HighMemoryMappedIOSpace: object.BytesFromMiB(m.HighMMIO),
		GuestControlledCache: m.Cache.ValueBoolPointer(),
		AutomaticStopAction:  (*gpu.StopAction)(m.Stop.ValueStringPointer()), OfflineAction: (*gpu.OfflineAction)(m.Offline.ValueStringPointer()),
	}
	return a
}

// prior is what the state says was assigned, to which VM and where.
func (r *Resource) prior(ctx context.Context, m *model, diags *diag.Diagnostics) gpu.Want {
	a := m.declared(ctx, r.Fleet.Power(), diags)
	a.VMID, a.Host = m.VMID.ValueString(), m.OwnerHost.ValueString()
	return gpu.Want{Assignment: &a}
}

// poolName is the part of a pool's id that hosts know: the id is the cluster or host
// and the name.
func poolName(id string) string {
	if _, name, ok := strings.Cut(id, "/"); ok {
		return name
	}
	return id
}

func vramUnits(v types.Int64) *uint64 { return (*uint64)(object.BytesFromMiB(v)) }

// units reads driver units, whose largest value does not fit an int64.
func units(v types.Number) *uint64 {
	if v.IsNull() || v.IsUnknown() {
		return nil
	}
	n, _ := v.ValueBigFloat().Uint64()
	return &n
}

func number(n *uint64) types.Number {
	if n == nil {
		return types.NumberNull()
	}
	return types.NumberValue(new(big.Float).SetUint64(*n))
}

func mib(n *uint64) types.Int64 { return object.MiBFromBytes((*gpu.Bytes)(n)) }

// observe writes what the host has into the computed attributes. a is what is
// declared; drift is empty right after an apply.
func (m *model) observe(ctx context.Context, v fleet.View, at fleet.FoundVM, a gpu.Assignment, diags *diag.Diagnostics) {
	h := v.Hosts[at.Host]
	vm := at.VM
	claim, claimed := fleet.RecordOf(v, at)
	m.VMID = types.StringValue(vm.ID)
	m.OwnerHost = types.StringValue(at.Host)
	m.Pending = types.BoolValue(claimed && claim.Pending)
	m.PartitionID, m.PartitionVRAMMiB = types.Int64Null(), types.Int64Null()
	ids := []string{}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Partitionable == nil || a.Partition == nil {
			continue
		}
		for _, p := range g.Partitionable.Partitions {
			if gpu.SameID(p.VMID, vm.ID) {
				ids = append(ids, g.ID)
				m.PartitionID = types.Int64Value(int64(p.ID))
				size := p.VRAM
				if size == 0 {
					size = g.Partitionable.PartitionVRAM()
				}
				m.PartitionVRAMMiB = object.MiBFromBytes(size.Known())
			}
		}
	}
	if claimed && claim.Device != nil {
		ids = append(ids, claim.Device.GPU)
	}
	m.observeVGPU(h, claim)
	for _, d := range vm.Devices {
		if d.GPU != "" {
			ids = append(ids, d.GPU)
		}
	}
	slices.Sort(ids)
	m.GPUIDs = object.SetOf(ctx, types.StringType, slices.Compact(ids), diags)
	m.Drift = report.EncodeDrift(ctx, change.AssignmentDifferences(h, vm, &a, claim), diags)
}

// observeVGPU writes by what a VM names the vGPU that is on record of its assignment, as far as the host has it.
func (m *model) observeVGPU(h *gpu.Host, claim *gpu.Claim) {
	m.PartitionAddress, m.PartitionUUID = types.StringNull(), types.StringNull()
	if claim == nil {
		return
	}
	in, there := h.VGPUOf(claim.Device)
	if !there {
		return
	}
	if in.UUID != "" {
		m.PartitionUUID = types.StringValue(in.UUID)
	} else {
		m.PartitionAddress = object.NullIfEmpty(in.Address)
	}
	g, _ := h.GPU(claim.Device.GPU)
	if t, offered := g.VGPU.Offers(in.Type); offered {
		m.PartitionVRAMMiB = object.MiBFromBytes(t.FrameBuffer.Known())
	}
}
