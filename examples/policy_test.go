package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// The policies of examples/policy judge plans of a real CLI, with OPA itself: make test-policy.
func TestPolicies(t *testing.T) {
	t.Parallel()
	opa := os.Getenv("GPU_TEST_OPA")
	if opa == "" {
		t.Skip("there is no opa: make test-policy builds it")
	}
	if out, err := exec.CommandContext(t.Context(), opa, "test", "policy").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const monday = "2026-11-23T10:00:00Z"
	forecast := func(assigned ...string) string {
		return fmt.Sprintf("data \"gpu_change_forecast\" \"run\" {\n  hosts = [\"hv01\"]\n  gpu_p = { partition_count = 16 }\n"+
			"  assignments = [for vm in compact([\"%s\"]) : { vm = vm, allow_shutdown = true }]\n}\n", strings.Join(assigned, `", "`))
	}
	const ticket = "variable \"change_ticket\" {\n  default = \"CHG-7\"\n}\n"
	for name, x := range map[string]struct {
		config   string
		settings map[string]any
		want     []string
	}{
		"nothing is stopped": {config: forecast()},
		"few are stopped":    {config: forecast("avd-01", "avd-02") + rig.AssignAll([]string{"avd-01", "avd-02"}, "")},
		"a golden VM is stopped": {
			config: forecast("avd-01") + rig.AssignAll([]string{"avd-01"}, ""), settings: map[string]any{"golden_vms": []string{"^avd-01$"}},
			want: []string{"golden VM avd-01 would be stopped"},
		},
		"a golden VM that no forecast has": {
			config: forecast() + rig.AssignAll([]string{"avd-01"}, ""), settings: map[string]any{"golden_vms": []string{"^avd-01$"}},
			want: []string{"golden VM avd-01 would be stopped"},
		},
		"many without a ticket": {
			config: forecast("avd-01", "avd-02") + rig.AssignAll([]string{"avd-01", "avd-02"}, ""), settings: map[string]any{"max_stops": 1},
			want: []string{"2 VMs would be stopped, and more than 1 need a change_ticket: avd-01, avd-02"},
		},
		"many with a ticket": {
			config:   ticket + forecast("avd-01", "avd-02") + rig.AssignAll([]string{"avd-01", "avd-02"}, ""),
			settings: map[string]any{"max_stops": 1},
		},
		"no forecast": {
			config: rig.AssignAll([]string{"avd-01"}, ""), want: []string{"1 gpu_ resources change, and the plan has no gpu_change_forecast"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet, _ := rig.Desktops(3)
			r := rig.New(t, fleet)
			wantDenied(t, opa, rig.NewProcesses(t, r.Block()+x.config), x.settings, x.want...)
		})
	}
	t.Run("a report", func(t *testing.T) {
		t.Parallel()
		fleet, _ := rig.Desktops(3)
		r := rig.New(t, fleet)
		c := rig.NewProcesses(t, r.Block(`plan_report = "report.json"`)+rig.AssignAll([]string{"avd-01", "avd-02"}, ""))
		c.Ok("plan")
		report := filepath.Join(c.Dir, "report.json")
		wantDeniedOf(t, opa, "report", report, nil)
		wantDeniedOf(t, opa, "report", report, map[string]any{"max_stops": 1, "golden_vms": []string{"^avd-02$"}},
			"2 VMs would be stopped, and more than 1 need a change_ticket: avd-01, avd-02", "golden VM avd-02 would be stopped")
		wantDeniedOf(t, opa, "report", report, map[string]any{"max_stops": 1, "change_ticket": "CHG-7"})
	})
	t.Run("a reset", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.HGX(rig.A100, 1))
		c := rig.NewProcesses(t, r.Block()+"data \"gpu_change_forecast\" \"run\" {\n  hosts = [\"hgx01\"]\n  mig   = { profiles = { "+
			"\"3g.40gb\" = 2 } }\n}\n"+
			rig.MIGOf("ml", rig.Halves, `max_disruption = "gpu_reset"`))
		at := func(text string) map[string]any {
			when, err := time.Parse(time.RFC3339, text)
			r.Must(err)
			return map[string]any{"now_ns": when.UnixNano()}
		}
		wantDenied(t, opa, c, at(monday), "data.gpu_change_forecast.run: GPUs would be reset in business hours: "+rig.MIGGPU(0)+" on hgx01")
		wantDenied(t, opa, c, at("2026-11-23T22:00:00Z"))
	})
}

// wantDenied plans, and asks OPA what is against it.
func wantDenied(t *testing.T, opa string, c *rig.CLI, settings map[string]any, want ...string) {
	t.Helper()
	c.Ok("plan", "-out=saved")
	plan := filepath.Join(c.Dir, "plan.json")
	rig.Write(t, plan, c.Ok("show", "-json", "saved"))
	wantDeniedOf(t, opa, "main", plan, settings, want...)
}

// wantDeniedOf asks OPA what the policy of a package has against a document.
func wantDeniedOf(t *testing.T, opa, of, document string, settings map[string]any, want ...string) {
	t.Helper()
	policy, data := "policy/"+map[string]string{"main": "gpu", "report": "report"}[of]+".rego", filepath.Join(t.TempDir(), "settings.json")
	text, err := json.Marshal(map[string]any{"gpu": settings})
	if settings == nil {
		text = []byte("{}")
	}
	if err != nil {
		t.Fatal(err)
	}
	rig.Write(t, data, string(text))
	out, err := exec.CommandContext(t.Context(), opa, "eval", "--format=raw", "--data", policy,
		"--data", data, "--input", document, "data."+of+".deny").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(got)+len(want) > 0 && !cmp.Equal(want, got) {
		t.Errorf("the policy says %q, want %q", got, want)
	}
}
