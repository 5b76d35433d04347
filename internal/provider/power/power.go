// Package power is the power policy: what may be done to a running VM. The provider
// has defaults, an assignment may say otherwise.
package power

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// Texts for registry pages.
const (
	powerText         = "What may be done to a VM that runs. GPUs are given and taken only while a VM is off."
	allowShutdownText = "Whether the guest may be asked to shut down. Default `false`: a change that needs the VM off is then " +
		"an error while it runs."
	forceShutdownText = "Whether the guest is shut down even when it says that it is locked or in use, closing open " +
		"sessions. Default `false`."
	allowTurnOffText = "Whether the power may be cut when the guest does not shut down within `shutdown_timeout`. " +
		"Default `false`: the change then fails and is undone."
	startAfterText      = "`if_was_running` starts the VM again after the change when it ran before (the default); `never` leaves it off."
	shutdownTimeoutText = "How long the guest may take to shut down, as a duration such as `\"90s\"` or `\"5m\"` (the default)."
	whenText            = "`now` makes the change at once, stopping the VM if that is allowed (the default); " +
		"`next_off` leaves a running VM alone and makes the change at the first apply that finds it off. The provider does not watch the VM. " +
		"Until then `pending` is true, and destroying the assignment fails while the VM runs."
)

const (
	ifWasRunning = "if_was_running"
	never        = "never"
	now          = "now"
	nextOff      = "next_off"
)

type model struct {
	AllowShutdown   types.Bool   `tfsdk:"allow_shutdown"`
	ForceShutdown   types.Bool   `tfsdk:"force_shutdown"`
	AllowTurnOff    types.Bool   `tfsdk:"allow_turn_off"`
	StartAfter      types.String `tfsdk:"start_after"`
	ShutdownTimeout types.String `tfsdk:"shutdown_timeout"`
	When            types.String `tfsdk:"when"`
}

// Attribute is the policy of a resource, or the defaults for it in the provider's block; more says which.
func Attribute(more string) schema.SingleNestedAttribute {
	return tfschema.OptionalObject(powerText+" "+more, tfschema.Attributes{
		"allow_shutdown":   tfschema.OptionalFlag(allowShutdownText),
		"force_shutdown":   tfschema.OptionalFlag(forceShutdownText),
		"allow_turn_off":   tfschema.OptionalFlag(allowTurnOffText),
		"start_after":      tfschema.OptionalText(startAfterText, oneOf(ifWasRunning, never)...),
		"shutdown_timeout": tfschema.OptionalText(shutdownTimeoutText, tfschema.PositiveDuration),
		"when":             tfschema.OptionalText(whenText, oneOf(now, nextOff)...),
	})
}

func oneOf(values ...string) []validator.String {
	return []validator.String{stringvalidator.OneOf(values...)}
}

// Decode lays a configured policy over defaults. Unknown parts count as not set.
func Decode(o types.Object, defaults gpu.Power, diags *diag.Diagnostics) gpu.Power {
	p := defaults
	m := object.Decode[model](o, diags)
	if m == nil {
		return p
	}
	set(&p.AllowShutdown, m.AllowShutdown)
	set(&p.ForceShutdown, m.ForceShutdown)
	set(&p.AllowTurnOff, m.AllowTurnOff)
	if v := m.StartAfter.ValueString(); v != "" {
		p.StayOff = v == never
	}
	if v := m.When.ValueString(); v != "" {
		p.NextOff = v == nextOff
	}
	if d, err := time.ParseDuration(m.ShutdownTimeout.ValueString()); err == nil {
		p.ShutdownTimeout = d
	}
	return p
}

