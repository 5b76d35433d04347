package partitionconfig_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a reboot makes anew has other ids and UUIDs, and that is no difference.
func TestAccPartitionConfig_RebootLosesMIGAndAnApplyPutsItBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ model, lost, mode string }{
		"Hopper loses the mode too": {rig.H100, "off", "MIG mode off"},
		"Ampere keeps the mode":     {rig.A100, "", "MIG mode without instances"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.HGX(test.model, 2))
			c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Balanced, `max_disruption = "gpu_reset"`))
			c.Apply()
			before := r.Devices(0)
			r.Must(r.Fleet.Reboot(t.Context(), "hgx01"))
			r.WantLayout(test.lost, 0, 1)
			rig.WantSaid(t, c.Ok("plan"), "Warning: Partitions differ from the declaration",
				"Host hgx01, GPU "+rig.MIGGPU(0)+" (NVIDIA "+test.model+") has "+test.mode+
					", declared is 2 × 1g.10gb, 1 × 2g.20gb, 1 × 3g.40gb; lost by reboot, or removed by others",
				"0 to add, 1 to change, 0 to destroy")
			c.Apply()
			r.WantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0, 1)
			if cmp.Equal(before, r.Devices(0)) {
				t.Error("the instances have the UUIDs that they had before the reboot")
			}
			c.WantNoChanges()
		})
	}
}

func TestAccPartitionConfig_MIGOfAnotherOwnerIsDrift(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Written))
	c.Apply()
	kept, other := r.Devices(1)["1 3g.40gb@4"], r.Devices(0)
	r.CreateOutside(1, rig.At("1g.10gb", 2))
	r.DestroyOutside(1, rig.At("1g.10gb", 0))
	rig.WantSaid(t, c.Ok("plan"),
		"Host hgx01, GPU "+rig.MIGGPU(1)+" (NVIDIA H100 80GB HBM3) has 1g.10gb@2+3g.40gb@4 (1g.10gb@2 is not of this config), "+
			"declared is 1g.10gb@0+3g.40gb@4; it has moved")
	c.Apply()
	r.WantLayout("1g.10gb@0 3g.40gb@4", 0, 1)
	if now := r.Devices(1)["1 3g.40gb@4"]; now != kept {
		t.Errorf("the instance that was as declared has the UUID %s, want %s as before", now, kept)
	}
	if diff := cmp.Diff(other, r.Devices(0)); diff != "" {
		t.Errorf("the GPU without drift was touched (-before +after):\n%s", diff)
	}
	c.WantNoChanges()

	r.DestroyOutside(0, rig.At("1g.10gb", 0))
	rig.WantSaid(t, c.Apply(), "(1g.10gb@0 is gone), declared is", "; changed by others")
	r.DestroyOutside(0, rig.At("1g.10gb", 0))
	r.Must(r.Fleet.HalfMakeInstance(t.Context(), "hgx01", rig.MIGGPU(0), rig.At("1g.10gb", 0)))
	rig.WantSaid(t, c.Apply(), "1g.10gb@0 has no compute instance")
	if r.Devices(0)["0 1g.10gb@0"] == "" {
		t.Error("the instance was not completed")
	}
	c.WantNoChanges()

	uuid := r.Devices(0)["0 1g.10gb@0"]
	r.Must(r.Fleet.DivideInstance(t.Context(), "hgx01", rig.MIGGPU(0), rig.At("3g.40gb", 4), 1))
	pid := r.Computes("hgx01", rig.MIGGPU(0), new(rig.At("3g.40gb", 4)), "", "trainer")
	rig.WantSaid(t, c.Ok("plan"), "no compute instance fills 3g.40gb@4", "it is in use by process", "(trainer")
	r.Must(r.Fleet.StopProcess(t.Context(), "hgx01", pid))
	rig.WantSaid(t, c.Apply(), "3g.40gb@4 is divided into 1c.3g.40gb")
	if r.Devices(0)["0 3g.40gb@4"] == "" || r.Devices(0)["0 1g.10gb@0"] != uuid {
		t.Errorf("the instance was not filled, or another one was touched: %v", r.Devices(0))
	}
	c.WantNoChanges()
}

// Numbers of instances are as declared wherever the instances are.
func TestAccPartitionConfig_MIGInstancesThatOthersMovedAreAsDeclared(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", `profiles = { "1g.10gb" = 1 }`))
	c.Apply()
	r.WantLayout("1g.10gb@6", 0)
	r.DestroyOutside(0, rig.At("1g.10gb", 6))
	r.CreateOutside(0, rig.At("1g.10gb", 0))
	c.WantNoChanges()
	c.Write(r.Block() + rig.MIGOf("ml", `placements = [{ profile = "1g.10gb", start = 6 }]`))
	c.Apply()
	r.WantLayout("1g.10gb@6", 0)
}

