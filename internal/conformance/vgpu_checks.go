package conformance

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func onTheVGPU(id string, look func(*testing.T, *gpu.VGPU)) vgpuCheck {
	return func(t *testing.T, b *vgpuBench) {
		t.Helper()
		g, ok := b.after.GPU(id)
		if !ok || g.VGPU == nil {
			t.Errorf("GPU %s is in the inventory: %t, without vGPUs", id, ok)
			return
		}
		look(t, g.VGPU)
	}
}

// hasVGPUs is the modes of a GPU and all of its vGPUs.
func hasVGPUs(gpuID string, functionsOn, heterogeneous bool, want ...gpu.VGPUPlace) vgpuCheck {
	return onTheVGPU(gpuID, func(t *testing.T, v *gpu.VGPU) {
		t.Helper()
		state := gpu.VGPUState{FunctionsOn: functionsOn, Heterogeneous: heterogeneous, Places: want}
		if diff := gocmp.Diff(state, v.State(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("GPU %s is otherwise (-want +got):\n%s", gpuID, diff)
		}
	})
}

// isHeldBy is who holds the vGPU of a place; "" is nobody.
func isHeldBy(vm, gpuID string, p gpu.VGPUPlace) vgpuCheck {
	return onTheVGPU(gpuID, func(t *testing.T, v *gpu.VGPU) {
		t.Helper()
		i := slices.IndexFunc(v.Instances, func(in gpu.VGPUInstance) bool { return in.VGPUPlace == p })
		if i < 0 {
			t.Errorf("GPU %s has no vGPU %+v", gpuID, p)
			return
		}
		if got := v.Instances[i].Holder; (vm == "") != (got == "") || !strings.Contains(got, vm) {
			t.Errorf("the vGPU %+v is held by %q, want %q", p, got, vm)
		}
	})
}

// isNamedBy is who names the vGPU of a place without having it, each with its state.
func isNamedBy(gpuID string, p gpu.VGPUPlace, who ...string) vgpuCheck {
	return onTheVGPU(gpuID, func(t *testing.T, v *gpu.VGPU) {
		t.Helper()
		for _, in := range v.Instances {
			if in.VGPUPlace == p {
				if diff := gocmp.Diff(who, in.NamedBy, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("the vGPU %+v is named otherwise (-want +got):\n%s", p, diff)
				}
				return
			}
		}
		t.Errorf("GPU %s has no vGPU %+v", gpuID, p)
	})
}

// hasTaken are the virtual functions of a GPU that take no vGPU, as people read it.
func hasTaken(gpuID string, want ...string) vgpuCheck {
	return onTheVGPU(gpuID, func(t *testing.T, v *gpu.VGPU) {
		t.Helper()
		var got []string
		for i := range v.Taken {
			got = append(got, v.Taken[i].String())
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("GPU %s has other functions that take no vGPU (-want +got):\n%s", gpuID, diff)
		}
	})
}

// offersVGPUs is what a GPU can do, as the standard host says.
func offersVGPUs(gpuID string) vgpuCheck {
	return onTheVGPU(gpuID, func(t *testing.T, v *gpu.VGPU) {
		t.Helper()
		host := standardVGPUHost()
		g, _ := host.GPU(gpuID)
		can := func(v *gpu.VGPU) gpu.VGPU {
			return gpu.VGPU{Functions: v.Functions, HeterogeneousSupported: v.HeterogeneousSupported, Types: v.Types}
		}
		byName := cmpopts.SortSlices(func(a, b gpu.VGPUType) bool { return a.Name < b.Name })
		if diff := gocmp.Diff(can(g.VGPU), can(v), byName); diff != "" {
			t.Errorf("GPU %s offers something else (-want +got):\n%s", gpuID, diff)
		}
	})
}

// hasNoVGPUFace is a GPU for which there is no vGPU driver.
func hasNoVGPUFace(gpuID string) vgpuCheck {
	return func(t *testing.T, b *vgpuBench) {
		t.Helper()
		if g, ok := b.after.GPU(gpuID); !ok || g.VGPU != nil {
			t.Errorf("GPU %s is in the inventory: %t, with vGPUs: %+v", gpuID, ok, g.VGPU)
		}
	}
}

// onlyVGPUsOf compares all other GPUs with what they were.
func onlyVGPUsOf(gpuIDs ...string) vgpuCheck {
	return func(t *testing.T, b *vgpuBench) {
		t.Helper()
		others := func(h gpu.Host) gpu.Host {
			h.GPUs = slices.DeleteFunc(slices.Clone(h.GPUs), func(g gpu.GPU) bool { return slices.Contains(gpuIDs, g.ID) })
			return h
		}
		sameHost(t, "something else changed", others(b.before), others(b.after))
	}
}

func noVGPUChanged(t *testing.T, b *vgpuBench) {
	t.Helper()
	sameHost(t, "the host changed", b.before, b.after)
}

// saneVGPU is what holds for every host at every moment.
func saneVGPU(t *testing.T, h gpu.Host) {
	t.Helper()
	if err := (gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{h}}).Validate(); err != nil {
		t.Errorf("the inventory is not valid: %v", err)
	}
	uuids := map[string]bool{}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.VGPU == nil {
			continue
		}
		if g.VGPU.Functions == 0 && g.VGPU.FunctionsOn || g.VGPU.Heterogeneous && !g.VGPU.HeterogeneousSupported {
			t.Errorf("GPU %s is in a mode that it does not have: %+v", g.ID, g.VGPU)
		}
		saneVGPUs(t, g)
		for _, in := range g.VGPU.Instances {
			if in.UUID != "" && uuids[in.UUID] {
				t.Errorf("GPU %s: the UUID %s of a mediated device is used twice", g.ID, in.UUID)
			}
			uuids[in.UUID] = true
		}
	}
}

