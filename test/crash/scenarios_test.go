//go:build linux || darwin

package crash_test

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// scenario is a change on a host that earlier changes prepared.
type scenario struct {
	name   string
	edit   func(*gpu.Host)
	guests map[string]simulated.Guest
	before []agent.Change
	change agent.Change
	// linux has the change on a Linux host, which is reconciled when it boots.
	linux bool
	// nodes has both hosts in a cluster, between which the VMs that run can move.
	nodes bool
	// concerned are the VMs that the change may stop and start; of a Linux host the daemons,
	// the shares, and the GPUs whose instances it may make again.
	concerned []string
}

// powers are the VMs whose power state the change is about.
func (s scenario) powers() []string {
	if a := s.change.Act; a == change.ActStart || a == change.ActStop {
		return s.concerned
	}
	return nil
}

// scenarios cover every step in every order that the agent plans.
func scenarios() []scenario {
	held := []agent.Change{
		layout("c0", "config", nil, config("vdi", 4, gpuP1)),
		assign("a0", "vm1", nil, partitionOf(run1, minVRAM(3*gib))),
		assign("a1", "vm2", nil, partitionOf(run2, nil)),
		assign("a2", "vm3", nil, partitionOf(off1, minVRAM(3*gib))),
	}
	both := []agent.Change{layout("c0", "config", nil, config("vdi", 8, gpuP1, gpuP2))}
	dda := []agent.Change{pools("p0", "pool", nil, pool("dda", gpuD1, gpuD2))}
	withGPU := []agent.Change{assign("a0", "vm1", nil, partitionOf(run1, withSettings))}
	later := partitionOf(run1, func(a *gpu.Assignment) { a.Power.NextOff = true })
	mayDrain := config("vdi", 4, gpuP1)
	mayDrain.Drain = true
	node := []agent.Change{
		layout("c0", "config", nil, mayDrain), assign("a0", "vm1", nil, partitionOf(run1, nil)), assign("a1", "vm2", nil, partitionOf(run2, nil)),
	}
	return append(linuxScenarios(), []scenario{
		{
			name: "make what waits for the power-off of a VM now", edit: onlyOneGPUP, before: []agent.Change{assign("a0", "vm1", nil, later)},
			concerned: []string{run1},
			change:    act(change.ActPending, assign("x", "vm1", nil, later)),
		},
		{
			name: "shut down a VM with a partition", edit: onlyOneGPUP, before: withGPU, concerned: []string{run1},
			change: act(change.ActStop, assign("x", "vm1", nil, partitionOf(run1, withSettings))),
		},
		{
			name: "start a VM with a partition", edit: onlyOneGPUP, concerned: []string{run1},
			before: append(withGPU[:1:1], act(change.ActStop, assign("a1", "vm1", nil, partitionOf(run1, withSettings)))),
			change: act(change.ActStart, assign("x", "vm1", nil, partitionOf(run1, withSettings))),
		},
		{
			name: "drain a node", nodes: true, before: node, concerned: []string{run1, run2},
			change: act(change.ActDrain, layout("x", "config", nil, mayDrain)),
		},
		{
			name: "resume a node", nodes: true, before: append(node[:3:3], act(change.ActDrain, layout("d0", "config", nil, mayDrain))),
			concerned: []string{run1, run2},
			change:    act(change.ActResume, layout("x", "config", nil, mayDrain)),
		},
		{name: "set the count of idle GPUs", change: layout("x", "config", nil, config("vdi", 8, gpuP1, gpuP2))},
		{
			name: "change the count under running VMs", edit: onlyOneGPUP, before: held, concerned: []string{run1, run2, off1},
			change: layout("x", "config", config("vdi", 4, gpuP1), config("vdi", 8, gpuP1)),
		},
		{
			name:   "a GPU leaves the config and another joins",
			before: []agent.Change{layout("c0", "config", nil, config("vdi", 8, gpuP1))},
			change: layout("x", "config", config("vdi", 8, gpuP1), config("vdi", 8, gpuP2)),
		},
		{name: "a GPU moves between configs", before: both, change: layout("x", "other", nil, config("big", 2, gpuP2))},
		{
			name: "delete a config", before: append(both[:1:1], assign("a0", "vm3", nil, partitionOf(off1, nil))),
			change: layout("x", "config", config("vdi", 8, gpuP1, gpuP2), nil),
		},
		{name: "create a pool", change: pools("x", "pool", nil, pool("dda", gpuD1, gpuD2))},
		{
			name: "change a pool's members", before: dda,
			change: pools("x", "pool", pool("dda", gpuD1, gpuD2), pool("dda", gpuD2, gpuD3)),
		},
		{name: "delete a pool", before: dda, change: pools("x", "pool", pool("dda", gpuD1, gpuD2), nil)},
		{
			name: "give a running VM a partition", edit: onlyOneGPUP, concerned: []string{run1},
			change: assign("x", "vm1", nil, partitionOf(run1, withSettings)),
		},
		{
			name: "give a VM whose guest takes its time a partition", edit: onlyOneGPUP, concerned: []string{run1},
			guests: map[string]simulated.Guest{run1: {ShutdownMS: 60}},
			change: assign("x", "vm1", nil, partitionOf(run1, withSettings)),
		},
		{name: "give a VM that is off a partition", concerned: []string{off1}, change: assign("x", "vm3", nil, partitionOf(off1, minVRAM(gib)))},
		{
			name: "change the quotas of a running VM", edit: onlyOneGPUP, before: held, concerned: []string{run1},
			change: assign("x", "vm1", partitionOf(run1, minVRAM(3*gib)), partitionOf(run1, minVRAM(2*gib))),
		},
		{
			name: "take the partition from a running VM", edit: onlyOneGPUP, before: withGPU, concerned: []string{run1},
			change: assign("x", "vm1", partitionOf(run1, withSettings), nil),
		},
		{
			name: "give a running VM two GPUs of a pool", before: dda, concerned: []string{run1},
			change: assign("x", "vm1", nil, poolFor(run1, "dda", 2)),
		},
		{
			name: "give a running VM one GPU of a pool less", concerned: []string{run1},
			before: append(dda[:1:1], assign("a0", "vm1", nil, poolFor(run1, "dda", 2))),
			change: assign("x", "vm1", poolFor(run1, "dda", 2), poolFor(run1, "dda", 1)),
		},
		{
			name: "move a running VM from a pool to a partition", edit: onlyOneGPUP, concerned: []string{run1},
			before: append(dda[:1:1], assign("a0", "vm1", nil, poolFor(run1, "dda", 1))),
			change: assign("x", "vm1", poolFor(run1, "dda", 1), partitionOf(run1, withSettings)),
		},
		{
			name: "move a running VM from a partition to a device", edit: onlyOneGPUP, before: withGPU, concerned: []string{run1},
			change: assign("x", "vm1", partitionOf(run1, withSettings), deviceFor(run1, gpuD1)),
		},
		{
			name: "take a device from a running VM", before: []agent.Change{assign("a0", "vm1", nil, deviceFor(run1, gpuD1))},
			concerned: []string{run1},
			change:    assign("x", "vm1", deviceFor(run1, gpuD1), nil),
		},
	}...)
}

// move is a change from one want to another; either may be missing.
func move[T any](id, token string, set func(*gpu.Want, *T), from, to *T) agent.Change {
	ch := agent.Change{ID: id, Host: host, Change: change.Change{Subject: "test " + id, Owner: owner, Token: token}}
	if from != nil {
		set(&ch.Prior, from)
	}
	if to != nil {
		set(&ch.Want, to)
	}
	return ch
}

// act is what is done once with the object that a change would make.
func act(what change.Act, ch agent.Change) agent.Change {
	ch.Act, ch.Prior = what, ch.Want
	return ch
}

func assign(id, token string, from, to *gpu.Assignment) agent.Change {
	return move(id, token, func(w *gpu.Want, a *gpu.Assignment) { w.Assignment = a }, from, to)
}

func layout(id, token string, from, to *gpu.PartitionConfig) agent.Change {
	return move(id, token, func(w *gpu.Want, c *gpu.PartitionConfig) { w.Config = c }, from, to)
}

func pools(id, token string, from, to *gpu.PoolConfig) agent.Change {
	return move(id, token, func(w *gpu.Want, c *gpu.PoolConfig) { w.Pool = c }, from, to)
}
