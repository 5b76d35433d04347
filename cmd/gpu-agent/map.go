package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleetmap"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// mapping is what `map` is asked to draw.
type mapping struct {
	config, alias string
	varFiles      []string
	as            reader
	report        string
	output        string
}

// mapOutputs are the forms of a picture.
var mapOutputs = map[string]func(io.Writer, fleetmap.Picture) error{
	"text":     writeMapText,
	"svg":      fleetmap.SVG,
	"html":     fleetmap.HTML,
	"markdown": fleetmap.Markdown,
}

func newMap() *cobra.Command {
	m := mapping{}
	cmd := &cobra.Command{
		Use:   "map [SOURCE...]",
		Short: "Draw a fleet: hosts, GPUs, what they are cut into, who holds what",
		Long: `map draws hosts, their GPUs, and the partitions, MIG instances, vGPUs and shares of each to scale:
who holds what, whose it is, what is free, what nothing fits into, and why a GPU cannot be assigned.
It changes nothing. SOURCE is a fleet file, a recording (record), an inventory (inventory --json),
or - for standard input; several are drawn as one fleet. With --config, the hosts of a provider's
block are asked, as record does. --report adds what a plan makes of them, from the plan report that
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
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--output is %q; it must be text, svg, html or markdown%s",
					m.output, orNearest(m.output, []string{"text", "svg", "html", "markdown"}))}
			case m.config == "" && len(args) == 0:
				return &codedError{code: exitBadUsage, err: errors.New("nothing to draw: name a file, or a folder with --config")}
			case m.config != "" && len(args) > 0:
				return &codedError{code: exitBadUsage, err: errors.New("--config names the hosts: leave out the files")}
			}
			picture, err := m.picture(cmd.Context(), cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), picture)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&m.output, "output", "o", "text", "text, svg, html (one page, which asks nothing of any network) or markdown")
	flags.StringVar(&m.report, "report", "", "a plan report, to draw what the plan makes of the hosts")
	flags.StringVar(&m.config, "config", "", "a folder with the provider's configuration, whose hosts are asked")
	flags.StringVar(&m.alias, "alias", "", "with --config: the alias of the provider's block")
	flags.StringArrayVar(&m.varFiles, "var-file", nil, "with --config: a file with values of variables; may be repeated")
	flags.StringVar(&m.as.user, "user", "", "with --config: the user to log in as over SSH, instead of the configuration's")
	flags.StringVar(&m.as.keyFile, "key", "", "with --config: the reader's private key, instead of what the configuration logs in with")
	flags.StringVar(&m.as.certFile, "cert", "", "with --config: the reader's certificate for agents that listen; --key is its key")
	return cmd
}

// picture reads all that is to be drawn.
func (m mapping) picture(ctx context.Context, stdin io.Reader, sources []string) (fleetmap.Picture, error) {
	fleet, report, notes, err := m.hosts(ctx, stdin, sources)
	if err != nil {
		return fleetmap.Picture{}, err
	}
	title := strings.Join(words.Each(sources, filepath.Base), ", ")
	if m.config != "" {
		title = "Configuration " + filepath.Base(absolute(m.config))
	}
	if title == "-" {
		title = "Standard input"
	}
	if m.report != "" {
		raw, err := os.ReadFile(m.report)
		if err != nil {
			return fleetmap.Picture{}, err
		}
		if report, err = readReport(m.report, raw); err != nil {
			return fleetmap.Picture{}, err
		}
	}
	p := fleetmap.Of(title, fleet)
	p.Notes = notes
	if report == nil {
		return p, nil
	}
	if p, err = p.With(*report, fleet); err != nil {
		return p, fmt.Errorf("%s: %w", m.report, err)
	}
	return p, nil
}

func absolute(dir string) string {
	if full, err := filepath.Abs(dir); err == nil {
		return full
	}
	return dir
}

// hosts are those that are drawn, the report if that is what the only source is, and what there is to say of the sources.
func (m mapping) hosts(ctx context.Context, stdin io.Reader, sources []string) (gpu.Snapshot, *fleetmap.Report, []string, error) {
	all := gpu.Snapshot{Format: gpu.SnapshotFormat}
	if m.config != "" {
		targets, err := configured(m.config, m.alias, m.varFiles, m.as)
		if err != nil {
			return all, nil, nil, &codedError{code: exitBadUsage, err: err}
		}
		all, err = record(ctx, targets)
		return all, nil, nil, err
	}
	var notes []string
	from := map[string]string{} // by folded name of a host
	for _, source := range sources {
		raw, err := readSource(stdin, source)
		if err != nil {
			return all, nil, nil, err
		}
		if isReport(raw) {
			if len(sources) > 1 || m.report != "" {
				return all, nil, nil, fmt.Errorf(
					"%s is a plan report: draw it alone, or name it with --report beside the fleet that it was made of", source)
			}
			report, err := readReport(source, raw)
			if err != nil {
				return all, nil, nil, err
			}
			return report.Before, report, nil, nil
		}
		s, err := gpu.ParseSnapshot(raw)
		if err != nil {
			return all, nil, nil, fmt.Errorf("%s: %w%s", source, err, cutOff(err))
		}
		for _, h := range s.Hosts {
			if other, twice := from[gpu.FoldID(h.Name)]; twice {
				return all, nil, nil, fmt.Errorf("host %q is in %s and in %s: draw one of them", h.Name, other, source)
			}
			from[gpu.FoldID(h.Name)] = source
		}
		all.Hosts = append(all.Hosts, s.Hosts...)
		notes = append(notes, recordedText(s, raw)...)
	}
	return all, nil, notes, nil
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

func readReport(file string, raw []byte) (*fleetmap.Report, error) {
	report, err := fleetmap.ParseReport(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", file, err, cutOff(err))
	}
	return &report, nil
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
	if to, ok := w.(plainly); ok {
		if file, ok := to.Writer.(*os.File); ok && coloured(file) {
			w, o.Colours = to.Writer, true
		}
	}
	return fleetmap.Text(w, p, o)
}

// coloured reports whether a file is a terminal that shows colours.
func coloured(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
