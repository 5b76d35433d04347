package provider

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// walks lets one process serve several walks of Terraform's graph. What the provider learns of a run
// is kept from its configuration on, and Terraform starts and configures a process for each walk,
// but for those of `terraform test` (1.14 and later): all runs of a file share a process that is
// configured once, without ValidateProviderConfig before it. There the provider is configured
// again where a walk begins. Terraform does not say where, but
//   - only what is asked while it applies may be deferred;
//   - a plan reads and plans an object of the state once;
//   - a run validates every block, its variables unknown, and then plans. A plan validates
//     the configuration of each instance and asks for it: one that was validated before, is known in
//     nothing but what the instance has, and was not asked for is of the validation of another run.
type walks struct {
	*wholeNumbers
	provider  *gpuProvider
	validated bool

	running sync.RWMutex // shared by what is under way; a walk begins alone

	mu       sync.Mutex
	config   *tfprotov6.ConfigureProviderRequest // nil where a process serves one walk
	applying bool
	asked    map[string]bool // what this walk has read, and planned, of the state
	valid    []configuration // validated, and not asked for
}

// configuration is that of a resource or a data source.
type configuration struct {
	of   string // as wholeNumbers names schemas
	text *tfprotov6.DynamicValue
}

// question is what of a request tells its walk.
type question struct {
	applying bool
	object   string // of the state, and whether it is read or planned; "" for none
	configuration
}

func (w *walks) ValidateProviderConfig(
	ctx context.Context, r *tfprotov6.ValidateProviderConfigRequest,
) (*tfprotov6.ValidateProviderConfigResponse, error) {
	w.validated = true
	return w.wholeNumbers.ValidateProviderConfig(ctx, r)
}

func (w *walks) ConfigureProvider(
	ctx context.Context, r *tfprotov6.ConfigureProviderRequest,
) (*tfprotov6.ConfigureProviderResponse, error) {
	if !w.validated {
		w.config, w.asked = r, map[string]bool{}
	}
	return w.wholeNumbers.ConfigureProvider(ctx, r)
}

func (w *walks) ValidateResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	defer w.stay(configuration{"resource " + r.TypeName, r.Config})()
	return w.wholeNumbers.ValidateResourceConfig(ctx, r)
}

func (w *walks) ValidateDataResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateDataResourceConfigRequest,
) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	defer w.stay(configuration{"data " + r.TypeName, r.Config})()
	return w.wholeNumbers.ValidateDataResourceConfig(ctx, r)
}

func (w *walks) UpgradeResourceState(
	ctx context.Context, r *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	defer w.stay()()
	return w.wholeNumbers.UpgradeResourceState(ctx, r)
}

func (w *walks) PlanAction(ctx context.Context, r *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	defer w.stay()()
	return w.wholeNumbers.PlanAction(ctx, r)
}

func (w *walks) ReadDataSource(ctx context.Context, r *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	q := question{configuration: configuration{"data " + r.TypeName, r.Config}}
	q.applying = r.ClientCapabilities != nil && r.ClientCapabilities.DeferralAllowed
	return answer(ctx, w, q, w.wholeNumbers.ReadDataSource, r)
}

func (w *walks) ReadResource(ctx context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	q := question{object: stored("read", r.TypeName, r.CurrentState, r.Private)}
	q.applying = r.ClientCapabilities != nil && r.ClientCapabilities.DeferralAllowed
	resp, err := answer(ctx, w, q, w.wholeNumbers.ReadResource, r)
	if err != nil || w.config == nil {
		return resp, err
	}
	before, after := stored("plan", r.TypeName, r.CurrentState, r.Private), stored("plan", r.TypeName, resp.NewState, resp.Private)
	if before != after {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[before] = true // this walk plans what was read
	}
	return resp, nil
}

func (w *walks) ImportResourceState(
	ctx context.Context, r *tfprotov6.ImportResourceStateRequest,
) (*tfprotov6.ImportResourceStateResponse, error) {
	return answer(ctx, w, question{}, w.wholeNumbers.ImportResourceState, r)
}

func (w *walks) PlanResourceChange(
	ctx context.Context, r *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	q := question{
		object:        stored("plan", r.TypeName, r.PriorState, r.PriorPrivate),
		configuration: configuration{"resource " + r.TypeName, r.Config},
	}
	q.applying = r.ClientCapabilities != nil && r.ClientCapabilities.DeferralAllowed
	return answer(ctx, w, q, w.wholeNumbers.PlanResourceChange, r)
}

