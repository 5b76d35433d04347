// Package whatif tells what becomes of hosts: by one change of a run, once the others of the run have
// made way for it, in whatever order they come, and once all of them are made. Host states and changes
// go in, an outcome comes out. It knows no rule, finds nothing wrong, and knows nothing of Terraform but
// that it plans the resources of a run in any order and may make them in any order that no reference
// forbids.
//
// A Run is asked: for what is on record and at hand (run.go, claims.go), for what one change does
// (simulate.go, order.go), and by its views Future, Drains and Shares for the end of the run, for the
// nodes that are drained, and for shares. Its Mode says in which state of the run.
package whatif

import (
	"cmp"
	"iter"
	"reflect"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// World is what a question may look at.
type World struct {
	// Hosts are the inventories at hand, keyed by the provider's name for the host.
	// A host that could not be asked is missing: nothing is known of it.
	// They are indexed each time; ignored when Fleet is set.
	Hosts map[string]*gpu.Host
	// Fleet is the same, indexed once for many questions.
	Fleet *Fleet
	// Owner is the name of this state in claims.
	Owner string
	// Others are the plans of this run. The entry with the plan's own token is skipped, so the plan
	// may be in it already. Nil on the agent at apply.
	Others *Book
	// Silent tells of a host that it does not answer and that the run goes on without it: no share is
	// placed there. Nil where all answer.
	Silent func(host string) bool
}

// Mode says in which state of a run a question is asked. The zero mode is Planned.
type Mode struct {
	OnHost, Past, Yielding, everyClaim bool
}

// Planned is the run as it is planned so far: what the other plans want counts, and of this state
// only what is planned.
func Planned() Mode { return Mode{} }

// OnHost is an apply on the host that is changed: there are no other plans, and what its claims say
// stands.
func OnHost() Mode { return Mode{OnHost: true} }

// Before is the same before the run: the other plans count with what they had, and the plan is of
// what its resource had.
func (m Mode) Before() Mode { m.Past = true; return m }

// IfOthersYield is the same while resources of this state that the run has not planned yet count as
// destroyed by it.
func (m Mode) IfOthersYield() Mode { m.Yielding = true; return m }

// WithEveryClaim is the same while shares of this state count by their claims until they are planned:
// for what is told, not for what is refused.
func (m Mode) WithEveryClaim() Mode { m.everyClaim = true; return m }

// Run is a run as one of its plans sees it: the hosts at hand, the other plans, and the mode.
type Run struct {
	Fleet  *Fleet
	Book   *Book
	Owner  string
	silent func(host string) bool
	Plan   change.Change
	Mode   Mode
	// Only are the hosts that a plan which was asked about before is asked about once more, and nil
	// for one that is asked about for the first time.
	Only []string
	memo *memo
}

// Begin looks at a plan in its world. What it looks at stays as it is until done.
func Begin(w World, p change.Change) (r *Run, done func()) {
	fleet, book, mode := w.Fleet, w.Others, Planned()
	if fleet == nil {
		fleet = NewFleet(w.Hosts)
	}
	if book == nil {
		book, mode = NewBook(), OnHost()
	}
	fleet.mu.RLock()
	book.mu.RLock()
	return &Run{Fleet: fleet, Book: book, Owner: w.Owner, silent: w.Silent, Plan: p, Mode: mode, memo: newMemo()}, func() {
		book.mu.RUnlock()
		fleet.mu.RUnlock()
	}
}

// memo keeps what several rules of one check ask for.
type memo struct {
	forecasts map[string]change.Forecast
	yielded   map[yieldingOn]change.Forecast
	projected map[string]*projection
	laidOut   map[string]*gpu.Host
	undrained map[drainIn]map[string]string
}

// drainIn is a config in a cluster.
type drainIn struct {
	config  *gpu.PartitionConfig
	cluster string
}

// yieldingOn is a host, and whether what the run has not planned yet counts as gone there.
type yieldingOn struct {
	host     string
	yielding bool
}

func newMemo() *memo {
	return &memo{
		forecasts: map[string]change.Forecast{}, yielded: map[yieldingOn]change.Forecast{}, projected: map[string]*projection{},
		laidOut:   map[string]*gpu.Host{},
		undrained: map[drainIn]map[string]string{},
	}
}

// Host gives the inventory of a host if it is at hand.
func (r *Run) Host(key string) (*gpu.Host, bool) {
	h, ok := r.Fleet.byName[key]
	return h, ok
}

// At is the inventory of a host that is at hand, nil of one that is not.
func (r *Run) At(key string) *gpu.Host { return r.Fleet.byName[key] }

// HostNames are the hosts at hand, in order.
func (r *Run) HostNames() []string { return SortedKeys(r.Fleet.byName) }

// Others are the other plans of the run about the given subjects. The plan itself
// may be in the book; its token tells.
func (r *Run) Others(subjects ...string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range r.Book.about(subjects...) {
			if e.token != "" && e.token == r.Plan.Token {
				continue
			}
			// What a plan does that puts something right follows from the world, and nobody has asked for it.
			if r.Mode.Past && !(Repairs(e.Plan) && !e.Plan.Unchanged) {
				p := e.Plan
				p.Want, p.Prior = p.Prior, gpu.Want{}
				e = &Entry{token: e.token, Plan: p}
			}
			if !yield(e) {
				return
			}
		}
	}
}

