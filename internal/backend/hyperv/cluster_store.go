package hyperv

import (
	"context"
	"errors"
	"io/fs"
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
	name, err := b.clusterName(ctx)
	if err != nil || name == "" {
		return nil, err
	}
	volumes, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_ClusterSharedVolume", "Name")
	if err != nil {
		return nil, err
	}
	if len(volumes) == 0 {
		if b.cluster.known != nil {
			// Other nodes may still see it, and the lease on it.
			return nil, refuse(backend.Unavailable, "cluster %s does not show the shared volume any more that %s is on", name, b.cluster.volumes)
		}
		return nil, nil
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
	known := &backend.Cluster{Name: name, Node: node}
	if c := &b.cluster; c.known != nil && c.volumes == dir {
		known.Store = c.known.Store
		return known, nil
	}
	if known.Store, err = b.cluster.open(dir); err != nil {
		return nil, sharedFolderError(dir, name, err)
	}
	b.cluster.volumes = dir
	return known, nil
}

// sharedFolderError says what the folder is for, which its path does not tell.
func sharedFolderError(dir, cluster string, err error) error {
	code := backend.Failed
	if errors.Is(err, fs.ErrPermission) {
		code = backend.AccessDenied
	}
	return refuse(code, "the agents of cluster %s keep their common lease in %s, which must be a folder that the agent's account can write to on every node: %v", cluster, dir, err)
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
	return "", b.nothingShown(ctx)
}
