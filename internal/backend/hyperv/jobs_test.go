package hyperv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Every return value that is documented has its name, and one that is not is given as
// it is.
func TestReturnValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[uint32]struct {
		code backend.Code
		name string
	}{
		1:     {backend.NotSupported, "not supported"},
		2:     {backend.Failed, "failed"},
		3:     {backend.Timeout, "timed out"},
		4:     {backend.InvalidParameter, "invalid parameter"},
		5:     {backend.InvalidState, "invalid state"},
		6:     {backend.InvalidParameter, "incompatible parameters"},
		32768: {backend.Failed, "failed"},
		32769: {backend.AccessDenied, "access denied"},
		32770: {backend.NotSupported, "not supported"},
		32771: {backend.Failed, "status unknown"},
		32772: {backend.Timeout, "timed out"},
		32773: {backend.InvalidParameter, "invalid parameter"},
		32774: {backend.InUse, "in use"},
		32775: {backend.InvalidState, "invalid state"},
		32776: {backend.InvalidParameter, "incorrect data type"},
		32777: {backend.Unavailable, "not available"},
		32778: {backend.Insufficient, "out of memory"},
		32779: {backend.NotFound, "file not found"},
		32780: {backend.Insufficient, "insufficient resources"},
		32781: {backend.NotFound, "object not found"},
		32787: {backend.NotFound, "object not found"},
		32788: {backend.InUse, "the object exists"},
		40000: {backend.Failed, "failed"},
	} {
		err := hyperv.Refused(value, "Le texte de l'hôte.")
		e, ok := errors.AsType[*backend.Error](err)
		if !ok || e.Code != want.code {
			t.Errorf("%d is %v, want %s", value, err, want.code)
			continue
		}
		for _, word := range []string{"Method", want.name, fmt.Sprintf("(%d)", value), "Le texte de l'hôte."} {
			if !strings.Contains(e.Detail, word) {
				t.Errorf("%d does not say %q: %s", value, word, e.Detail)
			}
		}
	}
	for text, want := range map[string]backend.Code{
		"Insufficient system resources exist. (0x800705AA)": backend.Insufficient,
		"Nicht genügend Ressourcen (0x800705aa).":           backend.Insufficient,
		"The node is paused (0x80070046)":                   backend.Unavailable,
		"0x80004005":                                        backend.Failed,
	} {
		if e, _ := errors.AsType[*backend.Error](hyperv.Refused(32768, text)); e.Code != want {
			t.Errorf("%q is %s, want %s", text, e.Code, want)
		}
	}
}

// withJob are the operations that Hyper-V may answer with a job.
func withJob() []operation {
	var out []operation
	for _, o := range operations() {
		if !o.immediate {
			out = append(out, o)
		}
	}
	return out
}

// A job that fails, and a method that refuses, say why, and leave the host as it was.
func TestJobsThatFail(t *testing.T) {
	t.Parallel()
	for _, o := range withJob() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			for _, synchronous := range []bool{false, true} {
				r := o.rig(t)
				if synchronous {
					r.machine.Synchronous(o.method)
				}
				before := r.host()
				r.machine.FailJob(o.method, 32768, "Die Maschine will nicht.")
				words := []string{o.method, "failed (32768)", "Die Maschine will nicht."}
				if synchronous {
					words = words[:2] // a return value has no text
				}
				refuses(t, o.do(t.Context(), r.backend), backend.Failed, words...)
				same(t, before, r.host())

				r.machine.Answer(o.method, 32777)
				refuses(t, o.do(t.Context(), r.backend), backend.Unavailable, o.method, "not available (32777)")
				same(t, before, r.host())

				r.run(o.do(t.Context(), r.backend))
				r.settled(o)
			}
		})
	}
}

