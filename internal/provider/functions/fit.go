package functions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

type fitFunction struct{}

// NewFit makes the function fit.
func NewFit() function.Function { return fitFunction{} }

func (fitFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "fit"
}

func (fitFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Finds which layout of which GPUs holds given demands",
		MarkdownDescription: "Finds which layout of which GPUs holds given demands: on as few GPUs as can be, then with as few changes as can " +
			"be. It asks no host: what a GPU can be cut into is what the fleet shows, or what is documented of its model. Up to 64 GPUs the " +
			"answer is the best there is, or says what it could not rule out; beyond that it may use more GPUs than are needed, and says how many " +
			"at most. It never says that something does not fit without having proved it.\n\n" +
			"It returns an object with\n\n" +
			"- `fits`: whether all demands have a place; null where that was not found out;\n" +
			"- `layouts`: by host and GPU id an object with `kind` (`gpu_p`, `mig`, `mps`, or `gpu` for a GPU that is given out whole) and the " +
			"block of that name in `gpu_partition_config`;\n" +
			"- `configs`: the same layouts, by names for `for_each` of `gpu_partition_config`: objects with `hosts`, `gpu_ids` for its " +
			"`selector`, and `gpu_p`, `mig` or `mps`;\n" +
			"- `placements`: by demand a list of objects with `host`, `gpu_id` and `unit`: the number of a partition or a share on its GPU, a MIG " +
			"instance as `3g.40gb@4`, or `gpu`. A unit of several GPUs has as many entries, one after the other;\n" +
			"- `missing`: by demand how many units have no place; only those that lack some;\n" +
			"- `reason`: what is missing, with how many GPUs more it would fit, and what binds; `\"\"` where there is nothing to say;\n" +
			"- `unused`: a list of objects with `host`, `gpu_id` and `model` of the GPUs that nothing was placed on;\n" +
			"- `remaining`: how many more instances of each MIG profile, partitions and shares (of the smallest size that was asked for) the " +
			"GPUs in use still take, each alone, and how many GPUs are unused (`gpu`);\n" +
			"- `gpus`, `gpus_at_least` and `changes`: how many GPUs are in use, how many are proved to be needed, and how many get another layout.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "hosts",
				MarkdownDescription: "A list of objects with `name`, `gpus` (a list of objects with `id` and `model`, as the guide on GPU models has " +
					"it), and optionally `cluster` and `platform` (`hyperv` or `linux`; without both either will do, but not both on one host). Or " +
					"a fleet as JSON text: a fleet file, a recording, what `gpu-agent inventory --json` prints, or such a list.",
			},
			function.DynamicParameter{
				Name: "demands",
				MarkdownDescription: "A list of objects with `name`, `count`, `kind`, optionally `label`, and by the kind\n\n" +
					"- `gpu_p`: partitions with at least `vram_mib`. All of a cluster have one count, and a VM stays in its cluster;\n" +
					"- `mig`: instances of `profile`;\n" +
					"- `share`: parts of a GPU under MPS with `memory_mib` and, optionally, `threads`, a percentage;\n" +
					"- `gpu`: whole GPUs, as many as `gpus` says (default 1) on one host.",
			},
			function.DynamicParameter{
				Name: "options", AllowNullValue: true,
				MarkdownDescription: "An object, `{}` for none, with\n\n" +
					"- `spare_hosts`: how many hosts may fail together while the layouts of the others still hold all demands: of partitions as many in " +
					"each cluster. Default 0;\n" +
					"- `keep`: layouts to keep where they will do, as in `layouts`. Default: what the fleet shows.",
			},
		},
		Return: function.ObjectReturn{AttributeTypes: fitType},
	}
}

var (
	gpuPType   = types.ObjectType{AttrTypes: map[string]attr.Type{"partition_count": types.Int64Type}}
	migType    = types.ObjectType{AttrTypes: map[string]attr.Type{"profiles": types.MapType{ElemType: types.Int64Type}}}
	mpsType    = types.ObjectType{AttrTypes: map[string]attr.Type{"multi_user": types.BoolType}}
	layoutType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"kind": types.StringType, "gpu_p": gpuPType, "mig": migType, "mps": mpsType,
	}}
	fitType = map[string]attr.Type{
		"fits":    types.BoolType,
		"layouts": types.MapType{ElemType: types.MapType{ElemType: layoutType}},
		"configs": types.MapType{ElemType: types.ObjectType{AttrTypes: map[string]attr.Type{
			"hosts":   types.ListType{ElemType: types.StringType},
			"gpu_ids": types.MapType{ElemType: types.ListType{ElemType: types.StringType}},
			"gpu_p":   gpuPType, "mig": migType, "mps": mpsType,
		}}},
		"placements": types.MapType{ElemType: types.ListType{ElemType: types.ObjectType{AttrTypes: map[string]attr.Type{
			"host": types.StringType, "gpu_id": types.StringType, "unit": types.StringType,
		}}}},
		"missing": types.MapType{ElemType: types.Int64Type},
		"reason":  types.StringType,
		"unused": types.ListType{ElemType: types.ObjectType{AttrTypes: map[string]attr.Type{
			"host": types.StringType, "gpu_id": types.StringType, "model": types.StringType,
		}}},
		"remaining":     types.MapType{ElemType: types.Int64Type},
		"gpus":          types.Int64Type,
		"gpus_at_least": types.Int64Type,
		"changes":       types.Int64Type,
	}
)

