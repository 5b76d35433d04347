package share

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// IdentitySchema implements resource.ResourceWithIdentity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"host": identityschema.StringAttribute{Description: "The host that the share is on, as the provider names it.", RequiredForImport: true},
		"name": identityschema.StringAttribute{Description: "The share's name.", RequiredForImport: true},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A named fraction of one or several NVIDIA GPUs of a Linux host, for containers. It is handed over by the " +
			"[Container Device Interface](https://github.com/cncf-tags/container-device-interface) (CDI): `docker run --device`, `podman " +
			"run --device`, containerd and Kubernetes take the name in `cdi_device`.\n\n" +
			"What a share is follows from the layout of its GPUs: a part of a GPU with MPS, turns on a GPU with time-slicing, a MIG " +
			"instance, or a whole GPU. `isolation` and `enforcement` say what keeps shares apart and what holds each to its part. " +
			"MPS and time-slicing are no security boundary.\n\n" +
			"A share is placed when it is created and is never moved afterwards. Limits change in place, for containers that " +
			"are started from then on. A share that processes run in is not destroyed.",
		Attributes: attributes(ctx),
	}
}

const (
	replaceText = " Changing this forces a new resource."
	timeoutText = "Time for the host, from when its turn comes, as a duration such as `\"10m\"`. Default `10m`."
)

