package functions

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

type (
	m = map[string]any
	l = []any
)

// value makes a value of maps, lists, texts, numbers and truths.
func value(of any) tftypes.Value {
	switch of := of.(type) {
	case map[string]any:
		types, values := map[string]tftypes.Type{}, map[string]tftypes.Value{}
		for k, v := range of {
			values[k] = value(v)
			types[k] = values[k].Type()
		}
		return tftypes.NewValue(tftypes.Object{AttributeTypes: types}, values)
	case []any:
		var types []tftypes.Type
		var values []tftypes.Value
		for _, v := range of {
			values = append(values, value(v))
			types = append(types, values[len(values)-1].Type())
		}
		return tftypes.NewValue(tftypes.Tuple{ElementTypes: types}, values)
	case string:
		return tftypes.NewValue(tftypes.String, of)
	case int:
		return tftypes.NewValue(tftypes.Number, of)
	case bool:
		return tftypes.NewValue(tftypes.Bool, of)
	case nil:
		return tftypes.NewValue(tftypes.String, nil)
	case unknownNumber:
		return tftypes.NewValue(tftypes.Number, tftypes.UnknownValue)
	case unknownValue:
		return tftypes.NewValue(tftypes.DynamicPseudoType, tftypes.UnknownValue)
	}
	panic(fmt.Sprintf("%T", of))
}

// unknownValue is what is not known yet, and unknownNumber a number of which that is so.
type (
	unknownValue  struct{}
	unknownNumber struct{}
)

// hide makes some parts of a value unknown.
func hide(r *rand.Rand, of any) any {
	if r.IntN(8) == 0 {
		return unknownValue{}
	}
	switch of := of.(type) {
	case map[string]any:
		out := m{}
		for _, k := range slices.Sorted(maps.Keys(of)) {
			out[k] = hide(r, of[k])
		}
		return out
	case []any:
		out := l{}
		for _, v := range of {
			out = append(out, hide(r, v))
		}
		return out
	}
	return of
}

// configGPU and inventoryGPU are GPUs as resources tell them.
func configGPU(minor int, layout string, instances ...any) m {
	return m{
		"model": "NVIDIA H100 80GB HBM3", "address": "0000:1b:00.0", "device_minor": minor, "cpu_cores": "0-15", "layout": layout,
		"partition_count": nil, "partition_vram_mib": nil, "instances": instances, "vgpus": nil,
	}
}

func inventoryGPU(minor int, mig any, instances ...any) m {
	return m{
		"model": "NVIDIA H100 80GB HBM3", "device_minor": minor, "cpu_cores": "0-15", "mig_enabled": mig, "mig_instances": instances,
		"vgpus": l{}, "status": "", "nvlinks": nil,
	}
}

func migInstance(profile string, start, capability int) m {
	return m{"profile": profile, "start": start, "capabilities": l{capability, capability + 1}}
}

var (
	someConfig = m{
		"gpu01": m{"gpus": m{
			"GPU-1": configGPU(0, "mig:3g.40gb@0+3g.40gb@4", migInstance("3g.40gb", 0, 12), migInstance("3g.40gb", 4, 21)),
			"GPU-2": configGPU(1, "mig:3g.40gb@0+3g.40gb@4", migInstance("3g.40gb", 0, 147), migInstance("3g.40gb", 4, 156)),
		}},
		"gpu02": m{"gpus": m{
			"GPU-3": configGPU(0, "mig:3g.40gb@0+3g.40gb@4", migInstance("3g.40gb", 0, 12), migInstance("3g.40gb", 4, 21)),
		}},
	}
	someInventory = m{
		"gpu01": m{"platform": "linux", "os": "Ubuntu", "gpus": m{
			"GPU-1": inventoryGPU(0, true, migInstance("3g.40gb", 0, 12), migInstance("3g.40gb", 4, 21)),
			"GPU-4": inventoryGPU(2, true, migInstance("3g.40gb", 0, 282), migInstance("3g.40gb", 4, 291)),
		}},
	}
)

