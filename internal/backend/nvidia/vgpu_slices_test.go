//go:build linux && cgo

package nvidia_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestVGPUsThatShareAnInstance has the driver's MIG time-sliced mode on for them, and for no others.
func TestVGPUsThatShareAnInstance(t *testing.T) {
	const alone, sharing, sliced = "H100-3-40C", "H100-3-20C", "H100-40C"
	host := func() gpu.Host {
		g := h100(t, 1)
		g.Address = "0000:41:00.0"
		typ := func(name string, gigabytes gpu.Bytes, most int, profile string) gpu.VGPUType {
			return gpu.VGPUType{Name: name, FrameBuffer: gigabytes * gib, Max: most, MaxPerVM: 1, MIGProfile: profile}
		}
		g.VGPU = &gpu.VGPU{Functions: 8, Types: []gpu.VGPUType{
			typ(alone, 40, 2, "3g.40gb"), typ(sharing, 20, 4, "3g.40gb"), typ(sliced, 40, 2, ""),
		}}
		return gpu.Host{GPUs: []gpu.GPU{g}}
	}
	tests := map[string]struct {
		supported bool
		typ       string
		fault     int // of nvmlDeviceSetVgpuCapabilities
		want      bool
		fails     backend.Code
	}{
		"one in each":                   {supported: true, typ: alone},
		"several in one":                {supported: true, typ: sharing, want: true},
		"on the GPU, by time slices":    {supported: true, typ: sliced},
		"a driver without the mode":     {typ: sharing},
		"a driver that switches it not": {supported: true, typ: sharing, fault: 3, fails: backend.NotSupported},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newVGPUFixture(t, host(), nil)
			f.machine.AllowMIGSlices(0, tt.supported)
			id, ctx := f.ids[0], t.Context()
			steps := []func() error{
				func() error { return f.backend.SetMIGMode(ctx, id, tt.typ != sliced, false) },
				func() error { return f.backend.SetVirtualFunctions(ctx, id, true) },
			}
			if tt.typ != sliced {
				steps = append(steps, func() error { return f.backend.CreateInstance(ctx, id, gpu.MIGPlacement{Profile: "3g.40gb"}) })
			}
			for i, step := range steps {
				if err := step(); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			if tt.fault != 0 {
				f.machine.Fail(fakenvml.Fault{Function: "nvmlDeviceSetVgpuCapabilities", Code: tt.fault})
			}
			err := f.backend.CreateVGPU(ctx, id, gpu.VGPUPlace{Type: tt.typ})
			if tt.fails != "" {
				wantCode(t, err, tt.fails, "nvmlDeviceSetVgpuCapabilities")
			} else if err != nil {
				t.Fatal(err)
			}
			if got := f.machine.GPU(0).MIGSliced; got != tt.want {
				t.Errorf("the mode is on: %t, want %t", got, tt.want)
			}
			now, err := f.backend.Inventory(ctx)
			if made := len(now.GPUs[0].VGPU.Instances); err != nil || (made == 1) != (tt.fails == "") {
				t.Errorf("there are %d vGPUs, error %v", made, err)
			}
		})
	}
}
