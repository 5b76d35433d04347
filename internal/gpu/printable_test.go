package gpu_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"python3":           "python3",
		"Zündung (train) 1": "Zündung (train) 1",
		"\x1b[2Jroot":       "\uFFFD[2Jroot",
		"a\nb\u202e":        "a\uFFFDb\uFFFD",
		"\xff\xfe":          "\uFFFD\uFFFD",
	} {
		if got := gpu.Printable(text); got != want {
			t.Errorf("of %q it makes %q, and %q was wanted", text, got, want)
		}
	}
}
