package gpu_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestIDsAsPeopleHaveThem finds the GPU that is meant by what scripts and tools print.
func TestIDsAsPeopleHaveThem(t *testing.T) {
	h := gpu.Host{GPUs: []gpu.GPU{
		{
			ID: "PCIROOT(16)#PCI(0000)", InstancePath: `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\4&18416dc3&0&0000`,
			Partitionable: &gpu.Partitionable{
				Name: `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#4&18416dc3&0&0000#{064092b3-625e-43bf-9eb5-dc845897dd59}`,
			},
		},
		{ID: "PCIROOT(30)#PCI(0000)", InstancePath: `PCIP\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\4&30a1b2c3&0&0000`},
		{ID: "GPU-1", Address: "0000:1a:00.0"},
		{ID: "GPU-2", Address: "000f:01:00.0"},
	}}
	for text, want := range map[string]int{
		`\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#4&18416dc3&0&0000#{064092b3-625e-43bf-9eb5-dc845897dd59}`:          0,
		`\\?\pci#ven_10de&dev_25b6&subsys_157e10de&rev_a1#4&18416dc3&0&0000#{064092b3-625e-43bf-9eb5-dc845897dd59}\GPUPARAV`: 0,
		`PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\4&18416dc3&0&0000`:                                                     0,
		`PCIP\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\4&18416DC3&0&0000`:                                                    0,
		`PCI\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\4&30a1b2c3&0&0000`:                                                     1,
		`\\?\PCI#VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1#4&30a1b2c3&0&0000#{064092b3-625e-43bf-9eb5-dc845897dd59}\GPUPARAV`: 1,
		"0000:1A:00.0": 2, "00000000:1A:00.0": 2, "1a:00.0": 2, "0000000F:01:00.0": 3, "f:01:00.0": 3,
		"0": 0, "3": 3, "4": -1, "-1": -1, "": -1, "01:00.0": -1, "PCIROOT(99)#PCI(0000)": -1, "GPU-9": -1, `PCI\`: -1,
	} {
		got := h.Meant(text)
		if want < 0 && got != nil || want >= 0 && got != &h.GPUs[want] {
			t.Errorf("%q means %+v, want GPU %d", text, got, want)
		}
	}
}
