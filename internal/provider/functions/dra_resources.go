package functions

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/dra"
)

// NewDRAResources makes the function dra_resources.
func NewDRAResources() function.Function {
	return writer{name: "dra_resources", write: writeDRA, definition: function.Definition{
		Summary: "Writes Kubernetes DeviceClasses and ResourceClaimTemplates for GPUs",
		MarkdownDescription: "Writes what pods ask for the devices of a partition config by, in a cluster whose nodes run NVIDIA's driver for " +
			"dynamic resource allocation: for each MIG profile that its GPUs have, and for GPUs that it keeps out of MIG mode, a `DeviceClass` " +
			"and a `ResourceClaimTemplate` for one such device, both named `NAME-PROFILE` or `NAME-gpu`. The API version is `resource.k8s.io/v1`, " +
			"of Kubernetes 1.34 and later. The result is YAML, with a document for each object. Devices are selected by profile and by the UUID " +
			"of their GPU: it stays the same when an instance is made again. What kube-apiserver does with an object before it stores it, " +
			"with Kubernetes 1.37's own code, takes the result; it has not been tried with NVIDIA's driver.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "devices",
				MarkdownDescription: "An object with\n\n" +
					"- `name`: what the names of the objects begin with;\n" +
					"- `gpus`: attribute `gpus` of a `gpu_partition_config` of kind `mig`; GPUs that their host shares otherwise are refused, since " +
					"they would be given out twice;\n" +
					"- `namespace`: the namespace of the templates; optional.",
			},
		},
		Return: function.StringReturn{},
	}}
}

func writeDRA(v tftypes.Value) (any, error) {
	fields, err := object(v)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	var out dra.Request
	if err := decodeFields(fields, map[string]reader{
		"gpus":      into(&out.GPUs, decodeConfigGPUs),
		"name":      into(&out.Name, text),
		"namespace": into(&out.Namespace, text),
	}); err != nil {
		return nil, err
	}
	return dra.Render(&out)
}

// decodeConfigGPUs reads the attribute gpus of a partition config, of which more than is read
// here may be there.
func decodeConfigGPUs(v tftypes.Value) ([]dra.GPU, error) {
	hosts, err := object(v)
	if err != nil {
		return nil, err
	}
	var out []dra.GPU
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		on, err := object(hosts[host])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", host, err)
		}
		gpus, err := object(on["gpus"])
		if err != nil {
			return nil, fmt.Errorf("%q: gpus: %w", host, err)
		}
		for _, id := range slices.Sorted(maps.Keys(gpus)) {
			g := dra.GPU{Host: host, UUID: id}
			if err := decodeConfigGPU(gpus[id], &g); err != nil {
				return nil, fmt.Errorf("%q: %q: %w", host, id, err)
			}
			out = append(out, g)
		}
	}
	return out, nil
}

func decodeConfigGPU(v tftypes.Value, g *dra.GPU) error {
	fields, err := object(v)
	if err != nil {
		return err
	}
	if layout, ok := fields["layout"]; ok && !layout.IsNull() {
		if g.Layout, err = text(layout); err != nil {
			return fmt.Errorf("layout: %w", err)
		}
	}
	if list, ok := fields["instances"]; ok && !list.IsNull() {
		g.Profiles, err = objects(func(fields map[string]tftypes.Value) (string, error) {
			profile, ok := fields["profile"]
			if !ok || profile.IsNull() {
				return "", errors.New("profile: a string is wanted")
			}
			return text(profile)
		})(list)
	}
	if err != nil {
		return fmt.Errorf("instances: %w", err)
	}
	return nil
}