// What refuses for a while, because a VM's settings are still locked or in use, is tried
// again for as long as the step has, whether a call or its job says so. The host's state
// is as asked, or as before.
func TestRefusalsThatPass(t *testing.T) {
	t.Parallel()
	for _, o := range withJob() {
		if o.class != management {
			continue
		}
		for _, value := range []uint16{5, 6, 32773, 32774, 32775} {
			t.Run(fmt.Sprintf("%s/%d", o.name, value), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := o.rig(t)
					for range 5 {
						r.machine.Answer(o.method, uint32(value))
					}
					r.machine.FailJob(o.method, value, "")
					began := time.Now()
					r.run(o.do(t.Context(), r.backend))
					r.settled(o)
					if n, took := len(r.wire.called(o.method)), time.Since(began); n != 7 || took < 2*time.Second {
						t.Errorf("%s was called %d times in %s", o.method, n, took)
					}

					for _, limit := range []time.Duration{3 * time.Second, time.Hour} {
						r = o.rig(t)
						before := r.host()
						for range 100 {
							r.machine.Answer(o.method, uint32(value))
						}
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						began = time.Now()
						err := o.do(ctx, r.backend)
						cancel()
						if e, ok := errors.AsType[*backend.Error](err); !ok || !strings.Contains(err.Error(), fmt.Sprintf("(%d); tried", value)) {
							t.Errorf("got %v", e)
						}
						if took := time.Since(began); took > min(limit, 10*time.Second) || took < min(limit, 8*time.Second) {
							t.Errorf("gave up after %s of %s: %v", took, limit, err)
						}
						same(t, before, r.host())
					}
				})
			})
		}
	}
}

// A VM that is really in the way, because somebody has started it since, is not waited for.
func TestRefusalsThatDoNotPass(t *testing.T) {
	t.Parallel()
	for _, o := range withJob() {
		if o.class != management {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			r := o.rig(t)
			b := hyperv.New(&before{r.wire, o.method, func() { r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning)) }})
			err := o.do(t.Context(), b)
			if e, ok := errors.AsType[*backend.Error](err); !ok || !strings.Contains(e.Detail, "the VM is running and must be off") {
				t.Errorf("got %v", err)
			}
			if n := len(r.wire.called(o.method)); n != 1 {
				t.Errorf("%s was called %d times", o.method, n)
			}
		})
	}
}

// Time runs out while a job runs. The error says that it may still end, and it does; a
// call in the middle of others is seen to its end.
func TestJobsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	for _, o := range withJob() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			r := o.rig(t)
			r.machine.JobTime(100 * time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.wire.change(func(w *wire) {
				w.answer = func(method string, res hyperv.Result) hyperv.Result {
					if method == o.method {
						cancel()
					}
					return res
				}
			})
			err := o.do(ctx, r.backend)
			if o.method != "DeletePool" && o.method != "DismountAssignableDevice" {
				refuses(t, err, backend.Timeout, o.method, "may still end")
			}
			r.wire.change(func(w *wire) { w.answer = nil })
			r.machine.Wait()
			if !o.adds || !o.done(r.host()) {
				r.run(o.do(t.Context(), r.backend))
			}
			r.settled(o)
		})
	}
}

// Jobs that vanish are judged by what they leave.
func TestJobsThatVanish(t *testing.T) {
	t.Parallel()
	for _, o := range withJob() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			r := o.rig(t)
			r.machine.DropJob(o.method)
			err := o.do(t.Context(), r.backend)
			if e, ok := errors.AsType[*backend.Error](err); ok && e.Code == backend.Failed && strings.Contains(err.Error(), "the job is gone") {
				// What is looked at once may be looked at too early.
				r.machine.Wait()
				err = o.do(t.Context(), r.backend)
			}
			r.run(err)
			r.settled(o)

			r = o.rig(t)
			r.backend.SettleIn(200 * time.Millisecond)
			before := r.host()
			r.machine.DropJob(o.method)
			r.machine.FailJob(o.method, 32768, "nobody reads this")
			err = o.do(t.Context(), r.backend)
			if err == nil {
				t.Error("a job that failed unseen is taken for done")
			}
			r.machine.Wait() // that it has failed may come after what was looked at
			if e, ok := errors.AsType[*backend.Error](err); ok && e.Code != backend.Failed && e.Code != backend.Timeout {
				t.Errorf("got %v", err)
			}
			same(t, before, r.host())
			r.run(o.do(t.Context(), r.backend))
			r.settled(o)
		})
	}
}

// A job that ends in another way than by success or an error, and one that answers
// without saying which it is.
func TestOtherEndsOfJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wire.change(func(w *wire) {
		w.answer = func(method string, res hyperv.Result) hyperv.Result {
			if method == "AddResourceSettings" {
				res.Out = nil
			}
			return res
		}
	})
	_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
	refuses(t, err, backend.Failed, "AddResourceSettings", "a job has begun, but not which")
}
