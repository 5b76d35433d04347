package core_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
)

// fields are the attributes of an object.
type fields map[string]tftypes.Value

// liar is a provider of one resource, lie_thing, that keeps to the contract but for what
// a test has it do otherwise.
type liar struct {
	tfprotov6.ProviderServer // nil: what is not below is never called

	mu    sync.Mutex
	calls []string

	planned  func(prior, planned fields) // both nil where there is nothing
	applied  func(fields)
	read     func(fields)
	replaces []string
	plan     func(*tfprotov6.PlanResourceChangeResponse)
	apply    func(*tfprotov6.ApplyResourceChangeResponse)
}

var (
	part  = tftypes.Object{AttributeTypes: map[string]tftypes.Type{"size": tftypes.Number, "serial": tftypes.String}}
	thing = tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"id": tftypes.String, "name": tftypes.String, "color": tftypes.String, "tags": tftypes.Set{ElementType: tftypes.String},
		"part": part, "parts": tftypes.Map{ElementType: part},
	}}
)

func text(s string) tftypes.Value { return tftypes.NewValue(tftypes.String, s) }
func unknown(t tftypes.Type) tftypes.Value {
	return tftypes.NewValue(t, tftypes.UnknownValue)
}

func partOf(size int, serial any) tftypes.Value {
	return tftypes.NewValue(part, map[string]tftypes.Value{
		"size": tftypes.NewValue(tftypes.Number, size), "serial": tftypes.NewValue(tftypes.String, serial),
	})
}

func (l *liar) hear(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, fmt.Sprintf(format, a...))
}

func (l *liar) GetProviderSchema(context.Context, *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	attributes := []*tfprotov6.SchemaAttribute{
		{Name: "size", Type: tftypes.Number, Required: true}, {Name: "serial", Type: tftypes.String, Computed: true},
	}
	return &tfprotov6.GetProviderSchemaResponse{
		Provider: &tfprotov6.Schema{
			Block: &tfprotov6.SchemaBlock{Attributes: []*tfprotov6.SchemaAttribute{{Name: "region", Type: tftypes.String, Optional: true}}},
		},
		ResourceSchemas: map[string]*tfprotov6.Schema{"lie_thing": {Block: &tfprotov6.SchemaBlock{Attributes: []*tfprotov6.SchemaAttribute{
			{Name: "id", Type: tftypes.String, Computed: true},
			{Name: "name", Type: tftypes.String, Required: true},
			{Name: "color", Type: tftypes.String, Optional: true, Computed: true},
			{Name: "tags", Type: tftypes.Set{ElementType: tftypes.String}, Optional: true},
			{
				Name: "part", Optional: true, NestedType: &tfprotov6.SchemaObject{
					Nesting: tfprotov6.SchemaObjectNestingModeSingle, Attributes: attributes,
				},
			},
			{
				Name: "parts", Optional: true, NestedType: &tfprotov6.SchemaObject{
					Nesting: tfprotov6.SchemaObjectNestingModeMap, Attributes: attributes,
				},
			},
		}}}},
	}, nil
}

func (l *liar) GetResourceIdentitySchemas(context.Context,
	*tfprotov6.GetResourceIdentitySchemasRequest,
) (*tfprotov6.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov6.GetResourceIdentitySchemasResponse{}, nil
}

func (l *liar) ValidateProviderConfig(context.Context, *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse,
	error,
) {
	return &tfprotov6.ValidateProviderConfigResponse{}, nil
}

func (l *liar) ConfigureProvider(context.Context, *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	l.hear("configure")
	return &tfprotov6.ConfigureProviderResponse{}, nil
}

func (l *liar) ValidateResourceConfig(context.Context, *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse,
	error,
) {
	return &tfprotov6.ValidateResourceConfigResponse{}, nil
}

func (l *liar) UpgradeResourceState(_ context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse,
	error,
) {
	v, err := r.RawState.Unmarshal(thing)
	if err != nil {
		return nil, err
	}
	d, err := tfprotov6.NewDynamicValue(thing, v)
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &d}, err
}

func (l *liar) ReadResource(_ context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	f, err := open(r.CurrentState)
	if err != nil {
		return nil, err
	}
	l.hear("read %s", nameOf(f))
	if l.read != nil {
		l.read(f)
	}
	state, err := closed(f)
	return &tfprotov6.ReadResourceResponse{NewState: state, Private: r.Private}, err
}

