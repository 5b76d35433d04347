package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// imported is an object of each kind, how it is declared and the ids by which it can
// be imported.
type imported struct {
	address string
	hcl     string
	ids     []string
	// arrange makes the object as others would, outside Terraform.
	arrange func(*rig)
}

func importables() map[string]imported {
	return map[string]imported{
		"partition config": {
			address: "gpu_partition_config.vdi", hcl: config4, ids: []string{"hv01,hv02", "hv02,hv01:gpu_p", "vdi@hv01,hv02"},
		},
		"pool of members": {
			address: "gpu_pool.render", hcl: renderPool(secondGPUs), ids: []string{"hv01/render", "hv02/Render"},
		},
		"pool of a cluster": {
			address: "gpu_pool.render", hcl: renderPool(`cluster = "azl"`, `selector = { models = ["NVIDIA A2"] }`), ids: []string{"azl/render", "hv02/render"},
		},
		"partition of a VM": {
			address: "gpu_vm_assignment.desktop", ids: []string{vmID(3), "{" + strings.ToLower(vmID(3)) + "}", "hv01/avd-03"},
			hcl: `
resource "gpu_vm_assignment" "desktop" {
  vm                    = "avd-03"
  partition             = { min_partition_vram_mib = 900, max_partition_encode = 18446744073709551615 }
  power                 = { allow_shutdown = true, start_after = "never", shutdown_timeout = "90s" }
  automatic_stop_action = "shut_down"
}
`,
		},
		"GPU of a pool": {
			address: "gpu_vm_assignment.render", ids: []string{vmID(6), "hv02/avd-06"},
			hcl: renderPool(secondGPUs) + `
resource "gpu_vm_assignment" "render" {
  vm   = "avd-06"
  pool = { id = gpu_pool.render.id }

  low_memory_mapped_io_space_mib  = 144
  high_memory_mapped_io_space_mib = 33280
  automatic_stop_action           = "turn_off"
}
`,
		},
		"device": {
			address: "gpu_vm_assignment.render", ids: []string{vmID(3), "hv01/avd-03"},
			hcl: `
resource "gpu_vm_assignment" "render" {
  vm     = "avd-03"
  device = { host = "hv01", gpu_ids = ["` + gpu1 + `"] }

  low_memory_mapped_io_space_mib  = 144
  high_memory_mapped_io_space_mib = 33280
  automatic_stop_action           = "turn_off"
}
`,
		},
	}
}

// What this state has claimed comes back as it was declared, whichever way it is
// imported.
func TestImportOfWhatThisStateClaimsIsTheSameAgain(t *testing.T) {
	t.Parallel()
	for name, o := range importables() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			steps := []resource.TestStep{{Config: r.block() + o.hcl}}
			for _, id := range o.ids {
				steps = append(steps, resource.TestStep{
					ResourceName: o.address, ImportState: true, ImportStateId: id, ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
					// They are not on a host.
					ImportStateVerifyIgnore: []string{"timeouts", "on_destroy", "dismount"}, ImportStateVerifyIdentifierAttribute: identifier(o.address),
				})
			}
			steps = append(steps, resource.TestStep{
				Config: r.block() + o.hcl, ResourceName: o.address, ImportState: true, ImportStateId: o.ids[len(o.ids)-1], ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(o.address, plancheck.ResourceActionNoop)}},
			})
			r.steps(steps...)
		})
	}
}

func identifier(address string) string {
	if strings.HasPrefix(address, "gpu_vm_assignment") {
		return "vm_id"
	}
	return "id"
}

func TestImportByIdentityIsTheSameAgain(t *testing.T) {
	t.Parallel()
	for name, o := range importables() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			r.identities(
				resource.TestStep{Config: r.block() + o.hcl},
				resource.TestStep{
					Config: r.block() + o.hcl, ResourceName: o.address, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity,
					ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(o.address, plancheck.ResourceActionNoop)}},
				},
			)
		})
	}
}

