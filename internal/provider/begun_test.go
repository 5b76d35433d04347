package provider_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// TestHostsThatAStateDoesNotKnowOf has a run give an object to another node, and end before its
// state says so. What it has left there is given up by whatever comes next.
func TestHostsThatAStateDoesNotKnowOf(t *testing.T) {
	t.Parallel()
	const restore = `on_destroy = "restore"`
	for _, of := range []struct {
		name, said string
		on         func(hosts ...string) string
	}{
		{"config", "is not one of the config's hosts, but has it", func(hosts ...string) string { return rig.ConfigOf(8, hosts, restore) }},
		{"pool", "is not one of the pool's hosts, but has it", func(hosts ...string) string {
			members := ""
			for _, h := range hosts {
				members += h + ` = ["` + rig.GPU1 + `"]` + "\n"
			}
			return `
resource "gpu_pool" "dda" {
  name       = "dda"
  on_destroy = "mount_back"
  members    = {` + "\n" + members + "}\n}\n"
		}},
	} {
		for _, next := range []string{"apply", "destroy"} {
			t.Run(of.name+", "+next, func(t *testing.T) {
				t.Parallel()
				r := rig.New(t, rig.TwoNodes())
				before := r.Counts("hv02")
				c := rig.NewProcesses(t, r.Block()+of.on("hv01"))
				c.Apply()
				file := filepath.Join(c.Dir, "terraform.tfstate")
				state, err := os.ReadFile(file)
				r.Must(err)
				c.Write(r.Block() + of.on("hv01", "hv02"))
				c.Apply()
				rig.Write(t, file, string(state))
				c.Write(r.Block() + of.on("hv01"))
				if next == "apply" {
					rig.WantSaid(t, c.Ok("plan"), "Host hv02 "+of.said, "0 to add, 1 to change")
					c.Apply()
					c.WantNoChanges()
				} else {
					c.Destroy()
					r.WantClaims([]string{"hv01"})
				}
				r.WantClaims([]string{"hv02"})
				if now := r.Counts("hv02"); len(before) != len(now) || now[rig.GPU1] != before[rig.GPU1] {
					t.Errorf("hv02 has %v partitions, and had %v", now, before)
				}
				r.WantSettled()
			})
		}
	}
}
