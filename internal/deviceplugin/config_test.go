package deviceplugin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/deviceplugin"
)

func TestRender(t *testing.T) {
	yes, no := true, false
	for name, test := range map[string]struct {
		config deviceplugin.Config
		want   string
	}{
		"nothing":  {deviceplugin.Config{}, "version: v1\n"},
		"MIG only": {deviceplugin.Config{MIGStrategy: "single"}, "version: v1\nflags:\n  migStrategy: single\n"},
		"time-slicing": {
			deviceplugin.Config{MIGStrategy: "mixed", TimeSlicing: &deviceplugin.Sharing{
				Replicas:        map[string]int{"nvidia.com/mig-1g.10gb": 2, "gpu": 4, "mig-1c.2g.20gb.me.all": 3},
				RenameByDefault: &no, FailRequestsGreaterThanOne: &yes,
			}},
			`version: v1
flags:
  migStrategy: mixed
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
      - name: nvidia.com/mig-1c.2g.20gb.me.all
        replicas: 3
      - name: nvidia.com/mig-1g.10gb
        replicas: 2
`,
		},
		"flags": {
			deviceplugin.Config{MIGStrategy: "none", Flags: &deviceplugin.Flags{
				FailOnInitError: &no, NVIDIADriverRoot: pointer("/run/nvidia/driver"), Plugin: &deviceplugin.PluginFlags{
					PassDeviceSpecs: &yes, DeviceListStrategy: deviceplugin.Strategies{"envvar", "cdi-cri"}, DeviceIDStrategy: pointer("index"),
					SharedDevicesAllocationPolicy: pointer("packed"),
				},
			}},
			`version: v1
flags:
  migStrategy: none
  failOnInitError: false
  nvidiaDriverRoot: /run/nvidia/driver
  plugin:
    passDeviceSpecs: true
    deviceListStrategy:
      - envvar
      - cdi-cri
    deviceIDStrategy: index
    sharedDevicesAllocationPolicy: packed
`,
		},
		"one strategy": {
			flags(deviceplugin.PluginFlags{DeviceListStrategy: deviceplugin.Strategies{"cdi-cri"}}),
			"version: v1\nflags:\n  plugin:\n    deviceListStrategy: cdi-cri\n",
		},
		"MPS": {
			deviceplugin.Config{MPS: &deviceplugin.Sharing{Replicas: map[string]int{"nvidia.com/gpu": 48}}},
			"version: v1\nsharing:\n  mps:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: 48\n",
		},
	} {
		got, err := deviceplugin.Render(&test.config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func flags(plugin deviceplugin.PluginFlags) deviceplugin.Config {
	return deviceplugin.Config{Flags: &deviceplugin.Flags{Plugin: &plugin}}
}

func pointer[T any](to T) *T { return &to }

func TestRenderRefuses(t *testing.T) {
	yes := true
	slices := func(replicas map[string]int) *deviceplugin.Sharing {
		return &deviceplugin.Sharing{Replicas: replicas}
	}
	long := "nvidia.com/" + strings.Repeat("g", 46) // ".shared" makes it 64
	for says, config := range map[string]deviceplugin.Config{
		`mig_strategy is "both", but none, single, mixed is wanted`: {MIGStrategy: "both"},
		`but both are given`:             {TimeSlicing: slices(map[string]int{"gpu": 2}), MPS: slices(map[string]int{"gpu": 2})},
		`time_slicing: it has no`:        {TimeSlicing: slices(nil)},
		`mps: it has no resource`:        {MPS: slices(nil)},
		`"gpu" has 1 replicas`:           {TimeSlicing: slices(map[string]int{"gpu": 1})},
		`"gpu" has -4 replicas`:          {MPS: slices(map[string]int{"gpu": -4})},
		`"amd.com/gpu" is not the name`:  {TimeSlicing: slices(map[string]int{"amd.com/gpu": 2})},
		`"GPU" is not the name`:          {TimeSlicing: slices(map[string]int{"GPU": 2})},
		`"nvidia.com/" is not the name`:  {TimeSlicing: slices(map[string]int{"nvidia.com/": 2})},
		`"gpu\n" is not the name`:        {TimeSlicing: slices(map[string]int{"gpu\n": 2})},
		`"gpu" and "nvidia.com/gpu" are`: {TimeSlicing: slices(map[string]int{"gpu": 2, "nvidia.com/gpu": 3})},
		`has 64 characters, but`:         {TimeSlicing: &deviceplugin.Sharing{Replicas: map[string]int{long: 2}, RenameByDefault: &yes}},
		`"nvidia.com/mig-1g.10gb" exists with the MIG strategy "mixed" only, but it is "single"`: {
			MIGStrategy: "single", TimeSlicing: slices(map[string]int{"mig-1g.10gb": 2}),
		},
		`flags: plugin: device_id_strategy is "name", but uuid, index is`: flags(deviceplugin.PluginFlags{DeviceIDStrategy: pointer("name")}),
		`device_list_strategy is "cdi", but envvar, volume-mounts, cdi-`: flags(
			deviceplugin.PluginFlags{DeviceListStrategy: []string{"envvar", "cdi"}}),
		`device_list_strategy is empty, and pods would get no device`: flags(deviceplugin.PluginFlags{DeviceListStrategy: []string{}}),
		`policy is "spread", but distributed, packed is wanted`: flags(
			deviceplugin.PluginFlags{SharedDevicesAllocationPolicy: pointer("spread")}),
		`cdi_annotation_prefix is empty; leave it out`:                   flags(deviceplugin.PluginFlags{CDIAnnotationPrefix: pointer("")}),
		`nvidia_ctk_path is "nvidia-ctk", but a path that begins with /`: flags(deviceplugin.PluginFlags{NVIDIACTKPath: pointer("nvidia-ctk")}),
		`flags: device_discovery_strategy is "pci", but auto, nvml, tegra`: {
			Flags: &deviceplugin.Flags{DeviceDiscoveryStrategy: pointer("pci")},
		},
		`dot in place of the plus sign; write "mig-1g.10gb.me"`: {
			MIGStrategy: "mixed", TimeSlicing: slices(map[string]int{"mig-1g.10gb+me": 2}),
		},
		`"nvidia.com/mig-small" is not the resource of a MIG profil`: {TimeSlicing: slices(map[string]int{"mig-small": 2})},
		`with the MIG strategy "mixed" the plugin`:                   {MIGStrategy: "mixed", MPS: slices(map[string]int{"gpu": 2})},
		`with the MIG strategy "single" the plugin`:                  {MIGStrategy: "single", MPS: slices(map[string]int{"gpu": 2})},
		`"gpu.shared" is what the plugin calls shared`:               {TimeSlicing: slices(map[string]int{"gpu.shared": 2})},
		`"nvidia.com/mig-1g.10gb" are MIG devices`:                   {MIGStrategy: "mixed", MPS: slices(map[string]int{"mig-1g.10gb": 2})},
		`shares "nvidia.com/gpu" only, but "nvidia.com/a100"`:        {MPS: slices(map[string]int{"a100": 2})},
		`has 49 replicas, but an MPS server takes 48 clients`:        {MPS: slices(map[string]int{"gpu": 49})},
		`"a/b/c" is not the name of a resource such as "nvidia.com/`: {MPS: slices(map[string]int{"a/b/c": 2})},
	} {
		if out, err := deviceplugin.Render(&config); err == nil || !strings.Contains(err.Error(), says) || out != nil {
			t.Errorf("got %v, want %s", err, says)
		}
	}
	short := deviceplugin.Config{TimeSlicing: slices(map[string]int{long: 2})}
	if _, err := deviceplugin.Render(&short); err != nil {
		t.Errorf("57 characters without .shared: %v", err)
	}
}