// fitResult is the result as Terraform has it.
type fitResult struct {
	Fits       *bool                           `tfsdk:"fits"`
	Layouts    map[string]map[string]fitLayout `tfsdk:"layouts"`
	Configs    map[string]fitConfig            `tfsdk:"configs"`
	Placements map[string][]fitPlace           `tfsdk:"placements"`
	Missing    map[string]int                  `tfsdk:"missing"`
	Reason     string                          `tfsdk:"reason"`
	Unused     []fitUnused                     `tfsdk:"unused"`
	Remaining  map[string]int                  `tfsdk:"remaining"`
	GPUs       int                             `tfsdk:"gpus"`
	AtLeast    int                             `tfsdk:"gpus_at_least"`
	Changes    int                             `tfsdk:"changes"`
}

type fitLayout struct {
	Kind string   `tfsdk:"kind"`
	GPUP *fitGPUP `tfsdk:"gpu_p"`
	MIG  *fitMIG  `tfsdk:"mig"`
	MPS  *fitMPS  `tfsdk:"mps"`
}

type fitConfig struct {
	Hosts  []string            `tfsdk:"hosts"`
	GPUIDs map[string][]string `tfsdk:"gpu_ids"`
	GPUP   *fitGPUP            `tfsdk:"gpu_p"`
	MIG    *fitMIG             `tfsdk:"mig"`
	MPS    *fitMPS             `tfsdk:"mps"`
}

type fitGPUP struct {
	PartitionCount int `tfsdk:"partition_count"`
}

type fitMIG struct {
	Profiles map[string]int `tfsdk:"profiles"`
}

type fitMPS struct {
	MultiUser bool `tfsdk:"multi_user"`
}

type fitPlace struct {
	Host string `tfsdk:"host"`
	GPU  string `tfsdk:"gpu_id"`
	Unit string `tfsdk:"unit"`
}

type fitUnused struct {
	Host  string `tfsdk:"host"`
	GPU   string `tfsdk:"gpu_id"`
	Model string `tfsdk:"model"`
}

func (fitFunction) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var arguments [3]types.Dynamic
	if resp.Error = req.Arguments.Get(ctx, &arguments[0], &arguments[1], &arguments[2]); resp.Error != nil {
		return
	}
	var (
		hosts   []gpu.Host
		demands []fit.Demand
		options fit.Options
	)
	for i, read := range []reader{into(&hosts, fitHosts), into(&demands, objects(decodeDemand)), into(&options, fitOptions)} {
		value, err := arguments[i].ToTerraformValue(ctx)
		if err == nil && !value.IsFullyKnown() {
			return // the result is not known either
		}
		if err == nil && !(i == 2 && value.IsNull()) {
			err = read(value)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", []string{"hosts", "demands", "options"}[i], err)
			resp.Error = function.NewArgumentFuncError(int64(i), sentence(err))
			return
		}
	}
	got, err := fit.Solve(hosts, demands, options)
	if err != nil {
		resp.Error = function.NewFuncError(sentence(err))
		return
	}
	resp.Error = resp.Result.Set(ctx, fitted(&got))
}

// fitHosts reads hosts with models, or a fleet as text.
func fitHosts(v tftypes.Value) ([]gpu.Host, error) {
	if !v.IsNull() && v.Type().Is(tftypes.String) {
		s, err := text(v)
		if err != nil {
			return nil, err
		}
		return fit.ReadHosts([]byte(s))
	}
	specs, err := objects(decodeHost)(v)
	if err != nil {
		return nil, err
	}
	return fit.Hosts(specs)
}

func decodeHost(fields map[string]tftypes.Value) (fit.HostSpec, error) {
	var (
		out      fit.HostSpec
		platform string
	)
	err := decodeFields(fields, map[string]reader{
		"name": into(&out.Name, text), "cluster": into(&out.Cluster, text), "platform": into(&platform, text),
		"gpus": into(&out.GPUs, objects(func(fields map[string]tftypes.Value) (fit.GPUSpec, error) {
			var g fit.GPUSpec
			err := decodeFields(fields, map[string]reader{"id": into(&g.ID, text), "model": into(&g.Model, text)})
			return g, err
		})),
	})
	out.Platform = gpu.Platform(platform)
	return out, err
}