// HostsAtHand goes through the hosts of a config or a pool that are at hand, in the
// order of their names.
func (r *Run) HostsAtHand(gpus map[string][]string) iter.Seq2[string, *gpu.Host] {
	return func(yield func(string, *gpu.Host) bool) {
		for _, key := range r.AtHand(gpus) {
			if !yield(key, r.Fleet.byName[key]) {
				return
			}
		}
	}
}

// AtHand are the hosts of a config or a pool that are at hand. An agent has one of as many as there are.
func (r *Run) AtHand(gpus map[string][]string) []string {
	if len(r.Fleet.byName) >= len(gpus) {
		return slices.DeleteFunc(SortedKeys(gpus), func(key string) bool { return r.Fleet.byName[key] == nil })
	}
	return slices.DeleteFunc(SortedKeys(r.Fleet.byName), func(key string) bool {
		_, ok := gpus[key]
		return !ok
	})
}

// Transition tells whether the plan means to change something: what only a change
// can violate is not looked at otherwise.
func (r *Run) Transition() bool { return !r.Mode.Past && !r.Plan.Unchanged }

// Selected goes through the GPUs that a list of ids names and that the host has. What one
// lacks that cannot be read is not known: rule readable speaks of it.
func Selected(h *gpu.Host, ids []string) iter.Seq[*gpu.GPU] {
	return func(yield func(*gpu.GPU) bool) {
		for _, id := range ids {
			_, unknown := h.UnknownGPU(id)
			if g, ok := h.GPU(id); ok && !unknown && !yield(g) {
				return
			}
		}
	}
}

