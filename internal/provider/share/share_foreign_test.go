package share_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// A CDI specification that somebody else wrote is never replaced: the plan says so, nothing is
// left half done, and a destroy leaves the file alone.
func TestAccShare_SpecificationOfSomebodyElse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	config := r.Block() + rig.MPSOn01 + rig.ShareOf("s", rig.OnGPU01, rig.OfMPS, rig.Half) +
		"\noutput \"drift\" {\n  value = gpu_share.s.drift\n}\n"
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01)
	c.Apply()
	r.Must(r.Fleet.WriteForeignSpec(t.Context(), "gpu01", "s"))
	before := r.Snapshot()
	c.Write(config)
	const said = "somebody else has a CDI specification in its place"
	rig.WantSaid(t, c.Fails("plan"), said, "Fix: Move that file away, or give the share another name.", "Rule: feasible-on-host")
	c.Fails("apply", "-auto-approve")
	r.WantUnchanged(before)

	r.Must(r.Fleet.RemoveShareOutside(t.Context(), "gpu01", "s"))
	c.Apply()
	r.WantShares("gpu01", "s")
	c.WantNoChanges()

	r.Must(r.Fleet.WriteForeignSpec(t.Context(), "gpu01", "s"))
	rig.WantSaid(t, c.Ok("plan"), said, "changed by others", "This apply cannot put it right")
	c.Ok("apply", "-refresh-only", "-auto-approve")
	var out struct {
		Drift struct{ Value []struct{ Cause string } }
	}
	if err := json.Unmarshal([]byte(c.Ok("output", "-json")), &out); err != nil || len(out.Drift.Value) != 1 ||
		out.Drift.Value[0].Cause != string(change.CauseOtherTool) {
		t.Errorf("drift is %+v: %v", out.Drift.Value, err)
	}
	c.Destroy()
	host, err := r.Fleet.Host("gpu01")
	r.Must(err)
	if h, err := host.Inventory(t.Context()); err != nil || len(r.Host("gpu01").Claims) > 0 || len(h.ForeignSpecs) != 1 {
		t.Errorf("the host has claims %v and specifications of others %v: %v", r.Host("gpu01").Claims, h.ForeignSpecs, err)
	}
}

// Nor is it when the config that the share is drawn from is made in the same run: that is not what
// the host would refuse the share for.
func TestAccShare_SpecificationOfSomebodyElseBesideANewConfig(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	r.Must(r.Fleet.WriteForeignSpec(t.Context(), "gpu01", "s"))
	before := r.Snapshot()
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.ShareOf("s", rig.OnGPU01, rig.OfMPS, rig.Half))
	out := c.Fails("plan")
	rig.WantSaid(t, out, "somebody else has a CDI specification in its place", "Fix: Move that file away, or give the share another name.",
		"Rule: feasible-on-host")
	if strings.Contains(rig.Sentence(out), "which is not on host") {
		t.Errorf("it says that the config is missing:\n%s", out)
	}
	r.WantUnchanged(before)
}

// What would be taken from under the share of another state names that state's owner.
func TestAccShare_ShareOfAnotherOwnerInTheWayIsSaidWhose(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01)
	c.Apply()
	other := rig.NewCLI(t, r.BlockOf("vision")+rig.ShareOf("z", rig.OnGPU01, `config = "mps"`, rig.Half))
	other.Apply()
	c.Write(r.Block())
	rig.WantSaid(t, c.Fails("plan"), `Share "z" on host "gpu01"`, `Let owner "vision" destroy these shares first`)
}

// A share that leaves a pool which the same run takes away is told how.
func TestAccShare_ShareThatLeavesThePoolOfTheRun(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.MLPool([]string{"gpu01"})+rig.ShareOf("s", rig.FromPool, rig.Half))
	c.Apply()
	c.Write(r.Block() + rig.MPSOn01 + rig.ShareOf("s", rig.OnGPU01, rig.OfMPS, rig.Half))
	rig.WantSaid(t, c.Fails("plan"), "A pool that this run takes away is gone only in the next apply.")
}
