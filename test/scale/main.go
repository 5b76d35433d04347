//go:build unix

// Command scale measures a real CLI with the provider on simulated hosts, beside the same number
// of terraform_data, and of a resource with the same attributes that does nothing, in the same
// run. It prints a table: the CPU of the CLI with its provider, and as ratios to terraform_data that
// of both, of the CLI without its provider, and of the empty resource, with the logs that the plugin
// SDK formats by itself and without; then the provider's own share, its start included. Seconds
// are of this machine; ratios compare.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/empty"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func main() {
	if filepath.Base(os.Args[0]) == emptyProvider {
		err := providerserver.Serve(context.Background(), func() provider.Provider { return empty.Provider{} },
			providerserver.ServeOpts{Address: "registry.terraform.io/gpufleet/empty"})
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	if behind := os.Getenv(realProvider); behind != "" {
		os.Exit(stand(behind))
	}
	cli := flag.String("cli", "terraform", "the CLI")
	ours := flag.String("provider", "bin/terraform-provider-gpu", "the provider")
	sizes := flag.String("sizes", "100/10,1000/40", "how many assignments on how many hosts")
	runs := flag.Int("runs", 3, "how often a plan is measured; the median counts")
	beside := flag.Bool("beside", true, "measure the empty resource too, which takes as long again with each kind of logs")
	flag.Parse()
	var failed []string
	for size := range strings.SplitSeq(*sizes, ",") {
		var n, hosts int
		if _, err := fmt.Sscanf(size, "%d/%d", &n, &hosts); err != nil || hosts < 1 || n < hosts || n > 256*hosts {
			log.Fatalf("%q is no ASSIGNMENTS/HOSTS, with at most 256 assignments on a host", size)
		}
		below, err := measure(*cli, *ours, n, hosts, *runs, *beside)
		if err != nil {
			log.Fatal(err)
		}
		if !below {
			failed = append(failed, size)
		}
	}
	if len(failed) > 0 {
		log.Fatalf("%s: a plan with nothing to do takes more than %.2f times the CPU of an empty resource without logs",
			strings.Join(failed, ", "), mostBeside)
	}
}

// While a CLI runs, this program stands in the provider's place: it starts the provider under its
// own name, and notes what that has cost.
const (
	realProvider = "SCALE_PROVIDER"
	noteOf       = "SCALE_NOTE"
)

func stand(in string) int {
	cmd := exec.CommandContext(context.Background(), in, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		log.Print(err)
		return 1
	}
	note, err := os.OpenFile(os.Getenv(noteOf), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		memory := int64(0)
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			memory = usage.Maxrss
		}
		_, err = fmt.Fprintln(note, int64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()), memory)
		err = errors.Join(err, note.Close())
	}
	if err != nil {
		log.Print(err)
	}
	return max(cmd.ProcessState.ExitCode(), 0)
}

// cost is what commands took: the CLI and its providers.
type cost struct {
	CPU, wall time.Duration
	provider  time.Duration // the part of CPU that is the provider's
	memory    int64         // of the largest process, in KiB
	own       int64         // of the largest of the provider's
}

// folder is a directory in which the CLI runs.
type folder struct {
	cli, dir string
	env      []string
}

func (f folder) run(args ...string) (cost, error) {
	cmd := exec.CommandContext(context.Background(), f.cli, args...)
	note := filepath.Join(f.dir, "provider.cpu")
	_ = os.Remove(note)
	cmd.Dir, cmd.Env = f.dir, append(slices.Clone(f.env), noteOf+"="+note)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out[max(0, len(out)-4000):])
	}
	c := cost{CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), wall: time.Since(began)}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.memory = usage.Maxrss
	}
	notes, _ := os.ReadFile(note) // none of terraform_data
	for line := range strings.Lines(string(notes)) {
		var ns, memory int64
		if _, err := fmt.Sscan(line, &ns, &memory); err != nil {
			return c, err
		}
		c.provider, c.own = c.provider+time.Duration(ns), max(c.own, memory)
	}
	return c, nil
}

