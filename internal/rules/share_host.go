package rules

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// sharedHost is a host with its devices and the shares on them.
type sharedHost struct {
	key     string
	host    *gpu.Host
	devices []*shareDevice // by GPU id and start
	pools   map[string]*sharePool
	configs map[string]bool // folded ids of the configs that are there
	placed  []*gpu.Share    // all shares of the host
}

// sharePool is a Linux pool as a host knows it.
type sharePool struct {
	id, name string
	gpus     []string
	quotas   map[string]gpu.PoolQuota
}

// claimedShares is a host by its claims. Only shares that count are on it.
func claimedShares(h *gpu.Host, key string, counts func(*gpu.Claim) bool) *sharedHost {
	s := newSharedHost(key, h)
	for i := range h.Claims {
		switch c := &h.Claims[i]; {
		case c.Kind == gpu.ClaimConfig && c.Want.Config != nil:
			s.configs[gpu.FoldID(c.Want.Config.ID)] = true
		case c.Kind == gpu.ClaimPool && c.Want.Pool != nil && h.Platform == gpu.Linux:
			s.addPool(c.Want.Pool, c.GPUs)
		}
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		s.add(g, currentLayout(g, claimedConfig(h, g.ID)))
	}
	s.order()
	for i := range h.Claims {
		if c := &h.Claims[i]; c.Kind == gpu.ClaimShare && c.Want.Share != nil && counts(c) {
			s.put(c.Want.Share)
		}
	}
	return s
}

func newSharedHost(key string, h *gpu.Host) *sharedHost {
	return &sharedHost{key: key, host: h, pools: map[string]*sharePool{}, configs: map[string]bool{}}
}

func (h *sharedHost) addPool(p *gpu.PoolConfig, gpus []string) {
	h.pools[gpu.FoldID(p.ID)] = &sharePool{id: p.ID, name: cmp.Or(p.Name, p.ID), gpus: gpus, quotas: p.Quotas}
}

func (h *sharedHost) add(g *gpu.GPU, l gpuLayout) {
	var in shareOf
	for _, id := range sortedKeys(h.pools) {
		if p := h.pools[id]; contains(p.gpus, g.ID) {
			in = shareOf{id: p.id, name: p.name}
		}
	}
	for _, d := range l.devices(g) {
		d.pool = in
		h.devices = append(h.devices, d)
	}
}

func (h *sharedHost) order() {
	slices.SortStableFunc(h.devices, func(a, b *shareDevice) int { return compareDevices(a.SharedDevice, b.SharedDevice) })
}

func compareDevices(a, b gpu.SharedDevice) int {
	if d := cmp.Compare(gpu.FoldID(a.GPU), gpu.FoldID(b.GPU)); d != 0 || a.Instance == nil || b.Instance == nil {
		return d
	}
	return comparePlacements(*a.Instance, *b.Instance)
}

// find is a device of the host, nil when it is not there.
func (h *sharedHost) find(at gpu.SharedDevice) *shareDevice {
	i := slices.IndexFunc(h.devices, func(d *shareDevice) bool { return d.Same(at) })
	if i < 0 {
		return nil
	}
	return h.devices[i]
}

// put adds a share that is placed.
func (h *sharedHost) put(s *gpu.Share) {
	h.placed = append(h.placed, s)
	for _, at := range s.Devices {
		if d := h.find(at); d != nil {
			d.shares = append(d.shares, s)
		}
	}
}

// scope are the devices that a share may be on, whether it fits there or not. Those of a
// pool are for shares of the pool.
func (h *sharedHost) scope(s *gpu.Share) ([]*shareDevice, error) {
	var pool *sharePool
	if s.Pool != "" {
		if pool = h.pools[gpu.FoldID(s.Pool)]; pool == nil {
			return nil, &ShareScopeError{Share: s.Name, Host: h.key, What: "pool", ID: s.Pool}
		}
	}
	if s.Config != "" && !h.configs[gpu.FoldID(s.Config)] {
		return nil, &ShareScopeError{Share: s.Name, Host: h.key, What: "partition config", ID: s.Config}
	}
	var out []*shareDevice
	for _, d := range h.devices {
		switch {
		case pool != nil && !contains(pool.gpus, d.GPU):
		case len(s.GPUIDs) > 0 && !contains(s.GPUIDs, d.GPU):
		case s.Config != "" && len(s.GPUIDs) == 0 && (d.config == nil || !gpu.SameID(d.config.ID, s.Config)):
		default:
			out = append(out, d)
		}
	}
	return out, nil
}

// scoped are the devices of its scope.
func (h *sharedHost) scoped(s *gpu.Share) []*shareDevice {
	scope, err := h.scope(s)
	if err != nil {
		return nil
	}
	return scope
}

// stay checks the devices that a share has.
func (h *sharedHost) stay(s *gpu.Share) ([]*shareDevice, error) {
	noRoom := &ShareNoRoomError{Share: s.Name, Host: h.key, Want: len(s.Devices), Placed: true}
	var out []*shareDevice
	for _, at := range s.Devices {
		d := h.find(at)
		switch {
		case d == nil:
			noRoom.Lacks = append(noRoom.Lacks, h.gone(at))
			continue
		case s.Pool != "" && h.pools[gpu.FoldID(s.Pool)] != nil && !gpu.SameID(d.pool.id, s.Pool):
			noRoom.Lacks = append(noRoom.Lacks, *d.lack(LackPool, "is not in pool "+quote(h.pools[gpu.FoldID(s.Pool)].name)+" any more", "a GPU of the pool",
				"Leave the GPU in the pool, or destroy the share first."))
			continue
		case len(out) > 0 && d.group != out[0].group:
			return nil, &ShareApartError{Share: s.Name, First: out[0].SharedDevice, Second: at, FirstMode: out[0].mode, SecondMode: d.mode}
		}
		if lack := d.limits(s); lack != nil {
			noRoom.Lacks = append(noRoom.Lacks, *lack)
		}
		out = append(out, d)
	}
	if len(noRoom.Lacks) > 0 {
		return nil, noRoom
	}
	return out, nil
}

// gone says why a device that a share has is not there.
func (h *sharedHost) gone(at gpu.SharedDevice) ShareLack {
	l := ShareLack{Device: at, Kind: LackMissing, Found: "is not on the host", Wanted: "the device that the share was placed on", Fix: "Bring the GPU back, or replace the share."}
	g, ok := h.host.GPU(at.GPU)
	switch {
	case !ok:
		return l
	case at.Instance == nil:
		l.Found, l.Fix = "is in MIG mode", "Turn MIG mode off, or replace the share."
	default:
		l.Found, l.Fix = "does not exist", "Apply the partition config of the GPU, which puts its instances back, or replace the share."
	}
	l.Model = g.Model
	return l
}
