package functions

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/migparted"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// NewMIGPartedConfig makes the function mig_parted_config.
func NewMIGPartedConfig() function.Function {
	return writer{name: "mig_parted_config", write: writeMIGParted, definition: function.Definition{
		Summary: "Writes a mig-parted configuration",
		MarkdownDescription: "Writes the configuration file that NVIDIA's mig-parted and the GPU Operator's MIG manager read, so that a " +
			"cluster's own engine makes the layouts. Labels and profiles are sorted: the same layouts give the same text. It is what the GPU " +
			"Operator wants below `config.yaml` in a ConfigMap. What mig-parted would refuse or drop is an error: its own parser (v0.13.1) has " +
			"judged the function's texts. Of models that are told apart by their board, as `RTX PRO 5000 Blackwell`, the ids have a subsystem, " +
			"which mig-parted knows from v0.15.0 on: older releases find no GPU by such an id.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "labels",
				MarkdownDescription: "An object with what each label stands for. Either numbers of instances by profile, for all GPUs, as in " +
					"`{ \"1g.10gb\" = 7 }`; or one object, or a list of objects, with any of `models` (by the provider's names), `device_filter` (PCI " +
					"ids, which go before `models`), `devices` (indices in the driver's order; all when left out, none for `[]`), `mig_enabled` " +
					"(default `true`) and `profiles`. What `from_mig_parted` returns is such a list. A count of 0 is left out.",
			},
		},
		Return: function.StringReturn{},
	}}
}

func writeMIGParted(v tftypes.Value) (any, error) {
	labels, err := object(v)
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	config := migparted.Config{}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if config[label], err = decodeLabel(labels[label]); err != nil {
			return nil, fmt.Errorf("label %q: %w", label, err)
		}
	}
	out, err := migparted.Render(config)
	return string(out), err
}

// decodeLabel reads numbers of instances, one entry, or a list of entries.
func decodeLabel(v tftypes.Value) ([]migparted.Entry, error) {
	if isList(v) {
		return objects(decodeEntry)(v)
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
	e := migparted.Entry{All: true, Enabled: true, Profiles: profiles}
	if err == nil {
		err = check(&e)
	}
	return []migparted.Entry{e}, err
}

// attributes are the names of an entry's fields in Terraform.
var attributes = map[migparted.Field]string{
	migparted.DeviceFilter: "device_filter", migparted.Devices: "devices",
	migparted.MIGEnabled: "mig_enabled", migparted.MIGDevices: "profiles",
}

// check leaves out counts of 0, and says what is wrong with an entry by the names that its writer knows.
func check(e *migparted.Entry) error {
	e.DropZeros()
	err := e.Check()
	if field := (*migparted.FieldError)(nil); errors.As(err, &field) {
		return field.Named(attributes)
	}
	return err
}

func decodeEntry(fields map[string]tftypes.Value) (migparted.Entry, error) {
	e := migparted.Entry{Enabled: true}
	var models, filter []string
	err := decodeFields(fields, map[string]reader{
		"models":        into(&models, texts),
		"device_filter": into(&filter, texts),
		"devices":       into(&e.Devices, indices),
		"mig_enabled":   into(&e.Enabled, truth),
		"profiles":      into(&e.Profiles, counts),
	})
	if err != nil {
		return e, err
	}
	for i, list := range [][]string{models, filter} {
		if list != nil && len(list) == 0 {
			return e, fmt.Errorf("%s: an empty list would stand for every GPU; leave it out if all are meant, and the entry if none are",
				[]string{"models", "device_filter"}[i])
		}
	}
	e.All = e.Devices == nil
	if err := setFilter(&e, models, filter); err != nil {
		return e, err
	}
	if err := offered(models, e.Profiles); err != nil {
		return e, err
	}
	return e, check(&e)
}

// offered refuses a profile that a named model has not, where the catalog knows which it has: mig-parted would fail on the node.
func offered(models []string, profiles map[string]int) error {
	for _, name := range models {
		m, _ := catalog.ByName(name)
		if m.MIG == nil {
			continue // what it has is not known
		}
		for _, profile := range slices.Sorted(maps.Keys(profiles)) {
			if _, has := m.MIG.Profile(migparted.GPUInstance(profile)); !has {
				names := words.Each(m.MIG.Profiles, func(p gpu.MIGProfile) string { return p.Name })
				return fmt.Errorf("profiles: GPU model %q has no %q, but %s", name, profile, words.Join(names))
			}
		}
	}
	return nil
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
