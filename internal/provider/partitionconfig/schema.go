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
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// IdentitySchema implements resource.ResourceWithIdentity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"id": identityschema.StringAttribute{
			Description:       "The config's id: its name, or a digest of what it covers.",
			OptionalForImport: true,
		},
		"host": identityschema.StringAttribute{Description: "The host of what nobody has a record of yet.", OptionalForImport: true},
		"kind": identityschema.StringAttribute{Description: "Its kind, such as mig.", OptionalForImport: true},
		"gpu_ids": identityschema.ListAttribute{
			Description: "Its GPUs, where others of the host have another layout.",
			ElementType: types.StringType, OptionalForImport: true,
		},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Gives a homogeneous set of GPUs, across one or several hosts, one layout: equal partitions for VMs on " +
			"Hyper-V (`gpu_p`), or, on Linux hosts with NVIDIA GPUs, Multi-Instance GPU (`mig`), vGPUs for KVM (`vgpu`), or GPUs that processes " +
			"and containers share by the Multi-Process Service (`mps`) or in turns (`time_slicing`).\n\n" +
			"Every GPU that the selector covers gets the same layout. Only what differs is touched: a MIG instance, vGPU or MPS daemon that is as " +
			"declared stays, and so do other GPUs of the host. What the hosts really have is in `gpus`; a difference from what is declared is in " +
			"`drift` and is put right by the next apply.\n\n" +
			"All partitioned GPUs of a cluster should have the same count " +
			"([Microsoft](https://learn.microsoft.com/windows-server/virtualization/hyper-v/gpu-partitioning)), so one config usually covers a " +
			"cluster. A change that fails on one host is undone on all of them.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "`name`, or else a digest of the kind, the hosts or cluster, and the selector. Known at the first plan.",
				Computed:            true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				MarkdownDescription: "Name of the config, of 1 to 128 characters. Changing this forces a new resource.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthBetween(1, 128)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"hosts": tfschema.OptionalSetOf(types.StringType, "Hosts, as the provider names them. One of `hosts` and `cluster` is required. "+
				"A host that joins gets the layout; "+
				"removing a host has the same effect as destroying the config on it (see `on_destroy`). "+
				"`[]` beside `cluster` is none.", scope.HostsOrCluster()...),
			"cluster": tfschema.OptionalText("A failover cluster: all of the provider's hosts that are its nodes.",
				stringvalidator.LengthAtLeast(1)),
			"selector": tfschema.OptionalObject("Narrows the GPUs. Without it every GPU is covered that has what the kind takes (partitions, "+
				"MIG or vGPU types; for `mps` and `time_slicing` an NVIDIA GPU that is not in MIG mode), is not dismounted, and is not in a "+
				"Hyper-V pool or another config.\n\nA GPU that is inserted later is then drift: the next apply takes it in, or a warning "+
				"says why it stays out, as one of another model does.",
				scope.SelectorAttributes()),
			"quiesce_units": tfschema.OptionalSetOf(types.StringType, "With `mig` and `vgpu`: systemd units that only watch GPUs, such as "+
				"`nvidia-dcgm.service` or `nvidia-persistenced.service`. Those of them that run are stopped while MIG mode changes, GPU "+
				"instances are removed, or the GPU's virtual functions are switched, and started again. Workloads are never stopped; "+
				"do not name any here. `[]` is none.",
				setvalidator.NoNullValues(), tfschema.Filled{Set: setvalidator.ConflictsWith(
					path.MatchRoot("gpu_p"), path.MatchRoot("mps"), path.MatchRoot("time_slicing"))},
				setvalidator.ValueStringsAre(stringvalidator.RegexMatches(unitName, "must be the name of a systemd unit"))),
			"max_disruption": tfschema.OptionalText("The most that a change may disturb what runs: "+disruptionText()+". Default `none`. "+
				"What nobody uses changes without disruption:"+lines(
				"`process_restart` lets an MPS daemon be restarted or stopped, which terminates its clients. No other process is ever killed.",
				"`vm_restart` lets VMs be restarted whose partitions the count of a GPU changes. Each VM's own assignment must allow it too.",
				"`gpu_reset` lets a GPU be reset, which switching MIG mode requires before Hopper, for `mig` and for MIG-backed vGPUs.",
				"MIG instances and vGPUs in use are never removed."), stringvalidator.OneOf(disruptionNames()...)),
			"rollout": rolloutAttribute(),
			"on_destroy": tfschema.OptionalText("What becomes of the layout when the config is destroyed. The value of the last apply counts."+lines(
				"`keep` (the default for `gpu_p`, `mig` and `vgpu`) leaves it as it is.",
				"`restore` (the default for `mps` and `time_slicing`) restores the count, modes, MIG instances or vGPUs that each GPU had when it "+
					"joined. It stops no VM, and terminates only MPS clients, as `max_disruption` allows. Compute modes and time slices that somebody "+
					"has changed since stay."),
				stringvalidator.OneOf(onDestroyKeep, onDestroyRestore)),
			"timeouts": tfschema.Timeouts(ctx, timeoutText),
			"gpus":     gpusAttribute(),
			"mps_daemons": tfschema.ComputedMapOf(daemonsOfHostType, "With MPS, the control daemons of the config, by host; otherwise null. "+
				"Containers get them from `gpu_share`."+lines(
				"`name` (String)",
				"`pipe_directory` (String) A process of the host is a client if `CUDA_MPS_PIPE_DIRECTORY` is set to it.",
				"`gpu_ids` (List of String) The daemon's GPUs, in the order in which clients number them.",
				"`mig_instance` (String) The GPU instance that the daemon serves, such as `3g.40gb@4`; null for whole GPUs.")),
			"partition_vram_mib": tfschema.ComputedNumber("Memory of one partition in MiB; null when the GPUs differ, and for " +
				"other kinds than GPU-P."),
			"isolation": tfschema.ComputedText("What separates two workloads on one GPU:" + lines(
				"`hardware`: GPU-P and MIG. A partition is an SR-IOV function, and a MIG instance a set of compute and memory slices, "+
					"with memory of its own.",
				"`memory`: vGPUs, which have their own frame buffer and share the rest in turns (MIG-backed ones only with those in the same GPU "+
					"instance); and MPS, whose clients have their own address spaces, but a fault of one can terminate the others.",
				"`none`: time-slicing, and MPS before compute capability 7.0.")),
			"drift": report.DriftAttribute("Where the hosts differ"),
		},
	}
	for _, k := range layoutKinds {
		k.attribute.PlanModifiers = []planmodifier.Object{otherKind()}
		resp.Schema.Attributes[string(k.kind)] = k.attribute
	}
}

