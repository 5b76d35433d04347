package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/zclconf/go-cty/cty"
)

// Steps runs the steps of a test as resource.UnitTest does: after each that applies, a
// plan must be empty, without and with reading; after the last one all is destroyed.
func Steps(t *testing.T, factories map[string]Factory, steps ...resource.TestStep) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	w, err := New(ctx, factories)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		t.Helper()
		if len(w.state.instances) == 0 || w.files == nil {
			return
		}
		p, err := w.Plan(ctx, Options{Destroy: true, NoRefresh: true})
		if err == nil {
			_, err = p.Apply(ctx)
		}
		if err != nil {
			t.Errorf("error running post-test destroy, there may be dangling resources: %v", err)
		}
	}()
	applied := ""
	for n, step := range steps {
		w.step(ctx, t, fmt.Sprintf("Step %d/%d", n+1, len(steps)), n, step, &applied)
	}
}

func (w *Workspace) step(ctx context.Context, t *testing.T, name string, n int, step resource.TestStep, applied *string) {
	t.Helper()
	if field := unsupportedField(step); field != "" {
		t.Fatalf("%s: the field %s %v", name, field, errUnsupported)
	}
	if step.PreConfig != nil {
		step.PreConfig()
	}
	if step.SkipFunc != nil {
		skip, err := step.SkipFunc()
		if err != nil {
			t.Fatal(err)
		}
		if skip {
			return
		}
	}
	var err error
	switch {
	case step.ImportState:
		err = w.importStep(ctx, t, n, step, *applied)
	case step.RefreshState:
		err = w.refreshStep(ctx, step)
	case step.Config != "":
		for _, a := range step.Taint {
			if i := w.state.instances[a]; i != nil && i.current != nil {
				tainted := *i.current
				tainted.tainted = true
				i.current = &tainted
			} else {
				t.Fatalf("%s: no instance %s to taint", name, a)
			}
		}
		err = w.configStep(ctx, step)
		*applied = step.Config
	default:
		t.Fatalf("%s: it has no Config, which %v", name, errUnsupported)
	}
	switch {
	case step.ExpectError != nil && err == nil:
		t.Fatalf("%s: expected an error but got none", name)
	case step.ExpectError != nil && !step.ExpectError.MatchString(err.Error()):
		t.Fatalf("%s: expected an error with pattern %q, no match on:\n%v", name, step.ExpectError, err)
	case step.ExpectError == nil && err != nil:
		t.Fatalf("%s: %v", name, err)
	}
}

// unsupportedField names a field of a step that is set and does nothing here.
func unsupportedField(step resource.TestStep) string {
	known := map[string]bool{
		"ResourceName": true, "PreConfig": true, "Taint": true, "Config": true, "Check": true, "Destroy": true, "ExpectNonEmptyPlan": true,
		"ExpectError": true, "ConfigPlanChecks": true, "RefreshPlanChecks": true, "ConfigStateChecks": true, "PlanOnly": true, "SkipFunc": true,
		"ImportState": true, "ImportStateKind": true, "ImportPlanChecks": true, "ImportStateId": true, "ImportStateVerify": true,
		"ImportStateVerifyIdentifierAttribute": true, "ImportStateVerifyIgnore": true, "ImportStateCheck": true,
		"RefreshState": true, "ImportStateIdFunc": true,
	}
	v := reflect.ValueOf(step)
	for i := range v.NumField() {
		if f := v.Type().Field(i); !known[f.Name] && !v.Field(i).IsZero() {
			return f.Name
		}
	}
	return ""
}

