package conformance

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// VMsFixture is a host that runs VMs, of Hyper-V or of Linux with libvirt.
type VMsFixture interface {
	VMs() backend.VMs
	// Deaf has the guest of a VM hear no request to shut down.
	Deaf(t *testing.T, vmID string)
}

// VMsFactory makes a fixture of a host, which has VMs that are off, run and are saved. Every scenario has its own.
type VMsFactory func(t *testing.T, initial gpu.Host) VMsFixture

// vmsOn is a host of a platform, and what its VMs can be given.
type vmsOn struct {
	host   gpu.Host
	device gpu.DeviceAssignment
	// before makes the device.
	before func(context.Context, backend.VMs) error
}

// platforms are Hyper-V with a dismounted GPU, and Linux with a vGPU.
func platforms() map[gpu.Platform]vmsOn {
	states := func(h gpu.Host) gpu.Host {
		h.VMs = nil
		for id, state := range map[string]gpu.VMState{alpha: gpu.VMOff, beta: gpu.VMRunning, gamma: gpu.VMSaved} {
			vm := virtualMachine(id, map[string]string{alpha: "alpha", beta: "beta", gamma: "gamma"}[id])
			if vm.State = state; h.Platform == gpu.Linux {
				vm = gpu.VM{ID: vm.ID, Name: vm.Name, State: vm.State}
			}
			h.VMs = append(h.VMs, vm)
		}
		slices.SortFunc(h.VMs, func(a, b gpu.VM) int { return len(a.Name) - len(b.Name) })
		return h
	}
	place := gpu.VGPUPlace{Type: l40s12Q, Function: 0}
	return map[gpu.Platform]vmsOn{
		gpu.HyperV: {
			host: states(standardHost()), device: gpu.DeviceAssignment{GPU: gpuC},
			before: func(context.Context, backend.VMs) error { return nil },
		},
		gpu.Linux: {
			host: states(standardVGPUHost()), device: gpu.DeviceAssignment{ID: gpu.AliasPrefix + "0123456789ab", GPU: l40sV, VGPU: &place},
			before: func(ctx context.Context, on backend.VMs) error {
				host, ok := on.(backend.VGPU)
				if !ok {
					return &backend.Error{Code: backend.NotSupported, Detail: "it makes no vGPUs"}
				}
				if err := host.SetVirtualFunctions(ctx, l40sV, true); err != nil {
					return err
				}
				return host.CreateVGPU(ctx, l40sV, place)
			},
		},
	}
}

// vmsBench is a scenario that runs.
type vmsBench struct {
	*testing.T
	VMsFixture
	device gpu.DeviceAssignment
}

func (b *vmsBench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *vmsBench) refuses(err error, codes ...backend.Code) {
	b.Helper()
	if !backend.Is(err, codes...) {
		b.Errorf("the error is %v, want one of the codes %v", err, codes)
	}
}

// is asserts how a VM is, by itself and in the inventory, and how many devices it has.
func (b *vmsBench) is(id string, state gpu.VMState, devices int) {
	b.Helper()
	vm, err := b.VMs().ReadVM(b.Context(), id)
	b.must(err)
	host, err := b.VMs().Inventory(b.Context())
	b.must(err)
	listed, _ := host.VM(id)
	for _, vm := range []*gpu.VM{&vm, listed} {
		if vm == nil || vm.State != state || len(vm.Devices) != devices {
			b.Errorf("the VM is %+v, want it %s with %d devices", vm, state, devices)
		}
	}
}

func (b *vmsBench) give(id string) string {
	b.Helper()
	device, err := b.VMs().AddDevice(b.Context(), id, b.device)
	b.must(err)
	return device
}

// RunVMs runs what hosts of all platforms do with VMs on the fixtures of one.
func RunVMs(t *testing.T, platform gpu.Platform, factory VMsFactory) {
	t.Helper()
	for name, scenario := range vmsScenarios {
		t.Run(name, func(t *testing.T) {
			on := platforms()[platform]
			b := &vmsBench{T: t, VMsFixture: factory(t, on.host), device: on.device}
			b.must(on.before(t.Context(), b.VMs()))
			scenario(b)
		})
	}
}

var vmsScenarios = map[string]func(*vmsBench){
	"a VM that is off is given a device, which is taken from it again": func(b *vmsBench) {
		id := b.give(alpha)
		b.is(alpha, gpu.VMOff, 1)
		vm, err := b.VMs().ReadVM(b.Context(), alpha)
		b.must(err)
		if d := vm.Devices[0]; d.ID != id || d.GPU != b.device.GPU || (d.VGPU == nil) != (b.device.VGPU == nil) {
			b.Errorf("it has %+v, want %s of %+v", d, id, b.device)
		}
		for range 2 { // twice is once
			b.must(b.VMs().RemoveDevice(b.Context(), alpha, id))
		}
		b.is(alpha, gpu.VMOff, 0)
	},
	"a VM starts and stops with its device": func(b *vmsBench) {
		id := b.give(alpha)
		for range 2 {
			b.must(b.VMs().StartVM(b.Context(), alpha))
		}
		b.is(alpha, gpu.VMRunning, 1)
		b.refuses(b.VMs().RemoveDevice(b.Context(), alpha, id), backend.InvalidState)
		for range 2 {
			b.must(b.VMs().ShutDownVM(b.Context(), alpha, false))
		}
		b.is(alpha, gpu.VMOff, 1)
	},
	"no device is given to a VM that runs or is saved": func(b *vmsBench) {
		for id, state := range map[string]gpu.VMState{beta: gpu.VMRunning, gamma: gpu.VMSaved} {
			_, err := b.VMs().AddDevice(b.Context(), id, b.device)
			b.refuses(err, backend.InvalidState)
			b.is(id, state, 0)
		}
	},
	"a guest that is deaf runs into the timeout, and its power is cut": func(b *vmsBench) {
		b.Deaf(b.T, beta)
		ctx, cancel := context.WithTimeout(b.Context(), 300*time.Millisecond)
		defer cancel()
		b.refuses(b.VMs().ShutDownVM(ctx, beta, false), backend.Timeout)
		for range 2 {
			b.must(b.VMs().TurnOffVM(b.Context(), beta))
		}
		b.is(beta, gpu.VMOff, 0)
		b.must(b.VMs().StartVM(b.Context(), beta))
		b.is(beta, gpu.VMRunning, 0)
	},
	"a VM that is saved has no power to cut": func(b *vmsBench) {
		b.refuses(b.VMs().TurnOffVM(b.Context(), gamma), backend.InvalidState)
		b.is(gamma, gpu.VMSaved, 0)
	},
	"a VM that is not there is not found": func(b *vmsBench) {
		_, readErr := b.VMs().ReadVM(b.Context(), noVM)
		_, addErr := b.VMs().AddDevice(b.Context(), noVM, b.device)
		for _, err := range []error{
			readErr, addErr, b.VMs().RemoveDevice(b.Context(), noVM, "x"), b.VMs().ShutDownVM(b.Context(), noVM, false),
			b.VMs().TurnOffVM(b.Context(), noVM), b.VMs().StartVM(b.Context(), noVM),
		} {
			b.refuses(err, backend.NotFound)
		}
	},
	"a device that is not there is not given": func(b *vmsBench) {
		gone := b.device
		gone.GPU = noGPU
		_, err := b.VMs().AddDevice(b.Context(), alpha, gone)
		b.refuses(err, backend.NotFound)
		b.is(alpha, gpu.VMOff, 0)
	},
}
