package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/lint"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// exitFindings is the code of tflint for it, too.
const exitFindings = 2

func newCheck() *cobra.Command {
	formats := map[string]func(io.Writer, lint.Checked) error{"text": checkedText, "json": checkedJSON, "sarif": checkedSARIF}
	format := "text"
	cmd := &cobra.Command{
		Use:   "check [PATH]...",
		Short: "Find misspelt names in a Terraform configuration, which Terraform drops without a word",
		Long: `check reads the text of a Terraform configuration and compares each name in the blocks of the
provider gpu with those that the provider of this version has. Inside { } Terraform drops a name
that it does not know without a word, and neither a plan nor the provider can tell.

PATH is a folder, or a file of one; without it, the folder that this runs in. Local modules that
it calls and files of variables' values (terraform.tfvars, *.auto.tfvars) are read, too: an object
that a module's variable takes loses names in the same way. No host is asked, and nothing is run.
What only Terraform can work out, such as a variable without a type, is taken to be right.

Exit codes: 0 nothing was found, 2 something was, 1 a file cannot be read or is no configuration,
64 wrong use.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := formats[format]
			if !ok {
				which := words.Instead(format, slices.Collect(maps.Keys(formats)), "")
				return &codedError{code: exitBadUsage, err: fmt.Errorf("-o is %q. %s", format, which)}
			}
			folders, err := foldersOf(args)
			if err != nil {
				return err
			}
			checked, err := lint.Check(folders...)
			if err != nil {
				return err
			}
			if err := write(cmd.OutOrStdout(), checked); err != nil {
				return err
			}
			switch {
			case slices.ContainsFunc(checked.Findings, func(f lint.Finding) bool { return f.Rule == lint.Syntax }):
				return &codedError{code: exitFailed}
			case len(checked.Findings) > 0:
				return &codedError{code: exitFindings}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "text, json or sarif")
	return cmd
}

// foldersOf are the folders of paths, each once.
func foldersOf(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return []string{"."}, nil
	}
	var out []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			path = filepath.Dir(path)
		}
		if path = filepath.Clean(path); !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out, nil
}

func checkedText(out io.Writer, c lint.Checked) error {
	for _, f := range c.Findings {
		at := f.Range.Start
		if _, err := fmt.Fprintf(out, "%s:%d:%d: %s (%s)\n", f.Range.Filename, at.Line, at.Column, oneLine(f.Message), f.Rule); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%s in %s\n", words.Plural(len(c.Findings), "finding"), words.Plural(c.Files, "file"))
	return err
}

// oneLine keeps a message, which has names of the configuration in it, on its line.
func oneLine(text string) string { return gpu.Printable(strings.Join(strings.Fields(text), " ")) }

func checkedJSON(out io.Writer, c lint.Checked) error {
	type finding struct {
		Rule      string   `json:"rule"`
		File      string   `json:"file"`
		Line      int      `json:"line"`
		Column    int      `json:"column"`
		EndLine   int      `json:"end_line"`
		EndColumn int      `json:"end_column"`
		Of        string   `json:"of,omitempty"`
		Name      string   `json:"name,omitempty"`
		Meant     []string `json:"meant"`
		Message   string   `json:"message"`
	}
	document := struct {
		Format   string    `json:"format"`
		Files    int       `json:"files"`
		Findings []finding `json:"findings"`
	}{Format: "gpu-agent-check/v1", Files: c.Files, Findings: []finding{}}
	for _, f := range c.Findings {
		r := f.Range
		document.Findings = append(document.Findings, finding{
			f.Rule, r.Filename, r.Start.Line, r.Start.Column, r.End.Line, r.End.Column, f.Of, f.Name, append([]string{}, f.Meant...),
			oneLine(f.Message),
		})
	}
	return writeJSON(out, document)
}

// checkedSARIF is what code hosts show beside the lines of a change (SARIF 2.1.0).
func checkedSARIF(out io.Writer, c lint.Checked) error {
	type object map[string]any
	rules, results := []object{}, []object{}
	for _, rule := range []string{lint.Dropped, lint.Refused, lint.Syntax} {
		rules = append(rules, object{"id": rule, "shortDescription": object{"text": lint.About[rule]}})
	}
	for _, f := range c.Findings {
		r := f.Range
		results = append(results, object{
			"ruleId": f.Rule, "level": "error", "message": object{"text": oneLine(f.Message)},
			"locations": []object{{"physicalLocation": object{
				"artifactLocation": object{"uri": uri(f.Range.Filename)},
				"region": object{
					"startLine": r.Start.Line, "startColumn": r.Start.Column, "endLine": r.End.Line, "endColumn": max(r.End.Column, 1),
				},
			}}},
		})
	}
	return writeJSON(out, object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{
			"tool": object{"driver": object{
				"name": "gpu-agent", "semanticVersion": cmp.Or(version, "dev"), "rules": rules,
				"informationUri": "https://github.com/gpufleet/terraform-provider-gpu",
			}},
			"results": results,
		}},
	})
}

// uri names a file from the folder that this runs in, as code hosts expect it.
func uri(file string) string {
	if filepath.IsAbs(file) {
		if here, err := os.Getwd(); err == nil {
			if below, err := filepath.Rel(here, file); err == nil && filepath.IsLocal(below) {
				file = below
			}
		}
	}
	path := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		path.Scheme = "file"
	}
	return strings.TrimPrefix(path.String(), "./")
}
