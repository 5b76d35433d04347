package provider_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// What the agent prints for a recorded fleet imports it, in both syntaxes.
func TestTheAgentWritesWhatAdoptsTheFleet(t *testing.T) {
	t.Parallel()
	for flag, file := range map[string]string{"--hcl": "adopted.tf", "--json": "adopted.tf.json"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			c := rig.NewProcesses(t, "")
			r := madeByOthers(t)
			before := r.Snapshot()
			agent, err := rig.AgentBinary()
			r.Must(err)
			raw, err := json.Marshal(before)
			r.Must(err)
			recorded := filepath.Join(c.Dir, "recorded.json")
			rig.Write(t, recorded, string(raw))
			out, err := exec.CommandContext(t.Context(), agent, "adopt", flag, "--inventory", recorded).Output()
			r.Must(err)
			if !strings.Contains(string(out), `Left on hv02, the assignment of VM `+rig.VMID(4)) {
				t.Errorf("what another state has is not named:\n%s", out)
			}
			c.Write(r.Block())
			rig.Write(t, filepath.Join(c.Dir, file), string(out))
			rig.WantSaid(t, c.Ok("plan"), "Plan: 9 to import, 0 to add, 9 to change, 0 to destroy")
			c.Apply()
			c.WantNoChanges()
			rig.SameHardware(t, before, r.Snapshot())
		})
	}
}

// The guide's way that every version has: imports for what the data source lists.
func TestVMsAreImportedFromTheInventory(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	r := madeByOthers(t)
	before := r.Snapshot()
	c.Write(r.Block() + `
data "gpu_inventory" "all" {}

locals {
  found = {
    for h in data.gpu_inventory.all.holders : h.vm => h.vm_id
    if h.kind == "partition" && (h.owner == null || h.owner == "test")
  }
}

import {
  for_each = local.found
  to       = gpu_vm_assignment.desktop[each.key]
  id       = each.value
}

resource "gpu_vm_assignment" "desktop" {
  for_each  = local.found
  vm        = each.key
  partition = {}
}
`)
	rig.WantSaid(t, c.Ok("plan"), "1 to import, 0 to add, 1 to change, 0 to destroy")
	c.Apply()
	c.WantNoChanges()
	rig.SameHardware(t, before, r.Snapshot())
}