// Encode is Decode's inverse, for import: what differs from the defaults, or null when
// nothing does.
func Encode(ctx context.Context, p, defaults gpu.Power, diags *diag.Diagnostics) types.Object {
	if p == defaults {
		return types.ObjectNull(attributeTypes)
	}
	var m model
	flag := func(to *types.Bool, v, usual bool) {
		if v != usual {
			*to = types.BoolValue(v)
		}
	}
	choice := func(to *types.String, v, usual bool, yes, no string) {
		if v != usual {
			*to = types.StringValue(map[bool]string{true: yes, false: no}[v])
		}
	}
	flag(&m.AllowShutdown, p.AllowShutdown, defaults.AllowShutdown)
	flag(&m.ForceShutdown, p.ForceShutdown, defaults.ForceShutdown)
	flag(&m.AllowTurnOff, p.AllowTurnOff, defaults.AllowTurnOff)
	choice(&m.StartAfter, p.StayOff, defaults.StayOff, never, ifWasRunning)
	choice(&m.When, p.NextOff, defaults.NextOff, nextOff, now)
	if p.Timeout() != defaults.Timeout() {
		m.ShutdownTimeout = types.StringValue(durationText(p.Timeout()))
	}
	return object.NestedOf(ctx, attributeTypes, m, diags)
}

var attributeTypes = tfschema.TypesOf(Attribute("").Attributes)

// AppliedAttribute shows the whole policy that an assignment's claim on the host has.
func AppliedAttribute() schema.SingleNestedAttribute {
	return tfschema.ComputedObject("The policy in force: `power` with the provider's `power` filled in, as it is on record at the VM's "+
		"host. Null where `power` itself says all of it; in it, what is at its default is null. "+
		"A change of either is an update of this resource that writes the record and leaves the VM alone.", tfschema.Attributes{
		"allow_shutdown":   tfschema.ComputedFlag("Whether the guest may be asked to shut down."),
		"force_shutdown":   tfschema.ComputedFlag("`true` if a guest that is locked or in use is shut down as well, else null."),
		"allow_turn_off":   tfschema.ComputedFlag("`true` if the power may be cut, else null."),
		"start_after":      tfschema.ComputedText("`never`, or null for `if_was_running`."),
		"shutdown_timeout": tfschema.ComputedText("How long the guest has before its power may be cut; null where it may not."),
		"when":             tfschema.ComputedText("`next_off`, or null for `now`."),
	})
}

// Applied is a policy in force as AppliedAttribute shows it, null where the resource's own `power`
// says all of it, and with null for defaults: a plan then does not print it for each VM.
func Applied(p gpu.Power, own types.Object, diags *diag.Diagnostics) types.Object {
	o := applied(p)
	if o.Equal(applied(Decode(own, gpu.Power{}, diags))) {
		return types.ObjectNull(attributeTypes)
	}
	return o
}

// Same tells whether two resources have the same policy in force: each by what Applied says, and by its
// own `power`.
func Same(a, ownA, b, ownB types.Object, diags *diag.Diagnostics) bool {
	whole := func(o, own types.Object) types.Object {
		if o.IsNull() {
			return applied(Decode(own, gpu.Power{}, diags))
		}
		return o
	}
	return whole(a, ownA).Equal(whole(b, ownB))
}

// applied leaves out a timeout that nothing follows: it permits nothing, and needs no record.
func applied(p gpu.Power) types.Object {
	unless := func(v bool, text string) types.String {
		if !v {
			return types.StringNull()
		}
		return types.StringValue(text)
	}
	timeout := types.StringNull()
	if p.AllowTurnOff {
		timeout = types.StringValue(durationText(p.Timeout()))
	}
	return types.ObjectValueMust(attributeTypes, map[string]attr.Value{
		"allow_shutdown": types.BoolValue(p.AllowShutdown), "force_shutdown": object.NullIfFalse(p.ForceShutdown),
		"allow_turn_off": object.NullIfFalse(p.AllowTurnOff),
		"start_after":    unless(p.StayOff, never), "shutdown_timeout": timeout, "when": unless(p.NextOff, nextOff),
	})
}

// Unknown is a policy that is known only at apply.
func Unknown() types.Object { return types.ObjectUnknown(attributeTypes) }

// durationText writes a duration as people do: "5m" and not "5m0s".
func durationText(d time.Duration) string {
	switch {
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return d.String()
}

func set(to *bool, v types.Bool) {
	if !v.IsNull() && !v.IsUnknown() {
		*to = v.ValueBool()
	}
}
