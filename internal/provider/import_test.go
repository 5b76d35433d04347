package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/adopt"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func importables() map[string]rig.Imported {
	return map[string]rig.Imported{
		"partition config": {
			Address: "gpu_partition_config.vdi",
			HCL:     rig.ConfigOf(4, rig.Both, `on_destroy = "restore"`, `max_disruption = "vm_restart"`, "rollout = { drain = true }"),
			Ids:     []string{"hv01,hv02", "hv02,hv01:gpu_p", "vdi@hv01,hv02"},
		},
		"pool of members": {
			Address: "gpu_pool.render", HCL: rig.RenderPool(rig.SecondGPUs, `on_destroy = "mount_back"`, "dismount = { force = true }"),
			Ids: []string{"hv01/render", "hv02/Render"},
		},
		"pool of a cluster": {
			Address: "gpu_pool.render", HCL: rig.RenderPool(`cluster = "azl"`, `selector = { models = ["NVIDIA A2"] }`),
			Ids: []string{"azl/render", "hv02/render"},
		},
		"partition of a VM": {
			Address: "gpu_vm_assignment.desktop", Ids: []string{rig.VMID(3), "{" + strings.ToLower(rig.VMID(3)) + "}", "hv01/avd-03"},
			HCL: `
resource "gpu_vm_assignment" "desktop" {
  vm                    = "avd-03"
  partition             = { min_partition_vram_mib = 900, max_partition_encode = 18446744073709551615 }
  power                 = { allow_shutdown = true, start_after = "never", shutdown_timeout = "90s" }
  automatic_stop_action = "shut_down"
}
`,
		},
		"GPU of a pool": {
			Address: "gpu_vm_assignment.render", Ids: []string{rig.VMID(6), "hv02/avd-06"},
			HCL: rig.RenderPool(rig.SecondGPUs) + `
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
			Address: "gpu_vm_assignment.render", Ids: []string{rig.VMID(3), "hv01/avd-03"},
			HCL: `
resource "gpu_vm_assignment" "render" {
  vm     = "avd-03"
  device = { host = "hv01", gpu_ids = ["` + rig.GPU1 + `"] }

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
			r := rig.New(t, rig.TwoNodes())
			steps := []resource.TestStep{{Config: r.Block() + o.HCL}}
			for _, id := range o.Ids {
				steps = append(steps, resource.TestStep{
					ResourceName: o.Address, ImportState: true, ImportStateId: id, ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
					// They are not on a host.
					ImportStateVerifyIgnore: []string{"timeouts"}, ImportStateVerifyIdentifierAttribute: identifier(o.Address),
				})
			}
			steps = append(steps, resource.TestStep{
				Config: r.Block() + o.HCL, ResourceName: o.Address, ImportState: true, ImportStateId: o.Ids[len(o.Ids)-1],
				ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{
					PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(o.Address, plancheck.ResourceActionNoop)},
				},
			})
			r.Steps(steps...)
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
			r := rig.New(t, rig.TwoNodes())
			r.Identities(
				resource.TestStep{Config: r.Block() + o.HCL},
				resource.TestStep{
					Config: r.Block() + o.HCL, ResourceName: o.Address, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity,
					ImportPlanChecks: resource.ImportPlanChecks{
						PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(o.Address, plancheck.ResourceActionNoop)},
					},
				},
			)
		})
	}
}

