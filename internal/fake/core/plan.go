package core

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Options of a plan, as the CLI's.
type Options struct {
	Destroy, RefreshOnly, NoRefresh bool
	Targets, Replace                []string
}

// Action is what a plan means to do with an instance.
type action string

const (
	noop    action = "no-op"
	create  action = "create"
	update  action = "update"
	remove  action = "delete"
	replace action = "delete-create"
	swap    action = "create-delete" // create before destroy
	read    action = "read"
)

func (a action) replaces() bool { return a == replace || a == swap }

type change struct {
	address
	action
	provider      string
	before, after cty.Value
	private       []byte
	identity      cty.Value
	replacePaths  []cty.Path
	reason        string
	importing     *importing
	prior         *object // as it was refreshed
	block         *block
	deposed       *object // what it deletes, if not the current object
	cbd           bool
}

type importing struct {
	to       address
	id       string
	identity cty.Value // NilVal for none
	in       *block
}

// Plan is a plan that can be applied.
type Plan struct {
	core     *Workspace
	config   *config
	options  Options
	state    *state // refreshed
	serial   int64  // of the state that it is for
	changes  []*change
	outputs  map[string]cty.Value
	before   map[string]cty.Value // outputs
	modes    map[string][]repetition
	waits    map[string][]string // of a resource: resources that it depends on, directly or not
	warnings Diagnostics
}

func parseTraversal(text string) (hcl.Traversal, hcl.Diagnostics) {
	return hclsyntax.ParseTraversalAbs([]byte(text), "address", hcl.InitialPos)
}

// Plan validates, reads and plans. The error has the diagnostics.
func (w *Workspace) Plan(ctx context.Context, options Options) (*Plan, error) {
	c, diags := w.validate(ctx)
	if diags.Failed() {
		return nil, failed{diags}
	}
	if options.Destroy {
		base := w.state
		if !options.NoRefresh {
			// Terraform plans the configuration first, for what is read on the way.
			refreshed := w.plan(ctx, c, Options{Targets: options.Targets}, w.state.clone())
			if refreshed.all.Failed() {
				return nil, failed{refreshed.all}
			}
			base = refreshed.state
		}
		return w.planDestroy(ctx, c, options, base.clone())
	}
	p := w.plan(ctx, c, options, w.state.clone())
	if err := p.check(); err != nil {
		return nil, err
	}
	return p.result(), nil
}

func (w *walk) result() *Plan {
	out := &Plan{
		core: w.core, config: w.c, options: w.options, state: w.state, outputs: w.outputs, before: w.core.state.outputs,
		modes: w.expansions, waits: w.waits(), warnings: w.all, serial: w.core.state.serial,
	}
	for _, c := range w.changes {
		out.changes = append(out.changes, c)
	}
	slices.SortFunc(out.changes, func(a, b *change) int { return compareAddresses(a.address, b.address) })
	if w.options.RefreshOnly {
		out.changes = nil
	}
	return out
}

// waits is what every resource depends on, by configuration.
func (w *walk) waits() map[string][]string {
	out := map[string][]string{}
	for key := range w.c.resources {
		for k := range w.order.reach(key) {
			if w.c.resources[k] != nil && k != key {
				out[key] = append(out[key], k)
			}
		}
		slices.Sort(out[key])
	}
	return out
}

func (w *Workspace) plan(ctx context.Context, c *config, options Options, s *state) *walk {
	p := w.walk(ctx, planning, c, s)
	defer p.stop()
	p.options = options
	p.add(p.move()...)
	p.readImports()
	g := p.layOut(p.resource)
	for _, i := range s.sorted() {
		if c.resources[i.resource] == nil { // it was declared once
			g.add("orphan "+i.String(), func() bool { return p.slot(func() bool { return p.orphan(i) }) }, providerNode(i.provider))
		}
	}
	p.order = &graph{nodes: maps.Clone(g.nodes)}
	if len(options.Targets) > 0 {
		p.target(g)
	}
	p.prune(g)
	if p.all.Failed() {
		return p
	}
	p.add(g.walk()...)
	return p
}

// prune leaves out the providers that nothing uses.
func (w *walk) prune(g *graph) {
	used := map[string]bool{}
	for _, n := range g.nodes {
		for k := range n.after {
			used[k] = true
		}
	}
	for k := range g.nodes {
		if strings.HasPrefix(k, "provider ") && !used[k] && w.c.providers[strings.TrimPrefix(k, "provider ")] == nil {
			delete(g.nodes, k)
		}
	}
}

