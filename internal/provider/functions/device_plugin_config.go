package functions

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/deviceplugin"
)

// NewDevicePluginConfig makes the function device_plugin_config.
func NewDevicePluginConfig() function.Function {
	return writer{name: "device_plugin_config", write: writePlugin, definition: function.Definition{
		Summary: "Writes a configuration of NVIDIA's Kubernetes device plugin",
		MarkdownDescription: "Writes a configuration of NVIDIA's device plugin for Kubernetes, for a ConfigMap that the plugin or the GPU " +
			"Operator reads, so that the cluster itself shares its nodes' GPUs. What the plugin would refuse on a node is an error of the plan. " +
			"Resources are sorted: the same configuration gives the same text.",
		Parameters: []function.Parameter{
			anything("config", "An object with any of\n\n"+
				"- `mig_strategy`: `none`, `single` or `mixed`; left to the plugin's flags when left out;\n"+
				"- `flags`: other flags of the plugin, as below;\n"+
				"- `gpus`: the GPUs of the nodes that the file is for, as attribute `gpus` of a `gpu_partition_config` or attribute `inventory` of a "+
				"`gpu_inventory` has them, or a list of these. Then `mig_strategy` is `mixed` unless it is given and some are in MIG mode, and "+
				"what the plugin would not start with on their nodes, or share without that a node has it, is an error;\n"+
				"- `time_slicing`: GPUs that pods use in turn, without any limit on memory;\n"+
				"- `mps`: whole GPUs that pods use at the same time by MPS, each with an equal part of memory and threads. "+
				"Not together with `time_slicing`, and not for MIG devices.\n\n"+
				"These two are objects with\n\n"+
				"- `resources`: how often each device of a resource is offered, at least twice, as in `{ \"nvidia.com/gpu\" = 4 }`;\n"+
				"- `rename_by_default`: whether shared resources get names that end in `.shared`;\n"+
				"- `fail_requests_greater_than_one`: whether pods are refused that ask for several, as these would not get more of a GPU. "+
				"The plugin's default is `true` for MPS, else `false`; before v0.20.0 it is always `true` for MPS, whatever the file says.\n\n"+
				"`flags` has what a file has below `flags`, in words with underscores: `fail_on_init_error`, `nvidia_driver_root`, "+
				"`nvidia_dev_root`, `mps_root`, `device_discovery_strategy` (`auto`, `nvml`, `tegra`), `gdrcopy_enabled`, `gds_enabled`, "+
				"`mofed_enabled`, and an object `plugin` with `pass_device_specs`, `device_list_strategy` (one or a list of `envvar`, "+
				"`volume-mounts`, `cdi-annotations`, `cdi-cri`), `device_id_strategy` (`uuid`, `index`), `cdi_annotation_prefix`, "+
				"`nvidia_ctk_path`, `container_driver_root` and `shared_devices_allocation_policy` (`distributed`, `packed`; from v0.20.0 on, "+
				"older releases pass over it). Flags of the plugin's command line and environment, as its Helm chart sets them, go before the "+
				"file's.\n\n"+
				"A MIG profile's resource has dots in place of plus signs, as in `nvidia.com/mig-1g.10gb.me`. Profiles such as `1g.24gb-me` "+
				"have resources of their own from v0.20.0 on; older releases may offer them as `1g.24gb`. What a plan does not "+
				"know yet is passed over, and the rest is checked."),
		},
		Return: function.StringReturn{},
	}}
}

