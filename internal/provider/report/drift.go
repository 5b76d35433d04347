package report

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// itemModel is one entry. What is not known is null.
type itemModel struct {
	Object   string       `tfsdk:"object"`
	Cause    types.String `tfsdk:"cause"`
	Found    string       `tfsdk:"found"`
	Declared types.String `tfsdk:"declared"`
	Since    types.String `tfsdk:"since"`
}

// driftType is that of an entry.
var driftType = types.ObjectType{AttrTypes: tfschema.TypesOf(DriftAttribute("").NestedObject.Attributes)}

// DriftAttribute is the attribute; where says what differs: "Where the VM differs".
func DriftAttribute(where string) schema.ListNestedAttribute {
	return tfschema.ComputedList(where+" from what is declared. Empty after an apply.", tfschema.Attributes{
		"object": tfschema.ComputedText("What differs, such as a GPU, a VM or an MPS daemon, with its host."),
		"cause": tfschema.ComputedText("How it came to differ, as far as claims and hosts tell; else null. One of `" +
			strings.Join(change.Cause("").Values(), "`, `") + "`. `reboot` is said of what is as a reboot leaves it."),
		"found":    tfschema.ComputedText("What it has or is now."),
		"declared": tfschema.ComputedText("What is declared; null where `found` says all."),
		"since": tfschema.ComputedText("Since when, in RFC 3339, where that is known: the last boot of the host for what it lost, " +
			"the shutdown of a VM that is owed a start."),
	})
}

// NoDrift is the attribute where nothing differs.
func NoDrift() types.List { return types.ListValueMust(driftType, []attr.Value{}) }

// EncodeDrift writes the attribute.
func EncodeDrift(ctx context.Context, list []change.Difference, diags *diag.Diagnostics) types.List {
	items := []itemModel{}
	for _, d := range list {
		item := itemModel{Object: d.Object, Cause: object.NullIfEmpty(d.Cause), Found: d.Found, Declared: object.NullIfEmpty(d.Declared)}
		if !d.Since.IsZero() {
			item.Since = object.NullIfEmpty(d.Since.UTC().Format(time.RFC3339))
		}
		items = append(items, item)
	}
	return object.ListOf(ctx, driftType, items, diags)
}

// DecodeDrift reads what the last Read left; nothing of what is null or unknown.
func DecodeDrift(ctx context.Context, l types.List, diags *diag.Diagnostics) []change.Difference {
	if l.IsNull() || l.IsUnknown() {
		return nil
	}
	var items []itemModel
	diags.Append(l.ElementsAs(ctx, &items, false)...)
	out := make([]change.Difference, len(items))
	for i, m := range items {
		out[i] = change.Difference{
			Object: m.Object, Cause: change.Cause(m.Cause.ValueString()), Found: m.Found,
			Declared: m.Declared.ValueString(),
		}
		out[i].Since, _ = time.Parse(time.RFC3339, m.Since.ValueString()) // zero where it is null
	}
	return out
}

// AddLostRecords adds what is wrong with an instance's records: a host that holds its object has
// none, or one of another owner than the provider's. Until they are written again, nothing
// keeps others from taking the object, and a destroy has nothing to restore. claims are those
// at hand, by host, nil where there is none.
func AddLostRecords(
	ctx context.Context, token, owner string, claims map[string]*gpu.Claim, l types.List, diags *diag.Diagnostics,
) types.List {
	list := DecodeDrift(ctx, l, diags)
	for _, host := range slices.Sorted(maps.Keys(claims)) {
		d := change.Difference{Object: "host " + host}
		switch c := claims[host]; {
		case c == nil && token == "":
			d.Found = "has no record of this resource yet, which was imported"
		case c == nil:
			d.Found = "has lost its record of this resource"
		case (token == "" || c.Token == token) && c.Owner != owner:
			d.Cause, d.Found, d.Declared = change.CauseOtherState, fmt.Sprintf("records the owner %q", c.Owner), fmt.Sprintf("the owner %q", owner)
		default:
			continue
		}
		list = append(list, d)
	}
	return EncodeDrift(ctx, list, diags)
}

// Drift is what hosts have otherwise than declared, in a plan.
type Drift struct {
	// What begins the summary: "Pool differs".
	What    string
	Fleet   *fleet.Fleet
	View    fleet.View
	Plan    change.Change
	Differs []change.Difference
	// LeftOut are the GPUs that stay out of the object.
	LeftOut []fleet.LeftOut
	// Does is what the plan does to each host.
	Does []change.Forecast
	// Refused is why the plan does not put right what differs; nil where it does.
	Refused []rules.Finding
}

