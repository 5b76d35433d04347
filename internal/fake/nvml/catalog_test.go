//go:build linux && cgo

package fakenvml_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
)

// Every MIG table of the catalog makes a GPU, which offers as many of each profile as
// the table says.
func TestCatalog(t *testing.T) {
	for _, model := range catalog.All() {
		if model.MIG == nil {
			continue
		}
		t.Run(model.Name, func(t *testing.T) {
			m := machine(t, fakenvml.GPU{Model: model.Name, Arch: fakenvml.Hopper, Profiles: model.MIG.Profiles, MIG: true})
			d := device(t, session(t, m), 0)
			for _, p := range model.MIG.Profiles {
				var made []nvml.GpuInstance
				id := idOf(t, d, p.Name)
				for {
					i, r := create(d, id, -1)
					if r != nvml.SUCCESS {
						is(t, r, nvml.ERROR_INSUFFICIENT_RESOURCES)
						break
					}
					made = append(made, i)
				}
				if len(made) != p.Max {
					t.Errorf("%d of %s fit, want %d", len(made), p.Name, p.Max)
				}
				for _, i := range made {
					ok(t, i.Destroy())
				}
			}
		})
	}
}

// idOf is the hardware's id of a profile, which not all tables of the catalog know.
func idOf(t *testing.T, d nvml.Device, profile string) int {
	t.Helper()
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, r := d.GetGpuInstanceProfileInfoV(number).V2()
		if r == nvml.SUCCESS && text(info.Name[:]) == "MIG "+profile {
			return int(info.Id)
		}
	}
	t.Fatalf("no profile %s", profile)
	return 0
}
