package agent_test

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The GPUs of the test host: two with GPU-P, of which the second is idle in most
// tests, and three that are free to be given whole.
const (
	gpuP1 = "PCIROOT(10)#PCI(0000)#PCI(0000)"
	gpuP2 = "PCIROOT(20)#PCI(0000)#PCI(0000)"
	gpuD1 = "PCIROOT(30)#PCI(0000)#PCI(0000)"
	gpuD2 = "PCIROOT(40)#PCI(0000)#PCI(0000)"
	gpuD3 = "PCIROOT(50)#PCI(0000)#PCI(0000)"
)

// Its VMs by name: two run and two are off, none has a GPU.
const (
	run1 = "AAAAAAAA-0000-0000-0000-000000000001"
	run2 = "AAAAAAAA-0000-0000-0000-000000000002"
	off1 = "BBBBBBBB-0000-0000-0000-000000000001"
	off2 = "BBBBBBBB-0000-0000-0000-000000000002"
)

const gib = 1024 * gpu.MiB

func testHost() gpu.Host {
	h := gpu.Host{
		Name: host, Platform: gpu.HyperV,
		OS:   gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{partitionable(gpuP1), partitionable(gpuP2), whole(gpuD1), whole(gpuD2), whole(gpuD3)},
	}
	for _, vm := range []struct {
		id, name string
		state    gpu.VMState
	}{{run1, "run-1", gpu.VMRunning}, {run2, "run-2", gpu.VMRunning}, {off1, "off-1", gpu.VMOff}, {off2, "off-2", gpu.VMOff}} {
		h.VMs = append(h.VMs, gpu.VM{
			ID: vm.id, Name: vm.name, State: vm.state, Generation: 2, Checkpoints: gpu.CheckpointsDisabled,
			Settings: gpu.VMSettings{
				LowMemoryMappedIOSpace: new(3 * gib), HighMemoryMappedIOSpace: new(64 * gib),
				GuestControlledCache: new(false), AutomaticStopAction: new(gpu.StopTurnOff),
			},
		})
	}
	return h
}

func whole(id string) gpu.GPU {
	return gpu.GPU{
		ID: id, InstancePath: fmt.Sprintf(`PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\%s`, id[8:10]),
		Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
		VRAM: 16 * gib, Driver: gpu.Driver{Version: "573.39"}, Status: gpu.ReadyForDDA,
		MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16 * gib},
	}
}

func partitionable(id string) gpu.GPU {
	g := whole(id)
	g.Status = gpu.Partitioned
	each := func(total uint64) gpu.Capacity {
		return gpu.Capacity{Total: total, Available: total, Min: total / 4, Max: total / 4, Optimal: total / 4}
	}
	g.Partitionable = &gpu.Partitionable{
		Name:        `\\?\PCI#VEN_10DE&DEV_25B6#` + id[8:10],
		ValidCounts: []int{1, 2, 4, 8, 16}, Count: 4,
		VRAM: each(uint64(16 * gib)), Encode: each(32), Decode: each(64), Compute: each(4096),
	}
	return g
}

// onlyOneGPUP leaves one GPU with partitions, so that it is known where an adapter
// that is not pinned gets its partition.
func onlyOneGPUP(h *gpu.Host) {
	h.GPUs[1] = whole(gpuP2)
}

func request(id, token string) agent.Change {
	return agent.Change{ID: id, Host: host, Change: change.Change{Subject: "test " + id, Owner: owner, Token: token}}
}

var mayStop = gpu.Power{AllowShutdown: true}

func partitionOf(vm string, edit func(*gpu.Assignment)) *gpu.Assignment {
	a := &gpu.Assignment{Kind: gpu.AssignPartition, VM: vm, VMID: vm, Host: host, Partition: &gpu.PartitionWant{}, Power: mayStop}
	if edit != nil {
		edit(a)
	}
	return a
}

func poolFor(vm, pool string, count int) *gpu.Assignment {
	return &gpu.Assignment{
		Kind: gpu.AssignPool, VM: vm, VMID: vm, Host: host, Pool: &gpu.PoolWant{ID: host + "/" + pool, Name: pool, Count: count}, Power: mayStop,
	}
}

func deviceFor(vm string, gpus ...string) *gpu.Assignment {
	return &gpu.Assignment{
		Kind: gpu.AssignDevice, VM: vm, VMID: vm, Host: host, Device: &gpu.DeviceWant{Host: host, GPUIDs: gpus}, Power: mayStop,
	}
}

