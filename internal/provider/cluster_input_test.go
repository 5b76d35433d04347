package provider_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a cluster is that the configuration does not know, or that does not know itself, is an
// error that says so, and nothing is touched for it.
func TestAClusterThatIsNotAsWritten(t *testing.T) {
	t.Parallel()
	vm := rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop)
	config := func(cluster string) string {
		return fmt.Sprintf("resource \"gpu_partition_config\" \"vdi\" {\n  name = \"vdi\"\n  cluster = %q\n  gpu_p = { partition_count = 4 }\n "+
			" max_disruption = \"vm_restart\"\n}\n", cluster)
	}
	noQuorum := func(r *rig.Rig) {
		for _, h := range rig.Both {
			r.EditHost(h, func(h *gpu.Host) {
				h.Cluster = nil
				h.Unknown = []gpu.Unknown{{Part: gpu.PartCluster, Why: "the cluster service does not run (0x800713B8)"}}
			})
		}
	}
	evicted := func(r *rig.Rig) {
		r.EditHost("hv02", func(h *gpu.Host) {
			c := *h.Cluster
			c.Nodes = slices.DeleteFunc(slices.Clone(c.Nodes), func(n gpu.Node) bool { return n.Name == "hv01" })
			h.Cluster = &c
		})
	}
	alone := func(r *rig.Rig) {
		for _, h := range rig.Both {
			r.EditHost(h, func(h *gpu.Host) { h.Cluster = nil })
		}
	}
	const contradicts = `The host says that it is a node of cluster "azl", and the provider's configuration has it in cluster "web"`
	for name, c := range map[string]struct {
		arrange func(*rig.Rig)
		cluster string // that the provider's configuration says of hv01
		hcl     string
		says    []string
	}{
		"a host of another cluster, of its config":      {cluster: "web", hcl: rig.ConfigOf(4, []string{"hv01"}), says: []string{contradicts}},
		"a host of another cluster, of its cluster":     {cluster: "web", hcl: config("azl"), says: []string{contradicts}},
		"a host of another cluster, of the one written": {cluster: "web", hcl: config("web"), says: []string{contradicts}},
		"a host of another cluster, of a VM":            {cluster: "web", hcl: vm, says: []string{contradicts}},
		"a host of no cluster, of its config": {
			arrange: alone, cluster: "azl", hcl: rig.ConfigOf(4, []string{"hv01"}), says: []string{"The host says that it is in no cluster"},
		},
		"a host of no cluster, of the one written": {
			arrange: alone, cluster: "azl", hcl: config("azl"), says: []string{"The host says that it is in no cluster"},
		},
		"a selector's host of another cluster": {
			hcl:  strings.Replace(config("azl"), "gpu_p =", "selector = { gpu_ids = { hv03 = [\"PCIROOT(1)\"] } }\n  gpu_p =", 1),
			says: []string{"Host is not in scope", `selector.gpu_ids names host "hv03", but the hosts here are hv01 and hv02`},
		},
		"a selector's host that nobody has": {
			hcl:  strings.Replace(config("azl"), "gpu_p =", "selector = { gpu_ids = { hv09 = [\"PCIROOT(1)\"] } }\n  gpu_p =", 1),
			says: []string{"Host is not in scope", `selector.gpu_ids names host "hv09"`},
		},
		"a name that nobody has, of a config": {
			hcl: config("nowhere"), says: []string{"Unknown cluster", `called "nowhere"`, "Fix: Write the cluster's name"},
		},
		"a name that nobody has, of a VM": {
			hcl: rig.Assignment("avd-01", rig.AnyPartition, `cluster = "nowhere"`), says: []string{"Unknown cluster", `called "nowhere"`},
		},
		"a VM of another cluster": {
			hcl: rig.Assignment("web-01", rig.AnyPartition, `cluster = "azl"`), says: []string{"VM does not exist", "web-01"},
		},
		"a quorum that is gone, of a config": {arrange: noQuorum, hcl: config("azl"), says: []string{"the cluster service does not run"}},
		"a quorum that is gone, of a VM":     {arrange: noQuorum, hcl: vm, says: []string{"the cluster service does not run"}},
		"a node that was evicted, of a config": {
			arrange: evicted, hcl: config("azl"), says: []string{"it shows itself as a node of cluster azl, whose node hv02 does not list it"},
		},
		"a node that was evicted, of a VM": {
			arrange: evicted, hcl: vm, says: []string{"it shows itself as a node of cluster azl, whose node hv02 does not list it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := rig.TwoNodes()
			fleet.Hosts = append(fleet.Hosts, rig.Cluster("web", rig.Node("hv03", rig.Desktop("web-01", 7))).Hosts...)
			r := rig.New(t, fleet)
			if c.arrange != nil {
				c.arrange(r)
			}
			before := r.File()
			block := r.Block()
			if c.cluster != "" {
				block = strings.Replace(r.BlockFor([]string{"hv01", "hv02", "hv03"}), "hv01 = {", fmt.Sprintf("hv01 = { cluster = %q,", c.cluster), 1)
			}
			cli := rig.NewCLI(t, block+c.hcl)
			rig.WantSaid(t, cli.Fails("plan"), c.says...)
			cli.Fails("apply", "-auto-approve")
			r.WantUntouched(before)
		})
	}
}

// A config that names hosts of two clusters counts for each by itself: the one that cannot be
// changed keeps the other from being.
func TestAConfigOfTwoClusters(t *testing.T) {
	t.Parallel()
	fleet := rig.TwoNodes()
	fleet.Hosts = append(fleet.Hosts, rig.Cluster("web", rig.Node("hv03", rig.Desktop("web-01", 7))).Hosts...)
	r := rig.New(t, fleet)
	hosts := []string{"hv01", "hv02", "hv03"}
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, hosts)+rig.AssignmentOf("web", "web-01",
		"partition = { config = gpu_partition_config.vdi.id }", rig.MayStop))
	c.Apply()
	c.WantNoChanges()
	r.WantCounts(4, hosts...)
	c.Write(r.Block() + rig.ConfigOf(8, hosts) + rig.AssignmentOf("web", "web-01", "partition = { config = gpu_partition_config.vdi.id }",
		rig.MayStop))
	before := r.Snapshot()
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "hv03", "web-01", "max_disruption")
	r.WantUnchanged(before)
}
