package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

// explained runs `gpu-agent explain` on a document.
func explained(t *testing.T, document []byte, env []string, args ...string) (out, complaint string, code int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "report.json"), document, 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"explain"}, args...)...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = dir, bytes.NewReader(document), &stdout, &stderr, append(os.Environ(), env...)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func TestExplainReadsAReport(t *testing.T) {
	t.Parallel()
	empty := gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}}
	report, err := planreport.Report{
		Format: planreport.Format, Complete: true, Owner: "vdi", Before: empty, After: empty, Findings: []planreport.Finding{},
		Changes: []planreport.Change{{
			Type: "gpu_vm_assignment", Label: `gpu_vm_assignment for VM "avd-01"`, Action: planreport.Create, Host: "hv01", Turn: 1,
			Stops: []planreport.Stop{{VM: "avd-01", VMID: "1", Host: "hv01", StartsAgain: true, ShutdownSeconds: 60}}, Steps: []string{"stop"},
		}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		args, env []string
		document  []byte
		code      int
		says      string
		complains string
	}{
		"text": {
			args: []string{"report.json"}, says: "hv01\n  turn 1: create gpu_vm_assignment for VM \"avd-01\"\n    Off and on again: avd-01.",
		},
		"standard input":    {args: []string{"-"}, says: "Plan of vdi"},
		"narrow":            {args: []string{"report.json", "--width", "30"}, says: "    How long: not measured on\n    this host."},
		"by COLUMNS":        {args: []string{"report.json"}, env: []string{"COLUMNS=30"}, says: "    How long: not measured on\n    this host."},
		"Markdown":          {args: []string{"report.json", "-o", "markdown"}, says: "<summary><code>hv01</code>: 1 VM is off</summary>"},
		"JSON":              {args: []string{"report.json", "-o", "json"}, says: `"format": "gpu-plan-explanation/v1"`},
		"an unknown format": {args: []string{"report.json", "-o", "html"}, code: 64, complains: `There are "json", "markdown" and "text".`},
		"no report":         {args: []string{}, code: 64, complains: "accepts 1 arg(s)"},
		"no file":           {args: []string{"none.json"}, code: 1, complains: "none.json"},
		"a folder":          {args: []string{"."}, code: 1, complains: "read .: "}, // why, the system says
		"a negative width":  {args: []string{"report.json", "--width", "-1"}, code: 64, complains: "--width is -1"},
		"one that is cut off": {
			args: []string{"report.json"}, document: report[:len(report)/2], code: 1,
			complains: "report.json is no plan report that can be read: it is cut off",
		},
		"another version": {
			args: []string{"report.json"}, document: bytes.Replace(report, []byte("report/v1"), []byte("report/v2"), 1), code: 1,
			complains: `another version, "gpu-plan-report/v2"`,
		},
		"no report, but a fleet": {
			args: []string{"report.json"}, document: []byte(`{"format":"gpu-fleet/v1","hosts":[]}`), code: 1, complains: "it is a fleet file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document := x.document
			if document == nil {
				document = report
			}
			out, complaint, code := explained(t, document, x.env, x.args...)
			if code != x.code || !strings.Contains(out, x.says) || !strings.Contains(complaint, x.complains) {
				t.Errorf("exit code %d, want %d\n%s%s", code, x.code, out, complaint)
			}
			if strings.Contains(out, "\x1b") {
				t.Error("it has colours, and is no terminal")
			}
			if len(x.args) == 3 && x.args[2] == "json" && !json.Valid([]byte(out)) {
				t.Errorf("it is no JSON document:\n%s", out)
			}
		})
	}
}