func config(id string, count int, gpus ...string) *gpu.PartitionConfig {
	return &gpu.PartitionConfig{
		ID: id, Kind: gpu.KindGPUP, Name: id, Count: count, GPUs: map[string][]string{host: gpus, "elsewhere": {"X"}},
		MaxDisruption: gpu.DisruptVMRestart, Restore: true,
	}
}

func pool(name string, gpus ...string) *gpu.PoolConfig {
	return &gpu.PoolConfig{ID: host + "/" + name, Name: name, Members: map[string][]string{host: gpus}, MountBack: true}
}

// move is a change from one want to another; either may be missing.
func move[T any](id, token string, set func(*gpu.Want, *T), from, to *T) agent.Change {
	ch := request(id, token)
	if from != nil {
		set(&ch.Prior, from)
	}
	if to != nil {
		set(&ch.Want, to)
	}
	return ch
}

func assign(id, token string, from, to *gpu.Assignment) agent.Change {
	return move(id, token, func(w *gpu.Want, a *gpu.Assignment) { w.Assignment = a }, from, to)
}

func layout(id, token string, from, to *gpu.PartitionConfig) agent.Change {
	return move(id, token, func(w *gpu.Want, c *gpu.PartitionConfig) { w.Config = c }, from, to)
}

// acts does something once by a config.
func acts(act change.Act, token string, by *gpu.PartitionConfig) agent.Change {
	ch := layout("x"+string(act), token, by, by)
	ch.Act = act
	return ch
}

func pools(id, token string, from, to *gpu.PoolConfig) agent.Change {
	return move(id, token, func(w *gpu.Want, c *gpu.PoolConfig) { w.Pool = c }, from, to)
}

// scenario is a change on a host that earlier changes prepared.
type scenario struct {
	name   string
	edit   func(*gpu.Host)
	before []agent.Change
	change agent.Change
}

