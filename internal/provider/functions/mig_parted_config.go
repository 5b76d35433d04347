package functions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

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
	var labels types.Dynamic
	if resp.Error = req.Arguments.Get(ctx, &labels); resp.Error != nil {
		return
	}
	if labels.IsNull() || labels.IsUnderlyingValueNull() {
		resp.Error = function.NewArgumentFuncError(0, sentence(fmt.Errorf("labels: %w", errNotObject)))
		return
	}
	value, err := labels.UnderlyingValue().ToTerraformValue(ctx)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	if !value.IsFullyKnown() {
		resp.Error = resp.Result.Set(ctx, types.StringUnknown())
		return
	}
	config, err := decodeLabels(value)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	text, err := migparted.Render(config)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	resp.Error = resp.Result.Set(ctx, string(text))
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
		list, err := elements(v)
		if err != nil {
			return nil, err
		}
		out := make([]migparted.Entry, len(list))
		for i, item := range list {
			fields, err := object(item)
			if err == nil {
				out[i], err = decodeEntry(fields)
			}
			if err != nil {
				return nil, fmt.Errorf("entry %d: %w", i+1, err)
			}
		}
		return out, nil
	}
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	for name := range fields {
		if _, known := entryType.AttrTypes[name]; known {
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
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		v := fields[name]
		if _, known := entryType.AttrTypes[name]; !known {
			return e, fmt.Errorf("there is no attribute %q, but %s", name, strings.Join(slices.Sorted(maps.Keys(entryType.AttrTypes)), ", "))
		}
		if v.IsNull() {
			continue
		}
		var err error
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
		if err != nil {
			return e, fmt.Errorf("%s: %w", name, err)
		}
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

var errNotObject = errors.New("an object is wanted")

func object(v tftypes.Value) (map[string]tftypes.Value, error) {
	if v.IsNull() || !(v.Type().Is(tftypes.Object{}) || v.Type().Is(tftypes.Map{})) {
		return nil, errNotObject
	}
	var out map[string]tftypes.Value
	err := v.As(&out)
	return out, err
}

func isList(v tftypes.Value) bool {
	t := v.Type()
	return !v.IsNull() && (t.Is(tftypes.List{}) || t.Is(tftypes.Tuple{}) || t.Is(tftypes.Set{}))
}

func elements(v tftypes.Value) ([]tftypes.Value, error) {
	if !isList(v) {
		return nil, errors.New("a list is wanted")
	}
	var out []tftypes.Value
	err := v.As(&out)
	return out, err
}

func texts(v tftypes.Value) ([]string, error) {
	list, err := elements(v)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(list))
	for i, item := range list {
		if item.IsNull() || !item.Type().Is(tftypes.String) {
			return nil, errors.New("a list of strings is wanted")
		}
		if err := item.As(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func indices(v tftypes.Value) ([]int, error) {
	list, err := elements(v)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(list))
	for i, item := range list {
		if out[i], err = whole(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func counts(v tftypes.Value) (map[string]int, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if out[name], err = whole(fields[name]); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return out, nil
}

func truth(v tftypes.Value) (bool, error) {
	if !v.Type().Is(tftypes.Bool) {
		return false, errors.New("true or false is wanted")
	}
	var b bool
	err := v.As(&b)
	return b, err
}

// whole reads a whole number that is small enough for any GPU.
func whole(v tftypes.Value) (int, error) {
	if v.IsNull() || !v.Type().Is(tftypes.Number) {
		return 0, errors.New("a number is wanted")
	}
	var n big.Float
	if err := v.As(&n); err != nil {
		return 0, err
	}
	i, accuracy := n.Int64()
	if accuracy != big.Exact || i < -1<<31 || i > 1<<31-1 {
		return 0, fmt.Errorf("%s is not a whole number", n.Text('g', 10))
	}
	return int(i), nil
}
