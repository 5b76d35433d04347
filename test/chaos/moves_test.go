//go:build linux

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// operation is one of the operations of a phase.
type operation struct {
	number int
	by     *state // nil for other hands
	what   string
	// hcl is the configuration of the state from this operation on.
	hcl string
	// commands of the CLI, in order. A later one runs whatever became of an earlier one.
	commands [][]string
	// refused operations have to fail.
	refused bool
	strikes []strike
	// hand is what other hands do.
	hand func(*harness) string
}

// generator makes the operations of a seed. It depends on nothing that happens.
type generator struct {
	*model
	rng    *rand.Rand
	number int
}

func pick[T any](rng *rand.Rand, list []T) (T, bool) {
	var none T
	if len(list) == 0 {
		return none, false
	}
	return list[rng.IntN(len(list))], true
}

func one[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

var apply = []string{"apply", "-auto-approve"}

// move is a kind of operation of a state; it returns nil when there is nothing to do it to.
type move struct {
	weight int
	make   func(*generator, *state) *operation
}

var moves = []move{
	{12, (*generator).grow},
	{12, (*generator).addUser},
	{12, (*generator).relayout},
	{8, (*generator).tweak},
	{7, (*generator).relabel},
	{3, (*generator).rename},
	{4, (*generator).moveVM},
	{6, (*generator).dropUser},
	{4, (*generator).dropSite},
	{5, (*generator).forgetAndImport},
	{3, (*generator).forgetAndApply},
	{3, (*generator).handOver},
	{2, (*generator).destroyAll},
	{4, (*generator).savedPlan},
	{3, (*generator).look},
	{3, (*generator).poach},
}

// operationOf makes a random operation of a state.
func (g *generator) operationOf(s *state) *operation {
	total := 0
	for _, m := range moves {
		total += m.weight
	}
	for {
		n := g.rng.IntN(total)
		i := slices.IndexFunc(moves, func(m move) bool { n -= m.weight; return n < 0 })
		op := moves[i].make(g, s)
		if op == nil {
			continue
		}
		g.number++
		op.number, op.by = g.number, s
		if op.hcl == "" {
			op.hcl = s.hcl()
		}
		if op.commands == nil {
			op.commands = [][]string{apply}
		}
		op.strikes = g.strikes(len(op.commands))
		return op
	}
}

// layouts of each kind, all of which have room for what uses the site.
var layouts = map[string][]string{
	"gpu_p": {"partition_count = 4", "partition_count = 8", "partition_count = 16"},
	"mig": {
		`profiles = { "1g.10gb" = 7 }`, `profiles = { "3g.40gb" = 2 }`, `profiles = { "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 }`,
		`placements = [{ profile = "3g.40gb", start = 4 }, { profile = "1g.10gb", start = 0 }]`,
	},
	"mps":          {"uid = 1000", "uid = 1000, active_thread_percentage = 50, pinned_memory_limit_mib = 20480", "multi_user = true"},
	"time_slicing": {`replicas = 4, interval = "long"`, `replicas = 4, interval = "short"`, "replicas = 6"},
	"vgpu":         {`type = "L40S-12Q"`, `type = "L40S-12Q", count = 2`, `type = "L40S-24Q"`},
}

// users is how many VMs or shares use an object at most.
func users(o *object) int {
	switch {
	case o.typ == typePool:
		return 1
	case o.kind == "gpu_p" && o.site.pinned:
		return 3
	case o.kind == "gpu_p":
		return 5
	case o.kind == "mps", o.kind == "time_slicing":
		return 3
	}
	return 0
}

// freeVM finds a VM that may use a site.
func (g *generator) freeVM(s *site) (string, bool) {
	return pick(g.rng, slices.DeleteFunc(slices.Clone(s.vms), func(v string) bool { return g.vms[v].by != nil }))
}

// address gives a new object its address.
func (g *generator) address(o *object) {
	o.label = g.next("r")
	if g.rng.IntN(2) == 0 {
		o.key = g.next("k")
	}
	o.touched = true
}

// settingsForDevice is what a VM needs that gets a whole GPU.
func settingsForDevice() map[string]string {
	return map[string]string{
		"low_memory_mapped_io_space_mib": "256", "high_memory_mapped_io_space_mib": "36864", "automatic_stop_action": `"turn_off"`,
	}
}

func (g *generator) grow(s *state) *operation {
	where, ok := pick(g.rng, slices.DeleteFunc(slices.Clone(g.sites), func(x *site) bool { return g.held[x].by != nil }))
	if !ok {
		return nil
	}
	kind := one(g.rng, where.kinds...)
	o := &object{typ: typeConfig, site: where, kind: kind, name: g.next("c"), args: map[string]string{}}
	switch kind {
	case "device":
		vm, free := g.freeVM(where)
		if !free {
			return nil
		}
		o.typ, o.name, o.args = typeVM, vm, settingsForDevice()
		g.vms[vm].by = s
	case "pool":
		o.typ, o.args["dismount"] = typePool, "{ force = true }"
	case "gpu_p":
		o.args["max_disruption"] = `"vm_restart"`
	case "mps":
		o.args["max_disruption"] = `"process_restart"`
	}
	if o.typ == typeConfig {
		o.layout = one(g.rng, layouts[kind]...)
	}
	if to := g.onDestroy(o); to != "" {
		o.args["on_destroy"] = to
	}
	g.address(o)
	h := g.held[where]
	h.by, h.loose = s, h.loose || h.shaken
	g.keeps(o)
	s.objects = append(s.objects, o)
	what := "create " + o.address()
	for n := g.rng.IntN(3); n > 0; n-- {
		if u := g.user(s, o); u != nil {
			what += ", " + u.address()
		}
	}
	return &operation{what: what}
}

// onDestroy is a value for on_destroy, "" for none.
func (g *generator) onDestroy(o *object) string {
	switch {
	case o.typ == typePool:
		return one(g.rng, `"mount_back"`, `"mount_back"`, `"keep"`)
	case o.kind == "gpu_p", o.kind == "mig", o.kind == "vgpu":
		return one(g.rng, `"restore"`, `"restore"`, `"restore"`, `"keep"`)
	}
	return ""
}

// user adds a VM or a share that uses an object, nil if there is no room.
func (g *generator) user(s *state, o *object) *object {
	if len(s.group(o))-1 >= users(o) {
		return nil
	}
	u := &object{typ: typeVM, site: o.site, on: o, args: map[string]string{}}
	switch o.kind {
	case "mps", "time_slicing":
		u.typ, u.name = typeShare, g.next("share")
		u.args["memory"] = "{ limit_mib = 11517 }"
	default:
		vm, ok := g.freeVM(o.site)
		if !ok {
			return nil
		}
		u.name, u.kind = vm, "partition"
		if o.typ == typePool {
			u.kind, u.args = "pool", settingsForDevice()
		}
		g.vms[vm].by = s
	}
	g.address(u)
	s.objects = append(s.objects, u)
	return u
}

func (g *generator) addUser(s *state) *operation {
	o, ok := pick(g.rng, s.objects)
	if !ok || users(o) == 0 {
		return nil
	}
	var added []string
	for n := 1 + g.rng.IntN(2); n > 0; n-- {
		if u := g.user(s, o); u != nil {
			added = append(added, u.address()+" ("+u.name+")")
		}
	}
	if added == nil {
		return nil
	}
	return &operation{what: "create " + strings.Join(added, ", ")}
}

func (g *generator) relayout(s *state) *operation {
	o, ok := pick(g.rng, s.of(typeConfig))
	if !ok {
		return nil
	}
	if len(s.group(o)) == 1 && g.rng.IntN(3) == 0 { // another kind makes a new config
		o.kind = one(g.rng, slices.DeleteFunc(slices.Clone(o.site.kinds), func(k string) bool { return layouts[k] == nil })...)
		o.touched = true
		g.importFindsAnOlderOnDestroy(o)
	}
	o.layout = one(g.rng, slices.DeleteFunc(slices.Clone(layouts[o.kind]), func(l string) bool { return l == o.layout })...)
	return &operation{what: fmt.Sprintf("update %s to %s = { %s }", o.address(), o.kind, o.layout)}
}

// tweak changes what is no layout.
func (g *generator) tweak(s *state) *operation {
	o, ok := pick(g.rng, s.objects)
	if !ok {
		return nil
	}
	values := map[string][]string{"timeouts": {"", `{ update = "10m" }`, `{ update = "15m", delete = "9m" }`}}
	switch o.typ {
	case typeConfig:
		values["rollout"] = []string{"", "{ max_unavailable = 2 }", `{ on_failure = "rollback" }`, "{ drain = true }"}
		if to := g.onDestroy(o); to != "" {
			values["on_destroy"] = []string{to}
		}
	case typePool:
		values["on_destroy"] = []string{g.onDestroy(o)}
	case typeVM:
		values["power.shutdown_timeout"] = []string{"", `"60s"`, `"90s"`}
		values["power.allow_turn_off"] = []string{"", "true"}
		values["power.force_shutdown"] = []string{"", "true"}
		values["power.start_after"] = []string{"", "", "", `"never"`}
		values["low_memory_mapped_io_space_mib"] = []string{"256", "512"}
		values["guest_controlled_cache_types"] = []string{"", "true"}
		if o.kind == "partition" {
			values["high_memory_mapped_io_space_mib"] = []string{"", "1024", "2048"}
			values["automatic_stop_action"] = []string{"", `"turn_off"`}
		}
	case typeShare:
		values["memory"] = []string{"{ limit_mib = 11517 }", "{ limit_mib = 8192 }", "{ request_mib = 4096, limit_mib = 8192 }"}
	}
	k := one(g.rng, sorted(values)...)
	v := one(g.rng, values[k]...)
	if v == o.args[k] {
		return nil
	}
	if k == "on_destroy" {
		// Which of the two a destroy in this phase goes by depends on what was applied.
		o.touched = true
	}
	if v == "" {
		delete(o.args, k)
	} else {
		o.args[k] = v
	}
	g.keeps(o)
	if o.typ == typeVM {
		g.leavesOff(o)
	}
	return &operation{what: fmt.Sprintf("update %s: %s = %s", o.address(), k, v)}
}

// leavesOff records that a VM's assignment may leave it off.
func (g *generator) leavesOff(o *object) {
	if o.args["power.start_after"] != "" {
		g.unsure[o.name] = `its assignment has start_after = "never"`
	}
}

// relabel gives an object another address.
func (g *generator) relabel(s *state) *operation {
	o, ok := pick(g.rng, s.objects)
	if !ok {
		return nil
	}
	old := o.address()
	if o.key != "" && g.rng.IntN(2) == 0 {
		o.key = g.next("k")
	} else {
		o.label = g.next("r")
	}
	o.touched, o.renamed = true, o.renamed || len(s.group(o)) > 1
	g.importFindsAnOlderOnDestroy(o) // without a moved block the old address is destroyed
	return &operation{what: "rename " + old + " to " + o.address()}
}

// rename gives a config or pool that nothing uses another name, which makes a new one.
func (g *generator) rename(s *state) *operation {
	o, ok := pick(g.rng, s.objects)
	if !ok || o.typ == typeVM || o.touched || len(s.group(o)) > 1 {
		return nil
	}
	old := o.name
	o.name, o.touched = g.next("c"), true
	return &operation{what: fmt.Sprintf("replace %s: name = %s instead of %s", o.address(), o.name, old)}
}

// keeps records that a layout may stay when it is given up.
func (g *generator) keeps(o *object) {
	if o.args["on_destroy"] == `"keep"` {
		g.held[o.site].loose = true
	}
}

// importFindsAnOlderOnDestroy is the one known exception from what is judged: an import brings back
// the on_destroy of the last change on the host, and one that was changed by itself since is in the
// state alone. A destroy that comes before the next apply goes by the older one. Such a destroy is
// part of a replacement or a new address here: what is created then takes the layout that it finds
// for the one from before.
func (g *generator) importFindsAnOlderOnDestroy(o *object) {
	if o.imported && (o.typ == typeConfig || o.typ == typePool) {
		g.held[o.site].loose = true
	}
}

// moveVM gives a VM a partition of another config of its host.
func (g *generator) moveVM(s *state) *operation {
	o, ok := pick(g.rng, s.of(typeVM))
	if !ok || o.kind != "partition" {
		return nil
	}
	to, ok := pick(g.rng, slices.DeleteFunc(s.of(typeConfig), func(c *object) bool {
		return c == o.on || c.kind != "gpu_p" || !slices.Contains(c.site.vms, o.name) || len(s.group(c))-1 >= users(c)
	}))
	if !ok {
		return nil
	}
	o.on, o.site = to, to.site
	// Terraform orders by the configuration: the config must come before what refers to it.
	s.drop(o)
	s.objects = append(s.objects, o)
	return &operation{what: fmt.Sprintf("update %s (%s): partition of %s", o.address(), o.name, to.address())}
}

func (g *generator) dropUser(s *state) *operation {
	o, ok := pick(g.rng,
		slices.DeleteFunc(slices.Clone(s.objects), func(o *object) bool { return o.touched || o.on == nil && o.kind != "device" }))
	if !ok {
		return nil
	}
	g.free(o)
	s.drop(o)
	return &operation{what: "destroy " + o.address()}
}

func (g *generator) dropSite(s *state) *operation {
	o, ok := pick(g.rng, append(s.of(typeConfig), s.of(typePool)...))
	if !ok {
		return nil
	}
	gone := s.group(o)
	if slices.ContainsFunc(gone, func(o *object) bool { return o.touched }) {
		return nil
	}
	g.free(gone...)
	s.drop(gone...)
	return &operation{what: fmt.Sprintf("destroy %s and the %d that use it", o.address(), len(gone)-1)}
}

// forgetAndImport takes an object out of the state and imports it.
func (g *generator) forgetAndImport(s *state) *operation {
	o, ok := pick(g.rng, s.objects)
	if !ok {
		return nil
	}
	o.touched, o.imported = true, true
	commands := [][]string{{"state", "rm", o.address()}, {"import", o.address(), o.importID()}}
	if g.rng.IntN(2) == 0 {
		commands = append(commands, apply)
	}
	return &operation{what: "state rm and import of " + o.address(), commands: commands}
}

// forgetAndApply takes an object out of the state and has it taken over.
func (g *generator) forgetAndApply(s *state) *operation {
	o, ok := pick(g.rng, s.objects)
	if !ok {
		return nil
	}
	o.touched = true
	return &operation{what: "state rm of " + o.address() + " and apply", commands: [][]string{{"state", "rm", o.address()}, apply}}
}

// handOver gives a config or pool with all that uses it to another state of the owner.
func (g *generator) handOver(s *state) *operation {
	to, ok := pick(g.rng, slices.DeleteFunc(slices.Clone(g.states), func(o *state) bool { return o == s || o.owner != s.owner }))
	if !ok {
		return nil
	}
	o, ok := pick(g.rng, append(s.of(typeConfig), s.of(typePool)...))
	if !ok {
		return nil
	}
	gone := s.group(o)
	if slices.ContainsFunc(gone, func(o *object) bool { return o.touched }) {
		return nil
	}
	op := &operation{what: fmt.Sprintf("hand %s and the %d that use it to %s", o.address(), len(gone)-1, to.name)}
	rm := []string{"state", "rm"}
	for _, o := range gone {
		rm = append(rm, o.address())
		o.touched = true
		if o.typ == typeVM {
			g.vms[o.name].by = to
		}
	}
	g.held[o.site].by = to
	op.commands = [][]string{rm, apply}
	s.drop(gone...)
	to.objects = append(to.objects, gone...)
	return op
}

// destroyAll destroys what the state has. The configuration stays, or goes too.
func (g *generator) destroyAll(s *state) *operation {
	if slices.ContainsFunc(s.objects, func(o *object) bool { return o.touched }) || len(s.objects) == 0 {
		return nil
	}
	op := &operation{what: "destroy all", hcl: s.hcl(), commands: [][]string{{"destroy", "-auto-approve"}}}
	for _, o := range s.objects {
		o.touched = true
	}
	return op
}

// savedPlan plans into a file and applies that, so that other hands come between.
func (g *generator) savedPlan(s *state) *operation {
	change := one(g.rng, (*generator).relayout, (*generator).addUser, (*generator).dropUser, (*generator).tweak)
	op := change(g, s)
	if op == nil {
		return nil
	}
	op.what += ", by a saved plan"
	op.commands = [][]string{{"plan", "-out=saved.tfplan"}, {"apply", "saved.tfplan"}}
	return op
}

func (g *generator) look(*state) *operation {
	return &operation{what: "plan", commands: [][]string{one(g.rng, []string{"plan"}, []string{"apply", "-refresh-only", "-auto-approve"})}}
}

// poach wants what another owner's state has, which must be refused.
func (g *generator) poach(s *state) *operation {
	var wanted []*object
	for _, other := range g.states {
		if other.owner == s.owner {
			continue
		}
		for _, o := range other.of(typeVM) {
			if !o.touched && o.kind != "device" && o.on.typ == typeConfig && !o.on.touched {
				wanted = append(wanted, o)
			}
		}
	}
	o, ok := pick(g.rng, wanted)
	if !ok {
		return nil
	}
	o.touched, o.on.touched = true, true // it stays where it is in this phase
	hcl := fmt.Sprintf("resource %q \"poach\" {\n  vm = %q\n  partition = {}\n  power = { allow_shutdown = true }\n}\n", typeVM, o.name)
	return &operation{what: "take VM " + o.name + " of another owner", hcl: s.hcl() + hcl, refused: true, commands: [][]string{apply}}
}
