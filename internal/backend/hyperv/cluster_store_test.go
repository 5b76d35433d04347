package hyperv_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// folders are those of shared volumes, which all nodes see.
type folders struct {
	mu   sync.Mutex
	open map[string]*folder
}

// folder is the agents' store in one.
type folder struct {
	mu    sync.Mutex
	state backend.State
}

func (f *folders) at(dir string) (backend.Store, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[string]*folder{}
	}
	if f.open[dir] == nil {
		f.open[dir] = &folder{}
	}
	return f.open[dir], nil
}

func (f *folder) Load(context.Context) (backend.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, nil
}

func (f *folder) Update(_ context.Context, change func(*backend.State) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.state
	if err := change(&next); err != nil {
		return err
	}
	f.state = next
	return nil
}

// Both nodes keep what is the cluster's in one folder, whatever order they see the
// volumes in, and lose nothing of each other's.
func TestNodesShareOneStore(t *testing.T) {
	t.Parallel()
	var shared folders
	r := newRig(t, inCluster)
	nodes := []*rig{r, rigOn(t, r.fleet, "hv02")}
	nodes[0].machine.SharedVolumes(`C:\ClusterStorage\Volume2`, `c:\clusterstorage\volume1\`)
	nodes[1].machine.SharedVolumes(`c:\clusterstorage\volume1`, `C:\ClusterStorage\Volume2`)
	var wg sync.WaitGroup
	errs := make(chan error, len(nodes))
	const rounds = 50
	for i, n := range nodes {
		b := n.backend.WithClusterStore(shared.at)
		wg.Go(func() {
			errs <- func() error {
				for range rounds {
					c, err := b.Cluster(t.Context())
					if err != nil {
						return err
					}
					if c == nil || c.Name != "cl1" || c.Node != []string{"hv01", "hv02"}[i] {
						return fmt.Errorf("the cluster of node %d is %+v", i, c)
					}
					if err := c.Store.Update(t.Context(), func(s *backend.State) error { s.Fence++; return nil }); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		r.run(err)
	}
	if len(shared.open) != 1 {
		t.Fatalf("the folders are %v", shared.open)
	}
	state, err := shared.open[`c:\clusterstorage\volume1\gpu-agent`].Load(t.Context())
	r.run(err)
	if state.Fence != 2*rounds {
		t.Errorf("%d of %d updates are there", state.Fence, 2*rounds)
	}
}

func TestNoClusterStore(t *testing.T) {
	t.Parallel()
	var shared folders
	for what, r := range map[string]*rig{
		"in no cluster": newRig(t), "without the store": newRig(t, inCluster), "without volumes": newRig(t, inCluster),
	} {
		b := r.backend
		if what != "without the store" {
			b = b.WithClusterStore(shared.at)
		}
		if what == "without volumes" {
			r.machine.SharedVolumes()
		}
		if c, err := b.Cluster(t.Context()); c != nil || err != nil {
			t.Errorf("a host %s is in %+v, %v", what, c, err)
		}
	}
	if len(shared.open) != 0 {
		t.Errorf("folders were opened: %v", shared.open)
	}
}

// A folder that cannot be used says which it is and what it is for.
func TestAFolderThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	var failure error
	b := r.backend.WithClusterStore(func(string) (backend.Store, error) { return nil, failure })
	failure = fmt.Errorf("open lock: %w", fs.ErrPermission)
	_, err := b.Cluster(t.Context())
	refuses(t, err, backend.AccessDenied, "cluster cl1", `C:\ClusterStorage\Volume1\gpu-agent`, "permission denied", "on every node")
	failure = fmt.Errorf("open lock: %w", fs.ErrNotExist)
	_, err = b.Cluster(t.Context())
	refuses(t, err, backend.Failed, `C:\ClusterStorage\Volume1\gpu-agent`, "does not exist")
	r.machine.Deny("MSCluster_ClusterSharedVolume")
	_, err = b.Cluster(t.Context())
	refuses(t, err, backend.AccessDenied, "MSCluster_ClusterSharedVolume", "Grant-ClusterAccess")
	r.machine.Gone(0)
	_, err = b.Cluster(t.Context())
	refuses(t, err, backend.Unavailable)
}

// A volume that is not shown any more may be there for other nodes, with their lease on
// it: the host does not go on without.
func TestTheVolumeIsGone(t *testing.T) {
	t.Parallel()
	var shared folders
	r := newRig(t, inCluster)
	b := r.backend.WithClusterStore(shared.at)
	c, err := b.Cluster(t.Context())
	r.run(err)
	r.machine.SharedVolumes()
	if again, err := b.Cluster(t.Context()); err != nil || again != c {
		t.Errorf("what was just read is read again: %v, %v", again, err)
	}
	b.ForgetCluster()
	_, err = b.Cluster(t.Context())
	refuses(t, err, backend.Unavailable, "cluster cl1", `C:\ClusterStorage\Volume1\gpu-agent`)
	r.machine.SharedVolumes(`C:\ClusterStorage\Volume1`)
	back, err := b.Cluster(t.Context())
	r.run(err)
	if back.Store != c.Store {
		t.Error("the volume that is back has another store")
	}
}

// The folder stays where it is, whatever volumes come: what was created once is on the
// volumes for all nodes to see. Nothing is created beside it, not even when it cannot be
// seen now.
func TestTheFolderStays(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	volume := func(name string) string { return filepath.Join(root, name) }
	create := func(dirs ...string) {
		for _, dir := range dirs {
			if err := os.MkdirAll(dir, 0o750); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := func(r *rig) (string, error) {
		var opened string
		b := hyperv.New(r.wire).WithClusterStore(func(dir string) (backend.Store, error) {
			opened = dir
			return &folder{}, nil
		})
		_, err := b.Cluster(t.Context())
		return opened, err
	}
	r := newRig(t, inCluster)
	create(volume("B"), volume("C"))
	r.machine.SharedVolumes(volume("C"), volume("B"))
	first, err := at(r)
	r.run(err)
	if first != volume("B")+`\gpu-agent` {
		t.Fatalf("the folder is %s", first)
	}
	create(first, volume("A"))
	r.machine.SharedVolumes(volume("A"), volume("C"), volume("B"))
	if again, err := at(r); err != nil || again != first {
		t.Errorf("with another volume the folder is %s, %v", again, err)
	}
	if err := os.RemoveAll(volume("B")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(first); err != nil { // on Windows it was below
		t.Fatal(err)
	}
	if dir, err := at(r); dir != "" {
		t.Errorf("with a volume that cannot be reached the folder is %s", dir)
	} else {
		refuses(t, err, backend.Unavailable, "not every shared volume", volume("A"))
	}
	create(volume("B"), first, volume("A")+`\gpu-agent`)
	if dir, err := at(r); dir != "" {
		t.Errorf("of two folders %s is taken", dir)
	} else {
		refuses(t, err, backend.Failed, "several shared volumes")
	}
}
