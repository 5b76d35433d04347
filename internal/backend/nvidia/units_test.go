//go:build linux && cgo

package nvidia_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
