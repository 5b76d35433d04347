// Package core is a stand-in for Terraform core: it runs configurations against a
// provider's protocol server in this process, without a CLI, in the order and with as
// many calls at the same time as Terraform. It checks what Terraform checks of a
// provider's answers, and fails with its words. What it does not do as Terraform does, it
// refuses: an error names what, and that the test needs a real CLI.
//
// It proves that a provider keeps the contract as this package knows it. Only a real CLI
// proves that the contract is that.
package core

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Factory starts a provider. Each provider block of each walk gets one of its own, as
// each is a process of its own with a CLI.
type Factory = func() (tfprotov6.ProviderServer, error)

// Workspace is a configuration and a state, as a folder is for a CLI.
type Workspace struct {
	// Dir is the module's folder: path.module, and where file() reads.
	Dir string
	// Parallelism is how many operations run at the same time, 0 for Terraform's ten.
	Parallelism int
	// Shuffle, if it is set, decides which of the operations that could run runs next: it
	// gives a number from 0 to below n. Terraform promises no order but that of references.
	Shuffle func(n int) int

	factories map[string]Factory
	schemas   map[string]*schemas
	functions map[string]function.Function
	files     map[string]string
	state     *state
}

// New makes a workspace that has these providers, by name.
func New(ctx context.Context, factories map[string]Factory) (*Workspace, error) {
	w := &Workspace{
		factories: maps.Clone(factories), schemas: map[string]*schemas{}, functions: maps.Clone(builtins),
		files: map[string]string{}, state: newState(),
	}
	w.factories[builtin] = newTerraform
	for name, start := range w.factories {
		server, err := start()
		if err != nil {
			return nil, err
		}
		s, err := readSchemas(ctx, server)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		w.schemas[name] = s
		c := &client{schemas: s, key: name, server: server}
		own, err := c.functionsOf(ctx)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		for f, impl := range own {
			w.functions["provider::"+name+"::"+f] = impl
		}
	}
	return w, nil
}

// Write replaces the configuration.
func (w *Workspace) Write(text string) { w.files = map[string]string{"main.tf": text} }

func (w *Workspace) dir() string {
	if w.Dir == "" {
		return "."
	}
	return w.Dir
}

// fork is a workspace with the same providers and nothing in it.
func (w *Workspace) fork() *Workspace {
	return &Workspace{
		Dir: w.Dir, Parallelism: w.Parallelism, Shuffle: w.Shuffle, factories: w.factories, schemas: w.schemas,
		functions: w.functions, files: map[string]string{}, state: newState(),
	}
}

// Copy is another workspace with the same providers, configuration and state.
func (w *Workspace) Copy() *Workspace {
	c := w.fork()
	c.files, c.state = maps.Clone(w.files), w.state.clone()
	return c
}

type operation int

const (
	validating operation = iota
	planning
	applying
)

// walk is one way through a configuration, with providers of its own.
type walk struct {
	log
	ctx       context.Context
	core      *Workspace
	c         *config
	op        operation
	options   Options
	slots     *slots
	functions map[string]function.Function
	imports   map[string]*importing

	mu         sync.Mutex
	state      *state
	locals     map[string]cty.Value
	outputs    map[string]cty.Value
	clients    map[string]*client
	expansions map[string][]repetition
	changes    map[string]*change // by address
	progress   []Progress         // of an apply
	done       map[action]int
	order      *graph // what depends on what, by configuration
}

func (w *Workspace) walk(ctx context.Context, op operation, c *config, s *state) *walk {
	parallel := w.Parallelism
	if parallel == 0 {
		parallel = 10
	}
	functions := maps.Clone(w.functions)
	functions["file"] = fileFunction(w.dir())
	return &walk{
		ctx: ctx, core: w, c: c, op: op, slots: &slots{free: parallel, choose: w.Shuffle}, functions: functions, state: s,
		locals: map[string]cty.Value{}, outputs: map[string]cty.Value{}, clients: map[string]*client{},
		expansions: map[string][]repetition{}, changes: map[string]*change{},
	}
}

