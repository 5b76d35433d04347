package provider_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// A module passes on lists and maps that it was not given. Beside what takes their place they are as null, and the object is the same.
func TestEmptyScopesAreAsNull(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hcl         string // EMPTY is nothing, or the empty arguments
		empty       string
		address, id string
	}{
		"hosts of a config": {
			"resource \"gpu_partition_config\" \"x\" {\n EMPTY\n cluster = \"azl\"\n gpu_p = { partition_count = 4 }\n}\n",
			"hosts = []", "gpu_partition_config.x", "",
		},
		"members and hosts of a pool": {
			rig.RenderPool("EMPTY", `cluster = "azl"`, `selector = { gpu_ids = { hv01 = ["`+rig.GPU1+`"], hv02 = [] } }`),
			"members = {}\n hosts = []", "gpu_pool.render", "azl/render",
		},
		"hosts of a pool": {rig.RenderPool("EMPTY", rig.SecondGPUs), "hosts = []", "gpu_pool.render", "hv01/render"},
		"members of a pool": {
			rig.RenderPool("EMPTY", `hosts = ["hv02"]`, `selector = { models = ["A2"] }`), "members = {}", "gpu_pool.render", "hv02/render",
		},
		"hosts of a forecast": {
			"data \"gpu_change_forecast\" \"x\" {\n EMPTY\n cluster = \"azl\"\n gpu_p = { partition_count = 4 }\n}\n",
			"hosts = []", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			without, with := strings.Replace(test.hcl, "EMPTY", "", 1), strings.Replace(test.hcl, "EMPTY", test.empty, 1)
			c := rig.NewCLI(t, r.Block()+without)
			c.Apply()
			var id any
			if test.address != "" {
				id = c.Attributes(test.address)["id"]
			}
			c.Write(r.Block() + with)
			c.Apply() // the arguments are written into the state, and nothing else
			c.WantNoChanges()
			if test.address != "" {
				if got := c.Attributes(test.address)["id"]; got != id || test.id != "" && got != test.id {
					t.Errorf("the id is %v, and %v without what is empty", got, id)
				}
			}
			c.Destroy()
			c.Apply() // from nothing too
			c.WantNoChanges()
			c.Destroy()
		})
	}
}

// Where null stands for all, what is empty is refused, and the plan says what to write.
func TestEmptyFiltersAreRefused(t *testing.T) {
	t.Parallel()
	config := func(body string) string {
		return "resource \"gpu_partition_config\" \"x\" {\n hosts = [\"hv01\"]\n gpu_p = { partition_count = 4 }\n " + body + "\n}\n"
	}
	for says, hcl := range map[string]string{
		"Leave `models` out, or null, for every model.": config("selector = { models = [] }"),
		"Leave `gpu_ids` out, or null, for every GPU; ": config("selector = { gpu_ids = {} }"),
		"Leave `hosts` out, or null, for all hosts.":    "data \"gpu_inventory\" \"x\" {\n hosts = []\n}\n",
		"for all hosts that run Linux.":                 "data \"gpu_utilization\" \"x\" {\n hosts = []\n}\n",
		"Leave `gpu_ids` out, or null, for all GPUs.":   "data \"gpu_utilization\" \"x\" {\n gpu_ids = []\n}\n",
		"or null, to have the GPUs chosen.":             "resource \"gpu_share\" \"x\" {\n name = \"x\"\n host = \"hv01\"\n gpu_ids = []\n}\n",
		"without `device` the VM gets none.": "resource \"gpu_vm_assignment\" \"x\" {\n vm = \"v\"\n" +
			" device = { host = \"hv01\", gpu_ids = [] }\n}\n",
		"Name a host, or a `cluster`.": "resource \"gpu_partition_config\" \"x\" {\n hosts = []\n gpu_p = { partition_count = 4 " +
			"}\n}\n",
		"Name a host, or `members` or a `cluster`.":  rig.RenderPool("hosts = []"),
		"Write `profiles = {}` for MIG mode without": rig.MIGOf("ml", "placements = []"),
	} {
		c := rig.NewCLI(t, hcl)
		rig.WantSaid(t, c.Fails("validate"), says, "at least 1")
	}
}

// A configuration that is all right with an empty list says nothing of one in which the list has elements.
func TestAnEmptyListExcusesNoOther(t *testing.T) {
	t.Parallel()
	config := func(name, more string) string {
		return "resource \"gpu_partition_config\" \"" + name + "\" {\n cluster = \"azl\"\n gpu_p = { partition_count = 4 }\n " + more + "\n}\n"
	}
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+config("right", "hosts = []"))
	c.Ok("validate")
	c.Write(r.Block() + config("right", "hosts = []") + config("wrong", `hosts = ["hv01"]
 depends_on = [gpu_partition_config.right]`))
	rig.WantSaid(t, c.Fails("validate"), "Exactly one of these attributes must be configured: [hosts,cluster]")
	c.Write(r.Block() + rig.RenderPool("members = {}", "hosts = []"))
	c.Fails("validate")
}