// SortedKeys are the keys of a map. Every rule asks for them, of maps that are mostly empty or
// have one: an iterator would take five allocations for what takes one.
func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	if len(m) == 0 {
		return nil
	}
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// HostsOf are the hosts at hand that a plan concerns. Of a VM that another one replaces the plan
// of its own destroy tells.
func (r *Run) HostsOf(p change.Change) []string {
	var out []string
	for _, w := range []gpu.Want{p.Want, p.Prior} {
		out = append(out, r.AtHand(WantedGPUs(w))...)
		switch {
		case w.Share != nil:
			if _, ok := r.Host(w.Share.Host); ok {
				out = append(out, w.Share.Host)
			}
		case w.Assignment != nil && len(out) == 0:
			if at, ok := r.Locate(w.Assignment); ok {
				out = append(out, at.Key)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// WantedGPUs are the GPUs that a config or a pool names, by host.
func WantedGPUs(w gpu.Want) map[string][]string {
	switch {
	case w.Config != nil:
		return w.Config.GPUs
	case w.Pool != nil:
		return w.Pool.Members
	}
	return nil
}

// Located is a VM on its owner host.
type Located struct {
	Key  string // the provider's name for the host
	Host *gpu.Host
	VM   *gpu.VM
}

// Locate finds an assignment's VM among the hosts at hand: by id where it is known,
// else by a name that only one VM has.
func (r *Run) Locate(a *gpu.Assignment) (Located, bool) {
	if a == nil {
		return Located{}, false
	}
	if a.Reserves() {
		return r.reservedFor(a)
	}
	for _, id := range []string{a.VMID, a.VM} {
		if id == "" {
			continue
		}
		if at, ok := r.pick(r.Fleet.vmsByID[gpu.FoldID(id)], a.Host, false); ok {
			return at, true
		}
	}
	if a.VMID != "" {
		return Located{}, false
	}
	return r.pick(r.Fleet.vmsByName[gpu.FoldID(a.VM)], a.Host, true)
}

// reservedFor is the VM for which a vGPU is reserved on a host, whether it is there by now or not. It goes by the id of the record.
func (r *Run) reservedFor(a *gpu.Assignment) (Located, bool) {
	h, ok := r.Host(a.Host)
	if !ok {
		return Located{}, false
	}
	return Located{a.Host, h, change.VMFor(h, a)}, true
}

// pick chooses the candidate on the wanted host. An id may be listed by two hosts
// while a VM moves, and then either will do; a name may belong to two VMs, and then
// only the host can decide.
func (r *Run) pick(candidates []placed[gpu.VM], host string, unique bool) (Located, bool) {
	var on []placed[gpu.VM]
	for _, c := range candidates {
		if c.host == host {
			on = append(on, c)
		}
	}
	if len(on) == 0 && (!unique || host == "") {
		on = candidates
	}
	if len(on) == 0 || (unique && len(on) > 1) {
		return Located{}, false
	}
	return Located{on[0].host, r.Fleet.byName[on[0].host], on[0].item}, true
}

// sameVM tells whether two assignments mean one VM. A name that several VMs have
// proves nothing.
func (r *Run) sameVM(a, b *gpu.Assignment) bool {
	idA, idB := r.VMID(a), r.VMID(b)
	if idA != "" && idB != "" {
		return gpu.SameID(idA, idB)
	}
	if a.Host != "" && b.Host != "" && a.Host != b.Host {
		return false
	}
	nameA, nameB := cmp.Or(a.VMName, a.VM), cmp.Or(b.VMName, b.VM)
	return gpu.SameID(nameA, nameB) && len(r.Fleet.vmsByName[gpu.FoldID(nameA)]) < 2
}

// VMID is the id of an assignment's VM, "" while that is not known.
func (r *Run) VMID(a *gpu.Assignment) string {
	if a.VMID != "" {
		return a.VMID
	}
	if at, ok := r.Locate(a); ok {
		return at.VM.ID
	}
	return ""
}

// OthersForVM are the other plans of the run that want something for the VM of an
// assignment.
func (r *Run) OthersForVM(a *gpu.Assignment) []*Entry {
	subjects := vmSubjects(a)
	if at, ok := r.Locate(a); ok {
		subjects = append(subjects, vmWithID(at.VM.ID), vmNamed(at.VM.Name))
	}
	var out []*Entry
	for e := range r.Others(subjects...) {
		if o := e.Plan.Want.Assignment; o != nil && r.sameVM(a, o) {
			out = append(out, e)
		}
	}
	return out
}

// Conflict finds another plan of this run that wants a GPU of the host.
func (r *Run) Conflict(host string, wants func(gpu.Want) bool) *Entry {
	for e := range r.Others(GPUsOn(host)) {
		if wants(e.Plan.Want) {
			return e
		}
	}
	return nil
}

// ClusterOf is the host's cluster, or the host alone.
func (r *Run) ClusterOf(host string, h *gpu.Host) []string {
	if all := r.Fleet.Cluster(h); all != nil {
		return all
	}
	return []string{host}
}

// MayRunOn are the hosts at hand on which a VM may run: its own, and of a clustered VM its
// possible owners.
func (r *Run) MayRunOn(at Located) []string {
	out := []string{at.Key}
	if !at.VM.Clustered {
		return out
	}
	for _, node := range r.Fleet.Cluster(at.Host) {
		if len(at.VM.PossibleOwners) == 0 || gpu.HasID(at.VM.PossibleOwners, r.Fleet.byName[node].Name) {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// HostsWith lists the hosts at hand that have a GPU of that id.
func (r *Run) HostsWith(id string) []string {
	var out []string
	for key, h := range r.Fleet.byName {
		if _, ok := h.GPU(id); ok {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// ConfigKind is the kind of a config that this run plans or a host knows.
func (r *Run) ConfigKind(id string) (kind gpu.Kind, known bool) {
	if c := r.Plan.Want.Config; c != nil && gpu.SameID(c.ID, id) {
		return c.Kind, true
	}
	for e := range r.Others(ConfigNamed(id)) {
		if c := e.Plan.Want.Config; c != nil && gpu.SameID(c.ID, id) {
			return c.Kind, true
		}
	}
	for _, p := range r.Fleet.configClaims[gpu.FoldID(id)] {
		if c := p.item.Want.Config; c != nil && !r.Superseded(p.item) {
			return c.Kind, true
		}
	}
	return "", false
}

// Touched lists the hosts on which the plan changes something.
func (r *Run) Touched() []string {
	var out []string
	for host, f := range r.Forecasts() {
		if f.Changes() {
			out = append(out, host)
		}
	}
	return out
}

// Label names a plan's resource for people.
func Label(p change.Change) string {
	if p.Subject != "" {
		return p.Subject
	}
	w := p.Want
	if w.Empty() {
		w = p.Prior
	}
	switch {
	case w.Config != nil:
		return "gpu_partition_config " + strconv.Quote(w.Config.ID)
	case w.Pool != nil:
		return "gpu_pool " + strconv.Quote(w.Pool.Name)
	case w.Assignment != nil:
		return "gpu_vm_assignment for VM " + strconv.Quote(VMWritten(w.Assignment))
	case w.Share != nil:
		return "gpu_share " + strconv.Quote(w.Share.Name)
	}
	return "a resource of this run"
}

// VMWritten names an assignment's VM when the VM itself is not at hand.
func VMWritten(a *gpu.Assignment) string {
	return cmp.Or(a.VMName, a.VM, a.VMID)
}

// PoolCount is how many GPUs an assignment draws from a pool.
func PoolCount(p *gpu.PoolWant) int { return max(p.Count, 1) }

// has tells whether a VM has a GPU whole.
func has(vm *gpu.VM, id string) bool {
	return slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return d.VGPU == nil && gpu.SameID(d.GPU, id) })
}

// Drawn is the number of a VM's devices that come from a pool.
func Drawn(vm *gpu.VM, pool string) int {
	n := 0
	for _, d := range vm.Devices {
		if gpu.SameID(d.Pool, pool) {
			n++
		}
	}
	return n
}

// InPool finds the pool of a host that a GPU is in.
func InPool(h *gpu.Host, id string) *gpu.Pool {
	for i := range h.Pools {
		if h.Pools[i].Has(id) {
			return &h.Pools[i]
		}
	}
	return nil
}

// Partitions tells whether the GPU offers partitions now.
func Partitions(g *gpu.GPU) bool {
	return g.Partitionable != nil && !g.Partitionable.Paravirtual && !g.Dismounted
}

// TakesWhole tells whether a pool or a device assignment takes the GPU.
func TakesWhole(w gpu.Want, host, id string) bool {
	if w.Pool != nil {
		return gpu.HasID(w.Pool.Members[host], id)
	}
	if w.Assignment != nil && w.Assignment.Device != nil {
		return w.Assignment.Device.Host == host && gpu.HasID(w.Assignment.Device.GPUIDs, id)
	}
	return false
}

// HeldBy is how many partitions of a GPU a VM holds now.
func heldBy(g *gpu.GPU, vm string) int {
	n := 0
	for _, p := range g.Partitionable.Partitions {
		if gpu.SameID(p.VMID, vm) {
			n++
		}
	}
	return n
}

// HolderIDs are the ids of the VMs that hold a GPU's partitions.
func HolderIDs(g *gpu.GPU) []string {
	var out []string
	if g.Partitionable != nil {
		for _, p := range g.Partitionable.Partitions {
			if !gpu.HasID(out, p.VMID) {
				out = append(out, p.VMID)
			}
		}
	}
	return out
}

// GoesOn tells whether a VM that runs need not be stopped to become as it will be.
func GoesOn(now, then *gpu.VM) bool {
	return now != nil && now.Runs() && reflect.DeepEqual(now.PartitionAdapters, then.PartitionAdapters) &&
		reflect.DeepEqual(now.Devices, then.Devices) &&
		!now.Settings.Differs(then.Settings).NeedOff()
}

// PoolMembers are the GPUs that a pool will have on the VM's host; false when there
// is no such pool.
func (r *Run) PoolMembers(at Located, want *gpu.PoolWant) ([]string, bool) {
	if pool, ok := r.Future().Projected(at.Key, at.Host).Pool(want.Name); ok {
		return pool.GPUs, true
	}
	return nil, false
}

// InTheWay are the running VMs on a host that a config's plan stops, or, while that is
// not known, that hold its GPUs.
func (r *Run) InTheWay(host string, config change.Change) []*gpu.VM {
	h, ok := r.Host(host)
	if !ok {
		return nil
	}
	var ids []string
	if config.Want.Config != nil {
		for _, s := range r.simulate(host, h, config).Stops {
			ids = append(ids, s.VM)
		}
	} else if config.Prior.Config != nil {
		for g := range Selected(h, config.Prior.Config.GPUs[host]) {
			ids = append(ids, HolderIDs(g)...)
		}
	}
	var out []*gpu.VM
	for _, id := range ids {
		if vm, ok := h.VM(id); ok {
			out = append(out, vm)
		}
	}
	return out
}

// Alone is the same plan without the others of the run, and with all that this state has.
func (r *Run) Alone() *Run {
	o := *r
	o.Book, o.memo, o.Mode.Yielding = NewBook(), newMemo(), false
	return &o
}

// In is the same run in another mode.
func (r *Run) In(m Mode) *Run {
	o := *r
	o.Mode = m
	return &o
}
