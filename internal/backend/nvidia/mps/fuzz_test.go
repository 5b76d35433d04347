package mps

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// FuzzAnswers reads what a control daemon may answer.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"", "4711\n4712", "1536M", "8G", "Server 1 not found", "18446744073709551616"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parsePIDs(text)
		limit, err := mpsconf.ParseLimit(text)
		switch {
		case err != nil:
		case limit > 0:
			if again, err := mpsconf.ParseLimit(mpsconf.FormatLimit(limit)); err != nil || again != limit {
				t.Errorf("%q is %d, written %q, read %d, %v", text, limit, mpsconf.FormatLimit(limit), again, err)
			}
			if r := gpu.RoundMPSLimit(limit); r > limit || limit >= gpu.MiB && r == 0 {
				t.Errorf("%d is rounded to %d", limit, r)
			}
		}
	})
}
