package vgpu_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	fakevgpu "github.com/gpufleet/terraform-provider-gpu/internal/fake/vgpu"
)

func offers(g vgpu.GPU, index int) []string {
	f, ok := g.Function(index)
	if !ok {
		return []string{"no function"}
	}
	names := []string{}
	for _, o := range f.Creatable {
		names = append(names, o.Type.ShortName())
	}
	return names
}

func TestShapes(t *testing.T) {
	none := fakevgpu.Card{Address: address, Shape: vgpu.ShapeNone}
	tests := map[string]struct {
		card   fakevgpu.Card
		off    vgpu.Shape // before the virtual functions are on
		on     vgpu.Shape
		first  string // address of the first function
		offers []string
	}{
		"vendor-specific VFIO": {
			l40s(), vgpu.ShapeOff, vgpu.ShapeVFIO, "0000:41:00.4", []string{"L40S-2B", "L40S-2Q", "L40S-12Q", "L40S-24Q", "L40S-48Q"},
		},
		"mdev on functions": {a40(), vgpu.ShapeOff, vgpu.ShapeMdevVF, "0000:41:00.4", []string{"A40-1Q", "A40-4Q", "A40-24Q"}},
		"legacy mdev":       {p40(), vgpu.ShapeMdev, vgpu.ShapeMdev, address, []string{"P40-1Q", "P40-4Q"}},
		"no vGPU Manager":   {none, vgpu.ShapeNone, vgpu.ShapeNone, "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := host{fakevgpu.New(t, tt.card).Host()}
			g := read(t, h)
			if g.Shape != tt.off {
				t.Errorf("the shape is %q at first, wanted %q", g.Shape, tt.off)
			}
			if g.SRIOV != nil {
				if err := h.enableVFs(t); err != nil {
					t.Fatal(err)
				}
				g = read(t, h)
			}
			if g.Shape != tt.on {
				t.Fatalf("the shape is %q, wanted %q", g.Shape, tt.on)
			}
			if tt.first == "" {
				if len(g.Functions) > 0 {
					t.Errorf("found functions %v", g.Functions)
				}
				return
			}
			if g.Functions[0].Address != tt.first {
				t.Errorf("the first function is %s, wanted %s", g.Functions[0].Address, tt.first)
			}
			if d := cmp.Diff(tt.offers, offers(g, g.Functions[0].Index)); d != "" {
				t.Error(d)
			}
			if g.SRIOV != nil && (len(g.Functions) != tt.card.VFs || g.Functions[10].Address != "0000:41:01.6") {
				t.Errorf("found %d functions, the eleventh %s", len(g.Functions), g.Functions[10].Address)
			}
		})
	}
}

func TestBothFileFormats(t *testing.T) {
	for _, nameFirst := range []bool{false, true} {
		c := l40s()
		c.NameFirst = nameFirst
		k, _ := ready(t, c)
		g := read(t, host{k.Host(func(o *vgpu.Options) { o.NVML = nil })})
		want := []vgpu.Type{
			{ID: 1145, Name: "NVIDIA L40S-2B", FrameBuffer: 2 * gib},
			{ID: 1148, Name: "NVIDIA L40S-2Q", FrameBuffer: 2 * gib},
			{ID: 1153, Name: "NVIDIA L40S-12Q", FrameBuffer: 12 * gib},
			{ID: 1155, Name: "NVIDIA L40S-24Q", FrameBuffer: 24 * gib},
			{ID: 1159, Name: "NVIDIA L40S-48Q", FrameBuffer: 48 * gib},
		}
		if d := cmp.Diff(want, g.Types); d != "" {
			t.Errorf("name first %t: %s", nameFirst, d)
		}
	}
}

