package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Forecast is what a partition config would change on one host, and whom that
// would disturb.
type Forecast struct {
	Host string `json:"host"`
	// GPUs are those whose layout changes.
	GPUs []GPUChange `json:"gpus,omitempty"`
	// MovesVMs are the running VMs that move to other nodes of the cluster by live
	// migration because the node is drained, by name.
	MovesVMs []string `json:"moves_vms,omitempty"`
	// NotDrained says why VMs are stopped although a drain was asked for.
	NotDrained string `json:"not_drained,omitempty"`
	// StopsVMs are the running VMs that would be stopped, by name.
	StopsVMs []VMStop `json:"stops_vms,omitempty"`
	// Disruption is none when nobody holds a partition of these GPUs, no client of MPS ends
	// and none is reset.
	Disruption gpu.Disruption `json:"disruption"`
}

// GPUChange is the change of one GPU's layout.
type GPUChange struct {
	GPU   string `json:"gpu"`
	Model string `json:"model"`
	From  int    `json:"from"`
	To    int    `json:"to"`
	// PartitionVRAM is what one partition is expected to have at the new count.
	PartitionVRAM gpu.Bytes `json:"partition_vram"`
	// Holders are the names of the running VMs that hold partitions of the GPU.
	Holders []string `json:"holders,omitempty"`
	// MIG is the change of a GPU that has a layout of kind MIG; From, To and PartitionVRAM
	// are of kind GPU-P.
	MIG *placement.MIGChange `json:"mig,omitempty"`
	// VGPU is the same for a layout of kind vGPU.
	VGPU *VGPUChange `json:"vgpu,omitempty"`
	// Sharing is the same for MPS and time-slicing, of whole GPUs and inside of instances.
	Sharing *SharingChange `json:"sharing,omitempty"`
	// Restore is true for a GPU that leaves the config and gets its former layout
	// back. That happens only once nobody holds its partitions.
	Restore bool `json:"restore,omitempty"`
}

// VMStop is a running VM that has to be stopped.
type VMStop struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Allowed tells whether the VM's own assignment allows it; Reason says why not.
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

// NewForecast tells what a config's plan would change on one host. The claims are
// those that may hold for VMs of the host, whichever host they lie on; owner is the
// name of this state in claims.
func NewForecast(h *gpu.Host, hostKey, owner string, p change.Change, claims []gpu.Claim) Forecast {
	ofVMs := slices.DeleteFunc(slices.Clone(claims), func(c gpu.Claim) bool {
		_, lives := h.VM(c.ID)
		return c.Kind != gpu.ClaimAssignment || !lives
	})
	return forecastHost(change.WithClaims(*h, ofVMs), hostKey, owner, p)
}

// forecast is the forecast of a plan on a host at hand.
func (r *run) forecast(host string, h *gpu.Host, p change.Change) Forecast {
	return forecastHost(r.withClaims(host, h), host, r.owner, p)
}

// stopOf is a VM that is in the way of a change.
func (r *run) stopOf(h *gpu.Host, vmID string) VMStop {
	stop := VMStop{ID: vmID, Name: nameOn(h, vmID), Reason: "the host does not list it"}
	claim, _ := r.claimOnVM(vmID)
	if vm, ok := h.VM(vmID); ok {
		stop.Allowed, stop.Reason = stoppable(vm, claim, r.owner)
	}
	return stop
}

