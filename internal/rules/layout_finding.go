package rules

import (
	"cmp"
	"errors"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// anInstanceFault and aVGPUFault are findings of what has no words of its own below.
var (
	anInstanceFault = Finding{
		Rule: "mig-placement", Path: "mig", Title: "The MIG layout does not fit", Fix: "Ask for fewer or smaller instances.",
	}
	aVGPUFault = Finding{
		Rule: "vgpu-type-offered", Path: "vgpu", Title: "The GPU does not offer this type of vGPU",
		Fix: "Write a type that the GPU offers, or leave it out of `selector`.",
	}
)

const placesFound = "or `profiles` in place of `placements`: the places are then found for you."

// instanceFindings and vgpuFindings are the findings of layouts that do not fit; what is empty is as
// above.
var (
	instanceFindings = map[placement.Fault]Finding{
		placement.MIGUnknownProfile: {
			Rule: "mig-profile-supported", Title: "The GPU does not offer this MIG profile",
			Fix: "Write profiles that the GPU offers, or leave it out of `selector`.",
		},
		placement.MIGInUse: {
			Title: "MIG instances in use block the change",
			Fix:   "Stop what uses these instances, or keep them in the layout: with `placements` where they are, with `profiles` in their number.",
		},
		placement.MIGStart:   {Fix: "Write a start at which the profile may begin, " + placesFound},
		placement.MIGOverlap: {Fix: "Write places that do not overlap, " + placesFound},
	}
	vgpuFindings = map[placement.Fault]Finding{
		placement.VGPUUnsupported: {
			Path: "selector", Title: "The GPU does not support vGPUs",
			Fix: "Install NVIDIA's vGPU driver on the host and enable SR-IOV in the server's firmware, or leave the GPU out of `selector`.",
		},
		placement.VGPUBeside: {Title: "These vGPUs cannot share a GPU", Fix: "Give each kind GPUs of its own, with a config for each."},
		placement.VGPUProfile: {
			Title: "The GPU instance of this vGPU type is unknown", Fix: "Write a type that shares the GPU by time slices, or update the driver.",
		},
		placement.VGPUInMIGMode: {
			Path: "selector", Title: "The GPU is in MIG mode",
			Fix: "Switch MIG mode off with a config of `mig = { enabled = false }`, or leave the GPU out of `selector`.",
		},
		placement.VGPUNoMode: {Rule: sameFrameBuffer, Title: "Heterogeneous mode is not supported", Fix: "Leave `heterogeneous` out."},
		placement.VGPUSizes: {
			Rule: sameFrameBuffer, Title: needsMode, Fix: "Write types of one frame buffer size; their series (Q, A, B, C) may differ.",
		},
		placement.VGPUSizesMode: {
			Rule: sameFrameBuffer, Title: needsMode, Fix: "Leave `heterogeneous` out or write true, or write types of one frame buffer size.",
		},
		placement.VGPUUntold:   {Rule: vgpuCapacity, Title: "The number of vGPUs must be set", Fix: "Write `count`."},
		placement.VGPUCapacity: {Rule: vgpuCapacity, Title: tooManyVGPUs, Fix: fewerVGPUs},
		placement.VGPUCount:    {Rule: vgpuCapacity, Title: tooManyVGPUs, Fix: fewerVGPUs},
		placement.VGPUTaken: {
			Rule: vgpuCapacity, Title: "Virtual functions of the GPU are taken",
			Fix: "Write managed='no' for these functions in the definitions of the VMs, and bind them to NVIDIA's driver again when the VMs are " +
				"off; or ask for fewer vGPUs.",
		},
		placement.VGPUHeld: {
			Rule: vgpuInUse, Title: "vGPUs in use block the change",
			Fix: "Shut the VMs down and take the vGPUs from their definitions, or keep these vGPUs in the layout. No setting removes a vGPU in use.",
		},
		placement.VGPUReset: {
			Rule: vgpuInUse, Path: "max_disruption", Title: "The change of MIG mode resets GPUs",
			Fix: "Write `max_disruption = \"gpu_reset\"`, or leave the GPU out of `selector`.",
		},
		placement.MIGInUse: {
			Rule: vgpuInUse, Title: "GPU instances in use block the change",
			Fix: "Stop these first, or keep their instances. No setting removes an instance in use.",
		},
		placement.VGPUBusy: {
			Rule: vgpuInUse, Title: "Processes use GPUs whose virtual functions change",
			Fix: "Stop these processes first. A systemd unit that only watches GPUs can be named in `quiesce_units`: it is stopped for the change " +
				"and started again.",
		},
	}
)

const (
	sameFrameBuffer = "vgpu-same-framebuffer"
	vgpuCapacity    = "vgpu-capacity"
	vgpuInUse       = "vgpu-in-use"
	needsMode       = "vGPUs of different sizes need heterogeneous mode"
	tooManyVGPUs    = "Too many vGPUs for the GPU"
	fewerVGPUs      = "Ask for fewer or smaller vGPUs."
)

// migFinding and vgpuFinding word an error of package placement as a finding of the rule that it
// violates. Who wants the layout, where and at which level is the caller's to add.
func migFinding(err error) Finding { return layoutFinding(err, anInstanceFault, instanceFindings) }

func vgpuFinding(err error) Finding { return layoutFinding(err, aVGPUFault, vgpuFindings) }

func layoutFinding(err error, f Finding, of map[placement.Fault]Finding) Finding {
	if e, ok := errors.AsType[*placement.LayoutError](err); ok {
		f = of[e.First()].or(f)
		if e.First() == placement.MIGTooMany {
			f.Fix = e.Fix
		}
	}
	f.Found = sentence(err)
	return f
}

func (f Finding) or(o Finding) Finding {
	return Finding{Rule: cmp.Or(f.Rule, o.Rule), Path: cmp.Or(f.Path, o.Path), Title: cmp.Or(f.Title, o.Title), Fix: cmp.Or(f.Fix, o.Fix)}
}

// sentence makes sentences of an error, one of each that is joined in it.
func sentence(err error) string {
	return strings.Join(words.Each(strings.Split(err.Error(), "\n"), func(l string) string { return capital(l) + "." }), " ")
}
