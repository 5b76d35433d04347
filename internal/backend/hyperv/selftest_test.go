package hyperv_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// Each question is answered or says why it could not be asked, whatever became of the
// others. Nothing is changed.
func TestSelfTest(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster, onHost(withDevice), onHost(running))
	r.seated(beta)
	before := r.host()
	found := map[string]string{}
	for _, a := range r.backend.SelfTest(t.Context()) {
		if a.Err != nil || a.Found == "" {
			t.Errorf("%s: %q, %v", a.Question, a.Found, a.Err)
		}
		found[a.Question] = a.Found
	}
	same(t, before, r.host())
	all := strings.Join([]string{
		found["Which GPUs does the host have, and where from is each known?"],
		found["Does Msvm_GpuPartition.DeviceInstancePath name the GPU or its virtual function?"],
		found["Do the cluster's VMs show their offline action?"],
	}, "\n")
	for _, word := range []string{gpuA, "status partitioned", interfaceClass, "OfflineAction 1"} {
		if !strings.Contains(all, word) {
			t.Errorf("the answers do not say %q:\n%s", word, all)
		}
	}

	r.machine.Deny(hyperv.MSCluster)
	denied := 0
	for _, a := range r.backend.SelfTest(t.Context()) {
		if a.Err != nil {
			refuses(t, a.Err, backend.AccessDenied, "Grant-ClusterAccess")
			denied++
		}
	}
	if denied == 0 || denied == len(found) {
		t.Errorf("%d of %d questions could not be asked", denied, len(found))
	}
}
