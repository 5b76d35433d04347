// Package assumptions lists what this provider takes to be true of platforms although
// nobody documents it and nobody has measured it. The list is the only place that says so:
// code that relies on an assumption names its id, the guide's table is made from it, and
// `gpu-agent selftest --answers` ticks it off on a real host.
package assumptions

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Assumption is one thing that is taken to be true.
type Assumption struct {
	// ID is what code and answers name it by, "hyperv-partition-path".
	ID       string
	Platform gpu.Platform
	// Says is what is assumed, one sentence.
	Says string
	// Source is what suggests it, and what speaks against it.
	Source string
	// Answered is what would answer it.
	Answered string
	// Asked is true when the self-test answers it by reading alone.
	Asked bool
	// Tried is true when the self-test answers it with --change, which tries it.
	Tried bool
	// Unasked is why reading alone does not answer it, "" where it does.
	Unasked string
	// Where are the files that rely on it, from the root of the repository. Each names ID.
	Where []string
}

// Of are the assumptions about a platform, those that the self-test asks first.
func Of(p gpu.Platform) []Assumption {
	var out []Assumption
	for _, a := range all {
		if a.Platform == p {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b Assumption) int {
		switch {
		case a.Asked == b.Asked:
			return 0
		case a.Asked:
			return -1
		}
		return 1
	})
	return out
}