// What is known of an argument is never refused for what is not: the whole of it is right.
func TestPartsOfARightArgumentAreRight(t *testing.T) {
	for _, f := range []struct {
		name  string
		write func(tftypes.Value) (any, error)
		with  []any
	}{
		{"slurm_gres", writeGres, []any{
			someConfig, someInventory,
			l{someConfig, someInventory},
			l{m{"name": "n[1-2]", "auto_detect": "off", "gpus": l{
				m{"device": 0, "type": "a100", "cores": "0-15", "mps": 100},
				m{"device": 1, "type": "t4"},
				m{"device": 2, "mig": l{m{"type": "1g.5gb", "capabilities": l{1, 2}}}},
			}}, m{"name": "n3", "type": "a100", "gpus": l{m{"device": 0}}}, someConfig},
			l{m{"name": "other", "gpus": someConfig["gpu01"].(m)["gpus"]}}, //nolint:forcetypeassert // as above
			l{m{"name": "other", "gpus": l{configGPU(0, "mig:off"), configGPU(1, "mig:off")}, "type": "h100"}},
		}},
		{"mig_parted_config", writeMIGParted, []any{
			m{"a": someConfig, "b": l{someConfig, someInventory}, "c": someConfig["gpu01"]},
			m{"a": m{"1g.5gb": 7}, "b": m{"models": l{"A30"}, "devices": l{0, 1}, "profiles": m{"1g.6gb": 4}}},
			m{"a": l{m{"mig_enabled": false}, m{"device_filter": l{"0x20B210DE"}, "profiles": m{"1g.5gb": 1, "2g.10gb": 0}}, someConfig}},
		}},
		{"dra_resources", writeDRA, []any{
			m{"name": "ml", "namespace": "team", "gpus": someConfig}, m{"name": "ml", "gpus": l{someConfig, someInventory}},
		}},
		{"container_unit", func(v tftypes.Value) (any, error) {
			fields, err := object(v)
			if err != nil {
				return nil, err
			}
			out, _, err := writeUnit(fields["share"], fields["container"])
			return out, err
		}, []any{
			m{"share": m{"name": "chat", "cdi_device": "gpufleet.com/share=chat"}, "container": m{
				"image": "debian", "command": l{"a", "b"}, "environment": m{"A": "b"}, "volumes": l{"/a:/b"}, "restart": "no",
			}},
			m{"share": "gpufleet.com/share=a:b", "container": m{"name": "chat", "image": "debian", "ports": l{"80:80"}, "engine": "docker"}},
		}},
		{"device_plugin_config", writePlugin, []any{
			m{"gpus": someConfig, "time_slicing": m{"resources": m{"nvidia.com/mig-3g.40gb": 2}}},
			m{"gpus": l{someInventory, someConfig}, "mig_strategy": "single", "time_slicing": m{
				"resources": m{"gpu": 2}, "rename_by_default": true,
			}},
			m{"mig_strategy": "none", "mps": m{"resources": m{"gpu": 2}}, "flags": m{
				"fail_on_init_error": true, "plugin": m{"device_list_strategy": l{"cdi-cri", "envvar"}, "device_id_strategy": "uuid"},
			}},
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			for i, with := range f.with {
				whole, err := f.write(value(with))
				if err != nil {
					t.Fatalf("argument %d: %v", i+1, err)
				}
				if whole == nil || whole == "" {
					t.Fatalf("argument %d gives nothing", i+1)
				}
				r := rand.New(rand.NewPCG(1, uint64(i))) //nolint:gosec // the same in each run
				for range 300 {
					part := hide(r, with)
					if v := value(part); v.IsKnown() {
						if _, err := f.write(v); err != nil {
							t.Fatalf("argument %d: %v: %v", i+1, err, part)
						}
					}
				}
			}
		})
	}
}

// What is wrong in the part that is known is told, whatever else there is.
func TestKnownPartsOfAnArgumentAreChecked(t *testing.T) {
	for _, tt := range []struct {
		write func(tftypes.Value) (any, error)
		with  any
		says  string
	}{
		{writeGres, l{m{"name": "gpu 01", "gpus": unknownValue{}}}, `node "gpu 01": it is not the name of a node`},
		{writeGres, l{m{"name": "n", "auto_detect": "rsmi", "gpus": unknownValue{}}}, `AutoDetect is "rsmi"`},
		{writeGres, l{m{"name": "n", "gpu": unknownValue{}}}, `there is no attribute "gpu"`},
		{writeGres, l{m{"name": "n", "gpus": l{m{"device": unknownValue{}, "typ": "a"}}}}, `there is no attribute "typ"`},
		{writeGres, l{m{"name": "n", "gpus": l{m{"device": 1, "type": "4k"}, unknownValue{}}}}, `"4k" is not a type`},
		{writeGres, l{unknownValue{}, m{"name": "n", "gpus": l{m{"device": "1"}}}}, `device: a number is wanted`},
		{writeGres, m{"gpu01": unknownValue{}, "gpu02": m{"gpus": m{"GPU-1": configGPU(0, "mps:default")}}}, `Slurm would give it out a ` +
			`second time`},
		{writeMIGParted, m{"x": m{"models": l{"Voodoo 2"}, "profiles": unknownValue{}}}, `knows no GPU model "Voodoo 2"`},
		{writeMIGParted, m{"x": m{"1g.5": unknownNumber{}}}, `"1g.5", which is not a MIG profile`},
		{writeMIGParted, m{"x": m{"models": l{"A30"}, "profiles": m{"1g.10gb": unknownValue{}}}}, `"A30" has no "1g.10gb"`},
		{writeMIGParted, m{"x": unknownValue{}, "y": m{"profile": unknownNumber{}}}, `"profile", which is not a MIG profile`},
		{writeDRA, m{"name": "ML", "gpus": unknownValue{}}, `"ML" is not a name`},
		{writeDRA, m{"name": "ml", "gpu": unknownValue{}}, `there is no attribute "gpu"`},
		{writePlugin, m{"mig_strategy": "mixd", "gpus": unknownValue{}}, `mig_strategy is "mixd"`},
		{writePlugin, m{"mps": m{"resources": m{"mig-1g.5gb": unknownValue{}}}}, `which the plugin does not share by MPS`},
	} {
		if _, err := tt.write(value(tt.with)); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v, want %q", tt.with, err, tt.says)
		}
	}
}
