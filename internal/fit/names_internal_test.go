package fit

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Layouts and shares whose texts come to one name stay apart.
func TestNamesThatComeToOneAreTwo(t *testing.T) {
	t.Parallel()
	mig := func(extra string) Layout {
		return Layout{Kind: gpu.KindMIG, MIG: &MIG{Profiles: map[string]int{"2g.48gb": 1, extra: 1}}}
	}
	const model = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
	all := configs(Layouts{"a": {"g": mig("1g.24gb+me"), "h": mig("1g.24gb-me"), "i": mig("1g.24gb+me")}},
		map[string]map[string]string{"a": {"g": model, "h": model, "i": model}})
	if len(all) != 2 {
		t.Fatalf("the configs are %v", all)
	}
	for name, c := range all {
		for _, id := range c.GPUIDs["a"] {
			if want := map[string]string{"g": "1g.24gb+me", "h": "1g.24gb-me", "i": "1g.24gb+me"}[id]; c.MIG.Profiles[want] != 1 {
				t.Errorf("%s gives GPU %s %v", name, id, c.MIG.Profiles)
			}
		}
	}
	names := uniqueNames{}
	if a, b, c := names.take("a-b-1"), names.take("a-b-1"), names.take("a-b-1"); a != "a-b-1" || b != "a-b-1-2" || c != "a-b-1-3" {
		t.Errorf("the names are %s, %s and %s", a, b, c)
	}
}
