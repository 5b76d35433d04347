package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

// readReport reads the report of a plan, which only its owner may read.
func readReport(t *testing.T, file string) planreport.Report {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the report is %v", info.Mode())
	}
	r, err := planreport.Parse(raw)
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	return r
}

// lines are the changes of a report, one a line.
func lines(r planreport.Report) string {
	var out []string
	for _, c := range r.Changes {
		text := fmt.Sprintf("%d %s %s on %q", c.Turn, c.Action, c.Label, c.Host)
		for _, g := range c.GPUs {
			text += fmt.Sprintf(", %d -> %d", g.From.Partitions, g.To.Partitions)
		}
		for _, s := range c.Stops {
			text += fmt.Sprintf(", %s off (%v)", s.VM, s.StartsAgain)
		}
		if c.PolicyOnly {
			text += ", policy"
		}
		if c.Refused != "" {
			text += ", refused"
		}
		if c.AfterApply {
			text += ", open"
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

func wantLines(t *testing.T, r planreport.Report, want ...string) {
	t.Helper()
	if got := lines(r); got != strings.Join(want, "\n") {
		t.Errorf("the changes are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// shownBy are the parts of a fleet that a report foretells, as text.
func shownBy(hosts []gpu.Host) string {
	var out []string
	for _, h := range hosts {
		for i := range h.GPUs {
			g := &h.GPUs[i]
			held := []string{}
			if g.Partitionable != nil {
				for _, p := range g.Partitionable.Partitions {
					held = append(held, p.VMID)
				}
			}
			out = append(out, fmt.Sprintf("%s %s %v %v %d", h.Name, g.ID, g.Status, g.Layout().Text(gpu.KindGPUP), len(held)))
		}
		for _, vm := range h.VMs {
			out = append(out, fmt.Sprintf("%s %s %s %d %d", h.Name, vm.Name, vm.State, len(vm.PartitionAdapters), len(vm.Devices)))
		}
		for _, c := range h.Claims {
			out = append(out, fmt.Sprintf("%s %s %s %s", h.Name, c.Kind, c.ID, c.Owner))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func wantForetold(t *testing.T, foretold gpu.Snapshot, r *rig.Rig) {
	t.Helper()
	if got, want := shownBy(foretold.Hosts), shownBy(r.Snapshot().Hosts); got != want {
		t.Errorf("the report foretells\n%s\nand the hosts show\n%s", got, want)
	}
}

// A plan writes what it does to hosts, in its order, and the apply leaves that as it is. What is foretold comes about, and is a fleet
// itself.
func TestPlanReport(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	file := filepath.Join(t.TempDir(), "report.json")
	block := r.Block(fmt.Sprintf("plan_report = %q", file))
	vms := rig.Assign("avd-01", "allow_shutdown = true") + rig.Assign("avd-02", "allow_shutdown = true") + rig.Assign("avd-03", "")
	cli := rig.NewCLI(t, block+rig.ConfigOf(16, rig.Both)+vms)
	cli.Ok("plan")
	report := readReport(t, file)
	if !report.Complete || report.Owner != "test" || len(report.Findings) > 2 {
		t.Errorf("complete: %v %v, owner %q, findings %v", report.Complete, report.Incomplete, report.Owner, report.Findings)
	}
	wantForetold(t, report.Before, r)
	wantLines(t, report,
		`1 create gpu_partition_config "vdi" on "hv01"`,
		`2 create gpu_partition_config "vdi" on "hv02"`,
		`3 create gpu_vm_assignment for VM "avd-01" on "hv01", avd-01 off (true)`,
		`4 create gpu_vm_assignment for VM "avd-02" on "hv01", avd-02 off (true)`,
		`5 create gpu_vm_assignment for VM "avd-03" on "hv01"`,
	)
	if cli.Terminal == nil {
		cli.Ok("plan", "-out=saved")
		rig.Write(t, file, "approved")
		cli.Ok("apply", "saved")
		if is, err := os.ReadFile(file); err != nil || string(is) != "approved" {
			t.Errorf("the apply of a saved plan has overwritten the report: %v", err)
		}
	} else {
		cli.Apply()
	}
	wantForetold(t, report.After, r)

	cli.Write(block + rig.ConfigOf(4, rig.Both, `max_disruption = "vm_restart"`) + vms)
	cli.Ok("plan")
	report = readReport(t, file)
	wantLines(t, report,
		`1 update gpu_partition_config "vdi" on "hv01", 16 -> 4, 16 -> 4, avd-01 off (true), avd-02 off (true)`,
		`2 update gpu_partition_config "vdi" on "hv02", 16 -> 4, 16 -> 4`,
		`3 update gpu_vm_assignment for VM "avd-01" on "hv01"`,
		`4 update gpu_vm_assignment for VM "avd-02" on "hv01"`,
		`5 update gpu_vm_assignment for VM "avd-03" on "hv01"`,
	)
	if c := report.Changes[0]; c.OnFailure != "rollback" || c.LimitSeconds != 1800 || c.Stops[0].ShutdownSeconds != 300 ||
		c.Type != "gpu_partition_config" {
		t.Errorf("it says %+v", c)
	}
	cli.Apply()
	wantForetold(t, report.After, r)

	// The policy alone changes: no host is touched, and it is a change.
	cli.Write(block + rig.ConfigOf(4, rig.Both) + vms)
	cli.Ok("plan")
	wantLines(t, readReport(t, file),
		`1 update gpu_partition_config "vdi" on "hv01", policy`, `1 update gpu_partition_config "vdi" on "hv02", policy`)
	cli.Apply()

	// A plan without changes replaces what was there.
	cli.Ok("plan")
	report = readReport(t, file)
	wantLines(t, report)
	if raw, err := os.ReadFile(file); err != nil || !strings.Contains(string(raw), `"changes": [],`) {
		t.Errorf("its changes are no empty list: %v", err)
	}
	wantForetold(t, report.After, r)

	// What was foretold is a simulated fleet.
	twin := filepath.Join(t.TempDir(), "twin.json")
	rig.Write(t, twin, string(encoded(t, report.After)))
	other := rig.NewCLI(t, fmt.Sprintf("provider \"gpu\" {\n  simulated_fleet = %q\n  owner = \"test\"\n}\n", twin)+
		rig.ConfigOf(4, rig.Both)+vms)
	other.Apply()
	other.WantNoChanges()

	cli.Ok("plan", "-destroy")
	report = readReport(t, file)
	wantLines(t, report,
		`1 delete gpu_vm_assignment for VM "avd-01" on "hv01", avd-01 off (true)`,
		`2 delete gpu_vm_assignment for VM "avd-02" on "hv01", avd-02 off (true)`,
		`3 delete gpu_vm_assignment for VM "avd-03" on "hv01"`,
		`4 delete gpu_partition_config "vdi" on "hv01"`,
		`5 delete gpu_partition_config "vdi" on "hv02"`,
	)
	cli.Destroy()
	wantForetold(t, report.After, r)
}

func encoded(t *testing.T, s gpu.Snapshot) []byte {
	t.Helper()
	raw, err := planreport.Report{Format: planreport.Format, Before: s, After: s, PlannedAt: time.Time{}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), `"after": `)
	body, _, _ := strings.Cut(rest, ",\n  \"changes\":")
	return []byte(body)
}

// What is refused is reported with its findings.
func TestPlanReportOfARefusedPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	file := filepath.Join(t.TempDir(), "report.json")
	cli := rig.NewCLI(t, r.Block(fmt.Sprintf("plan_report = %q", file))+rig.ConfigOf(3, rig.Both)+rig.Assignment("avd-09", rig.AnyPartition))
	cli.Fails("plan")
	report := readReport(t, file)
	if report.Complete {
		t.Error("it is complete")
	}
	has := func(rule, found string) bool {
		return slices.ContainsFunc(report.Findings, func(f planreport.Finding) bool {
			return f.Rule == rule && f.Level == "error" && strings.Contains(f.Found, found) && f.Subject != ""
		})
	}
	if !has("valid-partition-count", "3") || !has("", "avd-09") {
		t.Errorf("the findings are %+v", report.Findings)
	}
	wantLines(t, report, `1 create gpu_partition_config "vdi" on "hv01", refused`, `1 create gpu_partition_config "vdi" on "hv02", refused`,
		`1 create gpu_vm_assignment for VM "avd-09" on "", refused`)
	wantForetold(t, report.After, r)
}

// Each provider configuration has a file of its own in a directory.
func TestPlanReportsInADirectory(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1)), rig.Node("hv02", rig.Desktop("avd-02", 2))))
	dir := t.TempDir()
	at := fmt.Sprintf("plan_report = %q", dir)
	second := strings.Replace(r.BlockOf("vdi/b", at), "provider \"gpu\" {", "provider \"gpu\" {\n  alias = \"b\"", 1)
	cli := rig.NewCLI(t, r.BlockOf("vdi-a", at)+second+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop)+
		rig.AssignmentOf("b", "avd-02", rig.AnyPartition, rig.MayStop, "provider = gpu.b"))
	cli.Ok("plan")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		report := readReport(t, filepath.Join(dir, f.Name()))
		all = append(all, fmt.Sprintf("%s %q %s", f.Name()[:5], report.Owner, lines(report)))
	}
	want := []string{
		`vdi-a "vdi-a" 1 create gpu_vm_assignment for VM "avd-01" on "hv01", avd-01 off (true)`,
		`vdi-b "vdi/b" 1 create gpu_vm_assignment for VM "avd-02" on "hv02", avd-02 off (true)`,
	}
	if !slices.Equal(all, want) {
		t.Errorf("the reports are\n%s\nwant\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
}

// A host that does not answer, and what is known only after apply, leave a report incomplete. Names of others are printable in it, and
// stay what they are.
func TestPlanReportThatIsIncomplete(t *testing.T) {
	t.Parallel()
	hostile := "avd\x1b[2J\u202e\U000e0041"
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop(hostile, 1)), rig.Node("hv02", rig.Desktop("avd-02", 2))))
	file := filepath.Join(t.TempDir(), "report.json")
	r.Silent(true, "hv02")
	cli := rig.NewCLI(t, r.Block(fmt.Sprintf("plan_report = %q", file), `on_unreachable = "keep"`)+
		rig.AssignmentOf("one", rig.VMID(1), rig.AnyPartition, rig.MayStop)+`
resource "terraform_data" "late" { input = "hv01" }
resource "gpu_partition_config" "late" {
  name  = "late"
  hosts = [terraform_data.late.output]
  gpu_p = { partition_count = 4 }
}
`)
	cli.Run("plan")
	report := readReport(t, file)
	all := strings.Join(report.Incomplete, "\n")
	if report.Complete || !strings.Contains(all, "Host hv02 did not answer.") || !strings.Contains(all, "known only after apply") {
		t.Errorf("complete: %v: %s", report.Complete, all)
	}
	if !strings.Contains(lines(report), ", open") {
		t.Errorf("the changes are\n%s", lines(report))
	}
	if len(report.Before.Hosts) != 1 || report.Before.Hosts[0].VMs[0].Name != hostile {
		t.Errorf("the hosts before are %+v", report.Before.Hosts)
	}
	raw, _ := os.ReadFile(file)
	if text := string(raw); strings.ContainsAny(text, "\x1b\u202e\U000e0041") {
		t.Error("the report has characters that are not printable")
	}
}

// That a report cannot be written is a warning.
func TestPlanReportThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	for _, file := range []string{filepath.Join(t.TempDir(), "none", "report.json"), filepath.Join(t.TempDir(), "none") + "/"} {
		cli := rig.NewCLI(t, r.Block(fmt.Sprintf("plan_report = %q", file))+rig.Config4)
		rig.WantSaid(t, cli.Apply(), "The plan report cannot be written", "There is no directory", "none")
		cli.Destroy()
	}
}
