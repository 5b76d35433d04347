package change

import (
	"reflect"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// unreadable is the refusal of a change that concerns what could not be read.
func unreadable(op string, u gpu.Unknown) *gpu.Refusal {
	return refuse(gpu.Unavailable, op, u.What(), "it cannot be read: %s", u.Why).Or("repair it on the host and apply again").OfRule(Readable)
}

// leaveBlind finds the GPUs of a config that cannot be read. One that the change leaves as
// it was declared is not touched; any other is in the way.
func (p *planner) leaveBlind(c *configChange) error {
	if len(p.host.Unknown) == 0 || p.change.ClaimOnly {
		return nil
	}
	for _, id := range p.selected(c) {
		u, is := p.host.UnknownGPU(id)
		switch {
		case !is:
		case c.covers(id) && sameLayout(c.claim.Want.Config, &c.want):
			c.blind = append(c.blind, id)
		default:
			return unreadable("set the layout of GPU "+id, u)
		}
	}
	for _, id := range p.leaving(c) {
		if u, is := p.host.UnknownGPU(id); is && c.shape.Restore && Unrestorable(&p.host, c.claim, id) == "" {
			return unreadable("put the layout of GPU "+id+" back", u).Or("put that right on the host, or keep the layout (on_destroy = \"keep\")")
		}
	}
	return nil
}

// touches tells whether the change may act on a selected GPU.
func (p *planner) touches(c *configChange, id string) bool {
	return !p.change.ClaimOnly && !gpu.HasID(c.blind, id) && !gpu.HasID(p.stay, id)
}

// sameLayout tells whether two configs declare the same of each GPU.
func sameLayout(a, b *gpu.PartitionConfig) bool {
	return a != nil && a.Count == b.Count && reflect.DeepEqual(a.MIG, b.MIG) && reflect.DeepEqual(a.VGPU, b.VGPU) &&
		reflect.DeepEqual(a.MPS, b.MPS) && reflect.DeepEqual(a.TimeSlicing, b.TimeSlicing)
}

// knows refuses a change that depends on parts of the host that cannot be read, or on a VM
// or GPUs that cannot. The VM may be one that is not listed for that reason.
func (p *planner) knows(op, vm string, gpus []string, parts ...gpu.Part) error {
	if u, is := p.host.Concerning(vm, gpus, parts...); is && !p.change.ClaimOnly {
		return unreadable(op, u)
	}
	return nil
}

// stepsKnown refuses the first step that acts on what could not be read, or that depends
// on it.
func (p *planner) stepsKnown() error {
	if len(p.host.Unknown) == 0 {
		return nil
	}
	for _, s := range p.steps {
		if s.Claim != nil {
			continue
		}
		var gpus []string
		if s.GPU != "" {
			gpus = append(gpus, s.GPU)
		}
		if s.Device != nil && s.Device.GPU != "" {
			gpus = append(gpus, s.Device.GPU)
		}
		for _, d := range s.devices() {
			gpus = append(gpus, d.GPU)
		}
		if err := p.knows(s.String(), s.VM, append(gpus, s.GPUs...), rows[s.Op].depends...); err != nil {
			return err
		}
	}
	return nil
}

// devices are those that a daemon or a share takes.
func (s Step) devices() []gpu.SharedDevice {
	if s.Op == OpEnsureDaemon {
		return s.Daemon.Devices
	}
	if s.Op == OpWriteShare {
		return s.Share.Devices
	}
	return nil
}
