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
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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
		PreRunE: func(*cobra.Command, []string) error {
			if window < minWindow || window > agent.MaxWindow {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--window is %s; it must be from %s to %s", window, minWindow, agent.MaxWindow)}
			}
			return nil
		},
		RunE: o.withClient(func(cmd *cobra.Command, client *agent.Client, _ []string) error {
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
		}),
	}
	cmd.Flags().
		DurationVar(&window, "window", defaultWindow, fmt.Sprintf("the time between the two readings, from %s to %s", minWindow, agent.MaxWindow))
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
	utilization.Use
	MIG    *utilization.MIGFigures `json:"mig,omitempty"`
	Advice []utilization.Advice    `json:"advice"`
}

func measurementOf(h *gpu.Host, m agent.Measurement) measurement {
	out := measurement{Host: h.Name, From: m.From, To: m.To, GPUs: []measuredGPU{}}
	for i := range m.GPUs {
		f := utilization.Assess(&m.GPUs[i], m.Window())
		advice := append([]utilization.Advice{}, f.Advice(nil)...)
		out.GPUs = append(out.GPUs, measuredGPU{ID: f.ID, Model: modelOf(h, f.ID), Use: f.Use, MIG: f.MIG, Advice: advice})
	}
	return out
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
		advice = append(advice, "All of this rests on a short time. Measure again at other times, or with a longer --window, before anything "+
			"is taken away from anybody.")
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
	if holders {
		users = words.Each(u.Processes, func(p gpu.Process) string { return strings.TrimSpace(fmt.Sprintf("%d %s %s", p.PID, p.Name, p.Holder)) })
	}
	return table.Row{
		name, fmt.Sprintf("%.0f %%", u.Allocated*100), percent(u.Busy), percent(u.SMActivity),
		u.MemoryText(), strings.Join(users, "\n"),
	}
}

// percent prints what was measured, and nothing for what was not.
func percent(f *float64) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", *f)
}
