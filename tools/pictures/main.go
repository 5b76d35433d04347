// Command pictures draws the pictures of the documentation, by what `gpu-agent map` draws with, and writes the fleets and the plan
// reports that they are of, for the tests of the page.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleetmap"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

func main() {
	out := flag.String("out", "", "directory to write an SVG for each picture to")
	fleets := flag.String("fleets", "", "directory to write the fleets and reports to, as JSON")
	flag.Parse()
	if err := run(*out, *fleets); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// scene is a fleet, and what a plan makes of it; the latter is nil where there is no plan.
type scene struct {
	name, title string
	now         gpu.Snapshot
	report      *planreport.Report
}

func run(out, fleets string) error {
	for _, dir := range []string{out, fleets} {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	all, err := scenes()
	if err != nil {
		return err
	}
	if out != "" {
		if err := os.WriteFile(filepath.Join(out, "plan-to-host.svg"), []byte(planToHost()), 0o644); err != nil { //nolint:gosec // a picture
			return err
		}
	}
	for _, s := range all {
		if err := s.write(out, fleets); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (s scene) write(out, fleets string) error {
	if out != "" {
		p := fleetmap.Of(s.title, s.now)
		if s.report != nil {
			var err error
			if p, err = p.With(*s.report, s.now); err != nil {
				return err
			}
		}
		var b bytes.Buffer
		if err := fleetmap.SVG(&b, p); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, s.name+".svg"), b.Bytes(), 0o644); err != nil { //nolint:gosec // a picture
			return err
		}
	}
	if fleets == "" {
		return nil
	}
	var doc any = s.now
	if s.report != nil {
		doc = s.report
	}
	raw, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(fleets, s.name+".json"), raw, 0o600)
}