// unitName matches names of systemd units; none of them can be taken for an option.
var unitName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:_.@\\-]*$`)

func rolloutAttribute() schema.SingleNestedAttribute {
	return tfschema.OptionalObject("How a change goes through several hosts.", tfschema.Attributes{
		"max_unavailable": tfschema.OptionalNumber("How many hosts are changed at the same time. Default `1`; where nothing that runs is "+
			"disturbed, one, then two, then four and so on.", int64validator.AtLeast(1)),
		"drain": tfschema.OptionalFlag("Before the partition count of GPUs in use changes, pause the cluster node and let the cluster move its " +
			"VMs to other nodes; afterwards resume it, and they come back. Default `false`. A node whose VMs cannot leave it (not clustered, " +
			"no live migration, no possible owner or room elsewhere) is changed as without `drain`."),
		"on_failure": tfschema.OptionalText("When a host fails: `rollback` (the default) puts the hosts that were changed back as they "+
			"were; `stop` leaves them "+
			"changed and goes no further.", stringvalidator.OneOf(onFailureUndo, onFailureStop)),
	})
}

const timeoutText = "Time for each host, from when its turn comes, as a duration such as `\"10m\"`. Default `30m`."

// lines makes a list below a description: what has several fields or values is read line by line.
func lines(of ...string) string { return "\n  - " + strings.Join(of, "\n  - ") }

func disruptionNames() []string {
	return words.Each(gpu.Disruptions(), func(d gpu.Disruption) string { return string(d) })
}

func disruptionText() string { return "`" + strings.Join(disruptionNames(), "` < `") + "`" }

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	var blocks []path.Expression
	for _, k := range layoutKinds {
		blocks = append(blocks, path.MatchRoot(string(k.kind)))
	}
	return []resource.ConfigValidator{
		tfschema.ExactlyOne{"hosts", "cluster"}, resourcevalidator.ExactlyOneOf(blocks...),
	}
}
