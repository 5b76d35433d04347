// Package functions has the provider's functions. They are pure: they look at their
// arguments and at the catalog, and never at a host.
package functions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/migparted"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

type fromMIGParted struct{}

// NewFromMIGParted makes the function from_mig_parted.
func NewFromMIGParted() function.Function { return fromMIGParted{} }

func (fromMIGParted) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "from_mig_parted"
}

func (fromMIGParted) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Reads a label of a mig-parted configuration",
		MarkdownDescription: "Reads the configuration file of NVIDIA's mig-parted or of the GPU Operator's MIG manager and returns the entries " +
			"of one label, in the file's order. Each is an object with\n\n" +
			"- `models`: the GPU models that the entry is for, as `selector` takes them, or null for all. " +
			"Ids in `device_filter` that the provider does not know are missing;\n" +
			"- `device_filter`: the PCI ids in the file, or null;\n" +
			"- `devices`: indices of GPUs in the driver's order, or null for all. They differ from host to host, so that `selector` " +
			"has no place for them;\n" +
			"- `mig_enabled`: whether MIG is on;\n" +
			"- `profiles`: numbers of instances by profile, as `mig = { profiles = ... }` takes them.\n\n" +
			"The file is read as mig-parted reads it, by YAML 1.1. What mig-parted refuses is an error, and so is what it would drop without a " +
			"word: a second document, a label or a profile that is there twice, an index below zero, a filter that is no PCI id, a " +
			"profile that is no name of one. Whether a GPU has the profile it does not ask.",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "yaml", MarkdownDescription: "The file's content, for example from `file(\"config.yaml\")`, or that of " +
				"the Kubernetes ConfigMap which has it."},
			function.StringParameter{Name: "label", MarkdownDescription: "The label, for example `all-balanced`."},
		},
		Return: function.ListReturn{ElementType: entryType},
	}
}

var entryType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"models":        types.ListType{ElemType: types.StringType},
	"device_filter": types.ListType{ElemType: types.StringType},
	"devices":       types.ListType{ElemType: types.Int64Type},
	"mig_enabled":   types.BoolType,
	"profiles":      types.MapType{ElemType: types.Int64Type},
}}

// entry is an entry as Terraform has it.
type entry struct {
	Models       []string         `tfsdk:"models"`
	DeviceFilter []string         `tfsdk:"device_filter"`
	Devices      []int            `tfsdk:"devices"`
	Enabled      bool             `tfsdk:"mig_enabled"`
	Profiles     map[string]int64 `tfsdk:"profiles"`
}

func (fromMIGParted) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text, label string
	if resp.Error = req.Arguments.Get(ctx, &text, &label); resp.Error != nil {
		return
	}
	config, err := migparted.Parse([]byte(text))
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	entries, err := config.Entries(label)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(1, sentence(err))
		return
	}
	out := make([]entry, len(entries))
	for i := range entries {
		if out[i], err = fromEntry(&entries[i]); err != nil {
			resp.Error = function.NewArgumentFuncError(1, sentence(fmt.Errorf("label %q, entry %d: %w", label, i+1, err)))
			return
		}
	}
	resp.Error = resp.Result.Set(ctx, out)
}

func fromEntry(e *migparted.Entry) (entry, error) {
	out := entry{Models: e.Models(), Enabled: e.Enabled, Profiles: map[string]int64{}}
	for _, id := range e.Filter {
		out.DeviceFilter = append(out.DeviceFilter, migparted.FormatDeviceID(id))
	}
	if !e.All {
		out.Devices = append([]int{}, e.Devices...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Profiles)) {
		if migparted.ComputeSlices(name) > 0 {
			return entry{}, fmt.Errorf("%q is a compute instance that shares its GPU instance, but a MIG layout has GPU instances only; "+
				"write the profile of the GPU instance, as in %q", name, name[strings.Index(name, ".")+1:])
		}
		out.Profiles[name] = int64(e.Profiles[name])
	}
	return out, nil
}

// sentence is an error as Terraform prints it for a function: it adds the full stop. What begins with the name of an
// attribute keeps that as it is written.
func sentence(err error) string {
	text := strings.TrimSuffix(err.Error(), ".")
	if first, _, _ := strings.Cut(text, " "); strings.HasSuffix(first, ":") {
		return text
	}
	return words.Capital(text)
}