// target leaves what is not needed for the targets out of a graph.
func (w *walk) target(g *graph) {
	keep := map[string]bool{}
	for _, text := range w.options.Targets {
		a, err := traversal(text)
		if err != nil {
			w.add(failure("Invalid target", "%v", err))
			continue
		}
		for k := range g.nodes {
			if k == a.resource || k == "orphan "+a.String() || k == "orphan "+a.resource {
				keep[k] = true
				maps.Copy(keep, g.reach(k))
			}
		}
	}
	for k := range g.nodes {
		if !keep[k] {
			delete(g.nodes, k)
		}
	}
	w.add(Diagnostic{Warning: true, Summary: "Resource targeting is in effect", Detail: "You are creating a plan with the -target option."})
}

// targeted tells whether an instance is within the targets, if its resource is there
// for its own sake.
func (w *walk) targeted(a address) bool {
	named := false
	for _, text := range w.options.Targets {
		t, err := traversal(text)
		if err != nil || t.resource != a.resource {
			continue
		}
		if t.key == cty.NilVal || t.String() == a.String() {
			return true
		}
		named = true
	}
	return !named
}

// move gives what is in the state its new addresses.
func (w *walk) move() Diagnostics {
	for _, b := range w.c.moved {
		var at [2]address
		for n, name := range []string{"from", "to"} {
			a := b.meta[name]
			if a == nil {
				return Diagnostics{
					failure("Missing required argument", "The argument %q is required, but no definition was found.", name),
				}
			}
			t, wrong := hcl.AbsTraversalForExpr(a.Expr)
			if wrong.HasErrors() {
				return fromHCL(wrong)
			}
			var err error
			if at[n], err = parseAddress(t); err != nil {
				return Diagnostics{unsupported("The address in moved")}
			}
		}
		for _, i := range w.state.of(at[0].resource) {
			if at[0].key != cty.NilVal && at[0].String() != i.String() {
				continue
			}
			delete(w.state.instances, i.String())
			if at[0].key == cty.NilVal && at[1].key == cty.NilVal {
				i.resource = at[1].resource
			} else {
				i.address = at[1]
			}
			w.state.instances[i.String()] = i
		}
	}
	return nil
}

func (w *walk) readImports() {
	w.imports = map[string]*importing{}
	for _, b := range w.c.imports {
		x := &importing{in: b}
		to := b.meta["to"]
		if to == nil {
			w.add(failure("Missing required argument", "The argument \"to\" is required, but no definition was found."))
			continue
		}
		t, wrong := hcl.AbsTraversalForExpr(to.Expr)
		if !w.add(fromHCL(wrong)...) {
			continue
		}
		var err error
		if x.to, err = parseAddress(t); err != nil {
			w.add(unsupported("The address of an import"))
			continue
		}
		if w.c.resources[x.to.resource] == nil {
			w.add(failure("Configuration for import target does not exist",
				"The configuration for the given import target %s does not exist. All target instances must have an associated configuration to be "+
					"imported (generated configuration %v).", x.to, errUnsupported))
			continue
		}
		switch {
		case b.meta["id"] != nil:
			v, diags := w.evaluate(b.meta["id"].Expr, cty.String)
			if !w.add(diags...) {
				continue
			}
			if !v.IsKnown() || v.IsNull() {
				w.add(unsupported("An import id that is not known"))
				continue
			}
			x.id = v.AsString()
		case b.meta["identity"] != nil:
			v, diags := w.evaluate(b.meta["identity"].Expr, cty.DynamicPseudoType)
			if !w.add(diags...) {
				continue
			}
			x.identity = v
		}
		w.imports[x.to.String()] = x
	}
}

// resource plans all instances of a block.
func (w *walk) resource(b *block) bool {
	all, ok := w.expand(b)
	if !ok {
		return false
	}
	w.mu.Lock()
	w.expansions[b.key] = all
	left := w.state.of(b.key)
	w.mu.Unlock()
	wanted := map[string]bool{}
	for _, r := range all {
		wanted[(address{b.key, r.key}).String()] = true
	}
	// What is declared and what is not any more are planned in any order.
	var nodes []func() bool
	for _, r := range all {
		a := address{b.key, r.key}
		if !w.targeted(a) {
			continue
		}
		nodes = append(nodes, func() bool {
			if b.data() {
				return w.planData(b, a, r)
			}
			return w.planManaged(b, a, r, w.forcedSwap(b.key))
		})
	}
	for _, i := range left {
		switch {
		case wanted[i.String()] && len(i.deposed) > 0:
			nodes = append(nodes, func() bool { return w.planDeposed(i) })
		case !wanted[i.String()] && w.targeted(i.address):
			nodes = append(nodes, func() bool { return w.orphan(i) })
		}
	}
	return together(nodes, w.slot)
}

