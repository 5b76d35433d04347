package functions

import (
	"fmt"

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
			function.DynamicParameter{
				Name: "config",
				MarkdownDescription: "An object with any of\n\n" +
					"- `mig_strategy`: `none`, `single` or `mixed`; left to the plugin's flags when left out;\n" +
					"- `time_slicing`: GPUs that pods use in turn, without any limit on memory;\n" +
					"- `mps`: whole GPUs that pods use at the same time by MPS, each with an equal part of memory and threads. " +
					"Not together with `time_slicing`, and not for MIG devices.\n\n" +
					"The last two are objects with\n\n" +
					"- `resources`: how often each device of a resource is offered, at least twice, as in `{ \"nvidia.com/gpu\" = 4 }`;\n" +
					"- `rename_by_default`: whether shared resources get names that end in `.shared`;\n" +
					"- `fail_requests_greater_than_one`: whether pods are refused that ask for several, as these would not get more of a GPU. " +
					"The plugin's default is `true` for MPS, else `false`.",
			},
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
	if err := decodeFields(fields, map[string]reader{
		"mig_strategy": into(&config.MIGStrategy, text),
		"mps":          into(&config.MPS, decodeSharing),
		"time_slicing": into(&config.TimeSlicing, decodeSharing),
	}); err != nil {
		return nil, err
	}
	out, err := deviceplugin.Render(&config)
	return string(out), err
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
	return out, err
}
