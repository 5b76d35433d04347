package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleetmap"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// mapping is what `map` is asked to draw.
type mapping struct {
	config configHosts
	report string
	output string
}

// mapOutputs are the forms of a picture.
var mapOutputs = map[string]func(io.Writer, fleetmap.Picture) error{
	"text":     writeMapText,
	"svg":      fleetmap.SVG,
	"html":     fleetmap.HTML,
	"markdown": fleetmap.Markdown,
}

var mapForms = slices.Sorted(maps.Keys(mapOutputs))

func newMap() *cobra.Command {
	m := mapping{}
	cmd := &cobra.Command{
		Use:   "map [SOURCE...]",
		Short: "Draw a fleet: hosts, GPUs, what they are cut into, who holds what",
		Long: `map draws hosts, their GPUs, and the partitions, MIG instances, vGPUs and shares of each to scale:
who holds what, whose it is, what is free, what nothing fits into, and why a GPU cannot be assigned.
It changes nothing. SOURCE is a fleet file, a recording (record), an inventory (inventory --json),
or - for standard input; several are drawn as one fleet. With --config, the hosts of a provider's
block are asked, as record does; what others answer is drawn although one is silent, and map fails
then. --report adds what a plan makes of them, from the plan report that
the provider writes; a plan report alone as SOURCE is drawn before beside after.

  gpu-agent map fleet.json
  gpu-agent inventory --json | gpu-agent map -
  gpu-agent map --config . --key ~/.ssh/reader -o html > fleet.html
  gpu-agent map recorded.json --report plan.json -o markdown`,
		Args: usage(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			write := mapOutputs[m.output]
			switch {
			case write == nil:
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--output is %q; it must be one of %s%s",
					m.output, strings.Join(mapForms, ", "), orNearest(m.output, mapForms))}
			case m.config.dir == "" && len(args) == 0:
				return &codedError{code: exitBadUsage, err: errors.New("nothing to draw: name a file, or a folder with --config")}
			case m.config.dir != "" && len(args) > 0:
				return &codedError{code: exitBadUsage, err: errors.New("--config names the hosts: leave out the files")}
			}
			picture, silent, err := m.picture(cmd.Context(), cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			return errors.Join(write(cmd.OutOrStdout(), picture), silent)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&m.output, "output", "o", "text", "text, svg, html (one page, which asks nothing of any network) or markdown")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(mapForms, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&m.report, "report", "", "a plan report, to draw what the plan makes of the hosts")
	m.config.register(flags)
	return cmd
}

// sources are what is drawn, and what there is to say of it.
type sources struct {
	fleet gpu.Snapshot
	// report is set if the only source is one.
	report *planreport.Report
	notes  []string
	// silent are the hosts that did not answer; nil for none.
	silent error
}

// picture reads all that is to be drawn. Hosts that are silent are an error beside the picture of the others.
func (m mapping) picture(ctx context.Context, stdin io.Reader, files []string) (p fleetmap.Picture, silent, err error) {
	var from sources
	title := strings.Join(words.Each(files, filepath.Base), ", ")
	switch {
	case m.config.dir != "":
		title = "Configuration " + filepath.Base(absolute(m.config.dir))
		from, err = m.asked(ctx)
	default:
		from, err = m.read(stdin, files)
	}
	if err != nil {
		return p, nil, err
	}
	if title == "-" {
		title = "Standard input"
	}
	if m.report != "" {
		report, err := readReport(stdin, m.report)
		if err != nil {
			return p, nil, err
		}
		from.report = &report
	}
	p = fleetmap.Of(title, from.fleet)
	p.Notes = from.notes
	if from.report == nil {
		return p, from.silent, nil
	}
	if p, err = p.With(*from.report, from.fleet); err != nil {
		return p, nil, fmt.Errorf("%s: %w", m.report, err)
	}
	return p, from.silent, nil
}

func absolute(dir string) string {
	if full, err := filepath.Abs(dir); err == nil {
		return full
	}
	return dir
}

