package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// ClusterFactory makes a fixture of a cluster's hosts, and a look at any of them.
type ClusterFactory func(t *testing.T, hosts gpu.Snapshot) (first Fixture, look func(t *testing.T, name string) gpu.Host)

// RunCluster runs the scenarios of a node in its cluster: hv01 is asked, and hv02 is
// where its VMs can go.
func RunCluster(t *testing.T, factory ClusterFactory) {
	t.Helper()
	for _, s := range clusterScenarios() {
		t.Run(s.name, func(t *testing.T) { s.run(t, factory) })
	}
	for _, lag := range []time.Duration{0, 5 * time.Second, time.Minute} {
		t.Run(fmt.Sprintf("a cluster that lags %s", lag), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lags(t, factory, lag) })
		})
	}
	t.Run("a VM is started again as soon as it is off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { startsAgain(t, factory) })
	})
}

// startsAgain has somebody start gamma between two looks at whether it is off. Who shuts it down does
// not wait for that until time runs out.
func startsAgain(t *testing.T, factory ClusterFactory) {
	f, look := factory(t, clusterHosts())
	guests, ok := f.(Guests)
	if !ok {
		t.Fatal("the fixture cannot say how a guest shuts down")
	}
	h := f.HyperV()
	if err := h.StartVM(t.Context(), gamma); err != nil {
		t.Fatal(err)
	}
	guests.SetGuest(t, gamma, Guest{Shutdown: 250 * time.Millisecond})
	began := time.Now()
	go func() {
		time.Sleep(brief)
		for h.StartVM(t.Context(), gamma) != nil && t.Context().Err() == nil { // it is still shutting down
			time.Sleep(time.Millisecond)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	wantRefusal(t, h.ShutDownVM(ctx, gamma, false), backend.InUse, []string{"gamma", "it runs again"})
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
	here := look(t, "hv01")
	if vm, ok := here.VM(gamma); !ok || !vm.Runs() {
		t.Errorf("gamma is %+v", vm)
	}
}

// lags has the cluster learn late that alpha is off. It is started all the same, on its node
// and with the partition that it was given meanwhile; and when the cluster never learns it,
// that is the error.
func lags(t *testing.T, factory ClusterFactory, lag time.Duration) {
	f, look := factory(t, clusterHosts())
	late, ok := f.(Laggards)
	if !ok {
		t.Fatal("the fixture cannot say when a cluster learns of a VM")
	}
	h := f.HyperV()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(h.StartVM(t.Context(), alpha))
	late.ClusterLag(t, lag)
	must(h.ShutDownVM(t.Context(), alpha, false))
	_, err := h.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
	must(err)
	began := time.Now()
	must(h.StartVM(t.Context(), alpha))
	if took := time.Since(began); took < lag-time.Second || took > lag+3*time.Second {
		t.Errorf("it took %s", took)
	}
	here := look(t, "hv01")
	if vm, ok := here.VM(alpha); !ok || !vm.Runs() || partitionsHeldBy(&here, alpha) != 1 {
		t.Errorf("alpha is %+v", vm)
	}

	late.ClusterLag(t, time.Hour)
	must(h.ShutDownVM(t.Context(), alpha, false))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	wantRefusal(t, h.StartVM(ctx, alpha), backend.Timeout, []string{"alpha", "the cluster has not noticed that the VM is off"})
	here = look(t, "hv01")
	if vm, ok := here.VM(alpha); !ok || vm.State != gpu.VMOff || len(vm.PartitionAdapters) != 1 {
		t.Errorf("alpha, which is not started, is %+v", vm)
	}
}

// clusterScenario is one drain of hv01. On it alpha and beta are clustered and gamma is
// not; alpha runs with a partition of GPU A.
type clusterScenario struct {
	name  string
	given func(first, second *gpu.Host)
	fails backend.Code
	says  string
	// stays is true when alpha is not moved.
	stays bool
}

func clusterScenarios() []clusterScenario {
	return []clusterScenario{
		{name: "a drain moves a VM with its partition"},
		{
			name: "a partition that cannot leave stays", fails: backend.InUse, says: "alpha", stays: true,
			given: func(first, _ *gpu.Host) { cannotMigrate(first) },
		},
		{
			name: "a node whose GPUs cannot take it does not", fails: backend.InUse, says: "alpha", stays: true,
			given: func(_, second *gpu.Host) { cannotMigrate(second) },
		},
		{
			name: "no node is up", fails: backend.InUse, says: "alpha", stays: true,
			given: func(first, second *gpu.Host) {
				first.Cluster.Nodes[1].State, second.Cluster.Nodes[1].State = gpu.NodeDown, gpu.NodeDown
			},
		},
		{
			name: "the other node is no possible owner", fails: backend.InUse, says: "alpha", stays: true,
			given: func(first, _ *gpu.Host) { first.VMs[0].PossibleOwners = []string{"hv01"} },
		},
		{
			name: "a host in no cluster", fails: backend.NotSupported, says: "cluster", stays: true,
			given: func(first, second *gpu.Host) {
				first.Cluster, second.Cluster = nil, nil
				for i := range first.VMs {
					first.VMs[i].Clustered, first.VMs[i].Settings.OfflineAction = false, nil
				}
			},
		},
	}
}

func cannotMigrate(h *gpu.Host) {
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			p.SupportsIncomingLiveMigration = no()
		}
	}
}

