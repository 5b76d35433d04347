package whatif

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Turn is what one plan of a run does to one host when its turn comes there.
type Turn struct {
	// Plan is the plan as the run has it.
	Plan change.Change
	// Part is the plan itself, or, of a replacement, the end of one object or the making of another.
	Part change.Change
	// Replaces is true where Part is half of a replacement.
	Replaces bool
	// Number is when it comes, from 1. What has the same number may be done at the same time; a host has one
	// turn at a time, and a cluster stops no more VMs at once than the run may.
	Number int
	// Does is what it does to the host as that is by then.
	Does change.Forecast
	// After is the host as it is then.
	After *gpu.Host
}

// Limits are how much of a run is done at the same time.
type Limits struct {
	// Stops is how many VMs of one cluster are stopped at once.
	Stops int
	// Hosts is how many hosts the plan of a token changes at once.
	Hosts func(token string) int
	// Domain is what counts its own stops: a cluster, or a host that stands alone.
	Domain func(host string) string
}

// Rehearsal is a run that is made on what is known of its hosts.
type Rehearsal struct {
	Turns []Turn
	// Hosts are the hosts at hand as the run leaves them.
	Hosts map[string]*gpu.Host
}

// Rehearse makes the plans of a run, as its apply would, in an order that Terraform may choose: what is referred to is
// made first, what refers ends first, and what finds no room comes after what makes room. Whatever a host
// would refuse is not made there, and the turn says why.
func Rehearse(w World, l Limits) Rehearsal {
	hosts, _ := w.Fleet.Hosts()
	r := &rehearsal{
		world: w, limits: l, fleet: NewFleet(hosts), last: map[string]int{}, stops: map[string]map[int]int{},
		made: map[string]int{}, users: map[string][]*part{}, makers: map[string][]*part{},
	}
	left := r.parts()
	for len(left) > 0 {
		var later []*part
		for _, p := range left {
			if !r.due(p) || !r.attempt(p, false) {
				later = append(later, p)
			}
		}
		if len(later) == len(left) { // Nothing makes way for any of them, so that one of them is refused.
			next := max(0, slices.IndexFunc(later, r.due))
			r.attempt(later[next], true)
			later = slices.Delete(slices.Clone(later), next, next+1)
		}
		left = later
	}
	out := Rehearsal{Turns: r.turns}
	slices.SortStableFunc(out.Turns, func(a, b Turn) int { return cmp.Compare(a.Number, b.Number) })
	out.Hosts, _ = r.fleet.Hosts()
	return out
}

// rehearsal is the state of one.
type rehearsal struct {
	world  World
	limits Limits
	fleet  *Fleet // the hosts as they are by now
	turns  []Turn

	last  map[string]int         // the number of the last turn of each host
	stops map[string]map[int]int // how many VMs are stopped in a turn, by what counts its own
	made  map[string]int         // the last turn of each part that is made, by its key

	users, makers map[string][]*part // by the id of the config or pool: what has referred to it, and what makes it
}

// part is a plan, or half of a replacement.
type part struct {
	change.Change
	plan change.Change
	half int // 1 and 2 of a replacement
	of   int // how many halves the plan has
	// after are the keys of the parts that come before this one.
	after []string
}

func (p *part) key() string { return p.Token + "\n" + string(rune('0'+p.half)) }

// parts are the parts of all plans that change something, what ends before what is made.
func (r *rehearsal) parts() []*part {
	b := r.world.Others
	plans := b.Plans()
	slices.SortFunc(plans, func(x, y change.Change) int {
		return cmp.Or(strings.Compare(Label(x), Label(y)), strings.Compare(x.Token, y.Token))
	})
	var out []*part
	for _, plan := range plans {
		if plan.Unchanged {
			continue
		}
		all := halves(plan)
		for i, half := range all {
			p := &part{Change: half, plan: plan, half: i, of: len(all)}
			out = append(out, p)
			for _, of := range []gpu.Want{p.Want, p.Prior} {
				configs, pool := of.Uses()
				for _, id := range append(slices.Clip(configs), pool) {
					if id != "" {
						r.users[gpu.FoldID(id)] = append(r.users[gpu.FoldID(id)], p)
					}
				}
			}
			if id := layoutID(p.Want); id != "" {
				r.makers[id] = append(r.makers[id], p)
			}
		}
	}
	for _, p := range out {
		r.comesAfter(p)
	}
	slices.SortStableFunc(out, func(x, y *part) int { return cmp.Compare(order(x.Change), order(y.Change)) })
	return out
}

