package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestClaimsAreListedAndForgotten(t *testing.T) {
	r := newRig(t, nil)
	r.done(
		assign("a", "token-a", nil, partitionOf(off1, nil)),
		assign("b", "token-b", nil, partitionOf(off2, nil)),
	)
	claims, err := r.Claims(t.Context())
	if err != nil || len(claims) != 2 {
		t.Fatalf("claims %+v, %v", claims, err)
	}
	for _, c := range claims {
		if c.Kind != gpu.ClaimAssignment || c.Owner != owner || c.Token != "" && !strings.HasPrefix(c.Token, "token-") {
			t.Errorf("claim %+v", c)
		}
	}

	vms := r.look().VMs
	if err := r.ForgetClaim(t.Context(), r.fence, gpu.ClaimAssignment, strings.ToLower(off1)); err != nil {
		t.Fatal(err)
	}
	after := r.look()
	if len(after.Claims) != 1 || !after.Claims[0].Is(gpu.ClaimAssignment, off2) {
		t.Errorf("claims are %+v", after.Claims)
	}
	if !slices.EqualFunc(vms, after.VMs, func(a, b gpu.VM) bool {
		return a.ID == b.ID && a.State == b.State && len(a.PartitionAdapters) == len(b.PartitionAdapters)
	}) {
		t.Errorf("forgetting a claim changed a VM: %+v", after.VMs)
	}

	err = r.ForgetClaim(t.Context(), r.fence, gpu.ClaimAssignment, off1)
	if e := codeOf(t, err, agent.BadRequest); !strings.Contains(e.Message, off1) {
		t.Errorf("forgetting it again: %v", e)
	}
	wantCode(t, r.ForgetClaim(t.Context(), r.fence+1, gpu.ClaimAssignment, off2), agent.StaleFence)
	wantCode(t, r.ForgetClaim(t.Context(), 0, gpu.ClaimAssignment, off2), agent.StaleFence)
	if len(r.look().Claims) != 1 {
		t.Error("a call without the lease dropped a claim")
	}
}

// TestClaimOfAChangeIsKept has somebody forget the claim that a change which is not
// settled writes: putting the change back would bring it again.
func TestClaimOfAChangeIsKept(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.apply(assign("a", "vm3", nil, partitionOf(off1, nil))); err != nil {
		t.Fatal(err)
	}
	err := r.ForgetClaim(t.Context(), r.fence, gpu.ClaimAssignment, off1)
	if e := codeOf(t, err, agent.Refused); !strings.Contains(e.Message, "test a") {
		t.Errorf("the refusal does not name the change: %v", e)
	}
	if _, ok := r.claim(gpu.ClaimAssignment, off1); !ok {
		t.Error("the claim is gone")
	}
}

func TestJournalIsShown(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	j, err := r.Journal(t.Context())
	if err != nil || len(j.Changes) != 0 || j.Lease == nil || j.Lease.Run != "run-1" || j.Lease.Fence != r.fence {
		t.Fatalf("the journal of an idle host is %+v, %v", j, err)
	}

	var during agent.Journal
	other := newClientOn(t, r)
	r.breaker.hook = func(write string) {
		if write == "add adapter" {
			during, err = other.Journal(t.Context())
		}
	}
	if _, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil))); err != nil {
		t.Fatal(err)
	}
	if err != nil || len(during.Changes) != 1 {
		t.Fatalf("during the change it is %+v, %v", during, err)
	}
	ch := during.Changes[0]
	if ch.ID != "a" || ch.Subject != "test a" || ch.Run != "run-1" || ch.Status != "running" || ch.Begun < 2 || ch.Begun >= len(ch.Steps) {
		t.Errorf("during the change it shows %+v", ch)
	}
	if !strings.Contains(strings.Join(ch.Steps, "\n"), "run-1") {
		t.Errorf("no step names the VM: %q", ch.Steps)
	}

	j, err = r.Journal(t.Context())
	if err != nil || len(j.Changes) != 1 || j.Changes[0].Status != "applied" || j.Changes[0].Begun != len(j.Changes[0].Steps) {
		t.Errorf("after the change it is %+v, %v", j, err)
	}
	if _, err := r.Settle(t.Context(), r.fence, "a", false); err != nil {
		t.Fatal(err)
	}
	if err := r.ReleaseLease(t.Context(), r.fence); err != nil {
		t.Fatal(err)
	}
	if j, err = r.Journal(t.Context()); err != nil || len(j.Changes) != 0 || j.Lease != nil {
		t.Errorf("when all is settled it is %+v, %v", j, err)
	}
}
