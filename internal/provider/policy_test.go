package provider_test

import (
	"reflect"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// Whatever a resource names as policy is an attribute that a configuration may set: a name that is none would leave its attribute to
// the hosts, and nobody would see why.
func TestPolicyNamesAttributes(t *testing.T) {
	t.Parallel()
	for _, construct := range provider.New("test", nil)().Resources(t.Context()) {
		r := construct()
		var s resource.SchemaResponse
		r.Schema(t.Context(), resource.SchemaRequest{}, &s)
		policy, _ := reflect.ValueOf(r).Elem().FieldByName("Of").FieldByName("Policy").Interface().([]string)
		if len(policy) == 0 || len(policy) >= len(s.Schema.Attributes) {
			t.Errorf("%T: policy is %q", r, policy)
		}
		for _, name := range policy {
			if a, ok := s.Schema.Attributes[name]; !ok || !a.IsOptional() && !a.IsRequired() {
				t.Errorf("%T: policy names %q, which no configuration may set", r, name)
			}
		}
	}
}

// A limit of memory that is written in another way is the same limit: no host is asked for it.
func TestMemoryWrittenInFullAsksNoHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	config := func(memory string) string {
		return r.Block() + rig.MPSOn01 + rig.ShareOf("s", `host = "gpu01"`, "config = gpu_partition_config.mps.id", "memory = { "+memory+" }")
	}
	c := rig.NewCLI(t, config("limit_mib = 4096"))
	c.Apply()
	before := r.File()
	c.Write(config("limit_mib = 4096, request_mib = 4096"))
	out := c.Apply()
	rig.WantSaid(t, out, "1 changed")
	r.WantUntouched(before)
	c.WantNoChanges()
	c.Write(config("limit_mib = 4096, request_mib = 2048"))
	c.Apply()
	if got := r.Share("gpu01", "s").Want.Share.MemoryRequest.MiB(); got != 2048 {
		t.Errorf("the host has a request of %d MiB", got)
	}
}
