package partitionconfig

import (
	"context"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/duration"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

// IdentitySchema implements resource.ResourceWithIdentity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"id": identityschema.StringAttribute{Description: "The config's id: its name, or a digest of what it covers.", RequiredForImport: true},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Gives a homogeneous set of GPUs, across one or several hosts, one layout: equal partitions for VMs on Hyper-V (`gpu_p`), or, " +
			"on Linux hosts with NVIDIA GPUs, Multi-Instance GPU (`mig`), vGPUs for KVM (`vgpu`), or GPUs that processes and containers share by the Multi-Process Service (`mps`) or in " +
			"turns (`time_slicing`).\n\n" +
			"Every GPU that the selector covers gets the same layout. Only what differs is touched: a MIG instance, vGPU or MPS daemon that is as declared stays, and so do other GPUs of the host. " +
			"What the hosts really have is in `gpus`; a difference from what is declared is in `drift` and is put right by the next apply.\n\n" +
			"All partitioned GPUs of a cluster should have the same count ([Microsoft](https://learn.microsoft.com/windows-server/virtualization/hyper-v/gpu-partitioning)), " +
			"so one config usually covers a cluster. A change that fails on one host is undone on all of them.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "`name`, or else a digest of the kind, the hosts or cluster, and the selector. Known at the first plan.",
				Computed:            true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				MarkdownDescription: "Name of the config. Changing this forces a new resource.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthBetween(1, 128)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"hosts": schema.SetAttribute{
				MarkdownDescription: "Hosts, as the provider names them. One of `hosts` and `cluster` is required. A host that joins gets the layout; " +
					"removing a host has the same effect as destroying the config on it (see `on_destroy`).",
				ElementType: types.StringType, Optional: true, Validators: scope.HostValidators(),
			},
			"cluster": schema.StringAttribute{
				MarkdownDescription: "A failover cluster: all of the provider's hosts that are its nodes.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"selector": schema.SingleNestedAttribute{
				MarkdownDescription: "Narrows the GPUs. Without it every GPU is covered that has what the kind takes (partitions, MIG or vGPU types; for `mps` and `time_slicing` an NVIDIA " +
					"GPU that is not in MIG mode), is not dismounted, and is not in a Hyper-V pool or another config. A GPU that is inserted later is then drift, with a warning.",
				Optional: true, Attributes: scope.SelectorAttributes(),
			},
			"gpu_p":        gpuPAttribute(),
			"mig":          migAttribute(),
			"vgpu":         vgpuAttribute(),
			"mps":          mpsAttribute(),
			"time_slicing": timeSlicingAttribute(),
			"quiesce_units": schema.SetAttribute{
				MarkdownDescription: "With `mig` and `vgpu`: systemd units that only watch GPUs, such as `nvidia-dcgm.service` or `nvidia-persistenced.service`. Those of them that run are stopped while MIG mode " +
					"or the GPU's virtual functions are switched, and started again. Workloads are never stopped; do not name any here.",
				ElementType: types.StringType, Optional: true,
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1), setvalidator.NoNullValues(), setvalidator.ConflictsWith(path.MatchRoot("gpu_p"), path.MatchRoot("mps"), path.MatchRoot("time_slicing")),
					setvalidator.ValueStringsAre(stringvalidator.RegexMatches(unitName, "must be the name of a systemd unit")),
				},
			},
			"max_disruption": schema.StringAttribute{
				MarkdownDescription: "How much a change may disturb what runs: " + disruptionText() + ". Default `none`. The count of a GPU that nobody " +
					"uses changes without disruption; one whose partitions VMs hold needs `vm_restart`, and each of those VMs' own assignment must allow " +
					"the shutdown as well. MIG instances that nothing uses change without disruption, and those in use never; switching MIG mode takes `gpu_reset` on Ampere GPUs. vGPUs that no VM holds change without disruption, and those held never. " +
					"An MPS daemon that has to be restarted or ended ends its clients, which needs `process_restart`; no other process is ever ended.",
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(disruptionNames()...)},
			},
			"rollout": rolloutAttribute(),
			"on_destroy": schema.StringAttribute{
				MarkdownDescription: "`keep` leaves the layout as it is; `restore` puts back the count, or the modes and the MIG instances or vGPUs, that each GPU had when it joined, " +
					"and never stops a VM or a process to do so. Default `keep`, but for `mps` and `time_slicing` `restore`: the MPS daemons end, their clients as `max_disruption` allows, and compute " +
					"mode and time slice go back unless somebody has changed them meanwhile. Destroying uses the value of the last apply.",
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(onDestroyKeep, onDestroyRestore)},
			},
			"timeouts": duration.Timeouts(ctx, timeoutText),
			"gpus": schema.MapAttribute{
				MarkdownDescription: "The GPUs that the config covers, by host and GPU id, each with what the host reports: its `model`, its PCI `address` on Linux, its `layout` " +
					"(such as `gpu_p:4` or `mig:1g.10gb@0+3g.40gb@4`, where `@` stands before the first memory slice), `partition_count` and `partition_vram_mib` for GPU-P, and " +
					"`instances` for MIG: a list of `profile`, `start`, `memory_mib` and `uuid`. The UUID, by which a workload finds its MIG device, is a new one each time that the instance is made. For vGPUs the `layout` is such as `vgpu:2xL40S-12Q`, and `vgpus` a list of `type`, `function` (the index of the virtual function; null for a vGPU " +
					"on the GPU itself), and `address` and `uuid`, by which a VM gets it: the PCI address, or the UUID of a mediated device (else null). With MPS the `layout` is " +
					"`mps:` and the compute mode, such as `mps:exclusive_process`, or `mps:none` while no daemon of the config serves the GPU; with time-slicing it is `time_slicing:` and the time slice.",
				ElementType: gpusOfHostType, Computed: true,
			},
			"mps_daemons": schema.MapAttribute{
				MarkdownDescription: "With MPS, the control daemons of the config, by host: a list of `name`, `pipe_directory`, `gpu_ids`, in the order in which clients count the GPUs, and `mig_instance`, such as " +
					"`3g.40gb@4`, for a daemon inside of a GPU instance. A process of the host is a client with `CUDA_MPS_PIPE_DIRECTORY` set to the pipe directory. Containers are handed it by `gpu_share`, " +
					"which holds them to a part as well. Null without MPS.",
				ElementType: daemonsOfHostType, Computed: true,
			},
			"partition_vram_mib": schema.Int64Attribute{
				MarkdownDescription: "Memory of one partition in MiB; null when the GPUs differ, and for other kinds than GPU-P.", Computed: true,
			},
			"isolation": schema.StringAttribute{
				MarkdownDescription: "What separates two workloads that the layout puts on one GPU. `hardware` for GPU-P and MIG: GPU-P partitions are SR-IOV functions with memory of their own; MIG instances have memory and compute slices of their own. `memory` for vGPUs: each has frame buffer of its own, and they take turns on the rest of the GPU. `memory` for MPS as well, inside of MIG instances too: each client has an address space of its own, but a fault of one can end the others; `none` before compute " +
					"capability 7.0, where they share one address space. `none` for time-slicing.",
				Computed: true,
			},
			"drift": schema.ListAttribute{
				MarkdownDescription: "Where the hosts differ from what is declared, one sentence each. Empty after an apply.",
				ElementType:         types.StringType, Computed: true,
			},
		},
	}
}

