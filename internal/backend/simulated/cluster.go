package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

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
	return &backend.Cluster{Name: rec.Cluster.Name, Node: rec.Name, Store: clusterStore{fleet: h.fleet, name: gpu.FoldID(rec.Cluster.Name)}}, nil
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
	all, err := doc.clusters()
	if err != nil {
		return backend.State{}, err
	}
	state := at(c.Place(), all[c.name].State)
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
		all, err := doc.clusters()
		if err != nil {
			return err
		}
		m := all[c.name]
		m.State = at(c.Place(), m.State)
		if err := how(&m, f); err != nil {
			return err
		}
		all[c.name] = m
		raw, err := json.Marshal(all)
		if err != nil {
			return err
		}
		doc.extra = maps.Clone(doc.extra)
		doc.extra[clustersField], doc.shared = raw, true
		return nil
	})
}

// clusters are the states of all clusters, by folded name.
func (d *document) clusters() (map[string]memory, error) {
	all := map[string]memory{}
	if raw, ok := d.extra[clustersField]; ok {
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, fmt.Errorf("%s: %w", clustersField, err)
		}
	}
	return all, nil
}
