package functions

import (
	"fmt"

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
			anything("devices", "An object with\n\n"+
				"- `name`: what the names of the objects begin with;\n"+
				"- `gpus`: attribute `gpus` of a `gpu_partition_config` of kind `mig`, attribute `inventory` of a `gpu_inventory`, or a list of "+
				"these; GPUs that their host shares otherwise are refused, since they would be given out twice;\n"+
				"- `namespace`: the namespace of the templates; optional."),
		},
		Return: function.StringReturn{},
	}}
}

func writeDRA(v tftypes.Value) (any, error) {
	fields, err := object(v)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	out := dra.Request{Name: "unknown"}
	var gpus []hostGPU
	if err := decodeFields(fields, map[string]reader{
		"gpus":      into(&gpus, hostGPUs),
		"name":      into(&out.Name, text),
		"namespace": into(&out.Namespace, text),
	}); err != nil {
		return nil, err
	}
	if name := fields["name"]; name.Type() == nil || name.IsNull() {
		out.Name = "" // which is refused
	}
	for _, g := range gpus {
		to := dra.GPU{Host: g.host, UUID: g.id, Layout: g.layout}
		for _, in := range g.instances {
			to.Profiles = append(to.Profiles, in.profile)
		}
		out.GPUs = append(out.GPUs, to)
	}
	if v := fields["gpus"]; len(out.GPUs) == 0 && !v.IsFullyKnown() {
		out.GPUs = []dra.GPU{{UUID: "GPU-unknown", Layout: migOff}} // there will be some
	}
	return dra.Render(&out)
}
