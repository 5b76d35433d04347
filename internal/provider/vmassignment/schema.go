package vmassignment

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
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// IdentitySchema implements resource.ResourceWithIdentity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"vm_id": identityschema.StringAttribute{Description: "The VM's id (GUID).", RequiredForImport: true},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Gives a virtual machine one GPU partition, GPUs of a pool, or named GPUs. A partition of a VM on a Linux host is " +
			"a vGPU, as the [guide on KVM](../guides/kvm.md) says; pools, named GPUs and the settings below are for Hyper-V.\n\n" +
			"A GPU is given and taken only while the VM is off: a VM that runs is shut down, if `power` allows it, and started again. " +
			"A VM that does not start with its GPU gets back what it had and is started as it was. When a clustered VM moves to another node, " +
			"nothing has to change.\n\n" +
			"A VM has at most one assignment. A partition or GPU that another resource gives up is free for this one only in a later apply.",
		Attributes: map[string]schema.Attribute{
			"vm": schema.StringAttribute{
				MarkdownDescription: "The VM's name or id (GUID). Refer to a VM resource's *id* if the VM is made in the same run: " +
					"an id is unknown until the VM exists, and its checks then wait for it, while a name that no host has is an error. " +
					"Forces replacement only if the new value identifies a different VM.",
				Required: true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"hosts": tfschema.OptionalSetOf(types.StringType, "Where to look for the VM, when its name is not unique, "+
				"or several hosts show its id. `[]` is none.", scope.NameValidators()...),
			"cluster": tfschema.OptionalText("The cluster in which to look for the VM, when its name is not unique.",
				stringvalidator.LengthAtLeast(1)),
			"partition": tfschema.OptionalObject("One GPU partition. `partition = {}` takes any. The host chooses the GPU when the VM starts. "+
				"Exactly one of `partition`, `pool` and `device` is required.", partitionAttributes()),
			"pool": tfschema.OptionalObject("Whole GPUs of a pool (DDA). "+
				"A clustered VM finds the pool of the same name on every node.", tfschema.Attributes{
				"id": schema.StringAttribute{
					MarkdownDescription: "The `id` of a `gpu_pool`.", Required: true,
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				},
				"count": tfschema.OptionalNumber(fmt.Sprintf("How many GPUs of the pool, from 1 to %d. Default `1`.", gpusAtMost),
					int64validator.Between(1, gpusAtMost)),
			}),
			"device": tfschema.OptionalObject("Named whole GPUs of one host (plain DDA), for a VM that stays on that host. "+
				"A GPU that is not dismounted from the host yet "+
				"is dismounted for the assignment, and mounted back when the assignment ends.", tfschema.Attributes{
				"host": schema.StringAttribute{
					MarkdownDescription: "The host, as the provider names it.", Required: true,
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				},
				"gpu_ids": schema.SetAttribute{
					MarkdownDescription: "The GPUs' ids. `[]` is refused.", ElementType: types.StringType, Required: true,
					Validators: append(scope.SomeNames(tfschema.Nonempty{Fix: "Name a GPU; without `device` the VM gets none."}), scope.Once),
				},
				"dismount": scope.Dismount(""),
			}),
			"power": power.Attribute("What is not set here is taken from the provider's `power`."),
			"low_memory_mapped_io_space_mib": tfschema.OptionalNumber("Memory-mapped IO space below 4 GiB in MiB, from 128 to 3584. "+settingText,
				int64validator.Between(128, 3584)),
			"high_memory_mapped_io_space_mib": tfschema.OptionalNumber("Memory-mapped IO space above 4 GiB in MiB. "+settingText,
				int64validator.Between(0, maxMiB)),
			"guest_controlled_cache_types": tfschema.OptionalFlag("Whether the guest controls cache types. " + settingText),
			"automatic_stop_action": tfschema.OptionalText("What happens to the VM when its host shuts down: `turn_off`, "+
				"`save` or `shut_down`. "+settingText, stringvalidator.OneOf("turn_off", "save", "shut_down")),
			"offline_action": tfschema.OptionalText("What the cluster does with the VM when its resource goes offline: `turn_off`, `save`, "+
				"`shut_down` or `force_shutdown`. A VM with a GPU "+
				"cannot be saved, so that `force_shutdown` lets it leave a node that drains. "+settingText,
				stringvalidator.OneOf("turn_off", "save", "shut_down", "force_shutdown")),
			"timeouts": tfschema.Timeouts(ctx, timeoutText),
			"vm_id": schema.StringAttribute{
				MarkdownDescription: "The VM's id; of a vGPU that was reserved before its VM was there, what `vm` says.",
				Computed:            true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"owner_host": tfschema.ComputedText("The host that owns the VM now."),
			"gpu_ids": schema.SetAttribute{
				MarkdownDescription: "The GPUs that the VM holds now. Empty while a VM with a partition is off: the partition is chosen at its start.",
				ElementType:         types.StringType, Computed: true,
			},
			"partition_id":       tfschema.ComputedNumber("The number of the partition on its GPU, while the VM runs."),
			"partition_vram_mib": tfschema.ComputedNumber("The memory of the partition in MiB, while the VM runs; of a vGPU always."),
			"partition_address": tfschema.ComputedText("The PCI address of the vGPU, `0000:41:00.4`, which the definition of a VM on a Linux host " +
				"names. Null where it is a mediated device, and on Hyper-V."),
			"partition_uuid": tfschema.ComputedText("The UUID of the vGPU where it is a mediated device."),
			"pending": tfschema.ComputedFlag("Whether the assignment waits for an apply that finds the VM off " +
				"(`power.when = \"next_off\"`)."),
			"effective_power": power.AppliedAttribute(),
			"drift":           report.DriftAttribute("Where the VM differs"),
		},
	}
}