// NothingElse reports whether nothing differs but that GPUs stay out of the object.
func (d Drift) NothingElse() bool {
	return !slices.ContainsFunc(d.Differs, func(x change.Difference) bool { return d.staysOut(x) == nil })
}

// staysOut is the GPU that a difference is about, if it stays out of the object; else nil.
func (d Drift) staysOut(x change.Difference) *fleet.LeftOut {
	for i := range d.LeftOut {
		if isOf(x, d.LeftOut[i].Host, d.LeftOut[i].GPU) {
			return &d.LeftOut[i]
		}
	}
	return nil
}

// Warn warns of each difference, and says whether the plan puts it right. A GPU that is new and that the
// configuration does not select any more is no difference.
func (d Drift) Warn(diags *diag.Diagnostics) {
	for _, x := range d.Differs {
		then := "This apply puts it right."
		left := d.leaves(x)
		switch out := d.staysOut(x); {
		case out != nil:
			then = "It stays out as long as this is so: " + out.Why.Found + "\nFix: " + out.Why.Fix
		case left != nil:
			then = "This apply leaves it as it is as long as this is so: " + left.Found + "\nFix: " + left.Fix
		case x.Cause == change.CauseGPUAdded && !d.selects(x):
			continue
		case len(d.Refused) > 0:
			then = "This apply cannot put it right as long as this is so: " + d.Refused[0].Found + "\nFix: " + d.Refused[0].Fix
		}
		diags.AddWarning(d.What+" from the declaration", fmt.Sprintf("%s\n\nFound: %s.\n%s", d.Plan.Subject, words.Capital(x.String()), then))
	}
}

// leaves is why the plan leaves the GPU as it is that a difference is about, nil where it does not.
func (d Drift) leaves(x change.Difference) *rules.Finding {
	for _, does := range d.Does {
		for _, r := range does.Left {
			if isOf(x, does.Host, r.GPU) {
				return new(rules.Refused(does.Host, d.Plan, r))
			}
		}
	}
	return nil
}

// selects reports whether the plan wants the GPU that a difference is about.
func (d Drift) selects(x change.Difference) bool {
	for host, ids := range whatif.WantedGPUs(d.Plan.Want) {
		if slices.ContainsFunc(ids, func(id string) bool { return isOf(x, host, id) }) {
			return true
		}
	}
	return false
}

// isOf reports whether a difference is about a GPU of a host.
func isOf(d change.Difference, host, id string) bool {
	at := "host " + host + ", GPU " + id
	return d.Object == at || strings.HasPrefix(d.Object, at+" (")
}

// ListedGPU is one as the state has it.
type ListedGPU struct{ ID, Model, Address string }

// notYet ends what is found of a GPU that has another one's place, but is not in the object.
const notYet = ", and not in "

// ReplacedGPU is a GPU that has another one's place, going by the state: what that lists, and the
// drift of an earlier reading, since it lists the GPU itself by then; nil for nobody's. A place
// is the id on Hyper-V, where another model shows it, and the PCI address on Linux, where the id
// does. into is the object that the GPU is not in yet; "" for one that has it.
func ReplacedGPU(host string, h *gpu.Host, g *gpu.GPU, before []ListedGPU, earlier []change.Difference, into string) *change.Difference {
	d := &change.Difference{Object: "GPU " + g.ID, Cause: change.CauseGPUReplaced, Found: whosePlace(h, g, before)}
	for _, e := range earlier {
		if d.Found == "" && e.Cause == d.Cause && isOf(e, host, g.ID) {
			d.Found, _, _ = strings.Cut(e.Found, notYet)
		}
	}
	switch {
	case d.Found == "":
		return nil
	case into != "":
		d.Found += notYet + into + " yet"
	}
	return d
}

func whosePlace(h *gpu.Host, g *gpu.GPU, before []ListedGPU) string {
	for _, was := range before {
		_, there := h.GPU(was.ID)
		switch {
		case gpu.SameID(was.ID, g.ID):
			if was.Model != "" && g.Model != "" && was.Model != g.Model {
				return "is where a GPU of model " + was.Model + " was"
			}
		case !there && g.Address != "" && was.Address == g.Address:
			return fmt.Sprintf("is in PCI slot %s, where GPU %s was", g.Address, was.ID)
		}
	}
	return ""
}
