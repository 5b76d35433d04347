package whatif

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Shares are the shares of a run, and the pools that they draw from.
type Shares struct{ *Run }

// Shares looks at the run as its shares see it.
func (r *Run) Shares() Shares { return Shares{r} }

// Holding is a share that is placed on a host, and how it is known: by a claim, or by a
// plan of the run.
type Holding struct {
	Share *gpu.Share
	Claim *gpu.Claim
	plan  *Entry
}

// Holdings are the shares that are placed on a host and stay there, but for the checked
// plan's own. Of this state they are those that the run has planned; on the host, at
// apply, every claim counts.
func (r Shares) Holdings(host string, h *gpu.Host) []Holding {
	var out []Holding
	for c := range h.ClaimsOf(gpu.ClaimShare) {
		if c.Want.Share == nil || r.Superseded(c) || r.Mode.Yielding && c.Owner == r.Owner {
			continue
		}
		if !r.Ours(c) || (r.Mode.OnHost || r.Mode.everyClaim) && !r.takesOver(host, c) {
			out = append(out, Holding{Share: c.Want.Share, Claim: c})
		}
	}
	for e := range r.Others(SharesOn(host)) {
		if s := e.Plan.Want.Share; s != nil && s.Host == host && len(s.Devices) > 0 {
			out = append(out, Holding{Share: s, plan: e})
		}
	}
	return out
}

// takesOver tells whether the checked plan is of the share that a claim is for: its
// resource was renamed, and finds what it left.
func (r Shares) takesOver(host string, c *gpu.Claim) bool {
	s := r.Plan.Want.Share
	return s != nil && gpu.SameID(s.Name, c.ID) && (s.Host == host || s.Host == "") && r.Ours(c)
}

// made tells whether a share that another plan of the run has no place for is on one of its
// hosts by now. An apply plans a share while others are being made, under tokens that no
// plan of theirs has: the claim then counts, and not the plan as well.
func (r Shares) made(s *gpu.Share, hosts []string) bool {
	return slices.ContainsFunc(r.Fleet.shareClaims[gpu.FoldID(s.Name)], func(c placed[gpu.Claim]) bool {
		o := c.item.Want.Share
		return o != nil && slices.Contains(hosts, c.host) && c.item.Owner == r.Owner && !r.Superseded(c.item) && !r.takesOver(c.host, c.item)
	})
}

// sharesPlaced are the shares of holdings, and of the checked plan.
func (r Shares) sharesPlaced(host string, h *gpu.Host) []*gpu.Share {
	var out []*gpu.Share
	for _, held := range r.Holdings(host, h) {
		out = append(out, held.Share)
	}
	if s := r.Plan.Want.Share; s != nil && s.Host == host && len(s.Devices) > 0 {
		out = append(out, s)
	}
	return out
}

// SharedHost is a host once the plans of the run are made real, without the shares that
// are not placed yet and without the checked one.
func (r Shares) SharedHost(host string, h *gpu.Host) *placement.SharedHost {
	then := r.LaidOut(host, h)
	s := placement.NewSharedHost(host, then, then)
	s.Host = h
	for _, held := range r.Holdings(host, h) {
		s.Put(held.Share)
	}
	return s
}

// LaidOut is a Linux host with the configs and pools of the run made on it, under the shares that
// count.
func (r Shares) LaidOut(host string, h *gpu.Host) *gpu.Host {
	now := !r.Mode.Past && !r.Mode.everyClaim && !r.Mode.Yielding
	if p := r.memo.laidOut[host]; p != nil && now {
		return p
	}
	others := []*Entry{{Plan: r.Plan}}
	for e := range r.Others(GPUsOn(host)) {
		others = append(others, e)
	}
	others = slices.DeleteFunc(others, func(e *Entry) bool {
		w := cmp.Or(e.Plan.Want.Config, e.Plan.Prior.Config)
		return e.Plan.Unchanged || w == nil && e.Plan.Want.Pool == nil && e.Plan.Prior.Pool == nil
	})
	then := r.Future().withAllMade(r.UnderShares(host, h), host, partsOf(others))
	if now {
		r.memo.laidOut[host] = &then
	}
	return &then
}

// UnderShares is a host with claims for the shares that count. Only instances stay for what is in
// them.
func (r Shares) UnderShares(host string, h *gpu.Host) gpu.Host {
	base := *h
	base.Claims = slices.DeleteFunc(slices.Clone(h.Claims), func(c gpu.Claim) bool { return c.Kind == gpu.ClaimShare })
	for _, s := range r.sharesPlaced(host, h) {
		if slices.ContainsFunc(s.Devices, func(d gpu.SharedDevice) bool { return d.Instance != nil }) {
			base.Claims = append(base.Claims, gpu.Claim{Kind: gpu.ClaimShare, ID: s.Name, Want: gpu.Want{Share: s}})
		}
	}
	return base
}

