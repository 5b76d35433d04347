package provider_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// bases are configurations without a fault, into each of which a number can be put. A number of a schema needs one that it may
// be in: a new block of a resource needs a line here, and a new number of a block none.
var bases = map[string][]string{
	"provider": {`{"simulated_fleet":"FLEET","owner":"test"}`, `{"owner":"test","hosts":{"hv01":{"ssh":{"address":"hv01.example"}}}}`},
	"resource gpu_partition_config": {
		`{"name":"vdi","hosts":["hv01"],"gpu_p":{"partition_count":4}}`,
		`{"name":"mig","hosts":["hgx01"],"mig":{"profiles":{"1g.10gb":1}}}`,
		`{"name":"mig","hosts":["hgx01"],"mig":{"placements":[{"profile":"1g.10gb","start":0}]}}`,
		`{"name":"mig","hosts":["hgx01"],"mig":{"profiles":{"1g.10gb":1},"mps":{"uid":1000}}}`,
		`{"name":"mig","hosts":["hgx01"],"mig":{"profiles":{"1g.10gb":1},"time_slicing":{"replicas":2}}}`,
		`{"name":"desks","hosts":["kvm01"],"vgpu":{"type":"L40S-12Q"}}`,
		`{"name":"desks","hosts":["kvm01"],"vgpu":{"types":{"L40S-12Q":1}}}`,
		`{"name":"mps","hosts":["gpu01"],"mps":{"uid":1000}}`,
		`{"name":"turns","hosts":["gpu01"],"time_slicing":{"replicas":4}}`,
	},
	"resource gpu_pool": {`{"name":"ml","hosts":["gpu01"],"quotas":{"team":{"shares":4}}}`},
	"resource gpu_vm_assignment": {
		`{"vm":"avd-03","partition":{}}`,
		`{"vm":"avd-03","pool":{"id":"hv01/render"}}`,
		`{"vm":"avd-03","pool":{"id":"hv01/render"},"automatic_stop_action":"shut_down"}`,
	},
	"resource gpu_share": {
		`{"name":"s","host":"gpu01","memory":{"request_mib":1024}}`, `{"name":"s","host":"gpu01","memory":{"fraction":0.5}}`,
	},
	"data gpu_change_forecast": {
		`{"hosts":["hv01"],"gpu_p":{"partition_count":4}}`,
		`{"hosts":["hgx01"],"mig":{"profiles":{"1g.10gb":1}}}`,
		`{"hosts":["hgx01"],"mig":{"placements":[{"profile":"1g.10gb","start":0}]}}`,
		`{"hosts":["hgx01"],"mig":{"profiles":{"1g.10gb":1},"mps":{"uid":1000}}}`,
		`{"hosts":["hgx01"],"mig":{"profiles":{"1g.10gb":1},"time_slicing":{"replicas":2}}}`,
		`{"hosts":["kvm01"],"vgpu":{"type":"L40S-12Q"}}`,
		`{"hosts":["kvm01"],"vgpu":{"types":{"L40S-12Q":1}}}`,
		`{"hosts":["gpu01"],"mps":{"uid":1000}}`,
		`{"hosts":["gpu01"],"time_slicing":{"replicas":4}}`,
	},
	// The arguments of functions have no schema: each number of these is tried.
	"function device_plugin_config": {
		`[{"mig_strategy":"none","time_slicing":{"resources":{"nvidia.com/gpu":4}}}]`, `[{"mps":{"resources":{"nvidia.com/gpu":4}}}]`,
	},
	"function container_unit": {
		`["nvidia.com/gpu=chat",{"image":"localhost/chat","command":["--port","NUMBER"],"ports":["NUMBER:8000"]}]`,
	},
	"function from_device_plugin_config": {
		`["version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 1NUMBER}\n"]`,
	},
	"function dra_resources": {
		`[{"name":"mig","gpus":{"hgx01":{"gpus":{"GPU-1":{"layout":"mig","instances":[{"profile":"1g.10gb","start":1,"memory_mib":9984}]}}}}}]`,
	},
	"function fit": {
		`[[{"name":"a","gpus":[{"id":"g","model":"A30"},{"id":"h","model":"A30"}]},{"name":"b","gpus":[{"id":"g","model":"A2"}]}],` +
			`[{"name":"p","count":1,"kind":"gpu_p","vram_mib":2000},{"name":"m","count":1,"kind":"mig","profile":"1g.6gb"},` +
			`{"name":"s","count":1,"kind":"share","memory_mib":2000,"threads":20}],{"spare_hosts":0}]`,
		`[[{"name":"a","gpus":[{"id":"g","model":"A30"}]},{"name":"b","gpus":[{"id":"g","model":"A2"}]}],` +
			`[{"name":"w","count":1,"kind":"gpu","gpus":1}],` +
			`{"keep":{"a":{"g":{"kind":"mig","mig":{"profiles":{"1g.6gb":2}}}},"b":{"g":{"kind":"gpu_p","gpu_p":{"partition_count":4}}}}}]`,
	},
	"function mig_parted_config": {`[{"all":[{"devices":[0,1],"mig_enabled":true,"profiles":{"1g.10gb":2}}]}]`},
	"function slurm_gres": {
		`[[{"name":"gpu01","gpus":[{"device":0,"type":"a100","mps":100},{"device":2,"mig":[{"type":"1g.10gb","capabilities":[30,31]}]}]}]]`,
		`[[{"name":"gpu01","gpus":[{"device":1,"shards":4}]}]]`,
		`[[{"name":"gpu[01-NUMBER]","gpus":[{"device":0,"type":"a100","cores":"0-NUMBER"}]}]]`,
	},
	"function from_mig_parted": {
		`["version: v1\nmig-configs:\n  all:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {\"1g.10gb\": NUMBER}\n","all"]`,
		`["version: v1\nmig-configs:\n  all:\n  - devices: [NUMBER]\n    mig-enabled: true\n    mig-devices: {\"1g.10gb\": 1}\n","all"]`,
	},
}