func saneVGPUs(t *testing.T, g *gpu.GPU) {
	t.Helper()
	v := g.VGPU
	counts, sizes, taken, addresses := map[string]int{}, map[gpu.Bytes]bool{}, map[int]bool{}, map[string]bool{}
	for _, in := range v.Instances {
		typ, ok := v.Offers(in.Type)
		if !ok || typ.Name != in.Type {
			t.Errorf("GPU %s has a vGPU of a type that it does not offer: %+v", g.ID, in)
		}
		if counts[in.Type]++; counts[in.Type] > typ.Max {
			t.Errorf("GPU %s has %d vGPUs of %s, of which there can be %d", g.ID, counts[in.Type], in.Type, typ.Max)
		}
		sizes[typ.FrameBuffer] = true
		if v.Functions == 0 {
			if in.Function != gpu.Itself || in.UUID == "" || in.Address != g.Address {
				t.Errorf("GPU %s has no functions, and a vGPU %+v", g.ID, in)
			}
			continue
		}
		if !v.FunctionsOn || in.Function < 0 || in.Function >= v.Functions || taken[in.Function] {
			t.Errorf("GPU %s has a vGPU on a function that is not there or taken: %+v", g.ID, in)
		}
		if in.Address == "" || in.Address == g.Address || addresses[in.Address] {
			t.Errorf("GPU %s: the address of the vGPU %+v is not that of a function of its own", g.ID, in)
		}
		taken[in.Function], addresses[in.Address] = true, true
	}
	saneInMIG(t, g)
	if inMIG := g.MIG != nil && g.MIG.Enabled; len(sizes) > 1 && !v.Heterogeneous && !inMIG {
		t.Errorf("GPU %s mixes frame buffer sizes without the mode for it: %+v", g.ID, v.Instances)
	}
}

// saneInMIG has each MIG-backed vGPU in a GPU instance of its profile, and alone there; mediated
// devices do not tell.
func saneInMIG(t *testing.T, g *gpu.GPU) {
	t.Helper()
	lived := map[int]bool{}
	for _, in := range g.VGPU.Instances {
		typ, _ := g.VGPU.Offers(in.Type)
		if typ.MIGProfile == "" || in.UUID != "" {
			if in.GPUInstance != nil {
				t.Errorf("GPU %s has the vGPU %+v in GPU instance %d", g.ID, in.VGPUPlace, *in.GPUInstance)
			}
			continue
		}
		at := -1
		if in.GPUInstance != nil && g.MIG != nil {
			at = slices.IndexFunc(g.MIG.Instances, func(i gpu.GPUInstance) bool { return i.ID == *in.GPUInstance && i.Profile == typ.MIGProfile })
		}
		if at < 0 || lived[at] {
			t.Errorf("GPU %s has the vGPU %+v in no GPU instance of its own: %+v", g.ID, in, g.MIG)
		}
		lived[at] = true
	}
}

// hasPlacements is the mode of a GPU and all of its GPU instances.
func hasPlacements(gpuID string, inMIG bool, want ...gpu.MIGPlacement) vgpuCheck {
	return func(t *testing.T, b *vgpuBench) {
		t.Helper()
		g, ok := b.after.GPU(gpuID)
		if !ok || g.MIG == nil {
			t.Fatalf("GPU %s is in the inventory: %t, without MIG", gpuID, ok)
		}
		if diff := gocmp.Diff(gpu.MIGState{Enabled: inMIG, Placements: want}, g.MIG.State(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("GPU %s is otherwise (-want +got):\n%s", gpuID, diff)
		}
	}
}