// scenarios cover every step in every order that the planners make.
func scenarios() []scenario {
	withSettings := func(a *gpu.Assignment) {
		a.Settings = gpu.VMSettings{GuestControlledCache: new(true), HighMemoryMappedIOSpace: new(32 * gib)}
	}
	held := []agent.Change{
		layout("c0", "config", nil, config("vdi", 4, gpuP1)),
		assign("a0", "vm1", nil, partitionOf(run1, minVRAM(3*gib))),
		assign("a1", "vm2", nil, partitionOf(run2, nil)),
		assign("a2", "vm3", nil, partitionOf(off1, minVRAM(3*gib))),
	}
	drawn := []agent.Change{
		pools("p0", "pool", nil, pool("dda", gpuD1, gpuD2)),
		assign("a0", "vm1", nil, poolFor(run1, "dda", 1)),
	}
	later := partitionOf(run1, func(a *gpu.Assignment) { a.Power.NextOff = true })
	act := func(act change.Act, want *gpu.Assignment) agent.Change {
		ch := assign("x"+string(act), "vm1", nil, want)
		ch.Act = act
		return ch
	}
	return append(append(vgpuScenarios(), sharingScenarios()...), []scenario{
		{
			name: "make what waits for the power-off now", edit: onlyOneGPUP, before: []agent.Change{assign("a0", "vm1", nil, later)},
			change: act(change.ActPending, later),
		},
		{
			name: "shut down a VM with a partition", edit: onlyOneGPUP, before: held[:2],
			change: act(change.ActStop, partitionOf(run1, minVRAM(3*gib))),
		},
		{
			name: "start a VM with a partition", edit: onlyOneGPUP,
			before: append(held[:2:2], act(change.ActStop, partitionOf(run1, minVRAM(3*gib)))),
			change: act(change.ActStart, partitionOf(run1, minVRAM(3*gib))),
		},
		{name: "set the count of an idle GPU", change: layout("x", "config", nil, config("vdi", 8, gpuP1, gpuP2))},
		{
			name: "change the count under running VMs", edit: onlyOneGPUP, before: held,
			change: layout("x", "config", config("vdi", 4, gpuP1), config("vdi", 8, gpuP1)),
		},
		{
			name:   "a GPU leaves the config and another joins",
			before: []agent.Change{layout("c0", "config", nil, config("vdi", 8, gpuP1))},
			change: layout("x", "config", config("vdi", 8, gpuP1), config("vdi", 8, gpuP2)),
		},
		{
			name:   "a GPU moves between configs",
			before: []agent.Change{layout("c0", "config", nil, config("vdi", 8, gpuP1, gpuP2))},
			change: layout("x", "other", nil, config("big", 2, gpuP2)),
		},
		{
			name: "delete a config", before: []agent.Change{layout("c0", "config", nil, config("vdi", 8, gpuP1, gpuP2))},
			change: layout("x", "config", config("vdi", 8, gpuP1, gpuP2), nil),
		},
		{name: "create a pool", change: pools("x", "pool", nil, pool("dda", gpuD1, gpuD2))},
		{
			name: "change a pool's members", before: drawn[:1],
			change: pools("x", "pool", pool("dda", gpuD1, gpuD2), pool("dda", gpuD2, gpuD3)),
		},
		{name: "delete a pool", before: drawn[:1], change: pools("x", "pool", pool("dda", gpuD1, gpuD2), nil)},
		{name: "give a running VM a partition", edit: onlyOneGPUP, change: assign("x", "vm1", nil, partitionOf(run1, withSettings))},
		{name: "give a VM that is off a partition", change: assign("x", "vm3", nil, partitionOf(off1, minVRAM(gib)))},
		{
			name: "change the quotas of a running VM", edit: onlyOneGPUP, before: held,
			change: assign("x", "vm1", partitionOf(run1, minVRAM(3*gib)), partitionOf(run1, minVRAM(2*gib))),
		},
		{
			name: "take the partition from a running VM", edit: onlyOneGPUP,
			before: []agent.Change{assign("a0", "vm1", nil, partitionOf(run1, withSettings))},
			change: assign("x", "vm1", partitionOf(run1, withSettings), nil),
		},
		{name: "give a running VM two GPUs of a pool", before: drawn[:1], change: assign("x", "vm1", nil, poolFor(run1, "dda", 2))},
		{
			name:   "give a running VM one GPU of a pool less",
			before: []agent.Change{drawn[0], assign("a0", "vm1", nil, poolFor(run1, "dda", 2))},
			change: assign("x", "vm1", poolFor(run1, "dda", 2), poolFor(run1, "dda", 1)),
		},
		{
			name: "move a running VM from a pool to a partition", edit: onlyOneGPUP, before: drawn,
			change: assign("x", "vm1", poolFor(run1, "dda", 1), partitionOf(run1, withSettings)),
		},
		{
			name: "move a running VM from a partition to a device", edit: onlyOneGPUP,
			before: []agent.Change{assign("a0", "vm1", nil, partitionOf(run1, withSettings))},
			change: assign("x", "vm1", partitionOf(run1, withSettings), deviceFor(run1, gpuD1)),
		},
		{
			name: "take a device from a running VM", before: []agent.Change{assign("a0", "vm1", nil, deviceFor(run1, gpuD1))},
			change: assign("x", "vm1", deviceFor(run1, gpuD1), nil),
		},
		{
			name: "turn MIG mode on", edit: onLinux,
			change: layout("x", "mig", nil, mig("train", map[string]int{g1: 2, g3: 1}, hopper1, ampere)),
		},
		{
			name: "change a MIG layout", edit: onLinux,
			before: []agent.Change{layout("c0", "mig", nil, mig("train", map[string]int{g1: 3, g3: 1}, hopper1, ampere))},
			change: layout("x", "mig", mig("train", map[string]int{g1: 3, g3: 1}, hopper1, ampere),
				mig("train", map[string]int{g1: 1, g2: 1, g3: 1}, hopper1, ampere)),
		},
		{
			name: "a GPU leaves a MIG config and another joins", edit: onLinux,
			before: []agent.Change{layout("c0", "mig", nil, mig("train", map[string]int{g3: 2}, hopper1, ampere))},
			change: layout("x", "mig", mig("train", map[string]int{g3: 2}, hopper1, ampere), mig("train", map[string]int{g3: 2}, hopper2, ampere)),
		},
		{
			name: "delete a MIG config", edit: onLinux,
			before: []agent.Change{layout("c0", "mig", nil, mig("train", map[string]int{g3: 1, g1: 1}, hopper1, ampere))},
			change: layout("x", "mig", mig("train", map[string]int{g3: 1, g1: 1}, hopper1, ampere), nil),
		},
	}...)
}
