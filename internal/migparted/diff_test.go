package migparted_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/migparted"
)

// divided is a GPU with whole instances of some profiles.
func divided(device string, profiles ...string) gpu.GPU {
	m := &gpu.MIG{Enabled: true, Pending: true}
	for i, p := range profiles {
		m.Instances = append(m.Instances, gpu.GPUInstance{
			ID: i, Profile: p, Start: i, Compute: []gpu.ComputeInstance{{Slices: int(p[0] - '0')}},
		})
	}
	return gpu.GPU{ID: "GPU-" + device, Model: "NVIDIA " + device, PCI: id(device), MIG: m}
}

func TestDiff(t *testing.T) {
	off := gpu.GPU{ID: "GPU-2330", Model: "NVIDIA 2330", PCI: id("2330"), MIG: &gpu.MIG{}}
	due := off
	due.MIG = &gpu.MIG{Pending: true}
	none := gpu.GPU{ID: "GPU-26B9", Model: "NVIDIA L40S", PCI: id("26B9")}
	shared := divided("2330", "3g.40gb", "3g.40gb")
	shared.MIG.Instances[0].Compute = []gpu.ComputeInstance{{Slices: 1}, {Slices: 2}}
	shared.MIG.Instances[1].Compute = nil
	seven := divided("20B2", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb")
	tests := []struct {
		name, label string
		gpus        []gpu.GPU
		want        []string
	}{
		{"as it should be", "all-1g.10gb", []gpu.GPU{seven, divided("20B0", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb")}, nil},
		{"no GPUs", "all-1g.10gb", nil, nil},
		{"off everywhere", "all-disabled", []gpu.GPU{off, none}, nil},
		{"on without instances", "all-enabled", []gpu.GPU{divided("2330")}, nil},
		{"an instance where none should be", "all-enabled", []gpu.GPU{divided("2330", "3g.40gb")}, []string{
			"GPU 0 (NVIDIA 2330, GPU-2330): 3g.40gb: wanted 0, found 1",
		}},
		{"too many, too few, others", "all-1g.10gb", []gpu.GPU{seven, divided("20B0", "1g.10gb", "2g.10gb")}, []string{
			"GPU 1 (NVIDIA 20B0, GPU-20B0): 1g.10gb: wanted 4, found 1",
			"GPU 1 (NVIDIA 20B0, GPU-20B0): 2g.10gb: wanted 0, found 1",
		}},
		{"off, on, and no MIG", "all-enabled", []gpu.GPU{off, due, none}, []string{
			"GPU 0 (NVIDIA 2330, GPU-2330): MIG must be on, but is off",
			"GPU 1 (NVIDIA 2330, GPU-2330): MIG must be on, but is off until the GPU is reset",
			"GPU 2 (NVIDIA L40S, GPU-26B9): MIG must be on, but the GPU has none",
		}},
		{"on, but must be off", "all-disabled", []gpu.GPU{divided("2330")}, []string{
			"GPU 0 (NVIDIA 2330, GPU-2330): MIG must be off, but is on",
		}},
		{"no entry for the model", "all-1g.10gb", []gpu.GPU{divided("2901")}, []string{
			`GPU 0 (NVIDIA 2901, GPU-2901): no entry of label "all-1g.10gb" covers it`,
		}},
		{"by index", "custom-config", []gpu.GPU{off, divided("2330", "3g.40gb", "3g.40gb"), divided("2330", "7g.80gb")}, []string{
			"GPU 2 (NVIDIA 2330, GPU-2330): 3g.40gb: wanted 2, found 0",
			"GPU 2 (NVIDIA 2330, GPU-2330): 7g.80gb: wanted 0, found 1",
			`GPU 3: label "custom-config" names it, but the host has 3`,
		}},
		{"another board", "all-balanced", []gpu.GPU{divided("2330")}, []string{
			`GPU 0 (NVIDIA 2330, GPU-2330): no entry of label "all-balanced" covers it`,
		}},
		{
			"shared and empty instances", "custom-config",
			[]gpu.GPU{off, shared, divided("2330", "3g.40gb", "3g.40gb"), divided("2330", "3g.40gb", "3g.40gb")},
			[]string{
				"GPU 1 (NVIDIA 2330, GPU-2330): 1c.3g.40gb: wanted 0, found 1",
				"GPU 1 (NVIDIA 2330, GPU-2330): 2c.3g.40gb: wanted 0, found 1",
				"GPU 1 (NVIDIA 2330, GPU-2330): 3g.40gb: wanted 2, found 0",
				"GPU 1 (NVIDIA 2330, GPU-2330): 3g.40gb without a compute instance: wanted 0, found 1",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := migparted.Diff(&gpu.Host{GPUs: tt.gpus}, wanted, tt.label)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := migparted.Diff(&gpu.Host{}, wanted, "all-9g.90gb"); err == nil {
		t.Error("an unknown label was compared")
	}
}

func TestTheLastEntryCounts(t *testing.T) {
	c := migparted.Config{"x": {{All: true}, {Devices: []int{0}, Enabled: true, Profiles: map[string]int{"3g.40gb": 1}}}}
	got, err := migparted.Diff(&gpu.Host{GPUs: []gpu.GPU{divided("2330", "3g.40gb"), {MIG: &gpu.MIG{}}}}, c, "x")
	if err != nil || len(got) != 0 {
		t.Errorf("differences %v, error %v", got, err)
	}
}
