package packaging_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestNothingShippedHoldsAStandIn asks the compiler what the binaries are made of.
func TestNothingShippedHoldsAStandIn(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"linux", "windows", "darwin"} {
		for _, binary := range []string{".", "./cmd/gpu-agent"} {
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", binary)
			list.Dir, list.Env = root, append(os.Environ(), "GOOS="+system)
			out, err := list.Output()
			if err != nil {
				t.Fatalf("%s for %s: %v", binary, system, err)
			}
			packages := strings.Fields(string(out))
			if len(packages) < 100 {
				t.Errorf("%s for %s: go list names %d packages only", binary, system, len(packages))
			}
			for _, p := range packages {
				if strings.Contains(p, "/internal/fake/") || strings.HasSuffix(p, "/internal/conformance") {
					t.Errorf("%s for %s is built with %s", binary, system, p)
				}
			}
		}
	}
}
