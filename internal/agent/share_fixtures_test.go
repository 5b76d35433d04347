package agent_test

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// anyPID stands for the process of a daemon, which each start gives another.
const anyPID = 1

// withoutDevices is a share's environment without the UUIDs of its devices.
func withoutDevices(environment map[string]string) map[string]string {
	out := maps.Clone(environment)
	maps.DeleteFunc(out, func(name, _ string) bool { return strings.HasSuffix(name, "_DEVICES") })
	return out
}

// onSharing makes the test host one of Linux whose processes can share GPUs.
func onSharing(h *gpu.Host) {
	*h = linuxHost(2)
	h.MPS = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}
	h.ContainerToolkit = "1.20.1"
	for i := range h.GPUs {
		h.GPUs[i].TimeSlice, h.GPUs[i].ComputeCapability = gpu.TimeSliceDefault, "9.0"
	}
}

func sharing(id string, gpus ...string) *gpu.PartitionConfig {
	return &gpu.PartitionConfig{ID: id, Name: id, GPUs: map[string][]string{host: gpus, "elsewhere": {"X"}}, Restore: true}
}

// mps is a config of MPS for several users.
func mps(id string, gpus ...string) *gpu.PartitionConfig {
	c := sharing(id, gpus...)
	c.Kind, c.MPS = gpu.KindMPS, &gpu.MPSLayout{MultiUser: true}
	return c
}

// limited is a config of MPS whose clients have half of the threads each, and 20 GiB.
func limited(c *gpu.PartitionConfig) *gpu.PartitionConfig {
	layout := *c.MPS
	layout.ActiveThreadPercentage, layout.PinnedMemoryLimit = 50, 20*gib
	out := *c
	out.MPS = &layout
	return &out
}

// mayRestart is a config that lets clients of MPS end.
func mayRestart(c *gpu.PartitionConfig) *gpu.PartitionConfig {
	out := *c
	out.MaxDisruption = gpu.DisruptProcessRestart
	return &out
}

func turns(id string, interval gpu.TimeSlice, replicas int, gpus ...string) *gpu.PartitionConfig {
	c := sharing(id, gpus...)
	c.Kind, c.TimeSlicing = gpu.KindTimeSlicing, &gpu.TimeSlicing{Interval: interval, Replicas: replicas}
	return c
}

// migWithMPS is a config of GPU instances with a daemon in each.
func migWithMPS(id string, profiles map[string]int, gpus ...string) *gpu.PartitionConfig {
	c := mig(id, profiles, gpus...)
	c.MPS = &gpu.MPSLayout{MultiUser: true}
	return c
}

// fraction is a share of a config with memory.
func fraction(name, config string, memory gpu.Bytes) *gpu.Share {
	return &gpu.Share{Name: name, Host: host, Config: config, Count: 1, MemoryRequest: memory, MemoryLimit: memory}
}

func shares(id, token string, from, to *gpu.Share) agent.Change {
	return move(id, token, func(w *gpu.Want, s *gpu.Share) { w.Share = s }, from, to)
}

// linuxPool is a pool that shares are drawn from.
func linuxPool(name string, gpus ...string) *gpu.PoolConfig {
	return &gpu.PoolConfig{ID: host + "/" + name, Name: name, Members: map[string][]string{host: gpus}}
}

// sharingScenarios cover every step on modes, daemons and shares in every order that the
// planners make.
func sharingScenarios() []scenario {
	inference := []agent.Change{layout("c0", "mps", nil, mps("inference", hopper1, noMIG))}
	placed := slices.Concat(inference, []agent.Change{
		shares("s0", "team-a", nil, fraction("team-a", "inference", 10*gib)),
		shares("s1", "team-b", nil, fraction("team-b", "inference", 20*gib)),
	})
	less := fraction("team-a", "inference", 5*gib)
	less.ActiveThreadPercentage = 25
	instances := []agent.Change{
		layout("c0", "mig", nil, migWithMPS("train", map[string]int{g1: 3, g3: 1}, hopper1)),
		shares("s0", "team-a", nil, fraction("team-a", "train", 4*gib)),
	}
	return []scenario{
		{name: "share GPUs through MPS", edit: onSharing, change: layout("x", "mps", nil, mps("inference", hopper1, noMIG))},
		{
			name: "limit the clients of MPS under shares", edit: onSharing, before: placed,
			change: layout("x", "mps", mps("inference", hopper1, noMIG), limited(mps("inference", hopper1, noMIG))),
		},
		{
			name: "a GPU leaves a config of MPS and another joins, under shares", edit: onSharing, before: placed,
			change: layout("x", "mps", mps("inference", hopper1, noMIG), mps("inference", noMIG, hopper2)),
		},
		{
			name: "a GPU moves between configs of MPS", edit: onSharing, before: inference,
			change: layout("x", "other", nil, mps("training", hopper1)),
		},
		{
			name: "all GPUs and their shares move to another config of MPS", edit: onSharing, before: placed,
			change: layout("x", "other", nil, mps("training", hopper1, noMIG)),
		},
		{
			name: "a GPU moves from MPS to MIG", edit: onSharing, before: inference,
			change: layout("x", "mig", nil, mig("train", map[string]int{g3: 2}, hopper1)),
		},
		{
			name: "restart the daemon of a config of MPS under shares", edit: onSharing, before: placed,
			change: acts(change.ActRestart, "mps", mps("inference", hopper1, noMIG)),
		},
		{
			name: "restart the daemons in GPU instances under a share", edit: onSharing, before: instances,
			change: acts(change.ActRestart, "mig", migWithMPS("train", map[string]int{g1: 3, g3: 1}, hopper1)),
		},
		{name: "delete a config of MPS", edit: onSharing, before: inference, change: layout("x", "mps", mps("inference", hopper1, noMIG), nil)},
		{
			name: "share GPUs by time-slicing", edit: onSharing,
			change: layout("x", "turns", nil, turns("notebooks", gpu.TimeSliceLong, 4, hopper1, noMIG)),
		},
		{
			name: "delete a config of time-slicing", edit: onSharing, before: []agent.Change{
				layout("c0", "turns", nil, turns("notebooks", gpu.TimeSliceLong, 4, hopper1)),
			},
			change: layout("x", "turns", turns("notebooks", gpu.TimeSliceLong, 4, hopper1), nil),
		},
		{
			name: "make GPU instances with MPS in them", edit: onSharing,
			change: layout("x", "mig", nil, migWithMPS("train", map[string]int{g1: 1, g3: 1}, hopper1)),
		},
		{
			name: "change GPU instances with MPS in them, under a share", edit: onSharing, before: instances,
			change: layout("x", "mig", migWithMPS("train", map[string]int{g1: 3, g3: 1}, hopper1),
				migWithMPS("train", map[string]int{g1: 1, g2: 1, g3: 1}, hopper1)),
		},
		{
			name: "delete a config of GPU instances with MPS in them", edit: onSharing, before: instances[:1],
			change: layout("x", "mig", migWithMPS("train", map[string]int{g1: 3, g3: 1}, hopper1), nil),
		},
		{name: "place a share", edit: onSharing, before: placed[:2], change: shares("x", "team-b", nil, fraction("team-b", "inference", 20*gib))},
		{name: "change a share", edit: onSharing, before: placed, change: shares("x", "team-a", fraction("team-a", "inference", 10*gib), less)},
		{name: "end a share", edit: onSharing, before: placed, change: shares("x", "team-a", fraction("team-a", "inference", 10*gib), nil)},
		{name: "make a pool of a Linux host", edit: onSharing, change: pools("x", "pool", nil, linuxPool("team", hopper1, hopper2))},
	}
}