// layoutID is the folded id of a config or a pool, "" for something else.
func layoutID(w gpu.Want) string {
	switch {
	case w.Config != nil:
		return gpu.FoldID(w.Config.ID)
	case w.Pool != nil:
		return gpu.FoldID(w.Pool.ID)
	}
	return ""
}

// comesAfter notes what Terraform does before a part.
func (r *rehearsal) comesAfter(p *part) {
	before := func(o *part) {
		if o.key() != p.key() {
			p.after = append(p.after, o.key())
		}
	}
	if p.half > 0 {
		before(&part{Change: p.Change, half: p.half - 1})
	}
	if !p.Want.Empty() {
		configs, pool := p.Want.Uses()
		for _, id := range append(slices.Clip(configs), pool) {
			for _, o := range r.makers[gpu.FoldID(id)] {
				if p.Want.RefersTo(o.Want) {
					before(o)
				}
			}
		}
		return
	}
	for _, o := range r.users[layoutID(p.Prior)] {
		if o.Prior.RefersTo(p.Prior) && !o.Want.RefersTo(p.Prior) {
			before(o)
		}
	}
}

// due reports whether all that comes before a part is made.
func (r *rehearsal) due(p *part) bool {
	return !slices.ContainsFunc(p.after, func(key string) bool { return r.made[key] == 0 })
}

// attempt makes a part on its hosts. One that a host refuses is not made, and waits for what makes way, unless it must be.
func (r *rehearsal) attempt(p *part, must bool) bool {
	turns := r.on(p)
	refused := slices.ContainsFunc(turns, func(t Turn) bool { return len(t.Does.Refused) > 0 })
	if refused && !must {
		return false
	}
	first := 1
	for _, key := range p.after {
		first = max(first, r.made[key]+1)
	}
	atOnce := 1
	if r.limits.Hosts != nil {
		atOnce = max(1, r.limits.Hosts(p.Token))
	}
	drains := func(t Turn) int {
		if t.Does.Drains {
			return 1
		}
		return 0
	}
	// As in an apply, nodes that are drained come last and one by one.
	slices.SortStableFunc(turns, func(a, b Turn) int { return drains(a) - drains(b) })
	if slices.ContainsFunc(turns, func(t Turn) bool { return t.Does.Drains }) {
		atOnce = 1
	}
	r.made[p.key()] = first
	var begun []int // the turns of the hosts before
	for _, t := range turns {
		at := max(first, r.last[t.Does.Host]+1)
		if len(begun) >= atOnce {
			at = max(at, begun[len(begun)-atOnce]+1)
		}
		t.Number = r.withStops(at, t)
		begun = append(begun, t.Number)
		r.last[t.Does.Host] = t.Number
		r.made[p.key()] = max(r.made[p.key()], t.Number)
		if !refused {
			was := r.fleet.byName[t.Does.Host]
			r.fleet.Put(t.Does.Host, t.After)
			if t.Does.Drains {
				r.stayAway(was, t)
			}
		}
		r.turns = append(r.turns, t)
	}
	if !refused {
		r.dropLeftClaims(p, turns)
	}
	return true
}

// stayAway has VMs that a drain moves, and that find no room when they would come back, stay on the node that took them: the first one that
// is up and has room beside those that moved before them.
func (r *rehearsal) stayAway(was *gpu.Host, t Turn) {
	if was.Cluster == nil {
		return
	}
	meanwhile := map[string]gpu.Host{}
	for i := range was.VMs {
		id := was.VMs[i].ID
		if _, stays := t.Does.On.VM(id); stays {
			continue
		}
		for _, n := range was.Cluster.Nodes {
			key, known := r.fleet.node(was, n.Name)
			if !known || n.State != gpu.NodeUp || gpu.SameID(n.Name, was.Name) {
				continue
			}
			if _, begun := meanwhile[key]; !begun {
				meanwhile[key] = *r.fleet.byName[key]
			}
			with, _ := change.FailBack(meanwhile[key], *was, id)
			if _, took := with.VM(id); !took {
				continue
			}
			meanwhile[key] = with
			if _, back := t.After.VM(id); !back {
				stays, _ := change.FailBack(*r.fleet.byName[key], *was, id)
				r.fleet.Put(key, &stays)
			}
			break
		}
	}
}