func TestAccPartitionConfig_MIGProcessesAreNoDrift(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.SevenSmall))
	c.Apply()
	r.Runs(0, &gpu.MIGPlacement{Profile: "1g.10gb", Start: 0}, "python")
	c.WantNoChanges()
}

func TestAccPartitionConfig_ReplacedGPUIsDrift(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves))
	c.Apply()
	r.Must(r.Fleet.RemoveGPU(context.Background(), "hgx01", rig.MIGGPU(1)))
	repaired := rig.MIGCard(5, rig.H100)
	repaired.Address = "0000:1b:00.0"
	r.Must(r.Fleet.AddGPU(context.Background(), "hgx01", repaired))
	rig.WantSaid(t, c.Ok("plan"),
		"Host hgx01, GPU "+rig.MIGGPU(5)+" (NVIDIA H100 80GB HBM3) is in PCI slot 0000:1b:00.0, where GPU "+rig.MIGGPU(1)+" was",
		"Warning: GPU is lost", "is in its PCI slot 0000:1b:00.0 now", "0 to add, 1 to change")
	c.Ok("apply", "-refresh-only", "-auto-approve") // the state lists the new GPU by now
	rig.WantSaid(t, c.Ok("plan"), "is in PCI slot 0000:1b:00.0, where GPU "+rig.MIGGPU(1)+
		" was, and not in the config yet; the GPU was replaced")
	c.Apply()
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0, 5)
	c.WantNoChanges()
}

// On Hyper-V the id of a GPU is its slot, so that another model there has the same id.
func TestAccPartitionConfig_AnotherModelInASlotIsDrift(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, []string{"hv01"}))
	c.Apply()
	r.EditHost("hv01", func(h *gpu.Host) { h.GPUs[0].Model, h.GPUs[1].Model = "NVIDIA L4", "NVIDIA L4" })
	rig.WantSaid(t, c.Ok("plan"), "(NVIDIA L4) is where a GPU of model NVIDIA A2 was; the GPU was replaced", "0 to add, 1 to change")
	c.Ok("apply", "-refresh-only", "-auto-approve") // the state lists the new model by now
	rig.WantSaid(t, c.Ok("plan"), "(NVIDIA L4) is where a GPU of model NVIDIA A2 was; the GPU was replaced", "0 to add, 1 to change")
	c.Apply()
	r.WantCounts(4, "hv01")
	c.WantNoChanges()
}

// A state that was written before there were MIG, vGPUs and MPS is read as it stands.
func TestAccPartitionConfig_StateFromBeforeMIGIsReadable(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewProcesses(t, r.Block()+rig.Config4)
	c.Apply()
	file := filepath.Join(c.Dir, "terraform.tfstate")
	raw, err := os.ReadFile(file)
	r.Must(err)
	var state map[string]any
	r.Must(json.Unmarshal(raw, &state))
	attributes := below(t, state, "resources", 0, "instances", 0, "attributes")
	for _, name := range []string{"mig", "vgpu", "mps", "time_slicing", "mps_daemons", "quiesce_units"} {
		delete(attributes, name)
	}
	for _, host := range below(t, attributes, "gpus") {
		for _, g := range below(t, host, "gpus") {
			delete(below(t, g), "address")
			delete(below(t, g), "instances")
			delete(below(t, g), "vgpus")
		}
	}
	raw, err = json.Marshal(state)
	r.Must(err)
	rig.Write(t, file, string(raw))
	if strings.Contains(string(raw), "address") {
		t.Fatalf("the state still has what is new:\n%s", raw)
	}
	for _, args := range [][]string{{"plan", "-detailed-exitcode"}, {"plan", "-detailed-exitcode", "-refresh=false"}} {
		if out, code := c.Run(args...); code != 0 {
			t.Errorf("%v: exit code %d, want 0 (no changes)\n%s", args, code, out)
		}
	}
	c.Destroy()
	r.WantClaims(rig.Both)
}

// below follows names and positions into JSON to an object.
func below(t *testing.T, v any, steps ...any) map[string]any {
	t.Helper()
	for _, s := range steps {
		object, _ := v.(map[string]any)
		list, _ := v.([]any)
		switch s := s.(type) {
		case string:
			v = object[s]
		case int:
			v = list[s]
		}
	}
	object, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("there is no object at %v", steps)
	}
	return object
}
