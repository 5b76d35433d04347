package rules

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// FindingOf words what a solver refuses as a finding of the rule that it violates. Who wants it, where
// and at which level is the caller's to add.
func FindingOf(r *gpu.Refusal) Finding {
	own, group := faults[r.Fault], groupOf(r.Fault)
	return Finding{
		Rule: cmp.Or(own.Rule, group.Rule), Path: cmp.Or(r.Attribute, own.Path, group.Path), Title: cmp.Or(own.Title, group.Title),
		Host: r.Host, GPU: r.GPU, Found: cmp.Or(sentence(r.Brief), strings.Join(words.Each(r.Reasons, sentence), " ")),
		Wanted: sentence(r.Wanted), Fix: strings.TrimSpace(r.Meant + " " + cmp.Or(own.Fix, sentence(r.Fix), group.Fix)),
	}
}

// sentence is a clause as a sentence, "" for none.
func sentence(clause string) string {
	if clause == "" {
		return ""
	}
	return capital(clause) + "."
}

// Refused says why a host would refuse a plan.
func Refused(host string, p change.Change, refused *gpu.Refusal) Finding {
	if refused.Code == gpu.Unannounced {
		return NotAnnounced(host, refused.Found())
	}
	where := hostText(host)
	if !strings.HasPrefix(refused.Object, "host ") { // else it is about the host itself
		where = cmp.Or(refused.Object, "the object") + " on " + where
	}
	return Finding{
		Rule:   Feasible,
		Level:  Error,
		Title:  "The host would refuse the change",
		Host:   host,
		Found:  fmt.Sprintf("%s: %s.", capital(where), refused.Found()),
		Wanted: fmt.Sprintf("%s needs it to %s.", whatif.Label(p), cmp.Or(refused.Op, "be changed")),
		Fix:    cmp.Or(sentence(refused.Fix), "Remove the cause on the host, or change what is wanted."),
	}
}

// groupOf is the finding of a fault that has no words of its own in faults.
func groupOf(f gpu.Fault) Finding {
	switch {
	case f <= placement.MIGNoRoom:
		return Finding{Rule: "mig-placement", Path: "mig", Title: "The MIG layout does not fit", Fix: "Ask for fewer or smaller instances."}
	case f <= placement.VGPUBusy:
		return Finding{
			Rule: "vgpu-type-offered", Path: "vgpu", Title: "The GPU does not offer this type of vGPU",
			Fix: "Write a type that the GPU offers, or leave it out of `selector`.",
		}
	}
	return Finding{Rule: sharePlacement, Path: "name", Title: shareDoesNotFit, Fix: "Ask for less, or choose another GPU or host."}
}

// faults are the findings of what solvers refuse; what is empty is as in groupOf, and a fix as
// in the refusal if that has one.
var faults = map[gpu.Fault]Finding{
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
	placement.VGPUInstancesHeld: {
		Rule: vgpuInUse, Title: "GPU instances in use block the change",
		Fix: "Stop these first, or keep their instances. No setting removes an instance in use.",
	},
	placement.VGPUBusy: {
		Rule: vgpuInUse, Title: "Processes use GPUs whose virtual functions change",
		Fix: "Stop these processes first. A systemd unit that only watches GPUs can be named in `quiesce_units`: it is stopped for the change " +
			"and started again.",
	},

	placement.LackForVMs: {Rule: vmXorShare, Title: "The GPU is for VMs"},
	placement.LackMode:   {Rule: fractionNotInMode, Title: "The GPU's mode does not support this setting"},
	placement.LackFigure: {Rule: fractionNotInMode, Path: "memory", Title: "The memory of the device is not known"},
	placement.LackSize: {
		Rule: fractionNotInMode, Path: "memory", Title: "The share requests more memory than the device has",
	},
	placement.LackClients: {Rule: mpsClientLimit, Title: "Too many MPS clients"},
	placement.LackLimit: {
		Rule: oversubscription, Path: "memory", Title: "The memory limits of the shares exceed what the config allows",
	},
	placement.LackThreads: {
		Rule: oversubscription, Path: "active_thread_percentage",
		Title: "The thread percentages of the shares exceed what the config allows",
	},
	placement.ShareQuota: {
		Rule: poolQuota, Path: "pool", Title: "The quota of the pool is used up",
		Fix: "Raise the quota in the gpu_pool, ask for less, or destroy a share of the label.",
	},
	placement.ShareNotInPool: {
		Path: "pool", Title: "The host is not in the pool of the share", Fix: "Refer to a pool that covers GPUs of this host.",
	},
	placement.ShareNotInConfig: {
		Path: "config", Title: "The host is not in the partition config of the share",
		Fix: "Refer to a partition config that covers GPUs of this host.",
	},
	placement.ShareApart: {
		Path: "gpu_ids", Title: notTogether,
		Fix: "Take the share out of the configuration for one apply, and put it back in the next.",
	},
	placement.ShareApartDaemon: {
		Path: "gpu_ids", Title: notTogether, Fix: "Leave `daemons` of the gpu_partition_config as it is, or give the share one GPU.",
	},
	placement.ShareNamesake: {
		Rule: "unique-name", Title: "The host has another share of that name", Fix: "Give the share another `name`.",
	},
	placement.ShareName: {Rule: "share-name", Title: "The name is not a valid CDI device name", Fix: "Give the share another `name`."},
	placement.ShareMemory: {
		Rule: fractionNotInMode, Path: "memory", Title: "The memory of the device is not known",
		Fix: "Write amounts in MiB, or leave `memory` out.",
	},
	placement.ShareAmount: {Rule: fractionNotInMode, Title: "The value is out of range", Fix: "Correct the value."},
}

const (
	placesFound     = "or `profiles` in place of `placements`: the places are then found for you."
	needsMode       = "vGPUs of different sizes need heterogeneous mode"
	tooManyVGPUs    = "Too many vGPUs for the GPU"
	fewerVGPUs      = "Ask for fewer or smaller vGPUs."
	notTogether     = "No process can use all devices of the share"
	shareDoesNotFit = "The share does not fit"
)

// Rules that several places report.
const (
	sameFrameBuffer   = "vgpu-same-framebuffer"
	vgpuCapacity      = "vgpu-capacity"
	vgpuInUse         = "vgpu-in-use"
	sharePlacement    = "share-placement"
	oversubscription  = "share-oversubscription"
	fractionNotInMode = "fraction-not-in-mode"
	mpsClientLimit    = "mps-client-limit"
	vmXorShare        = "gpu-vm-xor-share"
	poolQuota         = "pool-quota"
)
