package core

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
)

// Apply carries a plan out. The state has what became of it, also when it fails.
func (p *Plan) Apply(ctx context.Context) (Diagnostics, error) {
	w := p.apply(ctx)
	return w.all, w.check()
}

func (p *Plan) apply(ctx context.Context) *walk {
	w := p.core.walk(ctx, applying, p.config, p.state.clone())
	defer w.stop()
	w.options, w.expansions, w.done = p.options, p.modes, map[action]int{}
	defer func() {
		w.state.serial = serials.Add(1)
		p.core.state = w.state
	}()
	for _, c := range p.changes {
		if c.deposed == nil {
			w.changes[c.String()] = c
		}
	}
	g := w.applyGraph(p)
	w.add(g.walk()...)
	w.finish(p)
	return w
}

// tell notes that something begins, or has been done.
func (w *walk) tell(x *change, done bool) {
	kind := x.action
	if kind.replaces() {
		kind = create
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress = append(w.progress, Progress{x.String(), kind.json()[0], done})
	if done {
		w.done[kind]++
	}
}

// finish writes the outputs that could be worked out.
func (w *walk) finish(p *Plan) {
	if p.options.Destroy {
		w.state.outputs = p.outputs
		return
	}
	for name, v := range w.outputs {
		if v.IsWhollyKnown() {
			w.state.outputs[name] = v
		}
	}
	for name := range w.state.outputs {
		if w.c.outputs[name] == nil {
			delete(w.state.outputs, name)
		}
	}
}

func (w *walk) applyGraph(p *Plan) *graph {
	var g *graph
	if p.options.Destroy {
		g = w.layOut(nil)
		for k := range g.nodes {
			if !strings.HasPrefix(k, "provider ") && !strings.HasPrefix(k, "local.") {
				delete(g.nodes, k)
			}
		}
	} else {
		g = w.layOut(func(*block) bool { return true })
	}
	used := map[string]bool{}
	creates := map[string][]string{}       // of a resource: its nodes that change it
	before := map[string]map[string]bool{} // of a resource: what all of these wait for, and not for each other
	for _, c := range p.changes {
		if c.action == noop || c.action == remove {
			continue
		}
		used[c.provider] = true
		key, group := "apply "+c.String(), g.nodes[c.resource]
		if before[c.resource] == nil {
			before[c.resource] = maps.Clone(group.after)
		}
		after := append(slices.Collect(maps.Keys(before[c.resource])), providerNode(c.provider))
		g.add(key, func() bool { return w.slot(func() bool { return w.applyChange(p, c) }) }, after...)
		group.after[key] = true
		creates[c.resource] = append(creates[c.resource], key)
	}
	type removal struct {
		node string
		c    *change
		last bool // after what replaces it
	}
	destroyed := map[string][]removal{}
	for _, c := range p.changes {
		if c.action != remove && !c.action.replaces() {
			continue
		}
		used[c.provider] = true
		r := removal{"destroy " + c.String(), c, c.action == swap}
		if c.deposed != nil {
			r.node, r.last = "destroy deposed "+c.String(), true
		}
		g.add(r.node, func() bool { return w.slot(func() bool { return w.destroy(p, c) }) }, providerNode(c.provider))
		destroyed[c.resource] = append(destroyed[c.resource], r)
		if c.action == replace {
			g.order("apply "+c.String(), r.node)
		}
		if c.action == swap {
			g.order(r.node, "apply "+c.String())
		}
	}
	for _, all := range destroyed {
		for _, r := range all {
			if r.c.prior == nil {
				continue
			}
			for _, earlier := range r.c.prior.waits {
				for _, dependency := range destroyed[earlier] { // what depends on a thing goes before it
					g.order(dependency.node, r.node)
				}
				if !r.last {
					for _, node := range creates[earlier] {
						g.order(node, r.node)
					}
				}
			}
		}
	}
	for _, c := range p.changes { // who depended on what goes, changes after it has gone, or before if that is kept for it
		if c.action == noop || c.action == remove || c.prior == nil {
			continue
		}
		for _, earlier := range append(slices.Clone(c.prior.waits), p.waits[c.resource]...) {
			for _, dependency := range destroyed[earlier] {
				if dependency.last {
					g.order(dependency.node, "apply "+c.String())
				} else if slices.Contains(c.prior.waits, earlier) {
					g.order("apply "+c.String(), dependency.node)
				}
			}
		}
	}
	for k := range g.nodes {
		if key, is := strings.CutPrefix(k, "provider "); is && !used[key] {
			delete(g.nodes, k)
		}
	}
	return g
}

// applyChange plans an instance again with what is known by now, compares, and applies.
func (w *walk) applyChange(p *Plan, planned *change) bool {
	b, a := planned.block, planned.address
	c := w.client(planned.provider)
	all, ok := w.expand(b)
	if !ok {
		return false
	}
	r := repetition{}
	for _, x := range all {
		if (address{b.key, x.key}).String() == a.String() {
			r = x
		}
	}
	if b.data() {
		return w.applyData(c, b, a, r, planned)
	}
	w.mu.Lock()
	o := w.state.object(a)
	if planned.action == swap && o != nil { // set aside until the new one is there
		i := w.state.instances[a.String()]
		i.deposed, i.current = append(i.deposed, o), nil
		o = nil
	}
	w.mu.Unlock()
	x, ok := w.planChange(c, b, a, r, o, planned, planned.cbd)
	if ok {
		ok = w.compare(c, planned, x)
	}
	if ok && x.action == noop {
		return true
	}
	if ok {
		ok = w.execute(c, p, x, o)
	}
	if !ok && planned.action == swap {
		w.mu.Lock()
		if i := w.state.instances[a.String()]; i != nil && i.current == nil && len(i.deposed) > 0 {
			last := len(i.deposed) - 1
			i.current, i.deposed = i.deposed[last], i.deposed[:last]
		}
		w.mu.Unlock()
	}
	return ok
}

// compare asserts that a change is still what was planned.
func (w *walk) compare(c *client, planned, now *change) bool {
	const when = "When expanding the plan for %s to include new values learned so far during apply, provider %q "
	ok := true
	name := strings.TrimSuffix(strings.TrimPrefix(c.label(), `provider["`), `"]`)
	if planned.action != now.action && (planned.action != update || now.action != noop) {
		ok = w.add(failure("Provider produced inconsistent final plan", when+"changed the planned action from %s to %s.%s",
			planned.address, name, planned.action.word(), now.action.word(), bug))
	}
	for _, err := range resultProblems(c.schema(planned.block).attributes, planned.after, now.after) {
		ok = w.add(failure("Provider produced inconsistent final plan", when+"produced an invalid new value for %s.%s",
			planned.address, name, problemText("", err), bug))
	}
	return ok
}

func (a action) word() string {
	return map[action]string{
		noop: "NoOp", create: "Create", update: "Update", remove: "Delete", replace: "DeleteThenCreate", swap: "CreateThenDelete", read: "Read",
	}[a]
}

// execute has the provider apply a change and keeps the result, whatever it is.
func (w *walk) execute(c *client, p *Plan, x *change, o *object) bool {
	typ, _ := x.parts()
	s := c.resources[typ]
	none := cty.NullVal(s.ty)
	before, config := x.before, none
	if x.action.replaces() {
		before = none
	}
	deletes := x.action == remove
	if !deletes {
		all, ok := w.expand(x.block)
		if !ok {
			return false
		}
		for _, r := range all {
			if (address{x.resource, r.key}).String() == x.String() {
				var diags Diagnostics
				if config, diags = w.decode(x.block, s, r.variables(x.block)); !w.add(diags...) {
					return false
				}
			}
		}
		if !config.IsWhollyKnown() {
			return w.add(failure("Configuration contains unknown value", "configuration for %s still contains unknown values during apply",
				x.address))
		}
	}
	id, err := c.identity(typ, x.identity)
	if err != nil {
		return w.add(broken(err)...)
	}
	req := &tfprotov6.ApplyResourceChangeRequest{TypeName: typ, PlannedPrivate: x.private, PlannedIdentity: id}
	for to, v := range map[**tfprotov6.DynamicValue]cty.Value{&req.PriorState: before, &req.Config: config, &req.PlannedState: x.after} {
		if *to, err = encode(v, s.ty); err != nil {
			return w.add(broken(err)...)
		}
	}
	w.tell(x, false)
	reply, err := c.server.ApplyResourceChange(w.ctx, req)
	if err != nil {
		return w.add(broken(err)...)
	}
	said := fromProvider(reply.Diagnostics, x.String(), x.block)
	after, missing, err := decode(reply.NewState, s.ty)
	switch {
	case err != nil:
		return w.add(append(said,
			failure("Provider produced invalid object",
				"Provider %q produced an invalid value after apply for %s: %v. The result cannot not be saved in the Terraform state.%s",
				c.label(), x.address, err, bug))...)
	case missing && !deletes:
		after = before
		if !said.Failed() {
			said = append(said, failure("Provider produced invalid object", "Provider %q produced an invalid nil value after apply for %s.%s",
				c.label(), x.address, bug))
		}
	}
	said = append(said, w.judge(c, s, x, after, said.Failed())...)
	after = cty.UnknownAsNull(after)
	identity, err := c.readIdentity(typ, reply.NewIdentity)
	if err != nil {
		said = append(said, broken(err)...)
	}
	result := &object{value: after, private: reply.Private, identity: identity, version: s.version, cbd: x.cbd}
	if deletes {
		result.waits = o.waits
	} else {
		result.waits = p.waits[x.resource]
	}
	failed := said.Failed()
	switch {
	case after.IsNull() && failed:
		result = o // as it was
	case after.IsNull():
		result = nil
	case failed:
		result.tainted = o != nil && o.tainted || o == nil
	}
	w.keepResult(x, result)
	if !failed {
		w.tell(x, true)
	}
	return w.add(said...)
}

func (w *walk) keepResult(x *change, result *object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.deposed == nil {
		w.state.set(x.address, x.provider, result)
		return
	}
	i := w.state.instances[x.String()]
	if i == nil {
		return
	}
	at := slices.Index(i.deposed, x.deposed)
	switch {
	case at < 0:
	case result == nil:
		i.deposed = slices.Delete(i.deposed, at, at+1)
	default:
		i.deposed[at] = result
	}
	w.state.drop(i)
}

// judge says what core finds wrong with a result.
func (w *walk) judge(c *client, s *schema, x *change, after cty.Value, failing bool) Diagnostics {
	var out Diagnostics
	deletes := x.action == remove
	_ = cty.Walk(after, func(path cty.Path, v cty.Value) (bool, error) {
		if !v.IsKnown() {
			out = append(out, failure("Provider returned invalid result object after apply",
				"After the apply operation, the provider still indicated an unknown value for %s%s. All values must be known after apply, so this is "+
					"always a bug in the provider and should be reported in the provider's own repository. "+
					"Terraform will still save the other known object values in the state.", x.address, pathText(path)))
		}
		return true, nil
	})
	if failing || out.Failed() {
		return out
	}
	if !deletes {
		for _, err := range resultProblems(s.attributes, x.after, after) {
			out = append(out, failure("Provider produced inconsistent result after apply",
				"When applying changes to %s, provider %q produced an unexpected new value: %s.%s", x.address,
				c.label(), strings.TrimPrefix(problemText("", err), ": "), bug))
		}
	}
	switch {
	case out.Failed():
	case deletes && !after.IsNull():
		out = append(out, failure("Provider returned invalid result object after apply",
			"After applying a %s plan, the provider returned a non-null object for %s. Destroying should always produce a null value, so this is "+
				"always a bug in the provider and should be reported in the provider's own repository.", x.action.word(), x.address))
	case !deletes && after.IsNull():
		out = append(out, failure("Provider returned invalid result object after apply",
			"After applying a %s plan, the provider returned a null object for %s. Only destroying should always produce a null value, so this is "+
				"always a bug in the provider and should be reported in the provider's own repository.", x.action.word(), x.address))
	}
	return out
}

// destroy removes an object: one that is not wanted any more, or one that is replaced.
func (w *walk) destroy(p *Plan, planned *change) bool {
	c, a := w.client(planned.provider), planned.address
	x := *planned
	x.action, x.block, x.identity = remove, nil, cty.NilVal
	x.after = cty.NullVal(planned.after.Type())
	w.mu.Lock()
	o := w.state.object(a)
	switch i := w.state.instances[a.String()]; {
	case planned.deposed != nil:
		o = planned.deposed
	case planned.action == swap && i != nil && len(i.deposed) > 0:
		o = i.deposed[len(i.deposed)-1]
		x.deposed = o
	}
	w.mu.Unlock()
	if o == nil {
		return true // it has gone already
	}
	x.before = o.value
	if x.deposed != nil { // it is planned again, since only now it has been set aside
		again, ok := w.planRemoval(c, a, o)
		if !ok {
			return false
		}
		x.private = again.private
	}
	return w.execute(c, p, &x, o)
}

func (w *walk) applyData(c *client, b *block, a address, r repetition, planned *change) bool {
	config, diags := w.decode(b, c.schema(b), r.variables(b))
	if !w.add(diags...) {
		return false
	}
	if !config.IsWhollyKnown() {
		return w.add(failure("Configuration contains unknown value", "configuration for %s still contains unknown values during apply", a))
	}
	v, ok := w.readData(c, b, a, config)
	if !ok {
		return false
	}
	w.put(a, planned.provider, &object{value: v, version: c.schema(b).version})
	return true
}
