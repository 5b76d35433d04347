//go:build linux && cgo

package nvidia_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A DRA driver with dynamic MIG removes instances that it did not make; without it it is a
// consumer, as is a kubelet inside of another program.
func TestWhoElseManagesGPUs(t *testing.T) {
	plugin := []string{"/usr/bin/gpu-kubelet-plugin"}
	for name, test := range map[string]struct {
		run  fakenvml.Proc
		unit string
		want []gpu.Controller
	}{
		"DRA": {
			run: fakenvml.Proc{Args: plugin, Env: []string{"NODE_NAME=a"}}, want: []gpu.Controller{
				{Name: "gpu-kubelet-plugin", Role: gpu.ConsumerController},
			},
		},
		"DRA, dynamic MIG": {
			run:  fakenvml.Proc{Args: plugin, Env: []string{"FEATURE_GATES=TimeSlicingSettings=true,DynamicMIG=true"}},
			want: []gpu.Controller{{Name: "gpu-kubelet-plugin", Role: gpu.LayoutController}},
		},
		"DRA, dynamic MIG off": {
			run:  fakenvml.Proc{Args: plugin, Env: []string{"FEATURE_GATES=DynamicMIG=false,MPSSupport=true"}},
			want: []gpu.Controller{{Name: "gpu-kubelet-plugin", Role: gpu.ConsumerController}},
		},
		"DRA, dynamic MIG by option": {
			run:  fakenvml.Proc{Args: append(plugin, "--feature-gates", "DynamicMIG=true")},
			want: []gpu.Controller{{Name: "gpu-kubelet-plugin", Role: gpu.LayoutController}},
		},
		"DRA, dynamic MIG by option=": {
			run:  fakenvml.Proc{Args: append(plugin, "--feature-gates=DynamicMIG=true")},
			want: []gpu.Controller{{Name: "gpu-kubelet-plugin", Role: gpu.LayoutController}},
		},
		"k3s": {
			run:  fakenvml.Proc{Args: []string{"/usr/local/bin/k3s-server"}},
			want: []gpu.Controller{{Name: "k3s-server", Role: gpu.ConsumerController}},
		},
		"rke2, by its unit": {unit: "rke2-agent.service", want: []gpu.Controller{{Name: "rke2-agent", Role: gpu.ConsumerController}}},
		"k3s, as ps shows it": {
			run:  fakenvml.Proc{Comm: "k3s-agent", Args: []string{"/usr/local/bin/k3s", "agent"}},
			want: []gpu.Controller{{Name: "k3s-agent", Role: gpu.ConsumerController}},
		},
		"rke2, by its process": {
			run:  fakenvml.Proc{Args: []string{"/usr/local/bin/rke2", "server"}},
			want: []gpu.Controller{{Name: "rke2", Role: gpu.ConsumerController}},
		},
		"a kubelet of its own": {
			run: fakenvml.Proc{Args: []string{"/usr/bin/kubelet"}}, want: []gpu.Controller{{Name: "kubelet", Role: gpu.ConsumerController}},
		},
		"DRA, all but dynamic MIG": {
			run:  fakenvml.Proc{Args: append(plugin, "--feature-gates=NoDynamicMIG=true,MPSSupport=true")},
			want: []gpu.Controller{{Name: "gpu-kubelet-plugin", Role: gpu.ConsumerController}},
		},
		"the GPU Operator's vGPU manager": {
			run:  fakenvml.Proc{Args: []string{"/usr/bin/nvidia-k8s-vgpu-dm"}},
			want: []gpu.Controller{{Name: "nvidia-k8s-vgpu-dm", Role: gpu.LayoutController}},
		},
		"the DRA driver of a GPUCluster": { // whose feature gates the operator writes to its environment
			run:  fakenvml.Proc{Args: plugin, Env: []string{"FEATURE_GATES=ConsumableShares=false,DynamicMIG=true"}},
			unit: "kubelet.service",
			want: []gpu.Controller{
				{Name: "gpu-kubelet-plugin", Role: gpu.LayoutController}, {Name: "kubelet", Role: gpu.ConsumerController},
			},
		},
		"KAI's MPS daemon": {
			run:  fakenvml.Proc{Args: []string{"/usr/bin/mpsd"}},
			want: []gpu.Controller{{Name: "mpsd (KAI)", Role: gpu.LayoutController}},
		},
		"KAI's fractions": {
			run:  fakenvml.Proc{Args: []string{"/fractiond"}},
			want: []gpu.Controller{{Name: "fractiond (KAI)", Role: gpu.LayoutController}},
		},
		"Bottlerocket, while it is at it": {
			run:  fakenvml.Proc{Args: []string{"/usr/bin/nvidia-migmanager", "apply-mig"}},
			want: []gpu.Controller{{Name: "nvidia-migmanager", Role: gpu.LayoutController}},
		},
		"GKE, while it is at it": {
			run:  fakenvml.Proc{Args: []string{"/usr/bin/partition_gpu"}},
			want: []gpu.Controller{{Name: "partition_gpu", Role: gpu.LayoutController}},
		},
		"nobody": {run: fakenvml.Proc{Args: []string{"/usr/bin/python3"}, Env: []string{"FEATURE_GATES=DynamicMIG=true"}}},
	} {
		t.Run(name, func(t *testing.T) {
			initial := gpu.Host{GPUs: []gpu.GPU{{ID: uuid(1), Model: "NVIDIA L40S"}}}
			if test.unit != "" {
				initial.Units = []string{test.unit}
			}
			f := newFixture(t, initial)
			if test.run.Args != nil {
				test.run.PID = 4242
				f.tree.Add(test.run)
			}
			if diff := cmp.Diff(test.want, inventory(t, f.backend).Controllers); diff != "" {
				t.Errorf("controllers (-want +got):\n%s", diff)
			}
		})
	}
}