func (l *liar) PlanResourceChange(_ context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse,
	error,
) {
	prior, err := open(r.PriorState)
	if err != nil {
		return nil, err
	}
	f, err := open(r.ProposedNewState)
	if err != nil {
		return nil, err
	}
	l.hear("plan %s %s", nameOf(prior)+">"+nameOf(f), r.PriorPrivate)
	out := &tfprotov6.PlanResourceChangeResponse{PlannedPrivate: []byte("planned")}
	if f != nil {
		for _, name := range []string{"id", "color"} {
			if f[name].IsNull() {
				f[name] = unknown(tftypes.String)
			}
		}
		f["part"] = withSerial(f["part"])
		if l.planned != nil {
			l.planned(prior, f)
		}
		for _, name := range l.replaces {
			if prior != nil {
				out.RequiresReplace = append(out.RequiresReplace, tftypes.NewAttributePath().WithAttributeName(name))
			}
		}
	}
	out.PlannedState, err = closed(f)
	if l.plan != nil {
		l.plan(out)
	}
	return out, err
}

// withSerial has the serial of a part unknown where it has none.
func withSerial(v tftypes.Value) tftypes.Value {
	var p map[string]tftypes.Value
	if v.IsNull() || !v.IsKnown() || v.As(&p) != nil || !p["serial"].IsNull() {
		return v
	}
	return tftypes.NewValue(part, map[string]tftypes.Value{"size": p["size"], "serial": unknown(tftypes.String)})
}

func (l *liar) ApplyResourceChange(_ context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse,
	error,
) {
	prior, err := open(r.PriorState)
	if err != nil {
		return nil, err
	}
	f, err := open(r.PlannedState)
	if err != nil {
		return nil, err
	}
	l.hear("apply %s>%s", nameOf(prior), nameOf(f))
	if f != nil {
		for name, value := range map[string]string{"id": "1", "color": "grey"} {
			if !f[name].IsKnown() {
				f[name] = text(value)
			}
		}
		var p map[string]tftypes.Value
		if !f["part"].IsNull() && f["part"].As(&p) == nil {
			f["part"] = tftypes.NewValue(part, map[string]tftypes.Value{"size": p["size"], "serial": text("s")})
		}
		if l.applied != nil {
			l.applied(f)
		}
	}
	out := &tfprotov6.ApplyResourceChangeResponse{Private: []byte("kept")}
	out.NewState, err = closed(f)
	if l.apply != nil {
		l.apply(out)
	}
	return out, err
}

func open(d *tfprotov6.DynamicValue) (fields, error) {
	v, err := d.Unmarshal(thing)
	if err != nil || v.IsNull() {
		return nil, err
	}
	out := map[string]tftypes.Value{}
	return out, v.As(&out)
}

func closed(f fields) (*tfprotov6.DynamicValue, error) {
	v := tftypes.NewValue(thing, nil)
	if f != nil {
		v = tftypes.NewValue(thing, map[string]tftypes.Value(f))
	}
	d, err := tfprotov6.NewDynamicValue(thing, v)
	return &d, err
}

func nameOf(f fields) string {
	var s string
	if f == nil || !f["name"].IsKnown() || f["name"].As(&s) != nil {
		return "-"
	}
	return s
}

func (l *liar) steps(t *testing.T, steps ...resource.TestStep) {
	t.Helper()
	core.Steps(t, map[string]core.Factory{"lie": func() (tfprotov6.ProviderServer, error) { return l, nil }}, steps...)
}

const (
	plain = "resource \"lie_thing\" \"a\" {\n  name = \"a\"\n}\n"
	whole = "resource \"lie_thing\" \"a\" {\n  name = \"a\"\n  color = \"red\"\n  tags = [\"x\", \"y\"]\n  part = { size = 4 }\n  parts = { " +
		"one = { size = 1 } }\n}\n"
	late = "resource \"terraform_data\" \"late\" {\n  input = \"late\"\n}\nresource \"lie_thing\" \"a\" {\n  name = " +
		"terraform_data.late.output\n}\n"
)

func says(text string) *regexp.Regexp { return regexp.MustCompile(`(?s)` + text) }

