package functions

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/deviceplugin"
)

type devicePluginConfig struct{}

// NewDevicePluginConfig makes the function device_plugin_config.
func NewDevicePluginConfig() function.Function { return devicePluginConfig{} }

func (devicePluginConfig) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "device_plugin_config"
}

func (devicePluginConfig) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Writes a configuration of NVIDIA's Kubernetes device plugin",
		MarkdownDescription: "Writes a configuration of NVIDIA's device plugin for Kubernetes, for a ConfigMap that the plugin or the GPU Operator reads, so that the cluster itself shares its nodes' GPUs. " +
			"What the plugin would refuse on a node is an error of the plan. Resources are sorted: the same configuration gives the same text.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "config",
				MarkdownDescription: "An object with any of\n\n" +
					"- `mig_strategy`: `none`, `single` or `mixed`; left to the plugin's flags when left out;\n" +
					"- `time_slicing`: GPUs that pods use in turn, without any limit on memory;\n" +
					"- `mps`: whole GPUs that pods use at the same time by MPS, each with an equal part of memory and threads. Not together with `time_slicing`, and not for MIG devices.\n\n" +
					"The last two are objects with\n\n" +
					"- `resources`: how often each device of a resource is offered, at least twice, as in `{ \"nvidia.com/gpu\" = 4 }`;\n" +
					"- `rename_by_default`: whether shared resources get names that end in `.shared`;\n" +
					"- `fail_requests_greater_than_one`: whether pods are refused that ask for several, as these would not get more of a GPU. The plugin's default is `true` for MPS, else `false`.",
			},
		},
		Return: function.StringReturn{},
	}
}

func (devicePluginConfig) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	value, ok := dynamic(ctx, req, resp, "config", errNotObject, types.StringUnknown())
	if !ok {
		return
	}
	config, err := decodePlugin(value)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	out, err := deviceplugin.Render(&config)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	resp.Error = resp.Result.Set(ctx, string(out))
}

func decodePlugin(v tftypes.Value) (deviceplugin.Config, error) {
	var out deviceplugin.Config
	fields, err := object(v)
	if err != nil {
		return out, fmt.Errorf("config: %w", err)
	}
	err = decodeFields(fields, []string{"mig_strategy", "mps", "time_slicing"}, func(name string, v tftypes.Value) (err error) {
		switch name {
		case "mig_strategy":
			out.MIGStrategy, err = text(v)
		case "mps":
			out.MPS, err = decodeSharing(v)
		case "time_slicing":
			out.TimeSlicing, err = decodeSharing(v)
		}
		return err
	})
	return out, err
}

func decodeSharing(v tftypes.Value) (*deviceplugin.Sharing, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := &deviceplugin.Sharing{}
	err = decodeFields(fields, []string{"fail_requests_greater_than_one", "rename_by_default", "resources"}, func(name string, v tftypes.Value) (err error) {
		var flag bool
		switch name {
		case "fail_requests_greater_than_one":
			flag, err = truth(v)
			out.FailRequestsGreaterThanOne = &flag
		case "rename_by_default":
			flag, err = truth(v)
			out.RenameByDefault = &flag
		case "resources":
			out.Replicas, err = counts(v)
		}
		return err
	})
	return out, err
}
