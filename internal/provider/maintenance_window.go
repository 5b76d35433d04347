package provider

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // neither Windows nor a small image has time zones

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

var weekdays = map[string]time.Weekday{
	"monday": time.Monday, "tuesday": time.Tuesday, "wednesday": time.Wednesday, "thursday": time.Thursday,
	"friday": time.Friday, "saturday": time.Saturday, "sunday": time.Sunday,
}

type windowModel struct {
	Days     types.Set    `tfsdk:"days"`
	Start    types.String `tfsdk:"start"`
	End      types.String `tfsdk:"end"`
	Timezone types.String `tfsdk:"timezone"`
}

func maintenanceWindowAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "When disruptive changes may be made. Outside the window, disruptive changes are a warning at plan and fail at " +
			"apply before any host is changed. Non-disruptive changes are always applied. " +
			"See the [guide on disruption](guides/disruption.md#the-maintenance-window). Default: always.",
		Optional: true, Validators: []validator.Object{window{"days, start and end of a maintenance window in a time zone"}},
		Attributes: map[string]schema.Attribute{
			"days": tfschema.OptionalSetOf(types.StringType, "The days on which the window starts, `monday` to `sunday`. Default: every day. "+
				"`[]` is refused."),
			"start": schema.StringAttribute{
				MarkdownDescription: "When the window opens, as `\"22:00\"`.", Required: true,
			},
			"end": schema.StringAttribute{
				MarkdownDescription: "When it closes, as `\"04:00\"`; the end of a day is `\"24:00\"`. " +
					"An end that is before `start` is on the next day.", Required: true,
			},
			"timezone": tfschema.OptionalText("The time zone of `days`, `start` and `end`, by its IANA name such as " +
				"`\"Europe/Berlin\"`. Default `\"UTC\"`."),
		},
	}
}

// window is a maintenance window that makes sense.
type window struct{ tfschema.Must }

func (window) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	decodeWindow(req.ConfigValue, req.Path, &resp.Diagnostics)
}

// decodeWindow reads a maintenance window and says what is wrong with what is known of it. It
// returns nil when there is none, or when it is wrong or not known yet.
func decodeWindow(o types.Object, at path.Path, diags *diag.Diagnostics) *rules.Window {
	m := object.Decode[windowModel](o, diags)
	if m == nil {
		return nil
	}
	before := diags.ErrorsCount()
	w := &rules.Window{
		Days:  decodeDays(m.Days, at.AtName("days"), diags),
		Start: decodeTime(m.Start, at.AtName("start"), diags),
		End:   decodeTime(m.End, at.AtName("end"), diags),
		Zone:  decodeZone(m.Timezone, at.AtName("timezone"), diags),
	}
	known := object.Known(m.Start, m.End)
	switch {
	case diags.ErrorsCount() > before:
	case w.Start == rules.EndOfDay:
		diags.AddAttributeError(at.AtName("start"), "Invalid maintenance window", fmt.Sprintf(
			"Found: %s is %q.\nWanted: The window opens before the day ends; midnight is \"00:00\".", at.AtName("start"), w.Start))
	case known && w.Start == w.End:
		diags.AddAttributeError(at.AtName("end"), "Invalid maintenance window", fmt.Sprintf(
			"Found: %s and %s are both %q.\nWanted: Two different times; for whole days write start = \"00:00\" and end = \"24:00\".",
			at.AtName("start"), at.AtName("end"), w.End))
	}
	if diags.ErrorsCount() > before || !object.Known(o) {
		return nil
	}
	return w
}

func decodeDays(days types.Set, at path.Path, diags *diag.Diagnostics) []time.Weekday {
	if days.IsNull() || days.IsUnknown() {
		return nil
	}
	var out []time.Weekday
	for _, v := range days.Elements() {
		s, ok := v.(types.String)
		if ok && s.IsUnknown() {
			continue
		}
		day, ok := weekdays[s.ValueString()]
		if !ok {
			diags.AddAttributeError(at, "Invalid day", fmt.Sprintf("Found: %s has %q.\nWanted: %s.", at, s.ValueString(),
				strings.Join(weekdayNames(), ", ")))
		}
		out = append(out, day)
	}
	if len(days.Elements()) == 0 {
		diags.AddAttributeError(at, "Invalid maintenance window", fmt.Sprintf("Found: %s is empty, so that the window would never open.\n"+
			"Wanted: A day, or no days for every day.", at))
	}
	return out
}

// weekdayNames are the days of the week from Monday on.
func weekdayNames() []string {
	return slices.SortedFunc(maps.Keys(weekdays), func(a, b string) int { return cmp.Compare((weekdays[a]+6)%7, (weekdays[b]+6)%7) })
}

func decodeTime(s types.String, at path.Path, diags *diag.Diagnostics) rules.TimeOfDay {
	if s.IsNull() || s.IsUnknown() {
		return 0
	}
	t, err := rules.ParseTimeOfDay(s.ValueString())
	if err != nil {
		diags.AddAttributeError(at, "Invalid time of day", fmt.Sprintf("Found: %s is %q.\nWanted: Hours and minutes with two digits each, "+
			"such as \"04:00\" or \"22:30\".", at, s.ValueString()))
	}
	return t
}

// decodeZone takes names of the IANA database. "Local" would be the zone of whoever runs
// Terraform.
func decodeZone(s types.String, at path.Path, diags *diag.Diagnostics) *time.Location {
	if s.IsNull() || s.IsUnknown() {
		return time.UTC
	}
	name := s.ValueString()
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == time.Local.String() {
		diags.AddAttributeError(at, "Unknown time zone", fmt.Sprintf("Found: %s is %q.\nWanted: The name of a zone in the IANA database, "+
			"such as \"Europe/Berlin\" or \"UTC\".", at, name))
	}
	return zone
}