// forcedSwap tells whether a resource is created before it is destroyed: because it says
// so, or because a resource that depends on it does.
func (w *walk) forcedSwap(key string) bool {
	for k, b := range w.c.resources {
		if b.flag("create_before_destroy") && (k == key || w.order.reach(k)[key]) {
			return true
		}
	}
	return false
}

// fetch brings an object of the state up to date: schema, and what the provider reads.
func (w *walk) fetch(c *client, a address, o *object, b *block) (*object, bool) {
	o, diags := c.upgrade(w.ctx, a, o)
	if !w.add(diags...) {
		return nil, false
	}
	if w.options.NoRefresh {
		return o, true
	}
	o, diags = c.read(w.ctx, a, o, b)
	return o, w.add(diags...)
}

func (w *walk) put(a address, provider string, o *object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.set(a, provider, o)
}

func (w *walk) note(c *change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := c.String()
	if c.deposed != nil {
		key += " (deposed)"
		for w.changes[key] != nil {
			key += "+"
		}
	}
	w.changes[key] = c
}

func (w *walk) planManaged(b *block, a address, r repetition, cbd bool) bool {
	c := w.client(b.provider())
	w.mu.Lock()
	o := w.state.object(a)
	w.mu.Unlock()
	var from *importing
	var ok bool
	if o == nil {
		if from = w.imports[a.String()]; from != nil {
			if o, ok = w.importObject(c, from, b); !ok {
				return false
			}
		}
	} else if o, ok = w.fetch(c, a, o, b); !ok {
		return false
	}
	w.put(a, c.key, o)
	if w.options.RefreshOnly {
		if o != nil {
			w.note(&change{address: a, action: noop, provider: c.key, before: o.value, after: o.value, prior: o, block: b})
		}
		return true
	}
	x, ok := w.planChange(c, b, a, r, o, nil, cbd)
	if !ok {
		return false
	}
	x.importing = from
	w.note(x)
	return true
}

// planDestroy plans that everything goes.
func (w *Workspace) planDestroy(ctx context.Context, c *config, options Options, s *state) (*Plan, error) {
	p := w.walk(ctx, planning, c, s)
	defer p.stop()
	p.options = options
	p.options.NoRefresh = true
	g := p.layOut(func(*block) bool { return true })
	p.order = &graph{nodes: maps.Clone(g.nodes)}
	for k := range g.nodes {
		if !strings.HasPrefix(k, "provider ") && !strings.HasPrefix(k, "local.") {
			delete(g.nodes, k)
		}
	}
	chosen := p.destroyTargets()
	for _, i := range s.sorted() {
		if chosen != nil && !chosen[i.resource] && !chosen[i.String()] {
			continue
		}
		g.add("orphan "+i.String(), func() bool { return p.slot(func() bool { return p.orphan(i) }) }, providerNode(i.provider))
	}
	p.prune(g)
	for k := range g.nodes { // nothing to destroy: no provider is asked
		used := false
		for _, n := range g.nodes {
			used = used || n.after[k]
		}
		if strings.HasPrefix(k, "provider ") && !used {
			delete(g.nodes, k)
		}
	}
	if p.all.Failed() {
		return nil, p.check()
	}
	p.add(g.walk()...)
	if err := p.check(); err != nil {
		return nil, err
	}
	out := p.result()
	if chosen == nil {
		out.outputs = map[string]cty.Value{}
	} else {
		out.outputs = w.state.outputs
	}
	return out, nil
}

// destroyTargets are the resources and instances that targets name, and what depends on
// them; nil for everything.
func (w *walk) destroyTargets() map[string]bool {
	if len(w.options.Targets) == 0 {
		return nil
	}
	out := map[string]bool{}
	for _, text := range w.options.Targets {
		a, err := traversal(text)
		if err != nil {
			w.add(failure("Invalid target", "%v", err))
			continue
		}
		out[a.String()] = true
		for _, i := range w.state.instances {
			if i.current != nil && slices.Contains(i.current.waits, a.resource) {
				out[i.resource] = true
			}
		}
	}
	return out
}