// forecastHost works on a host that carries the claims for its VMs.
func forecastHost(known gpu.Host, host, owner string, p change.Change) Forecast {
	h := &known
	f := Forecast{Host: host, Disruption: gpu.DisruptNone}
	var want, prior []string
	restore, drain := false, false
	if c := p.Want.Config; c != nil {
		want, restore = c.GPUs[host], c.Restore
		if c.Drain {
			why := change.WhyNotDrained(h)
			drain = why == ""
			f.NotDrained = why
		}
		for g := range selected(h, want) {
			switch c.Kind() {
			case gpu.KindMIG:
				f.changeMIG(h, g, c)
				continue
			case gpu.KindVGPU:
				f.changeVGPU(g, c)
				continue
			case gpu.KindMPS, gpu.KindTimeSlicing:
				continue
			case gpu.KindGPUP:
			}
			f.change(h, g, c.Count)
		}
		if c.Kind() == gpu.KindGPUP {
			f.stops(h, host, owner, p)
		}
		if len(f.StopsVMs) == 0 {
			f.NotDrained = ""
		}
	}
	if c := p.Prior.Config; c != nil {
		prior = c.GPUs[host]
		if p.Want.Config == nil {
			restore = c.Restore
		}
	}
	if restore {
		for g := range selected(h, prior) {
			if !contains(want, g.ID) {
				f.restore(h, g, p)
			}
		}
	}
	f.share(h, host, p)
	if drain && len(f.GPUs) > 0 {
		f.moves(h)
	}
	return f
}

// moves records the running VMs that a drain moves.
func (f *Forecast) moves(h *gpu.Host) {
	for i := range h.VMs {
		if h.VMs[i].Clustered && h.VMs[i].Runs() {
			f.MovesVMs = append(f.MovesVMs, nameOn(h, h.VMs[i].ID))
		}
	}
	slices.Sort(f.MovesVMs)
}

// changeMIG records a GPU that has not the wanted mode and instances. A layout that the
// GPU cannot have changes nothing.
func (f *Forecast) changeMIG(h *gpu.Host, g *gpu.GPU, c *gpu.PartitionConfig) {
	diff, err := placement.WantMIG(h, g, c, placement.ClaimedShares(h))
	if err != nil || diff == nil {
		return
	}
	f.addMIG(g, diff)
}

func (f *Forecast) addMIG(g *gpu.GPU, diff *placement.MIGChange) *GPUChange {
	if diff.Resets {
		f.raise(gpu.DisruptGPUReset)
	}
	f.GPUs = append(f.GPUs, GPUChange{GPU: g.ID, Model: g.Model, MIG: diff})
	return &f.GPUs[len(f.GPUs)-1]
}

// changeVGPU records a GPU that has not the wanted modes and vGPUs. It disturbs nobody: what
// is in use is never removed.
func (f *Forecast) changeVGPU(g *gpu.GPU, c *gpu.PartitionConfig) {
	if diff, err := wantVGPU(g, c); err == nil && diff != nil {
		f.GPUs = append(f.GPUs, GPUChange{GPU: g.ID, Model: g.Model, VGPU: diff})
	}
}

// change records a GPU whose count is not the wanted one.
func (f *Forecast) change(h *gpu.Host, g *gpu.GPU, to int) {
	if partitions(g) && g.Partitionable.Count != to {
		f.GPUs = append(f.GPUs, newChange(h, g, to))
	}
}