const (
	// maxMiB keeps an amount of memory below what 64 bits of bytes can tell.
	maxMiB = 1 << 43
	// gpusAtMost is more GPUs than any host has.
	gpusAtMost  = 64
	settingText = "Written only when set; what it was before is recorded and put back when the assignment ends."
	timeoutText = "Time for the VM's shutdown, the change and its start, as a duration such as `\"10m\"`. Default `20m`."
)

func partitionAttributes() map[string]schema.Attribute {
	a := map[string]schema.Attribute{
		"config": tfschema.OptionalText("The `id` of the `gpu_partition_config` that makes the partitions. "+
			"It must have a GPU on every host where the VM may run. Where GPUs of other sizes are beside it, a VM on a standalone host is pinned "+
			"to one of the config's GPUs; for a clustered VM that is an error.",
			stringvalidator.LengthAtLeast(1)),
		"configs": tfschema.OptionalSetOf(types.StringType, "The `id`s of several `gpu_partition_config`s, of any of which the partition may "+
			"be: for a VM that fails over between nodes whose GPUs are of different models, or runs beside two models. Each host where the VM may "+
			"run needs a GPU of one of them. Conflicts with `config`.",
			setvalidator.SizeAtLeast(1), setvalidator.NoNullValues(), setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1)),
			setvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("config"))),
		"vram_mib": tfschema.OptionalNumber("An assertion: the partition must have this much memory, in MiB, on every GPU that Hyper-V may "+
			"take it from. Checked again after the VM starts.",
			int64validator.Between(1, maxMiB)),
		"type": tfschema.OptionalText("Of a VM on a Linux host, the type of its vGPU, such as `L40S-12Q`. Required where the config makes "+
			"several.", stringvalidator.LengthAtLeast(1)),
		"attach": tfschema.OptionalText("Of a VM on a Linux host, who writes the vGPU into the VM's definition. `\"vm\"`, the default: this "+
			"resource, through libvirt, while the VM is off. `\"none\"`: the VM's own resource, by `partition_address` or `partition_uuid`; one is "+
			"reserved for it, the VM may be still to come, and is never stopped. A change of it forces replacement.",
			stringvalidator.OneOf(string(gpu.AttachVM), string(gpu.AttachNone))),
		"gpu_id": tfschema.OptionalText("Binds the VM to a partition of this GPU. Refused for a clustered VM, which could then not fail over.",
			stringvalidator.LengthAtLeast(1)),
	}
	for _, share := range []string{"min", "max", "optimal"} {
		a[share+"_partition_vram_mib"] = tfschema.OptionalNumber(fmt.Sprintf("The adapter's %s memory in MiB.", shareWord[share]),
			int64validator.Between(0, maxMiB))
		for _, engine := range []string{"encode", "decode", "compute"} {
			a[share+"_partition_"+engine] = schema.NumberAttribute{
				MarkdownDescription: fmt.Sprintf("The adapter's %s %s, in the driver's units; 18446744073709551615 means no limit.", shareWord[share],
					engine),
				Optional: true, Validators: []validator.Number{unitsValidator{"must be a whole number from 0 to 18446744073709551615"}},
			}
		}
	}
	return a
}

var shareWord = map[string]string{"min": "minimum", "max": "maximum", "optimal": "optimal"}

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	return []resource.ConfigValidator{
		resourcevalidator.ExactlyOneOf(path.MatchRoot("partition"), path.MatchRoot("pool"), path.MatchRoot("device")),
		resourcevalidator.Conflicting(path.MatchRoot("hosts"), path.MatchRoot("cluster")),
	}
}
