package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/fastpath"
)

// twin asks the framework's own server too what it is asked, and wants the same answer. That one has a fleet of its own,
// where there is one.
type twin struct {
	provider.Served
	t         *testing.T
	framework tfprotov6.ProviderServer
	types     map[string]*tfprotov6.Schema
	fleet     string // of the framework's
	compared  *atomic.Int64
	faultless map[string]int // configurations
}

func newTwin(t *testing.T, fleet string, compared *atomic.Int64) (*twin, error) {
	server, err := provider.Server("test", nil, provider.WithPatience(rig.Patience))
	if err != nil {
		return nil, err
	}
	framework, err := providerserver.NewProtocol6WithError(provider.New("test", nil, provider.WithPatience(rig.Patience))())()
	if err != nil {
		return nil, err
	}
	all, err := framework.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return nil, err
	}
	return &twin{
		Served: server(), t: t, framework: provider.RefuseEmptied(framework), types: all.ResourceSchemas, fleet: fleet,
		compared: compared, faultless: map[string]int{},
	}, nil
}

func (w *twin) ConfigureProvider(ctx context.Context, r *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	other := *r
	if w.fleet != "" {
		var fields map[string]tftypes.Value
		all, err := w.framework.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
		if err != nil {
			return nil, err
		}
		value, err := r.Config.Unmarshal(all.Provider.ValueType())
		if err != nil {
			return nil, err
		}
		if err = value.As(&fields); err != nil {
			return nil, err
		}
		fields["simulated_fleet"] = tftypes.NewValue(tftypes.String, w.fleet)
		config, err := tfprotov6.NewDynamicValue(value.Type(), tftypes.NewValue(value.Type(), fields))
		if err != nil {
			return nil, err
		}
		other.Config = &config
	}
	if _, err := w.framework.ConfigureProvider(ctx, &other); err != nil {
		w.t.Error(err)
	}
	return w.Served.ConfigureProvider(ctx, r)
}

func (w *twin) ApplyResourceChange(ctx context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse,
	error,
) {
	resp, err := caught(ctx, w.Served.ApplyResourceChange, r)
	if want, wantErr := caught(ctx, w.framework.ApplyResourceChange, r); fmt.Sprint(err) != fmt.Sprint(wantErr) {
		w.t.Errorf("%s: %v, and by the framework: %v", r.TypeName, err, wantErr)
	} else if err == nil {
		tokens := func(private []byte) []byte { return claimTokens.ReplaceAll(private, []byte(`"claim_token":"e30="`)) }
		w.same("apply", r.TypeName, w.text(r.TypeName, r.PlannedState, r.PlannedIdentity, r.PlannedPrivate, nil, nil),
			w.text(r.TypeName, resp.NewState, resp.NewIdentity, tokens(resp.Private), resp.Diagnostics, nil),
			w.text(r.TypeName, want.NewState, want.NewIdentity, tokens(want.Private), want.Diagnostics, nil))
	}
	return resp, err
}

// claimTokens are made anew for each object.
var claimTokens = regexp.MustCompile(`"claim_token":"[^"]*"`)

func (w *twin) ValidateResourceConfig(ctx context.Context,
	r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	resp, err := caught(ctx, w.Served.ValidateResourceConfig, r)
	if want, wantErr := caught(ctx, w.framework.ValidateResourceConfig, r); fmt.Sprint(err) != fmt.Sprint(wantErr) {
		w.t.Errorf("%s: %v, and by the framework: %v", r.TypeName, err, wantErr)
	} else if err == nil {
		lines := func(said []*tfprotov6.Diagnostic) string { // which come in any order
			all := strings.Split(w.text(r.TypeName, nil, nil, nil, said, nil), "\n")
			slices.Sort(all)
			return strings.Join(all, "\n")
		}
		w.same("validation", r.TypeName, w.text(r.TypeName, r.Config, nil, nil, nil, nil), lines(resp.Diagnostics), lines(want.Diagnostics))
		if len(want.Diagnostics) == 0 {
			w.faultless[r.TypeName]++
		}
	}
	return resp, err
}

