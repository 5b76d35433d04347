package placement

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SharedHost is a host with its devices and the shares on them.
type SharedHost struct {
	Key     string
	Host    *gpu.Host
	devices []*Device // By GPU id and start
	Pools   map[string]*SharePool
	Configs map[string]bool // folded ids of the configs that are there
	placed  []*gpu.Share    // all shares of the host
}

// SharePool is a Linux pool as a host knows it.
type SharePool struct {
	ID, Name string
	GPUs     []string
	Quotas   map[string]gpu.PoolQuota
}

// NewSharedHost is a host with the configs and pools that claims of one host tell of, and the
// devices of the GPUs of one; the two are the same host, at different times. No share is on it.
func NewSharedHost(key string, claims, gpus *gpu.Host) *SharedHost {
	s := &SharedHost{Key: key, Host: gpus, Pools: map[string]*SharePool{}, Configs: map[string]bool{}}
	for i := range claims.Claims {
		switch c := &claims.Claims[i]; {
		case c.Kind == gpu.ClaimConfig && c.Want.Config != nil:
			s.Configs[gpu.FoldID(c.Want.Config.ID)] = true
		case c.Kind == gpu.ClaimPool && c.Want.Pool != nil && gpus.Platform == gpu.Linux:
			p := c.Want.Pool
			s.Pools[gpu.FoldID(p.ID)] = &SharePool{ID: p.ID, Name: cmp.Or(p.Name, p.ID), GPUs: c.GPUs, Quotas: p.Quotas}
		}
	}
	for i := range gpus.GPUs {
		g := &gpus.GPUs[i]
		var in PoolOf
		for _, id := range slices.Sorted(maps.Keys(s.Pools)) {
			if p := s.Pools[id]; gpu.HasID(p.GPUs, g.ID) {
				in = PoolOf{id: p.ID, name: p.Name}
			}
		}
		for _, d := range LayoutOf(gpus, g).devices(g) {
			d.pool = in
			s.devices = append(s.devices, d)
		}
	}
	slices.SortStableFunc(s.devices, func(a, b *Device) int { return compareDevices(a.SharedDevice, b.SharedDevice) })
	return s
}

// claimedShares is a host by its claims. Only shares that count are on it.
func claimedShares(h *gpu.Host, key string, counts func(*gpu.Claim) bool) *SharedHost {
	s := NewSharedHost(key, h, h)
	for c := range h.ClaimsOf(gpu.ClaimShare) {
		if c.Want.Share != nil && counts(c) {
			s.Put(c.Want.Share)
		}
	}
	return s
}

func compareDevices(a, b gpu.SharedDevice) int {
	if d := cmp.Compare(gpu.FoldID(a.GPU), gpu.FoldID(b.GPU)); d != 0 || a.Instance == nil || b.Instance == nil {
		return d
	}
	return comparePlacements(*a.Instance, *b.Instance)
}

// Find is a device of the host, nil when it is not there.
func (h *SharedHost) Find(at gpu.SharedDevice) *Device {
	i := slices.IndexFunc(h.devices, func(d *Device) bool { return d.Same(at) })
	if i < 0 {
		return nil
	}
	return h.devices[i]
}

// Put adds a share that is placed.
func (h *SharedHost) Put(s *gpu.Share) {
	h.placed = append(h.placed, s)
	for _, at := range s.Devices {
		if d := h.Find(at); d != nil {
			d.Shares = append(d.Shares, s)
		}
	}
}

const notDrawn = "share %q is drawn from %s %q, which is not on host %q"

// scope are the devices that a share may be on, whether it fits there or not. Those of a
// pool are for shares of the pool.
func (h *SharedHost) scope(s *gpu.Share) ([]*Device, error) {
	var pool *SharePool
	if s.Pool != "" {
		if pool = h.Pools[gpu.FoldID(s.Pool)]; pool == nil {
			return nil, wrongShare(ShareNotInPool, h.Key, notDrawn, s.Name, "pool", s.Pool, h.Key)
		}
	}
	if s.Config != "" && !h.Configs[gpu.FoldID(s.Config)] {
		return nil, wrongShare(ShareNotInConfig, h.Key, notDrawn, s.Name, "partition config", s.Config, h.Key)
	}
	var out []*Device
	for _, d := range h.devices {
		switch {
		case pool != nil && !gpu.HasID(pool.GPUs, d.GPU):
		case len(s.GPUIDs) > 0 && !gpu.HasID(s.GPUIDs, d.GPU):
		case s.Config != "" && len(s.GPUIDs) == 0 && (d.Config == nil || !gpu.SameID(d.Config.ID, s.Config)):
		default:
			out = append(out, d)
		}
	}
	return out, nil
}

// Scoped are the devices of its scope.
func (h *SharedHost) Scoped(s *gpu.Share) []*Device {
	scope, err := h.scope(s)
	if err != nil {
		return nil
	}
	return scope
}

// stay checks the devices that a share has.
func (h *SharedHost) stay(s *gpu.Share) ([]*Device, error) {
	var lacks []*gpu.Refusal
	var out []*Device
	for _, at := range s.Devices {
		d := h.Find(at)
		switch {
		case d == nil:
			lacks = append(lacks, h.gone(at))
			continue
		case s.Pool != "" && h.Pools[gpu.FoldID(s.Pool)] != nil && !gpu.SameID(d.pool.id, s.Pool):
			lacks = append(lacks, d.lack(LackPool, "is not in pool "+strconv.Quote(h.Pools[gpu.FoldID(s.Pool)].Name)+" any more",
				"a GPU of the pool", "leave the GPU in the pool, or destroy the share first"))
			continue
		case len(out) > 0 && d.group != out[0].group:
			return nil, apart(s.Name, out[0], d)
		}
		if lack := d.limits(s); lack != nil {
			lacks = append(lacks, lack)
		}
		out = append(out, d)
	}
	if len(lacks) > 0 {
		return nil, h.noRoom(s, len(s.Devices), lacks, nil, nil)
	}
	return out, nil
}

// gone says why a device that a share has is not there.
func (h *SharedHost) gone(at gpu.SharedDevice) *gpu.Refusal {
	g, ok := h.Host.GPU(at.GPU)
	model, found, fix := "", "is not on the host", "bring the GPU back, or replace the share"
	switch {
	case !ok:
	case at.Instance == nil:
		model, found, fix = g.Model, "is in MIG mode", "turn MIG mode off, or replace the share"
	default:
		model, found = g.Model, "does not exist"
		fix = "apply the partition config of the GPU, which puts its instances back, or replace the share"
	}
	return lackOf(at, model, LackMissing, found, "the device that the share was placed on", fix)
}