func (w *Workspace) configStep(ctx context.Context, step resource.TestStep) error {
	w.Write(step.Config)
	if !step.PlanOnly {
		if err := w.applyStep(ctx, step); err != nil {
			return err
		}
	}
	first, again := "After applying this test step, the non-refresh plan was not empty.",
		"After applying this test step, the refresh plan was not empty."
	if step.PlanOnly {
		first, again = "The non-refresh plan was not empty.", "The refresh plan was not empty."
	}
	p, err := w.Plan(ctx, Options{NoRefresh: true, Destroy: step.Destroy})
	if err != nil {
		return fmt.Errorf("error running non-refresh plan: %w", err)
	}
	if err := checkPlan(ctx, p, step.ConfigPlanChecks.PostApplyPreRefresh); err != nil {
		return err
	}
	if !p.Empty() && !step.ExpectNonEmptyPlan {
		return fmt.Errorf("%s\n%s", first, p.differences())
	}
	if p, err = w.Plan(ctx, Options{Destroy: step.Destroy, NoRefresh: step.PreventPostDestroyRefresh}); err != nil {
		return fmt.Errorf("error running refresh plan: %w", err)
	}
	if err := checkPlan(ctx, p, step.ConfigPlanChecks.PostApplyPostRefresh); err != nil {
		return err
	}
	switch {
	case !p.Empty() && !step.ExpectNonEmptyPlan:
		return fmt.Errorf("%s\n%s", again, p.differences())
	case p.Empty() && step.ExpectNonEmptyPlan:
		return errors.New("expected a non-empty plan, but got an empty refresh plan")
	}
	return nil
}

func (w *Workspace) applyStep(ctx context.Context, step resource.TestStep) error {
	p, err := w.Plan(ctx, Options{Destroy: step.Destroy})
	if err != nil {
		return fmt.Errorf("error running pre-apply plan: %w", err)
	}
	if err := checkPlan(ctx, p, step.ConfigPlanChecks.PreApply); err != nil {
		return fmt.Errorf("pre-apply plan check(s) failed:\n%w", err)
	}
	before := w.flat()
	if _, err := p.Apply(ctx); err != nil {
		return fmt.Errorf("error running apply: %w", err)
	}
	if step.Check != nil {
		s := w.flat()
		if step.Destroy {
			s = before
		}
		if err := step.Check(s); err != nil {
			return fmt.Errorf("check failed: %w", err)
		}
	}
	var wrong []error
	for _, c := range step.ConfigStateChecks {
		resp := statecheck.CheckStateResponse{}
		c.CheckState(ctx, statecheck.CheckStateRequest{State: w.JSON()}, &resp)
		wrong = append(wrong, resp.Error)
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("post-apply refresh state check(s) failed:\n%w", err)
	}
	return nil
}

func checkPlan(ctx context.Context, p *Plan, checks []plancheck.PlanCheck) error {
	var wrong []error
	for _, c := range checks {
		resp := plancheck.CheckPlanResponse{}
		c.CheckPlan(ctx, plancheck.CheckPlanRequest{Plan: p.JSON()}, &resp)
		wrong = append(wrong, resp.Error)
	}
	return errors.Join(wrong...)
}

// Refresh reads everything and writes the state, as `terraform refresh` does.
func (w *Workspace) Refresh(ctx context.Context) error {
	p, err := w.Plan(ctx, Options{RefreshOnly: true})
	if err != nil {
		return err
	}
	_, err = p.Apply(ctx)
	return err
}

func (w *Workspace) refreshStep(ctx context.Context, step resource.TestStep) error {
	if err := w.Refresh(ctx); err != nil {
		return err
	}
	if step.Check != nil {
		if err := step.Check(w.flat()); err != nil {
			return err
		}
	}
	p, err := w.Plan(ctx, Options{})
	if err != nil {
		return fmt.Errorf("error running post-refresh plan: %w", err)
	}
	if err := checkPlan(ctx, p, step.RefreshPlanChecks.PostRefresh); err != nil {
		return fmt.Errorf("post-refresh plan check(s) failed:\n%w", err)
	}
	if !p.Empty() && !step.ExpectNonEmptyPlan {
		return fmt.Errorf("after refreshing state during this test step, a followup plan was not empty.\n%s", p.differences())
	}
	return nil
}

