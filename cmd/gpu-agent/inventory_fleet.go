package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// The tables of all hosts' GPUs and VMs.
var (
	gpuColumns = columns{
		title: "GPUs",
		names: []string{
			"Host", "Model", "Id", "Memory", "Layout", "Free", "Used by", "Status", "Valid counts", "Address", "Compute", "Driver",
		},
		wide: []string{"Status", "Valid counts", "Address", "Compute", "Driver"},
	}
	vmColumns = columns{
		title: "VMs", names: []string{"Host", "VM", "State", "Has", "VM id", "Generation"}, wide: []string{"VM id", "Generation"},
	}
)

// shownUsers is how many users of a GPU a table names that is not wide.
const shownUsers = 4

// inventorySheets are the GPUs and the VMs of hosts, those without a GPU too.
func inventorySheets(hosts []*gpu.Host, wide bool) (gpus, vms sheet) {
	short := func(id string) string { return id }
	if !wide {
		var ids []string
		for _, h := range hosts {
			for i := range h.GPUs {
				ids = append(ids, h.GPUs[i].ID)
			}
		}
		short = shortIDs(ids)
	}
	gpus, vms = sheet{columns: gpuColumns}, sheet{columns: vmColumns}
	for _, h := range hosts {
		for i := range h.GPUs {
			g := &h.GPUs[i]
			users := usersOf(h, g)
			if !wide && len(users) > shownUsers {
				users = append(users[:shownUsers:shownUsers], fmt.Sprintf("and %d more", len(users)-shownUsers))
			}
			free, counts := "", ""
			if p := g.Partitionable; p != nil {
				counts = strings.Join(words.Each(p.ValidCounts, strconv.Itoa), " ")
				if g.Status == gpu.Partitioned {
					free = strconv.Itoa(p.Free())
				}
			}
			gpus.rows = append(gpus.rows, []string{
				named(h.Name), gpu.Printable(g.Model), short(g.ID), memoryText(g.VRAM), dividedText(h, g), free, strings.Join(users, "\n"),
				string(g.Status), counts, g.Address, computeText(g), g.Driver.Version,
			})
		}
		for i := range h.VMs {
			vm := &h.VMs[i]
			var has []string
			for _, one := range holdings(h, vm) {
				from := one[1]
				if id := from[strings.LastIndex(from, " ")+1:]; id != "" {
					from = strings.TrimSuffix(from, id) + short(id)
				}
				has = append(has, one[0]+" ("+from+")")
			}
			vms.rows = append(vms.rows, []string{
				named(h.Name), named(vm.Name), string(vm.State), cmp.Or(strings.Join(has, "\n"), "no GPU"), vm.ID, strconv.Itoa(vm.Generation),
			})
		}
	}
	return gpus, vms
}

// dividedText is how a GPU is divided, in few words.
func dividedText(h *gpu.Host, g *gpu.GPU) string {
	switch p := g.Partitionable; {
	case g.Problem != "":
		return gpu.Printable(g.Problem)
	case h.Platform != gpu.Linux && g.Status == gpu.Partitioned && p != nil:
		text := words.Plural(p.Count, "partition")
		if each := p.PartitionVRAM(); each > 0 {
			text += " of " + each.String()
		}
		return text
	case h.Platform != gpu.Linux:
		for _, pool := range h.Pools {
			if pool.Has(g.ID) {
				return "whole, pool " + named(pool.Name)
			}
		}
		return string(g.Status)
	}
	var parts []string
	if g.MIGEnabled() {
		parts = append(parts, "MIG "+hostMIGText(g))
	}
	if g.VGPU != nil {
		if s := g.VGPU.State(); len(s.Places) > 0 {
			parts = append(parts, vgpuText(&s))
		}
	}
	if h.MPS != nil {
		for i := range h.MPS.Daemons {
			d := &h.MPS.Daemons[i]
			if slices.ContainsFunc(d.Devices, func(on gpu.SharedDevice) bool { return gpu.SameID(on.GPU, g.ID) }) {
				parts = append(parts, strings.TrimSpace("MPS "+named(d.Name)))
			}
		}
	}
	if s := g.TimeSlice; s != "" && s != gpu.TimeSliceDefault {
		parts = append(parts, "time slices "+string(s))
	}
	if len(parts) == 0 {
		return "whole"
	}
	return strings.Join(parts, "\n")
}

// usersOf are the VMs and the processes that have a GPU, or a part of it, now.
func usersOf(h *gpu.Host, g *gpu.GPU) []string {
	var out []string
	if p := g.Partitionable; p != nil {
		for _, part := range p.Partitions {
			name := part.VMID
			if vm, ok := h.VM(part.VMID); ok {
				name = vm.Name
			}
			out = append(out, named(name))
		}
	}
	for i := range h.VMs {
		for _, d := range h.VMs[i].Devices {
			if gpu.SameID(d.GPU, g.ID) {
				out = append(out, named(h.VMs[i].Name))
			}
		}
	}
	if v := g.VGPU; v != nil {
		for _, held := range v.Instances {
			if who := held.HeldBy(); who != "" {
				out = append(out, who)
			}
		}
	}
	return append(out, words.Each(g.Processes, processText)...)
}
