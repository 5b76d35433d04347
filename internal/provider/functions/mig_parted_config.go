package functions

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/migparted"
)

type migPartedConfig struct{}

// NewMIGPartedConfig makes the function mig_parted_config.
func NewMIGPartedConfig() function.Function { return migPartedConfig{} }

func (migPartedConfig) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "mig_parted_config"
}

func (migPartedConfig) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Writes a mig-parted configuration",
		MarkdownDescription: "Writes the configuration file that NVIDIA's mig-parted and the GPU Operator's MIG manager read, so that a cluster's own engine makes the layouts. " +
			"Labels and profiles are sorted: the same layouts give the same text.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "labels",
				MarkdownDescription: "An object with what each label stands for. Either numbers of instances by profile, for all GPUs, as in `{ \"1g.10gb\" = 7 }`; " +
					"or one object, or a list of objects, with any of `models` (by the provider's names), `device_filter` (PCI ids, which go before `models`), `devices` (indices in the driver's order; all when left out), " +
					"`mig_enabled` (default `true`) and `profiles`. What `from_mig_parted` returns is such a list.",
			},
		},
		Return: function.StringReturn{},
	}
}

func (migPartedConfig) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	value, ok := dynamic(ctx, req, resp, "labels", errNotObject, types.StringUnknown())
	if !ok {
		return
	}
	config, err := decodeLabels(value)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	out, err := migparted.Render(config)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	resp.Error = resp.Result.Set(ctx, string(out))
}

func decodeLabels(v tftypes.Value) (migparted.Config, error) {
	labels, err := object(v)
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	out := migparted.Config{}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if out[label], err = decodeLabel(labels[label]); err != nil {
			return nil, fmt.Errorf("label %q: %w", label, err)
		}
	}
	return out, nil
}

// decodeLabel reads numbers of instances, one entry, or a list of entries.
func decodeLabel(v tftypes.Value) ([]migparted.Entry, error) {
	if isList(v) {
		return decodeObjects(v, decodeEntry)
	}
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	for name := range fields {
		if _, ok := entryType.AttrTypes[name]; ok {
			e, err := decodeEntry(fields)
			return []migparted.Entry{e}, err
		}
	}
	profiles, err := counts(v)
	return []migparted.Entry{{All: true, Enabled: true, Profiles: profiles}}, err
}

func decodeEntry(fields map[string]tftypes.Value) (migparted.Entry, error) {
	e := migparted.Entry{All: true, Enabled: true}
	var models, filter []string
	err := decodeFields(fields, slices.Sorted(maps.Keys(entryType.AttrTypes)), func(name string, v tftypes.Value) (err error) {
		switch name {
		case "models":
			models, err = texts(v)
		case "device_filter":
			filter, err = texts(v)
		case "devices":
			e.All = false
			e.Devices, err = indices(v)
		case "mig_enabled":
			e.Enabled, err = truth(v)
		case "profiles":
			e.Profiles, err = counts(v)
		}
		return err
	})
	if err != nil {
		return e, err
	}
	return e, setFilter(&e, models, filter)
}

// setFilter takes the PCI ids as they are, else those of the models.
func setFilter(e *migparted.Entry, models, filter []string) error {
	for _, s := range filter {
		id, err := migparted.ParseDeviceID(s)
		if err != nil {
			return fmt.Errorf("device_filter: %w", err)
		}
		e.Filter = append(e.Filter, id)
	}
	if len(filter) > 0 {
		return nil
	}
	var err error
	if e.Filter, err = migparted.FilterOf(models); err != nil {
		return fmt.Errorf("models: %w", err)
	}
	return nil
}