func (w *Workspace) importStep(ctx context.Context, t *testing.T, n int, step resource.TestStep, applied string) error {
	t.Helper()
	config := step.Config
	if config == "" {
		config = applied
	}
	old := w.flat()
	id := step.ImportStateId
	if step.ImportStateIdFunc != nil {
		var err error
		if id, err = step.ImportStateIdFunc(old); err != nil {
			return err
		}
	}
	at := w.state.instances[step.ResourceName]
	if id == "" && at != nil && step.ImportStateKind != resource.ImportBlockWithResourceIdentity {
		id = old.RootModule().Resources[step.ResourceName].Primary.ID
	}
	other := w.fork()
	if step.ImportStateKind == resource.ImportCommandWithID {
		other.Write(config)
		if err := other.Import(ctx, step.ResourceName, id); err != nil {
			return err
		}
		got := other.flat()
		if step.ImportStateCheck != nil {
			var all []*terraform.InstanceState
			for _, r := range got.RootModule().Resources {
				all = append(all, r.Primary)
			}
			if err := step.ImportStateCheck(all); err != nil {
				return err
			}
		}
		if step.ImportStateVerify {
			return verifyImport(step, old, got)
		}
		return nil
	}
	block := fmt.Sprintf("\nimport {\n  to = %s\n  id = %q\n}\n", step.ResourceName, id)
	if step.ImportStateKind == resource.ImportBlockWithResourceIdentity {
		if at == nil || at.current == nil || at.current.identity == cty.NilVal {
			return fmt.Errorf("importing resource %s: expected prior state to have resource identity values, got none", step.ResourceName)
		}
		block = fmt.Sprintf("\nimport {\n  to = %s\n  identity = %s\n}\n", step.ResourceName, hclOf(at.current.identity))
	}
	other.Write(config + block)
	if n > 0 {
		other.state = w.state.clone()
		delete(other.state.instances, step.ResourceName)
	}
	p, err := other.Plan(ctx, Options{})
	if err != nil {
		return fmt.Errorf("generating plan with import config: %w", err)
	}
	for _, c := range p.changes {
		if c.String() != step.ResourceName {
			continue
		}
		switch {
		case c.importing == nil:
			return fmt.Errorf("importing resource %s: expected an import operation, got %q action with plan\n%s",
				step.ResourceName, c.action, p.differences())
		case !step.ExpectNonEmptyPlan && c.action != noop:
			return fmt.Errorf("importing resource %s: expected a no-op import operation, got %q action with plan\n%s",
				step.ResourceName, c.action, p.differences())
		case at != nil && at.current.identity != cty.NilVal && c.prior != nil &&
			step.ImportStateKind == resource.ImportBlockWithResourceIdentity && !c.prior.identity.RawEquals(at.current.identity):
			return fmt.Errorf("importing resource %s: expected identity values %#v, got %#v", step.ResourceName,
				at.current.identity, c.prior.identity)
		}
		return checkPlan(ctx, p, step.ImportPlanChecks.PreApply)
	}
	return fmt.Errorf("importing resource %s: expected a resource change, got no changes", step.ResourceName)
}

// hclOf writes an identity: an object of primitive values and lists of them.
func hclOf(v cty.Value) string {
	parts := []string{}
	for name, e := range v.AsValueMap() {
		if !e.IsNull() {
			parts = append(parts, name+" = "+oneLine(plain(e)))
		}
	}
	return "{\n" + strings.Join(parts, "\n") + "\n}"
}

// verifyImport compares what was imported with what was there.
func verifyImport(step resource.TestStep, old, got *terraform.State) error {
	by := step.ImportStateVerifyIdentifierAttribute
	if by == "" {
		by = "id"
	}
	keep := func(r *terraform.ResourceState) map[string]string {
		out := map[string]string{}
		for k, v := range r.Primary.Attributes {
			empty := v == "0" && (strings.HasSuffix(k, ".#") || strings.HasSuffix(k, ".%"))
			ignored := false
			for _, prefix := range step.ImportStateVerifyIgnore {
				ignored = ignored || strings.HasPrefix(k, prefix)
			}
			if !empty && !ignored {
				out[k] = v
			}
		}
		return out
	}
	for key, r := range got.RootModule().Resources {
		var was *terraform.ResourceState
		for k, o := range old.RootModule().Resources {
			if !strings.HasPrefix(k, "data.") && o.Type == r.Type && o.Primary.Attributes[by] == r.Primary.Attributes[by] {
				was = o
			}
		}
		if _, ok := r.Primary.Attributes[by]; !ok || was == nil {
			return fmt.Errorf("ImportStateVerify: nothing in the state has the %s %q of the imported %s", by, r.Primary.Attributes[by], key)
		}
		if before, after := keep(was), keep(r); !maps.Equal(before, after) {
			return fmt.Errorf("ImportStateVerify attributes not equivalent. Difference is shown below. The - symbol indicates attributes missing "+
				"after import.\n\n%s", cmp.Diff(before, after))
		}
	}
	return nil
}