func TestCreatableTypesText(t *testing.T) {
	tests := map[string]struct {
		text string
		want map[int]string
		err  string
	}{
		"empty":       {"", map[int]string{}, ""},
		"header only": {"ID    : vGPU Name\n", map[int]string{}, ""},
		"id first": {
			"ID    : vGPU Name\n5     : GRID M60-0Q\n\n1148  : NVIDIA L40S-2Q\n", map[int]string{5: "GRID M60-0Q", 1148: "NVIDIA L40S-2Q"}, "",
		},
		"name first": {
			"vGPU Name   ID\nNVIDIA A40-1Q 557\nNVIDIA L40S-48Q          1159\n", map[int]string{557: "NVIDIA A40-1Q", 1159: "NVIDIA L40S-48Q"}, "",
		},
		"with a colon": {"NVIDIA A40-1Q : 557\n", map[int]string{557: "NVIDIA A40-1Q"}, ""},
		"spaces":       {"1500 : NVIDIA RTX Pro 6000 Blackwell DC-1-24Q\n", map[int]string{1500: "NVIDIA RTX Pro 6000 Blackwell DC-1-24Q"}, ""},
		"garbage":      {"1148  : NVIDIA L40S-2Q\n???\n", nil, `"???"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k, h := ready(t, l40s())
			path := k.Device("0000:41:00.4", "nvidia", "creatable_vgpu_types")
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			g, err := h.Read(t.Context(), address)
			if tt.err != "" {
				refused(t, err, backend.Failed, path, tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[int]string{}
			for _, o := range g.Functions[0].Creatable {
				got[o.Type.ID] = o.Type.Name
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A function with a vGPU offers nothing, and what is left of the GPU decides what its
// siblings offer; names come from the list that does not change.
func TestSiblingsShrinkAndNamesStay(t *testing.T) {
	_, h := ready(t, l40s())
	create(t, h, vgpu.Spec{Function: 0, Type: 1155}, vgpu.Spec{Function: 3, Type: 1155})
	g := read(t, h)
	for _, index := range []int{0, 1, 3} {
		if got := offers(g, index); len(got) > 0 {
			t.Errorf("function %d of a full GPU offers %v", index, got)
		}
	}
	if d := cmp.Diff(map[int]string{0: "L40S-24Q", 3: "L40S-24Q"}, types(g)); d != "" {
		t.Error(d)
	}
	if _, ok := g.Find("L40S-2Q"); !ok {
		t.Error("a type that is not creatable now is not known")
	}
	f, _ := g.Function(3)
	if f.VGPUs[0].Placement == nil || *f.VGPUs[0].Placement != 6 || f.VGPUs[0].Instance != nil {
		t.Errorf("placement %v, MIG instance %v; the driver answers ENXIO for the latter", f.VGPUs[0].Placement, f.VGPUs[0].Instance)
	}
}

func TestFullGPUWithoutNVMLHasANamelessType(t *testing.T) {
	k, h := ready(t, l40s())
	create(t, h, vgpu.Spec{Function: 0, Type: 1159})
	g := read(t, host{k.Host(func(o *vgpu.Options) { o.NVML = nil })})
	if d := cmp.Diff(map[int]string{0: "type 1159"}, types(g)); d != "" {
		t.Error(d)
	}
}

// The same number is another type on another card.
func TestTypeIDsBelongToAModel(t *testing.T) {
	other := l40s()
	other.Address, other.Types = second, []vgpu.Type{typ(1148, "NVIDIA L4-24Q", 24*gib, 1)}
	h := host{fakevgpu.New(t, l40s(), other).Host()}
	for at, want := range map[string]string{address: "L40S-2Q", second: "L4-24Q"} {
		if err := h.at(t, at, func(g *vgpu.GPU) error { return h.EnableVFs(t.Context(), g) }); err != nil {
			t.Fatal(err)
		}
		if err := h.at(t, at, func(g *vgpu.GPU) error { return h.Create(g, vgpu.Spec{Type: 1148}) }); err != nil {
			t.Fatal(err)
		}
		g, err := h.Read(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if got := types(g)[0]; got != want {
			t.Errorf("%s has a %s, wanted %s", at, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	_, h := ready(t, l40s())
	g, err := h.Read(t.Context(), "00000000:41:00.0") // as NVML writes it
	if err != nil || g.Address != address {
		t.Errorf("read %q, %v", g.Address, err)
	}
	for in, want := range map[string]string{
		"00000000:1A:00.0": "0000:1a:00.0", "10000:01:00.7": "10000:01:00.7", "0000:1a:00.8": "", "41:00.0": "", "../../etc": "",
	} {
		if got, err := vgpu.Address(in); got != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q, %v; wanted %q", in, got, err, want)
		}
	}
	if _, err := h.Read(t.Context(), "0000:41:00.4"); err == nil || !strings.Contains(err.Error(), "virtual function of "+address) {
		t.Errorf("reading a virtual function: %v", err)
	}
	if _, err := h.Read(t.Context(), "0000:ff:00.0"); err == nil || !strings.Contains(err.Error(), "0000:ff:00.0") {
		t.Errorf("reading what is not there: %v", err)
	}
}

func TestHolders(t *testing.T) {
	k, h := ready(t, a40())
	create(t, h, vgpu.Spec{Function: 0, UUID: someUUID, Type: 560})
	k.HoldVM(4242, someUUID, "web,01")
	k.Hold(77, "/dev/vfio/devices/vfio"+fakevgpu.Group("0000:41:00.5"), "cloud-hypervisor", "--api-socket", "x")
	k.Hold(78, "/dev/vfio/vfio", "other")
	g := read(t, h)
	want := []vgpu.Holder{{PID: 4242, Command: "qemu-system-x86_64", VM: "web,01"}}
	if d := cmp.Diff(want, g.Functions[0].VGPUs[0].Holders); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]vgpu.Holder{{PID: 77, Command: "cloud-hypervisor"}}, g.Functions[1].Holders); d != "" {
		t.Error(d)
	}
	if len(g.Functions[2].Holders) > 0 || g.HoldersHidden {
		t.Errorf("held by %v, hidden %t", g.Functions[2].Holders, g.HoldersHidden)
	}
	k.End(4242)
	if held := read(t, h).Functions[0].VGPUs[0].Holders; len(held) > 0 {
		t.Errorf("still held by %v", held)
	}
}
