package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// checkReadable finds changes of what an inventory could not read. What they concern is
// known by the code that plans their steps.
func checkReadable(r *run) {
	if !r.Transition() {
		return
	}
	for host, f := range r.Forecasts() {
		for _, why := range f.Refused.Of(change.Readable) {
			r.report(Finding{
				Path:   r.mainPath(),
				Title:  "A part of the host cannot be read",
				Host:   host,
				Found:  fmt.Sprintf("%s of %s: %s.", capital(why.Object), hostText(host), why.Found()),
				Wanted: fmt.Sprintf("%s depends on it: %s.", r.label(), why.Op),
				Fix:    capital(why.Fix) + ". Changes that do not depend on it are still possible.",
			}, key("readable", host, why.Object))
		}
	}
}

// mainPath is the attribute that says where a resource is.
func (r *run) mainPath() string {
	switch w := r.Plan.Want; {
	case w.Config != nil:
		return "selector"
	case w.Pool != nil:
		return "members"
	case w.Assignment != nil:
		return "vm"
	case w.Share != nil:
		return "host"
	}
	return ""
}
