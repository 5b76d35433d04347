package fastpath_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/fastpath"
)

// toy is a provider of one resource.
type toy struct {
	attributes map[string]schema.Attribute
	change     func(*schema.Schema)
	meta       func(*resource.MetadataResponse)
	plan       func(context.Context)
	planned    *atomic.Int64
}

func (t toy) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "toy"
}
func (t toy) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse)          {}
func (t toy) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}
func (t toy) DataSources(context.Context) []func() datasource.DataSource                        { return nil }

func (t toy) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return thing{t} }}
}

type thing struct{ toy }

func (t thing) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_thing"
	if t.meta != nil {
		t.meta(resp)
	}
}

func (t thing) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema.Attributes = t.attributes
	if t.change != nil {
		t.change(&resp.Schema)
	}
}

func (t thing) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema.Attributes = map[string]identityschema.Attribute{"name": identityschema.StringAttribute{RequiredForImport: true}}
}

func (t thing) ModifyPlan(ctx context.Context, _ resource.ModifyPlanRequest, _ *resource.ModifyPlanResponse) {
	if t.planned != nil {
		t.planned.Add(1)
	}
	if t.plan != nil {
		t.plan(ctx)
	}
}
func (t thing) Create(context.Context, resource.CreateRequest, *resource.CreateResponse) {}
func (t thing) Read(context.Context, resource.ReadRequest, *resource.ReadResponse)       {}
func (t thing) Update(context.Context, resource.UpdateRequest, *resource.UpdateResponse) {}
func (t thing) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}

// ownType is a type of one's own; ownModifier a plan modifier.
type (
	ownType     struct{ basetypes.StringType }
	ownModifier struct{ planmodifier.String }
)

// whatNobodyKnows are attributes that a contributor may add, and what the guard says of each.
func whatNobodyKnows() map[string]struct {
	note schema.Attribute
	why  string
} {
	text := map[string]schema.Attribute{"note": schema.StringAttribute{Computed: true}}
	type x = struct {
		note schema.Attribute
		why  string
	}
	return map[string]x{
		"a default":  {schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString("none")}, "Default"},
		"write-only": {schema.StringAttribute{Optional: true, WriteOnly: true}, "WriteOnly"},
		"a type":     {schema.StringAttribute{Optional: true, CustomType: ownType{}}, "a type of its own"},
		"elements":   {schema.SetAttribute{Optional: true, ElementType: ownType{}}, "a type of its own"},
		"elements below": {
			schema.MapAttribute{Optional: true, ElementType: types.ObjectType{AttrTypes: map[string]attr.Type{"x": ownType{}}}}, "a type of its own",
		},
		"a modifier": {
			schema.StringAttribute{Optional: true, PlanModifiers: []planmodifier.String{ownModifier{}}}, "a plan modifier that is not known",
		},
		"a kind": {schema.DynamicAttribute{Optional: true}, "a kind that is not known"},
		"in an object": {
			schema.SingleNestedAttribute{
				Optional: true, Attributes: map[string]schema.Attribute{
					"x": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString("none")},
				},
			},
			"attribute x has a field that is not known, Default",
		},
		"in a list": {
			schema.ListNestedAttribute{Optional: true, NestedObject: schema.NestedAttributeObject{Attributes: text}}, "computed in each element",
		},
		"in an object of a list": {
			schema.ListNestedAttribute{Optional: true, NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"x": schema.SingleNestedAttribute{Optional: true, Attributes: text},
			}}}, "computed in each element",
		},
	}
}

// A type with something that the package does not know is the framework's alone.
func TestTheGuardLeavesOthersToTheFramework(t *testing.T) {
	t.Parallel()
	hindrance := func(x toy) string {
		return fastpath.Hindrance(t.Context(), func() resource.Resource { return thing{x} })
	}
	for name, x := range whatNobodyKnows() {
		if got := hindrance(toy{attributes: map[string]schema.Attribute{"note": x.note}}); !strings.Contains(got, "attribute note ") ||
			!strings.Contains(got, x.why) {
			t.Errorf("%s: %q, want %q", name, got, x.why)
		}
	}
	plain := map[string]schema.Attribute{"note": schema.StringAttribute{Optional: true}}
	for name, x := range map[string]toy{
		"blocks": {attributes: plain, change: func(s *schema.Schema) {
			s.Blocks = map[string]schema.Block{"b": schema.SingleNestedBlock{}}
		}},
		"deprecated": {attributes: plain, change: func(s *schema.Schema) { s.DeprecationMessage = "use another" }},
		"behavior":   {attributes: plain, meta: func(m *resource.MetadataResponse) { m.ResourceBehavior.MutableIdentity = true }},
	} {
		if hindrance(x) == "" {
			t.Errorf("%s: the type is answered for", name)
		}
	}
}

