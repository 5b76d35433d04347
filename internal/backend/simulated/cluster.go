package simulated

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// clustersField is where the fleet file keeps what the agents of a cluster share.
const clustersField = "clusters"

// Cluster is the host's cluster. What its nodes share lies in the fleet file beside
// the hosts, as it lies on shared storage in a real one.
func (h *Host) Cluster(ctx context.Context) (*backend.Cluster, error) {
	doc, err := h.fleet.file.read(ctx)
	if err != nil {
		return nil, err
	}
	rec, ok := doc.host(h.name)
	if !ok || rec.Cluster == nil {
		return nil, nil
	}
	if u, down := rec.UnknownPart(gpu.PartCluster); down {
		return nil, &backend.Error{Code: backend.Unavailable, Op: "read the cluster", Detail: u.Why}
	}
	c := clusterStore{fleet: h.fleet, name: gpu.FoldID(rec.Cluster.Name)}
	return &backend.Cluster{
		Name: rec.Cluster.Name, Node: rec.Name, Store: c, HasVM: func(id string) bool { return doc.clusterHas(c.name, id) },
	}, nil
}

// clusterHas tells whether a node of a cluster lists a clustered VM.
func (d *document) clusterHas(cluster, vm string) bool {
	return slices.ContainsFunc(d.hosts, func(e entry) bool {
		if gpu.FoldID(e.rec.ClusterName()) != cluster {
			return false
		}
		v, ok := e.rec.VM(vm)
		return ok && v.Clustered
	})
}

// clusterStore keeps the state of one cluster.
type clusterStore struct {
	fleet *Fleet
	name  string
}

// Load implements backend.Store.
func (c clusterStore) Load(ctx context.Context) (backend.State, error) {
	doc, err := c.fleet.file.read(ctx)
	if err != nil {
		return backend.State{}, err
	}
	state := at(c.Place(), clone(doc.clusters[c.name].State))
	return state, state.Err()
}

// Place implements backend.Repairer.
func (c clusterStore) Place() string { return "cluster " + c.name + " in " + c.fleet.file.path }

// Update implements backend.Store.
func (c clusterStore) Update(ctx context.Context, f func(*backend.State) error) error {
	return c.change(ctx, (*memory).update, f)
}

// Repair implements backend.Repairer.
func (c clusterStore) Repair(ctx context.Context, f func(*backend.State) error) error {
	return c.change(ctx, (*memory).repair, f)
}

func (c clusterStore) change(ctx context.Context, how func(*memory, func(*backend.State) error) error, f func(*backend.State) error) error {
	return c.fleet.file.update(ctx, func(doc *document) error {
		m := clone(doc.clusters[c.name])
		m.State = at(c.Place(), m.State)
		if err := how(&m, f); err != nil {
			return err
		}
		doc.clusters = maps.Clone(doc.clusters)
		if doc.clusters == nil {
			doc.clusters = map[string]memory{}
		}
		doc.clusters[c.name], doc.shared = clone(m), true
		return nil
	})
}

// shown are the hosts as their agents show them: a claim that a cluster keeps is on the node
// that has its VM, or on the first one if none has.
func (d *document) shown(now time.Time) gpu.Snapshot {
	s := gpu.Snapshot{Format: d.format}
	for _, e := range d.hosts {
		rec := clone(e.rec)
		rec.catchUp(now)
		s.Hosts = append(s.Hosts, rec.Host)
	}
	for name, m := range d.clusters {
		nodes := slices.DeleteFunc(pointers(s.Hosts), func(h *gpu.Host) bool { return gpu.FoldID(h.ClusterName()) != name })
		for _, c := range clone(m.Claims) {
			at := slices.IndexFunc(nodes, func(h *gpu.Host) bool {
				_, ok := h.VM(c.ID)
				return ok
			})
			if len(nodes) > 0 {
				nodes[max(at, 0)].Claims = append(nodes[max(at, 0)].Claims, c)
			}
		}
	}
	return s
}

// keepTogether takes from hosts that were shown the claims that their clusters keep.
func (d *document) keepTogether(hosts []gpu.Host) {
	kept := map[string][]gpu.Claim{}
	for i := range hosts {
		hosts[i].Claims = slices.DeleteFunc(hosts[i].Claims, func(c gpu.Claim) bool {
			if c.Cluster != "" {
				kept[gpu.FoldID(c.Cluster)] = append(kept[gpu.FoldID(c.Cluster)], c)
			}
			return c.Cluster != ""
		})
	}
	d.clusters = maps.Clone(d.clusters)
	for name, m := range d.clusters {
		if m.Claims = kept[name]; m.source == nil {
			d.clusters[name], d.shared = m, true
		}
	}
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