// asked are the hosts of a configuration, as far as they answer.
func (m mapping) asked(ctx context.Context) (sources, error) {
	targets, err := m.config.targets()
	if err != nil {
		return sources{}, &codedError{code: exitBadUsage, err: err}
	}
	fleet, err := record(ctx, targets)
	if len(fleet.Hosts) == 0 {
		return sources{}, err
	}
	return sources{fleet: fleet, notes: silentText(err), silent: err}, nil
}

// read are the hosts of files.
func (m mapping) read(stdin io.Reader, files []string) (sources, error) {
	out := sources{fleet: gpu.Snapshot{Format: gpu.SnapshotFormat}}
	from := map[string]string{} // by folded name of a host
	for _, file := range files {
		raw, err := readSource(stdin, file)
		if err != nil {
			return out, err
		}
		if isReport(raw) {
			if len(files) > 1 || m.report != "" {
				return out, fmt.Errorf(
					"%s is a plan report: draw it alone, or name it with --report beside the fleet that it was made of", file)
			}
			report, err := parseReport(file, raw)
			if err == nil && len(report.Before.Hosts)+len(report.After.Hosts) == 0 {
				err = fmt.Errorf("%s has no hosts: its plan asked none", file)
			}
			out.report, out.fleet = &report, report.Before
			return out, err
		}
		s, err := gpu.ParseSnapshot(raw)
		if err != nil {
			return out, fmt.Errorf("%s: %w%s", file, err, cutOff(err))
		}
		for i := range s.Hosts {
			name := s.Hosts[i].Name
			if other, twice := from[gpu.FoldID(name)]; twice {
				return out, fmt.Errorf("host %q is in %s and in %s: draw one of them", name, other, file)
			}
			from[gpu.FoldID(name)] = file
		}
		out.fleet.Hosts = append(out.fleet.Hosts, s.Hosts...)
		out.notes = append(out.notes, recordedText(s, raw)...)
	}
	return out, nil
}

// silentText says of each host that did not answer why.
func silentText(err error) []string {
	if err == nil {
		return nil
	}
	lines := slices.Sorted(strings.Lines(err.Error()))
	return words.Each(lines, func(line string) string { return "Not drawn, since it did not answer: " + strings.TrimSpace(line) })
}

func readSource(stdin io.Reader, source string) ([]byte, error) {
	if source == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(source)
}

// isReport reports whether a document is a plan report, of whatever version.
func isReport(raw []byte) bool {
	var is struct {
		Format string `json:"format"`
	}
	return json.Unmarshal(raw, &is) == nil && strings.HasPrefix(is.Format, "gpu-plan-report/")
}

// cutOff ends the error about a document that ends too early.
func cutOff(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && strings.Contains(syntax.Error(), "unexpected end") {
		return "; the file is cut off: write it again"
	}
	return ""
}

// recordedText says when hosts were recorded, and which of them somebody has edited since.
func recordedText(s gpu.Snapshot, raw []byte) []string {
	var at []string
	for _, r := range s.Recorded {
		at = append(at, r.At.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if len(at) == 0 {
		return nil
	}
	out := []string{"Recorded at " + slices.Min(at) + "."}
	if last := slices.Max(at); last != slices.Min(at) {
		out = []string{"Recorded from " + slices.Min(at) + " to " + last + "."}
	}
	if edited, err := s.Edited(raw); err == nil && len(edited) > 0 {
		out = append(out, "Edited since it was recorded: "+words.JoinAll(edited)+".")
	}
	return out
}

// writeMapText writes a picture for people, as wide as their terminal if that is known.
func writeMapText(w io.Writer, p fleetmap.Picture) error {
	o := fleetmap.TextOptions{Width: 100}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		o.Width = n
	}
	// Colours are escape sequences, which plainly would write out; all names are printable in this text already.
	if hasColors(w) {
		w, o.Colours = uncolored(w), true
	}
	return fleetmap.Text(w, p, o)
}
