//go:build linux && cgo

package nvidia_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestSelfTest asks by reading, and reading alone, each question of the list that reading answers.
func TestSelfTest(t *testing.T) {
	models := catalog.All()
	at := slices.IndexFunc(models, func(m catalog.Model) bool {
		return m.MIG != nil && m.MIG.PlacementsInferred && m.MIG.MemoryInferred && m.MIG.IDsInferred
	})
	if at < 0 {
		t.Fatal("the catalog infers nothing of MIG")
	}
	inferred := fakenvml.GPU{Model: models[at].Name, Memory: models[at].VRAM, UUID: uuid(1), Profiles: models[at].MIG.Profiles}
	// The stand-in lists a time slice for each GPU, as the assumption says that no driver does.
	pascal := fakenvml.GPU{Model: "NVIDIA Tesla P40", Arch: fakenvml.Ada, UUID: uuid(2), ComputeCapability: [2]int{6, 1}}
	for name, tt := range map[string]struct {
		gpus []fakenvml.GPU
		says map[string]bool
	}{
		"nothing to compare": {[]fakenvml.GPU{{Model: "NVIDIA L40S", Arch: fakenvml.Ada}}, map[string]bool{}},
		"what the catalog infers": {
			[]fakenvml.GPU{inferred}, map[string]bool{"linux-mig-placements": true, "linux-mig-memory": true, "linux-mig-ids": true},
		},
		"what an old GPU shows":        {[]fakenvml.GPU{pascal}, map[string]bool{"linux-time-slice-volta": false}},
		"a new one says nothing of it": {[]fakenvml.GPU{{Model: "NVIDIA X1000", Arch: fakenvml.Blackwell}}, map[string]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := fakenvml.New(t, fakenvml.Options{GPUs: tt.gpus})
			b := nvidia.New(nvidia.Options{Library: m.Library(), SMI: m.SMI(), Root: fakenvml.NewProcTree(t).Root()})
			before := m.GPU(0)
			var asked, wanted []string
			says := map[string]bool{}
			for _, a := range b.SelfTest(t.Context()) {
				asked = append(asked, a.Assumption)
				if a.Err != nil {
					t.Errorf("%s: %v", a.Assumption, a.Err)
				}
				if a.Holds != nil {
					says[a.Assumption] = *a.Holds
				}
				if (a.Holds != nil) != (a.Found != "") {
					t.Errorf("%s is answered %v, and what was found is %q", a.Assumption, a.Holds, a.Found)
				}
			}
			for _, a := range assumptions.Of(gpu.Linux) {
				if a.Asked {
					wanted = append(wanted, a.ID)
				}
			}
			if !slices.Equal(asked, wanted) {
				t.Errorf("asked %q, want those of the list, %q", asked, wanted)
			}
			if diff := cmp.Diff(tt.says, says); diff != "" {
				t.Errorf("the answers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, m.GPU(0)); diff != "" {
				t.Errorf("the GPU is another (-before +after):\n%s", diff)
			}
			for call := range maps.Keys(m.Calls().ByFunction()) {
				if strings.Contains(call, "Set") || strings.Contains(call, "Create") || strings.Contains(call, "Destroy") {
					t.Errorf("it calls %s", call)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
