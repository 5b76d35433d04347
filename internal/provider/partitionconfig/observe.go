package partitionconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// observe writes what the hosts have into the computed attributes. Hosts that did
// not answer keep what the model had, and so do hosts that the config has left
// without being told.
func (m *model) observe(ctx context.Context, c gpu.PartitionConfig, hosts []string, v fleet.View, diags *diag.Diagnostics) {
	gpusBefore, daemonsBefore, driftBefore := m.gpus(diags), m.daemons(ctx, diags), mended(report.DecodeDrift(ctx, m.Drift, diags))
	all, daemons := map[string]map[string]gpuModel{}, map[string][]daemonModel{}
	var differs []change.Difference
	for _, name := range hosts {
		h, answered := v.Hosts[name]
		if !answered {
			if listed, ok := gpusBefore[name]; ok {
				all[name] = listed
			}
			if listed, ok := daemonsBefore[name]; ok {
				daemons[name] = listed
			}
			continue
		}
		var found []change.Difference
		all[name], found = observeHost(ctx, c, name, h, gpusBefore[name], driftBefore, diags)
		daemons[name] = describeDaemons(c, h, slices.Collect(maps.Keys(all[name])))
		if _, unknown := h.UnknownPart(gpu.PartDaemons); unknown {
			daemons[name] = daemonsBefore[name]
		}
		if isNew(gpusBefore, name) && len(all[name]) > 0 {
			if _, claimed := h.Claim(gpu.ClaimConfig, c.ID); !claimed {
				found = []change.Difference{{Object: "host " + name, Found: "is new, and does not have the config yet"}}
			}
		}
		differs = append(differs, found...)
	}
	for _, name := range slices.Sorted(maps.Keys(gpusBefore)) {
		if slices.Contains(hosts, name) {
			continue
		}
		if h, answered := v.Hosts[name]; answered {
			if _, claimed := h.Claim(gpu.ClaimConfig, c.ID); !claimed {
				continue
			}
		}
		all[name] = gpusBefore[name]
		if listed, ok := daemonsBefore[name]; ok {
			daemons[name] = listed
		}
		differs = append(differs, change.Difference{Object: "host " + name, Found: "is not one of the config's hosts, but has it, " +
			"and has not been given up yet"})
	}

	m.PartitionVRAMMiB = sizeOfAll(all)
	m.setGPUs(ctx, all, diags)
	m.setDaemons(ctx, c, daemons, diags)
	m.Isolation = types.StringValue(string(observedIsolation(c, hosts, v)))
	m.Drift = report.EncodeDrift(ctx, differs, diags)
}

// begun adds the hosts to which a run that ended early has given the config.
func (m *model) begun(
	ctx context.Context, f *fleet.Fleet, token string, c gpu.PartitionConfig, v fleet.View, diags *diag.Diagnostics,
) fleet.View {
	more, v := f.Begun(ctx, v, gpu.ClaimConfig, c.ID, token)
	if len(more) == 0 {
		return v
	}
	all := m.gpus(diags)
	for _, name := range more {
		all[name] = map[string]gpuModel{}
		h := v.Hosts[name]
		claim, _ := h.Claim(gpu.ClaimConfig, c.ID)
		for _, id := range claim.GPUs {
			if g, ok := h.GPU(id); ok {
				all[name][id] = describe(ctx, c, h, g, diags)
			}
		}
	}
	m.setGPUs(ctx, all, diags)
	return v
}

// keepObserved takes what a state has in the computed attributes.
func (m *model) keepObserved(state *model) {
	m.GPUs, m.Daemons, m.PartitionVRAMMiB, m.Isolation, m.Drift = state.GPUs, state.Daemons, state.PartitionVRAMMiB, state.Isolation,
		state.Drift
}

// forgetObserved makes the computed attributes unknown that only the hosts can tell after
// the apply.
func (m *model) forgetObserved(want gpu.PartitionConfig, known bool) {
	m.GPUs, m.Daemons = types.MapUnknown(hostType), types.MapUnknown(daemonsOfHostType)
	m.Drift = report.NoDrift()
	m.PartitionVRAMMiB, m.Isolation = types.Int64Unknown(), m.plannedIsolation()
	if known && want.Kind != gpu.KindGPUP {
		m.PartitionVRAMMiB = types.Int64Null()
	}
	if known && want.MPS == nil {
		m.Daemons = types.MapNull(daemonsOfHostType)
	}
}

