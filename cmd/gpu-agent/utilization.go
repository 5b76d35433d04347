package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	r := &reading{host: o}
	window := defaultWindow
	cmd := &cobra.Command{
		Use:   "utilization",
		Short: "Measure how busy the GPUs of this host are, or of all hosts of a configuration",
		Long: `utilization reads every GPU and MIG instance twice, a window apart, and changes nothing. Of
two readings the higher one counts. What a few seconds say is little: measure again at
other times before anything is taken away from anybody. Only NVIDIA GPUs of Linux hosts
can be measured; on Hyper-V it fails, and with --config it passes over Hyper-V hosts and
says so.`,
		Args: usage(cobra.NoArgs),
		PreRunE: func(*cobra.Command, []string) error {
			if window < minWindow || window > agent.MaxWindow {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--window is %s; it must be from %s to %s", window, minWindow, agent.MaxWindow)}
			}
			return r.check(useColumns)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			answers, err := readHosts(cmd, r, func(ctx context.Context, client *agent.Client) (m measured, err error) {
				if m.host, err = client.Inventory(ctx); err != nil || r.fleet() && m.host.Platform != gpu.Linux {
					return m, err
				}
				m.Measurement, err = client.Utilization(ctx, window)
				return m, err
			})
			if err != nil {
				return err
			}
			for i := range answers {
				m := &answers[i].value
				m.host.Name = cmp.Or(answers[i].host, m.host.Name)
			}
			out, silent := cmd.OutOrStdout(), unansweredOf(answers)
			switch {
			case r.document() && r.fleet():
				err = r.writeDocument(out, measurementsOf(answers))
			case r.document():
				err = r.writeDocument(out, measurementOf(&answers[0].value.host, answers[0].value.Measurement))
			case r.fleet() || r.tabular():
				r.print(out, silent, useSheet(answers, r.wide()))
				for _, a := range answers {
					if a.value.passedOver() {
						_, _ = fmt.Fprintf(out, " %s  not measured: %s\n", named(a.value.host.Name), onlyLinux)
					}
				}
			default:
				showUtilization(out, &answers[0].value.host, answers[0].value.Measurement)
			}
			if err == nil && len(silent) == 0 && !slices.ContainsFunc(answers, func(a answer[measured]) bool { return !a.value.passedOver() }) {
				err = errors.New("none of the hosts could be measured: " + onlyLinux)
			}
			return cmp.Or(err, outcome(silent, len(answers)))
		},
	}
	cmd.Flags().
		DurationVar(&window, "window", defaultWindow, fmt.Sprintf("the time between the two readings, from %s to %s", minWindow, agent.MaxWindow))
	r.register(cmd.Flags())
	return cmd
}

// onlyLinux is why a host of a fleet is passed over.
const onlyLinux = "only NVIDIA GPUs of Linux hosts can be"

// measured is what one host said of its use.
type measured struct {
	host gpu.Host
	agent.Measurement
}

// passedOver tells whether the host cannot be measured.
func (m *measured) passedOver() bool { return m.host.Platform == gpu.HyperV }

// measurementsOf is the document of all hosts of a configuration.
func measurementsOf(answers []answer[measured]) any {
	type one struct {
		*measurement
		Host  string `json:"host"`
		Error string `json:"error,omitempty"`
	}
	document := struct {
		Format string `json:"format"`
		Hosts  []one  `json:"hosts"`
	}{Format: "gpu-agent-utilization/v1", Hosts: []one{}}
	for i := range answers {
		a, host := &answers[i], one{Host: answers[i].host}
		switch {
		case a.err != nil:
			host.Error = a.why()
		case a.value.passedOver():
			host.Error = "not measured: " + onlyLinux
		default:
			host.measurement = new(measurementOf(&a.value.host, a.value.Measurement))
		}
		document.Hosts = append(document.Hosts, host)
	}
	return document
}

var useColumns = columns{
	title: "GPUs in use",
	names: []string{"Host", "Model", "Id", "Instance", "Allocated", "Busy", "SMs", "Memory", "Used by", "Advice", "Seconds"},
	wide:  []string{"Seconds"},
}

// useSheet is the table of all hosts' GPUs and MIG instances.
func useSheet(answers []answer[measured], wide bool) sheet {
	short := func(id string) string { return id }
	if !wide {
		var ids []string
		for _, a := range answers {
			for i := range a.value.GPUs {
				ids = append(ids, a.value.GPUs[i].ID)
			}
		}
		short = shortIDs(ids)
	}
	out := sheet{columns: useColumns}
	for _, a := range answers {
		h, m := &a.value.host, a.value.Measurement
		for i := range m.GPUs {
			f := utilization.Assess(&m.GPUs[i], m.Window())
			add := func(instance string, u *utilization.Use, holders bool, advice []string) {
				use := words.Each(useRow("", u, holders), func(cell any) string { return fmt.Sprint(cell) })
				row := []string{named(h.Name), gpu.Printable(modelOf(h, f.ID)), short(f.ID), instance}
				row = append(append(row, use[1:]...), strings.Join(advice, ", "), fmt.Sprintf("%.1f", m.Window().Length().Seconds()))
				out.rows = append(out.rows, row)
			}
			var advice []string
			for _, one := range f.Advice(nil) {
				if one.Code != utilization.ShortWindow && !slices.Contains(advice, string(one.Code)) {
					advice = append(advice, string(one.Code))
				}
			}
			add("", &f.Use, f.MIG == nil, advice)
			if f.MIG == nil {
				continue
			}
			for j := range f.MIG.Instances {
				in := &f.MIG.Instances[j]
				add(fmt.Sprintf("%s@%d", in.Profile, in.Start), &in.Use, true, nil)
			}
		}
	}
	return out
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