// numberAt is where a value has a number: names of attributes, and "*" for an element.
type numberAt []string

func (at numberAt) String() string { return strings.Join(at, ".") }

// settableNumbers finds all numbers that a configuration may set, at every level.
func settableNumbers(attributes []*tfprotov6.SchemaAttribute, at numberAt) []numberAt {
	var out []numberAt
	for _, a := range attributes {
		here := append(slices.Clone(at), a.Name)
		switch {
		case !a.Optional && !a.Required:
		case a.NestedType == nil:
			out = append(out, numbersIn(a.Type, here)...)
		default:
			if a.NestedType.Nesting != tfprotov6.SchemaObjectNestingModeSingle {
				here = append(here, "*")
			}
			out = append(out, settableNumbers(a.NestedType.Attributes, here)...)
		}
	}
	return out
}

func numbersIn(t tftypes.Type, at numberAt) []numberAt {
	var out []numberAt
	if t.Is(tftypes.Number) {
		return []numberAt{at}
	}
	if o, ok := t.(tftypes.Object); ok {
		for _, name := range slices.Sorted(maps.Keys(o.AttributeTypes)) {
			out = append(out, numbersIn(o.AttributeTypes[name], append(slices.Clone(at), name))...)
		}
	}
	if of := elementOf(t); of != nil {
		out = append(out, numbersIn(of, append(slices.Clone(at), "*"))...)
	}
	return out
}

// put is a value with a number somewhere, and with what there must be around it.
func (at numberAt) put(v tftypes.Value, n *big.Float) tftypes.Value {
	t := v.Type()
	if len(at) == 0 {
		return tftypes.NewValue(t, n)
	}
	var fields map[string]tftypes.Value
	var list []tftypes.Value
	switch t := t.(type) {
	case tftypes.Object:
		_ = v.As(&fields)
		fields = maps.Clone(fields)
		if len(fields) == 0 { // null
			fields = map[string]tftypes.Value{}
			for name, t := range t.AttributeTypes {
				fields[name] = tftypes.NewValue(t, nil)
			}
		}
		fields[at[0]] = at[1:].put(fields[at[0]], n)
		return tftypes.NewValue(t, fields)
	case tftypes.Map:
		_ = v.As(&fields)
		fields = maps.Clone(fields)
		if len(fields) == 0 {
			fields = map[string]tftypes.Value{"1g.10gb": tftypes.NewValue(t.ElementType, nil)}
		}
		for key := range fields {
			fields[key] = at[1:].put(fields[key], n)
		}
		return tftypes.NewValue(t, fields)
	}
	if _ = v.As(&list); len(list) == 0 {
		list = []tftypes.Value{tftypes.NewValue(elementOf(t), nil)}
	}
	list = slices.Clone(list)
	list[0] = at[1:].put(list[0], n)
	return tftypes.NewValue(t, list)
}

