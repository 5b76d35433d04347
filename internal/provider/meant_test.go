package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// Whoever misspells a name is asked for the one that was meant, and reads no list of all that there are.
func TestAMisspeltNameIsAnsweredWithTheOneThatWasMeant(t *testing.T) {
	t.Parallel()
	const manyHosts = 40
	var nodes []string
	fleet := rig.Cluster("azl-vdi", rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2)), rig.Node("hv02"))
	for n := 3; n <= manyHosts; n++ {
		nodes = append(nodes, fmt.Sprintf("edge-%02d", n))
		fleet.Hosts = append(fleet.Hosts, rig.Node(nodes[n-3]))
	}
	fleet.Hosts = append(fleet.Hosts, rig.HGX(rig.H100, 1).Hosts...)
	r := rig.New(t, fleet)
	before := r.File()
	config := func(name, arguments string) string {
		return fmt.Sprintf("resource \"gpu_partition_config\" %q {\n name = %q\n %s\n}\n", name, name, arguments)
	}
	for name, x := range map[string]struct {
		block, hcl string
		says       string
	}{
		"a VM":                    {hcl: rig.Assignment("adv-02", rig.AnyPartition), says: `Did you mean "avd-02" (hv01)?`},
		"a host of an assignment": {hcl: rig.Assignment("avd-01", `hosts = ["hv1"]`, rig.AnyPartition), says: `Did you mean "hv01"`},
		"a host of a config":      {hcl: config("c", "hosts = [\"hgx1\"]\n mig = { profiles = {} }"), says: `Did you mean "hgx01"?`},
		"a host of a share":       {hcl: rig.ShareOf("s", `host = "hgx1"`), says: `Did you mean "hgx01"?`},
		"a host of a selector": {
			hcl:  config("c", "hosts = [\"hgx01\"]\n selector = { gpu_ids = { hgx1 = [\"x\"] } }\n mig = { profiles = {} }"),
			says: `Did you mean "hgx01"?`,
		},
		"a host of a data source": {hcl: "data \"gpu_inventory\" \"i\" {\n hosts = [\"hgx1\"]\n}\n", says: `Did you mean "hgx01"?`},
		"a cluster": {
			hcl:  config("c", "cluster = \"azl-vid\"\n gpu_p = { partition_count = 4 }"),
			says: `Did you mean "azl-vdi"?`,
		},
		"a cluster of a VM": {hcl: rig.Assignment("avd-01", `cluster = "azl-vid"`, rig.AnyPartition), says: `Did you mean "azl-vdi"?`},
		"a profile": {
			hcl:  config("c", "hosts = [\"hgx01\"]\n mig = { profiles = { \"1g10gb\" = 7 } }"),
			says: `Did you mean "1g.10gb"?`,
		},
		"a model": {
			hcl:  config("c", "hosts = [\"hgx01\"]\n selector = { models = [\"H100 80GB HBM\"] }\n mig = { profiles = {} }"),
			says: `Did you mean "NVIDIA H100 80GB HBM3"?`,
		},
		"a rule": {block: `rules = { homogenous-gpus = "off" }`, says: `Did you mean "homogeneous-gpus"? All `},
		"an import's host": {
			hcl:  "import {\n to = gpu_vm_assignment.a\n id = \"hv1/avd-01\"\n}\n" + rig.Assignment("avd-01", rig.AnyPartition),
			says: `Did you mean "hv01"`,
		},
		"an import's cluster": {
			hcl:  "import {\n to = gpu_vm_assignment.a\n id = \"azl-vid/avd-01\"\n}\n" + rig.Assignment("avd-01", rig.AnyPartition),
			says: `Did you mean "azl-vdi"?`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := rig.NewCLI(t, r.Block(x.block)+x.hcl).Fails("plan")
			rig.WantSaid(t, out, x.says)
			listed := 0
			for _, node := range nodes {
				if strings.Contains(out, node) {
					listed++
				}
			}
			if listed > 12 || strings.Count(out, "-") > 60 {
				t.Errorf("it lists %d hosts:\n%s", listed, out)
			}
		})
	}
	t.Cleanup(func() { r.WantUntouched(before) })
}

// What hosts have a record of is offered as well: configs, pools and the labels of quotas.
func TestAMisspeltIdIsAnsweredWithTheOneThatIsOnRecord(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 2)))
	made := "resource \"gpu_pool\" \"p\" {\n name = \"research\"\n members = { hgx01 = [" +
		"\"" + rig.MIGGPU(0) + "\", \"" + rig.MIGGPU(1) + "\"] }\n" +
		" quotas = { team-a = { shares = 4 } }\n}\n" + rig.SharedConfig("mps", rig.ByMPS, "hgx01")
	c := rig.NewCLI(t, r.Block()+made)
	if out, code := c.Run("apply"); code != 0 {
		t.Fatal(out)
	}
	for of, says := range map[string]string{
		rig.ShareOf("s", `host = "hgx01"`, `config = "mp"`):                     `Did you mean "mps"?`,
		rig.ShareOf("s", `pool = "hgx01/reserch"`):                              `Did you mean "hgx01/research"?`,
		rig.ShareOf("s", `pool = gpu_pool.p.id`, `owner_label = "teama"`):       `Did you mean "team-a"?`,
		"data \"gpu_pool\" \"d\" {\n host = \"hgx01\"\n name = \"resaerch\"\n}": `Did you mean "research"?`,
	} {
		c.Write(r.Block() + made + of + "\n")
		out, _ := c.Run("plan") // a label without a quota is a warning
		rig.WantSaid(t, out, says)
	}
}

// One GPU in two spellings is one GPU: two would count twice.
func TestOneGPUIsNotNamedTwice(t *testing.T) {
	t.Parallel()
	s := rig.WithMPS(rig.HGX(rig.H100, 2))
	id, address := rig.MIGGPU(0), s.Hosts[0].GPUs[0].Address
	twice := fmt.Sprintf("[%q, %q]", id, strings.ToLower(id))
	r := rig.New(t, s)
	before := r.File()
	selected := func(ids string) string {
		return rig.SharedConfig("mps", rig.ByMPS+"\n selector = { gpu_ids = { hgx01 = "+ids+" } }", "hgx01")
	}
	const one = "which are one GPU"
	for name, x := range map[string]struct {
		hcl  string
		says []string
	}{
		"selector": {selected(twice), []string{"One GPU is named twice", one, "selector.gpu_ids"}},
		"share":    {rig.ShareOf("s", `host = "hgx01"`, "gpu_ids = "+twice), []string{"One GPU is named twice", one}},
		"pool":     {"resource \"gpu_pool\" \"p\" {\n name = \"p\"\n members = { hgx01 = " + twice + " }\n}\n", []string{one, "members"}},
		"device":   {rig.Assignment("a", "device = { host = \"hgx01\", gpu_ids = "+twice+" }"), []string{one, "device.gpu_ids"}},
		"by its PCI address": {
			selected(fmt.Sprintf("[%q, %q]", id, address)),
			[]string{"GPU not found on the host", "Leave out " + address, "the PCI address of " + id, "that GPU is named already"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.WantSaid(t, rig.NewCLI(t, r.Block()+x.hcl).Fails("plan"), x.says...)
		})
	}
	t.Cleanup(func() { r.WantUntouched(before) })
}
