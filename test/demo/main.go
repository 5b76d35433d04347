// Command demo applies an example on its simulated fleet with the provider that was
// just built, shows what changed on the fleet, plans again, destroys, and checks
// that the fleet is as it was. It changes only a copy of the example.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func main() {
	var d demo
	flag.StringVar(&d.cli, "cli", "terraform", "path of terraform or tofu")
	flag.StringVar(&d.provider, "provider", "bin/terraform-provider-gpu", "path of the provider")
	flag.StringVar(&d.example, "example", "examples/azure-local-vdi", "directory of the example, with a fleet.json")
	flag.Parse()
	d.out = os.Stdout
	if err := d.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "\nThe demo failed:", err)
		os.Exit(1)
	}
}

// demo is one run through an example.
type demo struct {
	cli, provider, example string

	out   io.Writer
	dir   string // the copy of the example
	start time.Time
}

func (d *demo) run(ctx context.Context) (err error) {
	d.start = time.Now()
	tmp, err := os.MkdirTemp("", "gpu-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	d.dir = filepath.Join(tmp, "example")
	if err := os.CopyFS(d.dir, os.DirFS(d.example)); err != nil {
		return err
	}
	tf, err := newCLI(d.cli, d.dir, tmp, d.provider)
	if err != nil {
		return err
	}
	before, err := d.fleet()
	if err != nil {
		return err
	}

	d.title("Plan: what will change, before anything is touched")
	if _, err := tf.run(ctx, nil, "init", "-input=false"); err != nil {
		return err
	}
	if _, err := tf.run(ctx, d.out, "plan", "-input=false", "-out=plan.out"); err != nil {
		return err
	}
	planned, err := d.fleet()
	if err != nil {
		return err
	}
	if changes := diff(before, planned); len(changes) > 0 {
		return fmt.Errorf("the plan changed the fleet:\n%s", strings.Join(changes, "\n"))
	}

	d.title("Apply")
	if _, err := tf.run(ctx, d.out, "apply", "-input=false", "plan.out"); err != nil {
		return err
	}
	after, err := d.fleet()
	if err != nil {
		return err
	}
	if len(diff(before, after)) == 0 {
		return errors.New("the apply changed nothing on the fleet")
	}
	d.title("What changed on the fleet")
	report(d.out, before, after)

	d.title("Plan again")
	second, err := tf.run(ctx, d.out, "plan", "-input=false", "-detailed-exitcode")
	if err != nil {
		return fmt.Errorf("the second plan is not empty: %w", err)
	}
	if !strings.Contains(second, "No changes.") {
		return errors.New(`the second plan does not say "No changes"`)
	}

	d.title("Destroy")
	destroyed, err := tf.run(ctx, nil, "destroy", "-input=false", "-auto-approve")
	if err != nil {
		return err
	}
	fmt.Fprintln(d.out, lastLine(destroyed))
	end, err := d.fleet()
	if err != nil {
		return err
	}
	if left := diff(before, end); len(left) > 0 {
		return fmt.Errorf("destroy left the fleet otherwise than it was:\n%s", strings.Join(left, "\n"))
	}
	fmt.Fprintf(d.out, "The fleet is as it was: the same partitions, the same VMs running, no claims. (%.1f s)\n",
		time.Since(d.start).Seconds())
	return nil
}

// fleet reads the fleet file of the copy.
func (d *demo) fleet() (gpu.Snapshot, error) {
	data, err := os.ReadFile(filepath.Join(d.dir, "fleet.json"))
	if err != nil {
		return gpu.Snapshot{}, err
	}
	return gpu.ParseSnapshot(data)
}

func (d *demo) title(text string) {
	fmt.Fprintf(d.out, "\n%s\n%s\n\n", text, strings.Repeat("─", len(text)))
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