func (w *twin) UpgradeResourceState(ctx context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse,
	error,
) {
	resp, err := caught(ctx, w.Served.UpgradeResourceState, r)
	if want, wantErr := caught(ctx, w.framework.UpgradeResourceState, r); fmt.Sprint(err) != fmt.Sprint(wantErr) {
		w.t.Errorf("%s: %v, and by the framework: %v", r.TypeName, err, wantErr)
	} else if err == nil {
		w.same("upgrade", r.TypeName, fmt.Sprintf("%d %s", r.Version, r.RawState.JSON),
			w.text(r.TypeName, resp.UpgradedState, nil, nil, resp.Diagnostics, nil),
			w.text(r.TypeName, want.UpgradedState, nil, nil, want.Diagnostics, nil))
	}
	return resp, err
}

func (w *twin) ReadResource(ctx context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	resp, err := caught(ctx, w.Served.ReadResource, r)
	if want, wantErr := caught(ctx, w.framework.ReadResource, r); fmt.Sprint(err) != fmt.Sprint(wantErr) {
		w.t.Errorf("%s: %v, and by the framework: %v", r.TypeName, err, wantErr)
	} else if err == nil {
		w.same("read", r.TypeName, w.text(r.TypeName, r.CurrentState, r.CurrentIdentity, r.Private, nil, nil),
			w.text(r.TypeName, resp.NewState, resp.NewIdentity, resp.Private, resp.Diagnostics, nil),
			w.text(r.TypeName, want.NewState, want.NewIdentity, want.Private, want.Diagnostics, nil))
	}
	return resp, err
}

func (w *twin) PlanResourceChange(ctx context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse,
	error,
) {
	resp, err := caught(ctx, w.Served.PlanResourceChange, r)
	if want, wantErr := caught(ctx, w.framework.PlanResourceChange, r); fmt.Sprint(err) != fmt.Sprint(wantErr) {
		w.t.Errorf("%s: %v, and by the framework: %v", r.TypeName, err, wantErr)
	} else if err == nil {
		w.same("plan", r.TypeName, w.text(r.TypeName, r.ProposedNewState, r.PriorIdentity, r.PriorPrivate, nil, nil),
			w.text(r.TypeName, resp.PlannedState, resp.PlannedIdentity, resp.PlannedPrivate, resp.Diagnostics, resp.RequiresReplace),
			w.text(r.TypeName, want.PlannedState, want.PlannedIdentity, want.PlannedPrivate, want.Diagnostics, want.RequiresReplace))
	}
	return resp, err
}

// caught answers with an error where a state that nobody can have makes it panic.
func caught[R, A any](ctx context.Context, call func(context.Context, *R) (*A, error), r *R) (a *A, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call(ctx, r)
}

func (w *twin) same(what, kind, of, got, want string) {
	w.compared.Add(1)
	if got != want {
		w.t.Errorf("%s of %s\n%s\ngives\n%s\nand by the framework\n%s", what, kind, of, got, want)
	}
}

// text is all of an answer, but for the names in the ledger, which are of one run.
func (w *twin) text(kind string, state *tfprotov6.DynamicValue, id *tfprotov6.ResourceIdentityData,
	private []byte, said []*tfprotov6.Diagnostic, replace []*tftypes.AttributePath,
) string {
	var b strings.Builder
	if state != nil {
		v, err := state.Unmarshal(w.types[kind].ValueType())
		fmt.Fprintln(&b, v, err)
	}
	if id != nil && id.IdentityData != nil {
		fmt.Fprintf(&b, "identity %x\n", id.IdentityData.MsgPack)
	}
	var kept map[string][]byte
	err := json.Unmarshal(private, &kept)
	delete(kept, "ledger_instance")
	fmt.Fprintf(&b, "private %s %v\n", kept, len(private) > 0 && err != nil)
	for _, d := range said {
		fmt.Fprintf(&b, "%s at %s: %s: %s\n", d.Severity, d.Attribute, d.Summary, d.Detail)
	}
	for _, p := range replace {
		fmt.Fprintln(&b, "replaces for", p)
	}
	return b.String()
}

// The fast path answers for all resources: a new attribute that it does not know makes every plan slower, and this says which one.
func TestEveryResourceIsOnTheFastPath(t *testing.T) {
	t.Parallel()
	all := provider.New("test", nil)().Resources(t.Context())
	for _, construct := range all {
		if why := fastpath.Hindrance(t.Context(), construct); why != "" {
			t.Errorf("%T: %s", construct(), why)
		}
	}
	if len(all) != 4 {
		t.Errorf("there are %d resources", len(all))
	}
}

