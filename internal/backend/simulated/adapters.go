package simulated

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// AddPartitionAdapter gives a VM one more adapter. Hyper-V itself takes any number.
func (h *Host) AddPartitionAdapter(ctx context.Context, vmID string, a gpu.PartitionAdapter) (string, error) {
	id := newGUID()
	err := h.do(ctx, call{op: OpAddPartitionAdapter, vm: vmID, gpu: a.PinnedGPU}, func(r *record) error {
		vm, err := r.vmThatIsOff(vmID)
		if err != nil {
			return err
		}
		return r.addAdapter(vm, id, a)
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

func (r *record) addAdapter(vm *gpu.VM, id string, a gpu.PartitionAdapter) error {
	if vm.Generation == 1 {
		return refuse(backend.InvalidParameter, "GPU partitions need a generation 2 virtual machine")
	}
	if err := r.policyGate(); err != nil {
		return err
	}
	if a.PinnedGPU != "" {
		g, _, err := r.partitionable(a.PinnedGPU)
		if err != nil {
			// WMI gets the path of an Msvm_PartitionableGpu, and there is none.
			return refuse(backend.InvalidParameter, "failed to add device 'GPU Partition': GPU %s cannot be partitioned on this host", a.PinnedGPU)
		}
		a.PinnedGPU = g.ID
	}
	if err := checkQuotas(a.Quotas); err != nil {
		return err
	}
	a.ID = id
	vm.PartitionAdapters = append(vm.PartitionAdapters, clone(a))
	return nil
}

// SetPartitionQuotas replaces an adapter's quotas.
func (h *Host) SetPartitionQuotas(ctx context.Context, vmID, adapterID string, q gpu.Quotas) error {
	return h.do(ctx, call{op: OpSetPartitionQuotas, vm: vmID}, func(r *record) error {
		vm, err := r.vm(vmID)
		if err != nil {
			return err
		}
		i := adapterIndex(vm, adapterID)
		if i < 0 {
			return refuse(backend.NotFound, "the VM has no GPU partition adapter %s", adapterID)
		}
		if vm.PartitionAdapters[i].Quotas.Equal(q) {
			return nil
		}
		if err := checkQuotas(q); err != nil {
			return err
		}
		if vm, err = r.vmThatIsOff(vmID); err != nil {
			return err
		}
		vm.PartitionAdapters[i].Quotas = clone(q)
		return nil
	})
}

// RemovePartitionAdapter takes an adapter from a VM.
func (h *Host) RemovePartitionAdapter(ctx context.Context, vmID, adapterID string) error {
	return h.do(ctx, call{op: OpRemovePartitionAdapter, vm: vmID}, func(r *record) error {
		vm, err := r.vm(vmID)
		if err != nil {
			return err
		}
		i := adapterIndex(vm, adapterID)
		if i < 0 {
			return nil
		}
		if vm, err = r.vmThatIsOff(vmID); err != nil {
			return err
		}
		vm.PartitionAdapters = slices.Delete(vm.PartitionAdapters, i, i+1)
		if len(vm.PartitionAdapters) == 0 {
			vm.PartitionAdapters = nil
		}
		return nil
	})
}

func adapterIndex(vm *gpu.VM, id string) int {
	return slices.IndexFunc(vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return gpu.SameID(a.ID, id) })
}

// checkQuotas checks what Hyper-V checks when it stores quotas. Whether a partition
// is large enough shows only when the VM starts.
func checkQuotas(q gpu.Quotas) error {
	resources := []struct {
		name  string
		quota gpu.Quota
	}{{"VRAM", q.VRAM}, {"encode", q.Encode}, {"decode", q.Decode}, {"compute", q.Compute}}
	for _, r := range resources {
		if above(r.quota.Min, r.quota.Optimal) || above(r.quota.Optimal, r.quota.Max) || above(r.quota.Min, r.quota.Max) {
			return refuse(backend.InvalidParameter, "the %s quotas must rise from minimum over optimal to maximum", r.name)
		}
	}
	for _, n := range []*uint64{q.VRAM.Min, q.VRAM.Optimal, q.VRAM.Max} {
		if n != nil && *n == noLimit {
			return refuse(backend.InvalidParameter, "a VRAM quota must be an amount of memory; only the other resources know \"no limit\"")
		}
	}
	return nil
}

func above(a, b *uint64) bool { return a != nil && b != nil && *a > *b }

// policyGate is the pair of registry values that forbid devices that the vendor has
// not certified for assignment. A real host lets certified ones pass; a snapshot does
// not tell which those are, so the simulator takes a value that is set at its word.
func (r *record) policyGate() error {
	secure, supported := r.Policies.RequireSecureDeviceAssignment, r.Policies.RequireSupportedDeviceAssignment
	if (secure != nil && *secure) || (supported != nil && *supported) {
		return refuse(backend.AccessDenied, "the device is not compliant with currently set group policy")
	}
	return nil
}

func (r *record) vm(id string) (*gpu.VM, error) {
	vm, ok := r.VM(id)
	if !ok {
		return nil, refuse(backend.NotFound, "the host has no such VM")
	}
	return vm, nil
}

// vmThatIsOff finds a VM whose hardware can be changed. One that is saved or paused
// is not off: its memory still knows the old hardware.
func (r *record) vmThatIsOff(id string) (*gpu.VM, error) {
	vm, err := r.vm(id)
	if err != nil {
		return nil, err
	}
	if vm.State != gpu.VMOff {
		return nil, refuse(backend.InvalidState, "the VM is %s and must be off (32775)", vm.State)
	}
	return vm, nil
}

// newGUID is a random GUID as Hyper-V prints it.
func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as its documentation says
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}
