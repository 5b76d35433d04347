package core

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
)

// planChange asks the provider what to do with an instance, and checks the answer. In
// the apply it is asked again, after what was planned first.
func (w *walk) planChange(c *client, b *block, a address, r repetition, o *object, first *change, cbd bool) (*change, bool) {
	s := c.schema(b)
	if first != nil {
		cbd = first.action == swap
	}
	config, diags := w.decode(b, s, r.variables(b))
	if !w.add(diags...) {
		return nil, false
	}
	none := cty.NullVal(s.ty)
	prior, tainted, private, identity := none, none, []byte(nil), cty.NilVal
	switch {
	case o == nil:
	case o.tainted:
		tainted = o.value
	default:
		prior, private, identity = o.value, o.private, o.identity
	}
	if !w.validateConfig(c, b, a.String(), config) {
		return nil, false
	}
	ask := func(prior cty.Value, private []byte, identity cty.Value, again bool) (*tfprotov6.PlanResourceChangeResponse, cty.Value, bool) {
		id, err := c.identity(b.typ, identity)
		if err != nil {
			return nil, none, w.add(broken(err)...)
		}
		req := &tfprotov6.PlanResourceChangeRequest{
			TypeName: b.typ, PriorPrivate: private, PriorIdentity: id, ClientCapabilities: &tfprotov6.PlanResourceChangeClientCapabilities{
				DeferralAllowed: c.defers,
			},
		}
		for to, v := range map[**tfprotov6.DynamicValue]cty.Value{
			&req.PriorState: prior, &req.Config: config, &req.ProposedNewState: proposed(s.attributes, prior, config),
		} {
			if *to, err = encode(v, s.ty); err != nil {
				return nil, none, w.add(broken(err)...)
			}
		}
		reply, err := c.server.PlanResourceChange(w.ctx, req)
		if err != nil {
			return nil, none, w.add(broken(err)...)
		}
		// The warnings of a replacement's second call have been given with the first.
		if said := fromProvider(reply.Diagnostics, a.String(), b); (said.Failed() || !again) && !w.add(said...) {
			return nil, none, false
		}
		planned, _, err := decode(reply.PlannedState, s.ty)
		if err != nil {
			return nil, none,
				w.add(failure("Provider produced invalid plan", "Provider %q planned an invalid value for %s: %v.%s",
					c.label(), a, err, bug).on(a.String()))
		}
		return reply, planned, true
	}
	reply, planned, ok := ask(prior, private, identity, false)
	if !ok {
		return nil, false
	}
	if wrong := planProblems(s.attributes, prior, config, planned); len(wrong) > 0 {
		for _, err := range wrong {
			w.add(failure("Provider produced invalid plan", "Provider %q planned an invalid value for %s.%s",
				c.label(), problemText(a.String(), err), bug))
		}
		return nil, false
	}
	x := &change{address: a, provider: c.key, before: prior, after: planned, private: reply.PlannedPrivate, prior: o, block: b, cbd: cbd}
	var err error
	if x.identity, err = c.readIdentity(b.typ, reply.PlannedIdentity); err != nil {
		return nil, w.add(broken(err)...)
	}
	for _, p := range reply.RequiresReplace {
		path := pathOf(p)
		was, wrongBefore := hcl.ApplyPath(prior, path, nil)
		will, wrongAfter := hcl.ApplyPath(planned, path, nil)
		switch {
		case prior.IsNull():
			continue
		case wrongBefore.HasErrors() && wrongAfter.HasErrors():
			return nil, w.add(failure("Provider produced invalid plan",
				"Provider %q has indicated \"requires replacement\" on %s for a non-existent attribute path %s.%s", c.label(), a, pathText(path), bug))
		case wrongBefore.HasErrors() || wrongAfter.HasErrors() || !same(was, will) || !will.IsWhollyKnown():
			x.replacePaths = append(x.replacePaths, path)
		}
	}
	forced := slices.Contains(w.options.Replace, a.String())
	unchanged := planned.IsWhollyKnown() && planned.RawEquals(prior)
	way := replace
	if cbd {
		way = swap
	}
	switch {
	case prior.IsNull():
		x.action = create
	case unchanged && !forced:
		x.action = noop
	case forced || len(x.replacePaths) > 0:
		x.action = way
	default:
		x.action = update
	}
	if x.action.replaces() {
		x.reason = "cannot_update"
		if reply, planned, ok = ask(none, x.private, cty.NilVal, true); !ok {
			return nil, false
		}
		x.after, x.private = planned, reply.PlannedPrivate
		if x.identity, err = c.readIdentity(b.typ, reply.PlannedIdentity); err != nil {
			return nil, w.add(broken(err)...)
		}
	}
	if x.action == create && !tainted.IsNull() {
		x.action, x.before, x.reason = way, tainted, "tainted"
	}
	if first != nil && first.action.replaces() && x.action == create {
		x.action, x.before = first.action, first.before
	}
	return x, true
}

// orphan plans that an instance goes which is no longer declared.
func (w *walk) orphan(i *instance) bool {
	a := i.address
	if a.data() {
		w.put(a, "", nil)
		return true
	}
	c := w.client(i.provider)
	o := i.current
	if o != nil {
		var ok bool
		if o, ok = w.fetch(c, a, o, nil); !ok {
			return false
		}
		w.put(a, c.key, o)
	}
	if o != nil && !w.options.RefreshOnly {
		x, ok := w.planRemoval(c, a, o)
		if !ok {
			return false
		}
		w.note(x)
	}
	return w.planDeposed(i)
}

