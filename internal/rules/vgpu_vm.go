package rules

import (
	"cmp"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// checkVGPURoom asks whether a Linux host has a vGPU for an assignment beside the others of the run.
func checkVGPURoom(r *run, at whatif.Located, a *gpu.Assignment) {
	if why, _ := change.Unfit(at.Host.Platform, a); why != "" || r.Plan.Unchanged {
		return // kind-on-platform says why
	}
	if _, unknown := at.Host.Concerning("", nil, gpu.PartVGPUs, gpu.PartGPUs); unknown {
		return // readable says so
	}
	of := *a
	of.VMID, of.VMName = at.VM.ID, at.VM.Name
	_, refused := change.ChooseVGPU(r.Future().Projected(at.Key, at.Host), &of)
	if refused == nil {
		return
	}
	f := Finding{
		Path: "partition", Title: "No free vGPU",
		Found:  fmt.Sprintf("On %s: %s.", hostText(at.Key), refused.Found()),
		Wanted: fmt.Sprintf("%s takes one.", r.label()),
		Fix:    sentence(refused.Fix),
	}
	if refused.Code == gpu.BadRequest {
		f.Path, f.Title = "partition.type", "The type of the vGPU is not said"
	}
	r.reportVM(at, f, key("vgpu", at.Key, cmp.Or(at.VM.ID, at.VM.Name)))
}
