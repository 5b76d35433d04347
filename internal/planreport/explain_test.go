package planreport_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

var update = flag.Bool("update", false, "write the explanations in testdata again")

// host is one with two divided GPUs and some VMs that run.
func host(name string, count int, vms ...string) gpu.Host {
	h := gpu.Host{Name: name, Platform: gpu.HyperV}
	for i := range 2 {
		each := uint64(16<<30) / uint64(count)
		h.GPUs = append(h.GPUs, gpu.GPU{ID: fmt.Sprintf("PCIROOT(1%d)", i), Model: "NVIDIA A2", Partitionable: &gpu.Partitionable{
			Count: count, VRAM: gpu.Capacity{Min: each, Max: each},
		}})
	}
	for i, vm := range vms {
		h.VMs = append(h.VMs, gpu.VM{ID: fmt.Sprintf("%s-%d", name, i), Name: vm, State: gpu.VMRunning})
	}
	return h
}

func counts(h gpu.Host, to int) []planreport.GPU {
	var out []planreport.GPU
	for i := range h.GPUs {
		out = append(out, planreport.GPU{ID: h.GPUs[i].ID, From: h.GPUs[i].Layout(), To: gpu.Layout{Partitions: to}})
	}
	return out
}

func off(h gpu.Host, i int) []planreport.Stop {
	return []planreport.Stop{{VM: h.VMs[i].Name, VMID: h.VMs[i].ID, Host: h.Name, StartsAgain: true, ShutdownSeconds: 300}}
}

// usual is a report with one of everything.
func usual() planreport.Report {
	one, two, idle := host("hv01", 16, "avd-01", "avd-02", "db"), host("hv02", 16, "avd-03"), host("hv03", 4, "web")
	r := planreport.Report{
		Format: planreport.Format, Complete: true, Owner: "vdi-prod", PlannedAt: time.Date(2026, 11, 27, 15, 20, 0, 0, time.UTC),
		Before: gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{one, two, idle}},
		After: gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{
			host("hv01", 4, "avd-01", "avd-02", "db"), host("hv02", 4, "avd-03"), idle,
		}},
	}
	config := planreport.Change{
		Type: "gpu_partition_config", Label: `gpu_partition_config "vdi"`, Action: planreport.Update, Host: "hv01", GPUs: counts(one, 4), Turn: 1,
		Stops: off(one, 0), LimitSeconds: 1800, OnFailure: "rollback",
		Steps: []string{"shut down VM avd-01", "set 4 partitions", "start VM avd-01"},
	}
	next := config
	next.Host, next.Turn, next.Stops, next.GPUs = "hv02", 2, nil, counts(two, 4)
	next.Ends = []planreport.End{{PID: 4003, Name: "python", GPU: "PCIROOT(10)"}}
	next.Resets = []string{"PCIROOT(10)"}
	assign := planreport.Change{
		Type: "gpu_vm_assignment", Label: `gpu_vm_assignment for VM "avd-01"`, Action: planreport.Create, Host: "hv01", Turn: 3,
		Stops: off(one, 0), LimitSeconds: 1200, Steps: []string{"shut down VM avd-01", "give VM avd-01 a partition", "start VM avd-01"},
	}
	other := assign
	other.Label, other.Turn, other.Stops = `gpu_vm_assignment for VM "avd-02"`, 4, off(one, 1)
	r.Changes = []planreport.Change{
		config, next, assign, other,
		{Type: "gpu_pool", Label: `gpu_pool "render"`, Action: planreport.Update, Host: "hv02", Turn: 1, PolicyOnly: true},
	}
	r.Findings = []planreport.Finding{
		{Rule: "live-migration-support", Level: "warning", Host: "hv01", Subject: config.Label, Found: "These GPUs do not report it."},
	}
	return r
}

func text(t *testing.T, r planreport.Report, o planreport.TextOptions) string {
	t.Helper()
	var b strings.Builder
	if err := planreport.Explain(r).Text(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The explanations in testdata are read by a person.
func TestExplanations(t *testing.T) {
	t.Parallel()
	refused := usual()
	refused.Complete = false
	refused.Incomplete = []string{"Host hv04 did not answer.", "The plan has errors, so that nothing of it can be applied."}
	refused.Findings = append(refused.Findings, planreport.Finding{
		Rule: "capacity", Level: "error", Subject: refused.Changes[3].Label, Found: "There is no free partition on host \"hv01\".",
	})
	refused.Changes[3] = planreport.Change{
		Type: "gpu_vm_assignment", Label: refused.Changes[3].Label, Action: planreport.Create, Host: "hv01", Turn: 4,
		Refused: "There is no free partition on host \"hv01\".",
	}
	nothing := usual()
	nothing.Changes, nothing.Findings, nothing.After = nil, nil, nothing.Before
	for name, r := range map[string]planreport.Report{"usual": usual(), "refused": refused, "nothing": nothing} {
		for as, got := range map[string]string{
			".txt": text(t, r, planreport.TextOptions{Width: 100}), ".md": planreport.Explain(r).Markdown(),
		} {
			file := filepath.Join("testdata", name+as)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got), -update writes it again:\n%s", file, diff)
			}
		}
	}
}

