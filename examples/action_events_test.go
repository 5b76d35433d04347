package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The example of the guide on disruption drains a node before something is destroyed, and resumes it afterwards.
func TestActionsAroundADestroy(t *testing.T) {
	if os.Getenv("TF_ACC") == "" {
		t.Skip("it needs a real CLI: make testacc")
	}
	var is struct {
		Version string `json:"terraform_version"`
	}
	said, err := exec.CommandContext(t.Context(), rig.CLIPath(t), "version", "-json").Output()
	if err == nil {
		err = json.Unmarshal(said, &is)
	}
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(is.Version, "%d.%d.", &major, &minor); err != nil || major == 1 && minor < 16 {
		t.Skipf("Terraform 1.16 has these events, and this is %s", is.Version)
	}
	guide, err := os.ReadFile("../templates/guides/disruption.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(guide), "```terraform\nvariable \"firmware\"")
	block, _, _ = strings.Cut(block, "```")
	e := copyExample(t, vdiFleet)
	rig.Write(t, filepath.Join(e.Dir, "main.tf"), `terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}
provider "gpu" { owner = "vdi-prod" }
resource "gpu_partition_config" "vdi" {
  name     = "vdi"
  hosts    = ["hv01", "hv02"]
  selector = { models = ["NVIDIA A2"] }
  gpu_p    = { partition_count = 16 }
  rollout  = { drain = true }
}
variable "firmware"`+block)
	e.Apply()
	out, code := e.Printed("apply", "-auto-approve", "-var=firmware=2.0")
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	at := -1
	for _, step := range []string{
		"Action started: action.gpu_host_drain.drain", "Action complete: action.gpu_host_drain.drain",
		"Action started: action.gpu_host_drain.resume", "Action complete: action.gpu_host_drain.resume",
		"terraform_data.firmware: Destruction complete",
	} {
		next := strings.Index(out, step)
		if next < at {
			t.Errorf("%q is missing, or comes too early:\n%s", step, out)
		}
		at = next
	}
	s, err := e.fleet.Fleet.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.NodeState() != gpu.NodeUp || len(h.Unfinished) > 0 {
			t.Errorf("afterwards node %s is %s: %q", h.Name, h.NodeState(), h.Unfinished)
		}
	}
}
