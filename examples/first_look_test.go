package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestFirstLookExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/first-look"
	e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
	before := e.fleet.Snapshot()
	rig.WantSaid(t, e.Ok("plan"), "Plan: 3 to add", "lab01: VM desk-01 is shut down and started again")
	e.fleet.WantUnchanged(before)
	e.Apply()
	if diff := cmp.Diff([]string{"desk-01", "desk-02"}, e.vmsWithGPU()); diff != "" {
		t.Errorf("VMs with a GPU (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]gpu.VMState{"desk-01": gpu.VMRunning, "desk-02": gpu.VMOff}, e.powers()); diff != "" {
		t.Errorf("power states (-want +got):\n%s", diff)
	}
	e.WantNoChanges()
	e.Destroy()
	e.fleet.WantUnchanged(before)
}

// The example in the README is planned and applied on the fleet that it names.
func TestReadmeExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "```terraform\n")
	block, _, _ = strings.Cut(block, "```")
	e := copyExample(t, vdiFleet)
	rig.Write(t, filepath.Join(e.Dir, "main.tf"), block)
	e.Apply()
	if diff := cmp.Diff([]string{"avd-01", "avd-02", "avd-03"}, e.vmsWithGPU()); diff != "" {
		t.Errorf("VMs with a GPU (-want +got):\n%s", diff)
	}
	e.WantNoChanges()
}