// A provider that breaks the contract is caught where Terraform catches it, in its words.
func TestLiesAreCaught(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		config string
		liar   *liar
		says   string
	}{
		"an argument is planned otherwise": {
			whole, &liar{planned: func(_, f fields) { f["name"] = text("b") }},
			`Provider produced invalid plan.*lie_thing\.a\.name: planned value .*"b".* does not match config value .*"a"`,
		},
		"an argument that is not set is planned": {
			plain, &liar{planned: func(_, f fields) {
				f["tags"] = tftypes.NewValue(thing.AttributeTypes["tags"], []tftypes.Value{text("x")})
			}},
			`invalid plan.*\.tags: planned value .* for a non-computed attribute`,
		},
		"an argument is planned unknown": {
			whole, &liar{planned: func(_, f fields) { f["color"] = unknown(tftypes.String) }},
			`invalid plan.*\.color: planned value .* does not match config value`,
		},
		"a nested argument is planned otherwise": {
			whole, &liar{planned: func(_, f fields) { f["part"] = partOf(5, nil) }}, `invalid plan.*\.part\.size: planned value`,
		},
		"a nested object is planned away": {
			whole, &liar{planned: func(_, f fields) { f["part"] = tftypes.NewValue(part, nil) }},
			`invalid plan.*\.part: planned for absence but config wants existence`,
		},
		"a nested object is planned where none is": {
			plain, &liar{planned: func(_, f fields) { f["part"] = partOf(1, nil) }},
			`invalid plan.*\.part: planned value .* for a non-computed attribute`,
		},
		"an element is planned away": {
			whole, &liar{planned: func(_, f fields) {
				f["parts"] = tftypes.NewValue(thing.AttributeTypes["parts"], map[string]tftypes.Value{})
			}},
			`invalid plan.*\.parts: count in plan .* disagrees with count in config`,
		},
		"an element has another key": {
			whole, &liar{planned: func(_, f fields) {
				f["parts"] = tftypes.NewValue(thing.AttributeTypes["parts"], map[string]tftypes.Value{"two": partOf(1, nil)})
			}}, `invalid plan.*\.parts: map key "two" from plan is not present in config`,
		},
		"everything is planned away": {
			plain, &liar{plan: func(r *tfprotov6.PlanResourceChangeResponse) { r.PlannedState, _ = closed(nil) }},
			`invalid plan.*lie_thing\.a: planned for absence but config wants existence`,
		},
		"something that is not there must be replaced": {
			plain, &liar{replaces: []string{"nothing"}}, `invalid plan.*requires replacement.* non-existent attribute path \.nothing`,
		},
		"a planned value is not kept": {
			whole, &liar{applied: func(f fields) { f["color"] = text("blue") }},
			`inconsistent result after apply.*lie_thing\.a.* unexpected new value: \.color: was .*"red".*, but now .*"blue"`,
		},
		"a planned set is not kept": {
			whole, &liar{applied: func(f fields) {
				f["tags"] = tftypes.NewValue(thing.AttributeTypes["tags"], []tftypes.Value{text("x"), text("z")})
			}},
			`inconsistent result after apply.*\.tags: planned set element .*"y".* does not correlate`,
		},
		"a set has grown": {
			whole, &liar{applied: func(f fields) {
				f["tags"] = tftypes.NewValue(thing.AttributeTypes["tags"], []tftypes.Value{text("x"), text("y"), text("z")})
			}}, `inconsistent result after apply.*\.tags: actual set element .*"z".* does not correlate`,
		},
		"a nested value is not kept": {
			whole, &liar{applied: func(f fields) { f["part"] = partOf(9, "s") }}, `inconsistent result after apply.*\.part\.size: was`,
		},
		"an element has vanished": {
			whole, &liar{applied: func(f fields) {
				f["parts"] = tftypes.NewValue(thing.AttributeTypes["parts"], map[string]tftypes.Value{})
			}},
			`inconsistent result after apply.*\.parts: element "one" has vanished`,
		},
		"an element has appeared": {
			whole, &liar{applied: func(f fields) {
				f["parts"] = tftypes.NewValue(thing.AttributeTypes["parts"], map[string]tftypes.Value{"one": partOf(1, nil), "two": partOf(2, nil)})
			}}, `inconsistent result after apply.*\.parts: new element "two" has appeared`,
		},
		"nothing has become something": {
			plain, &liar{applied: func(f fields) { f["part"] = partOf(1, "s") }}, `inconsistent result after apply.*\.part: was null, but now`,
		},
		"something has become nothing": {
			whole, &liar{applied: func(f fields) { f["part"] = tftypes.NewValue(part, nil) }},
			`inconsistent result after apply.*\.part: was .*, but now null`,
		},
		"a value is unknown after the apply": {
			plain, &liar{applied: func(f fields) { f["id"] = unknown(tftypes.String) }},
			`invalid result object after apply.*still indicated an unknown value for lie_thing\.a\.id`,
		},
		"nothing is left after the apply": {
			plain, &liar{apply: func(r *tfprotov6.ApplyResourceChangeResponse) { r.NewState, _ = closed(nil) }},
			`inconsistent result after apply.*root object was present, but now absent`,
		},
		"the apply answers with no value": {
			plain, &liar{apply: func(r *tfprotov6.ApplyResourceChangeResponse) { r.NewState = nil }},
			`Provider produced invalid object.*invalid nil value after apply`,
		},
		"reading leaves something unknown": {
			plain, &liar{read: func(f fields) { f["id"] = unknown(tftypes.String) }}, `Provider produced invalid object.*during refresh`,
		},
		"a second plan is not empty": {
			plain, &liar{planned: func(_, f fields) { f["id"] = unknown(tftypes.String) }},
			`the non-refresh plan was not empty.*lie_thing\.a`,
		},
		"reading changes an argument": {
			whole, &liar{read: func(f fields) { f["color"] = text("blue") }},
			`the refresh plan was not empty.*lie_thing\.a`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x.liar.steps(t, resource.TestStep{Config: x.config, ExpectError: says(x.says)},
				resource.TestStep{Config: plain, SkipFunc: x.liar.honest})
		})
	}
}