// observeHost tells what a host has of the config, and where that differs from what
// is declared. gpusBefore are the GPUs that the state lists there, and driftBefore is its drift.
func observeHost(
	ctx context.Context, c gpu.PartitionConfig, name string, h *gpu.Host, gpusBefore map[string]gpuModel, driftBefore []change.Difference,
	diags *diag.Diagnostics,
) (gpus map[string]gpuModel, differs []change.Difference) {
	gpus = map[string]gpuModel{}
	claim, _ := h.Claim(gpu.ClaimConfig, c.ID)
	listed := listed(gpusBefore)
	for _, id := range fleet.SelectKind(c.Kind, name, h, c.Scope.Selector, own(c.ID, "")) {
		g, ok := h.GPU(id)
		if _, unknown := h.UnknownGPU(id); unknown {
			if before, had := gpusBefore[id]; had {
				gpus[id] = before // nobody knows better
			}
			continue
		}
		if !ok || !change.Offers(c.Kind, g) {
			continue // lost
		}
		if claim == nil || claim.Covers(id) {
			gpus[id] = describe(ctx, c, h, g, diags)
			if d := report.ReplacedGPU(name, h, g, listed, driftBefore, ""); d != nil {
				differs = append(differs, *d)
			}
			continue
		}
		// It joins with the next apply, and until then the rules see it as new.
		differs = append(differs, *cmp.Or(report.ReplacedGPU(name, h, g, listed, driftBefore, "the config"),
			&change.Difference{Object: "GPU " + id, Cause: change.CauseGPUAdded, Found: "is not in the config yet"}))
	}
	differs = append(differs, change.Differences(h, &c, claim, withLost(slices.Collect(maps.Keys(gpus)), h, claim))...)
	nameObjects(differs, name, h)
	if claim != nil && claim.Incomplete {
		differs = append(differs, change.Difference{
			Object: "host " + name, Cause: change.CauseFailedChange, Found: "has a change of this config that did not succeed on every host",
		})
	}
	return gpus, differs
}

// listed are the GPUs of a host as the state has them.
func listed(before map[string]gpuModel) []report.ListedGPU {
	var out []report.ListedGPU
	for _, id := range slices.Sorted(maps.Keys(before)) {
		out = append(out, report.ListedGPU{ID: id, Model: before[id].Model.ValueString(), Address: before[id].Address.ValueString()})
	}
	return out
}

// withLost adds the GPUs that a claim has and its host no longer shows.
func withLost(ids []string, h *gpu.Host, claim *gpu.Claim) []string {
	if claim != nil {
		for _, id := range claim.GPUs {
			if _, there := h.GPU(id); !there {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// nameObjects adds the host, and the model of a GPU, to what differs.
func nameObjects(differs []change.Difference, host string, h *gpu.Host) {
	for i := range differs {
		d := &differs[i]
		if g, ok := h.GPU(strings.TrimPrefix(d.Object, "GPU ")); ok {
			d.Object += " (" + g.Model + ")"
		}
		d.Object = "host " + host + ", " + d.Object
	}
}

// inSlot is the GPU at a PCI address, nil for none.
func inSlot(h *gpu.Host, address string) *gpu.GPU {
	for i := range h.GPUs {
		if g := &h.GPUs[i]; address != "" && g.Address == address {
			return g
		}
	}
	return nil
}

// isNew tells whether a host has come to those that the state lists, as a node that joins a cluster.
func isNew(gpusBefore map[string]map[string]gpuModel, host string) bool {
	return len(gpusBefore) > 0 && len(gpusBefore[host]) == 0
}

// records are the config's claims on the hosts that have GPUs of it, but for new ones without.
func (m *model) records(
	hosts []string, gpusBefore map[string]map[string]gpuModel, v fleet.View, diags *diag.Diagnostics,
) map[string]*gpu.Claim {
	out, gpus := map[string]*gpu.Claim{}, m.gpus(diags)
	for _, name := range hosts {
		if h, answered := v.Hosts[name]; answered && len(gpus[name]) > 0 {
			if claim, claimed := h.Claim(gpu.ClaimConfig, m.ID.ValueString()); claimed || !isNew(gpusBefore, name) {
				out[name] = claim
			}
		}
	}
	return out
}

// warnLost tells of GPUs that the model lists and that their hosts no longer offer.
func (m *model) warnLost(c gpu.PartitionConfig, v fleet.View, diags *diag.Diagnostics) {
	gpusBefore := m.gpus(diags)
	for _, name := range slices.Sorted(maps.Keys(gpusBefore)) {
		h, answered := v.Hosts[name]
		if !answered {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(gpusBefore[name])) {
			lost := gpusBefore[name][id]
			if g, ok := h.GPU(id); ok && change.Offers(c.Kind, g) {
				continue
			}
			then := "The config goes on without it. When the GPU comes back it is partitioned again."
			if now := inSlot(h, lost.Address.ValueString()); now != nil {
				then = fmt.Sprintf("GPU %s (%s) is in its PCI slot %s now. The config continues with that GPU where its selector covers it.", now.ID,
					now.Model, now.Address)
			}
			diags.AddWarning("GPU is lost", fmt.Sprintf("%s\n\nHost: %s\nFound: It no longer offers GPU %s (%s) for partitioning.\n%s",
				label(c.ID), name, id, lost.Model.ValueString(), then))
		}
	}
}
