package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OrphanedClaim is a claim of a VM that no host has any more.
type OrphanedClaim struct {
	// Host is the host that shows the claim; of the nodes whose cluster keeps it the first by name.
	Host  string
	Claim Claim
}

// OrphanedClaims are the claims of VMs that none of some hosts has, by host. It is for the caller to know that no other
// host may have them, and for HidesVMs that these tell all that they have. Of a config, a pool or a share nothing
// like that can be said: what its host lacks of it, its resource puts back. A vGPU is reserved for a VM that is still to come, too.
func OrphanedClaims(hosts map[string]*Host) []OrphanedClaim {
	there := map[string]bool{} // by folded id
	for _, h := range hosts {
		for i := range h.VMs {
			there[FoldID(h.VMs[i].ID)] = true
		}
		for _, u := range h.Unknown {
			there[FoldID(u.VM)] = true // it is there, and cannot be read
		}
	}
	shown := map[string]bool{} // each node shows what its cluster keeps
	var out []OrphanedClaim
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		for c := range hosts[name].ClaimsOf(ClaimAssignment) {
			id := FoldID(strings.Trim(c.ID, "{}"))
			kept := FoldID(c.Cluster) + " " + id
			if there[id] || shown[kept] || c.Want.Assignment.Reserves() { // a reservation outlives its VM
				continue
			}
			shown[kept] = c.Cluster != ""
			out = append(out, OrphanedClaim{Host: name, Claim: *c})
		}
	}
	return out
}

// HidesVMs is why a VM that none of some hosts shows may yet be on one of them, or on another node of their clusters; ""
// where it is on none.
func HidesVMs(hosts map[string]*Host) string {
	asked := map[[2]string]bool{} // by cluster and node
	for _, h := range hosts {
		asked[[2]string{FoldID(h.ClusterName()), FoldID(h.Name)}] = true
	}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		for _, u := range h.Unknown {
			if u.Part == PartVMs && u.VM == "" || u.Part == PartCluster {
				return fmt.Sprintf("host %s cannot read this: %s", name, u)
			}
		}
		if h.Cluster == nil {
			continue
		}
		for _, n := range h.Cluster.Nodes {
			if !asked[[2]string{FoldID(h.Cluster.Name), FoldID(n.Name)}] {
				return fmt.Sprintf("node %s of cluster %s may have them", n.Name, h.Cluster.Name)
			}
		}
	}
	return ""
}
