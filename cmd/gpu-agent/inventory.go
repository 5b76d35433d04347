package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func newInventory(o *hostOptions) *cobra.Command {
	r := &reading{host: o}
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Show the GPUs, shares, VMs, pools and claims of this host, or of all hosts of a configuration",
		Long: `inventory reads the host once and changes nothing. With -o json it prints a snapshot: the
provider plans against it (inventory_snapshot), and it is a simulated fleet.

With --config all hosts of a configuration are read, each reached as the provider reaches it, and
their GPUs and VMs are in one table each. A host that does not answer is named, and the exit code
is 1 then; the JSON without it is no snapshot to plan against.

  gpu-agent inventory --config .
  gpu-agent inventory --config . --filter 'model=*A16*' --sort=-free
  gpu-agent inventory --config . -o wide --no-headers --filter state=off`,
		Args:    usage(cobra.NoArgs),
		PreRunE: func(*cobra.Command, []string) error { return r.check(gpuColumns, vmColumns) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			answers, err := readHosts(cmd, r, readInventory)
			if err != nil {
				return err
			}
			hosts, silent, out := byName(answers), unansweredOf(answers), cmd.OutOrStdout()
			switch {
			case r.document():
				err = r.writeDocument(out, snapshotOf(answers, silent))
			case r.fleet() || r.tabular():
				gpus, vms := inventorySheets(hosts, r.wide())
				r.print(out, silent, gpus, vms)
			default:
				show(out, hosts[0])
			}
			return cmp.Or(err, outcome(silent, len(answers)))
		},
	}
	r.register(cmd.Flags())
	return cmd
}

// incompleteFormat is the format of an inventory that lacks hosts, which is none to plan against.
const incompleteFormat = "gpu-fleet-incomplete/v1"

// snapshotOf is the document of hosts.
func snapshotOf(answers []answer[gpu.Host], silent []unanswered) any {
	s := gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{}}
	for i := range answers {
		if a := &answers[i]; a.err == nil {
			if err := s.Record(a.value, time.Now(), a.agent); err != nil {
				silent = append(silent, unanswered{Host: a.host, Error: err.Error()})
			}
		}
	}
	if len(silent) > 0 {
		s.Format = incompleteFormat
	}
	return struct {
		gpu.Snapshot
		Unanswered []unanswered `json:"unanswered,omitempty"`
	}{s, silent}
}

// newTable is a table as all commands print it.
func newTable(out io.Writer, title string) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetTitle(title)
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	return t
}

// list prints a table that has rows.
func list[T any](out io.Writer, title string, header table.Row, of []T, row func(T) table.Row) {
	if len(of) == 0 {
		return
	}
	t := newTable(out, title)
	t.AppendHeader(header)
	t.AppendRows(words.Each(of, row))
	t.Render()
}

// named is a name as it stands in a table: one that is more than a word is quoted, and takes no other column or row.
func named(name string) string {
	if name == "" {
		return ""
	}
	return words.Name(name)
}

// show prints a host for people.
func show(out io.Writer, h *gpu.Host) {
	_, _ = fmt.Fprintf(out, "Host %s, %s\n", h.Name, strings.TrimSpace(h.OS.Name+" "+h.OS.Version))
	if h.Cluster != nil {
		_, _ = fmt.Fprintf(out, "Node of cluster %s, %s\n", h.Cluster.Name, h.NodeState())
	}
	if h.Platform == gpu.Linux {
		_, _ = fmt.Fprintf(out, "Driver %s\n", cmp.Or(strings.Join(driversOf(h), ", "), "unknown"))
	}
	if h.HeldBy != nil {
		_, _ = fmt.Fprintf(out, "Now %s\n", h.HeldBy)
	}
	for _, subject := range h.Unfinished {
		_, _ = fmt.Fprintf(out, "A change for %s was begun and has not ended\n", subject)
	}
	for _, note := range h.Stale {
		_, _ = fmt.Fprintf(out, "Out of date: %s\n", note)
	}
	_, _ = fmt.Fprintln(out)

	gpus := newTable(out, "GPUs")
	if h.Platform == gpu.Linux {
		showLinux(gpus, h)
	} else {
		showPartitions(gpus, h)
	}
	gpus.Render()
	showDaemons(out, h)
	showShares(out, h)

	var vms []table.Row
	for i := range h.VMs {
		has := holdings(h, &h.VMs[i])
		if len(has) == 0 {
			has = [][2]string{{"", ""}}
		}
		for _, one := range has {
			vms = append(vms, table.Row{named(h.VMs[i].Name), h.VMs[i].State, one[0], one[1]})
		}
	}
	list(out, "\nVMs", table.Row{"VM", "State", "Has", "From"}, vms, func(r table.Row) table.Row { return r })
	_, _ = fmt.Fprintf(out, "\n%d VMs in all\n", len(h.VMs))
	list(out, "\nPools", table.Row{"Pool", "GPUs"}, h.Pools, func(p gpu.Pool) table.Row {
		return table.Row{named(p.Name), strings.Join(p.GPUs, "\n")}
	})
	list(out, "\nClaims", table.Row{"Kind", "Id", "Owner"}, h.Claims, func(c gpu.Claim) table.Row {
		return table.Row{c.Kind, named(c.ID), named(c.Owner)}
	})
	list(out, "\nOther software", table.Row{"Name", "What it does"}, h.Controllers, func(c gpu.Controller) table.Row {
		return table.Row{named(c.Name), cmp.Or(does[c.Role], string(c.Role))}
	})
	showUnreadable(out, h.Unreadable)
	list(out, "\nParts that cannot be read", table.Row{"Part", "Why"}, h.Unknown,
		func(u gpu.Unknown) table.Row { return table.Row{u.What(), u.Why} })
}