func writePlugin(v tftypes.Value) (any, error) {
	fields, err := object(v)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	var config deviceplugin.Config
	var gpus []hostGPU
	if err := decodeFields(fields, map[string]reader{
		"flags":        into(&config.Flags, decodeFlags),
		"gpus":         into(&gpus, hostGPUs),
		"mig_strategy": into(&config.MIGStrategy, text),
		"mps":          into(&config.MPS, decodeSharing),
		"time_slicing": into(&config.TimeSlicing, decodeSharing),
	}); err != nil {
		return nil, err
	}
	nodes, err := pluginGPUs(gpus)
	if err != nil {
		return nil, fmt.Errorf("gpus: %w", err)
	}
	inMIG := func(g deviceplugin.GPU) bool { return g.MIG }
	if slices.ContainsFunc(nodes, inMIG) && !unknown(fields["mig_strategy"]) {
		config.MIGStrategy = cmp.Or(config.MIGStrategy, "mixed")
	}
	out, err := deviceplugin.Render(&config)
	if err == nil && fields["gpus"].IsFullyKnown() && !unknown(fields["mig_strategy"]) {
		err = config.CheckGPUs(nodes)
	}
	return string(out), err
}

// pluginGPUs are GPUs as the plugin finds them on their nodes.
func pluginGPUs(gpus []hostGPU) ([]deviceplugin.GPU, error) {
	var out []deviceplugin.GPU
	for _, g := range gpus {
		if err := g.sharedByHost("Kubernetes"); err != nil {
			return nil, err
		}
		to := deviceplugin.GPU{Node: g.host, ID: g.id, MIG: g.mig}
		for _, in := range g.instances {
			to.Profiles = append(to.Profiles, in.profile)
		}
		out = append(out, to)
	}
	return out, nil
}

func decodeFlags(v tftypes.Value) (*deviceplugin.Flags, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := &deviceplugin.Flags{}
	err = decodeFields(fields, map[string]reader{
		"device_discovery_strategy": into(&out.DeviceDiscoveryStrategy, optional(text)),
		"fail_on_init_error":        into(&out.FailOnInitError, optional(truth)),
		"gdrcopy_enabled":           into(&out.GDRCopyEnabled, optional(truth)),
		"gds_enabled":               into(&out.GDSEnabled, optional(truth)),
		"mofed_enabled":             into(&out.MOFEDEnabled, optional(truth)),
		"mps_root":                  into(&out.MPSRoot, optional(text)),
		"nvidia_dev_root":           into(&out.NVIDIADevRoot, optional(text)),
		"nvidia_driver_root":        into(&out.NVIDIADriverRoot, optional(text)),
		"plugin":                    into(&out.Plugin, decodePluginFlags),
	})
	return out, err
}

func decodePluginFlags(v tftypes.Value) (*deviceplugin.PluginFlags, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := &deviceplugin.PluginFlags{}
	err = decodeFields(fields, map[string]reader{
		"cdi_annotation_prefix":            into(&out.CDIAnnotationPrefix, optional(text)),
		"container_driver_root":            into(&out.ContainerDriverRoot, optional(text)),
		"device_id_strategy":               into(&out.DeviceIDStrategy, optional(text)),
		"device_list_strategy":             into((*[]string)(&out.DeviceListStrategy), textOrTexts),
		"nvidia_ctk_path":                  into(&out.NVIDIACTKPath, optional(text)),
		"pass_device_specs":                into(&out.PassDeviceSpecs, optional(truth)),
		"shared_devices_allocation_policy": into(&out.SharedDevicesAllocationPolicy, optional(text)),
	})
	return out, err
}

// textOrTexts reads one string, or a list of them.
func textOrTexts(v tftypes.Value) ([]string, error) {
	if isList(v) {
		return texts(v)
	}
	one, err := scalar[string](v, tftypes.String, "a string or a list of strings is wanted")
	return []string{one}, err
}

func decodeSharing(v tftypes.Value) (*deviceplugin.Sharing, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := &deviceplugin.Sharing{}
	err = decodeFields(fields, map[string]reader{
		"fail_requests_greater_than_one": into(&out.FailRequestsGreaterThanOne, optional(truth)),
		"rename_by_default":              into(&out.RenameByDefault, optional(truth)),
		"resources":                      into(&out.Replicas, counts),
	})
	if unknown(fields["resources"]) {
		out.Replicas = map[string]int{"gpu": someCount} // there will be some
	}
	return out, err
}
