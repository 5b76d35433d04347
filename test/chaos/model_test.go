//go:build linux

package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Resource types.
const (
	typeConfig = "gpu_partition_config"
	typePool   = "gpu_pool"
	typeVM     = "gpu_vm_assignment"
	typeShare  = "gpu_share"
)

// object is one resource instance of a configuration.
type object struct {
	typ string
	// label and key are its address; without a key it has no for_each.
	label, key string
	// name is that of the config, the pool or the share, or the VM's.
	name string
	site *site
	// kind of a config, or "partition", "pool" and "device" of an assignment.
	kind   string
	layout string
	// on is the config or pool that it refers to.
	on *object
	// args are optional attributes, as they are written.
	args map[string]string
	// imported objects have seen no apply in this phase since their import.
	imported bool
	// renamed configs and pools have another address since the last recovery apply, and users.
	renamed bool
	// touched objects may be on a host and not in a state, which only an apply of their
	// configuration mends: they are not dropped in this phase.
	touched bool
}

func (o *object) address() string {
	if o.key == "" {
		return o.typ + "." + o.label
	}
	return fmt.Sprintf("%s.%s[%q]", o.typ, o.label, o.key)
}

// importID is what imports it.
func (o *object) importID() string {
	switch o.typ {
	case typeConfig:
		return fmt.Sprintf("%s@%s:%s", o.name, strings.Join(o.site.hosts, ","), o.kind)
	default:
		return o.site.hosts[0] + "/" + o.name
	}
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// byHost is a map of GPUs by host, as it is written.
func (s *site) byHost() string {
	out := make([]string, len(s.hosts))
	for i, h := range s.hosts {
		out[i] = h + " = " + quoted(s.gpus)
	}
	return "{ " + strings.Join(out, ", ") + " }"
}

// hcl is the resource as it is written.
func (o *object) hcl() string {
	lines := []string{fmt.Sprintf("resource %q %q {", o.typ, o.label)}
	add := func(format string, a ...any) { lines = append(lines, "  "+fmt.Sprintf(format, a...)) }
	if o.key != "" {
		add("for_each = toset([%q])", o.key)
	}
	switch o.typ {
	case typeConfig:
		add("name = %q", o.name)
		if len(o.site.hosts) > 1 {
			add("cluster = %q", clusterName)
		} else {
			add("hosts = %s", quoted(o.site.hosts))
		}
		add("selector = { gpu_ids = %s }", o.site.byHost())
		add("%s = { %s }", o.kind, o.layout)
	case typePool:
		add("name = %q", o.name)
		add("members = %s", o.site.byHost())
	case typeVM:
		add("vm = %q", o.name)
		switch {
		case o.kind == "device":
			add("device = { host = %q, gpu_ids = %s }", o.site.hosts[0], quoted(o.site.gpus))
		case o.kind == "pool":
			add("pool = { id = %s.id }", o.on.address())
		case o.site.pinned:
			add("partition = { config = %s.id, gpu_id = %q }", o.on.address(), o.site.gpus[0])
		default:
			add("partition = { config = %s.id }", o.on.address())
		}
		power := "allow_shutdown = true"
		for _, k := range slices.Sorted(maps.Keys(o.args)) {
			if name, ok := strings.CutPrefix(k, "power."); ok {
				power += fmt.Sprintf(", %s = %s", name, o.args[k])
			}
		}
		add("power = { %s }", power)
	case typeShare:
		add("name = %q", o.name)
		add("host = %q", o.site.hosts[0])
		add("config = %s.id", o.on.address())
	}
	for _, k := range slices.Sorted(maps.Keys(o.args)) {
		if !strings.HasPrefix(k, "power.") {
			add("%s = %s", k, o.args[k])
		}
	}
	return strings.Join(append(lines, "}"), "\n") + "\n"
}

// state is one Terraform state.
type state struct {
	name, owner string
	folder      *folder
	objects     []*object
}

func (s *state) hcl() string {
	var out strings.Builder
	for _, o := range s.objects {
		out.WriteString(o.hcl())
	}
	return out.String()
}

func (s *state) drop(gone ...*object) {
	s.objects = slices.DeleteFunc(s.objects, func(o *object) bool { return slices.Contains(gone, o) })
}

// group is an object with those that refer to it.
func (s *state) group(o *object) []*object {
	out := []*object{o}
	for _, other := range s.objects {
		if other.on == o {
			out = append(out, other)
		}
	}
	return out
}

func (s *state) of(typ string) []*object {
	return slices.DeleteFunc(slices.Clone(s.objects), func(o *object) bool { return o.typ != typ })
}

// holding is what is known of a GPU's site or of a VM.
type holding struct {
	// by is the state that has it, nil for none.
	by *state
	// freed in this phase: another state may have it from the next one on.
	freed bool
	// shaken is true when a reboot in this phase took what nobody declares.
	shaken bool
	// loose is true when what was there before may be left or forgotten, as documented: with
	// on_destroy = "keep"; and a failure that was injected can leave something half done, whose
	// destroy drops the claim alone. What is there when it is given up is the beginning then.
	loose bool
}

// model is what the three configurations say.
type model struct {
	states []*state
	sites  []*site
	held   map[*site]*holding
	vms    map[string]*holding
	on     map[string]bool // VMs that are to run
	// unsure are VMs whose power a person changed in this phase, or whose assignment leaves
	// them off: they may be on or off until the person has set it right.
	unsure map[string]string
	// faulted are the hosts on which failures were injected in this phase.
	faulted map[string]bool
	serial  int
}

func newModel(states []*state) *model {
	m := &model{
		states: states, held: map[*site]*holding{}, vms: map[string]*holding{}, on: map[string]bool{},
		unsure: map[string]string{}, faulted: map[string]bool{},
	}
	s := beginning()
	m.sites = sites(s)
	for _, x := range m.sites {
		m.held[x] = &holding{}
	}
	for _, h := range s.Hosts {
		for _, v := range h.VMs {
			m.vms[v.Name], m.on[v.Name] = &holding{}, v.Runs()
		}
	}
	return m
}

func (m *model) next(prefix string) string {
	m.serial++
	return fmt.Sprintf("%s%d", prefix, m.serial)
}

// at are the sites of a host.
func (m *model) at(host string) []*site {
	return slices.DeleteFunc(slices.Clone(m.sites), func(s *site) bool { return !slices.Contains(s.hosts, host) })
}

// loosen records that a failure was injected on a host.
func (m *model) loosen(host string) {
	m.faulted[host] = true
	for _, s := range m.at(host) {
		m.held[s].loose = true
		for _, vm := range s.vms {
			m.vms[vm].loose = true
		}
	}
}

// reboot records that a host forgets what nobody declares. That may be what a config finds
// that joins in this phase.
func (m *model) reboot(host string) {
	for _, s := range m.at(host) {
		h := m.held[s]
		h.shaken = true
		for _, st := range m.states {
			h.loose = h.loose || slices.ContainsFunc(st.objects, func(o *object) bool { return o.site == s && o.touched })
		}
	}
}

// free records that a state gives something up.
func (m *model) free(gone ...*object) {
	for _, o := range gone {
		if o.typ == typeVM {
			m.vms[o.name].freed = true
		}
		if o.typ == typeConfig || o.typ == typePool || o.kind == "device" {
			m.held[o.site].freed = true
		}
	}
}