// valueFrom is what JSON says of a type; what it leaves out is null.
func valueFrom(t tftypes.Type, from any) tftypes.Value {
	switch from := from.(type) {
	case map[string]any:
		values := map[string]tftypes.Value{}
		if o, ok := t.(tftypes.Object); ok {
			for name, of := range o.AttributeTypes {
				values[name] = valueFrom(of, from[name])
			}
		} else {
			for key, v := range from {
				values[key] = valueFrom(elementOf(t), v)
			}
		}
		return tftypes.NewValue(t, values)
	case []any:
		list := []tftypes.Value{}
		for _, v := range from {
			list = append(list, valueFrom(elementOf(t), v))
		}
		return tftypes.NewValue(t, list)
	}
	return tftypes.NewValue(t, from)
}

// asWritten is what JSON says, of whatever type that is.
func asWritten(from any) tftypes.Value {
	switch from := from.(type) {
	case map[string]any:
		values, of := map[string]tftypes.Value{}, map[string]tftypes.Type{}
		for name, v := range from {
			values[name] = asWritten(v)
			of[name] = values[name].Type()
		}
		return tftypes.NewValue(tftypes.Object{AttributeTypes: of}, values)
	case []any:
		var list []tftypes.Value
		var of []tftypes.Type
		for _, v := range from {
			list = append(list, asWritten(v))
			of = append(of, list[len(list)-1].Type())
		}
		return tftypes.NewValue(tftypes.Tuple{ElementTypes: of}, list)
	case float64:
		return tftypes.NewValue(tftypes.Number, from)
	case bool:
		return tftypes.NewValue(tftypes.Bool, from)
	}
	return tftypes.NewValue(tftypes.String, from)
}

func float(text string) *big.Float {
	f, _, err := big.ParseFloat(text, 10, 512, big.ToNearestEven)
	if err != nil {
		panic(err)
	}
	return f
}

// extremes are what is tried of every number, beside its own bounds.
var extremes = []string{
	"-9223372036854775809", "-1", "0", "2147483648", "9007199254740993", "9223372036854775807", "18446744073709551616", "1e308", "0.5",
}

// meter holds each call to a second and 200 MiB. What goes on for good ends the tests, with its name, before the machine has
// no memory left.
type meter struct {
	t     *testing.T
	doing atomic.Pointer[call]
	calls int
}

type call struct {
	what      string
	began     time.Time
	allocated uint64
}

func allocated() uint64 {
	of := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(of)
	return of[0].Value.Uint64()
}