// honest has the liar keep to the contract from now on, so that what it has made can be
// removed.
func (l *liar) honest() (bool, error) {
	l.planned, l.applied, l.read, l.replaces, l.plan, l.apply = nil, nil, nil, nil, nil, nil
	return true, nil
}

// What is planned again in the apply must be what was planned, but for what was unknown.
func TestPlanOfTheApplyMustBeTheFirstOne(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		planned func(prior, f fields)
		says    string
	}{
		"another value": {func(_, f fields) {
			f["color"] = text("red")
			if f["name"].IsKnown() {
				f["color"] = text("blue")
			}
		}, `inconsistent final plan.*lie_thing\.a.*\.color: was .*"red".*, but now .*"blue"`},
		"unknown again": {func(_, f fields) {
			f["color"] = text("red")
			if f["name"].IsKnown() {
				f["color"] = unknown(tftypes.String)
			}
		}, `inconsistent final plan.*\.color: was known, but now unknown`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &liar{planned: x.planned}
			l.steps(t, resource.TestStep{Config: late, ExpectError: says(x.says)})
		})
	}
	t.Run("what has become known", func(t *testing.T) {
		t.Parallel()
		l := &liar{}
		l.steps(t, resource.TestStep{Config: late})
	})
	t.Run("another action", func(t *testing.T) {
		t.Parallel()
		l := &liar{}
		calls := 0
		l.steps(t,
			resource.TestStep{Config: strings.Replace(late, `= "late"`, `= "early"`, 1)},
			resource.TestStep{
				PreConfig: func() {
					l.plan = func(r *tfprotov6.PlanResourceChangeResponse) {
						if calls++; calls > 1 {
							r.RequiresReplace = []*tftypes.AttributePath{tftypes.NewAttributePath().WithAttributeName("name")}
						}
					}
				},
				Config:      strings.Replace(late, `= "late"`, `= "other"`, 1),
				ExpectError: says(`inconsistent final plan.*changed the planned action from Update to DeleteThenCreate`),
			},
			resource.TestStep{SkipFunc: l.honest, Config: plain},
		)
	})
}

