package conformance

import (
	"context"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func inventoryScenarios() []scenario {
	return []scenario{
		{
			name: "shows the host as it is",
			do:   nothing,
			then: []check{
				unchanged,
				func(t *testing.T, b *bench) { sameHost(t, "not the host that was given", standardHost(), b.after) },
			},
		},
		{
			name: "shows a GPU once, by its location path",
			do:   nothing,
			then: []check{func(t *testing.T, b *bench) {
				if len(b.after.GPUs) != 4 {
					t.Errorf("there are %d GPUs, want 4", len(b.after.GPUs))
				}
			}, hasCount(gpuA, 4), isDismounted(gpuC, true)},
		},
		{
			name: "does not show claims, which are the agent's",
			first: []action{func(ctx context.Context, b *bench) error {
				return b.Store().Update(ctx, func(s *backend.State) error {
					s.Claims = append(s.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: alpha, Token: "t"})
					return nil
				})
			}},
			do: nothing,
			then: []check{func(t *testing.T, b *bench) {
				if len(b.after.Claims) > 0 {
					t.Errorf("claims in the inventory: %v", b.after.Claims)
				}
			}},
		},
		{
			name: "hands out values that the reader may change",
			do: func(ctx context.Context, b *bench) error {
				host, err := b.HyperV().Inventory(ctx)
				if err != nil {
					return err
				}
				host.GPUs[0].Partitionable.Count = 99
				host.VMs[0].Name = "changed"
				*host.VMs[0].Settings.GuestControlledCache = false
				return nil
			},
			then: []check{unchanged},
		},
		{
			name:  "shows which adapter a VM has while it is off, and no partition",
			first: []action{addAdapter(alpha)},
			do:    nothing,
			then:  []check{hasAdapters(alpha, 1), hasSeats(alpha, 0), availableVRAM(gpuA, wholeVRAM)},
		},
		{
			name:  "shows the partition of a running VM with its size",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha)},
			do:    nothing,
			then: []check{inUse(gpuA, 1), onTheGPU(gpuA, func(t *testing.T, g *gpu.GPU) {
				p := g.Partitionable.Partitions[0]
				if p.VRAM != gpu.Bytes(wholeVRAM/4) || p.VFLUID == "" || !gpu.SameID(p.VMID, alpha) {
					t.Errorf("the partition is %+v", p)
				}
			})},
		},
		{
			name:  "says from build 26100 on whether a partition can migrate",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha)},
			do:    nothing,
			then: []check{onTheGPU(gpuA, func(t *testing.T, g *gpu.GPU) {
				if s := g.Partitionable.Partitions[0].SupportsOutgoingLiveMigration; s == nil || !*s {
					t.Errorf("live migration support is %v", s)
				}
			})},
		},
		{
			name:  "says nothing about live migration before build 26100",
			given: []given{hasOnly(gpuA), oldBuild},
			first: []action{withPartition(alpha)},
			do:    nothing,
			then: []check{onTheGPU(gpuA, func(t *testing.T, g *gpu.GPU) {
				if s := g.Partitionable.Partitions[0].SupportsOutgoingLiveMigration; s != nil {
					t.Errorf("live migration support is %v", *s)
				}
			})},
		},
		{
			name:  "is the same each time when nothing happens",
			given: []given{isClustered(beta)},
			first: []action{withPartition(alpha), withPool(pool, gpuC), addFromPool(beta, pool), start(beta)},
			do:    nothing,
			again: true,
			then:  []check{unchanged},
		},
		{
			name: "fails when it is given no time",
			do: func(ctx context.Context, b *bench) error {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				_, err := b.HyperV().Inventory(ctx)
				return err
			},
			fails: backend.Timeout,
		},
	}
}
