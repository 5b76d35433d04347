package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func newExplain() *cobra.Command {
	var width int
	formats := map[string]func(io.Writer, planreport.Explanation) error{
		"text": func(out io.Writer, e planreport.Explanation) error {
			return e.Text(uncolored(out), planreport.TextOptions{Width: widthOf(width), Color: hasColors(out)})
		},
		"markdown": func(out io.Writer, e planreport.Explanation) error {
			_, err := io.WriteString(out, e.Markdown())
			return err
		},
		"json": func(out io.Writer, e planreport.Explanation) error { return writeJSON(out, e) },
	}
	format := "text"
	cmd := &cobra.Command{
		Use:   "explain REPORT",
		Short: "Explain a plan report: what changes on which host, who is off when, and what a failure leaves",
		Long: `explain reads a plan report, which the provider writes where plan_report or GPU_PLAN_REPORT says, and
tells for each host what changes, from what to what, which VMs are off for it, in which order and how
long at most, whose processes end, what is reset, and what stays as it is. No host is asked.

REPORT is a file, or - for standard input. With -o markdown it is a comment for a pull request, of at
most 60,000 characters; with -o json it is for programs.

In a terminal it has colours, unless NO_COLOR is set. Lines are as wide as COLUMNS or --width say.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := formats[format]
			if !ok {
				which := words.Instead(format, slices.Collect(maps.Keys(formats)), "")
				return &codedError{code: exitBadUsage, err: fmt.Errorf("-o is %q. %s", format, which)}
			}
			if width < 0 {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--width is %d, but must not be negative", width)}
			}
			report, err := readReport(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), planreport.Explain(report))
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "text, markdown or json")
	cmd.Flags().IntVar(&width, "width", 0, "how wide lines of text are; 0 is COLUMNS, or 100")
	return cmd
}

// readReport reads a plan report from a file, or from in.
func readReport(in io.Reader, file string) (planreport.Report, error) {
	raw, err := readSource(in, file)
	if err != nil {
		return planreport.Report{}, err
	}
	return parseReport(file, raw)
}

func parseReport(file string, raw []byte) (planreport.Report, error) {
	if file == "-" {
		file = "standard input"
	}
	report, err := planreport.Parse(raw)
	if err != nil {
		return report, fmt.Errorf("%s is no plan report that can be read: %w", file, err)
	}
	return report, nil
}

// usualWidth is how wide text is where nothing says so.
const usualWidth = 100

func widthOf(flag int) int {
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	return cmp.Or(flag, max(0, columns), usualWidth)
}

// uncolored is where a command prints what is printable already, so that colours reach the terminal.
func uncolored(out io.Writer) io.Writer {
	if p, ok := out.(plainly); ok {
		return p.Writer
	}
	return out
}

// hasColors reports whether a command prints to a terminal that shows colours, and nobody has turned them off (no-color.org).
func hasColors(out io.Writer) bool {
	f, ok := uncolored(out).(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
