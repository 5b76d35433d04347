package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestMap draws a fleet from every kind of source, and says what cannot be drawn.
func TestMap(t *testing.T) {
	second := host()
	second.Name = "HV02"
	r := newRig(t, host(), second)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	before := r.file()
	fleet := r.fleet.Path()

	text, _ := r.run(0, "map", fleet)
	wantSaid(t, text, "2 hosts", "hv01:", "HV02:", "Counts:")
	if strings.Contains(text, "\x1b") {
		t.Error("there are colours in what is no terminal")
	}
	for output, begins := range map[string]string{"svg": "<svg ", "html": "<!doctype html>", "markdown": "### "} {
		if said, _ := r.run(0, "map", fleet, "-o", output); !strings.HasPrefix(said, begins) {
			t.Errorf("%s begins with %.40q", output, said)
		}
	}
	one, _ := r.run(0, "inventory", "--host", "hv01", "--json")
	inventory := write("inventory.json", one)
	said, _ := r.run(0, "map", inventory)
	wantSaid(t, said, "1 host,", "hv01:", "Recorded at ")

	write("main.tf", `provider "gpu" { hosts = { hv01 = { simulated = { file = "`+filepath.ToSlash(fleet)+`" } } } }`)
	said, _ = r.run(0, "map", "--config", dir)
	wantSaid(t, said, "1 host,", "hv01:")

	// A host that does not answer hides no other one, and is said.
	write("main.tf", `provider "gpu" {
  hosts = {
    hv01  = { simulated = { file = "`+filepath.ToSlash(fleet)+`" } }
    far01 = { ssh = { address = "127.0.0.1", port = 1, user = "x", password = "y", host_key = "ssh-ed25519 AAAA" } }
  }
}`)
	said, wrong := r.run(1, "map", "--config", dir)
	wantSaid(t, said, "hv01:", "Not drawn, since it did not answer: ", "far01")
	wantSaid(t, wrong, "far01")

	var s gpu.Snapshot
	if err := json.Unmarshal([]byte(before), &s); err != nil {
		t.Fatal(err)
	}
	var after gpu.Snapshot
	if err := json.Unmarshal([]byte(before), &after); err != nil {
		t.Fatal(err)
	}
	after.Hosts[0].GPUs[0].Partitionable.Count = 2
	report, err := json.Marshal(map[string]any{
		"format": "gpu-plan-report/v1", "complete": false, "before": s, "after": after,
		"changes": []any{map[string]any{"turn": 1, "host": "hv01", "stops": []any{map[string]any{"vm": "avd-01", "host": "hv01"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	planned := write("plan.json", string(report))
	for _, args := range [][]string{{planned}, {fleet, "--report", planned}} {
		said, _ = r.run(0, append([]string{"map"}, args...)...)
		wantSaid(t, said, "now", "after", "2 partitions", "Nothing changes on HV02", "avd-01 on hv01 off, and stays off", "not complete")
	}

	edited := write("edited.json", strings.Replace(one, `"platform": "hyperv"`, `"platform": "hyperv", "units": ["x.service"]`, 1))
	said, _ = r.run(0, "map", edited)
	wantSaid(t, said, "Edited since it was recorded: hv01")

	for name, bad := range map[string]struct {
		code int
		args []string
		want string
	}{
		"nothing":           {64, nil, "name a file"},
		"both":              {64, []string{fleet, "--config", dir}, "leave out the files"},
		"another form":      {64, []string{fleet, "-o", "htm"}, "did you mean"},
		"no file":           {1, []string{filepath.Join(dir, "none.json")}, "none.json"},
		"cut off":           {1, []string{write("cut.json", one[:len(one)/2])}, "the file is cut off"},
		"no fleet":          {1, []string{write("other.json", `{"a": 1}`)}, "other.json: the format is"},
		"twice":             {1, []string{fleet, inventory}, `host "hv01" is in`},
		"version of report": {1, []string{write("v2.json", `{"format": "gpu-plan-report/v2"}`)}, `this build reads "gpu-plan-report/v1"`},
		"report cut off":    {1, []string{fleet, "--report", write("cutreport.json", string(report[:len(report)/2]))}, "it is cut off"},
		"report of others":  {1, []string{inventory, "--report", planned}, `another fleet: it has "HV02"`},
		"report and fleet":  {1, []string{fleet, planned}, "--report"},
		"fleet as report":   {1, []string{fleet, "--report", fleet}, "gpu-plan-report/v1"},
	} {
		out, said := r.run(bad.code, append([]string{"map"}, bad.args...)...)
		if out != "" || !strings.Contains(said, bad.want) {
			t.Errorf("%s: said %q and printed %q; want %q", name, said, out, bad.want)
		}
	}
	if r.file() != before {
		t.Error("a picture of a fleet has changed it")
	}
}
