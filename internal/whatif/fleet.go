package whatif

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Fleet is a set of inventories, indexed by what rules ask for: virtual machines,
// clusters and claims. It is safe for concurrent use. A host that was put must not
// be changed afterwards; put a new one instead.
type Fleet struct {
	mu       sync.RWMutex
	byName   map[string]*gpu.Host
	changes  int                 // how often one was put or forgotten
	clusters map[string][]string // folded cluster name to host keys, sorted

	vmsByID      placedMap[gpu.VM] // folded id
	vmsByName    placedMap[gpu.VM] // folded name; names are not unique
	vmClaims     placedMap[gpu.Claim]
	configClaims placedMap[gpu.Claim]
	poolClaims   placedMap[gpu.Claim] // by pool id and by pool name
	shareClaims  placedMap[gpu.Claim] // by name; names are not unique
}

// NewFleet indexes inventories, keyed by the provider's name for the host.
func NewFleet(hosts map[string]*gpu.Host) *Fleet {
	f := &Fleet{
		byName:       map[string]*gpu.Host{},
		clusters:     map[string][]string{},
		vmsByID:      placedMap[gpu.VM]{},
		vmsByName:    placedMap[gpu.VM]{},
		vmClaims:     placedMap[gpu.Claim]{},
		configClaims: placedMap[gpu.Claim]{},
		poolClaims:   placedMap[gpu.Claim]{},
		shareClaims:  placedMap[gpu.Claim]{},
	}
	for key, h := range hosts {
		f.put(key, h)
	}
	return f
}

// Put adds a host or replaces its inventory.
func (f *Fleet) Put(key string, h *gpu.Host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
	f.put(key, h)
}

// With is the index of other inventories of the same hosts, where only some differ. It shares the
// rest, which neither changes any more.
func (f *Fleet) With(hosts map[string]*gpu.Host) *Fleet {
	f.mu.RLock()
	defer f.mu.RUnlock()
	out := &Fleet{
		byName: maps.Clone(f.byName), changes: f.changes, clusters: maps.Clone(f.clusters), vmsByID: maps.Clone(f.vmsByID),
		vmsByName: maps.Clone(f.vmsByName),
		vmClaims:  maps.Clone(f.vmClaims), configClaims: maps.Clone(f.configClaims), poolClaims: maps.Clone(f.poolClaims),
		shareClaims: maps.Clone(f.shareClaims),
	}
	for key, h := range hosts {
		if was := out.byName[key]; was != h {
			out.own(was)
			out.own(h)
			out.drop(key)
			out.put(key, h)
		}
	}
	return out
}

// own copies the lists that a host is in.
func (f *Fleet) own(h *gpu.Host) {
	if h == nil {
		return
	}
	if c := gpu.FoldID(h.ClusterName()); c != "" {
		f.clusters[c] = slices.Clone(f.clusters[c])
	}
	for i := range h.VMs {
		f.vmsByID.own(gpu.FoldID(h.VMs[i].ID))
		f.vmsByName.own(gpu.FoldID(h.VMs[i].Name))
	}
	for i := range h.Claims {
		index, keys := f.claimIndex(&h.Claims[i])
		for _, k := range keys {
			index.own(k)
		}
	}
}

// Hosts are the inventories, and how often one was put or forgotten.
func (f *Fleet) Hosts() (hosts map[string]*gpu.Host, changes int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return maps.Clone(f.byName), f.changes
}

// Changes is how often a host was put or forgotten.
func (f *Fleet) Changes() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.changes
}

// Claimed lists the hosts that have a claim for an object, in sorted order.
func (f *Fleet) Claimed(kind gpu.ClaimKind, id string) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var on []string
	index, keys := f.claimIndex(&gpu.Claim{Kind: kind, ID: id})
	for _, p := range index[keys[0]] {
		on = append(on, p.host)
	}
	return slices.Compact(on)
}

// VMs lists the hosts of the VMs that have an id, or else a name, once for each, and tells how
// many hosts were asked.
func (f *Fleet) VMs(id, name string) (on []string, hosts int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	list := f.vmsByID[gpu.FoldID(id)]
	if len(list) == 0 {
		list = f.vmsByName[gpu.FoldID(name)]
	}
	for _, p := range list {
		on = append(on, p.host)
	}
	return on, len(f.byName)
}

// Delete forgets a host.
func (f *Fleet) Delete(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
}

func (f *Fleet) put(key string, h *gpu.Host) {
	if h == nil {
		return
	}
	f.changes++
	f.byName[key] = h
	if c := h.ClusterName(); c != "" {
		members := f.clusters[gpu.FoldID(c)]
		at, _ := slices.BinarySearch(members, key)
		f.clusters[gpu.FoldID(c)] = slices.Insert(members, at, key)
	}
	for i := range h.VMs {
		vm := &h.VMs[i]
		if vm.IsCopy() {
			continue // the VM itself is elsewhere
		}
		f.vmsByID.put(gpu.FoldID(vm.ID), key, vm)
		f.vmsByName.put(gpu.FoldID(vm.Name), key, vm)
	}
	for i := range h.Claims {
		c := &h.Claims[i]
		index, keys := f.claimIndex(c)
		for _, k := range keys {
			index.put(k, key, c)
		}
	}
}

