package provider_test

import (
	"fmt"
	"slices"
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
		return fmt.Sprintf("resource \"gpu_partition_config\" \"vdi\" {\n  name = \"vdi\"\n  cluster = %q\n  gpu_p = { partition_count = 4 }\n  max_disruption = \"vm_restart\"\n}\n", cluster)
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
	for name, c := range map[string]struct {
		arrange func(*rig.Rig)
		hcl     string
		says    []string
	}{
		"a name that nobody has, of a config": {hcl: config("nowhere"), says: []string{"Unknown cluster", `called "nowhere"`, "Fix: write the cluster's name"}},
		"a name that nobody has, of a VM":     {hcl: rig.Assignment("avd-01", rig.AnyPartition, `cluster = "nowhere"`), says: []string{"Unknown cluster", `called "nowhere"`}},
		"a VM of another cluster":             {hcl: rig.Assignment("web-01", rig.AnyPartition, `cluster = "azl"`), says: []string{"VM does not exist", "web-01"}},
		"a quorum that is gone, of a config":  {arrange: noQuorum, hcl: config("azl"), says: []string{"the cluster service does not run"}},
		"a quorum that is gone, of a VM":      {arrange: noQuorum, hcl: vm, says: []string{"the cluster service does not run"}},
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
			cli := rig.NewCLI(t, r.Block()+c.hcl)
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
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, hosts)+rig.AssignmentOf("web", "web-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop))
	c.Apply()
	c.WantNoChanges()
	r.WantCounts(4, hosts...)
	c.Write(r.Block() + rig.ConfigOf(8, hosts) + rig.AssignmentOf("web", "web-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop))
	before := r.Snapshot()
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "hv03", "web-01", "max_disruption")
	r.WantUnchanged(before)
}
