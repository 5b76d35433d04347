package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// gpuRow is a GPU as the demo shows it.
type gpuRow struct {
	host, id, model         string
	status, partitions, use string
	vram                    string
}

func (r gpuRow) String() string {
	return fmt.Sprintf("%s, %s partitions of %s, %s in use", r.status, r.partitions, r.vram, r.use)
}

// vmRow is a VM as the demo shows it.
type vmRow struct {
	host, name, id, state string
	holds                 string
	hardware              string // what only a VM that is off can be given
}

func (r vmRow) String() string {
	return fmt.Sprintf("on %s, %s, holds %s %s", r.host, r.state, r.holds, r.hardware)
}

// report prints what differs between two states of a fleet.
func report(out io.Writer, before, after gpu.Snapshot) {
	gpus := newTable(out, "Host", "GPU", "Model", "Status", "Partitions", "VRAM of each", "In use")
	was := gpuRows(before)
	for i, g := range gpuRows(after) {
		if g != was[i] {
			w := was[i]
			gpus.AppendRow(table.Row{
				g.host, g.id, g.model,
				arrow(w.status, g.status), arrow(w.partitions, g.partitions), arrow(w.vram, g.vram), arrow(w.use, g.use),
			})
		}
	}
	gpus.Render()

	vms := newTable(out, "Host", "VM", "Power", "Held", "Holds now")
	for _, w := range vmRows(before) {
		v, ok := findVM(after, w.id)
		if ok && v != w {
			vms.AppendRow(table.Row{arrow(w.host, v.host), v.name, power(w, v), w.holds, v.holds})
		}
	}
	vms.Render()

	for _, h := range after.Hosts {
		for _, p := range h.Pools {
			fmt.Fprintf(out, "pool %s on %s: %s\n", p.Name, h.Name, strings.Join(p.GPUs, ", "))
		}
	}
	fmt.Fprintf(out, "claims on the hosts: %s\n", arrow(strconv.Itoa(claims(before)), strconv.Itoa(claims(after))))
}

// diff says what differs between two states of a fleet, in lines for an error.
func diff(before, after gpu.Snapshot) []string {
	var out []string
	was := gpuRows(before)
	for i, g := range gpuRows(after) {
		if g != was[i] {
			out = append(out, fmt.Sprintf("GPU %s on %s: %s", g.id, g.host, arrow(was[i].String(), g.String())))
		}
	}
	for _, w := range vmRows(before) {
		v, ok := findVM(after, w.id)
		if !ok || v != w {
			out = append(out, fmt.Sprintf("VM %s: %s", w.name, arrow(w.String(), v.String())))
		}
	}
	for i, h := range after.Hosts {
		if len(h.Pools) != len(before.Hosts[i].Pools) {
			out = append(out, fmt.Sprintf("host %s had %d pools and has %d", h.Name, len(before.Hosts[i].Pools), len(h.Pools)))
		}
	}
	if b, a := claims(before), claims(after); b != a {
		out = append(out, fmt.Sprintf("there were %d claims and are %d", b, a))
	}
	return out
}

func gpuRows(s gpu.Snapshot) []gpuRow {
	var out []gpuRow
	for _, h := range s.Hosts {
		for _, g := range h.GPUs {
			r := gpuRow{host: h.Name, id: g.ID, model: g.Model, status: string(g.Status), partitions: "-", use: "-", vram: "-"}
			if p := g.Partitionable; p != nil {
				r.partitions = strconv.Itoa(p.Count)
				r.use = strconv.Itoa(len(p.Partitions))
				r.vram = mib(p.PartitionVRAM())
			}
			out = append(out, r)
		}
	}
	return out
}

func vmRows(s gpu.Snapshot) []vmRow {
	var out []vmRow
	for i := range s.Hosts {
		h := &s.Hosts[i]
		for j := range h.VMs {
			v := &h.VMs[j]
			out = append(out, vmRow{
				host: h.Name, name: v.Name, id: v.ID, state: string(v.State),
				holds: holds(h, v), hardware: hardware(v),
			})
		}
	}
	return out
}

func findVM(s gpu.Snapshot, id string) (vmRow, bool) {
	for _, r := range vmRows(s) {
		if gpu.SameID(r.id, id) {
			return r, true
		}
	}
	return vmRow{}, false
}

// holds says which GPU or which part of one a VM has.
func holds(h *gpu.Host, v *gpu.VM) string {
	var out []string
	resolved := 0
	for _, g := range h.GPUs {
		if g.Partitionable == nil {
			continue
		}
		for _, p := range g.Partitionable.Partitions {
			if gpu.SameID(p.VMID, v.ID) {
				out = append(out, fmt.Sprintf("partition %d of %s, %s", p.ID, g.ID, mib(p.VRAM)))
				resolved++
			}
		}
	}
	for range len(v.PartitionAdapters) - resolved {
		out = append(out, "a partition once it runs")
	}
	for _, d := range v.Devices {
		switch {
		case d.Pool == "":
			out = append(out, "the whole "+d.GPU)
		case d.GPU == "":
			out = append(out, fmt.Sprintf("a GPU of pool %s once it runs", d.Pool))
		default:
			out = append(out, fmt.Sprintf("the whole %s, from pool %s", d.GPU, d.Pool))
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, "; ")
}

// hardware is what a VM is configured with, whether it runs or not.
func hardware(v *gpu.VM) string {
	var out []string
	for _, a := range v.PartitionAdapters {
		out = append(out, a.ID)
	}
	for _, d := range v.Devices {
		out = append(out, d.ID)
	}
	return strings.Join(out, " ")
}

// power says what became of a VM's power state. Hyper-V changes GPU hardware only
// while the VM is off, so one that ran before and after was stopped in between.
func power(before, after vmRow) string {
	switch {
	case before.state != after.state:
		return arrow(before.state, after.state)
	case after.state == string(gpu.VMRunning) && before.hardware != after.hardware:
		return "running, was shut down and started again"
	default:
		return after.state
	}
}

func claims(s gpu.Snapshot) int {
	n := 0
	for _, h := range s.Hosts {
		n += len(h.Claims)
	}
	return n
}

func mib(b gpu.Bytes) string { return strconv.FormatInt(b.MiB(), 10) + " MiB" }

func arrow(before, after string) string {
	if before == after {
		return after
	}
	return before + " → " + after
}

func newTable(out io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(header)
	return t
}