func newMeter(t *testing.T) *meter {
	t.Helper()
	m := &meter{t: t}
	go func() {
		for t.Context().Err() == nil {
			if c := m.doing.Load(); c != nil && (allocated()-c.allocated > 2<<30 || time.Since(c.began) > time.Minute) {
				panic("there is no end to " + c.what)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return m
}

// hold makes a call. What else the machine does may hold it up: of three times the quickest counts.
func (m *meter) hold(what string, do func()) {
	m.t.Helper()
	m.calls++
	var took time.Duration
	var took0 uint64
	for range 3 {
		c := &call{what, time.Now(), allocated()}
		m.doing.Store(c)
		do()
		m.doing.Store(nil)
		if took, took0 = time.Since(c.began), allocated()-c.allocated; took < time.Second && took0 < 200<<20 {
			return
		}
	}
	m.t.Errorf("%s takes %s and %d MiB", what, took, took0>>20)
}

// tried is one number of a schema in a configuration that has no fault without it, and with some value of it.
type tried struct {
	of     string
	at     numberAt
	base   tftypes.Value
	good   *big.Float
	values []*big.Float
}

// bounds adds the smallest and the largest whole number that are valid, and those beyond.
func (x *tried) bounds(valid func(*big.Float) bool) {
	good, accuracy := x.good.Int(nil)
	if accuracy != big.Exact {
		return
	}
	for _, sign := range []int64{1, -1} {
		in, out := new(big.Int).Set(good), new(big.Int)
		for step := big.NewInt(sign); ; step.Lsh(step, 1) {
			if out.Add(in, step); !valid(new(big.Float).SetPrec(512).SetInt(out)) || step.BitLen() > 70 {
				break
			}
			in.Set(out)
		}
		for new(big.Int).Abs(new(big.Int).Sub(out, in)).Cmp(big.NewInt(1)) > 0 {
			middle := new(big.Int).Rsh(new(big.Int).Add(in, out), 1)
			if valid(new(big.Float).SetPrec(512).SetInt(middle)) {
				in = middle
			} else {
				out = middle
			}
		}
		x.values = append(x.values, new(big.Float).SetPrec(512).SetInt(in), new(big.Float).SetPrec(512).SetInt(out))
	}
}

// extremesOf asks one provider everything that it can be asked about a number.
type extremesOf struct {
	*meter
	server  provider.Served
	schemas *tfprotov6.GetProviderSchemaResponse
	fleet   string
}

func (e *extremesOf) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *extremesOf) dynamic(v tftypes.Value) *tfprotov6.DynamicValue {
	e.t.Helper()
	d, err := tfprotov6.NewDynamicValue(v.Type(), v)
	e.must(err)
	return &d
}

// configure begins another run.
func (e *extremesOf) configure(config *tfprotov6.DynamicValue) {
	if config == nil {
		config = e.dynamic(valueFrom(e.schemas.Provider.ValueType(), map[string]any{"simulated_fleet": e.fleet, "owner": "test"}))
	}
	_, err := e.server.ConfigureProvider(e.t.Context(), &tfprotov6.ConfigureProviderRequest{Config: config})
	e.must(err)
}

func faultless(said []*tfprotov6.Diagnostic) bool {
	return !slices.ContainsFunc(said, func(d *tfprotov6.Diagnostic) bool { return d.Severity == tfprotov6.DiagnosticSeverityError })
}

func (e *extremesOf) valid(of string, v tftypes.Value) bool {
	e.t.Helper()
	kind, name, _ := strings.Cut(of, " ")
	config := e.dynamic(v)
	switch kind {
	case "resource":
		resp, err := e.server.ValidateResourceConfig(e.t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: name, Config: config})
		e.must(err)
		return faultless(resp.Diagnostics)
	case "data":
		resp, err := e.server.ValidateDataResourceConfig(e.t.Context(), &tfprotov6.ValidateDataResourceConfigRequest{
			TypeName: name, Config: config,
		})
		e.must(err)
		return faultless(resp.Diagnostics)
	case "list":
		resp, err := e.server.ValidateListResourceConfig(e.t.Context(), &tfprotov6.ValidateListResourceConfigRequest{
			TypeName: name, Config: config,
		})
		e.must(err)
		return faultless(resp.Diagnostics)
	case "action":
		resp, err := e.server.ValidateActionConfig(e.t.Context(), &tfprotov6.ValidateActionConfigRequest{ActionType: name, Config: config})
		e.must(err)
		return faultless(resp.Diagnostics)
	}
	resp, err := e.server.ValidateProviderConfig(e.t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: config})
	e.must(err)
	return faultless(resp.Diagnostics)
}

