package provider_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var updateTerminal = flag.Bool("update-terminal", false, "write testdata/terminal again (with TF_ACC)")

// What a person sees of a plan that disturbs something: every VM that is stopped is in the
// summary of a warning, so that no folding hides it, in at most three lines of ours; what
// disturbs nobody warns nobody; and an apply does not say again what its plan has said.
func TestEveryVMThatStopsIsNamed(t *testing.T) {
	t.Parallel()
	config := func(count int, more ...string) func(...string) string {
		return func(hosts ...string) string { return rig.ConfigOf(count, hosts, more...) }
	}
	for name, x := range map[string]struct {
		vms    int
		fleet  *gpu.Snapshot
		before func(names []string) string
		after  func(names []string) string
		stops  func(names []string) []string
		says   []string
	}{
		"1 VM":    {vms: 1, after: func(n []string) string { return rig.AssignAll(n, "") }},
		"12 VMs":  {vms: 12, after: func(n []string) string { return rig.AssignAll(n, "") }},
		"50 VMs":  {vms: 50, after: func(n []string) string { return rig.AssignAll(n, "") }},
		"destroy": {vms: 3, before: func(n []string) string { return rig.AssignAll(n, "") }, after: func([]string) string { return "" }},
		"left off": {
			vms: 1, after: func(n []string) string {
				return strings.Replace(rig.AssignAll(n, ""), "allow_shutdown = true", `allow_shutdown = true, start_after = "never"`, 1)
			}, says: []string{"is shut down and left off"},
		},
		"two resources swap their VMs": {
			vms:    2,
			before: func(n []string) string { return swapped(n[0], n[1]) },
			after:  func(n []string) string { return swapped(n[1], n[0]) },
			stops:  nobody, // who is stopped depends on Terraform's order, and is named
		},
		"a shrink": {
			vms:    12,
			before: func(n []string) string { return config(16)("hv01") + rig.AssignAll(n, "") },
			after: func(n []string) string {
				return config(8, `max_disruption = "vm_restart"`)("hv01") + rig.AssignAll(n, "")
			},
			says: []string{"16 → 8 partitions", "2 GPUs (NVIDIA A2)"},
		},
		"a drain": {
			fleet: func() *gpu.Snapshot {
				s := migrating()
				s.Hosts[2].GPUs[0].Partitionable.SupportsIncomingLiveMigration = nil
				s.Hosts[2].GPUs[1].Partitionable.SupportsIncomingLiveMigration = nil
				return &s
			}(),
			before: func([]string) string { return rig.ConfigOf(16, three, draining) + everyVM() },
			after: func([]string) string {
				return rig.ConfigOf(8, three, draining, `max_disruption = "vm_restart"`) + everyVM()
			},
			stops: func([]string) []string { return []string{"avd-05", "avd-06"} },
			says:  []string{"drains the node", "avd-01 and avd-02", "The node is not drained: "},
		},
		"idle GPUs": {
			vms: 2, after: func([]string) string { return config(8)("hv01") }, stops: nobody,
		},
		"a pool that dismounts": {
			vms: 1, after: func([]string) string {
				return "resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { hv01 = [\"" + rig.GPU0 + "\", \"" + rig.GPU1 + "\"] }\n}\n"
			}, stops: nobody, says: []string{`hv01: gpu_pool "hv01/render" dismounts 2 GPUs from the host`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet, names := rig.Desktops(x.vms)
			if x.fleet != nil {
				fleet = *x.fleet
			}
			r := rig.New(t, fleet)
			c := rig.NewCLI(t, r.Block("max_concurrent_vm_stops = 50")+text(x.before, names))
			if x.before != nil {
				c.Apply()
			}
			stops := names
			if x.stops != nil {
				stops = x.stops(names)
			}
			c.Write(r.Block("max_concurrent_vm_stops = 50") + text(x.after, names))
			out := c.Ok("plan", "-out=approved")
			boxes := warnings(out)
			if c.Terminal == nil { // what a person sees, in lines of 78 columns
				printed, _ := c.Printed("plan")
				boxes = warnings(printed)
				if !strings.Contains(name, "swap") { // whose words go by Terraform's order
					golden(t, name, boxes)
				}
			}
			rig.WantSaid(t, out, x.says...)
			for _, vm := range stops {
				if !named(boxes, vm) {
					t.Errorf("no summary names %s", vm)
				}
			}
			lines := 0
			for _, b := range boxes {
				lines += ours(b)
			}
			if name == "idle GPUs" && lines > 0 || len(stops) > 2 && lines > 3*len(stops) {
				t.Errorf("%d lines for %d VMs:\n%s", lines, len(stops), strings.Join(boxes, "\n"))
			}
			for _, h := range r.Snapshot().Hosts {
				for _, vm := range h.VMs {
					if !named(boxes, vm.Name) { // then nothing may stop it
						r.NeverStops(vm.Name, h.Name)
					}
				}
			}
			said := warnings(c.Ok("apply", "approved"))
			if len(said) > 10 { // those that Terraform plans again before it changes anything
				t.Errorf("the apply repeats %d warnings:\n%s", len(said), strings.Join(said, "\n"))
			}
			if strings.Contains(strings.Join(said, "\n"), "will be shut down") {
				t.Errorf("the apply speaks of the future:\n%s", strings.Join(said, "\n"))
			}
			c.WantNoChanges()
		})
	}
}