// median runs a command several times. The CPU decides.
func (f folder) median(runs int, args ...string) (cost, error) {
	var all []cost
	for range runs {
		c, err := f.run(args...)
		if err != nil {
			return c, err
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b cost) int { return int(a.CPU - b.CPU) })
	return all[len(all)/2], nil
}

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// emptyProvider is the file name of the empty provider.
const emptyProvider = "terraform-provider-empty"

// atMost is how many instances one resource has, as the performance guide advises.
const atMost = 1000

// resources declares n instances. They have a number each, count.index after what first says.
func resources(n int, declare func(i, count int, first string) string) string {
	var out strings.Builder
	for i := 0; i*atMost < n; i++ {
		out.WriteString(declare(i, min(atMost, n-i*atMost), fmt.Sprintf("%d + count.index", i*atMost+1)))
	}
	return out.String()
}

func plainConfig(n int) string {
	return resources(n, func(i, count int, first string) string {
		return fmt.Sprintf("resource \"terraform_data\" \"x%d\" {\n  count = %d\n  input = tostring(%s)\n}\n", i, count, first)
	})
}

// emptyConfig has as many empty resources as there are VMs.
func emptyConfig(vms int) string {
	return `terraform {
  required_providers {
    empty = { source = "gpufleet/empty" }
  }
}
` + resources(vms, func(i, count int, first string) string {
		return fmt.Sprintf(`resource "empty_assignment" "x%d" {
  count     = %d
  vm        = tostring(%s)
  partition = {}
}
`, i, count, first)
	})
}

// ourConfig has one partition config for all hosts. Its id is a local value: the CLI decodes all of
// a resource for each reference to it.
func ourConfig(fleet gpu.Snapshot, vms int) string {
	var hosts []string
	for _, h := range fleet.Hosts {
		hosts = append(hosts, strconv.Quote(h.Name))
	}
	return fmt.Sprintf(`terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}
provider "gpu" {
  owner           = "scale"
  simulated_fleet = "fleet.json"
}
resource "gpu_partition_config" "vdi" {
  name  = "vdi"
  hosts = [%s]
  gpu_p = { partition_count = 16 }
}
locals { vdi = gpu_partition_config.vdi.id }
`, strings.Join(hosts, ", ")) + resources(vms, func(i, count int, first string) string {
		return fmt.Sprintf(`resource "gpu_vm_assignment" "avd%d" {
  count     = %d
  vm        = format("avd-%%05d", %s)
  partition = { config = local.vdi }
}
`, i, count, first)
	})
}

const (
	nothingToDo = "plan, nothing to do"
	mostBeside  = 0.95 // of the empty resource without logs; 0.54 to 0.62 was measured on an idle machine, up to 0.85 on a busy one
)

