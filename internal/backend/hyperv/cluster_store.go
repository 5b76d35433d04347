package hyperv

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// sharedFolder is the folder of the agents on the cluster's first shared volume.
const sharedFolder = `\gpu-agent`

// membership is how long what was read about the host's cluster holds. It is asked for
// at every write.
const membership = 30 * time.Second

// clusterStore remembers the host's cluster for a while.
type clusterStore struct {
	open func(dir string) (backend.Store, error)

	mu      sync.Mutex
	known   *backend.Cluster
	readAt  time.Time
	volumes string // the folder that the store was opened on
}

// WithClusterStore lets the nodes of a cluster share a lease, in a folder on a cluster
// shared volume: all nodes see it, and its locks hold across nodes. Without it, and in
// a cluster without such volumes, each host has its own lease only.
func (b *Backend) WithClusterStore(open func(dir string) (backend.Store, error)) *Backend {
	b.cluster.open = open
	return b
}

// Cluster is the cluster that the host is a node of now.
func (b *Backend) Cluster(ctx context.Context) (*backend.Cluster, error) {
	c := &b.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return nil, nil
	}
	if !c.readAt.IsZero() && time.Since(c.readAt) < membership {
		return c.known, nil
	}
	known, err := b.readCluster(ctx)
	if err != nil {
		return nil, complete(ctx, err, "find the host's cluster", "the host")
	}
	c.known, c.readAt = known, time.Now()
	return known, nil
}

func (b *Backend) readCluster(ctx context.Context) (*backend.Cluster, error) {
	clusters, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Cluster", "Name")
	if errors.Is(err, InvalidNamespace) || (err == nil && len(clusters) == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	volumes, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_ClusterSharedVolume", "Name")
	if err != nil || len(volumes) == 0 {
		return nil, err
	}
	// Every node has to find the same one.
	var names []string
	for _, row := range volumes {
		names = append(names, row.String("Name"))
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	node, err := b.nodeName(ctx)
	if err != nil {
		return nil, err
	}
	dir := strings.TrimRight(names[0], `\`) + sharedFolder
	known := &backend.Cluster{Name: clusters[0].String("Name"), Node: node}
	if c := &b.cluster; c.known != nil && c.volumes == dir {
		known.Store = c.known.Store
		return known, nil
	}
	if known.Store, err = b.cluster.open(dir); err != nil {
		return nil, err
	}
	b.cluster.volumes = dir
	return known, nil
}

// nodeName is what the host calls itself.
func (b *Backend) nodeName(ctx context.Context) (string, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_ComputerSystem", "Name", "ElementName")
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		if !guid.MatchString(row.String("Name")) {
			return row.String("ElementName"), nil
		}
	}
	return "", errors.New("the host has no row in Msvm_ComputerSystem: Hyper-V does not run properly")
}