// What divides GPUs at each boot is gone when anybody looks, and is found by what starts it.
func TestWhoDividesGPUsAtBoot(t *testing.T) {
	const gke = "etc/nvidia/gpu_config.json"
	for name, test := range map[string]struct {
		unit, state, file string
		want              []gpu.Controller
	}{
		"mig-parted": {
			unit: "nvidia-mig-manager.service", state: "enabled", want: []gpu.Controller{{Name: "nvidia-mig-manager", Role: gpu.LayoutController}},
		},
		"Bottlerocket": {
			unit: "nvidia-migmanager.service", state: "enabled", want: []gpu.Controller{{Name: "nvidia-migmanager", Role: gpu.LayoutController}},
		},
		"Bottlerocket, started by its image": {
			unit: "nvidia-migmanager.service", state: "exited", want: []gpu.Controller{{Name: "nvidia-migmanager", Role: gpu.LayoutController}},
		},
		"a consumer that has ended": {unit: "slurmd.service", state: "exited"},
		"disabled":                  {unit: "nvidia-mig-manager.service", state: "disabled"},
		"a consumer":                {unit: "slurmd.service", state: "enabled"},
		"GKE": {
			file: `{"GPUPartitionSize": "1g.5gb"}`, want: []gpu.Controller{{Name: "partition_gpu", Role: gpu.LayoutController}},
		},
		"GKE, whole GPUs":      {file: `{"GPUPartitionSize": "", "MaxTimeSharedClientsPerGPU": 2}`},
		"a file of somebody's": {file: `GPUPartitionSize=1g.5gb`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{{ID: uuid(1), Model: "NVIDIA L40S"}}})
			if test.unit != "" {
				f.write(filepath.Join(f.units, test.unit), test.state+"\n", 0o600)
			}
			if test.file != "" {
				f.put(gke, test.file)
			}
			if diff := cmp.Diff(test.want, inventory(t, f.backend).Controllers); diff != "" {
				t.Errorf("controllers (-want +got):\n%s", diff)
			}
		})
	}
}