func attributes(ctx context.Context) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"name": schema.StringAttribute{
			MarkdownDescription: "The share's name, once per host, as CDI takes it: up to 128 letters, digits, `_`, `-`, `.` and `:`, a letter " +
				"or a digit at both ends." + replaceText,
			Required: true, Validators: notEmpty(),
		},
		"host": schema.StringAttribute{
			MarkdownDescription: "The host, as the provider names it. One of `host` and `pool` is required at least; with `pool` alone it is " +
				"the host that was chosen." + replaceText,
			Optional: true, Computed: true, Validators: notEmpty(),
		},
		"pool": tfschema.OptionalText("The `id` of a `gpu_pool`: the share is placed on the fullest of its hosts that has room, "+
			"within the pool's quotas."+replaceText, notEmpty()...),
		"config": tfschema.OptionalText("The `id` of a `gpu_partition_config`: the share is placed on GPUs of this config only. "+
			"Refer to the resource, so that the two are created and "+
			"destroyed in the right order, and the plan can prove that there is room."+replaceText, notEmpty()...),
		"gpu_ids": schema.SetAttribute{
			MarkdownDescription: "The GPUs that the share uses. Set it together with `host` to choose them; otherwise they are chosen " +
				"when the share is created. `[]` is refused." + replaceText,
			ElementType: types.StringType, Optional: true, Computed: true,
			Validators: append(scope.SomeNames(tfschema.Nonempty{
				Fix: "Leave `gpu_ids` out, or null, to have the GPUs chosen.",
			}), scope.Once, setvalidator.AlsoRequires(path.MatchRoot("host"))),
		},
		"gpu_count": tfschema.OptionalNumber("Number of GPUs or MIG instances, on one host, that the share spans. "+
			"Default `1`, or as many as `gpu_ids` names."+replaceText, int64validator.AtLeast(1)),
		"mig_profile": tfschema.OptionalText("The profile of its MIG instances, such as `\"1g.10gb\"`. Default: any."+replaceText, notEmpty()...),
		"owner_label": tfschema.OptionalText("Whose quota of the pool the share counts against: a key of the pool's `quotas`.",
			append(notEmpty(), stringvalidator.AlsoRequires(path.MatchRoot("pool")))...),
		"memory": tfschema.OptionalObject("Memory on each device: in MiB, or as a part of what the device has, which is worked out "+
			"when the share is placed. "+
			"Of request and limit, one that is not set is the same as the other.", tfschema.Attributes{
			"request_mib": tfschema.OptionalNumber("What is kept free for the share, in MiB.", append(layout.MemoryValidators(),
				int64validator.ConflictsWith(memory("fraction"), memory("limit_fraction")))...),
			"limit_mib": tfschema.OptionalNumber("The most that the share may use, in MiB. What holds it to that is in `enforcement`.",
				append(layout.MemoryValidators(), int64validator.ConflictsWith(memory("fraction"), memory("limit_fraction")))...),
			"fraction": tfschema.OptionalDecimal("What is kept free for the share, as a part of the device's memory: `0.5` is half of "+
				"it, whatever the model.", layout.FractionValidators()...),
			"limit_fraction": tfschema.OptionalDecimal("The most that the share may use, as a part of the device's memory. "+
				"A share of devices of different sizes is held to the smallest part.",
				layout.FractionValidators()...),
		}),
		"active_thread_percentage": tfschema.OptionalDecimal("Percentage of a device's multiprocessors that each process of the share may use. "+
			"Only with MPS (on a GPU or a MIG instance).",
			layout.PercentageValidators()...),
		"client_priority": tfschema.OptionalText("Priority of the share's processes among those of the same MPS daemon: "+
			"`normal` or `below_normal`. Only with MPS (on a GPU or a MIG instance).",
			stringvalidator.OneOf(priorities...)),
		"max_disruption": tfschema.OptionalText("The most that destroying the share may do to what runs in it: `none` (the default) or "+
			"`process_restart`, which lets its MPS clients be terminated through "+
			"their daemon. Other processes are never ended: they keep the share from being destroyed. The value of the last apply counts.",
			stringvalidator.OneOf(string(gpu.DisruptNone), string(gpu.DisruptProcessRestart))),
		"timeouts": tfschema.Timeouts(ctx, timeoutText),
		"devices": tfschema.ComputedList("The devices that the share uses, in the order in which processes count them.", tfschema.Attributes{
			"gpu_id":      tfschema.ComputedText("The GPU."),
			"mig_profile": tfschema.ComputedText("The profile of a MIG instance; null for a whole GPU."),
			"mig_start":   tfschema.ComputedNumber("The first memory slice of a MIG instance; null for a whole GPU."),
			"uuid": tfschema.ComputedText("The UUID of the GPU or MIG device. That of a MIG device is new each time that the instance is " +
				"created, as after a reboot."),
		}),
		"mode": tfschema.ComputedText("How the devices are shared: `whole_gpu`, `mig`, `mps` or `time_slicing`."),
		"cdi_device": tfschema.ComputedText("What a container asks for, as in `docker run --device`: `gpufleet.com/share=NAME`. " +
			"Known at the first plan."),
		"environment": tfschema.ComputedMapOf(types.StringType, "The environment of a process of the host that is to be in the share without a "+
			"container. Containers get it through CDI."),
		"isolation": tfschema.ComputedText("What keeps the share apart from others on the same device: `hardware`, `memory` (address spaces " +
			"of its own, but a fault of one process can end the others), or `none`."),
		"enforcement": tfschema.ComputedText("What holds the share to its part: `hardware`, `per_container`, `per_process` (two processes may " +
			"take it twice), `advisory` (a program may lift it; always by MPS before driver 550.163, whose clients may change its daemon), or " +
			"`none`."),
		"fraction": tfschema.ComputedDecimal("The part of a GPU that the share counts for, summed over its devices."),
		"drift":    report.DriftAttribute("Where the host differs"),
	}
}

// memory is the path of an attribute in memory.
func memory(name string) path.Expression { return path.MatchRoot("memory").AtName(name) }

func notEmpty() []validator.String { return []validator.String{stringvalidator.LengthAtLeast(1)} }

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	return []resource.ConfigValidator{resourcevalidator.AtLeastOneOf(path.MatchRoot("host"), path.MatchRoot("pool"))}
}

// ValidateConfig implements resource.ResourceWithValidateConfig.
func (r *Resource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || m.Count.IsNull() || m.GPUIDs.IsNull() || m.Count.IsUnknown() || m.GPUIDs.IsUnknown() {
		return
	}
	if n := len(m.GPUIDs.Elements()); m.Count.ValueInt64() != int64(n) {
		resp.Diagnostics.AddAttributeError(path.Root("gpu_count"), "Conflicting number of GPUs", fmt.Sprintf(
			"Found: gpu_count is %d, and gpu_ids names %d.\nFix: Leave gpu_count out.", m.Count.ValueInt64(), n))
	}
}
