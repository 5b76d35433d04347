package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// What only OpenTofu has: a provider for each of several fleets, variables where Terraform
// takes none, and a state and plans that are encrypted.
func TestOpenTofu(t *testing.T) {
	t.Parallel()
	e := copyExample(t, examplesDir+"/first-look/fleet.json")
	if !strings.Contains(e.Ok("version"), "OpenTofu") {
		t.Skip("only OpenTofu has it: make testacc CLI=tools/bin/tofu")
	}
	raw, err := os.ReadFile(filepath.Join(e.Dir, "fleet.json"))
	e.fleet.Must(err)
	rig.Write(t, filepath.Join(e.Dir, "other.json"), string(raw))
	other, err := others.Open(filepath.Join(e.Dir, "other.json"))
	e.fleet.Must(err)
	second := &rig.Rig{T: t, Fleet: other}
	rig.Write(t, filepath.Join(e.Dir, "main.tf"), `
variable "sites" {
  type    = map(string)
  default = { bonn = "fleet.json", ulm = "other.json" }
}
variable "passphrase" {
  type      = string
  default   = "correct horse battery staple"
  sensitive = true
}
variable "module" {
  type    = string
  default = "./site"
}
terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
  encryption {
    key_provider "pbkdf2" "all" {
      passphrase = var.passphrase
    }
    method "aes_gcm" "all" {
      keys = key_provider.pbkdf2.all
    }
    state {
      method   = method.aes_gcm.all
      enforced = true
    }
    plan {
      method   = method.aes_gcm.all
      enforced = true
    }
  }
}
provider "gpu" {
  alias           = "at"
  for_each        = var.sites
  owner           = "lab-${each.key}"
  simulated_fleet = each.value
}
module "site" {
  source    = var.module
  for_each  = { for name, file in var.sites : name => file if name != var.closing }
  providers = { gpu = gpu.at[each.key] }
}
variable "closing" {
  type    = string
  default = ""
}
`)
	e.fleet.Must(os.Mkdir(filepath.Join(e.Dir, "site"), 0o700))
	rig.Write(t, filepath.Join(e.Dir, "site", "main.tf"), `
terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}
resource "gpu_partition_config" "lab" {
  name       = "lab"
  hosts      = ["lab01"]
  gpu_p      = { partition_count = 4 }
  on_destroy = "restore"
}
resource "gpu_vm_assignment" "desk" {
  vm        = "desk-01"
  partition = { config = gpu_partition_config.lab.id }
  power     = { allow_shutdown = true }
}
`)
	before, beforeOther := e.fleet.Snapshot(), second.Snapshot()
	e.Ok("get") // the provider is overridden: there is nothing to install
	e.Ok("plan", "-out", "tfplan")
	e.Ok("apply", "tfplan")
	for _, r := range []*rig.Rig{e.fleet, second} {
		if n := len(r.Claims("lab01")); n != 2 {
			t.Errorf("%s has %d claims", r.Fleet.Path(), n)
		}
	}
	for _, name := range []string{"terraform.tfstate", "tfplan"} {
		raw, err := os.ReadFile(filepath.Join(e.Dir, name))
		e.fleet.Must(err)
		if len(raw) == 0 || strings.Contains(string(raw), "desk-01") || strings.Contains(string(raw), "gpu_vm_assignment") {
			t.Errorf("%s can be read by anybody", name)
		}
	}
	e.WantNoChanges()
	// One site goes, and the other one is not touched.
	stays := e.fleet.Snapshot()
	e.Ok("apply", "-auto-approve", "-var", "closing=ulm")
	second.WantUnchanged(beforeOther)
	e.fleet.WantUnchanged(stays)
	e.Destroy()
	e.fleet.WantUnchanged(before)
}