// try finds a configuration for a number, and the values of it that are worth trying.
func (e *extremesOf) try(of string, at numberAt, typ tftypes.Type) *tried {
	e.t.Helper()
	var small []*big.Float
	for _, s := range []string{"1", "2", "4", "128", "1024", "0.5"} {
		small = append(small, float(s))
	}
	for _, text := range bases[of] {
		var from any
		e.must(json.Unmarshal([]byte(strings.ReplaceAll(text, "FLEET", e.fleet)), &from))
		base := valueFrom(typ, from)
		for _, n := range small {
			if e.valid(of, at.put(base, n)) {
				x := &tried{of: of, at: at, base: base, good: n}
				for _, s := range extremes {
					x.values = append(x.values, float(s))
				}
				x.bounds(func(n *big.Float) bool { return e.valid(of, at.put(base, n)) })
				return x
			}
		}
	}
	e.t.Errorf("%s: no configuration in bases can have %s: add one", of, at)
	return nil
}

// resource plans creates, updates to and from a number, and destroys, and reads it.
func (e *extremesOf) resource(x *tried) {
	e.t.Helper()
	_, name, _ := strings.Cut(x.of, " ")
	s := e.schemas.ResourceSchemas[name]
	none := e.dynamic(tftypes.NewValue(s.ValueType(), nil))
	config := func(n *big.Float) tftypes.Value { return x.at.put(x.base, n) }
	plan := func(prior *tfprotov6.DynamicValue, from, to tftypes.Value, private []byte) *tfprotov6.PlanResourceChangeResponse {
		fields := map[string]tftypes.Value{} // as Terraform proposes it
		proposed := to
		if !from.IsNull() && !to.IsNull() {
			var was, is map[string]tftypes.Value
			e.must(from.As(&was))
			e.must(to.As(&is))
			maps.Copy(fields, is)
			for _, a := range s.Block.Attributes {
				if a.Computed && is[a.Name].IsNull() {
					fields[a.Name] = was[a.Name]
				}
			}
			proposed = tftypes.NewValue(to.Type(), fields)
		}
		resp, err := e.server.PlanResourceChange(e.t.Context(), &tfprotov6.PlanResourceChangeRequest{
			TypeName: name, Config: e.dynamic(to), PriorState: prior, ProposedNewState: e.dynamic(proposed), PriorPrivate: private,
		})
		e.must(err)
		return resp
	}
	e.configure(nil)
	planned := plan(none, tftypes.NewValue(s.ValueType(), nil), config(x.good), nil)
	state, err := planned.PlannedState.Unmarshal(s.ValueType())
	e.must(err)
	state, err = tftypes.Transform(state, func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if !v.IsKnown() {
			return tftypes.NewValue(v.Type(), nil), nil
		}
		return v, nil
	})
	e.must(err)
	fields := map[string]tftypes.Value{}
	e.must(state.As(&fields))
	for at, text := range map[string]string{"vm_id": rig.VMID(3), "owner_host": "hv01", "id": "vdi", "mode": "mps"} {
		if v, ok := fields[at]; ok && v.IsNull() {
			fields[at] = tftypes.NewValue(tftypes.String, text)
		}
	}
	state = tftypes.NewValue(s.ValueType(), fields)
	for _, n := range x.values {
		what := fmt.Sprintf("%s with %s = %s: ", x.of, x.at, n.Text('g', 25))
		to, had := config(n), x.at.put(state, n)
		e.configure(nil)
		e.hold(what+"its validation", func() { e.valid(x.of, to) })
		e.hold(what+"the plan of a create", func() { plan(none, tftypes.NewValue(s.ValueType(), nil), to, planned.PlannedPrivate) })
		e.configure(nil)
		e.hold(what+"the plan of an update to it", func() { plan(e.dynamic(state), state, to, planned.PlannedPrivate) })
		e.hold(what+"the plan of an update from it", func() { plan(e.dynamic(had), had, config(x.good), planned.PlannedPrivate) })
		e.configure(nil)
		e.hold(what+"the plan of a destroy", func() {
			plan(e.dynamic(had), had, tftypes.NewValue(s.ValueType(), nil), planned.PlannedPrivate)
		})
		e.hold(what+"its read", func() {
			_, err := e.server.ReadResource(e.t.Context(), &tfprotov6.ReadResourceRequest{
				TypeName: name, CurrentState: e.dynamic(had), Private: planned.PlannedPrivate,
			})
			e.must(err)
		})
		text, err := json.Marshal(generator{}.json(had))
		e.must(err)
		e.hold(what+"the upgrade of its state", func() {
			_, err := e.server.UpgradeResourceState(e.t.Context(), &tfprotov6.UpgradeResourceStateRequest{
				TypeName: name, Version: s.Version, RawState: &tfprotov6.RawState{JSON: text},
			})
			e.must(err)
		})
	}
}

