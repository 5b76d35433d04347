package placement

import (
	"path"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// LayOutMIGConfig is LayOutMIG for a config on a GPU of a host. Where the layout cannot be
// had otherwise and the config lets processes be restarted, clients of our MPS daemons give
// way: they end with their daemon.
func LayOutMIGConfig(h *gpu.Host, g *gpu.GPU, c *gpu.PartitionConfig, shares ...*gpu.Share) (MIGPlan, error) {
	if c.MIG.Off { // what watches the instances is stopped, as for every change of the mode
		have, _ := heldByShares(g, MIGProfiles(g), MIGInstances(ReleasedByMPS(h, g, c.MaxDisruption), c.QuiesceUnits...), shares)
		return FollowMIG(nil, have, nil)
	}
	plan, err := LayOutMIG(ReleasedByMPS(h, g, gpu.DisruptNone), c.MIG, shares...)
	if FaultOf(err) == MIGInUse {
		return LayOutMIG(ReleasedByMPS(h, g, c.MaxDisruption), c.MIG, shares...)
	}
	return plan, err
}

// ReleasedByMPS is a GPU as it is once our MPS daemons on it have ended: without their
// servers, which hold nothing for themselves, and without their clients where processes may
// be restarted.
func ReleasedByMPS(h *gpu.Host, g *gpu.GPU, limit gpu.Disruption) *gpu.GPU {
	ours, clients := false, map[int]bool{}
	claimed := slices.ContainsFunc(h.Claims, func(c gpu.Claim) bool {
		return c.Kind == gpu.ClaimConfig && c.Want.Config != nil && c.Want.Config.MPS != nil && c.Covers(g.ID)
	})
	if h.MPS != nil && claimed { // a daemon that was kept goes on, and nobody ends it
		for i := range h.MPS.Daemons {
			d := &h.MPS.Daemons[i]
			if d.Name == "" || !slices.ContainsFunc(d.Devices, func(at gpu.SharedDevice) bool { return gpu.SameID(at.GPU, g.ID) }) {
				continue
			}
			ours = true
			for _, p := range d.Clients {
				clients[p.PID] = !gpu.DisruptProcessRestart.Exceeds(limit)
			}
		}
	}
	if !ours {
		return g
	}
	out := *g
	out.Processes = slices.DeleteFunc(slices.Clone(g.Processes), func(p gpu.Process) bool { return isMPS(p) || clients[p.PID] })
	return &out
}

// Servers are the processes on a daemon's devices that compute for its clients, and end with it.
func Servers(h *gpu.Host, d *gpu.MPSDaemon) []gpu.Process {
	var out []gpu.Process
	for _, at := range d.Devices {
		g, ok := h.GPU(at.GPU)
		for i := 0; ok && i < len(g.Processes); i++ {
			if p := g.Processes[i]; isMPS(p) && (at.Instance == nil || runsIn(g, p, *at.Instance)) {
				out = append(out, p)
			}
		}
	}
	return out
}

// runsIn tells whether a process is in an instance of a GPU.
func runsIn(g *gpu.GPU, p gpu.Process, at gpu.MIGPlacement) bool {
	return g.MIG != nil && p.GPUInstance != nil && slices.ContainsFunc(g.MIG.Instances, func(in gpu.GPUInstance) bool {
		return in.ID == *p.GPUInstance && in.Placement() == at
	})
}

// isMPS tells whether a process is one of MPS itself.
func isMPS(p gpu.Process) bool { return slices.Contains(mpsPrograms, path.Base(p.Name)) }
