package hyperv

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// sharedFolder is the folder of the agents on one of the cluster's shared volumes.
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
	dirs := words.Each(volumes, func(row Row) string { return strings.TrimRight(row.String("Name"), `\`) + sharedFolder })
	dir := b.cluster.volumes
	switch {
	case dir != "" && !slices.ContainsFunc(dirs, func(d string) bool { return strings.EqualFold(d, dir) }):
		// Other nodes may still see it, and the lease on it.
		return nil, refuse(backend.Unavailable, "cluster %s does not show the shared volume any more that %s is on", name, dir)
	case len(dirs) == 0:
		return nil, nil
	case dir == "":
		if dir, err = chosen(dirs); err != nil {
			return nil, err
		}
	}
	node, err := b.nodeName(ctx)
	if err != nil {
		return nil, err
	}
	vms, err := b.clusteredIDs(ctx)
	if err != nil {
		return nil, err
	}
	known := &backend.Cluster{Name: name, Node: node, HasVM: func(id string) bool { return vms[gpu.FoldID(id)] }}
	if c := &b.cluster; c.known != nil {
		known.Store = c.known.Store
		return known, nil
	}
	if known.Store, err = b.cluster.open(dir); err != nil {
		return nil, sharedFolderError(dir, name, err)
	}
	b.cluster.volumes = dir
	return known, nil
}

// chosen is the folder of the agents that is there on one of the volumes: a volume that is
// added must not move the lease. Where none is, it is the first, which every node finds.
func chosen(dirs []string) (string, error) {
	slices.SortFunc(dirs, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	var there, reachable []string
	for _, dir := range dirs {
		switch _, err := os.Stat(dir); {
		case err == nil:
			there = append(there, dir)
		case !errors.Is(err, fs.ErrNotExist):
			return "", refuse(backend.Unavailable, "the agents' common lease may be in %s, which cannot be read: %v", dir, err)
		}
		if _, err := os.Stat(strings.TrimSuffix(dir, sharedFolder)); err == nil {
			reachable = append(reachable, dir)
		}
	}
	switch {
	case len(there) > 1:
		return "", refuse(backend.Failed,
			"the agents' folder is on several shared volumes: %s; stop the agents of all nodes and delete all but the one that changed last",
			strings.Join(there, ", "))
	case len(there) == 1:
		return there[0], nil
	case len(reachable) > 0 && len(reachable) < len(dirs):
		return "", refuse(backend.Unavailable,
			"not every shared volume of the cluster can be reached from this node, and the agents' common lease may be on one that cannot; "+
				"reached were only those of %s",
			strings.Join(reachable, ", "))
	}
	return dirs[0], nil
}

// clusteredIDs are the folded ids of the VMs that the cluster runs on any node.
func (b *Backend) clusteredIDs(ctx context.Context) (map[string]bool, error) {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType), "PrivateProperties")
	vms := map[string]bool{}
	for _, row := range rows {
		vms[gpu.FoldID(strings.Trim(row.Row("PrivateProperties").String("VmID"), "{}"))] = true
	}
	return vms, err
}

// sharedFolderError says what the folder is for, which its path does not tell.
func sharedFolderError(dir, cluster string, err error) error {
	code := backend.Failed
	if errors.Is(err, fs.ErrPermission) {
		code = backend.AccessDenied
	}
	return refuse(code, "the agents of cluster %s keep their common lease in %s, which must be a folder that the agent's account can write "+
		"to on every node: %v", cluster, dir, err)
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
