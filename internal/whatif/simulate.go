package whatif

import (
	"cmp"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Simulate tells what a plan does to the hosts that it concerns, host by host in sorted order,
// as far as they are at hand.
func Simulate(w World, p change.Change) []change.Forecast {
	r, done := Begin(w, p)
	defer done()
	return r.simulated()
}

func (r *Run) simulated() []change.Forecast {
	var out []change.Forecast
	for _, f := range r.Forecasts() {
		out = append(out, f)
	}
	return out
}

// SimulatedOnceOthersYield is the same once others of the run have made way, where the plan needs that.
func (r *Run) SimulatedOnceOthersYield() []change.Forecast {
	out := r.simulated()
	for i, f := range out {
		if len(halves(r.Plan)) == 1 {
			out[i] = r.onceOthersYield(f, true)
		}
	}
	return out
}

// onceOthersYield is a forecast once others of the run have made way for what a host refuses; if it
// may be, also those that the run has not planned yet.
func (r *Run) onceOthersYield(f change.Forecast, may bool) change.Forecast {
	if len(f.Refused) == 0 {
		return f
	}
	if o := r.Obstacle(f.Host, r.Fleet.byName[f.Host], r.Plan); o.Refused == nil || o.Open && may {
		was := f
		f = change.Simulate(o.then, f.Host, r.sent(r.Plan, f.Host))
		f.Undrained = was.Undrained
		for _, s := range was.Stops { // whoever is still to be planned may stay after all
			if o.Refused != nil && !slices.ContainsFunc(f.Stops, func(x change.Stop) bool { return gpu.SameID(x.VM, s.VM) }) {
				f.Stops = append(f.Stops, s)
			}
		}
		slices.SortFunc(f.Stops, func(a, b change.Stop) int { return strings.Compare(a.Name, b.Name) })
	}
	return f
}

// Forecasts goes through the hosts at hand that the plan concerns, and what it does there.
func (r *Run) Forecasts() iter.Seq2[string, change.Forecast] {
	return func(yield func(string, change.Forecast) bool) {
		for _, host := range r.Asked() {
			if !yield(host, r.Forecast(host, r.Fleet.byName[host])) {
				return
			}
		}
	}
}

// Forecast is what the plan does to a host. What uses a config or a pool goes before that is
// destroyed.
func (r *Run) Forecast(host string, h *gpu.Host) change.Forecast {
	f := r.forecastAsItIs(host, h)
	if r.Mode.Past || r.Mode.OnHost || !EndsLayout(r.Plan) {
		return f
	}
	made, ok := r.memo.yielded[yieldingOn{host, r.Mode.Yielding}]
	if !ok {
		made = r.onceOthersYield(f, r.Mode.Yielding)
		r.memo.yielded[yieldingOn{host, r.Mode.Yielding}] = made
	}
	return made
}

// Asked are the hosts at hand that the plan concerns, or, of one that is asked about once more,
// those of them that it is asked about for.
func (r *Run) Asked() []string {
	hosts := r.HostsOf(r.Plan)
	if r.Only != nil && EndsLayout(r.Plan) {
		hosts = slices.DeleteFunc(hosts, func(host string) bool { return !slices.Contains(r.Only, host) })
	}
	return hosts
}

// forecastAsItIs is what the plan does to a host as that is now; it is worked out once for all rules.
func (r *Run) forecastAsItIs(host string, h *gpu.Host) change.Forecast {
	if r.Mode.Past {
		return r.simulate(host, h, r.Plan)
	}
	f, ok := r.memo.forecasts[host]
	if !ok {
		f = r.simulate(host, h, r.Plan)
		r.memo.forecasts[host] = f
	}
	return f
}

// EndsLayout tells whether a plan is the destroy of a config or a pool.
func EndsLayout(p change.Change) bool { return p.Want.Empty() && isLayout(p) }

// isLayout tells whether a plan is of a config or a pool: what comes before or after it finds
// another host.
func isLayout(p change.Change) bool {
	return p.Want.Config != nil || p.Want.Pool != nil || p.Prior.Config != nil || p.Prior.Pool != nil
}

// simulate asks the planner what a plan does to a host.
func (r *Run) simulate(host string, h *gpu.Host, p change.Change) change.Forecast {
	if r.takenOverByAnother(p) {
		return change.Forecast{Host: host}
	}
	known := r.withClaims(host, h)
	if a := p.Want.Assignment; a != nil && a.Partition != nil && !r.Mode.Past {
		var before []*Entry
		for _, id := range a.Partition.ConfigIDs() {
			for e := range r.Others(ConfigNamed(id)) {
				if !e.Plan.Unchanged {
					before = append(before, e)
				}
			}
		}
		if len(before) > 0 {
			after := r.Future().configured(host, h, before)
			if _, stays := after.VM(cmp.Or(a.VMID, a.VM)); stays || a.Reserves() { // else it was drained, and comes back
				known = after
			}
		}
	}
	sent := r.sent(p, host)
	f := change.Simulate(known, host, sent)
	f.Undrained = sent.Undrained[host]
	return f
}

// Refusals are why a host that carries the claims for its VMs would not do what a plan wants.
func (r *Run) Refusals(known gpu.Host, host string, p change.Change) gpu.Refusals {
	_, err := change.Plan(known, host, r.sent(p, host))
	refused, _ := errors.AsType[gpu.Refusals](err)
	return refused
}

// sent is a plan as a host will get it.
func (r *Run) sent(p change.Change, host string) change.Change {
	p.Subject, p.Owner, p.Adopt = Label(p), r.Owner, p.Token == ""
	if !r.Mode.OnHost { // else it is decided
		p.Undrained = r.Drains().undrained(p, host)
	}
	return p
}

// Obstacle is why a host would refuse a plan of the run, whichever of the others are made there
// before.
type Obstacle struct {
	Refused *gpu.Refusal // nil where the host would not refuse it
	// Open is true while that hangs on resources of this state that the run has not planned yet, and
	// may destroy, or put right.
	Open bool
	then gpu.Host // the host once those that make way are made
}

// Obstacle finds it for a plan of the run on a host.
func (r *Run) Obstacle(host string, h *gpu.Host, p change.Change) Obstacle {
	return r.obstacleBut(host, h, p, r.failsBeside)
}

// obstacleBut leaves out other plans that are not made on the host.
func (r *Run) obstacleBut(host string, h *gpu.Host, p change.Change, notMade func(o change.Change, host string) bool) Obstacle {
	if r.takenOverByAnother(p) {
		return Obstacle{then: r.withClaims(host, h)}
	}
	start := r.firstAttempt(host, h, p)
	if len(start.refused) == 0 && len(start.ends) > 0 && EndsLayout(start.ends[0]) { // what is replaced stays, and is found
		start = attempt{plan: start.ends[0], known: start.known, refused: r.Refusals(start.known, host, start.ends[0])}
	}
	if p = start.plan; len(start.refused) == 0 || start.refused[0].Code == gpu.NotOwner && !p.Want.Empty() {
		return Obstacle{then: start.known} // whose something is, other rules say
	}
	others := slices.Concat(start.ends, r.mayMakeWay(host, p, notMade)) // others make way for the end first
	after, left, possible := r.yieldInTurn(start.known, host, others, p)
	if possible {
		return Obstacle{then: after}
	}
	out := Obstacle{Refused: start.stillRefused(r, after, host)}
	out.then, _, out.Open = r.yieldInTurn(after, host, slices.Concat(left, r.mayYield(start.known, p)), p)
	return out
}

// attempt is a plan that is made on a host as it is.
type attempt struct {
	plan    change.Change   // of a replacement the making
	known   gpu.Host        // what the plan finds: once what is replaced has gone, where it goes
	refused gpu.Refusals    // why the host would refuse it
	ends    []change.Change // the end of what is replaced, where the host refuses that
}

func (r *Run) firstAttempt(host string, h *gpu.Host, p change.Change) attempt {
	a := attempt{plan: p, known: r.withClaims(host, h)}
	parts := halves(p)
	switch {
	case len(parts) > 1 && anywhere(parts[1].Want.Share): // whether a host of its pool has room, another rule says
		a.plan = parts[0]
		a.refused = r.Refusals(a.known, host, a.plan)
	case len(parts) > 1:
		after, ends := r.after(a.known, host, parts[0])
		if a.plan, a.known = parts[1], after; !ends {
			a.ends = parts[:1]
		}
		a.refused = r.Refusals(a.known, host, a.plan)
	case p.Token == r.Plan.Token:
		a.refused = r.forecastAsItIs(host, h).Refused
	default:
		a.refused = r.Refusals(a.known, host, p)
	}
	return a
}

// stillRefused is what a host refuses once all have made way that can.
func (a attempt) stillRefused(r *Run, after gpu.Host, host string) *gpu.Refusal {
	for _, end := range a.ends {
		if all := r.Refusals(after, host, end); len(all) > 0 {
			return all[0] // what is replaced does not go, and so stands in the way
		}
	}
	first := a.refused[0]
	same := func(x *gpu.Refusal) bool { return x.Object == first.Object && x.Found() == first.Found() }
	if left := r.Refusals(after, host, a.plan); len(left) > 0 && !slices.ContainsFunc(left, same) {
		return left[0] // the others of the run make way for the first
	}
	return first
}

// mayMakeWay are the other plans of the run on a host that may be made before one.
func (r *Run) mayMakeWay(host string, p change.Change, notMade func(o change.Change, host string) bool) []change.Change {
	var out []change.Change
	add := func(o change.Change) {
		if o.Token == p.Token || o.Unchanged || notMade(o, host) {
			return
		}
		for _, part := range halves(o) {
			switch {
			case part.Want.RefersTo(p.Want):
				continue // which Terraform makes afterwards
			case !EndsLayout(p):
			case part.Want.Empty():
				part.Prior = assumeShutdownAllowed(part.Prior) // where it may not go, it says so itself
			case o.Prior.RefersTo(p.Prior):
				continue // which Terraform makes after the destroy
			}
			out = append(out, part)
		}
	}
	for _, e := range r.Book.about(GPUsOn(host), vmsOn(host), SharesOn(host)) {
		if e.token != r.Plan.Token {
			add(e.Plan)
		}
	}
	add(r.Plan)
	return out
}

// mayYield is what becomes at best of what this state has on a host and has not planned yet.
func (r *Run) mayYield(known gpu.Host, p change.Change) []change.Change {
	var out []change.Change
	for _, c := range known.Claims {
		if (r.Owner != "" || EndsLayout(p)) && c.Owner == r.Owner && !r.Superseded(&c) && c.Token != p.Token && !p.Want.RefersTo(c.Want) {
			out = append(out, change.Change{Token: c.Token, Prior: assumeMayStayOff(c.Want)})
			if c.Want.Config != nil {
				out = append(out, change.Change{Token: c.Token, Prior: c.Want, Want: c.Want})
			}
		}
	}
	return out
}

// takenOverByAnother tells whether a plan gives up a VM that another resource of the run has taken
// over by then.
func (r *Run) takenOverByAnother(p change.Change) bool {
	return p.Want.Empty() && p.Prior.Assignment != nil && len(r.OthersForVM(p.Prior.Assignment)) > 0
}

// assumeShutdownAllowed is what an object has whose VM may be shut down now.
func assumeShutdownAllowed(w gpu.Want) gpu.Want {
	if w.Assignment != nil {
		a := *w.Assignment
		a.Power.AllowShutdown, a.Power.NextOff = true, false
		w.Assignment = &a
	}
	return w
}

// assumeMayStayOff is what an object has that may go, or be changed, in any way that nobody knows yet: its
// VM may be left off.
func assumeMayStayOff(w gpu.Want) gpu.Want {
	if w = assumeShutdownAllowed(w); w.Assignment != nil {
		w.Assignment.Power.StayOff = true
	}
	return w
}

// failsBeside tells whether some other host will not let what a plan puts right be put right,
// which is no error: then no host sees it.
func (r *Run) failsBeside(p change.Change, host string) bool {
	if !Repairs(p) {
		return false
	}
	all := func(change.Change, string) bool { return false }
	return slices.ContainsFunc(r.HostsOf(p), func(other string) bool {
		if other == host {
			return false
		}
		o := r.obstacleBut(other, r.Fleet.byName[other], p, all)
		return o.Refused != nil && !o.Open
	})
}

// yieldInTurn makes those changes of a host that can be made, in whatever order, until a plan
// can be, and tells which are left. What ends goes first: what is made again in the same run may be
// in the way.
func (r *Run) yieldInTurn(known gpu.Host, host string, others []change.Change, p change.Change) (gpu.Host, []change.Change, bool) {
	var ends, makes []change.Change
	for _, o := range others {
		if o.Want.Empty() {
			ends = append(ends, o)
		} else {
			makes = append(makes, o)
		}
	}
	known, ends, possible := r.yieldWhoCan(known, host, ends, p)
	if !possible {
		known, makes, possible = r.yieldWhoCan(known, host, makes, p)
	}
	return known, append(ends, makes...), possible
}

func (r *Run) yieldWhoCan(known gpu.Host, host string, others []change.Change, p change.Change) (gpu.Host, []change.Change, bool) {
	for made := true; made; {
		made = false
		for i := 0; i < len(others); {
			later := slices.ContainsFunc(others, func(o change.Change) bool { return others[i].Want.RefersTo(o.Want) })
			after, ok := r.after(known, host, others[i])
			if later || !ok {
				i++
				continue
			}
			known, made, others = after, true, slices.Delete(others, i, i+1)
			if len(r.Refusals(known, host, p)) == 0 {
				return known, others, true
			}
		}
	}
	return known, others, false
}

// after is a host after a change, if the host can do it.
func (r *Run) after(known gpu.Host, host string, p change.Change) (gpu.Host, bool) {
	after, err := change.After(known, host, r.sent(p, host))
	if err != nil {
		return known, false
	}
	return after, true
}

// anywhere tells whether a share is to go to any host of its pool.
func anywhere(s *gpu.Share) bool { return s != nil && s.Host == "" }

// Halves are a plan, or, of a replacement, the end of one object and the making of another.
func halves(p change.Change) []change.Change {
	a, b := p.Prior, p.Want
	two := p.Replaces
	switch {
	case a.Assignment != nil && b.Assignment != nil:
		two = two || !gpu.SameID(a.Assignment.VMID, b.Assignment.VMID)
	case a.Config != nil && b.Config != nil:
		two = two || a.Config.Kind != b.Config.Kind || !gpu.SameID(a.Config.ID, b.Config.ID)
	case a.Pool != nil && b.Pool != nil:
		two = two || !gpu.SameID(a.Pool.Name, b.Pool.Name)
	case a.Share != nil && b.Share != nil && a.Share.Pool != "" && b.Share.Pool == "":
		two = false // nothing has the pool go before the new one is made
	}
	if !two {
		return []change.Change{p}
	}
	ends, makes := p, p
	ends.Want, makes.Prior = gpu.Want{}, gpu.Want{}
	return []change.Change{ends, makes}
}

// handsOver tells whether two plans are of one config or pool, which goes from one resource to
// another as it is.
func handsOver(a, b change.Change) bool {
	same := func(v, w gpu.Want) bool {
		return v.Config != nil && w.Config != nil && gpu.SameID(v.Config.ID, w.Config.ID) ||
			v.Pool != nil && w.Pool != nil && gpu.SameID(v.Pool.ID, w.Pool.ID)
	}
	return same(a.Prior, b.Want) || same(a.Want, b.Prior)
}

// ordered tells whether two plans have an order: Terraform's, since the one refers, or has
// referred, to the other, or that of a handover.
func ordered(user, used change.Change) bool {
	return handsOver(user, used) || user.Want.RefersTo(used.Want) || user.Want.RefersTo(used.Prior) ||
		used.Want.Empty() && user.Prior.RefersTo(used.Prior)
}

// MadeAnew tells whether a plan ends a config or a pool and makes the same one again, as -replace asks for.
func MadeAnew(p change.Change) bool { return p.Replaces && isLayout(p) && handsOver(p, p) }

// Repairs tells whether a plan wants nothing else than before: it puts right what differs.
func Repairs(p change.Change) bool {
	return !p.Replaces && reflect.DeepEqual(declared(p.Want), declared(p.Prior))
}

// declared is a want without what the world makes of it: where its VM happens to be and what it is called there, and which GPUs
// hosts have that a selector finds.
func declared(w gpu.Want) gpu.Want {
	selects := func(s gpu.Scope) bool { return len(s.Hosts) > 0 || s.Cluster != "" }
	if w.Config != nil && selects(w.Config.Scope) {
		c := *w.Config
		c.GPUs = nil
		w.Config = &c
	}
	if w.Share != nil && len(w.Share.Devices) > 0 { // It is never moved, however its place is written.
		s := *w.Share
		s.GPUIDs, s.Profile = nil, ""
		w.Share = &s
	}
	if w.Pool != nil && selects(w.Pool.Scope) {
		p := *w.Pool
		p.Members = nil
		w.Pool = &p
	}
	if w.Assignment != nil {
		a := *w.Assignment
		a.Host, a.VMName = "", ""
		w.Assignment = &a
	}
	return w
}

// onceReferencesAreMade is a host once what a plan refers to is made there, and whether all of that can be.
func (r *Run) onceReferencesAreMade(known gpu.Host, host string, by change.Change) (after gpu.Host, all bool) {
	all = true
	for e := range r.Others(GPUsOn(host)) {
		if e.Plan.Unchanged || !by.Want.RefersTo(e.Plan.Want) {
			continue
		}
		then, ok := r.after(known, host, e.Plan)
		if all = all && ok; ok {
			known = then
		}
	}
	return known, all
}

// outcomes are what a plan may make of a host, if the host can do it: a VM that starts takes a
// partition of whichever GPU the platform chooses, which may be one that another plan is about.
func (r *Run) outcomes(known gpu.Host, host string, p, about change.Change) []gpu.Host {
	after, ok := r.after(known, host, p)
	if !ok {
		return nil
	}
	out := []gpu.Host{after}
	a := cmp.Or(p.Want.Assignment, p.Prior.Assignment)
	if a == nil {
		return out
	}
	now, _ := known.VM(cmp.Or(a.VMID, a.VM))
	then, ok := after.VM(cmp.Or(a.VMID, a.VM))
	if !ok || !then.Runs() || GoesOn(now, then) {
		return out
	}
	var gpus []string
	for _, c := range []*gpu.PartitionConfig{about.Prior.Config, about.Want.Config} {
		if c != nil {
			gpus = append(gpus, c.GPUs[host]...)
		}
	}
	slices.Sort(gpus)
	for _, id := range slices.Compact(gpus) {
		if started, ok := change.StartedOn(after, then.ID, id); ok {
			out = append(out, started)
		}
	}
	return out
}

// servedBy are the MPS daemons of a GPU, by name.
func servedBy(h *gpu.Host, g *gpu.GPU) []string {
	var out []string
	if h.MPS != nil {
		for _, d := range h.MPS.Daemons {
			if placement.GPUsOf(d.Devices)[g.ID] {
				out = append(out, d.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// KeepsMore tells whether the VM of an assignment that goes keeps what others gave it, and so may be
// in the way still.
func KeepsMore(w World, p change.Change) bool {
	a := p.Prior.Assignment
	if a == nil {
		return false
	}
	r, done := Begin(w, p)
	defer done()
	given := 1
	switch {
	case a.Pool != nil:
		given = PoolCount(a.Pool)
	case a.Device != nil:
		given = len(a.Device.GPUIDs)
	}
	at, ok := r.Locate(a)
	return ok && len(at.VM.PartitionAdapters)+len(at.VM.Devices) > given
}