// What schemas here have, and what they may well have, is known.
func TestTheGuardKnowsWhatIsKnown(t *testing.T) {
	t.Parallel()
	replaceIf := func(context.Context, planmodifier.ObjectRequest, *objectplanmodifier.RequiresReplaceIfFuncResponse) {}
	for name, a := range map[string]schema.Attribute{
		"text": schema.StringAttribute{
			Required: true, Sensitive: true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"computed": schema.StringAttribute{
			Optional: true, Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		"number": schema.Int64Attribute{
			Optional: true, PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace(), int64planmodifier.UseStateForUnknown()},
		},
		"object": schema.SingleNestedAttribute{
			Optional: true, PlanModifiers: []planmodifier.Object{objectplanmodifier.RequiresReplaceIf(replaceIf, "", "")},
			Attributes: map[string]schema.Attribute{"x": schema.BoolAttribute{Optional: true, Computed: true}},
		},
		"timeouts": timeouts.Attributes(t.Context(), timeouts.Opts{Create: true, Update: true}),
		"computed list": schema.ListNestedAttribute{
			Computed: true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"x": schema.Float64Attribute{Computed: true},
			}},
		},
		"set": schema.SetNestedAttribute{
			Optional: true, NestedObject: schema.NestedAttributeObject{
				Attributes: map[string]schema.Attribute{"x": schema.NumberAttribute{Required: true}},
			},
		},
		"map": schema.MapAttribute{
			Optional: true, ElementType: types.ListType{ElemType: types.ObjectType{AttrTypes: map[string]attr.Type{"x": types.Int64Type}}},
		},
	} {
		if why := fastpath.Hindrance(t.Context(), func() resource.Resource {
			return thing{toy{attributes: map[string]schema.Attribute{"a": a}}}
		}); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// asked is a server that counts what reaches the framework.
type asked struct {
	fastpath.Served
	plans int
}

func (a *asked) PlanResourceChange(ctx context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse,
	error,
) {
	a.plans++
	return a.Served.PlanResourceChange(ctx, r)
}

func serve(t *testing.T, x toy) (*asked, fastpath.Served) {
	t.Helper()
	made, err := providerserver.NewProtocol6WithError(x)()
	if err != nil {
		t.Fatal(err)
	}
	served, ok := made.(fastpath.Served)
	if !ok {
		t.Fatalf("%T is not what is served", made)
	}
	framework := &asked{Served: served}
	return framework, fastpath.New(x, func() any { return nil }, framework)
}

func create(t *testing.T, of fastpath.Served) (planned string, err error) {
	t.Helper()
	all, err := of.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	typ := all.ResourceSchemas["toy_thing"].ValueType()
	object, _ := typ.(tftypes.Object)
	fields := map[string]tftypes.Value{}
	for name, t := range object.AttributeTypes {
		fields[name] = tftypes.NewValue(t, nil)
	}
	config, err := tfprotov6.NewDynamicValue(typ, tftypes.NewValue(typ, fields))
	if err != nil {
		t.Fatal(err)
	}
	none, err := tfprotov6.NewDynamicValue(typ, tftypes.NewValue(typ, nil))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := of.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: "toy_thing", Config: &config, ProposedNewState: &config, PriorState: &none,
	})
	if err != nil {
		return "", err
	}
	for _, d := range resp.Diagnostics {
		t.Errorf("%s: %s", d.Summary, d.Detail)
	}
	v, err := resp.PlannedState.Unmarshal(typ)
	if err != nil {
		t.Fatal(err)
	}
	return v.String(), nil
}

// A default is planned as the framework plans it, with logs and without, and what has none is planned without the framework.
func TestADefaultIsPlanned(t *testing.T) {
	t.Parallel()
	note := map[string]schema.Attribute{
		"note": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString("none")},
	}
	for _, logs := range []bool{false, true} {
		framework, served := serve(t, toy{attributes: note})
		if got, err := create(t, fastpath.InContext(served, logs, nil, nil)); err != nil || !strings.Contains(got, `"none"`) ||
			framework.plans != 1 {
			t.Errorf("with logs %v: planned is %s, %v, by the framework %d times", logs, got, err, framework.plans)
		}
		var planned atomic.Int64
		framework, served = serve(t, toy{
			attributes: map[string]schema.Attribute{"note": schema.StringAttribute{Optional: true, Computed: true}}, planned: &planned,
		})
		if got, err := create(t, fastpath.InContext(served, logs, nil, nil)); err != nil || !strings.Contains(got, "<unknown>") ||
			framework.plans != 0 || planned.Load() != 1 {
			t.Errorf("with logs %v: planned is %s, %v, by the framework %d times", logs, got, err, framework.plans)
		}
	}
}

// A call that does not look whether it was stopped is told of, a second after an interrupt, so that the process can end; one that ends
// in time is not.
func TestAnInterruptEndsWhatHasNoEnd(t *testing.T) {
	t.Parallel()
	for _, logs := range []bool{false, true} {
		for _, looks := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				began, release, ended := make(chan bool, 1), make(chan bool), make(chan bool)
				_, served := serve(t, toy{
					attributes: map[string]schema.Attribute{"note": schema.StringAttribute{Optional: true}},
					plan: func(ctx context.Context) {
						began <- true
						if looks {
							<-ctx.Done()
							return
						}
						<-release
					},
				})
				var stuck atomic.Int64
				s := fastpath.InContext(served, logs, nil, func() { stuck.Add(1) })
				go func() {
					defer close(ended)
					_, _ = create(t, s)
				}()
				<-began
				if _, err := s.StopProvider(t.Context(), &tfprotov6.StopProviderRequest{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				if got, want := stuck.Load(), map[bool]int64{false: 1, true: 0}[looks]; got != want {
					t.Errorf("with logs %v, and a plan that looks at its context %v: stuck %d times, want %d", logs, looks, got, want)
				}
				close(release)
				<-ended
			})
		}
	}
}

// Who turns the package off gets what the framework says, and nothing else.
func TestTheSwitch(t *testing.T) {
	for value, off := range map[string]bool{"": false, "on": false, "off": true} {
		t.Setenv(fastpath.EnvFastPath, value)
		if fastpath.Off() != off {
			t.Errorf("%s=%s: off is %v", fastpath.EnvFastPath, value, !off)
		}
	}
}
