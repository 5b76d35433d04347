package simulated_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// together is a simulated node whose records are its cluster's.
type together struct {
	fixture
	store backend.Store
}

func (f together) Store() backend.Store { return f.store }

// What the nodes of a cluster share is kept as what one host remembers.
func TestClusterStoreConformance(t *testing.T) {
	conformance.RunStore(t, func(t *testing.T, initial gpu.Host) conformance.Fixture {
		initial.Cluster = &gpu.Cluster{Name: "cl1", Nodes: []gpu.Node{{Name: initial.Name, State: gpu.NodeUp}}}
		fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{initial}})
		if err != nil {
			t.Fatal(err)
		}
		return together{fixture{fleet: fleet, host: hostOf(t, fleet, initial.Name)}, clusterOf(t, fleet, initial.Name).Store}
	})
}

func clusterOf(t *testing.T, fleet *others.Fleet, node string) *backend.Cluster {
	t.Helper()
	c, err := hostOf(t, fleet, node).Cluster(t.Context())
	if err != nil || c == nil {
		t.Fatalf("%s has the cluster %v, %v", node, c, err)
	}
	return c
}

// Each node finds what another one stored for the cluster, and a claim is shown by the node that has
// its VM. A host of no cluster has none of it, and one that cannot read its cluster says so.
func TestNodesShareTheRecordsOfTheirCluster(t *testing.T) {
	s := twoNodes(1)
	s.Hosts = append(s.Hosts, gpu.Host{Name: "alone", Platform: gpu.HyperV, OS: gpu.OS{Build: 26100}})
	s.Hosts[0].VMs[0].State = gpu.VMRunning
	fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
	run(t, err)
	claim := gpu.Claim{Kind: gpu.ClaimAssignment, ID: vmID(1), Token: "1", Owner: "vdi", Cluster: "CL1"}
	first, second := clusterOf(t, fleet, "hv01"), clusterOf(t, fleet, "hv02")
	run(t, first.Store.Update(t.Context(), func(st *backend.State) error {
		st.Claims, st.Fence = []gpu.Claim{claim}, 7
		return nil
	}))
	if st, err := second.Store.Load(t.Context()); err != nil || st.Fence != 7 || len(st.Claims) != 1 || st.Claims[0].Token != "1" {
		t.Errorf("the other node loads %+v, %v", st, err)
	}
	if !second.HasVM(vmID(1)) || second.HasVM(vmID(2)) || second.Node != "hv02" {
		t.Errorf("of node %s: VM 1 is the cluster's: %t, VM 2: %t", second.Node, second.HasVM(vmID(1)), second.HasVM(vmID(2)))
	}
	shown := func(on string) {
		t.Helper()
		now, err := fleet.Snapshot(t.Context())
		run(t, err)
		for _, h := range now.Hosts {
			if (len(h.Claims) == 1) != (h.Name == on) {
				t.Errorf("the VM is on %s, and %s shows the claims %+v", on, h.Name, h.Claims)
			}
		}
	}
	shown("hv01")
	run(t, fleet.LiveMigrate(t.Context(), "vm-1", "hv02"))
	shown("hv02")

	// What is done to a copy stays in it.
	copied, err := fleet.Copy(t.Context())
	run(t, err, clusterOf(t, copied, "hv02").Store.Update(t.Context(), func(st *backend.State) error {
		st.Claims, st.Fence = nil, 8
		return nil
	}))
	shown("hv02")
	if st, err := first.Store.Load(t.Context()); err != nil || st.Fence != 7 {
		t.Errorf("after a change of a copy the fence is %d, %v", st.Fence, err)
	}

	if c, err := hostOf(t, fleet, "alone").Cluster(t.Context()); c != nil || err != nil {
		t.Errorf("a host of no cluster has %+v, %v", c, err)
	}
	run(t, fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts[0].Unknown = []gpu.Unknown{{Part: gpu.PartCluster, Why: "the service is down"}}
		return nil
	}))
	_, err = hostOf(t, fleet, "hv01").Cluster(t.Context())
	wantCode(t, err, backend.Unavailable)
}

// Records that cannot be read are kept as they are until they are given up, on a host and in what
// its cluster keeps: the rest is loaded with an error that says where they are.
func TestDamagedRecordsAreKeptUntilTheyAreGivenUp(t *testing.T) {
	for name, of := range map[string]func(*testing.T, *others.Fleet) backend.Store{
		"host":    func(t *testing.T, f *others.Fleet) backend.Store { return hostOf(t, f, "hv01") },
		"cluster": func(t *testing.T, f *others.Fleet) backend.Store { return clusterOf(t, f, "hv01").Store },
	} {
		t.Run(name, func(t *testing.T) {
			fleet := newFleet(t, 1)
			store := of(t, fleet)
			run(t, store.Update(t.Context(), func(st *backend.State) error {
				st.Fence = 3
				st.PendingStarts = []gpu.PendingStart{{VM: vmID(1), Subject: "damaged"}, {VM: vmID(1), Subject: "whole"}}
				return nil
			}))
			whole := read(t, fleet.Path())
			damaged := strings.Replace(whole, `"damaged"`, `"damages"`, 1) // its sum is another one
			if whole == damaged {
				t.Fatalf("the record is not in the file:\n%s", whole)
			}
			run(t, os.WriteFile(fleet.Path(), []byte(damaged), 0o600))

			st, err := store.Load(t.Context())
			unreadable, ok := errors.AsType[*backend.UnreadableError](err)
			if !ok || len(st.PendingStarts) != 1 || st.PendingStarts[0].Subject != "whole" || st.Fence != 3 {
				t.Fatalf("it loads %+v, %v", st, err)
			}
			repairer, ok := store.(backend.Repairer)
			if !ok || unreadable.Records[0].File != repairer.Place() || !strings.Contains(repairer.Place(), fleet.Path()) {
				t.Errorf("the record is in %q, the store in %q", unreadable.Records[0].File, repairer.Place())
			}
			if err := store.Update(t.Context(), func(*backend.State) error { return nil }); !errors.As(err, &unreadable) {
				t.Errorf("an update ends with %v", err)
			}
			if err := repairer.Repair(t.Context(), func(st *backend.State) error { st.Fence++; return nil }); !errors.As(err, &unreadable) {
				t.Errorf("where nothing is given up, it ends with %v", err)
			}
			run(t, fleet.SetVMState(t.Context(), "vm-1", gpu.VMRunning))
			if !strings.Contains(read(t, fleet.Path()), `"damages"`) {
				t.Error("the damaged record was overwritten")
			}
			run(t, repairer.Repair(t.Context(), func(st *backend.State) error { st.Unreadable = nil; return nil }))
			if st, err := store.Load(t.Context()); err != nil || len(st.PendingStarts) != 1 || st.Fence != 3 {
				t.Errorf("once it is given up, it loads %+v, %v", st, err)
			}
		})
	}
}