// slot runs something when fewer than so many others run.
func (w *walk) slot(run func() bool) bool {
	w.slots.take()
	defer w.slots.give()
	return run()
}

// slots are the places in which operations run.
type slots struct {
	choose func(n int) int

	mu      sync.Mutex
	free    int
	waiting []chan struct{}
}

func (s *slots) take() {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	<-turn
}

func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	next := 0
	if s.choose != nil {
		next = s.choose(len(s.waiting))
	}
	close(s.waiting[next])
	s.waiting = slices.Delete(s.waiting, next, next+1)
}

// together runs something for each at the same time.
func together[T any](all []T, run func(T) bool) bool {
	var wait sync.WaitGroup
	ok := make([]bool, len(all))
	for i, x := range all {
		wait.Go(func() { ok[i] = run(x) })
	}
	wait.Wait()
	return !slices.Contains(ok, false)
}

func providerNode(key string) string { return "provider " + key }

// layOut puts everything that is declared into a graph, in the order of references.
func (w *walk) layOut(resource func(*block) bool) *graph {
	g := newGraph()
	for name, e := range w.c.locals {
		g.add("local."+name, func() bool {
			v, diags := w.evaluate(e, cty.DynamicPseudoType)
			w.mu.Lock()
			w.locals[name] = v
			w.mu.Unlock()
			return w.add(diags...)
		}, expressionReferences(e)...)
	}
	for name, b := range w.c.outputs {
		g.add("output "+name, func() bool { return w.output(name, b) }, w.references(b)...)
	}
	used := map[string]bool{}
	for key, b := range w.c.resources {
		used[b.provider()] = true
		g.add(key, func() bool { return resource(b) }, append(w.references(b), providerNode(b.provider()))...)
	}
	for key := range w.c.providers {
		used[key] = true
	}
	if w.op != validating {
		for _, i := range w.state.instances {
			used[i.provider] = true
		}
	}
	for key := range used {
		var after []string
		if b := w.c.providers[key]; b != nil {
			after = w.references(b)
		}
		g.add(providerNode(key), func() bool { return w.slot(func() bool { return w.configure(key) }) }, after...)
	}
	return g
}

func (w *walk) output(name string, b *block) bool {
	a := b.meta["value"]
	if a == nil {
		return w.add(failure("Missing required argument", "The argument \"value\" is required, but no definition was found."))
	}
	v, diags := w.evaluate(a.Expr, cty.DynamicPseudoType)
	w.mu.Lock()
	w.outputs[name] = v
	w.mu.Unlock()
	return w.add(diags...)
}

// start starts the provider of a block that is called so.
func (w *walk) start(key string) (*client, bool) {
	name, alias, _ := strings.Cut(key, ".")
	start := w.core.factories[name]
	switch {
	case start == nil:
		return nil, w.add(failure("Inconsistent dependency lock file", "There is no provider %q.", name))
	case alias != "" && w.c.providers[key] == nil:
		return nil, w.add(failure("Provider configuration not present", "There is no provider block for %s.", key))
	}
	server, err := start()
	if err != nil {
		return nil, w.add(broken(err)...)
	}
	return &client{schemas: w.core.schemas[name], key: key, server: server, defers: w.op == applying}, true
}