// adopted is what others made: the import changes nothing on the hosts, a plan is
// empty, and a destroy removes what was adopted.
func TestWhatOthersMadeIsAdopted(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]imported{
		"partition config": {
			address: "gpu_partition_config.vdi", ids: []string{"hv02,hv01"},
			hcl: `
resource "gpu_partition_config" "vdi" {
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 16 }
}
`,
			arrange: func(r *rig) {
				r.addForeignAdapter("avd-01")
			},
		},
		"named partition config": {
			address: "gpu_partition_config.vdi", ids: []string{"vdi@hv02,hv01:gpu_p"}, hcl: configOf(16, both), arrange: func(*rig) {},
		},
		"pool": {
			address: "gpu_pool.render", ids: []string{"hv01/render"},
			hcl: renderPool(secondGPUs),
			arrange: func(r *rig) {
				r.setPool("hv01", "render", gpu1)
				r.setPool("hv02", "render", gpu1)
			},
		},
		"partition of a running VM": {
			address: "gpu_vm_assignment.desktop", ids: []string{"hv01/avd-01"},
			hcl: `
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
  power     = { allow_shutdown = true }
}
`,
			arrange: func(r *rig) {
				r.addForeignAdapter("avd-01")
			},
		},
		"GPU of a pool": {
			address: "gpu_vm_assignment.render", ids: []string{vmID(3)},
			hcl: `
resource "gpu_vm_assignment" "render" {
  vm   = "avd-03"
  pool = { id = "hv01/render" }
}
`,
			arrange: func(r *rig) {
				r.setPool("hv01", "render", gpu1)
				r.draw("avd-03", "render")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			o.arrange(r)
			before := r.snapshot()
			c := newCLI(t, r.block()+fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", o.address, o.ids[0])+o.hcl)
			wantSaid(t, c.ok("plan"), "Plan: 1 to import, 0 to add")
			r.wantUnchanged(before)
			c.apply()
			c.wantNoChanges()
			after := r.snapshot()
			for i := range after.Hosts { // at most claims were written
				after.Hosts[i].Claims = before.Hosts[i].Claims
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("adopting changed the hosts (-before +after):\n%s", diff)
			}
			c.destroy()
			for _, h := range both {
				r.wantClaims([]string{h})
				r.wantNoPool("nothing", h)
			}
			switch {
			case strings.HasPrefix(o.address, "gpu_pool"):
				r.wantNoPool("render", both...)
			case strings.HasPrefix(o.address, "gpu_vm"):
				for _, vm := range []string{"avd-01", "avd-03"} {
					if v, _ := r.vm(vm); len(v.PartitionAdapters)+len(v.Devices) > 0 {
						t.Errorf("VM %s still has a GPU: %+v", vm, v)
					}
				}
				r.wantVM("avd-01", gpu.VMRunning, 0)
			default:
				r.wantCounts(16, both...)
			}
		})
	}
}

func TestMalformedImportIDsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+config4+renderPool(secondGPUs)+`
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
}
`)
	before := r.snapshot()
	for _, x := range []struct {
		address, id string
		says        []string
	}{
		{"gpu_partition_config.vdi", "hv01,,hv02", []string{"Invalid import id", "hv01,hv02:gpu_p"}},
		{"gpu_partition_config.vdi", "hv01:cuda", []string{"Invalid import id", "hgx01:mig"}},
		{"gpu_partition_config.vdi", "hv01:mig", []string{"Nothing to import", "is in MIG mode"}},
		{"gpu_partition_config.vdi", "@hv01", []string{"Invalid import id"}},
		{"gpu_partition_config.vdi", "hv09", []string{"Unknown host", "hv09"}},
		{"gpu_pool.render", "render", []string{"Invalid import id", "hv01/render"}},
		{"gpu_pool.render", "hv01/", []string{"Invalid import id"}},
		{"gpu_pool.render", "hv09/render", []string{"Unknown host or cluster", "hv09"}},
		{"gpu_pool.render", "hv01/render", []string{"Pool does not exist", "render"}},
		{"gpu_vm_assignment.desktop", "avd-01", []string{"Invalid import id", "hv01/avd-01"}},
		{"gpu_vm_assignment.desktop", "hv01/nobody", []string{"VM does not exist", "nobody"}},
		{"gpu_vm_assignment.desktop", "hv09/avd-01", []string{"hv09"}},
		{"gpu_vm_assignment.desktop", vmID(99), []string{"VM does not exist", vmID(99)}},
		{"gpu_vm_assignment.desktop", "hv01/avd-01", []string{"VM has no GPU", "avd-01"}},
	} {
		wantSaid(t, c.fails("import", x.address, x.id), x.says...)
	}
	r.wantUnchanged(before)
}

func TestAnotherOwnersObjectsAreNotImported(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"partition config", "pool of members", "partition of a VM"} {
		o := importables()[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			other := newCLI(t, r.blockOf("other")+o.hcl)
			other.apply()
			before := r.snapshot()
			c := newCLI(t, r.block()+o.hcl)
			for _, id := range o.ids {
				wantSaid(t, c.fails("import", o.address, id), "belongs to another owner", `"other"`, `"test"`)
			}
			r.wantUnchanged(before)
		})
	}
}

// What Terraform writes for an import is valid, applies without touching a host, and
// plans no change.
func TestGeneratedConfigurationRoundTrips(t *testing.T) {
	t.Parallel()
	for name, o := range importables() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			made := newCLI(t, r.block()+o.hcl)
			made.apply()
			before := r.snapshot()

			c := newProcesses(t, r.block()+fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", o.address, o.ids[0]))
			wantSaid(t, c.ok("plan", "-generate-config-out=generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.apply()
			c.wantNoChanges()
			if t.Failed() {
				raw, err := os.ReadFile(filepath.Join(c.dir, "generated.tf"))
				r.must(err)
				t.Logf("generated:\n%s", raw)
			}
			r.wantUnchanged(before)
		})
	}
}