// clusterHosts are two nodes with the same GPUs. All VMs live on the first.
func clusterHosts() gpu.Snapshot {
	first, second := standardHost(), standardHost()
	isClustered(alpha)(&first)
	isClustered(beta)(&first)
	second.Name, second.VMs = "hv02", []gpu.VM{}
	c := *first.Cluster
	c.Nodes = append([]gpu.Node{}, c.Nodes...)
	second.Cluster = &c
	return gpu.Snapshot{Hosts: []gpu.Host{first, second}}
}

func (s clusterScenario) run(t *testing.T, factory ClusterFactory) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	hosts := clusterHosts()
	if s.given != nil {
		s.given(&hosts.Hosts[0], &hosts.Hosts[1])
	}
	f, look := factory(t, hosts)
	h := f.HyperV()
	if _, err := h.AddPartitionAdapter(ctx, alpha, gpu.PartitionAdapter{}); err != nil {
		t.Fatal(err)
	}
	for _, vm := range []string{alpha, gamma} {
		if err := h.StartVM(ctx, vm); err != nil {
			t.Fatal(err)
		}
	}

	s.judge(t, h.DrainNode(ctx))
	s.wantPlaces(t, look)
	if hosts.Hosts[0].Cluster == nil {
		s.judge(t, h.ResumeNode(ctx))
		return
	}
	if state := nodeState(look(t, "hv02")); state != gpu.NodePaused {
		t.Errorf("hv02 sees hv01 as %s", state)
	}
	s.judge(t, h.DrainNode(ctx)) // once more
	s.wantPlaces(t, look)

	for range 2 {
		if err := h.ResumeNode(ctx); err != nil {
			t.Fatal(err)
		}
		if state := nodeState(look(t, "hv01")); state != gpu.NodeUp {
			t.Errorf("resumed, hv01 is %s", state)
		}
		s.stays = true // what the drain has moved comes back
		s.wantPlaces(t, look)
	}
	if err := h.StartVM(ctx, beta); err != nil {
		t.Errorf("a VM cannot be started on the resumed node: %v", err)
	}
}

func (s clusterScenario) judge(t *testing.T, err error) {
	t.Helper()
	if s.fails == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	refusal, ok := errors.AsType[*backend.Error](err)
	if !ok || refusal.Code != s.fails || !strings.Contains(err.Error(), s.says) {
		t.Fatalf("must be refused as %s, and say %q: %v", s.fails, s.says, err)
	}
}

// wantPlaces checks where the VMs are and that none was stopped or started.
func (s clusterScenario) wantPlaces(t *testing.T, look func(*testing.T, string) gpu.Host) {
	t.Helper()
	here, there := look(t, "hv01"), look(t, "hv02")
	place := &there
	if s.stays {
		place = &here
	}
	if vm, ok := place.VM(alpha); !ok || vm.State != gpu.VMRunning {
		t.Errorf("alpha is not where it should run: on hv01 %v, on hv02 %v", here.VMs, there.VMs)
	}
	if held := partitionsHeldBy(place, alpha); held != 1 {
		t.Errorf("alpha holds %d partitions on %s", held, place.Name)
	}
	if beta, ok := here.VM(beta); ok && beta.State != gpu.VMOff {
		t.Errorf("beta, which was off, is %s", beta.State)
	}
	if gamma, ok := here.VM(gamma); !ok || gamma.State != gpu.VMRunning {
		t.Error("gamma, which is not clustered, does not run on hv01 any more")
	}
}

func partitionsHeldBy(h *gpu.Host, vm string) int {
	n := 0
	for i := range h.GPUs {
		if h.GPUs[i].Partitionable == nil {
			continue
		}
		for _, p := range h.GPUs[i].Partitionable.Partitions {
			if gpu.SameID(p.VMID, vm) {
				n++
			}
		}
	}
	return n
}

// nodeState is what a host sees of hv01.
func nodeState(h gpu.Host) gpu.NodeState {
	for _, n := range h.Cluster.Nodes {
		if n.Name == "hv01" {
			return n.State
		}
	}
	return ""
}
