package examples_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFunctionExamples(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"from_mig_parted": `{"layouts": [
			{"models": ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"], "profiles": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
			{"models": ["NVIDIA A30"], "profiles": {"1g.6gb": 2, "2g.12gb": 1}}
		]}`,
		"mig_parted_config": `{"config": "version: v1\nmig-configs:\n` +
			`  \"balanced\":\n` +
			`    - device-filter: [\"0x233010DE\", \"0x20B210DE\"]\n      devices: all\n      mig-enabled: true\n` +
			`      mig-devices:\n        \"1g.10gb\": 2\n        \"2g.20gb\": 1\n        \"3g.40gb\": 1\n` +
			`    - device-filter: [\"0x20B710DE\"]\n      devices: all\n      mig-enabled: true\n` +
			`      mig-devices:\n        \"1g.6gb\": 2\n        \"2g.12gb\": 1\n` +
			`  \"inference\":\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n        \"1g.10gb\": 7\n` +
			`  \"training\":\n    - devices: [0]\n      mig-enabled: false\n    - devices: [1]\n      mig-enabled: true\n` +
			`      mig-devices:\n        \"3g.40gb\": 2\n"}`,
		"device_plugin_config": `{
			"mps": "version: v1\nsharing:\n  mps:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: 10\n",
			"time_slicing": "version: v1\nflags:\n  migStrategy: mixed\nsharing:\n  timeSlicing:\n` +
			`    renameByDefault: true\n    failRequestsGreaterThanOne: true\n    resources:\n` +
			`      - name: nvidia.com/gpu\n        replicas: 4\n      - name: nvidia.com/mig-1g.10gb\n        replicas: 2\n"}`,
		"container_unit": `{
			"quadlet": "[Unit]\nDescription=Container chat on the GPU share gpufleet.com/share=chat\nWants=network-online.target\n` +
			`After=network-online.target gpu-agent-reconcile.service\n\n[Container]\nContainerName=chat\n` +
			`Image=docker.io/vllm/vllm-openai:v0.11.0\nAddDevice=gpufleet.com/share=chat\nVolume=/srv/models:/models:ro\n` +
			`PublishPort=127.0.0.1:8000:8000\nExec=--model /models/chat\n\n` +
			`[Service]\nRestart=always\n\n[Install]\nWantedBy=multi-user.target\n",
			"compose": "services:\n  chat:\n    container_name: chat\n    image: docker.io/vllm/vllm-openai:v0.11.0\n    devices:\n` +
			`      - gpufleet.com/share=chat\n    command:\n      - --model\n      - /models/chat\n    volumes:\n` +
			`      - /srv/models:/models:ro\n    ports:\n      - \"127.0.0.1:8000:8000\"\n    restart: \"always\"\n",
			"docker_run": "docker run --detach --name chat --restart always --device gpufleet.com/share=chat --volume /srv/models:/models:ro ` +
			`--publish 127.0.0.1:8000:8000 docker.io/vllm/vllm-openai:v0.11.0 --model /models/chat"}`,
		"from_device_plugin_config": `{
			"config": "version: v1\nsharing:\n  timeSlicing:\n    failRequestsGreaterThanOne: true\n    resources:\n` +
			`      - name: nvidia.com/gpu\n        replicas: 4\n"}`,
		"dra_resources": `{"manifests": "` +
			`apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  name: inference-1g.10gb\nspec:\n  selectors:\n    - cel:\n        ` +
			`expression: device.driver == \"gpu.nvidia.com\" && device.attributes[\"gpu.nvidia.com\"].type == \"mig\" && ` +
			`device.attributes[\"gpu.nvidia.com\"].profile == \"1g.10gb\" && device.attributes[\"gpu.nvidia.com\"].parentUUID in ` +
			`[\"GPU-2c0d8a52-7f2e-4c39-9a61-50f1d0a7c001\"]\n---\n` +
			`apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  name: inference-3g.40gb\nspec:\n  selectors:\n    - cel:\n        ` +
			`expression: device.driver == \"gpu.nvidia.com\" && device.attributes[\"gpu.nvidia.com\"].type == \"mig\" && ` +
			`device.attributes[\"gpu.nvidia.com\"].profile == \"3g.40gb\" && device.attributes[\"gpu.nvidia.com\"].parentUUID in ` +
			`[\"GPU-2c0d8a52-7f2e-4c39-9a61-50f1d0a7c001\", \"GPU-2c0d8a52-7f2e-4c39-9a61-50f1d0a7c002\"]\n---\n` +
			`apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata:\n  name: inference-1g.10gb\n  namespace: ml\nspec:\n  spec:\n ` +
			`   devices:\n      requests:\n        - name: gpu\n          exactly:\n            deviceClassName: inference-1g.10gb\n---\n` +
			`apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata:\n  name: inference-3g.40gb\n  namespace: ml\nspec:\n  spec:\n ` +
			`   devices:\n      requests:\n        - name: gpu\n          exactly:\n            deviceClassName: inference-3g.40gb\n` + `"}`,
		"slurm_gres": `{
			"gres_conf": "NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia0 Cores=0-31\n` +
			`NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia1 Cores=32-63\n` +
			`NodeName=gpu[01-02] Name=gpu Type=t4 File=/dev/nvidia2 Cores=32-63\n` +
			`NodeName=gpu[01-02] Name=mps Count=100 File=/dev/nvidia1\n` +
			`NodeName=gpu03 AutoDetect=off Name=gpu Type=3g.40gb ` +
			`MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22\n` +
			`NodeName=gpu03 AutoDetect=off Name=gpu Type=3g.40gb ` +
			`MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31\n",
			"slurm_conf": ["GresTypes=gpu,mps", "TaskPlugin=task/cgroup", "NodeName=gpu03 Gres=gpu:3g.40gb:2",
				"NodeName=gpu[01-02] Gres=gpu:a100:2,gpu:t4:1,mps:100"],
			"cgroup_conf": "ConstrainDevices=yes\n",
			"notebooks": {
				"conf": "NodeName=nb01 Name=gpu Type=t4 File=/dev/nvidia0\nNodeName=nb01 Name=gpu Type=t4 File=/dev/nvidia1\n` +
			`NodeName=nb01 Name=shard Count=4 File=/dev/nvidia0\n",
				"gres_types": "gpu,shard", "gres": {"nb01": "gpu:t4:2,shard:4"}, "cgroup_conf": "ConstrainDevices=yes\n"
			}}`,
		"fit": `{
			"fits": true,
			"layouts": {
				"a2-4-partitions": {"hv01": ["PCIROOT(16)#PCI(0000)#PCI(0000)"], "hv02": ["PCIROOT(16)#PCI(0000)#PCI(0000)"]},
				"h100-80gb-hbm3-2-x-3g-40gb": {"hgx01": ["gpu0"], "hgx02": ["gpu0"]},
				"h100-80gb-hbm3-shared-by-mps": {"hgx01": ["gpu1"], "hgx02": ["gpu1"]}
			},
			"missing": "Missing: 2 more partitions of 3500 MiB, or one more NVIDIA A2. What binds: the number of partitions of 3500 MiB or more ` +
			`that GPUs have at most."
		}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyExample(t, vdiFleet, filepath.Join(examplesDir, "functions", name, "function.tf"))
			e.Apply()
			var outputs map[string]struct{ Value any }
			if err := json.Unmarshal([]byte(e.Ok("output", "-json")), &outputs); err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			for output, o := range outputs {
				got[output] = o.Value
			}
			var wanted map[string]any
			if err := json.Unmarshal([]byte(want), &wanted); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			e.WantNoChanges()
		})
	}
	wantFolders(t, "functions", "container_unit", "device_plugin_config", "dra_resources", "fit",
		"from_device_plugin_config", "from_mig_parted", "mig_parted_config", "slurm_gres")
}
