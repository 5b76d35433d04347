package provider_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a reboot makes anew has other ids and UUIDs, and that is no difference.
func TestRebootLosesMIGAndAnApplyPutsItBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ model, lost, mode string }{
		"Hopper loses the mode too": {h100, "off", "MIG mode off"},
		"Ampere keeps the mode":     {a100, "", "MIG mode without instances"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, hgx(test.model, 2))
			c := newCLI(t, r.block()+migOf("ml", balanced, `max_disruption = "gpu_reset"`))
			c.apply()
			before := r.devices(0)
			r.must(r.fleet.Reboot(t.Context(), "hgx01"))
			r.wantLayout(test.lost, 0, 1)
			wantSaid(t, c.ok("plan"), "Warning: Partitions differ from the declaration",
				"host hgx01, GPU "+migGPU(0)+" (NVIDIA "+test.model+"): lost by reboot", "has "+test.mode+", declared is 2 × 1g.10gb, 1 × 2g.20gb, 1 × 3g.40gb",
				"0 to add, 1 to change, 0 to destroy")
			c.apply()
			r.wantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0, 1)
			if cmp.Equal(before, r.devices(0)) {
				t.Error("the instances have the UUIDs that they had before the reboot")
			}
			c.wantNoChanges()
		})
	}
}

func TestMIGOfAnotherOwnerIsDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	c := newCLI(t, r.block()+migOf("ml", written))
	c.apply()
	kept, other := r.devices(1)["1 3g.40gb@4"], r.devices(0)
	r.createOutside(1, at("1g.10gb", 2))
	r.destroyOutside(1, at("1g.10gb", 0))
	wantSaid(t, c.ok("plan"), "host hgx01, GPU "+migGPU(1)+" (NVIDIA H100 80GB HBM3): changed by another owner, 1g.10gb@2 is not of this config: "+
		"it has 1g.10gb@2+3g.40gb@4, declared is 1g.10gb@0+3g.40gb@4")
	c.apply()
	r.wantLayout("1g.10gb@0 3g.40gb@4", 0, 1)
	if now := r.devices(1)["1 3g.40gb@4"]; now != kept {
		t.Errorf("the instance that was as declared has the UUID %s, want %s as before", now, kept)
	}
	if diff := cmp.Diff(other, r.devices(0)); diff != "" {
		t.Errorf("the GPU without drift was touched (-before +after):\n%s", diff)
	}
	c.wantNoChanges()

	r.destroyOutside(0, at("1g.10gb", 0))
	wantSaid(t, c.apply(), "changed by another owner, 1g.10gb@0 is gone")
	r.destroyOutside(0, at("1g.10gb", 0))
	r.must(r.fleet.HalfMakeInstance(t.Context(), "hgx01", migGPU(0), at("1g.10gb", 0)))
	wantSaid(t, c.apply(), "1g.10gb@0 has no compute instance")
	if r.devices(0)["0 1g.10gb@0"] == "" {
		t.Error("the instance was not completed")
	}
	c.wantNoChanges()
}

// Numbers of instances are as declared wherever the instances are.
func TestMIGInstancesThatOthersMovedAreAsDeclared(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 1))
	c := newCLI(t, r.block()+migOf("ml", `profiles = { "1g.10gb" = 1 }`))
	c.apply()
	r.wantLayout("1g.10gb@6", 0)
	r.destroyOutside(0, at("1g.10gb", 6))
	r.createOutside(0, at("1g.10gb", 0))
	c.wantNoChanges()
	c.write(r.block() + migOf("ml", `placements = [{ profile = "1g.10gb", start = 6 }]`))
	c.apply()
	r.wantLayout("1g.10gb@6", 0)
}

func TestMIGProcessesAreNoDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 1))
	c := newCLI(t, r.block()+migOf("ml", sevenSmall))
	c.apply()
	r.runs(0, &gpu.MIGPlacement{Profile: "1g.10gb", Start: 0}, "python")
	c.wantNoChanges()
}

func TestReplacedGPUIsDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	c := newCLI(t, r.block()+migOf("ml", halves))
	c.apply()
	r.must(r.fleet.RemoveGPU(context.Background(), "hgx01", migGPU(1)))
	repaired := migCard(5, h100)
	repaired.Address = "0000:1b:00.0"
	r.must(r.fleet.AddGPU(context.Background(), "hgx01", repaired))
	wantSaid(t, c.ok("plan"),
		"host hgx01, GPU "+migGPU(5)+" (NVIDIA H100 80GB HBM3): GPU replaced: it is in PCI slot 0000:1b:00.0, where GPU "+migGPU(1)+" was",
		"Warning: GPU is lost", "is in its PCI slot 0000:1b:00.0 now", "0 to add, 1 to change")
	c.apply()
	r.wantLayout("3g.40gb@0 3g.40gb@4", 0, 5)
	c.wantNoChanges()
}

// A state that was written before there were MIG, vGPUs and MPS is read as it stands.
func TestStateFromBeforeMIGIsReadable(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newProcesses(t, r.block()+config4)
	c.apply()
	file := filepath.Join(c.dir, "terraform.tfstate")
	raw, err := os.ReadFile(file)
	r.must(err)
	var state map[string]any
	r.must(json.Unmarshal(raw, &state))
	attributes := below(t, state, "resources", 0, "instances", 0, "attributes")
	for _, name := range []string{"mig", "vgpu", "mps", "time_slicing", "mps_daemons", "quiesce_units"} {
		delete(attributes, name)
	}
	for _, host := range below(t, attributes, "gpus") {
		for _, g := range below(t, host) {
			delete(below(t, g), "address")
			delete(below(t, g), "instances")
			delete(below(t, g), "vgpus")
		}
	}
	raw, err = json.Marshal(state)
	r.must(err)
	write(t, file, string(raw))
	if strings.Contains(string(raw), "address") {
		t.Fatalf("the state still has what is new:\n%s", raw)
	}
	for _, args := range [][]string{{"plan", "-detailed-exitcode"}, {"plan", "-detailed-exitcode", "-refresh=false"}} {
		if out, code := c.run(args...); code != 0 {
			t.Errorf("%v: exit code %d, want 0 (no changes)\n%s", args, code, out)
		}
	}
	c.destroy()
	r.wantClaims(both)
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
