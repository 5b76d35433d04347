package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// observe writes what the hosts have into the computed attributes. A host that does not answer keeps what the model had.
func (m *model) observe(ctx context.Context, c gpu.PoolConfig, hosts []string, v fleet.View, diags *diag.Diagnostics) {
	gpusBefore, driftBefore := m.gpus(ctx, diags), report.DecodeDrift(ctx, m.Drift, diags)
	gpus := map[string]hostModel{}
	var differs []change.Difference
	chooseMembers(&c, nil, hosts, v)
	for _, name := range hosts {
		host, answered := v.Hosts[name]
		if !answered {
			if listed, ok := gpusBefore[name]; ok {
				gpus[name] = hostModel{listed}
			}
			continue
		}
		on := poolOnHost{pool: c, host: host, hostName: name, gpus: map[string]gpuModel{}}
		if on.there, on.exists = onHost(host, c.Name); !on.exists {
			on.there = &gpu.Pool{}
		}
		on.compareExistence()
		on.compareMembers(listed(gpusBefore[name]), driftBefore)
		on.describeGPUs()
		on.compareRecords()
		gpus[name] = hostModel{on.gpus}
		differs = append(differs, on.differs...)
	}
	m.GPUs = object.MapOf(ctx, hostType, gpus, diags)
	m.Drift = report.EncodeDrift(ctx, differs, diags)
}

// listed are the GPUs of a host as the state has them.
func listed(before map[string]gpuModel) []report.ListedGPU {
	var out []report.ListedGPU
	for _, id := range slices.Sorted(maps.Keys(before)) {
		out = append(out, report.ListedGPU{ID: id, Model: before[id].Model.ValueString(), Address: before[id].Address.ValueString()})
	}
	return out
}

// poolOnHost is a pool on one of its hosts, compared with what is declared.
type poolOnHost struct {
	pool     gpu.PoolConfig
	host     *gpu.Host
	hostName string
	there    *gpu.Pool // as the host has it, an empty one where it has none
	exists   bool
	gpus     map[string]gpuModel
	differs  []change.Difference
}

func (on *poolOnHost) differ(cause change.Cause, found string) {
	on.differs = append(on.differs, change.Difference{Object: "host " + on.hostName, Found: found, Cause: cause})
}

func (on *poolOnHost) gpuDiffers(id string, cause change.Cause, found, declared string) {
	on.differs = append(on.differs, change.Difference{
		Object: "host " + on.hostName + ", GPU " + id, Found: found, Declared: declared, Cause: cause,
	})
}

func (on *poolOnHost) compareExistence() {
	if _, declared := on.pool.Members[on.hostName]; !declared {
		on.differ(change.CauseFailedChange, "is not one of the pool's hosts, but has it, and has not been given up yet")
	} else if !on.exists {
		on.differ(change.CauseOtherTool, fmt.Sprintf("has no pool %q", on.pool.Name))
	}
}

// compareMembers finds GPUs in another one's place, and those that the pool lacks.
func (on *poolOnHost) compareMembers(gpusBefore []report.ListedGPU, driftBefore []change.Difference) {
	for _, id := range on.pool.Members[on.hostName] {
		member := on.there.Has(id)
		notYetIn := ""
		if !member {
			notYetIn = fmt.Sprintf("pool %q", on.pool.Name)
		}
		var replaced *change.Difference
		if g, ok := on.host.GPU(id); ok {
			replaced = report.ReplacedGPU(on.hostName, on.host, g, gpusBefore, driftBefore, notYetIn)
		}
		switch {
		case replaced != nil:
			on.gpuDiffers(id, replaced.Cause, replaced.Found, "")
		case on.exists && !member:
			on.gpuDiffers(id, on.causeOfLack(id), fmt.Sprintf("is not in pool %q", on.pool.Name), "a member")
		}
	}
}

// causeOfLack is why a GPU is not in the pool.
func (on *poolOnHost) causeOfLack(id string) change.Cause {
	if _, there := on.host.GPU(id); !there {
		return change.CauseGPUMissing
	}
	if claim, claimed := on.host.Claim(gpu.ClaimPool, on.pool.Name); claimed && !claim.Covers(id) {
		return change.CauseGPUAdded
	}
	return change.CauseOtherTool
}

// describeGPUs lists the GPUs in the pool, and finds those that are no members.
func (on *poolOnHost) describeGPUs() {
	for _, id := range on.there.GPUs {
		key, declared := spelled(on.pool.Members[on.hostName], id)
		if !declared {
			on.gpuDiffers(id, change.CauseOtherTool, fmt.Sprintf("is in pool %q", on.pool.Name), "no member")
		}
		entry := gpuModel{Model: types.StringValue("")}
		if g, ok := on.host.GPU(id); ok {
			entry = gpuModel{Model: types.StringValue(g.Model), Address: object.NullIfEmpty(g.Address), VRAMMiB: object.MiBFromBytes(g.VRAM.Known())}
		}
		on.gpus[key] = entry
	}
}

// compareRecords finds a change that failed, and quotas other than those on record.
func (on *poolOnHost) compareRecords() {
	for i := range on.host.Claims {
		claim := &on.host.Claims[i]
		if !claim.Is(gpu.ClaimPool, on.pool.Name) {
			continue
		}
		if claim.Incomplete {
			on.differ(change.CauseFailedChange, "has a change of this pool that did not succeed on every host")
		}
		if recorded := claim.Want.Pool; recorded != nil && !sameQuotas(recorded.Quotas, on.pool.Quotas) {
			on.differ("", fmt.Sprintf("has other quotas of pool %q on record", on.pool.Name))
		}
	}
}

// spelled finds an id among those that the user wrote, and keeps the user's spelling.
func spelled(ids []string, id string) (string, bool) {
	if i := slices.IndexFunc(ids, func(want string) bool { return gpu.SameID(want, id) }); i >= 0 {
		return ids[i], true
	}
	return id, false
}