// dropLeftClaims drops what hosts still have on record of a VM that is not there any more.
func (r *rehearsal) dropLeftClaims(p *part, turns []Turn) {
	a := cmp.Or(p.Want.Assignment, p.Prior.Assignment)
	if a == nil {
		return
	}
	for _, c := range slices.Clone(r.fleet.vmClaims[gpu.FoldID(a.VMID)]) {
		h := r.fleet.byName[c.host]
		_, shown := h.VM(a.VMID)
		its := slices.ContainsFunc(turns, func(t Turn) bool { return t.Does.Host == c.host })
		if ours := c.item.Owner == r.world.Owner || c.item.Token == p.Token; shown || its || !ours {
			continue
		}
		is := *h
		is.Claims = change.DropClaim(h.Claims, gpu.ClaimAssignment, a.VMID)
		r.fleet.Put(c.host, &is)
	}
}

// withStops is the first turn from some turn on in which the VMs of a change may be stopped.
func (r *rehearsal) withStops(at int, t Turn) int {
	need := len(t.Does.Stops)
	if need == 0 || r.limits.Stops == 0 || r.limits.Domain == nil {
		return at
	}
	domain := r.limits.Domain(t.Does.Host)
	if r.stops[domain] == nil {
		r.stops[domain] = map[int]int{}
	}
	for used := r.stops[domain]; used[at] > 0 && used[at]+need > r.limits.Stops; {
		at++
	}
	r.stops[domain][at] += need
	return at
}

// on is what a part does to the hosts that it concerns.
func (r *rehearsal) on(p *part) []Turn {
	ch := p.Change
	ch.Subject, ch.Owner, ch.Approved = Label(p.plan), r.world.Owner, nil
	ch.Undrained = Undrained(World{Fleet: r.fleet, Owner: r.world.Owner}, ch)
	var handed []string
	if ch.Want.Empty() {
		handed = TakenOver(r.world, p.Change)
	}
	var out []Turn
	for _, host := range r.hostsOf(&ch) {
		if slices.Contains(handed, host) || len(handed) > 0 && ch.Prior.Assignment != nil {
			continue
		}
		h := r.fleet.byName[host]
		does := change.Simulate(change.WithPeerClaims(*h, values(r.fleet.claimsElsewhere(host, h)), ch.Owner, ch.Token), host, ch.On(host))
		out = append(out, Turn{Plan: p.plan, Part: ch, Replaces: p.of > 1 || p.plan.Replaces, Does: does, After: r.after(h, does)})
	}
	return out
}

// hostsOf are the hosts at hand that a part concerns, and completes it by the host that a share goes to.
func (r *rehearsal) hostsOf(ch *change.Change) []string {
	run, done := Begin(World{Fleet: r.fleet, Owner: r.world.Owner}, *ch)
	defer done()
	if s := ch.Want.Share; s != nil && s.Host == "" {
		host := r.hostOfShare(run, s, ch.Token)
		if host == "" {
			return nil
		}
		placed := *s
		placed.Host = host
		ch.Want.Share = &placed
		return []string{host}
	}
	return run.HostsOf(*ch)
}

// hostOfShare is the host of its pool that a share would go to by now, "" where none has room.
func (r *rehearsal) hostOfShare(run *Run, s *gpu.Share, token string) string {
	pool := map[string]*gpu.Host{}
	for _, host := range run.Shares().PoolHosts(s.Pool) {
		if h := run.At(host); h != nil {
			pool[host] = h
		}
	}
	for _, host := range SortedKeys(pool) {
		if c, has := pool[host].Claim(gpu.ClaimShare, s.Name); has && r.world.Owner != "" && c.Owner == r.world.Owner &&
			c.Want.Share != nil && gpu.SameID(c.Want.Share.Pool, s.Pool) {
			return host
		}
	}
	fit, _ := placement.RankHosts(pool, s, token)
	if len(fit) == 0 {
		return ""
	}
	return fit[0]
}

// after is a host after what is done to it. Its own claims are those that it had and what is written; what a drain moves away comes
// back once the node is resumed, as far as it still has room.
func (r *rehearsal) after(h *gpu.Host, does change.Forecast) *gpu.Host {
	after := change.ProjectAll(*does.On, does.Steps)
	claims := slices.DeleteFunc(slices.Clone(does.Steps), func(s change.Step) bool { return s.Claim == nil })
	after.Claims = change.ProjectAll(*h, claims).Claims
	if does.Drains {
		for i := range h.VMs {
			if _, stayed := after.VM(h.VMs[i].ID); !stayed {
				after, _ = change.FailBack(after, *h, h.VMs[i].ID)
			}
		}
	}
	after.Returning = h.Returning
	return &after
}
