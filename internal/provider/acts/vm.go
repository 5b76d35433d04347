package acts

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// States of `state`.
const (
	running = "running"
	off     = "off"
)

// NewApplyPending makes the action gpu_apply_pending.
func NewApplyPending() action.Action {
	return onVM(act{
		name: "gpu_apply_pending", doing: "apply what is pending",
		text: "Makes the change that waits for the next power-off of a VM now: the VM is shut down as far as the `power` of its " +
			"`gpu_vm_assignment` allows it, gets what is declared, and is started again. Does nothing where nothing is `pending`. " +
			"The assignment keeps `when = \"next_off\"`.",
	})
}

// NewPower makes the action gpu_vm_power.
func NewPower() action.Action {
	return onVM(act{
		name: "gpu_vm_power", doing: "set the power state of the VM",
		text: "Starts or shuts down a VM that has a `gpu_vm_assignment` of this state's `owner`, as far as the assignment's `power` allows it.",
		arg:  "state", about: "`running` or `off`.", check: []validator.String{stringvalidator.OneOf(running, off)},
	})
}

func onVM(a act) action.Action {
	a.on, a.instead, a.find = "vm", "gpu-agent vm", findVM
	a.object = schema.StringAttribute{
		MarkdownDescription: "The VM's name or id, as in its assignment.", Required: true,
		Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
	}
	return &a
}

// findVM finds the VM that the configuration names, and what its assignment says.
func findVM(ctx context.Context, a *act, vm, state string, diags *diag.Diagnostics) (f found, ok bool) {
	does := map[string]change.Act{"": change.ActPending, running: change.ActStart, off: change.ActStop}[state]
	search := fleet.VMSearch{VM: vm}
	view := a.fleet.Snapshot(ctx, nil, fleet.ForVM(search))
	at, err := search.In(view)
	if err != nil {
		diags.AddAttributeError(path.Root("vm"), "VM was not found", fmt.Sprintf(
			"%s of VM %q\n\nFound: %v.\nFix: %s", a.name, vm, words.Capital(err.Error()),
			strings.TrimSpace(view.VMMeant(vm)+" Name a VM that a host of the provider has, by its id if several have its name.")))
		return f, false
	}
	claim, claimed := fleet.RecordOf(view, at)
	claimed = claimed && claim.Want.Assignment != nil
	if claimed && claim.Owner != a.fleet.Owner() {
		diags.AddAttributeError(path.Root("vm"), "The VM belongs to another owner", fmt.Sprintf(
			"%s of VM %q\n\nFound: Its assignment on host %q is claimed by owner %q, and this provider's owner is %q.\n"+
				"Fix: Use the action where the assignment is declared.",
			a.name, at.VM.Name, at.Host, claim.Owner, a.fleet.Owner()))
		return f, false
	}
	if does != change.ActStart && at.VM.Runs() && !(claimed && claim.Pending) && !a.fleet.Applies() &&
		(does == change.ActPending || !claimed) {
		// What a resource of this run leaves for it to do is not known yet.
		diags.AddAttributeWarning(path.Root("vm"), fmt.Sprintf("%s: VM %s is shut down if a change of "+
			"this run is followed by %s", at.Host, words.Name(at.VM.Name), a.name),
			"Found: The VM needs nothing done as it is now.")
	}
	f.view, f.missing = view, func() {
		diags.AddAttributeError(path.Root("vm"), "The VM has no assignment", fmt.Sprintf(
			"%s of VM %q\n\nFound: Host %q has no record of a gpu_vm_assignment of it, which says what may be done to the VM.\n"+
				"Fix: Assign a GPU to the VM and apply that first.", a.name, at.VM.Name, at.Host))
	}
	if claimed {
		f.change = change.ActOn(does, *claim)
		want := *f.change.Want.Assignment
		want.VMID, want.VMName, want.Host = at.VM.ID, at.VM.Name, at.Host
		f.change.Want.Assignment = &want
	}
	return f, true
}
