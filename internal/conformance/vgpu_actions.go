package conformance

import (
	"context"
	"errors"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What is done to a host through its backend.

func setFunctions(gpuID string, on bool) vgpuAction {
	return func(ctx context.Context, b *vgpuBench) error { return b.VGPU().SetVirtualFunctions(ctx, gpuID, on) }
}

func setMixed(gpuID string, on bool) vgpuAction {
	return func(ctx context.Context, b *vgpuBench) error { return b.VGPU().SetHeterogeneous(ctx, gpuID, on) }
}

func makeVGPU(gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(ctx context.Context, b *vgpuBench) error { return b.VGPU().CreateVGPU(ctx, gpuID, p) }
}

func removeVGPU(gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(ctx context.Context, b *vgpuBench) error { return b.VGPU().RemoveVGPU(ctx, gpuID, p) }
}

// onMIG is what is done to MIG on the same host, which has both.
func onMIG(do func(context.Context, backend.MIG) error) vgpuAction {
	return func(ctx context.Context, b *vgpuBench) error {
		host, both := b.VGPU().(backend.MIG)
		if !both {
			return errors.New("the host has no MIG")
		}
		return do(ctx, host)
	}
}

func setMIG(gpuID string, on bool) vgpuAction {
	return onMIG(func(ctx context.Context, host backend.MIG) error { return host.SetMIGMode(ctx, gpuID, on, false) })
}

func divide(gpuID, profile string, start int) vgpuAction {
	return onMIG(func(ctx context.Context, host backend.MIG) error {
		return host.CreateInstance(ctx, gpuID, gpu.MIGPlacement{Profile: profile, Start: start})
	})
}

func unite(gpuID, profile string, start int) vgpuAction {
	return onMIG(func(ctx context.Context, host backend.MIG) error {
		return host.DestroyInstance(ctx, gpuID, gpu.MIGPlacement{Profile: profile, Start: start})
	})
}

// What others do on it.

func computes(process, gpuID string) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.StartProcess(b.t, gpuID, process)
		return nil
	}
}

func holds(vm, gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.Hold(b.t, gpuID, p, vm)
		return nil
	}
}

func releases(gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.Release(b.t, gpuID, p)
		return nil
	}
}

func defines(vm string, state gpu.VMState, gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.Define(b.t, gpuID, p, vm, state)
		return nil
	}
}

func takes(driver, gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.Take(b.t, gpuID, p, driver)
		return nil
	}
}

func undefines(vm string) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.Undefine(b.t, vm)
		return nil
	}
}

func somebodyMakesVGPU(gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.CreateOutside(b.t, gpuID, p)
		return nil
	}
}

func somebodyRemovesVGPU(gpuID string, p gpu.VGPUPlace) vgpuAction {
	return func(_ context.Context, b *vgpuBench) error {
		b.RemoveOutside(b.t, gpuID, p)
		return nil
	}
}

func rebootVGPU(_ context.Context, b *vgpuBench) error {
	b.Reboot(b.t)
	return nil
}

func lookAtVGPU(context.Context, *vgpuBench) error { return nil }

// onVF is a place on a virtual function, and mdev one of a mediated device.
func onVF(typ string, function int) gpu.VGPUPlace {
	return gpu.VGPUPlace{Type: typ, Function: function}
}

func mdev(typ string, function int, uuid string) gpu.VGPUPlace {
	return gpu.VGPUPlace{Type: typ, Function: function, UUID: uuid}
}