// HAMi's device plugin has the name of NVIDIA's. What it does hangs on the mode of its node; where
// that cannot be read it may divide GPUs.
func TestHAMiByItsMode(t *testing.T) {
	nodes := func(entries string) string { return `{"nodeconfig": [` + entries + `]}` }
	const mig, core = `{"name": "a", "operatingmode": "mig", "filterdevices": {}}`, `{"name": "a", "operatingmode": "hami-core"}`
	divides, allocates := gpu.LayoutController, gpu.ConsumerController
	for name, test := range map[string]struct {
		config string
		args   []string
		env    []string
		want   gpu.ControllerRole // of HAMi, "" for NVIDIA's own
	}{
		"mig":                   {config: nodes(mig), want: divides},
		"hami-core":             {config: nodes(core), want: allocates},
		"mps":                   {config: nodes(`{"name": "a", "operatingmode": "mps"}`), want: allocates},
		"another node's":        {config: nodes(`{"name": "ab", "operatingmode": "mig"}`), want: allocates},
		"no mode is the core's": {config: nodes(`{"name": "a", "devicesplitcount": 4}`), want: allocates},
		"the last entry counts": {config: nodes(core + "," + mig), want: divides},
		"known by its variable": {
			config: nodes(mig), args: []string{"nvidia-device-plugin"}, env: []string{"HOOK_PATH=/usr/local"}, want: divides,
		},
		"no configuration":  {want: divides},
		"none that is read": {config: "nodeconfig: []", want: divides},
		"NVIDIA's": {
			config: nodes(mig), args: []string{"nvidia-device-plugin", "--mig-strategy=mixed"}, env: []string{"NVIDIA_MIG_MONITOR_DEVICES=all"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{{ID: uuid(1), Model: "NVIDIA L40S"}}})
			args := test.args
			if args == nil {
				args = []string{"nvidia-device-plugin", "--config-file=/device-config.yaml", "--disable-core-limit=false"}
			}
			f.tree.Add(fakenvml.Proc{PID: 4242, Args: args, Env: append(test.env, "NODE_NAME=a")})
			if test.config != "" {
				f.put("proc/4242/root/config/config.json", test.config)
			}
			want := gpu.Controller{Name: "nvidia-device-plugin (HAMi)", Role: test.want}
			if test.want == "" {
				want = gpu.Controller{Name: "nvidia-device-plugin", Role: gpu.ConsumerController}
			}
			if diff := cmp.Diff([]gpu.Controller{want}, inventory(t, f.backend).Controllers); diff != "" {
				t.Errorf("controllers (-want +got):\n%s", diff)
			}
		})
	}
}

// People know what is on their hosts: what they declare is looked for, and counts before what is known.
func TestDeclaredControllers(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{{ID: uuid(1), Model: "NVIDIA L40S"}}, Units: []string{"slurmd.service", "batch.service"}})
	f.write(filepath.Join(f.units, "divide-gpus.service"), "enabled\n", 0o600)
	f.tree.Add(fakenvml.Proc{PID: 4242, Args: []string{"/opt/acme/acme-gpu-divider-daemon"}})
	b := f.backendWith(map[string]gpu.ControllerRole{
		"acme-gpu-divider-daemon": gpu.LayoutController, "divide-gpus.service": gpu.LayoutController,
		"batch": gpu.ConsumerController, "slurmd": gpu.LayoutController, "elsewhere": gpu.LayoutController,
	})
	want := []gpu.Controller{
		{Name: "acme-gpu-divider-daemon", Role: gpu.LayoutController},
		{Name: "batch", Role: gpu.ConsumerController},
		{Name: "divide-gpus", Role: gpu.LayoutController},
		{Name: "slurmd", Role: gpu.LayoutController},
	}
	if diff := cmp.Diff(want, inventory(t, b).Controllers); diff != "" {
		t.Errorf("controllers (-want +got):\n%s", diff)
	}
}

// Boards reuse PCI ids of others: the driver's name is the GPU's.
func TestTheDriversNameWins(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{
		{ID: uuid(1), Model: "NVIDIA GB200", PCI: gpu.PCIID{Vendor: "10DE", Device: "2330"}},
		{ID: uuid(2), Model: "NVIDIA X1000", PCI: gpu.PCIID{Vendor: "10DE", Device: "2941"}},
	}})
	h := inventory(t, f.backend)
	if h.GPUs[0].Model != "NVIDIA GB200" || h.GPUs[1].Model != "NVIDIA X1000" {
		t.Errorf("the GPUs are %q and %q", h.GPUs[0].Model, h.GPUs[1].Model)
	}
}

// What is looked for, people can read.
func TestThePageHasEachProgram(t *testing.T) {
	page, err := os.ReadFile("../../../templates/guides/who-owns-what.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range nvidia.Programs() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not have %s", name)
		}
	}
}
