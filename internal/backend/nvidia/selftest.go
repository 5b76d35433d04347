//go:build linux && cgo

package nvidia

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// SelfTest reads which assumptions about Linux hosts hold on this one.
func (b *Backend) SelfTest(ctx context.Context) []backend.Answer {
	host, err := b.Inventory(ctx)
	answers := backend.MIGAsInCatalog(host)
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}
