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

// refusedAs is a rule that the planner of a change knows: a finding for each of its refusals.
func refusedAs(rule, title string) func(*run) {
	return func(r *run) {
		if !r.Transition() {
			return
		}
		a := cmp.Or(r.Plan.Want.Assignment, r.Plan.Prior.Assignment)
		at, ok := r.Locate(a)
		if !ok {
			return
		}
		for _, refused := range r.Forecast(at.Key, at.Host).Refused.Of(rule) {
			r.reportVM(at, Finding{
				Path: "vm", Title: title, Found: fmt.Sprintf("%s on %s: %s.", vmText(at.VM), hostText(at.Key), refused.Found()),
				Wanted: fmt.Sprintf("%s changes what vGPU it has.", r.label()), Fix: sentence(refused.Fix),
			}, key(rule, at.Key, at.VM.ID))
		}
	}
}

// checkHostdevManaged adds to what the planner knows of a VM of an assignment the other VMs whose definitions cost a config its vGPUs.
func checkHostdevManaged(r *run) {
	refusedAs(change.HostdevManaged, "The VM would lose its vGPU at its start")(r)
	c := r.Plan.Want.Config
	if c == nil || c.VGPU == nil {
		return
	}
	for host, h := range r.HostsAtHand(c.GPUs) {
		for g := range whatif.Selected(h, c.GPUs[host]) {
			reportManaged(r, host, h, g)
		}
	}
}

func reportManaged(r *run, host string, h *gpu.Host, g *gpu.GPU) {
	if g.VGPU == nil {
		return
	}
	for i := range g.VGPU.Instances {
		in := &g.VGPU.Instances[i]
		for _, d := range h.HostDevices {
			if !d.Managed || in.UUID != "" || !d.Names(in) {
				continue
			}
			r.report(Finding{
				Level: Warning, Path: "selector", Title: "A VM takes a vGPU from the driver", Host: host, GPU: g.ID, VM: d.VM,
				Found: fmt.Sprintf("The definition of VM %s on %s names the function at %s with managed='yes': at its start libvirt takes it from "+
					"NVIDIA's driver, and the vGPU is lost.", quote(d.VM), hostText(host), in.Address),
				Wanted: fmt.Sprintf("%s has a vGPU there.", r.label()),
				Fix:    "Write managed='no' in the VM's definition.",
			}, key("managed", host, in.Address, d.VM))
		}
	}
}

// checkVGPUReferenced finds other VMs that name the vGPU of an assignment: libvirt compares definitions with nothing, and who starts
// first has it.
func checkVGPUReferenced(r *run) {
	a := r.Plan.Want.Assignment
	at, ok := r.Locate(a)
	if !ok || at.Host.Platform != gpu.Linux {
		return
	}
	c, claimed := r.ClaimOnVM(at.Key, at.VM.ID)
	if !claimed {
		return
	}
	in, there := at.Host.VGPUOf(c.Device)
	if !there {
		return
	}
	var others, keys []string
	for i := range at.Host.HostDevices {
		if d := &at.Host.HostDevices[i]; d.Names(in) && !d.IsOf(at.VM.ID) && !d.IsOf(at.VM.Name) {
			others = append(others, quote(d.VM))
			keys = append(keys, key("named", at.Key, d.VM))
		}
	}
	if len(others) == 0 {
		return
	}
	r.reportVM(at, Finding{
		Path: "vm", Title: "Another VM names the same vGPU", GPU: c.Device.GPU,
		Found: fmt.Sprintf("The definitions of these VMs on %s name the vGPU that %s has: %s. Of them and %s one runs at a time.",
			hostText(at.Key), r.label(), joinAll(others), vmText(at.VM)),
		Wanted: "Each vGPU is named by one VM: libvirt does not compare them.",
		Fix:    "Take the device out of the other definitions, as with `virsh edit`.",
	}, keys...)
}

// checkSingleVGPU finds vGPUs that others gave a VM which an assignment gives one. NVIDIA's driver takes several for one VM; that an
// assignment gives one is the choice of this provider.
func checkSingleVGPU(r *run, at whatif.Located) {
	if r.Plan.Want.Assignment.Reserves() {
		return // the VM's own resource writes what it has
	}
	c, claimed := r.ClaimOnVM(at.Key, at.VM.ID)
	var foreign []string
	for _, d := range at.VM.Devices {
		own := claimed && r.Ours(c) && d.VGPU != nil && c.Device.IsVGPU(d.GPU, *d.VGPU)
		if d.VGPU != nil && !own {
			foreign = append(foreign, d.ID)
		}
	}
	if len(foreign) == 0 || r.Plan.Prior.Assignment != nil && !claimed && len(foreign) == 1 { // it is adopted
		return
	}
	f := Finding{
		Path: "vm", Title: "The VM already has a vGPU",
		Found: fmt.Sprintf("The definition of %s on %s names %s that this resource did not give it: %s.", vmText(at.VM), hostText(at.Key),
			plural(len(foreign), "vGPU"), joinAll(foreign)),
		Wanted: fmt.Sprintf("%s gives it one.", r.label()),
		Fix: fmt.Sprintf("Adopt it with `terraform import ADDRESS %s`, where ADDRESS is this resource's address, take the device out of the "+
			"definition, or reserve one with `partition = { attach = \"none\" }` where another resource writes the definition.", at.VM.ID),
	}
	if claimed && !r.Ours(c) {
		f.Fix = r.handOver(vmText(at.VM))
	}
	r.reportVM(at, f, key("vgpus", at.Key, at.VM.ID, fmt.Sprint(len(foreign))))
}
