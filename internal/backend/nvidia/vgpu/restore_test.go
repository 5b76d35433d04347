package vgpu_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu/vgputest"
)

func TestRestoreOrder(t *testing.T) {
	k := vgputest.New(t, h200())
	h := k.Host()
	apply(t, k, h, vgpu.Layout{Types: map[string]int{"H200X-3-71C": 1, "H200X-1-18C": 1}})
	saved := vgpu.Save(read(t, h))
	k.Reboot()
	if err := k.SetMIGMode(address, false); err != nil { // Hopper loses the mode too
		t.Fatal(err)
	}
	steps, err := vgpu.Restore(read(t, h), saved)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"turn MIG mode on", "turn the virtual functions on", "make 1 1g.18gb, 1 3g.71gb the MIG instances",
		"make vGPU H200X-3-71C on virtual function 0", "make vGPU H200X-1-18C on virtual function 1",
	}
	if d := cmp.Diff(want, texts(steps)); d != "" {
		t.Error(d)
	}
}

// Virtual machines name a mediated device by its UUID and a vGPU of vendor-specific VFIO
// by its function, so each comes back as what it was.
func TestRestoreKeepsPlaceAndUUID(t *testing.T) {
	for _, card := range []vgputest.Card{l40s(), a40()} {
		k, h := ready(t, card)
		create(t, h, vgpu.Spec{Function: 5, UUID: someUUID, Type: card.Types[1].ID})
		saved := vgpu.Save(read(t, h))
		k.Reboot()
		steps, err := vgpu.Restore(read(t, h), saved)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Apply(h, steps); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(saved, vgpu.Save(read(t, h))); d != "" {
			t.Error(d)
		}
	}
}

// What a GPU had before it was configured is restored the same way.
func TestRestoreToBefore(t *testing.T) {
	k := vgputest.New(t, h200())
	h := k.Host()
	before := vgpu.Save(read(t, h))
	apply(t, k, h, vgpu.Layout{Type: "H200X-3-71C"})
	k.HoldVM(9, "0000:41:00.4", "db")
	_, err := vgpu.Restore(read(t, h), before)
	refused(t, err, backend.InUse, "VM db")
	k.End(9)
	steps, err := vgpu.Restore(read(t, h), before)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Apply(h, steps); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, vgpu.Save(read(t, h))); d != "" {
		t.Error(d)
	}
}

func TestRestoreRefusals(t *testing.T) {
	full := vgpu.Saved{GPU: address, VFs: true, VGPUs: []vgpu.SavedVGPU{{Type: "NVIDIA L40S-24Q"}}}
	tests := map[string]struct {
		card  vgputest.Card
		saved vgpu.Saved
		code  backend.Code
		says  []string
	}{
		"another GPU":     {l40s(), vgpu.Saved{GPU: address, UUID: "GPU-old"}, backend.NotFound, []string{"GPU-old", "GPU-00000000", "replaced"}},
		"another model":   {a40(), full, backend.NotSupported, []string{"L40S-24Q", "A40-1Q"}},
		"no vGPU Manager": {vgputest.Card{Address: address, Shape: vgpu.ShapeNone}, full, backend.NotSupported, []string{"1 vGPUs", "vGPU Manager"}},
		"no MIG":          {l40s(), vgpu.Saved{GPU: address, MIG: true}, backend.NotSupported, []string{"MIG"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := vgpu.Restore(read(t, vgputest.New(t, tt.card).Host()), tt.saved)
			refused(t, err, tt.code, tt.says...)
		})
	}
}
