package provider_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// FuzzImportID imports objects of each kind by ids of all sorts. An id that names nothing is
// an error that says so, one that names something gives a state, and no host is written to.
func FuzzImportID(f *testing.F) {
	for _, id := range []string{
		"", "/", ":", "@", ",", "hv01", "hv01,hv02", "hv01,hv02:gpu_p", "vdi@hv01", "vdi@hv01,hv02:mig",
		"vdi@", "@hv01", "hv01/avd-01", "hv01/", "/avd-01",
		"azl/render", "hv01//x", "hv09/avd-01", rig.VMID(1), strings.ToLower(rig.VMID(1)), "hv01:", "hv01,,hv02",
		"hv01,hv01", "\x00", "é/ü", strings.Repeat("a", 300),
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		r := rig.New(t, rig.TwoNodes())
		before := r.File()
		w, err := core.New(t.Context(), r.Factories())
		if err != nil {
			t.Fatal(err)
		}
		w.Write(r.Block() + `
resource "gpu_partition_config" "a" {
  name  = "vdi"
  hosts = ["hv01"]
  gpu_p = { partition_count = 4 }
}
resource "gpu_pool" "a" {
  name  = "render"
  hosts = ["hv01"]
}
resource "gpu_vm_assignment" "a" {
  vm        = "avd-01"
  partition = {}
}
resource "gpu_share" "a" {
  name      = "team"
  host      = "hv01"
  gpu_count = 1
}
`)
		resources := 0
		for _, typ := range []string{"gpu_partition_config", "gpu_pool", "gpu_vm_assignment", "gpu_share"} {
			err := w.Import(t.Context(), typ+".a", id)
			before := resources
			if state := w.JSON(); state != nil && state.Values != nil {
				resources = len(state.Values.RootModule.Resources)
			}
			if has := resources > before; (err == nil) != has {
				t.Errorf("%s %q: error %v, but a state: %t", typ, id, err, has)
			}
			if err != nil && !strings.Contains(err.Error(), "Error: ") {
				t.Errorf("%s %q: %v", typ, id, err)
			}
		}
		r.WantUntouched(before)
	})
}
