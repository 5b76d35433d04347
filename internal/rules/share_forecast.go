package rules

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// SharingChange is the change of how processes share one GPU or its instances.
type SharingChange struct {
	// Compute modes and time slices are "" where they stay.
	ComputeFrom gpu.ComputeMode `json:"compute_mode_from,omitempty"`
	ComputeTo   gpu.ComputeMode `json:"compute_mode_to,omitempty"`
	SliceFrom   gpu.TimeSlice   `json:"time_slice_from,omitempty"`
	SliceTo     gpu.TimeSlice   `json:"time_slice_to,omitempty"`
	// Daemons are the MPS control daemons of the GPU that change, by name. One of several
	// GPUs is told of with each.
	Daemons []DaemonChange `json:"mps_daemons,omitempty"`
	// InTheWay are the processes that keep the change from being made: none is ever ended
	// for it that is not a client of MPS.
	InTheWay []string `json:"in_the_way,omitempty"`
}

// DaemonChange is the change of an MPS control daemon.
type DaemonChange struct {
	Name   string       `json:"name"`
	Action DaemonAction `json:"action"`
	// Clients are the processes that end with the daemon that there is.
	Clients []string `json:"clients,omitempty"`
}

// DaemonAction is what becomes of a daemon.
type DaemonAction string

// Daemon actions.
const (
	DaemonStarts   DaemonAction = "start"
	DaemonRestarts DaemonAction = "restart"
	DaemonEnds     DaemonAction = "remove"
)

