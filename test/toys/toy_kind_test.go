package toys_test

import "fmt"

// What somebody writes who adds the kind `halves`.

const kindInChange = `package change

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// kindHalves is GPU-P with two partitions.
var kindHalves = kind{
	op: setCount, platform: gpu.HyperV, layout: "the halves", use: "its halves are for VMs of Hyper-V hosts",
	noun:   func(*gpu.PartitionConfig) string { return "halves" },
	passes: kindGPUP.passes, offers: kindGPUP.offers, plan: kindGPUP.plan, has: kindGPUP.has, cause: kindGPUP.cause, lost: kindGPUP.lost,
	unrestorable: kindGPUP.unrestorable,
	found:        kindGPUP.found,
	declared:     func(*gpu.PartitionConfig) string { return "two halves" },
}
`

const kindInProvider = `package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var halvesType = map[string]attr.Type{"note": types.StringType}

var halvesKind = layoutKind{
	kind: gpu.KindHalves,
	attribute: schema.SingleNestedAttribute{
		MarkdownDescription: "Halves.", Optional: true,
		Attributes: map[string]schema.Attribute{"note": schema.StringAttribute{MarkdownDescription: "A note.", Optional: true}},
	},
	decode: func(_ context.Context, _ types.Object, c *gpu.PartitionConfig, _ *diag.Diagnostics) { c.Count = 2 },
	encode: func(context.Context, gpu.PartitionConfig, *diag.Diagnostics) types.Object { return types.ObjectNull(halvesType) },
	describe: func(_ context.Context, out *gpuModel, _ gpu.PartitionConfig, _ *gpu.Host, _ *gpu.GPU, _ *diag.Diagnostics) {
		out.Layout = types.StringValue("halves")
	},
}
`

const kindProved = `package partitionconfig_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestHalves(t *testing.T) {
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+"resource \"gpu_partition_config\" \"vdi\" {\n  name = \"vdi\"\n  hosts = [\"hv01\", \"hv02\"]\n  halves = ` +
	`{ note = \"two\" }\n}\n")
	c.Apply()
	r.WantCounts(2, rig.Both...)
	c.WantNoChanges()
	r.Must(r.Fleet.SetCountOutside(t.Context(), "hv01", rig.GPU0, 8))
	rig.WantSaid(t, c.Ok("plan"), "has 8 partitions, declared is two halves; changed by others", "This apply puts it right.")
	c.Apply()
	r.WantCounts(2, rig.Both...)
	c.WantNoChanges()
}
`

// operationsRow is the row of an operation, each of whose cells a test asks for.
const operationsRow = `	OpOpenGPU: {
		by: BySharing, needs: []string{"gpu"}, disrupts: nobody, shows: ofGPU("the compute mode", computeModeOf),
		text: func(s Step) string { return "open GPU " + s.GPU + " to all processes" },
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			return unless(g.ComputeMode == "", Step{Op: OpSetComputeMode, GPU: s.GPU, ComputeMode: g.ComputeMode})
		}),
		project: eachGPU(func(g *gpu.GPU, _ Step) { g.ComputeMode = gpu.ComputeDefault }),
		notes:   noteSharing(func(e *SharingEffect, g *gpu.GPU, _ Step) { e.ComputeFrom, e.ComputeTo = g.ComputeMode, gpu.ComputeDefault }),
	},
`

const operationProved = `package change_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestOpenGPU(t *testing.T) {
	host := gpu.Host{Name: "h", Platform: gpu.Linux, GPUs: []gpu.GPU{{ID: "GPU-1", ComputeMode: gpu.ComputeExclusiveProcess}}}
	steps := []change.Step{{Op: change.OpOpenGPU, GPU: "GPU-1"}}
	undo, after := change.Schedule(host, steps)
	if text := steps[0].String(); text != "open GPU GPU-1 to all processes" {
		t.Error(text)
	}
	if off := change.Verify(&after, &host, steps); len(off) != 1 {
		t.Errorf("a host on which it was not done shows %q", off)
	}
	if back := change.ProjectAll(after, undo[0]); len(change.Verify(&host, &back, steps)) > 0 {
		t.Errorf("it is put back by %v", undo)
	}
}
`

// noteProved changes nothing but a note, of an object that hosts have.
func noteProved(pkg, fleet, host, kind, want, resource string) string {
	return fmt.Sprintf(`package %s_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestNote(t *testing.T) {
	r := rig.New(t, %s)
	config := func(note string) string { return r.Block() + %q + "  note = \"" + note + "\"\n}\n" }
	c := rig.NewCLI(t, "")
	for _, note := range []string{"first", "second", "third"} {
		c.Write(config(note))
		c.Apply()
		found := 0
		for _, claim := range r.Host(%q).Claims {
			if claim.Kind == gpu.%s {
				found++
				if claim.Want.%s.Note != note {
					t.Errorf("the host has note %%q, want %%q", claim.Want.%[6]s.Note, note)
				}
			}
		}
		if found != 1 {
			t.Errorf("the host has %%d claims", found)
		}
		c.WantNoChanges()
	}
}
`, pkg, fleet, resource, host, kind, want)
}
