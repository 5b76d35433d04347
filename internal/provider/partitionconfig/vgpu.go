package partitionconfig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vgpulayout"
)

func (m *gpuModel) describeVGPUs(ctx context.Context, v *gpu.VGPU, diags *diag.Diagnostics) {
	m.Layout = types.StringValue(v.State().String())
	now := slices.SortedFunc(slices.Values(v.Instances), func(a, b gpu.VGPUInstance) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Type, b.Type), cmp.Compare(a.UUID, b.UUID))
	})
	list := []vgpuModel{}
	for i := range now {
		in := &now[i]
		list = append(list, vgpuModel{Type: in.Type, Function: vgpulayout.Function(in.VGPUPlace), Address: set(in.Address), UUID: set(in.UUID)})
	}
	var d diag.Diagnostics
	m.VGPUs, d = types.ListValueFrom(ctx, vgpuType, list)
	diags.Append(d...)
}

// set is nil for an empty text.
func set(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// vgpuWords tell what a GPU has: "2 × L40S-12Q in heterogeneous mode".
func vgpuWords(g *gpu.GPU) string {
	s := g.VGPU.State()
	words := countsText(s.Places)
	switch {
	case s.FunctionsOn && len(s.Places) == 0:
		words += ", and its virtual functions are on"
	case !s.FunctionsOn && len(s.Places) > 0 && g.VGPU.Functions > 0:
		words += ", and its virtual functions are off"
	}
	if s.Heterogeneous {
		words += " in heterogeneous mode"
	}
	return words
}

// vgpuWanted is the same for a layout.
func vgpuWanted(l *gpu.VGPULayout) string {
	words := placement.VGPULayoutText(l)
	if l.Heterogeneous != nil {
		words += map[bool]string{true: " in heterogeneous mode", false: " without heterogeneous mode"}[*l.Heterogeneous]
	}
	return words
}

// vgpuDrift says how a GPU came to have other vGPUs than the declared ones, as far as the
// claim tells: it holds what the config gave the GPU.
func vgpuDrift(c gpu.PartitionConfig, claim *gpu.Claim, g *gpu.GPU) string {
	made, ours := givenBy(claim, g.ID)
	now := g.VGPU.State()
	foreign := vgpusWithout(now.Places, made.Places)
	gone := vgpusWithout(made.Places, now.Places)
	why := ""
	switch {
	case !ours:
	case made.FunctionsOn && !now.FunctionsOn, len(made.Places) > 0 && len(now.Places) == 0:
		why = "lost by reboot, or removed by others: it "
	case len(foreign) > 0:
		why = fmt.Sprintf("changed by another owner, %s is not of this config: it ", placesText(foreign))
	case len(gone) > 0:
		why = fmt.Sprintf("changed by another owner, %s is gone: it ", placesText(gone))
	case made.Heterogeneous != now.Heterogeneous:
		why = "changed by another owner: it "
	}
	return why + layoutWords(c, g)
}

// givenBy is what a config gave a GPU.
func givenBy(claim *gpu.Claim, id string) (gpu.VGPUState, bool) {
	if claim != nil {
		if given := claim.Given.Of(id); given.VGPU != nil {
			return *given.VGPU, true
		}
	}
	return gpu.VGPUState{}, false
}

// vgpusWithout are the places of a list that others do not have. Not every host gives vGPUs
// a UUID.
func vgpusWithout(list, others []gpu.VGPUPlace) []gpu.VGPUPlace {
	return slices.DeleteFunc(slices.Clone(list), func(p gpu.VGPUPlace) bool {
		return slices.ContainsFunc(others, p.Same)
	})
}

// placesText names vGPUs by type and virtual function: "L40S-12Q@3".
func placesText(list []gpu.VGPUPlace) string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.Type
		if p.Function != gpu.Itself {
			out[i] += fmt.Sprintf("@%d", p.Function)
		}
	}
	return strings.Join(out, "+")
}

func countsText(places []gpu.VGPUPlace) string {
	return placement.VGPULayoutText(&gpu.VGPULayout{Types: gpu.VGPUCounts(places)})
}
