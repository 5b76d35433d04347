package fleet

import (
	"testing"
	"testing/synctest"
	"time"
)

// Between two resources with thousands of instances Terraform plans nothing for longer than patience:
// that what is planned after it is missing was said of a plan that was halfway.
func TestALongPlanIsQuietForLong(t *testing.T) {
	t.Parallel()
	for _, plans := range []int{1, 100} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandovers(time.Second)
			for range plans {
				one, other := h.begin(), h.begin()
				time.Sleep(time.Second)
				one()
				other()
			}
			ended := time.Now()
			defer h.begin()() // the plan that asks
			if !h.quiet(t.Context(), func() bool { return false }) {
				t.Error("others could have come")
			}
			if waited, least := time.Since(ended), max(time.Second/3, time.Duration(plans)*time.Second/2); waited < least || waited > least+time.Second/10 {
				t.Errorf("after %d s it waited %s", plans, waited)
			}
		})
	}
}
