package rules

import (
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Unrestorable finds the GPUs that a config is to put back as they were, and that keep their layout: no host knows any more how
// that was, or the GPU cannot have it any more.
func Unrestorable(hosts map[string]*gpu.Host, p change.Change) []Finding {
	c := p.Prior.Config
	if c == nil || !c.Restore {
		return nil
	}
	stays := func(host, id string) bool {
		return p.Want.Config != nil && gpu.HasID(p.Want.Config.GPUs[host], id)
	}
	var out []Finding
	for _, host := range whatif.SortedKeys(c.GPUs) {
		h, ok := hosts[host]
		if !ok {
			continue
		}
		claim, recorded := h.Claim(gpu.ClaimConfig, c.ID)
		if recorded && claim.Token != p.Token {
			continue // it is another resource's by now
		}
		if recorded {
			out = append(out, reportCannotRestore(p, host, h, claim, func(id string) bool { return stays(host, id) })...)
		}
		var kept []string
		for g := range whatif.Selected(h, c.GPUs[host]) {
			if recorded && claim.OriginalLayouts.Of(g.ID) != (gpu.Layout{}) || g.Dismounted || stays(host, g.ID) {
				continue
			}
			text := gpuText(g)
			if change.Offers(c.Kind, g) {
				text += " with " + change.LayoutFound(c, g)
			}
			kept = append(kept, text)
		}
		if len(kept) > 0 {
			out = append(out, Finding{
				Level: Warning,
				Path:  "on_destroy",
				Title: "The previous layout is not recorded",
				Host:  host,
				Found: fmt.Sprintf("%s has no record of the layout before %s for %s.", capital(hostText(host)), whatif.Label(p), joinAll(kept)),
				Fix:   "These GPUs keep the layout that they have. Change it on the host afterwards, if needed.",
			})
		}
	}
	return out
}

// NotMounted finds the GPUs that a plan does not mount back on their host, as the host cannot read them.
func NotMounted(p change.Change, does []change.Forecast) []Finding {
	var out []Finding
	for _, f := range does {
		for _, r := range f.Left {
			if r.Op != change.MountBack {
				continue
			}
			out = append(out, Finding{
				Level: Warning, Path: pathOf(p), Title: "The GPU is not mounted back", Host: f.Host, GPU: r.GPU,
				Found:  fmt.Sprintf("GPU %s on %s: %s.", r.GPU, hostText(f.Host), r.Found()),
				Wanted: fmt.Sprintf("%s mounts a GPU that leaves it back on its host.", whatif.Label(p)),
				Fix: fmt.Sprintf("It stays dismounted, and all else goes on. Repair it before the apply, or run "+
					"Mount-VMHostAssignableDevice -LocationPath %q on the host afterwards.", r.GPU),
			})
		}
	}
	return out
}

// reportCannotRestore finds the GPUs of a config that leave it and cannot have any more what they had before it.
func reportCannotRestore(p change.Change, host string, h *gpu.Host, claim *gpu.Claim, stays func(id string) bool) []Finding {
	var lines []string
	for _, id := range claim.GPUs {
		if why := change.Unrestorable(h, claim, id); why != "" && !stays(id) {
			lines = append(lines, "GPU "+id+": "+why)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return []Finding{{
		Level: Warning, Path: "on_destroy", Title: "The previous layout cannot be restored", Host: host,
		Found: fmt.Sprintf("On %s these GPUs cannot have the layout from before %s: %s.", hostText(host), whatif.Label(p),
			strings.Join(lines, "; ")),
		Fix: "These GPUs keep the layout that they have, and the others get theirs back. Change it on the host afterwards, if needed.",
	}}
}
