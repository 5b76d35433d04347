package vgpu_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	fakevgpu "github.com/gpufleet/terraform-provider-gpu/internal/fake/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	address  = "0000:41:00.0"
	second   = "0000:81:00.0"
	someUUID = "844d691c-a9d8-4845-b288-b81b99b88ae6"
)

const gib = 1024 * gpu.MiB

func typ(id int, name string, memory gpu.Bytes, most int) vgpu.Type {
	return vgpu.Type{ID: id, Name: name, FrameBuffer: memory, Max: most}
}

// l40s has vendor-specific VFIO.
func l40s() fakevgpu.Card {
	return fakevgpu.Card{
		Address: address, Shape: vgpu.ShapeVFIO, VFs: 16, Memory: 48 * gib, Heterogeneous: true,
		Types: []vgpu.Type{
			typ(1145, "NVIDIA L40S-2B", 2*gib, 24), typ(1148, "NVIDIA L40S-2Q", 2*gib, 24),
			typ(1153, "NVIDIA L40S-12Q", 12*gib, 4), typ(1155, "NVIDIA L40S-24Q", 24*gib, 2),
			typ(1159, "NVIDIA L40S-48Q", 48*gib, 1),
		},
	}
}

// a40 has mediated devices on virtual functions.
func a40() fakevgpu.Card {
	return fakevgpu.Card{
		Address: address, Shape: vgpu.ShapeMdevVF, VFs: 12, Memory: 48 * gib,
		Types: []vgpu.Type{typ(557, "NVIDIA A40-1Q", gib, 32), typ(560, "NVIDIA A40-4Q", 4*gib, 12), typ(565, "NVIDIA A40-24Q", 24*gib, 2)},
	}
}

// p40 has mediated devices on the GPU itself.
func p40() fakevgpu.Card {
	return fakevgpu.Card{
		Address: address, Shape: vgpu.ShapeMdev, Memory: 24 * gib,
		Types: []vgpu.Type{typ(46, "GRID P40-1Q", gib, 24), typ(49, "GRID P40-4Q", 4*gib, 6)},
	}
}

// h200 has MIG.
func h200() fakevgpu.Card {
	one, three := typ(1414, "NVIDIA H200X-1-18C", 18*gib, 7), typ(1418, "NVIDIA H200X-3-71C", 71*gib, 2)
	one.Instance, three.Instance = "1g.18gb", "3g.71gb"
	return fakevgpu.Card{
		Address: address, Shape: vgpu.ShapeVFIO, VFs: 16, Memory: 141 * gib, MIG: true, Heterogeneous: true,
		Types: []vgpu.Type{one, three, typ(1424, "NVIDIA H200X-35C", 35*gib, 4), typ(1428, "NVIDIA H200X-141C", 141*gib, 1)},
	}
}

// host reads the GPU before each change of it, as the backend does.
type host struct{ *vgpu.Host }

func (h host) on(t testing.TB, change func(*vgpu.GPU) error) error { return h.at(t, address, change) }

func (h host) at(t testing.TB, address string, change func(*vgpu.GPU) error) error {
	t.Helper()
	g, err := h.Read(t.Context(), address)
	if err != nil {
		return err
	}
	return change(&g)
}

func (h host) enableVFs(t testing.TB) error {
	return h.on(t, func(g *vgpu.GPU) error { return h.EnableVFs(t.Context(), g) })
}

func (h host) disableVFs(t testing.TB) error {
	return h.on(t, func(g *vgpu.GPU) error { return h.DisableVFs(t.Context(), g) })
}

func (h host) setHeterogeneous(t testing.TB, on bool) error {
	return h.on(t, func(g *vgpu.GPU) error { return h.SetHeterogeneous(t.Context(), g, on) })
}

func (h host) create(t testing.TB, s vgpu.Spec) error {
	return h.on(t, func(g *vgpu.GPU) error { return h.Create(g, s) })
}

func (h host) remove(t testing.TB, s vgpu.Spec) error {
	return h.on(t, func(g *vgpu.GPU) error { return h.Remove(t.Context(), g, s) })
}

func read(t testing.TB, h host) vgpu.GPU {
	t.Helper()
	g, err := h.Read(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ready is a host of one card with its virtual functions on.
func ready(t *testing.T, c fakevgpu.Card) (*fakevgpu.Kernel, host) {
	t.Helper()
	k := fakevgpu.New(t, c)
	h := host{k.Host()}
	if err := h.enableVFs(t); err != nil {
		t.Fatal(err)
	}
	return k, h
}

func create(t testing.TB, h host, specs ...vgpu.Spec) {
	t.Helper()
	for _, s := range specs {
		if err := h.create(t, s); err != nil {
			t.Fatal(err)
		}
	}
}

// refused checks an error's code and that its text says what people need.
func refused(t testing.TB, err error, code backend.Code, says ...string) {
	t.Helper()
	var be *backend.Error
	if !errors.As(err, &be) {
		t.Fatalf("got %v, wanted a refusal", err)
	}
	if be.Code != code {
		t.Errorf("got code %s, wanted %s: %v", be.Code, code, err)
	}
	for _, s := range append(says, address) {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not say %q: %v", s, err)
		}
	}
}

// types are the names of what a GPU has, by function.
func types(g vgpu.GPU) map[int]string {
	all := map[int]string{}
	for _, f := range g.Functions {
		var names []string
		for _, v := range f.VGPUs {
			names = append(names, v.Type.ShortName())
		}
		if len(names) > 0 {
			all[f.Index] = strings.Join(names, " ")
		}
	}
	return all
}
