package placement

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Strangers are the processes on a GPU that are neither of MPS nor its clients: in compute
// Mode exclusive_process there is no place beside them.
func Strangers(h *gpu.Host, g *gpu.GPU) []string {
	of := map[int]bool{}
	if h.MPS != nil {
		for i := range h.MPS.Daemons {
			d := &h.MPS.Daemons[i]
			of[d.PID] = true
			for _, p := range d.Clients {
				of[p.PID] = true
			}
		}
	}
	var out []string
	for _, p := range g.Processes {
		if !of[p.PID] && !isMPS(p) {
			out = append(out, ProcessText(p))
		}
	}
	return out
}

// ForeignDaemons are the MPS daemons of others that serve a GPU: two of them cannot.
func ForeignDaemons(h *gpu.Host, g *gpu.GPU) []string {
	if h.MPS == nil {
		return nil
	}
	var out []string
	for i := range h.MPS.Daemons {
		if d := &h.MPS.Daemons[i]; d.Name == "" && slices.ContainsFunc(slices.Collect(maps.Keys(GPUsOf(d.Devices))),
			func(id string) bool { return gpu.SameID(id, g.ID) }) {
			out = append(out, fmt.Sprintf("the MPS control daemon of somebody else (process %d)", d.PID))
		}
	}
	return out
}

// GPUsOf are the GPUs of some devices.
func GPUsOf(devices []gpu.SharedDevice) map[string]bool {
	out := map[string]bool{}
	for _, d := range devices {
		out[d.GPU] = true
	}
	return out
}

// mpsPrograms are what MPS itself runs.
var mpsPrograms = []string{"nvidia-cuda-mps-server", "nvidia-cuda-mps-control"}
