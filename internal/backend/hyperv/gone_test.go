package hyperv_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// limit is more calls than any operation makes.
const limit = 200

// The service goes after every call of an inventory.
func TestTheServiceGoesWhileTheHostIsRead(t *testing.T) {
	t.Parallel()
	if n := readCalls(t, newRig(t, inCluster)); n < 15 {
		t.Errorf("an inventory makes %d calls", n)
	}
}

// readCalls lets the service go after each call of an inventory and returns how many
// there are.
func readCalls(t *testing.T, r *rig) int {
	t.Helper()
	for n := range limit {
		r.machine.Gone(n)
		_, err := r.backend.Inventory(t.Context())
		r.machine.Back()
		if err == nil {
			return n
		}
		refuses(t, err, backend.Unavailable, "0x800706BA")
	}
	t.Fatal("an inventory never ends")
	return 0
}

// The service goes after every call of every operation.
// What was begun ends or not; the answer never is that the host refused, and once the
// service is back the operation succeeds.
func TestTheServiceGoesInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			cuts := 0
			for n := range limit {
				r := o.rig(t)
				r.machine.Gone(n)
				err := o.do(t.Context(), r.backend)
				r.machine.Back()
				if err == nil {
					r.settled(o)
					break
				}
				cuts++
				refuses(t, err, backend.Unavailable, "0x800706BA")
				r.machine.Wait()
				// A caller looks before it adds once more.
				if !o.adds || !o.done(r.host()) {
					r.run(o.do(t.Context(), r.backend))
				}
				r.settled(o)
			}
			if cuts == 0 || cuts == limit-1 {
				t.Errorf("the service went %d times", cuts)
			}
		})
	}
}

// A host that is switched off answers nothing, and has lost nothing.
func TestTheHostIsSwitchedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run(r.fleet.SetUnreachable(t.Context(), "hv01", true))
	_, err := r.backend.Inventory(t.Context())
	refuses(t, err, backend.Unavailable)
	refuses(t, r.backend.StartVM(t.Context(), alpha), backend.Unavailable)
	_, err = r.backend.AddPartitionAdapter(t.Context(), alpha, pinnedTo(gpuA))
	refuses(t, err, backend.Unavailable)
	r.run(r.fleet.SetUnreachable(t.Context(), "hv01", false))
	r.host()
}

// A half made adapter stays when the service goes before its quotas are set, which is no
// refusal of the quotas.
func TestTheServiceGoesBeforeTheQuotas(t *testing.T) {
	t.Parallel()
	a := pinnedTo(gpuA)
	a.Quotas = someQuotas
	for n := range limit {
		r := newRig(t)
		r.machine.Gone(n)
		_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, a)
		r.machine.Back()
		if err == nil {
			if vm := r.vm(alpha); len(vm.PartitionAdapters) != 1 || !vm.PartitionAdapters[0].Quotas.Equal(someQuotas) {
				t.Errorf("the adapters are %+v", vm.PartitionAdapters)
			}
			return
		}
		refuses(t, err, backend.Unavailable)
	}
	t.Error("it never succeeds")
}