// What plans with and without changes, refreshes and imports get is what the framework's server gives.
func TestAnswersAreTheFrameworks(t *testing.T) {
	t.Parallel()
	answersAreTheFrameworks(t)
}

// So it is where somebody reads logs, and where the fast path is off.
func TestAnswersAreTheSameWithLogs(t *testing.T) {
	t.Setenv("TF_LOG_PROVIDER", "error")
	answersAreTheFrameworks(t)
}

func TestAnswersAreTheSameWithTheFastPathOff(t *testing.T) {
	t.Setenv(fastpath.EnvFastPath, fastpath.EnvOff)
	answersAreTheFrameworks(t)
}

func answersAreTheFrameworks(t *testing.T) {
	t.Helper()
	ends(t)
	a, b := rig.Node("hv01", rig.Off(rig.Desktop("avd-01", 1)), rig.Desktop("avd-02", 2)), rig.Node("hv02", rig.Off(rig.Desktop("avd-03", 3)))
	r := rig.New(t, rig.Standalone(a, b))
	var compared atomic.Int64
	other := filepath.Join(t.TempDir(), "fleet.json")
	terminal, err := core.NewTerminal(t.Context(), map[string]core.Factory{
		"gpu": func() (tfprotov6.ProviderServer, error) { return newTwin(t, other, &compared) },
	})
	r.Must(err)
	c := &rig.CLI{T: t, Terminal: terminal}
	config := func(shutdown string) {
		all := strings.ReplaceAll(rig.AssignAll([]string{"avd-01", "avd-02", "avd-03"}, ""), "partition = {}",
			"partition = { config = gpu_partition_config.vdi.id }")
		c.Write(r.Block() + rig.ConfigOf(4, rig.Both) + strings.ReplaceAll(all, "allow_shutdown = true", shutdown))
	}
	run := func(args ...string) string { // that some fail is as it should be
		data, err := os.ReadFile(r.Fleet.Path())
		r.Must(err)
		r.Must(os.WriteFile(other, data, 0o600))
		out, _ := c.Run(append(args, "-parallelism=1")...)
		return out
	}
	config("allow_shutdown = true")
	run("apply")
	run("plan")
	run("plan", "-refresh-only")
	run("plan", "-destroy")
	run("destroy")
	r.NeverStops("avd-02", "hv01")
	if out := rig.Sentence(run("apply")); !strings.Contains(out, "Could not") {
		t.Errorf("no create fails:\n%s", out)
	}
	r.ClearFaults("hv01")
	run("apply")
	r.EditHost("hv01", func(h *gpu.Host) { // what differs is put right, or is too much to ask
		h.GPUs[0].Partitionable.Count = 2
		h.VMs[0].Name = "renamed"
	})
	run("plan")
	config("allow_shutdown = false")
	run("plan")
	r.Silent(true, "hv02")
	run("plan")
	run("plan", "-refresh=false")
	r.Silent(false, "hv02")
	r.EditHost("hv02", func(h *gpu.Host) { h.VMs = nil })
	run("plan")
	t.Logf("%d answers", compared.Load())
	if compared.Load() < 110 {
		t.Error("few answers were compared")
	}
}

