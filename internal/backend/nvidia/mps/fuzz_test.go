package mps

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// FuzzAnswers reads what a control daemon may answer.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"", "4711\n4712", "1536M", "8G", "Server 1 not found", "PID,Server PID,Device\n12, 11, GPU-1\n", "pid\n\"1", "18446744073709551616"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parsePIDs(text)
		rows, err := parseList(text)
		for _, row := range rows {
			if _, ok := clientPID(row); ok && err != nil {
				t.Error("a row of a list that cannot be read")
			}
		}
		limit, err := parseLimit(text)
		switch {
		case err != nil:
		case limit > 0:
			if again, err := parseLimit(formatLimit(limit)); err != nil || again != limit {
				t.Errorf("%q is %d, written %q, read %d, %v", text, limit, formatLimit(limit), again, err)
			}
			if r := gpu.RoundMPSLimit(limit); r > limit || limit >= gpu.MiB && r == 0 {
				t.Errorf("%d is rounded to %d", limit, r)
			}
		}
	})
}