// driversOf are the versions of the drivers of a host's GPUs.
func driversOf(h *gpu.Host) []string {
	var out []string
	for i := range h.GPUs {
		if v := h.GPUs[i].Driver.Version; v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// showPartitions lists the GPUs of a Hyper-V host.
func showPartitions(gpus table.Writer, h *gpu.Host) {
	gpus.AppendHeader(table.Row{"Model", "Id", "Status", "Partitions", "Valid counts", "Each has"})
	for i := range h.GPUs {
		g := &h.GPUs[i]
		row := table.Row{g.Model, g.ID, g.Status, "", "", ""}
		if p := g.Partitionable; p != nil {
			counts := words.Each(p.ValidCounts, strconv.Itoa)
			row[3], row[4], row[5] = fmt.Sprintf("%d, %d free", p.Count, p.Free()), strings.Join(counts, " "), memoryText(p.PartitionVRAM())
		}
		gpus.AppendRow(row)
	}
}

// showLinux lists the GPUs of a Linux host.
func showLinux(gpus table.Writer, h *gpu.Host) {
	gpus.AppendHeader(table.Row{"Model", "Id", "Address", "Memory", "Compute", "MIG", "Instances, vGPUs", "In use by"})
	for i := range h.GPUs {
		g := &h.GPUs[i]
		row := table.Row{g.Model, g.ID, g.Address, memoryText(g.VRAM), computeText(g), "none", "", ""}
		if g.Problem != "" {
			row[5] = g.Problem
		}
		if m := g.MIG; m != nil {
			row[5] = "off"
			if m.Enabled {
				row[5] = "on"
			}
			if m.Enabled != m.Pending {
				row[5] = fmt.Sprintf("%s until a reset", row[5])
			}
			if m.Enabled {
				row[6] = strings.ReplaceAll(hostMIGText(g), ", ", "\n")
			}
		}
		if v := g.VGPU; v != nil { // below the instances that they live in
			row[6] = strings.TrimSpace(fmt.Sprintf("%s\n%s", row[6],
				strings.NewReplacer(", ", "\n", "virtual ", "").Replace(vgpuText(new(v.State())))))
		}
		users := words.Each(g.Processes, processText)
		if v := g.VGPU; v != nil {
			for _, held := range v.Instances {
				if who := held.HeldBy(); who != "" {
					users = append(users, who)
				}
			}
		}
		const width = 30 // of the column; each begins on a line of its own
		row[7] = strings.Join(words.Each(users, func(who string) string { return text.WrapSoft(who, width) }), "\n")
		gpus.AppendRow(row)
	}
}

// memoryText is an amount of memory, "" where the driver does not tell it.
func memoryText(b gpu.Bytes) string {
	if b == 0 {
		return ""
	}
	return b.String()
}

// computeText is how processes may use a GPU.
func computeText(g *gpu.GPU) string {
	out := string(g.ComputeMode)
	if s := g.TimeSlice; s != "" && s != gpu.TimeSliceDefault {
		out += "\nslices " + string(s)
	}
	if g.Persistence != nil && !*g.Persistence {
		out += "\nno persistence"
	}
	return out
}

func processText(p gpu.Process) string {
	out := strings.TrimSpace(fmt.Sprintf("%d %s %s", p.PID, p.Name, p.Holder))
	if p.Share != "" {
		out += ", share " + p.Share
	}
	return out
}

// holdings are what a VM has of GPUs, and from where.
func holdings(h *gpu.Host, vm *gpu.VM) [][2]string {
	var out [][2]string
	for range vm.PartitionAdapters {
		out = append(out, [2]string{"partition", "any GPU with a free one, at start"})
	}
	n := 0
	for i := range h.GPUs {
		p := h.GPUs[i].Partitionable
		if p == nil {
			continue
		}
		for _, held := range p.Partitions {
			if gpu.SameID(held.VMID, vm.ID) && n < len(out) {
				out[n][1] = h.GPUs[i].ID
				n++
			}
		}
	}
	for _, d := range vm.Devices {
		switch {
		case d.VGPU != nil:
			out = append(out, [2]string{"vGPU " + d.VGPU.Type, d.GPU})
		case d.Pool != "" && d.GPU != "":
			out = append(out, [2]string{"whole GPU", "pool " + named(d.Pool) + ": " + d.GPU})
		case d.Pool != "":
			out = append(out, [2]string{"whole GPU", "pool " + named(d.Pool)})
		default:
			out = append(out, [2]string{"whole GPU", d.GPU})
		}
	}
	return out
}
