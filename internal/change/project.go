package change

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Schedule works out, before anything runs, what puts each step back, and what the
// host has to show when all of them ran.
func Schedule(host gpu.Host, steps []Step) (undo [][]Step, expected gpu.Host) {
	for _, s := range steps {
		undo = append(undo, inverse(&host, s))
		host = Project(host, s)
	}
	return undo, host
}

// MovesDevices tells whether steps change which devices a host has, so that device nodes and
// CDI specifications have to follow. That is no step: nothing is undone because a derived
// file could not be written.
func MovesDevices(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool {
		return s.Op == OpSetMIGMode || s.Op == OpCreateInstance || s.Op == OpDestroyInstance
	})
}

// draft is a host that steps are made on, one after the other. What they do not change is shared
// with the host that it began as, which stays as it is.
type draft struct {
	gpu.Host
	ownVMs bool // the list of VMs is shared with nobody
}

func (d *draft) project(s Step) {
	if project := rows[s.Op].project; project != nil {
		project(d, s)
	}
}

// Project returns the host as it should be after a step.
func Project(host gpu.Host, s Step) gpu.Host { return ProjectAll(host, []Step{s}) }

// ProjectAll returns the host as it should be after some steps.
func ProjectAll(host gpu.Host, steps []Step) gpu.Host {
	d := draft{Host: host}
	for _, s := range steps {
		d.project(s)
	}
	return d.Host
}

// drained is a node whose running clustered VMs have moved away.
func drained(host gpu.Host) gpu.Host {
	host.Cluster = inState(host, gpu.NodePaused)
	return vacated(host, mayMove)
}

// mayMove tells whether a drain moves a VM.
func mayMove(vm *gpu.VM) bool { return vm.Clustered && vm.Runs() }

// vacated is a host that some of its VMs have left.
func vacated(host gpu.Host, left func(*gpu.VM) bool) gpu.Host {
	before := host
	host.VMs = slices.DeleteFunc(slices.Clone(host.VMs), func(vm gpu.VM) bool { return left(&vm) })
	vacate(&host, func(p gpu.Partition) bool {
		vm, ok := before.VM(p.VMID)
		return ok && left(vm)
	})
	return host
}

// FailBack has a VM that a drain has moved come back to its node, as far as it still runs and the
// node has room.
func FailBack(home, away gpu.Host, id string) (back, left gpu.Host) {
	vm, ok := away.VM(id)
	if _, is := home.VM(id); is || !ok || !mayMove(vm) {
		return home, away
	}
	is, was := *vm, home
	home.VMs, home.GPUs = append(slices.Clone(home.VMs), is), slices.Clone(home.GPUs)
	if occupy(&home, &is) != nil {
		return was, away
	}
	if c, ok := away.Claim(gpu.ClaimAssignment, id); ok {
		home = WithClaims(home, []gpu.Claim{*c})
		away.Claims = DropClaim(away.Claims, c.Kind, c.ID)
	}
	return home, vacated(away, func(vm *gpu.VM) bool { return gpu.SameID(vm.ID, id) })
}

// inState is the host's cluster with the host in another state.
func inState(host gpu.Host, state gpu.NodeState) *gpu.Cluster {
	if host.Cluster == nil {
		return nil
	}
	c := *host.Cluster
	c.Nodes = slices.Clone(c.Nodes)
	for i := range c.Nodes {
		if gpu.SameID(c.Nodes[i].Name, host.Name) {
			c.Nodes[i].State = state
		}
	}
	return &c
}

// KeepRestored is what puts the steps of a restoration back: nothing but the units, since
// What was declared and is there again may be in use by then.
func KeepRestored(host *gpu.Host, steps []Step) [][]Step {
	undo := make([][]Step, len(steps))
	for i, s := range steps {
		if s.Op == OpStopUnit {
			undo[i] = inverse(host, s)
		}
	}
	return undo
}