// measure prints the table of a size. below is that a plan with nothing to do takes at most mostBeside,
// as far as that is asked.
func measure(cli, of string, n, hosts, runs int, beside bool) (below bool, err error) {
	dir, err := os.MkdirTemp("", "gpu-scale")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if of, err = filepath.Abs(of); err != nil {
		return false, err
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	rc := filepath.Join(dir, "cli.rc")
	err = errors.Join(
		write(dir, "cli.rc",
			fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n  \"gpufleet/empty\" = %[1]q\n }\n direct {}\n}\n",
				dir)),
		os.Symlink(self, filepath.Join(dir, "terraform-provider-gpu")), os.Symlink(self, filepath.Join(dir, emptyProvider)),
		os.Mkdir(filepath.Join(dir, "ours"), 0o700), os.Mkdir(filepath.Join(dir, "plain"), 0o700), os.Mkdir(filepath.Join(dir, "empty"), 0o700),
		os.Mkdir(filepath.Join(dir, "quiet"), 0o700),
	)
	if err != nil {
		return false, err
	}
	env := append(os.Environ(), realProvider+"="+of, "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1",
		"TF_INPUT=0", "TF_CLI_ARGS=-no-color", "CHECKPOINT_DISABLE=1", "TF_LOG=")
	ours, plain, bare := folder{cli, filepath.Join(dir, "ours"), env}, folder{cli, filepath.Join(dir, "plain"), env},
		folder{cli, filepath.Join(dir, "empty"), env}
	quiet := folder{cli, filepath.Join(dir, "quiet"), append(slices.Clone(env), "TF_LOG_SDK=OFF")}
	fleet := fleetOf(n, hosts)
	if _, err := simulated.Create(filepath.Join(ours.dir, "fleet.json"), fleet); err != nil {
		return false, err
	}
	// With count: a for_each has Terraform evaluate its whole set again for each instance, which
	// outweighs all else from 1,000 on.
	config := func(vms int) error { return write(ours.dir, "main.tf", ourConfig(fleet, vms)) }
	err = errors.Join(config(n), write(plain.dir, "main.tf", plainConfig(n+1)), write(bare.dir, "main.tf", emptyConfig(n)),
		write(quiet.dir, "main.tf", emptyConfig(n)))
	if err != nil {
		return false, err
	}
	fmt.Printf("%d assignments on %d hosts; %s\n%-22s %9s %9s %7s %7s %7s %7s %10s %8s %9s %9s\n", n, hosts, filepath.Base(cli), "",
		"CPU", "wall", "ratio", "CLI", "empty", "quiet", "provider", "each", "peak MiB", "provider")
	if _, err := plain.run("init"); err != nil {
		return false, err
	}
	for _, x := range []struct {
		what   string
		runs   int
		before func() error
		args   []string
	}{
		{"first plan", runs, nil, []string{"plan"}},
		{"apply", 1, nil, []string{"apply", "-auto-approve"}},
		{nothingToDo, runs, nil, []string{"plan", "-detailed-exitcode"}},
		{"refresh only", runs, nil, []string{"plan", "-refresh-only"}},
		{"plan, one VM less", runs, func() error { return config(n - 1) }, []string{"plan"}},
		{"destroy", 1, func() error { return config(n) }, []string{"destroy", "-auto-approve"}},
	} {
		if x.before != nil {
			if err := x.before(); err != nil {
				return false, err
			}
		}
		base, err := plain.median(x.runs, x.args...)
		if err != nil {
			return false, err
		}
		c, err := ours.median(x.runs, x.args...)
		if err != nil {
			return false, err
		}
		var none, floor cost
		if beside {
			if none, err = bare.median(x.runs, x.args...); err != nil {
				return false, err
			}
			if floor, err = quiet.median(x.runs, x.args...); err != nil {
				return false, err
			}
		}
		if x.what == nothingToDo {
			below = !beside || c.CPU.Seconds() < mostBeside*floor.CPU.Seconds()
		}
		ratio := func(d time.Duration) string {
			if d == 0 {
				return "-" // not asked
			}
			return fmt.Sprintf("%.1f", d.Seconds()/base.CPU.Seconds())
		}
		fmt.Printf("%-22s %8.2fs %8.2fs %7s %7s %7s %7s %9.2fs %6.1fms %9d %9d\n", x.what, c.CPU.Seconds(), c.wall.Seconds(),
			ratio(c.CPU), ratio(c.CPU-c.provider), ratio(none.CPU), ratio(floor.CPU), c.provider.Seconds(),
			c.provider.Seconds()*1000/float64(n), c.memory/1024, c.own/1024)
	}
	return below, nil
}

// fleetOf are hosts with two GPUs each, or as many as it takes, and VMs that are off, spread
// over them.
func fleetOf(n, hosts int) gpu.Snapshot {
	nodes := make([]gpu.Host, hosts)
	for i := range nodes {
		nodes[i] = rig.Node(fmt.Sprintf("hv%04d", i+1))
		for j := 2; j*16*hosts < n; j++ { // 16 partitions each
			g, path := rig.A2(rig.GPU0), fmt.Sprintf("4&%x&0&0000", j)
			g.ID = fmt.Sprintf("PCIROOT(%02X)#PCI(0000)#PCI(0000)", j)
			g.InstancePath, g.Partitionable.Name = g.InstancePath+path, g.Partitionable.Name+path
			nodes[i].GPUs = append(nodes[i].GPUs, g)
		}
	}
	for i := range n {
		name := fmt.Sprintf("avd-%05d", i+1)
		h := &nodes[i%hosts]
		h.VMs = append(h.VMs, rig.Off(rig.Desktop(name, i+1)))
	}
	return rig.Standalone(nodes...)
}