// wants are what the plans of the run want for GPUs of a host, the checked one included.
func (r Shares) wants(host string) []gpu.Want {
	out := []gpu.Want{r.Plan.Want}
	for e := range r.Others(GPUsOn(host)) {
		out = append(out, e.Plan.Want)
	}
	return out
}

// PoolHosts are the hosts of a pool: as this run plans it, or else as claims tell.
func (r Shares) PoolHosts(id string) []string {
	var out []string
	for _, p := range r.poolPlans(id) {
		for host, gpus := range p.Members {
			if len(gpus) > 0 {
				out = append(out, host)
			}
		}
	}
	if len(out) == 0 {
		for _, c := range r.Fleet.poolClaims[gpu.FoldID(id)] {
			if !r.Superseded(c.item) {
				out = append(out, c.host)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// poolPlans are the pools of that id that the run wants, the checked one included.
func (r Shares) poolPlans(id string) []*gpu.PoolConfig {
	var out []*gpu.PoolConfig
	if p := r.Plan.Want.Pool; p != nil && gpu.SameID(p.ID, id) {
		out = append(out, p)
	}
	for e := range r.Others(PoolNamed(id)) {
		if p := e.Plan.Want.Pool; p != nil && gpu.SameID(p.ID, id) {
			out = append(out, p)
		}
	}
	return out
}

// Pending tells whether hosts have claims of this state, of some kinds, that the run has
// not planned yet.
func (r Shares) Pending(hosts []string, kinds ...gpu.ClaimKind) bool {
	return r.unplanned(hosts, func(c *gpu.Claim) bool { return slices.Contains(kinds, c.Kind) })
}

// PendingUnder tells whether the run has still to plan what decides the devices that a share has.
// Another config that takes them says so itself.
func (r Shares) PendingUnder(s *gpu.Share, host string) bool {
	return r.unplanned([]string{host}, func(c *gpu.Claim) bool {
		switch c.Kind {
		case gpu.ClaimConfig:
			return slices.ContainsFunc(s.Devices, func(d gpu.SharedDevice) bool { return c.Covers(d.GPU) })
		case gpu.ClaimPool:
			return c.Want.Pool != nil && gpu.SameID(c.Want.Pool.ID, s.Pool)
		case gpu.ClaimAssignment, gpu.ClaimShare:
		}
		return false
	})
}

// unplanned tells whether hosts have claims of this state that matter and that the run has not
// planned yet.
func (r Shares) unplanned(hosts []string, matters func(*gpu.Claim) bool) bool {
	if r.Mode.OnHost || r.Owner == "" {
		return false
	}
	for _, host := range hosts {
		h, ok := r.Host(host)
		if !ok {
			continue
		}
		for i := range h.Claims {
			if c := &h.Claims[i]; c.Owner == r.Owner && matters(c) && !r.Superseded(c) && !r.takesOver(host, c) {
				return true
			}
		}
	}
	return false
}

// Layouts are the claims that decide what a host has for shares.
var Layouts = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool}

// Today is a host with the GPUs as they are laid out now, in the pools that this run wants,
// under the shares that stay.
func (r Shares) Today(key string) *placement.SharedHost {
	h := r.Fleet.byName[key]
	room := placement.NewSharedHost(key, r.LaidOut(key, h), h)
	for _, s := range r.sharesPlaced(key, h) {
		room.Put(s)
	}
	return room
}

// Moves are the shares on hosts that the run changes or ends.
func (r Shares) Moves(known map[string]*placement.SharedHost) []placement.Move {
	var out []placement.Move
	add := func(prior, want *gpu.Share) {
		if prior == nil || len(prior.Devices) == 0 || known[prior.Host] == nil {
			return
		}
		if want != nil && len(want.Devices) == 0 {
			want = nil // it is replaced
		}
		if want == nil || !want.SameAmounts(prior) {
			out = append(out, placement.Move{Room: known[prior.Host], From: prior, To: want})
		}
	}
	seen := map[*Entry]bool{}
	for _, host := range SortedKeys(known) {
		for e := range r.Others(SharesOn(host)) {
			if !seen[e] && !e.Plan.Unchanged {
				seen[e] = true
				add(e.Plan.Prior.Share, e.Plan.Want.Share)
			}
		}
	}
	if !r.Plan.Unchanged {
		add(r.Plan.Prior.Share, r.Plan.Want.Share)
	}
	return out
}

// Renamed leaves out shares that take the place of one of their name. One of another shape is placed
// anew.
func Renamed(items []placement.PackItem, moves []placement.Move) ([]placement.PackItem, []placement.Move) {
	moves = slices.DeleteFunc(moves, func(m placement.Move) bool {
		if m.To != nil {
			return false
		}
		i := slices.IndexFunc(items, func(i placement.PackItem) bool {
			return gpu.SameID(i.Share.Name, m.From.Name) && slices.Contains(i.Rooms, m.Room) && len(i.Share.GPUIDs) == 0 &&
				change.SamePlacement(m.From, i.Share)
		})
		if i < 0 {
			return false
		}
		stays := *items[i].Share
		stays.Devices = m.From.Devices
		m.Room.Put(&stays)
		items = slices.Delete(items, i, i+1)
		return true
	})
	return items, moves
}

// CanBeAsked tells whether all hosts are at hand, and can have shares.
func (r Shares) CanBeAsked(hosts []string) bool {
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(key string) bool {
		h, ok := r.Host(key)
		return !ok || h.Platform == gpu.HyperV
	})
}

// Room is a host at hand as shares see it.
func (r Shares) Room(key string) *placement.SharedHost { return r.SharedHost(key, r.Fleet.byName[key]) }

// TakenOver is a share as it stands on a host already, when this state has it there under
// another token.
func (r Shares) TakenOver(s *gpu.Share, hosts []string) (*gpu.Share, []string) {
	if len(s.Devices) > 0 {
		return s, hosts
	}
	for _, c := range r.Fleet.shareClaims[gpu.FoldID(s.Name)] {
		if o := c.item.Want.Share; slices.Contains(hosts, c.host) && o != nil && !r.Superseded(c.item) && r.takesOver(c.host, c.item) {
			stays := *s
			stays.Devices = o.Devices
			return &stays, []string{c.host}
		}
	}
	return s, hosts
}

// TakenBy is another plan of the run by which a config takes a GPU that it did not have; before
// the run nothing takes any.
func (r Shares) TakenBy(host, id string) *Entry {
	if r.Mode.Past {
		return nil
	}
	for e := range r.Others(GPUsOn(host)) {
		if is, was := e.Plan.Want.Config, e.Plan.Prior.Config; is != nil && gpu.HasID(is.GPUs[host], id) &&
			(was == nil || !gpu.HasID(was.GPUs[host], id)) {
			return e
		}
	}
	return nil
}

// LeftPool is the name of a share's pool when this run takes a GPU out of it.
func (r Shares) LeftPool(s *gpu.Share, host, gpuID string) string {
	for e := range r.Others(PoolNamed(s.Pool)) {
		prior, want := e.Plan.Prior.Pool, e.Plan.Want.Pool
		if prior != nil && want != nil && s.Pool != "" && gpu.SameID(want.ID, s.Pool) && gpu.HasID(prior.Members[host], gpuID) &&
			!gpu.HasID(want.Members[host], gpuID) {
			return prior.Name
		}
	}
	return ""
}

// Displaces is the plan of the run by which the config or the pool that a share refers to takes the
// device from under it, or lays it out otherwise; nil where none does. Terraform destroys the share before
// it makes that plan, so that another share may come in its place afterwards.
func Displaces(w World, s *gpu.Share) *change.Change {
	r, done := Begin(w, change.Change{})
	defer done()
	if r.At(s.Host) == nil {
		return nil
	}
	for _, at := range s.Devices {
		if d := r.Shares().Today(s.Host).Find(at); d == nil || d.Unfit != nil {
			continue // that is so already, whatever is planned
		}
		if r.Shares().LeftPool(s, s.Host, at.GPU) != "" {
			for e := range r.Others(PoolNamed(s.Pool)) {
				return &e.Plan
			}
		}
		for e := range r.Others(ConfigNamed(s.Config)) {
			c, was := e.Plan.Want.Config, e.Plan.Prior.Config
			if c == nil || was == nil || e.Plan.Unchanged || !gpu.SameID(c.ID, s.Config) || !gpu.HasID(was.GPUs[s.Host], at.GPU) {
				continue
			}
			d := r.Shares().Room(s.Host).Find(at)
			if !gpu.HasID(c.GPUs[s.Host], at.GPU) || d == nil || d.Unfit != nil || d.Mode != placement.ShareModeOf(r.At(s.Host), at) {
				return &e.Plan
			}
		}
	}
	return nil
}

// Unplaced are the other shares of the run that are not placed and may go to some hosts, or
// where one of those may, and all the hosts of these; no hosts when they are too many.
func (r Shares) Unplaced(hosts []string) (out []UnplacedShare, on []string) {
	at := reach{seen: map[string]bool{}}
	at.add(r, hosts)
	seen := map[*Entry]bool{}
	for ; len(at.subjects) > 0; at.subjects = at.subjects[1:] {
		var poolHosts []string
		for e := range r.Others(at.subjects[0]) {
			s := e.Plan.Want.Share
			if s == nil || seen[e] || len(s.Devices) > 0 || placement.CheckShare(s) != nil {
				continue
			}
			seen[e] = true
			u := UnplacedShare{Entry: e, Hosts: []string{s.Host}}
			if s.Host == "" {
				if poolHosts == nil {
					poolHosts = r.HostsFor(s)
				}
				u.Hosts = poolHosts
			}
			// One may go to a host that cannot be asked; of one that is made by now its claim counts.
			if !r.CanBeAsked(u.Hosts) || r.made(s, u.Hosts) {
				continue
			}
			out = append(out, u)
			at.add(r, u.Hosts)
			if len(out)*len(at.seen) > competitorsMost {
				return nil, nil
			}
		}
	}
	slices.Sort(at.hosts)
	return out, at.hosts
}

// UnplacedShare is a plan of the run for a share that is not placed, and where it may go.
type UnplacedShare struct {
	Entry *Entry
	Hosts []string
}

// competitorsMost bounds the shares that are packed in one check, times the hosts and pools that they
// may go to. Beyond it the hosts tell at apply.
const competitorsMost = 4000

// reach is the hosts that shares may go to, and the subjects of the plans that may go there too.
type reach struct {
	seen            map[string]bool
	hosts, subjects []string
}

func (c *reach) add(r Shares, hosts []string) {
	for _, host := range hosts {
		if c.seen[host] {
			continue
		}
		c.seen[host] = true
		c.hosts, c.subjects = append(c.hosts, host), append(c.subjects, SharesOn(host))
		for _, id := range r.poolsOn(host) {
			if of := SharesOf(id); !c.seen[of] {
				c.seen[of], c.subjects = true, append(c.subjects, of)
			}
		}
	}
}

// poolsOn are the ids of the pools that a host is in.
func (r Shares) poolsOn(host string) []string {
	var out []string
	for _, w := range r.wants(host) {
		if w.Pool != nil && len(w.Pool.Members[host]) > 0 {
			out = append(out, w.Pool.ID)
		}
	}
	for c := range r.Fleet.byName[host].ClaimsOf(gpu.ClaimPool) {
		if c.Want.Pool != nil && !r.Superseded(c) {
			out = append(out, c.Want.Pool.ID)
		}
	}
	return out
}

// HostsFor are the hosts that a share may go to.
func (r Shares) HostsFor(s *gpu.Share) []string {
	if s.Host != "" {
		return []string{s.Host}
	}
	return slices.DeleteFunc(r.PoolHosts(s.Pool), func(host string) bool { return r.silent != nil && r.silent(host) })
}

// PoolOf is a pool as this run plans it, or else as a claim tells; nil when nobody does.
func (r Shares) PoolOf(id string) *placement.SharePool {
	for _, p := range r.poolPlans(id) {
		return &placement.SharePool{ID: p.ID, Name: p.Name, Quotas: p.Quotas}
	}
	for _, c := range r.Fleet.poolClaims[gpu.FoldID(id)] {
		if p := c.item.Want.Pool; p != nil && !r.Superseded(c.item) && gpu.SameID(p.ID, id) {
			return &placement.SharePool{ID: p.ID, Name: p.Name, Quotas: p.Quotas}
		}
	}
	return nil
}

// Expected are the devices of a share, or the like of them for one that is not placed: the
// first of its pool that it may be on.
func (r Shares) Expected(s *gpu.Share, hosts ...string) []*placement.Device {
	if s.Host != "" || len(hosts) == 0 {
		hosts = r.HostsFor(s)
	}
	for _, host := range hosts {
		h, ok := r.Host(host)
		if !ok {
			continue
		}
		if len(s.Devices) > 0 {
			out := make([]*placement.Device, len(s.Devices))
			for i, at := range s.Devices {
				out[i] = placement.PlacedDevice(h, at)
			}
			return out
		}
		scope := r.SharedHost(host, h).Scoped(s)
		for _, d := range scope {
			alone := *d
			alone.Shares = nil
			if alone.Takes(s) {
				return slices.Repeat([]*placement.Device{&alone}, min(placement.DevicesWanted(s), len(scope)))
			}
		}
	}
	return nil
}

// HadAsMuch tells whether a placed share wants no more of its label's quota than its state says.
func (r Shares) HadAsMuch(s *gpu.Share) bool {
	was := r.Plan.Prior.Share
	return was != nil && len(s.Devices) > 0 && placement.WantsNoMore(s, r.Expected(s), was, r.Expected(was))
}

// WantsMore is another plan of the run by which a share of the same label and pool takes
// more of the quota than it did; nil when there is none.
func (r Shares) WantsMore(s *gpu.Share) *Entry {
	for e := range r.Others(SharesOf(s.Pool)) {
		o, was := e.Plan.Want.Share, e.Plan.Prior.Share
		if o == nil || o.Label != s.Label || !gpu.SameID(o.Pool, s.Pool) || e.Plan.Unchanged {
			continue
		}
		if was == nil || !placement.WantsNoMore(o, r.Expected(o), was, r.Expected(was)) {
			return e
		}
	}
	return nil
}

// PoolUsage is what a label has of a pool on the hosts at hand, with the shares that the
// run plans and the checked one left out.
func (r Shares) PoolUsage(pool *placement.SharePool, label string) placement.Usage {
	var u placement.Usage
	counts := func(s *gpu.Share) bool { return gpu.SameID(s.Pool, pool.ID) && s.Label == label }
	for _, host := range r.PoolHosts(pool.ID) {
		h, ok := r.Host(host)
		if !ok {
			continue
		}
		for _, held := range r.Holdings(host, h) {
			if held.Claim != nil && counts(held.Share) {
				u.Add(held.Share, r.Expected(held.Share, host))
			}
		}
	}
	for e := range r.Others(SharesOf(pool.ID)) {
		s := e.Plan.Want.Share
		if s == nil || !counts(s) || len(s.Devices) == 0 && r.made(s, r.HostsFor(s)) {
			continue
		}
		u.Add(s, r.Expected(s))
	}
	slices.Sort(u.By)
	return u
}

// PoolsOver are the Linux pools that GPUs of a config are in: those that this run plans,
// and those of other states. A pool of this state that is not planned yet says it itself.
func (r Shares) PoolsOver(c *gpu.PartitionConfig) []*placement.SharePool {
	var out []*placement.SharePool
	add := func(p *gpu.PoolConfig) {
		if !slices.ContainsFunc(out, func(x *placement.SharePool) bool { return gpu.SameID(x.ID, p.ID) }) {
			out = append(out, &placement.SharePool{ID: p.ID, Name: p.Name})
		}
	}
	common := func(host string, ids []string) bool {
		return slices.ContainsFunc(c.GPUs[host], func(id string) bool { return gpu.HasID(ids, id) })
	}
	for host, h := range r.HostsAtHand(c.GPUs) {
		if h.Platform != gpu.Linux {
			continue
		}
		for e := range r.Others(GPUsOn(host)) {
			if p := e.Plan.Want.Pool; p != nil && common(host, p.Members[host]) {
				add(p)
			}
		}
		for x := range h.ClaimsOf(gpu.ClaimPool) {
			if x.Want.Pool != nil && !r.Ours(x) && common(host, x.GPUs) {
				add(x.Want.Pool)
			}
		}
	}
	return out
}

// PoolLeft is the name of the plan's pool when a share of it is on a GPU that leaves it.
func (r Shares) PoolLeft(s *gpu.Share, host, gpuID string) string {
	prior, want := r.Plan.Prior.Pool, r.Plan.Want.Pool
	if prior == nil || !gpu.SameID(s.Pool, prior.ID) || want != nil && gpu.HasID(want.Members[host], gpuID) {
		return ""
	}
	return prior.Name
}

// PoolWith is the name of a Linux pool that has a GPU, "" for none.
func (r Shares) PoolWith(host string, h *gpu.Host, id string) string {
	for e := range r.Others(GPUsOn(host)) {
		if p := e.Plan.Want.Pool; p != nil && gpu.HasID(p.Members[host], id) {
			return p.Name
		}
	}
	for x := range h.ClaimsOf(gpu.ClaimPool) {
		if x.Want.Pool != nil && x.Covers(id) && (r.Mode.OnHost || !r.Ours(x)) && !r.Superseded(x) {
			return x.Want.Pool.Name
		}
	}
	return ""
}