// stops records the VMs that the steps of the change stop.
func (f *Forecast) stops(h *gpu.Host, host, owner string, p change.Change) {
	e := effectOf(*h, host, owner, p)
	for _, s := range e.Stops {
		stop := VMStop{ID: s.VM, Name: nameOn(h, s.VM), Reason: "the host does not list it"}
		if vm, ok := h.VM(s.VM); ok {
			claim, _ := h.Claim(gpu.ClaimAssignment, s.VM)
			stop.Allowed, stop.Reason = stoppable(vm, claim, owner)
		}
		f.StopsVMs = append(f.StopsVMs, stop)
	}
	f.raise(e.Class)
	slices.SortFunc(f.StopsVMs, func(a, b VMStop) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
}

// restore records a GPU that gets the layout back that it had when it joined.
func (f *Forecast) restore(h *gpu.Host, g *gpu.GPU, p change.Change) {
	for i := range h.Claims {
		c := &h.Claims[i]
		if !c.Is(gpu.ClaimConfig, p.Prior.Config.ID) || c.Token != p.Token {
			continue
		}
		for id, before := range c.MIGBefore {
			if !gpu.SameID(id, g.ID) {
				continue
			}
			if diff := placement.RestoreMIG(placement.ReleasedByMPS(h, g, p.Prior.Config.MaxDisruption), before, p.Prior.Config.QuiesceUnits); diff != nil {
				f.addMIG(g, diff).Restore = true
			}
		}
		for id, before := range c.VGPUBefore {
			if !gpu.SameID(id, g.ID) {
				continue
			}
			if diff := restoreVGPU(g, before, p.Prior.Config.QuiesceUnits); diff != nil {
				f.GPUs = append(f.GPUs, GPUChange{GPU: g.ID, Model: g.Model, VGPU: diff, Restore: true})
			}
		}
		if !partitions(g) {
			continue
		}
		for id, before := range c.LayoutBefore {
			if gpu.SameID(id, g.ID) && before > 0 && before != g.Partitionable.Count {
				diff := newChange(h, g, before)
				diff.Restore = true
				f.GPUs = append(f.GPUs, diff)
			}
		}
	}
}

func newChange(h *gpu.Host, g *gpu.GPU, to int) GPUChange {
	c := GPUChange{GPU: g.ID, Model: g.Model, From: g.Partitionable.Count, To: to, PartitionVRAM: g.Partitionable.EstimatedPartitionVRAM(to)}
	for _, id := range holderIDs(g) {
		c.Holders = append(c.Holders, nameOn(h, id))
	}
	slices.Sort(c.Holders)
	return c
}

func nameOn(h *gpu.Host, vmID string) string {
	if vm, ok := h.VM(vmID); ok {
		return cmp.Or(vm.Name, vm.ID)
	}
	return vmID
}

// changes tells the changes of GPUs in words.
func (f Forecast) changes() string {
	var out []string
	for _, c := range f.GPUs {
		if !c.Restore {
			out = append(out, fmt.Sprintf("GPU %s from %d to %s", c.GPU, c.From, plural(c.To, "partition")))
		}
	}
	return join(out)
}

// Disrupted is one row of the table of what changes disturb.
type Disrupted struct {
	Change string
	Idle   string // while nobody holds the GPU, or the VM is off
	Held   string // while running VMs hold it, or the VM runs
}

// refused stands where a change is never made, whatever is allowed.
const refused = "refused"

// DisruptionTable lists what each kind of change disturbs, by whether the object is
// in use.
func DisruptionTable() []Disrupted {
	none, restart := string(gpu.DisruptNone), string(gpu.DisruptVMRestart)
	return []Disrupted{
		{"Change a GPU's partition count", none, restart},
		{"Change it with `rollout.drain`, where every VM in the way can migrate live", none, none},
		{"Add a GPU with the right count to a config", none, none},
		{"Remove a GPU from a config, `on_destroy = \"keep\"`", none, none},
		{"Remove a GPU from a config, `on_destroy = \"restore\"`", none, refused},
		{"Give a VM a partition, or take it away", none, restart},
		{"Change a partition's quotas or pinned GPU", none, restart},
		{"Give a VM whole GPUs, or take them away", none, restart},
		{"Create a pool, or add a GPU to it (dismount)", none, refused},
		{"Remove a GPU from a pool (mount back)", none, refused},
		{"Create MIG instances, or remove them", none, refused},
		{"Switch MIG mode, Hopper and later", none, refused},
		{"Switch MIG mode with a reset of the GPU (Ampere)", string(gpu.DisruptGPUReset), refused},
		{"Start an MPS daemon, or set compute mode `exclusive_process` for it", none, refused},
		{"Restart or remove an MPS daemon (held: by its clients, which end)", none, string(gpu.DisruptProcessRestart)},
		{"Set a time slice, or another compute mode", none, none},
		{"Create a share, or change its limits (they hold for new processes)", none, none},
		{"Destroy a share (held: processes of it run)", none, refused},
		{"Create vGPUs, or remove them", none, refused},
		{"Switch virtual functions or heterogeneous vGPU mode", none, refused},
		{"Change memory-mapped IO space or cache types", none, restart},
		{"Change the automatic stop action or the offline action", none, none},
		{"Change `power`, `rollout`, `timeouts` or `on_destroy`", none, none},
	}
}