func (w *walks) ApplyResourceChange(
	ctx context.Context, r *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	return answer(ctx, w, question{applying: true}, w.wholeNumbers.ApplyResourceChange, r)
}

func (w *walks) InvokeAction(ctx context.Context, r *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	return answer(ctx, w, question{applying: true}, w.wholeNumbers.InvokeAction, r)
}

// stored names what is done with an object of the state, if there is one.
func stored(method, kind string, state *tfprotov6.DynamicValue, private []byte) string {
	if state == nil {
		return ""
	}
	if null, err := state.IsNull(); err != nil || null {
		return ""
	}
	return fmt.Sprintf("%s %s %s %s", method, kind, state.MsgPack, private)
}

// stay keeps this walk for a request that tells none, until it is answered. It notes what is validated.
func (w *walks) stay(valid ...configuration) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.config != nil {
		w.valid = append(w.valid, valid...)
	}
	w.running.RLock()
	return w.running.RUnlock
}

// answer answers a request in the walk that it belongs to.
func answer[R, A any](ctx context.Context, w *walks, q question, call func(context.Context, *R) (*A, error), r *R) (*A, error) {
	if w.config == nil {
		return call(ctx, r)
	}
	if err := w.enter(ctx, q); err != nil {
		return nil, err
	}
	defer w.running.RUnlock()
	return call(ctx, r)
}

// enter keeps the walk that a question belongs to until it is answered. It begins one where the question
// is of another walk than those before.
func (w *walks) enter(ctx context.Context, q question) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteAskedFor(q.configuration)
	if w.isOfAnotherWalk(ctx, q) {
		if err := w.begin(ctx); err != nil {
			return err
		}
		w.applying, w.asked, w.valid = q.applying, map[string]bool{}, nil
	}
	if q.object != "" {
		w.asked[q.object] = true
	}
	w.running.RLock()
	return nil
}

// noteAskedFor notes that a configuration which was validated is asked for.
func (w *walks) noteAskedFor(c configuration) {
	same := func(v configuration) bool {
		return v.of == c.of && c.text != nil && bytes.Equal(v.text.MsgPack, c.text.MsgPack)
	}
	if i := slices.IndexFunc(w.valid, same); i >= 0 {
		w.valid = slices.Delete(w.valid, i, i+1)
	}
}

// isOfAnotherWalk looks for the three signs that the comment on walks lists.
func (w *walks) isOfAnotherWalk(ctx context.Context, q question) bool {
	switch {
	case q.applying != w.applying:
		return true
	case !q.applying && w.asked[q.object]:
		return true
	case q.text == nil:
		return false
	}
	kind := w.schemas()[q.of].Type().TerraformType(ctx)
	instance, err := q.text.Unmarshal(kind)
	return err == nil && slices.ContainsFunc(w.valid, func(c configuration) bool {
		if c.of != q.of {
			return false
		}
		block, err := c.text.Unmarshal(kind)
		return err == nil && leavesOpen(block, instance)
	})
}

// begin begins a walk once all is answered that was asked before.
func (w *walks) begin(ctx context.Context) error {
	w.running.Lock()
	defer w.running.Unlock()
	_ = w.provider.Close() // as where its process ends
	resp, err := w.wholeNumbers.ConfigureProvider(ctx, w.config)
	if err != nil {
		return err
	}
	for _, d := range resp.Diagnostics {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			return fmt.Errorf("%s: %s", d.Summary, d.Detail)
		}
	}
	return nil
}

// leavesOpen reports whether all that is known of one value is so in another one.
func leavesOpen(v, other tftypes.Value) bool {
	switch {
	case !v.IsKnown():
		return true
	case v.IsFullyKnown() || !other.IsKnown() || other.IsNull():
		return v.Equal(other)
	case v.Type().Is(tftypes.Set{}):
		return true // which of its elements is which is open
	}
	var list, otherList []tftypes.Value
	if v.As(&list) == nil && other.As(&otherList) == nil {
		return slices.EqualFunc(list, otherList, leavesOpen)
	}
	var fields, otherFields map[string]tftypes.Value
	return v.As(&fields) == nil && other.As(&otherFields) == nil && maps.EqualFunc(fields, otherFields, leavesOpen)
}
