//go:build linux && cgo

package nvidia

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var (
	_ backend.SelfTester   = (*Backend)(nil)
	_ backend.ChangeTester = (*Backend)(nil)
)

// SelfTest reads which assumptions about Linux hosts hold on this one.
func (b *Backend) SelfTest(ctx context.Context) []backend.Answer {
	host, err := b.Inventory(ctx)
	answers := append(backend.MIGAsInCatalog(host), slicesBeforeVolta(host))
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// slicesBeforeVolta answers what GPUs that are older than Volta show of time slices.
func slicesBeforeVolta(host gpu.Host) backend.Answer {
	a := backend.Answer{Assumption: "linux-time-slice-volta"}
	var found []string
	for i := range host.GPUs {
		g := &host.GPUs[i]
		if g.ComputeCapability == "" || !isBeforeVolta(g) {
			continue
		}
		none := g.TimeSlice == ""
		a.Holds = new(none && (a.Holds == nil || *a.Holds))
		found = append(found, fmt.Sprintf("%s, %s, compute capability %s: time slice %q", g.ID, g.Model, g.ComputeCapability, g.TimeSlice))
	}
	a.Found = strings.Join(found, "\n")
	return a
}

func isBeforeVolta(g *gpu.GPU) bool {
	const volta = 7
	major := 0
	_, err := fmt.Sscanf(g.ComputeCapability, "%d.", &major)
	return err == nil && major < volta
}