func nobody([]string) []string { return nil }

func text(f func([]string) string, names []string) string {
	if f == nil {
		return ""
	}
	return f(names)
}

func swapped(a, b string) string {
	return rig.AssignmentOf("a", a, rig.AnyPartition, rig.MayStop) + rig.AssignmentOf("b", b, rig.AnyPartition, rig.MayStop)
}

// warnings are the warnings of an output, sorted, since Terraform prints them in any order.
func warnings(out string) []string {
	var boxes []string
	for _, b := range regexp.MustCompile(`(?m)^(?:│ )?Warning: `).Split(out, -1)[1:] {
		b, _, _ = strings.Cut(b, "╵")
		if strings.HasPrefix(b, "Provider development overrides") {
			continue
		}
		var lines []string
		for line := range strings.Lines(b) {
			if rest, framed := strings.CutPrefix(line, "│"); framed {
				line = strings.TrimPrefix(rest, " ")
			}
			lines = append(lines, strings.TrimRight(line, " \n"))
		}
		boxes = append(boxes, "Warning: "+strings.TrimSpace(strings.Join(lines, "\n")))
	}
	slices.Sort(boxes)
	return boxes
}

// named reports whether the summary of a warning says that a VM is shut down.
func named(boxes []string, vm string) bool {
	return slices.ContainsFunc(boxes, func(b string) bool {
		return regexp.MustCompile(`^Warning: hv\d\d: VMs? .*\b` + vm + `\b.* shut down`).MatchString(rig.Sentence(b))
	})
}

// ours counts the lines of a warning that are not Terraform's frame: where it is in the
// configuration, and what is empty.
func ours(box string) int {
	n := 0
	for line := range strings.Lines(box) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "  ") {
			n++
		}
	}
	return n
}

// golden holds the warnings of a plan to what a person has read, as the real CLI prints them.
func golden(t *testing.T, name string, boxes []string) {
	t.Helper()
	if strings.Contains(filepath.Base(rig.CLIPath(t)), "tofu") {
		return
	}
	path := filepath.Join("testdata", "terminal", strings.ReplaceAll(name, " ", "_")+".golden")
	// Which of two VMs is named as the one that cannot migrate goes by who got its partition first.
	got := strings.ReplaceAll(strings.Join(boxes, "\n\n")+"\n", `partition of VM "avd-05" cannot`, `partition of VM "avd-06" cannot`)
	if *updateTerminal {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}
