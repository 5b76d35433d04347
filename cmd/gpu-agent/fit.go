package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// fitAnswer is what fit prints.
type fitAnswer struct {
	Format string `json:"format"`
	fit.Result
	Losses []fit.Loss     `json:"losses,omitempty"`
	Counts []fit.CountRow `json:"counts,omitempty"`

	demands []fit.Demand
}

// fitQuestion is what its flags ask.
type fitQuestion struct {
	spare          int
	without, with  []string
	counts         map[string]int
	losses, table  bool
	format         string
	hosts, demands string
}

func newFit() *cobra.Command {
	formats := map[string]func(io.Writer, *fitAnswer) error{
		"text": fitText, "json": func(out io.Writer, a *fitAnswer) error { return writeJSON(out, a) },
		"hcl": func(out io.Writer, a *fitAnswer) error { _, err := out.Write(a.HCL(a.demands)); return err },
	}
	q, asHCL := fitQuestion{format: "text"}, false
	cmd := &cobra.Command{
		Use:   "fit HOSTS DEMANDS",
		Short: "Find which layout of which GPUs holds given demands",
		Long: `fit finds which layout of which GPUs holds given demands: on as few GPUs as can be, then with as
few changes of what there is as can be. No host is asked, and nothing is changed. It is what the
function provider::gpu::fit answers, and takes the same words.

HOSTS is a fleet file, a recording (gpu-agent record), what gpu-agent inventory --json prints, or a
list of hosts that nobody has bought yet, as JSON or YAML:

  - name: hgx01
    gpus: [{ id: gpu0, model: H100 80GB HBM3 }, { id: gpu1, model: H100 80GB HBM3 }]

DEMANDS is a list as JSON or YAML:

  - { name: desks,  count: 24, kind: gpu_p, vram_mib: 3500 }
  - { name: infer,  count: 6,  kind: mig,   profile: 1g.10gb }
  - { name: jupyter, count: 9, kind: share, memory_mib: 8000, threads: 20 }
  - { name: train,  count: 1,  kind: gpu,   gpus: 4 }

What if: --without leaves a host out, --with adds one, --count changes a demand. --losses tries the
loss of each host in turn, and --counts each partition count.

Exit codes: 0 everything fits, 2 it does not or that is not known, 1 a file cannot be read, 64 wrong
use.`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asHCL {
				q.format = "hcl"
			}
			write, ok := formats[q.format]
			if !ok {
				which := words.Instead(q.format, slices.Collect(maps.Keys(formats)), "")
				return &codedError{code: exitBadUsage, err: fmt.Errorf("-o is %q. %s", q.format, which)}
			}
			q.hosts, q.demands = args[0], args[1]
			answer, err := q.answer()
			if err != nil {
				return err
			}
			if err := write(cmd.OutOrStdout(), answer); err != nil {
				return err
			}
			if answer.Fits == nil || !*answer.Fits {
				return &codedError{code: exitDiffers}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&q.format, "output", "o", q.format, "text, json or hcl")
	flags.BoolVar(&asHCL, "hcl", false, "print the configuration that makes the layouts, as -o hcl")
	flags.IntVar(&q.spare, "spare-hosts", 0, "how many hosts may fail while the layouts of the others still hold everything")
	flags.StringArrayVar(&q.without, "without", nil, "a host to leave out; may be repeated")
	flags.StringArrayVar(&q.with, "with", nil, "a host to add, as NAME=MODEL,MODEL or NAME@CLUSTER=MODEL; may be repeated")
	flags.StringToIntVar(&q.counts, "count", nil, "another count of a demand, as NAME=COUNT")
	flags.BoolVar(&q.losses, "losses", false, "tell what the loss of each host would mean")
	flags.BoolVar(&q.table, "counts", false, "tell what each partition count would come to")
	return cmd
}

func (q *fitQuestion) answer() (*fitAnswer, error) {
	hosts, demands, err := q.read()
	if err != nil {
		return nil, err
	}
	wrong := func(err error) (*fitAnswer, error) { return nil, &codedError{code: exitBadUsage, err: err} }
	if hosts, err = fit.Without(hosts, q.without); err != nil {
		return wrong(err)
	}
	for _, text := range q.with {
		added, err := addedHost(text)
		if err != nil {
			return wrong(err)
		}
		if slices.ContainsFunc(hosts, func(h gpu.Host) bool { return gpu.SameID(h.Name, added.Name) }) {
			return wrong(fmt.Errorf("--with: there is a host %q already", added.Name))
		}
		hosts = append(hosts, added)
	}
	names := words.Each(demands, func(d fit.Demand) string { return d.Name })
	for _, name := range slices.Sorted(maps.Keys(q.counts)) {
		at := slices.Index(names, name)
		if at < 0 {
			return wrong(fmt.Errorf("--count: there is no demand %q. %s", name, words.Instead(name, names, "")))
		}
		demands[at].Count = q.counts[name]
	}
	options := fit.Options{SpareHosts: q.spare}
	answer := &fitAnswer{Format: "gpu-agent-fit/v1", demands: demands}
	if answer.Result, err = fit.Solve(hosts, demands, options); err != nil {
		return nil, err
	}
	if q.losses {
		answer.Losses, err = fit.Losses(hosts, demands, &answer.Result)
	}
	if q.table && err == nil {
		answer.Counts, err = fit.Counts(hosts, demands, options)
	}
	return answer, err
}

func (q *fitQuestion) read() ([]gpu.Host, []fit.Demand, error) {
	raw, err := os.ReadFile(q.hosts)
	if err != nil {
		return nil, nil, err
	}
	hosts, err := fit.ReadHosts(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", q.hosts, err)
	}
	if raw, err = os.ReadFile(q.demands); err != nil {
		return nil, nil, err
	}
	demands, err := fit.ReadDemands(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", q.demands, err)
	}
	return hosts, demands, nil
}

// addedHost reads "hgx03=H100 80GB HBM3,H100 80GB HBM3" and "hv03@vdi=A2".
func addedHost(text string) (gpu.Host, error) {
	name, models, ok := strings.Cut(text, "=")
	if !ok {
		return gpu.Host{}, fmt.Errorf("--with is %q; it must be as NAME=MODEL,MODEL", text)
	}
	spec := fit.HostSpec{}
	spec.Name, spec.Cluster, _ = strings.Cut(name, "@")
	for n, model := range strings.Split(models, ",") {
		spec.GPUs = append(spec.GPUs, fit.GPUSpec{ID: "gpu" + strconv.Itoa(n), Model: model})
	}
	hosts, err := fit.Hosts([]fit.HostSpec{spec})
	if err != nil {
		return gpu.Host{}, fmt.Errorf("--with: %w", err)
	}
	return hosts[0], nil
}

func fitText(out io.Writer, a *fitAnswer) error {
	answer := "It is not known whether everything fits"
	switch {
	case a.Fits != nil && *a.Fits:
		answer = "Everything fits, on " + words.Plural(a.GPUs, "GPU")
	case a.Fits != nil:
		answer = "Not everything fits"
	}
	_, err := fmt.Fprintf(out, "%s; %s %s another layout, and %d %s unused.\n", answer, words.Plural(a.Changes, "GPU"),
		words.Verb(a.Changes, "gets", "get"), len(a.Unused), words.Verb(len(a.Unused), "is", "are"))
	if err == nil && a.Reason != "" {
		_, err = fmt.Fprintln(out, gpu.Printable(a.Reason))
	}
	if err != nil {
		return err
	}
	type line struct {
		host, id, layout string
		on               []string
	}
	units := map[string]map[string]int{} // by host and GPU, then by demand
	for i := range a.demands {
		for _, at := range a.Placements[a.demands[i].Name] {
			key := at.Host + "\x00" + at.GPU
			if units[key] == nil {
				units[key] = map[string]int{}
			}
			units[key][a.demands[i].Name]++
		}
	}
	var lines []line
	for _, host := range slices.Sorted(maps.Keys(a.Layouts)) {
		for _, id := range slices.Sorted(maps.Keys(a.Layouts[host])) {
			l := line{host: host, id: id, layout: a.Layouts[host][id].String()}
			of := units[host+"\x00"+id]
			for _, name := range slices.Sorted(maps.Keys(of)) {
				l.on = append(l.on, fmt.Sprintf("%d of %s", of[name], words.Name(name)))
			}
			lines = append(lines, l)
		}
	}
	list(out, "Layouts", table.Row{"Host", "GPU", "Layout", "Holds"}, lines, func(l line) table.Row {
		return table.Row{l.host, l.id, l.layout, strings.Join(l.on, ", ")}
	})
	list(out, "Remaining", table.Row{"Each alone", "How many"}, slices.Sorted(maps.Keys(a.Remaining)), func(name string) table.Row {
		of := map[string]string{"gpu_p": "partitions", "share": "shares of the smallest size", "gpu": "unused GPUs"}
		return table.Row{cmp.Or(of[name], name), a.Remaining[name]}
	})
	header := table.Row{"Host", "Layouts hold", "With other layouts", "Missing"}
	list(out, "When one host is lost", header, a.Losses, func(l fit.Loss) table.Row {
		return table.Row{l.Host, yesNo(&l.Holds), yesNo(l.Fits), missingText(l.Missing)}
	})
	header = table.Row{"Count", "MiB each", "Partitions", "GPUs", "Fits", "Missing"}
	list(out, "Partition counts", header, a.Counts, func(r fit.CountRow) table.Row {
		return table.Row{r.Count, r.MiB, r.Partitions, r.GPUs, yesNo(r.Fits), missingText(r.Missing)}
	})
	return nil
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return "not known"
	case *b:
		return "yes"
	}
	return "no"
}

func missingText(missing map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		out = append(out, fmt.Sprintf("%d of %s", missing[name], words.Name(name)))
	}
	return strings.Join(out, ", ")
}