// other asks about what is no resource.
func (e *extremesOf) other(x *tried) {
	e.t.Helper()
	kind, name, _ := strings.Cut(x.of, " ")
	for _, n := range x.values {
		config := e.dynamic(x.at.put(x.base, n))
		e.hold(fmt.Sprintf("%s with %s = %s", x.of, x.at, n.Text('g', 25)), func() {
			e.valid(x.of, x.at.put(x.base, n))
			switch kind {
			case "provider":
				e.configure(config)
				if x.at[0] == "hosts" {
					return // nobody is called
				}
				s := e.schemas.ResourceSchemas["gpu_vm_assignment"]
				v := e.dynamic(valueFrom(s.ValueType(), map[string]any{"vm": "avd-03", "partition": map[string]any{}}))
				_, err := e.server.PlanResourceChange(e.t.Context(), &tfprotov6.PlanResourceChangeRequest{
					TypeName: "gpu_vm_assignment", PriorState: e.dynamic(tftypes.NewValue(s.ValueType(), nil)), Config: v, ProposedNewState: v,
				})
				e.must(err)
			case "data":
				e.configure(nil)
				_, err := e.server.ReadDataSource(e.t.Context(), &tfprotov6.ReadDataSourceRequest{TypeName: name, Config: config})
				e.must(err)
			case "action":
				e.configure(nil)
				_, err := e.server.PlanAction(e.t.Context(), &tfprotov6.PlanActionRequest{ActionType: name, Config: config})
				e.must(err)
			case "list":
				e.configure(nil)
				e.list(name, config, 100)
			}
		})
	}
}

func (e *extremesOf) list(name string, config *tfprotov6.DynamicValue, limit int64) {
	e.t.Helper()
	stream, err := e.server.ListResource(e.t.Context(), &tfprotov6.ListResourceRequest{TypeName: name, Config: config, Limit: limit})
	e.must(err)
	for range stream.Results { // all are made
	}
}

// functions calls each function with each number of its samples.
func (e *extremesOf) functions() (numbers int) {
	e.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(e.schemas.Functions)) {
		if len(bases["function "+name]) == 0 {
			e.t.Errorf("function %s: bases has no arguments for it: add some", name)
		}
		for _, text := range bases["function "+name] {
			run := func(what, text string, at numberAt, n *big.Float) (refused string) {
				var list []any
				e.must(json.Unmarshal([]byte(text), &list))
				var arguments []*tfprotov6.DynamicValue
				for i, p := range e.schemas.Functions[name].Parameters {
					v := asWritten(list[i])
					if at != nil {
						v = at.inside(v, n)
					}
					d, err := tfprotov6.NewDynamicValue(p.Type, v)
					e.must(err)
					arguments = append(arguments, &d)
				}
				e.hold(what, func() {
					resp, err := e.server.CallFunction(e.t.Context(), &tfprotov6.CallFunctionRequest{Name: name, Arguments: arguments})
					e.must(err)
					if resp.Error != nil {
						refused = resp.Error.Text
					}
				})
				return refused
			}
			if refused := run("function "+name, strings.ReplaceAll(text, "NUMBER", "1"), nil, nil); refused != "" {
				e.t.Errorf("function %s refuses %s: %s", name, text, refused)
			}
			var list []any
			e.must(json.Unmarshal([]byte(text), &list))
			places := numbersWritten(asWritten(list[0]), nil)
			if strings.Contains(text, "NUMBER") {
				places = append(places, nil)
			}
			for _, at := range places {
				numbers++
				for _, s := range extremes {
					run(fmt.Sprintf("function %s with %s = %s", name, at, s), strings.ReplaceAll(text, "NUMBER", s), at, float(s))
				}
			}
		}
	}
	return numbers
}

