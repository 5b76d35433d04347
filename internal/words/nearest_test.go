package words_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		among string
		want  string
	}{
		"adv-02":          {"avd-01 avd-02 avd-12 other", "avd-02"},
		"hv03":            {"hv01 hv02 gpu", "hv01 hv02"},
		"azl-vid":         {"azl-vdi b", "azl-vdi"},
		"1g10gb":          {"1g.10gb 1g.20gb 7g.80gb", "1g.10gb"},
		"vdii":            {"vdi a16", "vdi"},
		"teama":           {"team-a team-b", "team-a"},
		"gpu_id":          {"gpu_ids models", "gpu_ids"},
		"memory":          {"gpus memory_mib shares", "memory_mib"},
		"homogenous-gpus": {"homogeneous-gpus gpu-exists capacity", "homogeneous-gpus"},
		"HV01":            {"hv01 hv011", "hv01"},
		"Büro-1":          {"büro_1 bureau", "büro_1"},
		"a":               {"b c", ""},
		"":                {"a b", ""},
		"--":              {"a b", ""},
		"llama":           {"avd-01 avd-02", ""},
	} {
		if got := strings.Join(words.Nearest(name, strings.Fields(x.among)), " "); got != x.want {
			t.Errorf("of %q among %s: found %q, wanted %q", name, x.among, got, x.want)
		}
	}
}

// However many names there are, a sentence offers the one that was meant first, and few.
func TestInsteadOffersFewNamesAndTheRightOneFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{4,8}-[0-9]{2}`), 1, 200, rapid.ID).Draw(t, "names")
		meant := rapid.SampledFrom(all).Draw(t, "meant")
		at := rapid.IntRange(0, len(meant)-1).Draw(t, "at")
		typo := meant[:at] + meant[at+1:] // a letter is missing
		text := words.Instead(typo, all, "listed")
		if n := strings.Count(text, `"`) / 2; n > words.Offered {
			t.Errorf("%d names are offered: %s", n, text)
		}
		near := words.Nearest(typo, all)
		if !slices.Contains(near, meant) {
			t.Fatalf("%q is not among what is near %q: %q", meant, typo, near)
		}
		if len(all) > words.Offered && !strings.Contains(text, "listed") {
			t.Errorf("of %d names it does not say where all are: %s", len(all), text)
		}
		if i := slices.Index(near, meant); i < words.Offered && !strings.Contains(text, `"`+meant+`"`) {
			t.Errorf("%q is not offered: %s", meant, text)
		}
	})
}

func TestInstead(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]struct{ name, among string }{
		"There is none.":                                {"a", ""},
		`There is only "hv01".`:                         {"node", "hv01"},
		`There are "hv01" and "hv02".`:                  {"node", "hv02 hv01 hv01"},
		`Did you mean "hv01"?`:                          {"hv0", "hv01"},
		`Did you mean "hv01" or "hv02"?`:                {"hv03", "hv02 hv01"},
		`Did you mean "avd-01"? All 2 are listed here.`: {"adv-01", "avd-01 desk"},
		`There are "a", "b", "c", "d", "e" and 2 more. All 7 are listed here.`: {"node", "a b c d e f g"},
	} {
		if got := words.Instead(x.name, strings.Fields(x.among), "listed here"); got != want {
			t.Errorf("it says %q, and %q was wanted", got, want)
		}
	}
}