// Ends are the clients that end with the change, each once.
func (c *SharingChange) Ends() []string {
	var out []string
	for _, d := range c.Daemons {
		out = append(out, d.Clients...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *SharingChange) changes() bool {
	return c.ComputeTo != "" || c.SliceTo != "" || len(c.Daemons) > 0
}

// share records what a plan changes about how processes share GPUs of the host.
func (f *Forecast) share(h *gpu.Host, host string, p change.Change) {
	want, prior := p.Want.Config, p.Prior.Config
	changes := map[string]*SharingChange{}
	at := func(id string) *SharingChange {
		k := gpu.FoldID(id)
		if changes[k] == nil {
			changes[k] = &SharingChange{}
		}
		return changes[k]
	}
	wanted := map[string]bool{}
	if want != nil {
		for g := range selected(h, want.GPUs[host]) {
			at(g.ID).setModes(h, g, want)
		}
		for _, d := range placement.Daemons(f.laidOut(h), want, want.GPUs[host]) {
			wanted[d.Name] = true
			if change := daemonChange(h, &d); change != nil {
				for id := range placement.GPUsOf(d.Devices) {
					at(id).Daemons = append(at(id).Daemons, *change)
				}
			}
		}
	}
	if prior != nil {
		f.leave(h, host, p, wanted, at)
	}
	for i := range h.GPUs {
		if c := changes[gpu.FoldID(h.GPUs[i].ID)]; c != nil && c.changes() {
			f.addSharing(&h.GPUs[i], c, want == nil || !contains(want.GPUs[host], h.GPUs[i].ID))
		}
	}
}

// addSharing adds a change to that of the same GPU.
func (f *Forecast) addSharing(g *gpu.GPU, c *SharingChange, restore bool) {
	if len(c.Ends()) > 0 {
		f.raise(gpu.DisruptProcessRestart)
	}
	i := slices.IndexFunc(f.GPUs, func(x GPUChange) bool { return gpu.SameID(x.GPU, g.ID) })
	if i < 0 {
		i, f.GPUs = len(f.GPUs), append(f.GPUs, GPUChange{GPU: g.ID, Model: g.Model, Restore: restore})
	}
	f.GPUs[i].Sharing = c
}

func (f *Forecast) raise(d gpu.Disruption) {
	if d.Exceeds(f.Disruption) {
		f.Disruption = d
	}
}

// setModes compares a GPU with the modes that a config wants.
func (c *SharingChange) setModes(h *gpu.Host, g *gpu.GPU, want *gpu.PartitionConfig) {
	mode, slice := placement.WantedModes(want)
	if mode != "" && g.ComputeMode != "" && g.ComputeMode != mode {
		c.ComputeFrom, c.ComputeTo = g.ComputeMode, mode
		if mode == gpu.ComputeExclusiveProcess {
			c.InTheWay = placement.Strangers(h, g)
		}
	}
	if slice != "" && g.TimeSlice != "" && g.TimeSlice != slice {
		c.SliceFrom, c.SliceTo = g.TimeSlice, slice
	}
	if want.MPS != nil {
		c.InTheWay = append(c.InTheWay, placement.ForeignDaemons(h, g)...)
	}
}

// leave adds the daemons of the prior config that are wanted no more, and the modes of the
// GPUs that leave it.
func (f *Forecast) leave(h *gpu.Host, host string, p change.Change, wanted map[string]bool, at func(string) *SharingChange) {
	prior, restore := p.Prior.Config, p.Prior.Config.Restore
	if p.Want.Config != nil {
		restore = p.Want.Config.Restore
	}
	// A daemon inside an instance goes with its config; one of whole GPUs may be kept.
	if prior.MIG != nil || restore || p.Want.Config != nil && p.Want.Config.MPS == nil {
		for _, d := range placement.Daemons(h, prior, prior.GPUs[host]) {
			have, there := h.Daemon(d.Name)
			if wanted[d.Name] || !there {
				continue
			}
			for id := range placement.GPUsOf(d.Devices) {
				at(id).Daemons = append(at(id).Daemons, DaemonChange{Name: d.Name, Action: DaemonEnds, Clients: clientsOf(have)})
			}
		}
	}
	claim := ownClaim(h, p)
	if claim == nil || !restore {
		return
	}
	mode, slice := placement.WantedModes(prior)
	for g := range selected(h, prior.GPUs[host]) {
		if p.Want.Config != nil && contains(p.Want.Config.GPUs[host], g.ID) {
			continue
		}
		c := at(g.ID)
		// What somebody else has changed meanwhile is left alone.
		if before := byID(claim.ComputeBefore, g.ID); before != "" && g.ComputeMode == mode && before != mode {
			c.ComputeFrom, c.ComputeTo = mode, before
		}
		if before := byID(claim.TimeSliceBefore, g.ID); before != "" && g.TimeSlice == slice && before != slice {
			c.SliceFrom, c.SliceTo = slice, before
		}
	}
}

// ownClaim is the claim of a config's plan on a host.
func ownClaim(h *gpu.Host, p change.Change) *gpu.Claim {
	for i := range h.Claims {
		if c := &h.Claims[i]; c.Is(gpu.ClaimConfig, p.Prior.Config.ID) && c.Token == p.Token {
			return c
		}
	}
	return nil
}

func byID[T any](m map[string]T, id string) T {
	for _, k := range sortedKeys(m) {
		if gpu.SameID(k, id) {
			return m[k]
		}
	}
	var none T
	return none
}

// laidOut is the host with the GPU instances that the forecast's changes leave.
func (f *Forecast) laidOut(h *gpu.Host) *gpu.Host {
	after := *h
	after.GPUs = slices.Clone(h.GPUs)
	for _, c := range f.GPUs {
		g, ok := after.GPU(c.GPU)
		if c.MIG == nil || !ok {
			continue
		}
		mig := *g.MIG
		mig.Enabled, mig.Instances = c.MIG.To.Enabled, nil
		for _, p := range c.MIG.To.Placements {
			mig.Instances = append(mig.Instances, gpu.GPUInstance{Profile: p.Profile, Start: p.Start})
		}
		g.MIG = &mig
	}
	return &after
}

// daemonChange is what it takes to have a daemon as wanted, nil for nothing.
func daemonChange(h *gpu.Host, want *gpu.MPSDaemonSpec) *DaemonChange {
	if placement.Serves(h, want) {
		return nil
	}
	have, there := h.Daemon(want.Name)
	switch {
	case !there:
		return &DaemonChange{Name: want.Name, Action: DaemonStarts}
	case have.PID == 0: // its servers, and their clients, may live on without it
		return &DaemonChange{Name: want.Name, Action: DaemonStarts, Clients: clientsOf(have)}
	}
	return &DaemonChange{Name: want.Name, Action: DaemonRestarts, Clients: clientsOf(have)}
}

func clientsOf(d *gpu.MPSDaemon) []string {
	var out []string
	for _, p := range d.Clients {
		out = append(out, placement.ProcessText(p))
	}
	return out
}