// adopted is what others made: the import changes nothing on the hosts, a plan is
// empty, and a destroy removes what was adopted.
func TestWhatOthersMadeIsAdopted(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rig.Imported{
		"partition config": {
			Address: "gpu_partition_config.vdi", Ids: []string{"hv02,hv01"},
			HCL: `
resource "gpu_partition_config" "vdi" {
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 16 }
}
`,
			Arrange: func(r *rig.Rig) {
				r.AddForeignAdapter("avd-01")
			},
		},
		"named partition config": {
			Address: "gpu_partition_config.vdi", Ids: []string{"vdi@hv02,hv01:gpu_p"}, HCL: rig.ConfigOf(16, rig.Both), Arrange: func(*rig.Rig) {},
		},
		"pool": {
			Address: "gpu_pool.render", Ids: []string{"hv01/render"},
			HCL: rig.RenderPool(rig.SecondGPUs),
			Arrange: func(r *rig.Rig) {
				r.SetPool("hv01", "render", rig.GPU1)
				r.SetPool("hv02", "render", rig.GPU1)
			},
		},
		"partition of a running VM": {
			Address: "gpu_vm_assignment.desktop", Ids: []string{"hv01/avd-01"},
			HCL: `
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
  power     = { allow_shutdown = true }
}
`,
			Arrange: func(r *rig.Rig) {
				r.AddForeignAdapter("avd-01")
			},
		},
		"GPU of a pool": {
			Address: "gpu_vm_assignment.render", Ids: []string{rig.VMID(3)},
			HCL: `
resource "gpu_vm_assignment" "render" {
  vm   = "avd-03"
  pool = { id = "hv01/render" }
}
`,
			Arrange: func(r *rig.Rig) {
				r.SetPool("hv01", "render", rig.GPU1)
				r.Draw("avd-03", "render")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			o.Arrange(r)
			before := r.Snapshot()
			c := rig.NewCLI(t, r.Block()+fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", o.Address, o.Ids[0])+o.HCL)
			rig.WantSaid(t, c.Ok("plan"), "Plan: 1 to import, 0 to add, 1 to change, 0 to destroy")
			r.WantUnchanged(before)
			c.Apply()
			wantClaimed(r, "test")
			c.WantNoChanges()

			// It is theirs no more: nobody else adopts it, nor this state a second time.
			typ, _, _ := strings.Cut(o.Address, ".")
			other := rig.NewCLI(t, r.BlockOf("other")+o.HCL)
			rig.WantSaid(t, other.Fails("import", o.Address, o.Ids[0]), "belongs to another owner")
			again := strings.Replace(o.HCL, strconv.Quote(strings.TrimPrefix(o.Address, typ+".")), `"again"`, 1)
			c.Write(r.Block() + o.HCL + again + fmt.Sprintf("import {\n  to = %s.again\n  id = %q\n}\n", typ, o.Ids[0]))
			rig.WantSaid(t, c.Fails("plan"), "Error: ")
			c.Write(r.Block() + o.HCL)
			c.WantNoChanges()

			// A record that is lost is written again.
			for _, h := range rig.Both {
				r.EditHost(h, func(h *gpu.Host) { h.Claims = nil })
			}
			rig.WantSaid(t, c.Ok("plan"), "has lost its record of this resource", "0 to add, 1 to change, 0 to destroy")
			c.Apply()
			wantClaimed(r, "test")
			c.WantNoChanges()

			after := r.Snapshot()
			for i := range after.Hosts { // only claims were written
				after.Hosts[i].Claims = before.Hosts[i].Claims
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("adopting changed the hosts (-before +after):\n%s", diff)
			}
			c.Destroy()
			for _, h := range rig.Both {
				r.WantClaims([]string{h})
				r.WantNoPool("nothing", h)
			}
			switch {
			case strings.HasPrefix(o.Address, "gpu_pool"):
				r.WantNoPool("render", rig.Both...)
			case strings.HasPrefix(o.Address, "gpu_vm"):
				for _, vm := range []string{"avd-01", "avd-03"} {
					if v, _ := r.VM(vm); len(v.PartitionAdapters)+len(v.Devices) > 0 {
						t.Errorf("VM %s still has a GPU: %+v", vm, v)
					}
				}
				r.WantVM("avd-01", gpu.VMRunning, 0)
			default:
				r.WantCounts(16, rig.Both...)
			}
		})
	}
}

// wantClaimed asserts that there are claims, and whose they are.
func wantClaimed(r *rig.Rig, owner string) {
	r.T.Helper()
	n := 0
	for _, name := range rig.Both {
		for _, c := range r.Host(name).Claims {
			n++
			if c.Owner != owner || c.Token == "" {
				r.T.Errorf("host %s has the claim %+v, want one of owner %q", name, c, owner)
			}
		}
	}
	if n == 0 {
		r.T.Error("nothing is claimed")
	}
}

// Who comes second is told before it changes anything.
func TestTwoStatesDoNotAdoptOneVM(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-01")
	hcl := rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop)
	a, b := rig.NewCLI(t, r.BlockOf("a")+hcl), rig.NewCLI(t, r.BlockOf("b")+hcl)
	for _, c := range []*rig.CLI{a, b} { // neither has applied, so that no record is in the way
		c.Ok("import", "gpu_vm_assignment.a", "hv01/avd-01")
	}
	a.Apply()
	before := r.Snapshot()
	rig.WantSaid(t, b.Fails("plan"), "Error: Another Terraform state manages this object", `Terraform state "a"`, "Rule: not-our-claim")
	r.WantUnchanged(before)
	a.WantNoChanges()
}

