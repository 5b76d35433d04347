package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// People know a VM by its name, and claims have its id.
func TestClaimsNameVMs(t *testing.T) {
	t.Parallel()
	h := host()
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: vm1, Owner: "vdi-prod", Token: "t2", Revision: 1,
		Want: gpu.Want{Assignment: &gpu.Assignment{
			VM: "avd-01", VMID: vm1, VMName: "avd-01", Host: "hv01", Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{},
		}},
	})
	got, _ := newRig(t, h).run(0, "claims")
	wantSaid(t, got, "VM", vm1, "avd-01")
}

// What people declare of a host is never passed over in silence.
func TestDeclaredControllersOfASimulatedHost(t *testing.T) {
	t.Parallel()
	r, dir := newRig(t), t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.run(0, "inventory", "--state-dir", dir)
	if err := os.WriteFile(filepath.Join(dir, "controllers.json"), []byte(`{"acme-gpud": "layout"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, said := r.run(1, "inventory", "--state-dir", dir)
	wantSaid(t, said, "controllers.json declares controllers", "`controllers` of host \"hv01\"", r.fleet.Path())
}