// unitName matches names of systemd units; none of them can be taken for an option.
var unitName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:_.@\\-]*$`)

func rolloutAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "How a change goes through several hosts.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			"max_unavailable": schema.Int64Attribute{
				MarkdownDescription: "How many hosts are changed at the same time. Default `1`.",
				Optional:            true, Validators: []validator.Int64{int64validator.AtLeast(1)},
			},
			"drain": schema.BoolAttribute{
				MarkdownDescription: "Default `false`. Before the count of a GPU changes whose partitions VMs hold, pause the cluster node and have the " +
					"cluster move its VMs to other nodes; then resume the node. It is done where every VM in the way is clustered and its partition " +
					"supports live migration; on other nodes VMs are stopped as `max_disruption` and their own assignments allow. VMs stay on the " +
					"nodes that they have moved to.",
				Optional: true,
			},
			"on_failure": schema.StringAttribute{
				MarkdownDescription: "When a host fails: `rollback` (the default) puts the hosts that were changed back as they were; `stop` leaves them " +
					"changed and goes no further.",
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(onFailureUndo, onFailureStop)},
			},
		},
	}
}

const timeoutText = "Time for each host, from when its turn comes, as a duration such as `\"10m\"`. Default `30m`."

func disruptionNames() []string {
	var out []string
	for _, d := range gpu.Disruptions() {
		out = append(out, string(d))
	}
	return out
}

func disruptionText() string { return "`" + strings.Join(disruptionNames(), "` < `") + "`" }

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	return []resource.ConfigValidator{
		resourcevalidator.ExactlyOneOf(path.MatchRoot("hosts"), path.MatchRoot("cluster")),
		resourcevalidator.ExactlyOneOf(
			path.MatchRoot("gpu_p"), path.MatchRoot("mig"), path.MatchRoot("vgpu"), path.MatchRoot("mps"), path.MatchRoot("time_slicing"),
		),
	}
}