// configure starts a provider and gives it its configuration.
func (w *walk) configure(key string) bool {
	c, ok := w.start(key)
	if !ok {
		return false
	}
	config, b := c.provider.null(), w.c.providers[key]
	address := providerAddress(key)
	if b != nil {
		var diags Diagnostics
		config, diags = w.decode(b, c.provider, nil)
		if !w.add(diags...) {
			return false
		}
	}
	if w.op == validating { // only what is written is known
		unset := b == nil
		if unset {
			return w.keep(c)
		}
	}
	d, err := encode(config, c.provider.ty)
	if err != nil {
		return w.add(broken(err)...)
	}
	valid, err := c.server.ValidateProviderConfig(w.ctx, &tfprotov6.ValidateProviderConfigRequest{Config: d})
	if err != nil {
		return w.add(broken(err)...)
	}
	if !w.add(fromProvider(valid.Diagnostics, address, b)...) || w.op == validating {
		return w.op == validating && w.keep(c)
	}
	reply, err := c.server.ConfigureProvider(w.ctx, &tfprotov6.ConfigureProviderRequest{TerraformVersion: version, Config: d})
	if err != nil {
		return w.add(broken(err)...)
	}
	return w.add(fromProvider(reply.Diagnostics, address, b)...) && w.keep(c)
}

// stop ends the providers, as Terraform ends their processes after each walk.
func (w *walk) stop() {
	for _, c := range w.clients {
		if server, ok := c.server.(io.Closer); ok {
			_ = server.Close() // what it was asked for it has done, or said why not
		}
	}
}

// version is of the Terraform that this package is like.
const version = "1.12.0"

func providerAddress(key string) string {
	return (&client{key: key}).label()
}

func (w *walk) keep(c *client) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients[c.key] = c
	return true
}

func (w *walk) client(key string) *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clients[key]
}

// check is an error with all that was said, if one of it is an error.
func (w *walk) check() error {
	if w.all.Failed() {
		return failed{w.all}
	}
	return nil
}

// validate does what `terraform validate` does, and every plan first.
func (w *Workspace) validate(ctx context.Context) (*config, Diagnostics) {
	c, diags := parse(w.files)
	if diags.Failed() {
		return c, diags
	}
	v := w.walk(ctx, validating, c, newState())
	v.add(diags...)
	g := v.layOut(func(b *block) bool { return v.slot(func() bool { return v.validate(b) }) })
	for _, b := range c.resources {
		name, _, _ := strings.Cut(b.provider(), ".")
		switch {
		case w.schemas[name] == nil:
			v.add(failure("Failed to resolve provider packages", "There is no provider %q.", name))
		case v.schemaOf(b) == nil:
			v.add(failure("Invalid "+strings.ReplaceAll(b.kind, "data", "data source")+" type", "The provider does not support %q.",
				b.typ))
		}
	}
	if v.all.Failed() {
		return c, v.all
	}
	v.add(g.walk()...)
	return c, v.all
}

func (w *walk) validate(b *block) bool {
	all, ok := w.expand(b)
	if !ok {
		return false
	}
	c := w.client(b.provider())
	s := c.schema(b)
	v, diags := w.decode(b, s, all[0].variables(b))
	if !w.add(diags...) {
		return false
	}
	return w.validateConfig(c, b, b.key, v)
}

// validateConfig asks the provider about a configuration.
func (w *walk) validateConfig(c *client, b *block, at string, v cty.Value) bool {
	d, err := encode(v, c.schema(b).ty)
	if err != nil {
		return w.add(broken(err)...)
	}
	var said []*tfprotov6.Diagnostic
	if b.data() {
		reply, err := c.server.ValidateDataResourceConfig(w.ctx, &tfprotov6.ValidateDataResourceConfigRequest{TypeName: b.typ, Config: d})
		if err != nil {
			return w.add(broken(err)...)
		}
		said = reply.Diagnostics
	} else {
		reply, err := c.server.ValidateResourceConfig(w.ctx, &tfprotov6.ValidateResourceConfigRequest{
			TypeName: b.typ, Config: d, ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
		})
		if err != nil {
			return w.add(broken(err)...)
		}
		said = reply.Diagnostics
	}
	return w.add(fromProvider(said, at, b)...)
}

// traversal reads an address of a text.
func traversal(text string) (address, error) {
	t, diags := parseTraversal(text)
	if diags.HasErrors() {
		return address{}, diags
	}
	return parseAddress(t)
}
