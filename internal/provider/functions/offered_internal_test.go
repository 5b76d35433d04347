package functions

import "testing"

// A profile may be of a compute instance, and have media engines or none: what the model offers is the GPU instance.
func TestProfilesOfANamedModel(t *testing.T) {
	for profile, offers := range map[string]bool{
		"1g.5gb": true, "1c.3g.20gb": true, "1g.5gb+me": true, "1g.5gb-me": true, "7g.40gb": true,
		"1g.10gb": true, "1g.6gb": false, "2g.24gb": false,
	} {
		err := offered([]string{"NVIDIA A100-SXM4-40GB"}, map[string]int{profile: 1})
		if (err == nil) != offers {
			t.Errorf("%s: %v", profile, err)
		}
	}
	if err := offered([]string{"NVIDIA A2"}, map[string]int{"1g.5gb": 1}); err != nil {
		t.Errorf("what is not known is refused: %v", err)
	}
}
