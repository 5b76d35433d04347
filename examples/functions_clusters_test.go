package examples_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// The example's configurations and labels are what the Kubernetes provider's resources take.
func TestKubernetesProviderExample(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(examplesDir, "kubernetes-device-plugin")
	e := copyExample(t, vdiFleet, filepath.Join(dir, "kubernetes-provider", "main.tf"))
	e.edit("main.tf", `"../"`, `"./module"`)
	module, err := os.ReadFile(filepath.Join(dir, "main.tf"))
	e.fleet.Must(err)
	e.fleet.Must(os.Mkdir(filepath.Join(e.Dir, "module"), 0o700))
	rig.Write(t, filepath.Join(e.Dir, "module", "main.tf"), string(module))
	withKubernetes(e.CLI)
	e.Ok("get")
	e.Apply()
	out := e.Ok("state", "show", "kubernetes_config_map_v1.device_plugin")
	if !rig.Says(`"inference" = <<-EOT`, "mps: resources: - name: nvidia.com/gpu replicas: 10", `"whole"`, `namespace = "gpu-operator"`).
		MatchString(out) {
		t.Errorf("the ConfigMap is\n%s", out)
	}
	out = e.Ok("state", "show", `kubernetes_labels.gpu_node["gpu-node-02"]`)
	rig.WantSaid(t, out, `"nvidia.com/device-plugin.config" = "notebooks"`, `"Node"`, `"gpu-node-02"`)
	e.WantNoChanges()
}

// The example's manifest is what the device plugin reads through Kubernetes.
func TestKubernetesDevicePluginExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, vdiFleet, filepath.Join(examplesDir, "kubernetes-device-plugin", "main.tf"))
	e.Apply()
	var manifest struct {
		Kind string
		Data map[string]string
	}
	if err := yaml.Unmarshal([]byte(e.Ok("output", "-raw", "manifest")), &manifest); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{"kind": manifest.Kind}
	for name, text := range manifest.Data {
		var config any
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		got[name] = config
	}
	flags := map[string]any{"migStrategy": "none"}
	shared := func(replicas int) []any {
		return []any{map[string]any{"name": "nvidia.com/gpu", "replicas": replicas}}
	}
	want := map[string]any{
		"kind":      "ConfigMap",
		"whole":     map[string]any{"version": "v1", "flags": flags},
		"inference": map[string]any{"version": "v1", "flags": flags, "sharing": map[string]any{"mps": map[string]any{"resources": shared(10)}}},
		"notebooks": map[string]any{"version": "v1", "flags": flags, "sharing": map[string]any{"timeSlicing": map[string]any{
			"renameByDefault": true, "failRequestsGreaterThanOne": true, "resources": shared(4),
		}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	rig.WantSaid(t, e.Output("labels"), `"nvidia.com/device-plugin.config":"notebooks"`)
	e.WantNoChanges()
}
