package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// checkGPUAssignable finds GPUs that a pool or a VM wants whole and that their host
// cannot give away. That a GPU cannot be partitioned is said by
// valid-partition-count and gpu-not-paravirtual.
func checkGPUAssignable(r *run) {
	switch w := r.Plan.Want; {
	case w.Pool != nil:
		reportUnassignable(r, w.Pool.Members, "members")
	case w.Assignment != nil && w.Assignment.Device != nil:
		d := w.Assignment.Device
		reportUnassignable(r, map[string][]string{d.Host: d.GPUIDs}, "device.gpu_ids")
	}
}

func reportUnassignable(r *run, gpus map[string][]string, path string) {
	var unfit []member
	var lines []string
	for host, h := range r.HostsAtHand(gpus) {
		if h.Platform == gpu.Linux && r.Plan.Want.Pool != nil {
			continue // nothing is given away
		}
		for g := range whatif.Selected(h, gpus[host]) {
			if why := Unassignable(g); why != "" {
				unfit = append(unfit, member{host: host, gpu: g})
				lines = append(lines, gpuOn(host, g)+" "+why)
			}
		}
	}
	r.reportGPUs(Finding{
		Path:  path,
		Title: "The GPU cannot be assigned to a VM",
		Found: capital(join(lines)) + ".",
		Wanted: fmt.Sprintf("%s assigns %s whole: the host must be able to dismount it, and a VM to use it.",
			r.label(), verb(len(unfit), "it", "each of them")),
		Fix: "Name other GPUs in `" + path + "`; the `gpu_inventory` data source shows the `status` of each.",
	}, "unassignable", unfit)
}

// Unassignable says why a GPU cannot be given to a VM, "" when it can. A host that
// has dismounted a device has let go of it already.
func Unassignable(g *gpu.GPU) string {
	switch {
	case g.Problem != "":
		return "does not work (" + g.Problem + ")"
	case g.Dismounted:
		return ""
	case g.HostDisplay:
		return "drives the host's own display"
	case g.Status == gpu.NotAssignable:
		return "cannot be assigned (status " + string(gpu.NotAssignable) + ")"
	}
	return ""
}
