package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
)

func TestFit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fleet := filepath.Join(dir, "fleet.json")
	r.run(0, "fleet", "new", fleet, "--hosts", "hv01,hv02,hv03", "--gpus", "A2,A2", "--cluster", "vdi")
	desks := file("desks.yaml", "- { name: desks, count: 16, kind: gpu_p, vram_mib: 3500 }\n")

	got, _ := r.run(0, "fit", fleet, desks, "--spare-hosts", "1", "--losses", "--counts")
	wantSaid(t, got, "Everything fits, on 6 GPUs; 6 GPUs get another layout, and 0 are unused.", "4 partitions  4 of desks",
		"hv03  yes           yes", "    4      3768          24     6  yes", "    8      1884          48     0  no    16 of desks")

	got, _ = r.run(2, "fit", fleet, desks, "--spare-hosts", "1", "--count", "desks=17")
	wantSaid(t, got, "Not everything fits", "Missing: 1 more partition of 3500 MiB, or one more NVIDIA A2.")
	got, _ = r.run(0, "fit", fleet, desks, "--spare-hosts", "1", "--count", "desks=17", "--with", "hv04@vdi=A2")
	wantSaid(t, got, "Everything fits, on 7 GPUs")
	r.run(2, "fit", fleet, desks, "--without", "hv03", "--without", "hv02")

	// What is recorded of the result is what fit itself says.
	asJSON, _ := r.run(0, "fit", fleet, desks, "-o", "json", "--losses")
	var doc struct {
		Format string `json:"format"`
		fit.Result
		Losses []fit.Loss `json:"losses"`
	}
	if err := json.Unmarshal([]byte(asJSON), &doc); err != nil || doc.Format != "gpu-agent-fit/v1" || doc.GPUs != 4 || len(doc.Losses) != 3 ||
		doc.Losses[0].Host != "hv01" || !doc.Losses[0].Holds { // GPUs of the cluster that are not used have the same count
		t.Errorf("%v: %s", err, asJSON)
	}
	hcl, _ := r.run(0, "fit", fleet, desks, "--hcl")
	wantSaid(t, hcl, `resource "gpu_partition_config" "a2_4_partitions"`, `partition_count = 4`,
		`# Demand "desks": 16 VMs, each a gpu_vm_assignment with partition = { config = gpu_partition_config.a2_4_partitions.id }.`)

	for _, x := range []struct {
		code int
		args []string
		says string
	}{
		{64, []string{fleet}, "accepts 2 arg"},
		{64, []string{fleet, desks, "-o", "yaml"}, `-o is "yaml". There are "hcl", "json" and "text".`},
		{64, []string{fleet, desks, "--without", "hv9"}, `there is no host "hv9" to leave out. There are "hv01", "hv02" and "hv03".`},
		{64, []string{fleet, desks, "--with", "HV03=A2"}, `there is a host "HV03" already`},
		{64, []string{fleet, desks, "--with", "hv04"}, `--with is "hv04"; it must be as NAME=MODEL,MODEL`},
		{64, []string{fleet, desks, "--with", "hv04=A22"}, `the catalog has no GPU model "A22". Did you mean "A2"`},
		{64, []string{fleet, desks, "--count", "desk=1"}, `--count: there is no demand "desk". Did you mean "desks"?`},
		{1, []string{fleet, filepath.Join(dir, "none")}, "none"},
		{1, []string{desks, desks}, `unknown field "count"`},
		{1, []string{fleet, file("typo.yaml", "- { name: a, number: 1, kind: gpu }")}, `unknown field "number"`},
		{1, []string{fleet, file("million.json", `{"demands": [{"name": "a", "count": 1000000, "kind": "gpu"}]}`)}, "count is 1000000; it"},
		{1, []string{fleet, file("large.json", `[{"name": "a", "count": 1, "kind": "gpu_p", "vram_mib": 20000}]`)}, "no GPU of the hosts has a " +
			"partition of more than 15073 MiB"},
	} {
		_, said := r.run(x.code, append([]string{"fit"}, x.args...)...)
		wantSaid(t, said, x.says)
	}
}
