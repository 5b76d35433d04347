package gpuutilization

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// reading is one host: what was measured, and its inventory.
type reading struct {
	name     string
	host     *gpu.Host
	measured agent.Measurement
	gpus     []gpuReading
}

type gpuReading struct {
	gpu     *gpu.GPU
	figures utilization.Figures
}

// readings are the hosts that were measured, by name, with the wanted GPUs, or all if
// none is named.
func readings(v fleet.View, m fleet.Measurements, wanted []string) []reading {
	var out []reading
	for _, name := range slices.Sorted(maps.Keys(m.Hosts)) {
		r := reading{name: name, host: v.Hosts[name], measured: m.Hosts[name]}
		for i := range r.measured.GPUs {
			id := r.measured.GPUs[i].ID
			g, ok := r.host.GPU(id)
			if !ok || len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w string) bool { return gpu.SameID(w, id) }) {
				continue // one that was plugged in since the inventory counts from the next time on
			}
			r.gpus = append(r.gpus, gpuReading{gpu: g, figures: utilization.Assess(&r.measured.GPUs[i], r.measured.Window())})
		}
		out = append(out, r)
	}
	return out
}

// placed is a share on a device, with what it is there.
type placed struct {
	claim *gpu.Claim
	share *gpu.Share
	facts placement.ShareFacts
}

// shares are those on a GPU: on any part of it, or on one instance.
func (r *reading) shares(on func(gpu.SharedDevice) bool) []placed {
	var out []placed
	for c := range r.host.ClaimsOf(gpu.ClaimShare) {
		if c.Want.Share == nil {
			continue
		}
		here := *c.Want.Share
		here.Devices = slices.DeleteFunc(slices.Clone(here.Devices), func(d gpu.SharedDevice) bool { return !on(d) })
		if len(here.Devices) > 0 {
			out = append(out, placed{claim: c, share: &here, facts: placement.DescribeShare(r.host, &here)})
		}
	}
	slices.SortFunc(out, func(a, b placed) int { return cmp.Compare(a.share.Name, b.share.Name) })
	return out
}

// onGPU finds devices that are a GPU or an instance of it.
func onGPU(id string) func(gpu.SharedDevice) bool {
	return func(d gpu.SharedDevice) bool { return gpu.SameID(d.GPU, id) }
}

// onInstance finds devices that are an instance.
func onInstance(id string, p gpu.MIGPlacement) func(gpu.SharedDevice) bool {
	return gpu.SharedDevice{GPU: id, Instance: &p}.Same
}

// oversubscription is what shares may use of a device together, divided by what it has:
// of its memory or of its multiprocessors, whichever is more. It is nil when no share
// states either.
func oversubscription(shares []placed, memory gpu.Bytes) *float64 {
	var limits gpu.Bytes
	percentage := 0.0
	for _, p := range shares {
		_, limit := p.share.MemoryOn(memory)
		limits += limit
		percentage += p.share.ActiveThreadPercentage
	}
	if limits == 0 && percentage == 0 {
		return nil
	}
	ratio := percentage / 100
	if memory > 0 {
		ratio = max(ratio, float64(limits)/float64(memory))
	}
	return &ratio
}
