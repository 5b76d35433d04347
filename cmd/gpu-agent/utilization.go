package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// The least and the default window, those of data source gpu_utilization.
const (
	minWindow     = 100 * time.Millisecond
	defaultWindow = 2 * time.Second
)

func newUtilization(o *hostOptions) *cobra.Command {
	var asJSON bool
	window := defaultWindow
	cmd := &cobra.Command{
		Use:   "utilization",
		Short: "Measure how busy the host's GPUs are",
		Long: `utilization reads every GPU and MIG instance twice, a window apart, and changes nothing. Of
two readings the higher one counts. What a few seconds say is little: measure again at
other times before anything is taken away from anybody. Only NVIDIA GPUs of Linux hosts
can be measured; on Hyper-V it fails.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if window < minWindow || window > agent.MaxWindow {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--window is %s; it must be from %s to %s", window, minWindow, agent.MaxWindow)}
			}
			client, err := o.client(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }() // in process
			host, err := client.Inventory(cmd.Context())
			if err != nil {
				return err
			}
			measured, err := client.Utilization(cmd.Context(), window)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), measurementOf(&host, measured))
			}
			showUtilization(cmd.OutOrStdout(), &host, measured)
			return nil
		},
	}
	cmd.Flags().DurationVar(&window, "window", defaultWindow, fmt.Sprintf("the time between the two readings, from %s to %s", minWindow, agent.MaxWindow))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// measurement is what --json prints.
type measurement struct {
	Host string        `json:"host"`
	From time.Time     `json:"from"`
	To   time.Time     `json:"to"`
	GPUs []measuredGPU `json:"gpus"`
}

type measuredGPU struct {
	ID    string `json:"id"`
	Model string `json:"model"`
	measuredUse
	MIG    *measuredMIG     `json:"mig,omitempty"`
	Advice []measuredAdvice `json:"advice"`
}

// measuredUse is what a GPU and an instance have in common; null is what was not measured.
type measuredUse struct {
	Allocated   float64       `json:"allocated_fraction"`
	Busy        *float64      `json:"busy_percent"`
	MemoryBusy  *float64      `json:"memory_busy_percent"`
	SMActivity  *float64      `json:"sm_activity_percent"`
	MemoryUsed  gpu.Bytes     `json:"memory_used"`
	MemoryTotal gpu.Bytes     `json:"memory_total"`
	Idle        *bool         `json:"idle"`
	Processes   []gpu.Process `json:"processes,omitempty"`
}

type measuredMIG struct {
	Slices        int                `json:"compute_slices"`
	Allocated     int                `json:"allocated_compute_slices"`
	Used          int                `json:"used_compute_slices"`
	MemorySlices  int                `json:"memory_slices"`
	FreeMemory    int                `json:"free_memory_slices"`
	Unallocatable int                `json:"unallocatable_memory_slices"`
	Instances     []measuredInstance `json:"instances"`
}

type measuredInstance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	measuredUse
}

type measuredAdvice struct {
	Code utilization.Code `json:"kind"`
	Text string           `json:"text"`
}

func measurementOf(h *gpu.Host, m agent.Measurement) measurement {
	out := measurement{Host: h.Name, From: m.From, To: m.To, GPUs: []measuredGPU{}}
	for i := range m.GPUs {
		f := utilization.Assess(&m.GPUs[i], m.Window())
		g := measuredGPU{ID: f.ID, Model: modelOf(h, f.ID), measuredUse: useOf(&f.Use), Advice: []measuredAdvice{}}
		if f.MIG != nil {
			g.MIG = &measuredMIG{
				Slices: f.MIG.Slices, Allocated: f.MIG.AllocatedSlices, Used: f.MIG.UsedSlices,
				MemorySlices: f.MIG.MemorySlices, FreeMemory: f.MIG.FreeMemory, Unallocatable: f.MIG.Unallocatable, Instances: []measuredInstance{},
			}
			for j := range f.MIG.Instances {
				in := &f.MIG.Instances[j]
				g.MIG.Instances = append(g.MIG.Instances, measuredInstance{Profile: in.Profile, Start: in.Start, measuredUse: useOf(&in.Use)})
			}
		}
		for _, a := range f.Advice(nil) {
			g.Advice = append(g.Advice, measuredAdvice(a))
		}
		out.GPUs = append(out.GPUs, g)
	}
	return out
}

func useOf(u *utilization.Use) measuredUse {
	return measuredUse{
		Allocated: u.Allocated, Busy: u.Busy, MemoryBusy: u.MemoryBusy, SMActivity: u.SMActivity,
		MemoryUsed: u.MemoryUsed, MemoryTotal: u.MemoryTotal, Idle: u.Idle, Processes: u.Processes,
	}
}

func modelOf(h *gpu.Host, id string) string {
	if g, ok := h.GPU(id); ok {
		return g.Model
	}
	return ""
}

// adviceColumns is how long a line of advice is.
const adviceColumns = 100

// showUtilization prints a measurement for people.
func showUtilization(out io.Writer, h *gpu.Host, m agent.Measurement) {
	_, _ = fmt.Fprintf(out, "Host %s, watched for %s\n\n", h.Name, m.Window().Length().Round(10*time.Millisecond))
	gpus := newTable(out, "GPUs")
	gpus.AppendHeader(table.Row{"GPU", "Allocated", "Busy", "SMs", "Memory", "In use by"})
	var advice []string
	short := false
	for i := range m.GPUs {
		f := utilization.Assess(&m.GPUs[i], m.Window())
		gpus.AppendRow(useRow(modelOf(h, f.ID)+"\n"+f.ID, &f.Use, f.MIG == nil))
		if f.MIG != nil {
			for j := range f.MIG.Instances {
				in := &f.MIG.Instances[j]
				gpus.AppendRow(useRow(fmt.Sprintf("  %s@%d", in.Profile, in.Start), &in.Use, true))
			}
		}
		for _, a := range f.Advice(nil) {
			if a.Code == utilization.ShortWindow {
				short = true
				continue
			}
			advice = append(advice, a.Text)
		}
	}
	if short {
		advice = append(advice, "All of this rests on a short time. Measure again at other times, or with a longer --window, before anything is taken away from anybody.")
	}
	gpus.Render()
	if len(advice) > 0 {
		_, _ = fmt.Fprintln(out, "\nAdvice")
	}
	for _, line := range advice {
		for i, part := range strings.Split(text.WrapSoft(line, adviceColumns), "\n") {
			mark := "- "
			if i > 0 {
				mark = "  "
			}
			_, _ = fmt.Fprintln(out, mark+strings.TrimRight(part, " "))
		}
	}
}

// useRow is a line of the table. The processes of a GPU in MIG mode are in the lines of
// its instances.
func useRow(name string, u *utilization.Use, holders bool) table.Row {
	var users []string
	for i := range u.Processes {
		if p := &u.Processes[i]; holders {
			users = append(users, strings.TrimSpace(fmt.Sprintf("%d %s %s", p.PID, p.Name, p.Holder)))
		}
	}
	return table.Row{
		name, fmt.Sprintf("%.0f %%", u.Allocated*100), percent(u.Busy), percent(u.SMActivity),
		fmt.Sprintf("%s of %s", u.MemoryUsed, u.MemoryTotal), strings.Join(users, "\n"),
	}
}

// percent prints what was measured, and nothing for what was not.
func percent(f *float64) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", *f)
}