func decodeDemand(fields map[string]tftypes.Value) (fit.Demand, error) {
	var (
		out                fit.Demand
		kind               string
		vramMiB, memoryMiB int
	)
	err := decodeFields(fields, map[string]reader{
		"name": into(&out.Name, text), "count": into(&out.Count, whole), "kind": into(&kind, text), "label": into(&out.Label, text),
		"vram_mib": into(&vramMiB, whole), "profile": into(&out.Profile, text), "memory_mib": into(&memoryMiB, whole),
		"threads": into(&out.Threads, decimal), "gpus": into(&out.GPUs, whole),
	})
	if v, ok := fields["gpus"]; err == nil && ok && !v.IsNull() && out.GPUs == 0 {
		return out, errors.New("gpus is 0; it must be 1 or more")
	}
	out.Kind, out.VRAMMiB, out.MemoryMiB = fit.Kind(kind), int64(vramMiB), int64(memoryMiB)
	return out, err
}

func fitOptions(v tftypes.Value) (fit.Options, error) {
	var out fit.Options
	fields, err := object(v)
	if err != nil {
		return out, err
	}
	err = decodeFields(fields, map[string]reader{"spare_hosts": into(&out.SpareHosts, whole), "keep": into(&out.Keep, fitLayouts)})
	return out, err
}

func fitLayouts(v tftypes.Value) (fit.Layouts, error) {
	out := fit.Layouts{}
	hosts, err := object(v)
	if err != nil {
		return nil, err
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		gpus, err := object(hosts[host])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", host, err)
		}
		out[host] = map[string]fit.Layout{}
		for _, id := range slices.Sorted(maps.Keys(gpus)) {
			fields, err := object(gpus[id])
			if err == nil {
				out[host][id], err = decodeFitLayout(fields)
			}
			if err != nil {
				return nil, fmt.Errorf("%q: %q: %w", host, id, err)
			}
		}
	}
	return out, nil
}

func decodeFitLayout(fields map[string]tftypes.Value) (fit.Layout, error) {
	var (
		kind string
		out  fit.Layout
	)
	err := decodeFields(fields, map[string]reader{
		"kind": into(&kind, text),
		"gpu_p": func(v tftypes.Value) error {
			out.GPUP = &fit.GPUP{}
			fields, err := object(v)
			if err != nil {
				return err
			}
			return decodeFields(fields, map[string]reader{"partition_count": into(&out.GPUP.PartitionCount, whole)})
		},
		"mig": func(v tftypes.Value) error {
			out.MIG = &fit.MIG{}
			fields, err := object(v)
			if err != nil {
				return err
			}
			return decodeFields(fields, map[string]reader{"profiles": into(&out.MIG.Profiles, counts)})
		},
		"mps": func(v tftypes.Value) error {
			out.MPS = &fit.MPS{}
			fields, err := object(v)
			if err != nil {
				return err
			}
			return decodeFields(fields, map[string]reader{"multi_user": into(&out.MPS.MultiUser, truth)})
		},
	})
	out.Kind = gpu.Kind(kind)
	if err == nil {
		err = out.Check()
	}
	return out, err
}

func fitted(r *fit.Result) fitResult {
	out := fitResult{
		Fits: r.Fits, Layouts: map[string]map[string]fitLayout{}, Configs: map[string]fitConfig{}, Placements: map[string][]fitPlace{},
		Missing: r.Missing, Reason: r.Reason, Unused: []fitUnused{}, Remaining: r.Remaining, GPUs: r.GPUs, AtLeast: r.AtLeast, Changes: r.Changes,
	}
	for host, of := range r.Layouts {
		out.Layouts[host] = map[string]fitLayout{}
		for id, l := range of {
			out.Layouts[host][id] = fitLayout{string(l.Kind), (*fitGPUP)(l.GPUP), (*fitMIG)(l.MIG), (*fitMPS)(l.MPS)}
		}
	}
	for name, c := range r.Configs {
		out.Configs[name] = fitConfig{c.Hosts, c.GPUIDs, (*fitGPUP)(c.GPUP), (*fitMIG)(c.MIG), (*fitMPS)(c.MPS)}
	}
	for name, places := range r.Placements {
		out.Placements[name] = []fitPlace{}
		for _, at := range places {
			out.Placements[name] = append(out.Placements[name], fitPlace(at))
		}
	}
	for _, u := range r.Unused {
		out.Unused = append(out.Unused, fitUnused(u))
	}
	return out
}