// What is imported twice in one state is an error, also while nothing is on record.
func TestOneObjectIsNotAdoptedTwice(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-01")
	c := rig.NewCLI(t, r.Block()+rig.AssignmentOf("a", "avd-01", rig.AnyPartition)+rig.AssignmentOf("b", "avd-01", rig.AnyPartition)+
		"import {\n  to = gpu_vm_assignment.a\n  id = \"hv01/avd-01\"\n}\nimport {\n  to = gpu_vm_assignment.b\n  id = \"hv01/avd-01\"\n}\n")
	before := r.Snapshot()
	rig.WantSaid(t, c.Fails("plan"), "Error: Two partitions for one VM")
	r.WantUnchanged(before)
}

// What is imported again after its state was lost knows what its destroy puts back, and how.
func TestImportKnowsWhatADestroyPutsBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hcl, address, id string
		made, destroyed  func(*rig.Rig)
	}{
		"partition config": {
			rig.ConfigOf(4, rig.Both, `on_destroy = "restore"`), rig.VDI, "vdi@hv01,hv02",
			func(r *rig.Rig) { r.WantCounts(4, rig.Both...) }, func(r *rig.Rig) { r.WantCounts(16, rig.Both...) },
		},
		"pool": {
			rig.RenderPool(rig.SecondGPUs, `on_destroy = "mount_back"`), "gpu_pool.render", "hv01/render",
			func(r *rig.Rig) { r.WantDismounted("hv01", rig.GPU1) }, func(r *rig.Rig) { r.WantDismounted("hv01") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			rig.NewCLI(t, r.Block()+tt.hcl).Apply()
			tt.made(r)
			c := rig.NewCLI(t, r.Block()+tt.hcl)
			c.Ok("import", tt.address, tt.id)
			c.WantNoChanges()
			c.Destroy()
			tt.destroyed(r)
		})
	}
}

// A reset that the destroy of an imported config needs is allowed as it was declared.
func TestImportKnowsWhatADestroyMayDisturb(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.A100, 1))
	hcl := rig.MIGOf("ml", rig.Halves, `on_destroy = "restore"`, `max_disruption = "gpu_reset"`, `quiesce_units = ["nvidia-dcgm"]`)
	rig.NewCLI(t, r.Block()+hcl).Apply()
	c := rig.NewCLI(t, r.Block()+hcl)
	c.Ok("import", rig.ML, "hgx01:mig")
	c.WantNoChanges()
	c.Destroy()
	r.WantLayout("off", 0)
}

// What is gone since its configuration was written is named by the plan that would import it, as is
// a host that does not answer, and nothing is claimed.
func TestWhatIsGoneBeforeItsImportIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lose func(*rig.Rig)
		says []string
	}{
		"a VM": {
			func(r *rig.Rig) {
				r.EditHost("hv01", func(h *gpu.Host) {
					h.VMs = slices.DeleteFunc(h.VMs, func(vm gpu.VM) bool { return vm.Name == "avd-03" })
				})
			},
			[]string{"Error: VM does not exist", rig.VMID(3)},
		},
		"a partition": {
			func(r *rig.Rig) {
				vm, host := r.VM("avd-01")
				h, err := r.Fleet.Host(host)
				r.Must(err)
				r.Must(r.Fleet.SetVMState(t.Context(), vm.Name, gpu.VMOff))
				r.Must(h.RemovePartitionAdapter(t.Context(), vm.ID, vm.PartitionAdapters[0].ID))
			},
			[]string{"Error: VM has no GPU", "avd-01"},
		},
		"a pool": {
			func(r *rig.Rig) {
				r.EditVM("avd-03", func(vm *gpu.VM) { vm.Devices = nil })
				for _, name := range rig.Both {
					r.EditHost(name, func(h *gpu.Host) { h.Pools = []gpu.Pool{} })
				}
			},
			[]string{"Error: Pool does not exist", `"render"`},
		},
		"a MIG layout": {
			func(r *rig.Rig) {
				r.EditHost("hgx01", func(h *gpu.Host) { h.GPUs[3].MIG.Enabled, h.GPUs[3].MIG.Instances = false, nil })
			},
			[]string{"Error: Nothing to import", rig.MIGGPU(3)},
		},
		"a host": {func(r *rig.Rig) { r.Silent(true, "kvm01") }, []string{"Error: Host does not answer", "Host: kvm01"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := madeByOthers(t)
			hosts := map[string]*gpu.Host{}
			for _, h := range r.Snapshot().Hosts {
				hosts[h.Name] = &h
			}
			c := rig.NewCLI(t, r.Block()+string(adopt.HCL(adopt.Objects(hosts))))
			rig.WantSaid(t, c.Ok("plan"), "9 to import, 0 to add, 9 to change, 0 to destroy")
			tt.lose(r)
			before := r.Snapshot()
			rig.WantSaid(t, c.Fails("plan"), tt.says...)
			c.Fails("apply", "-auto-approve")
			r.WantUnchanged(before)
		})
	}
}

func TestMalformedImportIDsAreRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Config4+rig.RenderPool(rig.SecondGPUs)+`
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
}
`)
	before := r.Snapshot()
	for _, x := range []struct {
		address, id string
		says        []string
	}{
		{"gpu_partition_config.vdi", "hv01,,hv02", []string{"Invalid import id", "hv01,hv02:gpu_p"}},
		{"gpu_partition_config.vdi", "hv01:cuda", []string{"Invalid import id", "hgx01:mig"}},
		{"gpu_partition_config.vdi", "hv01:mig", []string{"Nothing to import", "is in MIG mode"}},
		{"gpu_partition_config.vdi", "@hv01", []string{"Invalid import id"}},
		{"gpu_partition_config.vdi", "", []string{"Invalid import id", `Found: ""`}},
		{"gpu_pool.render", "", []string{"Invalid import id", `Found: ""`}},
		{"gpu_vm_assignment.desktop", "", []string{"Invalid import id", `Found: ""`}},
		{"gpu_vm_assignment.desktop", "hv01/", []string{"Invalid import id"}},
		{"gpu_partition_config.vdi", "hv09", []string{"Unknown host", "hv09"}},
		{"gpu_pool.render", "render", []string{"Invalid import id", "hv01/render"}},
		{"gpu_pool.render", "hv01/", []string{"Invalid import id"}},
		{"gpu_pool.render", "hv09/render", []string{"Unknown host or cluster", "hv09"}},
		{"gpu_pool.render", "hv01/render", []string{"Pool does not exist", "render"}},
		{"gpu_vm_assignment.desktop", "avd-01", []string{"Invalid import id", "hv01/avd-01"}},
		{"gpu_vm_assignment.desktop", "hv01/nobody", []string{"VM does not exist", "nobody"}},
		{"gpu_vm_assignment.desktop", "hv09/avd-01", []string{"Unknown host or cluster", `"hv09" is neither a host`}},
		{"gpu_vm_assignment.desktop", "azl/avd-01", []string{"VM has no GPU", "avd-01"}},
		{"gpu_vm_assignment.desktop", rig.VMID(99), []string{"VM does not exist", rig.VMID(99)}},
		{"gpu_vm_assignment.desktop", "hv01/avd-01", []string{"VM has no GPU", "avd-01"}},
	} {
		rig.WantSaid(t, c.Fails("import", x.address, x.id), x.says...)
	}
	r.Silent(true, "hv02")
	rig.WantSaid(t, c.Fails("import", "gpu_partition_config.vdi", "hv01,hv02"), "Host does not answer",
		"Host: hv02", "An import needs an answer from every host.")
	r.Silent(false, "hv02")
	r.WantUnchanged(before)
}

func TestAnotherOwnersObjectsAreNotImported(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"partition config", "pool of members", "partition of a VM"} {
		o := importables()[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			other := rig.NewCLI(t, r.BlockOf("other")+o.HCL)
			other.Apply()
			before := r.Snapshot()
			c := rig.NewCLI(t, r.Block()+o.HCL)
			for _, id := range o.Ids {
				rig.WantSaid(t, c.Fails("import", o.Address, id), "belongs to another owner", `"other"`, `"test"`)
			}
			r.WantUnchanged(before)
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
			r := rig.New(t, rig.TwoNodes())
			made := rig.NewCLI(t, r.Block()+o.HCL)
			made.Apply()
			before := r.Snapshot()

			c := rig.NewProcesses(t, r.Block()+fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", o.Address, o.Ids[0]))
			rig.WantSaid(t, c.Generate("generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.Apply()
			c.WantNoChanges()
			if t.Failed() {
				raw, err := os.ReadFile(filepath.Join(c.Dir, "generated.tf"))
				r.Must(err)
				t.Logf("generated:\n%s", raw)
			}
			r.WantUnchanged(before)
		})
	}
}
