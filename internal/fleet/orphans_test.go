package fleet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// An orphaned claim is one whose VM is nowhere, whatever hosts answer, hide or do meanwhile; and where all of them answer
// in full, each such claim is listed once. Each fleet has hosts of its own, nodes of a cluster, and sometimes a node that
// the provider does not know; VMs are anywhere, or gone, and some move while the hosts are read.
func TestOrphanedClaimsAreThoseWhoseVMIsNowhere(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		chance := func(percent int) bool { return r.IntN(100) < percent }
		names := []string{"a", "b", "c", "d", "e"}
		f, conns := hosts(t, fleet.Options{Owner: "vdi"}, names...)
		nodes, told := names[2:], true
		if chance(20) { // the provider does not know it
			nodes, told = append(slices.Clone(nodes), "x"), false
			conns["x"] = connection("x")
		}
		for _, name := range nodes {
			c := &gpu.Cluster{Name: "azl", Records: true}
			for _, n := range nodes {
				c.Nodes = append(c.Nodes, gpu.Node{Name: n, State: gpu.NodeUp})
			}
			conns[name].host.Cluster = c
		}
		var all []string
		for name := range conns {
			all = append(all, name)
		}
		slices.Sort(all)
		want := map[string]bool{}
		for n := range 8 {
			id := fmt.Sprintf("00000000-0000-0000-0000-%012d", n)
			claim := gpu.Claim{Kind: gpu.ClaimAssignment, ID: id, Token: id, Owner: []string{"vdi", "other", ""}[r.IntN(3)]}
			at := names[r.IntN(2)] // where the claim is
			if chance(50) {
				claim.Cluster, at = "azl", "c"
				for _, node := range nodes {
					conns[node].host.Claims = append(conns[node].host.Claims, claim)
				}
			} else {
				conns[at].host.Claims = append(conns[at].host.Claims, claim)
			}
			if chance(30) {
				want[at+" "+id] = true
				continue
			}
			vm := gpu.VM{ID: id, Name: "vm", State: gpu.VMRunning}
			on := conns[all[r.IntN(len(all))]]
			on.host.VMs = append(on.host.VMs, vm)
			if to := conns[names[r.IntN(len(names))]]; chance(20) && to != on && to.inventory == nil { // it comes once that one is read
				to.inventory = func() error {
					on.mu.Lock()
					on.host.VMs = slices.DeleteFunc(slices.Clone(on.host.VMs), func(o gpu.VM) bool { return o.ID == id })
					on.mu.Unlock()
					to.mu.Lock()
					defer to.mu.Unlock()
					to.host.VMs, to.inventory = append(slices.Clone(to.host.VMs), vm), nil
					return nil
				}
			}
		}
		if part := []gpu.Part{gpu.PartVMs, gpu.PartCluster}[r.IntN(2)]; chance(10) {
			h := &conns[names[r.IntN(5)]].host
			h.Unknown, h.VMs, told = []gpu.Unknown{{Part: part, Why: "it does not answer"}}, nil, false
		}
		if chance(10) {
			told = false
			conns[names[r.IntN(5)]].inventory = func() error { return errors.New("away") }
		}
		got, known := f.OrphanedClaims(t.Context(), f.Snapshot(t.Context(), f.HostNames()))
		if !known {
			counts["not told"]++
			if told {
				t.Fatalf("seed %d: it is not told", seed)
			}
			continue
		}
		found := map[string]bool{}
		for _, o := range got {
			found[o.Host+" "+o.Claim.ID] = true
		}
		if diff := cmp.Diff(want, found); diff != "" || len(found) != len(got) {
			t.Fatalf("seed %d: the orphaned claims are %v (-want +got):\n%s", seed, got, diff)
		}
		counts[fmt.Sprintf("found %t", len(got) > 0)]++
	}
	if counts["not told"] < 100 || counts["found true"] < 100 || counts["found false"] < 20 {
		t.Errorf("it came to this: %v", counts)
	}
}
