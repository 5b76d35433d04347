package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a host has is written under the name that the provider has for it, from the host or
// from a recording.
func TestAdoptWritesAConfiguration(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before, err := os.ReadFile(r.fleet.Path())
	if err != nil {
		t.Fatal(err)
	}
	got, _ := r.run(0, "adopt", "--as", "node-1")
	wantSaid(t, got, "import {", `id = "node-1:gpu_p`, `resource "gpu_partition_config" "node-1_gpu_p"`, `hosts = ["node-1"]`)

	recorded := filepath.Join(t.TempDir(), "fleet.json")
	inventory, _ := r.run(0, "inventory", "--json")
	if err := os.WriteFile(recorded, []byte(inventory), 0o600); err != nil {
		t.Fatal(err)
	}
	here, _ := r.run(0, "adopt", "--hcl")
	if there, _ := r.run(0, "adopt", "--inventory", recorded); there != here {
		t.Errorf("of the recording it writes\n%s\nand of the host\n%s", there, here)
	}
	var doc struct {
		Import []struct{ To, ID string }
	}
	asJSON, _ := r.run(0, "adopt", "--json")
	if err := json.Unmarshal([]byte(asJSON), &doc); err != nil || len(doc.Import) == 0 || doc.Import[0].To == "" {
		t.Errorf("%v: %s", err, asJSON)
	}
	r.run(64, "adopt", "--json", "--hcl")
	_, said := r.run(1, "adopt", "--inventory", filepath.Join(t.TempDir(), "none.json"))
	wantSaid(t, said, "none.json")
	after, err := os.ReadFile(r.fleet.Path())
	if err != nil || string(after) != string(before) {
		t.Errorf("it changed the host: %v", err)
	}
}

// A VM that two hosts show is one of them: it is written with its host, which a comment on the other says, and both ids
// of an import are such as the provider takes.
func TestAdoptOfAVMThatTwoHostsShow(t *testing.T) {
	t.Parallel()
	on := func(name string) gpu.Host {
		h := host()
		h.Name, h.Pools, h.Claims = name, nil, nil
		h.GPUs = h.GPUs[:1]
		h.VMs[0].State = gpu.VMOff
		h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "a"}}
		return h
	}
	r := newRig(t, on("hv01"), on("hv02"))
	got, _ := r.run(0, "adopt", "--inventory", r.fleet.Path())
	wantSaid(t, got, `id = "hv01/`+vm1+`"`, `hosts = ["hv01"]`, "Left on hv02, VM avd-01 on hv02", "hv02/"+vm1)
	if n := strings.Count(got, `resource "gpu_vm_assignment"`); n != 1 {
		t.Errorf("it writes %d assignments of one VM:\n%s", n, got)
	}
}