// A destroy that leaves something is caught, and the object stays in the state.
func TestDestroyMustLeaveNothing(t *testing.T) {
	t.Parallel()
	l := &liar{}
	kept, err := closed(fields{
		"id": text("1"), "name": text("a"), "color": text("grey"), "tags": tftypes.NewValue(thing.AttributeTypes["tags"], nil),
		"part": tftypes.NewValue(part, nil), "parts": tftypes.NewValue(thing.AttributeTypes["parts"], nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.steps(t,
		resource.TestStep{Config: plain},
		resource.TestStep{
			PreConfig: func() { l.apply = func(r *tfprotov6.ApplyResourceChangeResponse) { r.NewState = kept } },
			Config:    plain, Destroy: true,
			ExpectError: says(`invalid result object after apply.*returned a non-null object for lie_thing\.a`),
		},
		resource.TestStep{
			PreConfig: func() {
				l.apply = nil
				l.plan = func(r *tfprotov6.PlanResourceChangeResponse) { r.PlannedState = kept }
			},
			Config: plain, Destroy: true, ExpectError: says(`invalid plan.*planned a non-null destroy value for lie_thing\.a`),
		},
		resource.TestStep{PreConfig: func() { l.plan = nil }, Config: plain, Destroy: true},
	)
}

// A replacement is planned twice, the second time as a create that is given the private
// data of the first; in the apply it is planned once more, after the destroy.
func TestReplacementIsPlannedTwice(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ lifecycle, want string }{
		"destroy first": {"", "plan a>b kept|plan ->b planned|apply a>-|plan ->b |apply ->b"},
		"create first": {
			"lifecycle { create_before_destroy = true }", "plan a>b kept|plan ->b planned|plan ->b |apply ->b|plan a>- kept|apply a>-",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &liar{replaces: []string{"name"}}
			config := "resource \"lie_thing\" \"a\" {\n  name = \"%s\"\n  " + x.lifecycle + "\n}\n"
			var got []string
			l.steps(t,
				resource.TestStep{Config: fmt.Sprintf(config, "a")},
				resource.TestStep{
					PreConfig: func() { l.calls = nil }, Config: fmt.Sprintf(config, "b"),
					ConfigPlanChecks: resource.ConfigPlanChecks{
						PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction("lie_thing.a", plancheck.ResourceActionReplace)},
					},
				},
			)
			for _, c := range l.calls {
				if !strings.HasPrefix(c, "read") && c != "configure" {
					got = append(got, c)
				}
			}
			if text := strings.Join(got, "|"); !strings.HasPrefix(text, x.want) {
				t.Errorf("the calls are\n%s\nwant\n%s", text, x.want)
			}
		})
	}
}

// What depends on a thing is made after it and destroyed before it, and each command
// configures the provider once.
func TestOrderOfDependents(t *testing.T) {
	t.Parallel()
	l := &liar{}
	l.steps(t, resource.TestStep{Config: `
resource "lie_thing" "c" {
  name       = "c"
  depends_on = [lie_thing.b]
}
resource "lie_thing" "b" {
  name  = "b"
  color = local.color
}
locals {
  color = lie_thing.a.color
}
` + plain})
	var applied []string
	for _, c := range l.calls {
		if strings.HasPrefix(c, "apply") {
			applied = append(applied, strings.TrimPrefix(c, "apply "))
		}
	}
	if got, want := strings.Join(applied, " "), "->a ->b ->c c>- b>- a>-"; got != want {
		t.Errorf("applied in the order %q, want %q", got, want)
	}
}

// What it cannot do as Terraform does, it refuses.
func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"module":         "module \"x\" {\n  source = \"./x\"\n}\n",
		"removed":        "removed {\n  from = lie_thing.b\n}\n",
		"variable":       "variable \"x\" {}\n",
		"check":          "check \"x\" {}\n",
		"ignore_changes": "resource \"lie_thing\" \"b\" {\n  name = \"b\"\n  lifecycle {\n    ignore_changes = [name]\n  }\n}\n",
		"precondition": "resource \"lie_thing\" \"b\" {\n  name = \"b\"\n  lifecycle {\n    precondition {\n      condition = true\n      " +
			"error_message = \"No.\"\n    }\n  }\n}\n",
		"provisioner": "resource \"lie_thing\" \"b\" {\n  name = \"b\"\n  provisioner \"local-exec\" {\n    command = \"true\"\n  }\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &liar{}
			l.steps(t, resource.TestStep{Config: config, ExpectError: says(`run this test with a real CLI`)})
		})
	}
}