func (w *walk) planDeposed(i *instance) bool {
	c := w.client(i.provider)
	for n, o := range i.deposed {
		o, ok := w.fetch(c, i.address, o, nil)
		if !ok {
			return false
		}
		w.mu.Lock()
		if at := w.state.instances[i.String()]; at != nil && n < len(at.deposed) {
			at.deposed[n] = o
		}
		w.mu.Unlock()
		if o == nil || w.options.RefreshOnly {
			continue
		}
		x, ok := w.planRemoval(c, i.address, o)
		if !ok {
			return false
		}
		x.deposed = o
		w.note(x)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.state.instances[i.String()]; at != nil {
		at.deposed = slices.DeleteFunc(at.deposed, func(o *object) bool { return o == nil })
		w.state.drop(at)
	}
	return true
}

// planRemoval asks the provider about an object that is to be destroyed.
func (w *walk) planRemoval(c *client, a address, o *object) (*change, bool) {
	typ, _ := a.parts()
	s := c.resources[typ]
	none := cty.NullVal(s.ty)
	id, err := c.identity(typ, o.identity)
	if err != nil {
		return nil, w.add(broken(err)...)
	}
	req := &tfprotov6.PlanResourceChangeRequest{
		TypeName: typ, PriorPrivate: o.private, PriorIdentity: id, ClientCapabilities: &tfprotov6.PlanResourceChangeClientCapabilities{
			DeferralAllowed: c.defers,
		},
	}
	for to, v := range map[**tfprotov6.DynamicValue]cty.Value{&req.PriorState: o.value, &req.Config: none, &req.ProposedNewState: none} {
		if *to, err = encode(v, s.ty); err != nil {
			return nil, w.add(broken(err)...)
		}
	}
	reply, err := c.server.PlanResourceChange(w.ctx, req)
	if err != nil {
		return nil, w.add(broken(err)...)
	}
	if !w.add(fromProvider(reply.Diagnostics, a.String(), nil)...) {
		return nil, false
	}
	planned, _, err := decode(reply.PlannedState, s.ty)
	if err != nil {
		return nil, w.add(broken(err)...)
	}
	if !planned.IsNull() {
		return nil, w.add(failure("Provider produced invalid plan", "Provider %q planned a non-null destroy value for %s.%s", c.label(), a, bug))
	}
	return &change{
		address: a, action: remove, provider: c.key, before: o.value, after: none, private: reply.PlannedPrivate, prior: o, cbd: o.cbd,
	}, true
}

// planData reads a data source, or plans that it is read in the apply.
func (w *walk) planData(b *block, a address, r repetition) bool {
	c := w.client(b.provider())
	s := c.schema(b)
	config, diags := w.decode(b, s, r.variables(b))
	if !w.add(diags...) {
		return false
	}
	pending := false
	for _, t := range b.traversals("depends_on") {
		w.mu.Lock()
		for _, x := range w.changes {
			if x.resource == refers(t) && x.action != noop {
				pending = true
			}
		}
		w.mu.Unlock()
	}
	if !config.IsWhollyKnown() || pending {
		w.note(&change{
			address: a, action: read, provider: c.key, before: cty.NullVal(s.ty), after: proposedUnknown(s.attributes, config), block: b,
		})
		return true
	}
	v, ok := w.readData(c, b, a, config)
	if !ok {
		return false
	}
	w.put(a, c.key, &object{value: v, version: s.version})
	return true
}

// proposedUnknown is a configuration of which all that is computed is unknown.
func proposedUnknown(s attributes, config cty.Value) cty.Value {
	values := map[string]cty.Value{}
	for name, a := range s {
		values[name] = config.GetAttr(name)
		if a.computed && values[name].IsNull() {
			values[name] = cty.UnknownVal(a.ty)
		}
	}
	return cty.ObjectVal(values)
}

func (w *walk) readData(c *client, b *block, a address, config cty.Value) (cty.Value, bool) {
	s := c.schema(b)
	if !w.validateConfig(c, b, a.String(), config) {
		return cty.NilVal, false
	}
	d, err := encode(config, s.ty)
	if err != nil {
		return cty.NilVal, w.add(broken(err)...)
	}
	reply, err := c.server.ReadDataSource(w.ctx, &tfprotov6.ReadDataSourceRequest{
		TypeName: b.typ, Config: d, ClientCapabilities: &tfprotov6.ReadDataSourceClientCapabilities{DeferralAllowed: c.defers},
	})
	if err != nil {
		return cty.NilVal, w.add(broken(err)...)
	}
	if !w.add(fromProvider(reply.Diagnostics, a.String(), b)...) {
		return cty.NilVal, false
	}
	v, _, err := decode(reply.State, s.ty)
	switch {
	case err != nil:
		return v, w.add(failure("Provider produced invalid object", "Provider %q produced an invalid value for %s: %v.%s",
			c.label(), a, err, bug))
	case v.IsNull():
		return v, w.add(failure("Provider produced null object", "Provider %q produced a null value for %s.%s", c.label(), a, bug))
	case !v.IsWhollyKnown():
		return v, w.add(failure("Provider produced invalid object", "Provider %q produced a value for %s that is not wholly known.%s",
			c.label(), a, bug))
	}
	return v, true
}
