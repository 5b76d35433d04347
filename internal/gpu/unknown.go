package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// Unknown is something of a host that its inventory could not read. It may be there or
// not, whatever the rest of the inventory shows: only what depends on it is refused.
type Unknown struct {
	// Part is what of the host it is.
	Part Part `json:"part"`
	// GPU or VM is the id of the only one that it is about; "" is all of them.
	GPU string `json:"gpu,omitempty"`
	VM  string `json:"vm,omitempty"`
	// Why is the call or the query that failed, and what it answered.
	Why string `json:"why"`
}

// Part is a part of a host that an inventory reads by itself.
type Part string

// Parts.
const (
	PartGPUs       Part = "gpus"       // what a GPU is and has, or which GPUs there are
	PartVMs        Part = "vms"        // a VM's state and settings, or which VMs there are
	PartPartitions Part = "partitions" // which running VMs hold partitions
	PartDevices    Part = "devices"    // which VMs have whole GPUs
	PartVGPUs      Part = "vgpus"      // which VMs that do not run name vGPUs
	PartPools      Part = "pools"
	PartPolicies   Part = "policies"
	PartCluster    Part = "cluster"
	PartDaemons    Part = "mps_daemons"
	PartShares     Part = "shares"
	PartHost       Part = "host" // what no change depends on: the version of a program, other software
)

// partNames are what people call the parts.
var partNames = map[Part]string{
	PartGPUs: "the GPUs", PartVMs: "the VMs", PartPartitions: "who holds partitions", PartDevices: "which VMs have whole GPUs",
	PartVGPUs: "which VMs name vGPUs", PartPools: "the pools", PartPolicies: "the policies", PartCluster: "the cluster",
	PartDaemons: "the MPS daemons", PartShares: "the shares", PartHost: "the host",
}

// What names it for people: "GPU PCIROOT(16)#PCI(0000)", "the pools".
func (u Unknown) What() string {
	switch {
	case u.GPU != "" && u.Part == PartGPUs:
		return "GPU " + u.GPU
	case u.VM != "" && u.Part == PartVMs:
		return "VM " + u.VM
	case u.GPU != "":
		return partNames[u.Part] + " of GPU " + u.GPU
	case u.VM != "":
		return partNames[u.Part] + " (VM " + u.VM + ")"
	}
	return partNames[u.Part]
}

func (u Unknown) String() string { return fmt.Sprintf("%s: %s", u.What(), u.Why) }

// Unidentified begins the id that a GPU is listed by whose own cannot be read.
const Unidentified = "unknown-"

// UnknownGPU is what could not be read of a GPU. A GPU that the host does not list may be
// one that it could not identify.
func (h *Host) UnknownGPU(id string) (Unknown, bool) {
	if len(h.Unknown) == 0 {
		return Unknown{}, false
	}
	_, listed := h.GPU(id)
	for _, u := range h.Unknown {
		nameless := u.GPU == "" || strings.HasPrefix(u.GPU, Unidentified)
		if u.Part == PartGPUs && (SameID(u.GPU, id) || nameless && !listed) {
			return u, true
		}
	}
	return Unknown{}, false
}

// UnknownVM is the same for a VM.
func (h *Host) UnknownVM(id string) (Unknown, bool) {
	if c, claimed := h.Claim(ClaimAssignment, id); h.Platform == Linux && h.VMManager == nil && claimed && !c.Want.Assignment.Reserves() {
		return Unknown{Part: PartVMs, VM: id, Why: "the host shows nothing any more that manages VMs, as while libvirt is stopped"}, true
	}
	if len(h.Unknown) == 0 {
		return Unknown{}, false
	}
	_, listed := h.VM(id)
	for _, u := range h.Unknown {
		if u.Part == PartVMs && (SameID(u.VM, id) || u.VM == "" && !listed) {
			return u, true
		}
	}
	return Unknown{}, false
}

// UnknownPart is what could not be read of a part of the host, whomever it is about.
func (h *Host) UnknownPart(part Part) (Unknown, bool) {
	for _, u := range h.Unknown {
		if u.Part == part {
			return u, true
		}
	}
	return Unknown{}, false
}

// Concerning is what could not be read of all that a change depends on: a VM, "" for none,
// some GPUs, and parts of the host as far as they are about these or about all.
func (h *Host) Concerning(vm string, gpus []string, parts ...Part) (Unknown, bool) {
	for _, u := range h.Unknown {
		if !slices.Contains(parts, u.Part) {
			continue
		}
		about := func(id string) bool { return SameID(id, u.GPU) }
		if u.GPU != "" && slices.ContainsFunc(gpus, about) || u.GPU == "" && u.VM != "" && SameID(u.VM, vm) || u.GPU == "" && u.VM == "" {
			return u, true
		}
	}
	if u, is := h.UnknownVM(vm); vm != "" && is {
		return u, true
	}
	for _, id := range gpus {
		if u, is := h.UnknownGPU(id); is {
			return u, true
		}
	}
	return Unknown{}, false
}
