package rules_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// TestUndecidedOfWhatStoodBefore has two VMs with one GPU, as after a VM has failed over to a node
// where another one has the GPU at that place. Whichever resource is planned first, that is no
// error of a run which changes neither, and one of a run that brings it about.
func TestUndecidedOfWhatStoodBefore(t *testing.T) {
	device := func(vm string) change.Change {
		want := gpu.Want{
			Assignment: &gpu.Assignment{
				Kind: gpu.AssignDevice, VM: vm, VMID: "ID-" + vm, Host: "hv01", Device: &gpu.DeviceWant{Host: "hv01", GPUIDs: []string{gpu0}},
			},
		}
		return change.Change{Subject: vm, Token: "claim-" + vm, Want: want, Prior: want, Unchanged: true}
	}
	for _, order := range [][]string{{"one", "two"}, {"two", "one"}} {
		for _, brings := range []bool{false, true} {
			h := host("hv01", vm("one", gpu.VMOff), vm("two", gpu.VMOff))
			for i := range h.VMs {
				h.VMs[i].Devices = []gpu.DeviceAssignment{{ID: "D", GPU: gpu0}}
				claimVM(h, "vdi", h.VMs[i].Name, *device(h.VMs[i].Name).Want.Assignment)
			}
			h.GPUs[0].Dismounted, h.GPUs[0].Status, h.GPUs[0].Partitionable = true, gpu.Assigned, nil
			w := world(h)
			var errors []rules.Finding
			for _, name := range order {
				p := device(name)
				if brings && name == order[0] {
					p.Prior, p.Unchanged = gpu.Want{}, false
				}
				w.Others.Put(p.Token, p)
				errors = append(errors, slices.Concat(rules.Check(w, p, nil), rules.Decided(w, p, nil, nil))...)
			}
			errors = slices.DeleteFunc(errors, func(f rules.Finding) bool { return f.Level != rules.Error })
			if brings != (len(errors) > 0) {
				t.Errorf("%v, brought about %t: %+v", order, brings, errors)
			}
		}
	}
}

// TestUndecidedIsToldInOrder has several VMs want GPUs that another resource keeps, which is planned
// last: what hung on it is told in the order of their names, every time.
func TestUndecidedIsToldInOrder(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	plan := func(vm string, gpus ...string) change.Change {
		return change.Change{Subject: vm, Token: "claim-" + vm, Want: gpu.Want{Assignment: &gpu.Assignment{
			Kind: gpu.AssignDevice, VM: vm, VMID: "ID-" + vm, Host: "hv01", Device: &gpu.DeviceWant{Host: "hv01", GPUIDs: gpus},
		}}}
	}
	for range 8 {
		h := host("hv01", vm("keeps", gpu.VMOff))
		one := h.GPUs[0]
		one.Dismounted, one.Status, one.Partitionable = true, gpu.Assigned, nil
		h.GPUs = nil
		for _, name := range names {
			one.ID = name
			h.GPUs, h.VMs = append(h.GPUs, one), append(h.VMs, vm(name, gpu.VMOff))
			h.VMs[0].Devices = append(h.VMs[0].Devices, gpu.DeviceAssignment{ID: "D" + name, GPU: name})
		}
		claimVM(h, "vdi", "keeps", *plan("keeps", names...).Want.Assignment)
		w := world(h)
		for _, name := range slices.Backward(names) {
			p := plan(name, name)
			rules.Check(w, p, nil)
			w.Others.Put(p.Token, p)
		}
		last := plan("keeps", names...)
		last.Prior, last.Unchanged = last.Want, true
		w.Others.Put(last.Token, last)
		var told []string
		for _, f := range rules.Decided(w, last, nil, nil) {
			told = append(told, f.Other)
		}
		if told = slices.Compact(told); !slices.Equal(told, names) {
			t.Fatalf("told of %v, want %v", told, names)
		}
	}
}
