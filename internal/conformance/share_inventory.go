package conformance

import (
	"context"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func shareInventoryScenarios() []migScenario {
	return []migScenario{
		{
			name: "shows what the GPUs are to CUDA",
			do:   lookOnly,
			then: []migCheck{
				nothingChanged, hasCapability(a100, "8.0"), hasCapability(h100A, "9.0"), hasCapability(l40s, "8.9"),
				hasComputeMode(h100A, gpu.ComputeDefault), hasTimeSlice(h100A, gpu.TimeSliceDefault),
			},
		},
		{
			name: "shows what is installed",
			do:   lookOnly,
			then: []migCheck{hasDaemons(), hasShares(), func(t *testing.T, b *migBench) {
				if b.after.MPS == nil || b.after.MPS.Program == "" || b.after.ContainerToolkit != toolkit {
					t.Errorf("it has MPS %+v and the container toolkit %q", b.after.MPS, b.after.ContainerToolkit)
				}
			}},
		},
		{
			name:  "shows what is not installed",
			given: []given{withoutMPS, withoutToolkit},
			do:    lookOnly,
			then: []migCheck{func(t *testing.T, b *migBench) {
				if b.after.MPS == nil || b.after.MPS.Program != "" || b.after.ContainerToolkit != "" {
					t.Errorf("it has MPS %+v and the container toolkit %q", b.after.MPS, b.after.ContainerToolkit)
				}
			}},
		},
		{
			name:  "shows time slices of full GPUs only",
			first: []migAction{setMode(h100A, true)},
			do:    lookOnly,
			then:  []migCheck{hasTimeSlice(h100A, ""), hasTimeSlice(h100B, ""), hasTimeSlice(a100, gpu.TimeSliceDefault)},
		},
		{
			name:  "shows daemons of others, without a name",
			first: []migAction{somebodyStartsDaemon(h100A, l40s)},
			do:    lookOnly,
			then: []migCheck{hasDaemons(), func(t *testing.T, b *migBench) {
				foreign := foreignDaemons(&b.after)
				if len(foreign) != 1 || foreign[0].PID == 0 || !gpu.SameDevices(foreign[0].Devices, whole(h100A, l40s)) {
					t.Errorf("there are %+v", foreign)
				}
			}},
		},
		{
			name: "shows who is a client, on each GPU of the daemon",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A, l40s))), connects("trainer", daemonA), connects("notebook", daemonA), starts("server", a100),
			},
			do: lookOnly,
			then: []migCheck{
				serves(daemon(daemonA, whole(h100A, l40s)), "trainer", "notebook"),
				runsOn("trainer", h100A), runsOn("trainer", l40s), runsOn("notebook", l40s), runsOn("server", a100),
			},
		},
		{
			name: "shows a client in its GPU instance",
			first: []migAction{
				create(h100B, mig3g, 4), create(h100B, mig1g, 0), ensure(daemon(daemonA, part(h100B, mig3g, 4))), connects("trainer", daemonA),
			},
			do:   lookOnly,
			then: []migCheck{serves(daemon(daemonA, part(h100B, mig3g, 4)), "trainer"), runsIn("trainer", h100B, mig3g, 4)},
		},
		{
			name:  "does not show a client that ended",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), connects("notebook", daemonA), ends("trainer")},
			do:    lookOnly,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A)), "notebook"), runsNot("trainer")},
		},
		{
			name: "shows in which share a process is",
			first: []migAction{
				hand(gpu.ShareSpec{Name: shareA, Devices: whole(l40s)}), startsInShare("trainer", shareA), starts("server", l40s),
			},
			do:   lookOnly,
			then: []migCheck{runsOn("trainer", l40s), isIn("trainer", shareA), isIn("server", "")},
		},
		{
			name: "shows in which share a client is",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), hand(gpu.ShareSpec{Name: shareA, Devices: whole(h100A), Daemon: daemonA}),
				startsInShare("trainer", shareA), connects("server", daemonA),
			},
			do:   lookOnly,
			then: []migCheck{serves(daemon(daemonA, whole(h100A)), "trainer", "server"), isIn("trainer", shareA), isIn("server", "")},
		},
		{
			name: "shows a GPU instance that is gone by its UUID",
			first: []migAction{
				create(h100B, mig3g, 4), create(h100B, mig1g, 0), ensure(daemon(daemonA, part(h100B, mig3g, 4))), somebodyDestroys(h100B, mig3g, 4),
			},
			do: lookOnly,
			then: []migCheck{func(t *testing.T, b *migBench) {
				d, ok := b.after.Daemon(daemonA)
				if !ok || len(d.Devices) != 1 || d.Devices[0].Instance != nil || len(d.Devices[0].GPU) < 5 || d.Devices[0].GPU[:4] != "MIG-" {
					t.Errorf("daemon %s is there: %t, as %+v", daemonA, ok, d)
				}
			}},
		},
		{
			name: "is the same each time when nothing happens",
			first: []migAction{
				create(h100B, mig3g, 4), ensure(daemon(daemonA, whole(h100A, l40s))), ensure(daemon(daemonB, part(h100B, mig3g, 4))),
				hand(gpu.ShareSpec{Name: shareA, Devices: whole(l40s), Daemon: daemonA}), hand(gpu.ShareSpec{Name: shareB, Devices: whole(a100)}),
				connects("trainer", daemonA), startsInShare("server", shareB),
			},
			do:    lookOnly,
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:  "hands out values that the reader may change",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), hand(gpu.ShareSpec{Name: shareA, Devices: whole(h100A), Daemon: daemonA})},
			do: func(ctx context.Context, b *migBench) error {
				host, err := b.Inventory(ctx)
				if err != nil {
					return err
				}
				host.MPS.Daemons[0].Devices[0].GPU, host.Shares[0].Environment["CUDA_VISIBLE_DEVICES"] = l40s, l40s
				return nil
			},
			then: []migCheck{nothingChanged},
		},
		{
			name: "fails when it is given no time",
			do: stopped(migAction(func(ctx context.Context, b *migBench) error {
				_, err := b.sharing.Sharing().Inventory(ctx)
				return err
			})),
			fails: backend.Timeout,
		},
	}
}