// So it is of any state, whatever is in it: attributes that there are no more and none that there are, other versions, what
// private state keeps, and what no host has.
func TestAnswersToAnythingAreTheFrameworks(t *testing.T) {
	t.Parallel()
	ends(t)
	r := rig.New(t, rig.TwoNodes())
	var compared atomic.Int64
	w, err := newTwin(t, "", &compared)
	r.Must(err)
	all, err := w.framework.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	r.Must(err)
	p := &protocol{t: t, server: w, schemas: all.ResourceSchemas}
	config := p.object(all.Provider, map[string]any{
		"simulated_fleet": tftypes.NewValue(tftypes.String, r.Fleet.Path()), "owner": tftypes.NewValue(tftypes.String, "test"),
	}, nil)
	_, err = w.ValidateProviderConfig(t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: config})
	r.Must(err)
	_, err = w.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: config})
	r.Must(err)
	for seed := range uint64(80) {
		g := generator{rand.New(rand.NewPCG(seed, 20))} //nolint:gosec // the same every time
		for _, kind := range slices.Sorted(maps.Keys(all.ResourceSchemas)) {
			s := all.ResourceSchemas[kind]
			value := g.value(s.ValueType(), true, false)
			state, err := tfprotov6.NewDynamicValue(s.ValueType(), value)
			r.Must(err)
			raw, _ := g.json(value).(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(raw)) {
				if of, ok := raw[name].(map[string]any); ok && g.IntN(4) == 0 {
					of["no_more"] = "was here"
				}
			}
			if g.IntN(3) == 0 {
				raw["no_more"] = "was here"
			}
			if names := slices.Sorted(maps.Keys(raw)); g.IntN(3) == 0 {
				raw[names[g.IntN(len(names))]] = []any{nil, 1, "x", true, []any{}, map[string]any{}}[g.IntN(6)]
			}
			if names := slices.Sorted(maps.Keys(raw)); g.IntN(3) == 0 {
				delete(raw, names[g.IntN(len(names))])
			}
			text, err := json.Marshal(raw)
			r.Must(err)
			_, _ = w.UpgradeResourceState(t.Context(), &tfprotov6.UpgradeResourceStateRequest{
				TypeName: kind, Version: s.Version + int64(g.IntN(5)/4), RawState: &tfprotov6.RawState{JSON: text},
			})

			private := [][]byte{
				nil, []byte(`{}`), []byte(`{"seen":"e30=","claim_token":"IkFCQyI=","unheard_of":"MQ=="}`), []byte(`{".import_before_read":"dHJ1ZQ=="}`),
				[]byte(`{"seen":"fg=="}`), []byte(`{"seen":"Iv8i"}`), []byte(`{"schema_version":"1","timeouts":{}}`),
			}[g.IntN(7)]
			_, _ = w.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{TypeName: kind, CurrentState: &state, Private: private})

			top, _ := s.ValueType().(tftypes.Object)
			config := map[string]tftypes.Value{}
			r.Must(value.As(&config))
			for _, a := range s.Block.Attributes {
				if !a.Optional && !a.Required {
					config[a.Name] = tftypes.NewValue(top.AttributeTypes[a.Name], nil)
				}
			}
			declared, err := tfprotov6.NewDynamicValue(top, tftypes.NewValue(top, config))
			r.Must(err)
			_, _ = w.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
				TypeName: kind, Config: &declared, PriorState: &state, ProposedNewState: &tfprotov6.DynamicValue{MsgPack: bytes.Clone(state.MsgPack)},
				PriorPrivate: private,
			})

			none, err := tfprotov6.NewDynamicValue(top, tftypes.NewValue(top, nil))
			r.Must(err)
			config = maps.Clone(config)
			for _, name := range slices.Sorted(maps.Keys(config)) {
				if !config[name].IsNull() && g.IntN(6) == 0 {
					config[name] = tftypes.NewValue(top.AttributeTypes[name], tftypes.UnknownValue)
				}
			}
			created, err := tfprotov6.NewDynamicValue(top, tftypes.NewValue(top, config))
			r.Must(err)
			for tries, v := 0, tftypes.NewValue(top, config); tries < 12; tries++ { // until nothing is wrong with it
				written, err := tfprotov6.NewDynamicValue(top, v)
				r.Must(err)
				resp, err := w.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: kind, Config: &written})
				r.Must(err)
				if len(resp.Diagnostics) == 0 {
					break
				}
				v = g.mend(s.Block, v, resp.Diagnostics[0].Attribute)
			}
			_, _ = w.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
				TypeName: kind, Config: &created, PriorState: &none, ProposedNewState: &created, PriorPrivate: private,
			})
			if g.IntN(4) == 0 { // a caller may send JSON
				prior, err := json.Marshal(g.json(value))
				r.Must(err)
				other, err := json.Marshal(g.json(g.value(s.ValueType(), true, false)))
				r.Must(err)
				_, _ = w.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
					TypeName: kind, Config: &declared, PriorState: &tfprotov6.DynamicValue{JSON: prior},
					ProposedNewState: &tfprotov6.DynamicValue{JSON: other},
				})
			}
		}
	}
	t.Logf("%d answers, configurations without a fault: %v", compared.Load(), w.faultless)
	for kind := range all.ResourceSchemas {
		if w.faultless[kind] < 20 {
			t.Error("few configurations are without a fault:", kind)
		}
	}
	if compared.Load() < 600 {
		t.Errorf("only %d answers were compared", compared.Load())
	}
}