// numbersWritten finds the numbers of a value.
func numbersWritten(v tftypes.Value, at numberAt) []numberAt {
	var out []numberAt
	var fields map[string]tftypes.Value
	var list []tftypes.Value
	switch {
	case v.Type().Is(tftypes.Number):
		return []numberAt{at}
	case v.As(&fields) == nil:
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			out = append(out, numbersWritten(fields[name], append(slices.Clone(at), name))...)
		}
	case v.As(&list) == nil:
		for i, v := range list {
			out = append(out, numbersWritten(v, append(slices.Clone(at), fmt.Sprint(i)))...)
		}
	}
	return out
}

// inside is a value of no schema with another number somewhere.
func (at numberAt) inside(v tftypes.Value, n *big.Float) tftypes.Value {
	var fields map[string]tftypes.Value
	var list []tftypes.Value
	switch {
	case len(at) == 0 && v.Type().Is(tftypes.Number):
		return tftypes.NewValue(tftypes.Number, n)
	case len(at) > 0 && v.As(&fields) == nil:
		fields = maps.Clone(fields)
		fields[at[0]] = at[1:].inside(fields[at[0]], n)
		return tftypes.NewValue(v.Type(), fields)
	case len(at) > 0 && v.As(&list) == nil:
		list = slices.Clone(list)
		for i := range list {
			if fmt.Sprint(i) == at[0] {
				list[i] = at[1:].inside(list[i], n)
			}
		}
		return tftypes.NewValue(v.Type(), list)
	}
	return v
}

// However large or small a number is that somebody wrote, whether it is valid or not, an answer comes at once and takes little
// memory: for all numbers of all schemas, in plans of what is new, of what changes to it and from it, and of what goes, in reads, and
// in functions.
func TestNoNumberTakesTimeOrMemory(t *testing.T) { //nolint:paralleltest // what others allocate would count
	s := rig.TwoNodes()
	s.Hosts = slices.Concat(s.Hosts, rig.HGX(rig.H100, 2).Hosts, rig.KVM(rig.L40s(0), rig.L40s(1)).Hosts, rig.Inference(1).Hosts)
	r := rig.New(t, s)
	r.SetPool("hv01", "render", rig.GPU1)
	r.SetPool("hv02", "render", rig.GPU1)
	serve, err := provider.Server("test", nil, provider.WithPatience(time.Millisecond))
	r.Must(err)
	e := &extremesOf{meter: newMeter(t), server: serve(), fleet: r.Fleet.Path()}
	e.schemas, err = e.server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	r.Must(err)
	all := map[string]*tfprotov6.Schema{"provider": e.schemas.Provider}
	for kind, of := range map[string]map[string]*tfprotov6.Schema{
		"resource ": e.schemas.ResourceSchemas, "data ": e.schemas.DataSourceSchemas, "list ": e.schemas.ListResourceSchemas,
	} {
		for name, s := range of {
			all[kind+name] = s
		}
	}
	for name, s := range e.schemas.ActionSchemas {
		all["action "+name] = s.Schema
	}
	e.valid("provider", valueFrom(e.schemas.Provider.ValueType(), map[string]any{"simulated_fleet": e.fleet})) // a process validates first
	numbers := e.functions()
	for _, of := range slices.Sorted(maps.Keys(all)) {
		for _, at := range settableNumbers(all[of].Block.Attributes, nil) {
			numbers++
			x := e.try(of, at, all[of].ValueType())
			switch {
			case x == nil:
			case strings.HasPrefix(of, "resource "):
				e.resource(x)
			default:
				e.other(x)
			}
		}
		if name, ok := strings.CutPrefix(of, "list "); ok {
			e.configure(nil)
			for _, limit := range []int64{-1 << 63, -1, 0, 1, 1<<63 - 1} {
				e.hold(fmt.Sprintf("%s, at most %d", of, limit), func() {
					e.list(name, e.dynamic(valueFrom(all[of].ValueType(), map[string]any{})), limit)
				})
			}
		}
	}
	t.Logf("%d numbers, %d calls", numbers, e.calls)
	if numbers < 50 {
		t.Errorf("only %d numbers were found", numbers)
	}
}
