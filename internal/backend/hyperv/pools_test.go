package hyperv_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The call that replaces a pool's members reads them first. Two at a time would lose
// one: they take turns.
func TestMembersAreReplacedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.JobTime(20 * time.Millisecond)
	var mu sync.Mutex
	under, most := 0, 0
	overlap := &overlapping{WMI: r.wire, begin: func() {
		mu.Lock()
		defer mu.Unlock()
		under++
		most = max(most, under)
	}, end: func() {
		mu.Lock()
		defer mu.Unlock()
		under--
	}}
	b := hyperv.New(overlap)
	var wg sync.WaitGroup
	errs := make(chan error, 6)
	for i := range 6 {
		members := [][]string{{gpuC}, {gpuD}, {gpuC, gpuD}, nil, {gpuD, gpuC}, {gpuC}}[i]
		wg.Go(func() { errs <- b.SetPoolMembers(t.Context(), "vdi", members) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		r.run(err)
	}
	if most != 1 {
		t.Errorf("%d calls at a time", most)
	}
	r.run(b.SetPoolMembers(t.Context(), "vdi", []string{gpuC, gpuD}))
	if p := r.host().Pools[0]; len(p.GPUs) != 2 || !p.Has(gpuC) || !p.Has(gpuD) {
		t.Errorf("the members are %v", p.GPUs)
	}

	// Who waits for a turn gives up when time runs out.
	blocked, over := make(chan struct{}), make(chan struct{})
	r.wire.change(func(w *wire) {
		w.answer = func(method string, res hyperv.Result) hyperv.Result {
			if method == "ModifyPoolResources" {
				close(blocked)
				<-over
			}
			return res
		}
	})
	wg.Go(func() { _ = r.backend.SetPoolMembers(t.Context(), "vdi", nil) })
	<-blocked
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	refuses(t, r.backend.CreatePool(ctx, "new"), backend.Timeout, "pool new")
	close(over)
	wg.Wait()
}

// overlapping sees the calls that replace members.
type overlapping struct {
	hyperv.WMI
	begin, end func()
}

func (o *overlapping) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (hyperv.Result, error) {
	if method == "ModifyPoolResources" {
		o.begin()
		defer o.end()
	}
	return o.WMI.Invoke(ctx, namespace, path, method, in)
}

// A pool of memory may have the name of a pool of devices. It is none of ours.
func TestAPoolOfAnotherResource(t *testing.T) {
	t.Parallel()
	memory := func(r *rig) []hyperv.Row {
		rows, err := r.wire.Query(t.Context(), hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE ResourceType=4 AND Primordial=FALSE",
			"PoolID")
		r.run(err)
		return rows
	}
	r := newRig(t, onHost(func(h *gpu.Host) { h.Pools = append(h.Pools, gpu.Pool{Name: "other"}) }))
	if rows := memory(r); len(rows) != 1 || rows[0].String("PoolID") != "vdi" {
		t.Fatalf("the pools of memory are %+v", rows)
	}
	if pools := r.host().Pools; len(pools) != 2 {
		t.Errorf("the pools are %+v", pools)
	}
	r.run(r.backend.SetPoolMembers(t.Context(), "vdi", []string{gpuD}), r.backend.DeletePool(t.Context(), "vdi"))
	for _, method := range []string{"ModifyPoolResources", "DeletePool"} {
		for _, c := range r.wire.called(method) {
			for _, path := range []any{c.in["ChildPool"], c.in["Pool"]} {
				if s, _ := path.(string); s == memory(r)[0].Path {
					t.Errorf("%s was called on the pool of memory", method)
				}
			}
		}
	}
	if pools := r.host().Pools; len(pools) != 1 || pools[0].Name != "other" {
		t.Errorf("the pools are %+v", pools)
	}
}

func TestAPoolInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(withDevice))
	before := r.host()
	refuses(t, r.backend.DeletePool(t.Context(), "VDI"), backend.InUse, "VM alpha draws from it")
	r.run(r.backend.StartVM(t.Context(), alpha))
	refuses(t, r.backend.SetPoolMembers(t.Context(), "vdi", []string{gpuD}), backend.InUse, gpuC, "VM alpha")
	r.run(r.backend.TurnOffVM(t.Context(), alpha))
	same(t, before, r.host())

	// What only Hyper-V knows is refused by Hyper-V, and the members go back.
	r = newRig(t)
	before = r.host()
	r.machine.Answer("DeletePool", 32774)
	refuses(t, r.backend.DeletePool(t.Context(), "vdi"), backend.InUse, "DeletePool: in use (32774)")
	same(t, before, r.host())
	r.machine.Answer("ModifyPoolResources", 0) // done, it says
	r.backend.SettleIn(100 * time.Millisecond)
	refuses(t, r.backend.DeletePool(t.Context(), "vdi"), backend.Timeout, "does not show its new members")
	same(t, before, r.host())
	if n := len(r.wire.called("ModifyPoolResources")); n != 3 {
		t.Errorf("the members were written %d times, want three: away, back, and away", n)
	}

	// Members that cannot go back are said to be missing.
	r = newRig(t)
	r.machine.Answer("DeletePool", 32774)
	writes := 0
	r.wire.change(func(w *wire) {
		w.answer = func(method string, res hyperv.Result) hyperv.Result {
			if method == "ModifyPoolResources" {
				if writes++; writes == 1 {
					r.machine.Answer(method, 32768)
				}
			}
			return res
		}
	})
	refuses(t, r.backend.DeletePool(t.Context(), "vdi"), backend.InUse, "(32774)", "its members could not be put back", "(32768)")
}

func TestPoolsAreMadeAndDeletedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 2 {
		r.run(r.backend.CreatePool(t.Context(), "new"), r.backend.CreatePool(t.Context(), "NEW"))
	}
	if pools := r.host().Pools; len(pools) != 2 || len(r.wire.called("CreatePool")) != 1 {
		t.Errorf("the pools are %+v", pools)
	}
	for range 2 {
		r.run(r.backend.DeletePool(t.Context(), "new"), r.backend.DeletePool(t.Context(), "vdi"), r.backend.DeletePool(t.Context(), "never"))
	}
	if host := r.host(); len(host.Pools) != 0 || !gpuOf(host, gpuC).Dismounted {
		t.Errorf("the pools are %+v", host.Pools)
	}
	for _, name := range []string{"", "Primordial", "primordial"} {
		refuses(t, r.backend.CreatePool(t.Context(), name), backend.InvalidParameter)
	}
}

// Somebody who makes the same pool at the same time is as good as we are.
func TestAPoolThatSomebodyElseMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := hyperv.New(r.machine.WMI())
	r.machine.Answer("CreatePool", 32788)
	refuses(t, r.backend.CreatePool(t.Context(), "new"), backend.InUse, "the object exists (32788)")
	racing := hyperv.New(&before{r.wire, "CreatePool", func() { r.run(other.CreatePool(t.Context(), "new")) }})
	r.run(racing.CreatePool(t.Context(), "new"))
	if pools := r.host().Pools; len(pools) != 2 {
		t.Errorf("the pools are %+v", pools)
	}
	racing = hyperv.New(&before{r.wire, "DeletePool", func() { r.run(other.DeletePool(t.Context(), "new")) }})
	r.run(racing.DeletePool(t.Context(), "new"))
	if pools := r.host().Pools; len(pools) != 1 {
		t.Errorf("the pools are %+v", pools)
	}
}

// before does something once, just before a method is called.
type before struct {
	hyperv.WMI
	method string
	do     func()
}

func (b *before) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (hyperv.Result, error) {
	if method == b.method && b.do != nil {
		b.do()
		b.do = nil
	}
	return b.WMI.Invoke(ctx, namespace, path, method, in)
}

// Some hosts want the pool's own name in its allocation setting, and nothing reserved.
func TestPoolsThatWantTheirOwnName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.ChildPoolID()
	r.run(r.backend.CreatePool(t.Context(), "new"))
	calls := r.wire.called("CreatePool")
	if pools := r.host().Pools; len(pools) != 2 || len(calls) != 2 {
		t.Fatalf("after %d calls the pools are %+v", len(calls), pools)
	}
	settings, _ := calls[1].in["AllocationSettings"].([]string)
	if len(settings) != 1 || !strings.Contains(settings[0], "<VALUE>new</VALUE>") {
		t.Errorf("the allocation settings are %q", settings)
	}
}

func TestMembersThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.Pools = append(h.Pools, gpu.Pool{Name: "other", GPUs: []string{gpuD}}) }))
	before := r.host()
	refuses(t, r.backend.SetPoolMembers(t.Context(), "vdi", []string{gpuA}), backend.InvalidState, gpuA, "not dismounted")
	refuses(t, r.backend.SetPoolMembers(t.Context(), "vdi", []string{gpuD}), backend.InUse, "pool other")
	refuses(t, r.backend.SetPoolMembers(t.Context(), "vdi", []string{"PCIROOT(99)"}), backend.NotFound)
	refuses(t, r.backend.SetPoolMembers(t.Context(), "never", nil), backend.NotFound)
	same(t, before, r.host())
	_, err := r.backend.AddDevice(t.Context(), alpha, gpu.DeviceAssignment{Pool: "never"})
	refuses(t, err, backend.NotFound, "no pool never")
	_, err = r.backend.AddDevice(t.Context(), alpha, gpu.DeviceAssignment{GPU: gpuA})
	refuses(t, err, backend.InvalidState, "not dismounted")
	_, err = r.backend.AddDevice(t.Context(), alpha, gpu.DeviceAssignment{GPU: gpuC, Pool: "vdi"})
	refuses(t, err, backend.InvalidParameter)
	same(t, before, r.host())
}