// ends ends all tests where this one takes more than five minutes, or the process has more than 4 GiB: what has no end would take the
// memory of the machine before the limit of all tests is reached.
func ends(t *testing.T) {
	t.Helper()
	began := time.Now()
	go func() {
		for t.Context().Err() == nil {
			in := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
			metrics.Read(in)
			if heap := in[0].Value.Uint64(); heap > 4<<30 || time.Since(began) > 5*time.Minute {
				panic(fmt.Sprintf("%s goes on after %s, with %d MiB", t.Name(), time.Since(began), heap>>20))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

// generator makes values of a type.
type generator struct{ *rand.Rand }

var words = []string{"hv01", "hv02", "avd-01", "avd-02", rig.VMID(1), "vdi", "none", "10m", "now", "keep", "GPU-1", "x/y"}

// value is one of the type, not null if it must not be, with nothing null inside it if it is to be whole: what is in lists is.
func (g generator) value(typ tftypes.Type, must, whole bool) tftypes.Value {
	if !must && !whole && g.IntN(2) == 0 {
		return tftypes.NewValue(typ, nil)
	}
	switch typ := typ.(type) {
	case tftypes.Object:
		values, none := map[string]tftypes.Value{}, !whole && g.IntN(4) == 0
		for _, name := range slices.Sorted(maps.Keys(typ.AttributeTypes)) {
			values[name] = tftypes.NewValue(typ.AttributeTypes[name], nil)
			if !none {
				values[name] = g.value(typ.AttributeTypes[name], false, whole)
			}
		}
		return tftypes.NewValue(typ, values)
	case tftypes.Map:
		values := map[string]tftypes.Value{}
		for range g.IntN(3) {
			values[words[g.IntN(len(words))]] = g.value(typ.ElementType, true, true)
		}
		return tftypes.NewValue(typ, values)
	case tftypes.List:
		values := []tftypes.Value{}
		for range g.IntN(3) {
			values = append(values, g.value(typ.ElementType, true, true))
		}
		return tftypes.NewValue(typ, values)
	case tftypes.Set:
		return tftypes.NewValue(typ, []tftypes.Value{g.value(typ.ElementType, true, true)}[:g.IntN(2)])
	}
	switch {
	case typ.Is(tftypes.Number):
		return tftypes.NewValue(typ, []any{0, 1, 4, 1 << 40}[g.IntN(4)])
	case typ.Is(tftypes.Bool):
		return tftypes.NewValue(typ, g.IntN(2) == 0)
	}
	return tftypes.NewValue(typ, words[g.IntN(len(words))])
}

// mend leaves out what is at fault, or sets it where it is missing: one of any where it is not said.
func (g generator) mend(s *tfprotov6.SchemaBlock, v tftypes.Value, at *tftypes.AttributePath) tftypes.Value {
	if at == nil {
		var free []string
		for _, a := range s.Attributes {
			if a.Optional {
				free = append(free, a.Name)
			}
		}
		at = tftypes.NewAttributePath().WithAttributeName(free[g.IntN(len(free))])
	}
	var steps []tftypes.AttributePathStep // as far as there is no list or set
	for _, step := range at.Steps() {
		if _, ok := step.(tftypes.AttributeName); !ok {
			break
		}
		steps = append(steps, step)
	}
	at = tftypes.NewAttributePathWithSteps(steps)
	v, err := tftypes.Transform(v, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		switch {
		case !p.Equal(at):
			return v, nil
		case v.IsNull():
			return g.value(v.Type(), true, false), nil
		}
		return tftypes.NewValue(v.Type(), nil), nil
	})
	if err != nil {
		panic(err)
	}
	return v
}

// json is a value as a state file has it.
func (g generator) json(v tftypes.Value) any {
	if v.IsNull() {
		return nil
	}
	var fields map[string]tftypes.Value
	if v.As(&fields) == nil {
		out := map[string]any{}
		for name, value := range fields {
			out[name] = g.json(value)
		}
		return out
	}
	var list []tftypes.Value
	if v.As(&list) == nil {
		out := []any{}
		for _, value := range list {
			out = append(out, g.json(value))
		}
		return out
	}
	var s string
	if v.As(&s) == nil {
		return s
	}
	var yes bool
	if v.As(&yes) == nil {
		return yes
	}
	return json.Number(strings.TrimSuffix(strings.Split(v.String(), `"`)[1], `"`))
}
