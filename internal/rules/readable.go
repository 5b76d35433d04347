package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// checkReadable finds changes of what an inventory could not read. What they concern is
// known by the code that plans their steps.
func checkReadable(r *run) {
	if !r.transition() {
		return
	}
	for _, host := range r.concernedHosts() {
		h, ok := r.host(host)
		if !ok || len(h.Unknown) == 0 {
			continue
		}
		e := effectOf(r.withClaims(host, h), host, r.owner, r.plan)
		if e.refused == nil || e.refused.Rule != change.Readable {
			continue
		}
		r.report(Finding{
			Path:   r.mainPath(),
			Title:  "A part of the host cannot be read",
			Host:   host,
			Found:  fmt.Sprintf("%s of %s: %s.", capital(e.refused.Object), hostText(host), e.refused.Found),
			Wanted: fmt.Sprintf("%s depends on it: %s.", r.label(), e.refused.Op),
			Fix:    capital(e.refused.Fix) + ". What the change does not concern can be changed meanwhile.",
		}, key("readable", host, e.refused.Object))
	}
}

// concernedHosts are the hosts at hand that a plan may do something to.
func (r *run) concernedHosts() []string {
	out := map[string]bool{}
	for _, w := range []gpu.Want{r.plan.Want, r.plan.Prior} {
		gpus, _ := wantedGPUs(w)
		for host := range gpus {
			out[host] = true
		}
		switch {
		case w.Share != nil && w.Share.Host != "":
			out[w.Share.Host] = true
		case w.Assignment != nil:
			if at, ok := r.locate(w.Assignment); ok {
				out[at.key] = true
			}
		}
	}
	return sortedKeys(out)
}

// mainPath is the attribute that says where a resource is.
func (r *run) mainPath() string {
	switch w := r.plan.Want; {
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