func (f *Fleet) drop(key string) {
	h := f.byName[key]
	if h == nil {
		return
	}
	f.changes++
	delete(f.byName, key)
	if c := gpu.FoldID(h.ClusterName()); c != "" {
		f.clusters[c] = slices.DeleteFunc(f.clusters[c], func(k string) bool { return k == key })
	}
	for i := range h.VMs {
		f.vmsByID.drop(gpu.FoldID(h.VMs[i].ID), key)
		f.vmsByName.drop(gpu.FoldID(h.VMs[i].Name), key)
	}
	for i := range h.Claims {
		index, keys := f.claimIndex(&h.Claims[i])
		for _, k := range keys {
			index.drop(k, key)
		}
	}
}

func (f *Fleet) claimIndex(c *gpu.Claim) (placedMap[gpu.Claim], []string) {
	switch c.Kind {
	case gpu.ClaimConfig:
		return f.configClaims, []string{gpu.FoldID(c.ID)}
	case gpu.ClaimPool:
		keys := []string{gpu.FoldID(c.ID)}
		if p := c.Want.Pool; p != nil && !gpu.SameID(p.ID, c.ID) {
			keys = append(keys, gpu.FoldID(p.ID))
		}
		return f.poolClaims, keys
	case gpu.ClaimShare:
		return f.shareClaims, []string{gpu.FoldID(c.ID)}
	case gpu.ClaimAssignment:
	}
	return f.vmClaims, []string{gpu.FoldID(c.ID)}
}

// VMOn finds a VM of a host by its folded id.
func (f *Fleet) vmOn(host, id string) *gpu.VM {
	for _, p := range f.vmsByID[id] {
		if p.host == host {
			return p.item
		}
	}
	return nil
}

// Cluster lists the host keys of the cluster that a host belongs to, itself
// included; nil for a standalone host. A host that says so, and that this one does not
// list as a node, does not belong to it.
func (f *Fleet) Cluster(h *gpu.Host) []string {
	if h.ClusterName() == "" {
		return nil
	}
	named := f.clusters[gpu.FoldID(h.ClusterName())]
	stranger := func(key string) bool {
		o := f.byName[key]
		return !gpu.SameID(o.Name, h.Name) && !h.SharesCluster(o)
	}
	if slices.ContainsFunc(named, stranger) {
		return slices.DeleteFunc(slices.Clone(named), stranger)
	}
	return named
}

// node finds a member of h's cluster by its node name.
func (f *Fleet) node(h *gpu.Host, name string) (string, bool) {
	for _, key := range f.Cluster(h) {
		if gpu.SameID(f.byName[key].Name, name) {
			return key, true
		}
	}
	return "", false
}

// placed is something that lies on a host.
type placed[T any] struct {
	host string
	item *T
}

// placedMap is a map with several values per key, ordered by host so that what is
// said does not depend on the order of arrival.
type placedMap[T any] map[string][]placed[T]

func (m placedMap[T]) put(key, host string, item *T) {
	list := m[key]
	at, _ := slices.BinarySearchFunc(list, host, func(p placed[T], h string) int { return strings.Compare(p.host, h) })
	for at < len(list) && list[at].host == host {
		at++
	}
	m[key] = slices.Insert(list, at, placed[T]{host, item})
}

func (m placedMap[T]) own(key string) { m[key] = slices.Clone(m[key]) }

func (m placedMap[T]) drop(key, host string) {
	list := slices.DeleteFunc(m[key], func(p placed[T]) bool { return p.host == host })
	if len(list) == 0 {
		delete(m, key)
		return
	}
	m[key] = list
}

// ClaimsElsewhere are the claims that other nodes of its cluster hold for the VMs of a host.
func (f *Fleet) ClaimsElsewhere(host string) []gpu.Claim {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if h := f.byName[host]; h != nil {
		return values(f.claimsElsewhere(host, h))
	}
	return nil
}

// claimsElsewhere are none where the nodes have their records in common: then the host shows them.
func (f *Fleet) claimsElsewhere(host string, h *gpu.Host) []*gpu.Claim {
	if h.Cluster == nil || h.Cluster.Records {
		return nil
	}
	var out []*gpu.Claim
	for i := range h.VMs {
		out = append(out, f.peerClaims(host, h, h.VMs[i].ID)...)
	}
	return out
}

// peerClaims are those for one VM.
func (f *Fleet) peerClaims(host string, h *gpu.Host, vmID string) []*gpu.Claim {
	var out []*gpu.Claim
	for _, p := range f.vmClaims[gpu.FoldID(vmID)] {
		if p.host != host && h.SharesCluster(f.byName[p.host]) {
			out = append(out, p.item)
		}
	}
	return out
}

func values(of []*gpu.Claim) []gpu.Claim {
	var out []gpu.Claim
	for _, c := range of {
		out = append(out, *c)
	}
	return out
}

// Cluster is the name of a host's cluster, for comparison; "" for none.
func Cluster(h *gpu.Host) string { return gpu.FoldID(h.ClusterName()) }