// Lines are as wide as is asked for, where no word is wider, and have colours where these are.
func TestTextIsForATerminal(t *testing.T) {
	t.Parallel()
	for _, width := range []int{20, 40, 80, 100} {
		for line := range strings.Lines(text(t, usual(), planreport.TextOptions{Width: width})) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width && len(strings.Fields(line)) > 1 {
				t.Errorf("width %d: a line has %d: %q", width, n, line)
			}
		}
	}
	if got := text(t, usual(), planreport.TextOptions{}); strings.Contains(got, "\x1b") {
		t.Error("it has colours without")
	}
	if got := text(t, usual(), planreport.TextOptions{Color: true}); !strings.Contains(got, "\x1b[33m    Off") {
		t.Errorf("it has no colours:\n%s", got)
	}
}

// However large the fleet, a comment has room for the Markdown, which says what it leaves out.
func TestMarkdownFitsIntoAComment(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ hosts, changes int }{{1, 5_000}, {1_000, 10}, {3_000, 1}, {40, 40}} {
		r := usual()
		one := r.Changes[0]
		r.Changes, r.Findings = nil, nil
		for i := range size.hosts {
			for k := range size.changes {
				c := one
				c.Host, c.Turn, c.Label = fmt.Sprintf("hv%04d", i), k+1, fmt.Sprintf("gpu_partition_config %q", strings.Repeat("ü", 40)+fmt.Sprint(k))
				r.Changes = append(r.Changes, c)
				r.Findings = append(r.Findings, planreport.Finding{Level: "warning", Subject: c.Label, Found: strings.Repeat("x", 700)})
				r.Incomplete = append(r.Incomplete, strings.Repeat("y", 300))
			}
		}
		r.Complete = false
		got := planreport.Explain(r).Markdown()
		if n := utf8.RuneCountInString(got); n > planreport.MostMarkdown {
			t.Errorf("%+v: it has %d characters", size, n)
		}
		if whole := strings.Count(got, "<details>") == strings.Count(got, "</details>"); !whole {
			t.Errorf("%+v: something is cut off", size)
		}
		if size.hosts >= 1_000 && !strings.Contains(got, "left out for their length") {
			t.Errorf("%+v: it does not say what it leaves out", size)
		}
	}
}

// Names of others steer no terminal, and are no markup, no links and no mentions.
func TestHostileNamesAreOnlyNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a\x1b[2Jb", "a\nturn 1: delete all", "<img src=x onerror=alert(1)>", "[x](https://example.org)", "@everyone", "`` ` ``",
		"</details><b>", "a|b", "**bold**", "\u202eevil", "x #1", "gpu_pool @you",
	} {
		r := usual()
		r.Owner, r.Incomplete, r.Complete = name, []string{name}, false
		for i := range r.Changes {
			c := &r.Changes[i]
			all := []string{name}
			c.Label, c.Moves, c.Resets, c.Steps, c.Dismounts, c.Drains = name, all, all, all, all, all
			c.Stops, c.Ends = []planreport.Stop{{VM: name, VMID: name}}, []planreport.End{{Name: name}}
			for k := range c.GPUs {
				c.GPUs[k].ID = name
			}
		}
		r.Changes[2].Refused, r.Changes[3].Host = name, name
		r.Findings = []planreport.Finding{{Rule: name, Level: "error", Subject: name, Found: name}}
		r.Before.Hosts[0].GPUs[1].Model, r.Before.Hosts[0].VMs[2].Name, r.Before.Hosts[2].Name = name, name, "x"+name
		plain, md := text(t, r, planreport.TextOptions{Width: 80}), planreport.Explain(r).Markdown()
		for as, got := range map[string]string{"text": plain, "markdown": md} {
			if i := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && r != '\u2060' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%s of %q has %q", as, name, got[i:min(len(got), i+8)])
			}
			if strings.Contains(got, "\nturn 1: delete all") {
				t.Errorf("%s of %q has a line of it", as, name)
			}
		}
		outside := withoutCode(md)
		for _, markup := range []string{"<img", "](", "@everyone", "@you", "</details><b>", "**bold**"} {
			if strings.Contains(outside, markup) {
				t.Errorf("the Markdown of %q has %q:\n%s", name, markup, outside)
			}
		}
	}
}

// withoutCode leaves the code spans of Markdown out.
func withoutCode(md string) string {
	var b strings.Builder
	for rest := md; rest != ""; {
		if code, is := strings.CutPrefix(rest, "<code>"); is {
			_, rest, _ = strings.Cut(code, "</code>")
			continue
		}
		if rest[0] == '\\' && len(rest) > 1 {
			b.WriteByte(' ') // a character, and no markup
			rest = rest[2:]
			continue
		}
		fence := rest[:len(rest)-len(strings.TrimLeft(rest, "`"))]
		if fence == "" {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		rest = rest[len(fence):]
		for at := 0; ; {
			i := strings.Index(rest[at:], fence)
			if i < 0 {
				break
			}
			end := at + i
			run := len(rest[end:]) - len(strings.TrimLeft(rest[end:], "`"))
			if run == len(fence) {
				rest = rest[end+run:]
				break
			}
			at = end + run
		}
	}
	return b.String()
}

// The explanation is a document, too.
func TestExplanationAsJSON(t *testing.T) {
	t.Parallel()
	e := planreport.Explain(usual())
	want := planreport.Summary{Resources: 4, Hosts: 2, GPUs: 4, VMsOff: 2, Ends: 1, Resets: 1, Turns: 4}
	if e.Summary != want {
		t.Errorf("the summary is %+v, want %+v", e.Summary, want)
	}
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		`"format":"gpu-plan-explanation/v1"`, `"hosts":[{"host":"hv01"`, `"first_turn":3,"last_turn":4`, `"unchanged_hosts":["hv03"]`,
	} {
		if !strings.Contains(string(raw), field) {
			t.Errorf("it has no %s:\n%s", field, raw)
		}
	}
}
