package change_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	gib  = 1024 * gpu.MiB
	name = "host1"
)

// GPUs of the Hyper-V host: two that are divided and three that are not.
const (
	split1 = "PCIROOT(10)#PCI(0000)"
	split2 = "PCIROOT(11)#PCI(0000)"
	whole1 = "PCIROOT(20)#PCI(0000)"
	whole2 = "PCIROOT(21)#PCI(0000)"
	whole3 = "PCIROOT(22)#PCI(0000)"
)

func vmID(n int) string { return fmt.Sprintf("AAAAAAAA-0000-4000-8000-%012d", n) }

// hyperV is a node of a cluster with four VMs, of which the first two run.
func hyperV() gpu.Host {
	h := gpu.Host{
		Name: name, Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Build: 26100},
		Cluster: &gpu.Cluster{Name: "clu", Nodes: []gpu.Node{{Name: name, State: gpu.NodeUp}, {Name: "host2", State: gpu.NodeUp}}},
	}
	for _, id := range []string{split1, split2, whole1, whole2, whole3} {
		g := gpu.GPU{
			ID: id, InstancePath: `PCI\VEN_10DE&DEV_25B6\` + id[8:10], Model: "NVIDIA A2", Vendor: "NVIDIA", VRAM: 16 * gib,
			Status: gpu.ReadyForDDA, MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16 * gib},
		}
		if id == split1 || id == split2 {
			each := func(total uint64) gpu.Capacity {
				return gpu.Capacity{Total: total, Available: total, Min: total / 4, Max: total / 4, Optimal: total / 4}
			}
			g.Status = gpu.Partitioned
			g.Partitionable = &gpu.Partitionable{
				ValidCounts: []int{1, 2, 4, 8, 16}, Count: 4, VRAM: each(uint64(16 * gib)), Encode: each(32), Decode: each(64), Compute: each(4096),
			}
		}
		h.GPUs = append(h.GPUs, g)
	}
	for n := range 4 {
		vm := gpu.VM{ID: vmID(n), Name: fmt.Sprintf("vm-%d", n), State: gpu.VMOff, Generation: 2, Settings: gpu.VMSettings{
			LowMemoryMappedIOSpace: new(3 * gib), HighMemoryMappedIOSpace: new(128 * gib), GuestControlledCache: new(false),
			AutomaticStopAction: new(gpu.StopTurnOff),
		}}
		if n < 2 {
			vm.State = gpu.VMRunning
		}
		h.VMs = append(h.VMs, vm)
	}
	return h
}

// card is GPU n of a Linux host. Of a model with MIG it has that too.
func card(n int, model string) gpu.GPU {
	m, ok := catalog.ByName(model)
	if !ok {
		panic("the catalog has no " + model)
	}
	g := gpu.GPU{
		ID: cardID(n), Model: m.Name, Vendor: m.Vendor, PCI: gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}, VRAM: m.VRAM,
		ComputeMode: gpu.ComputeDefault, TimeSlice: gpu.TimeSliceDefault, ComputeCapability: "9.0",
	}
	if m.MIG != nil {
		g.MIG = &gpu.MIG{NeedsReset: m.MIG.ModeNeedsReset, Profiles: m.MIG.Profiles}
	}
	return g
}

func cardID(n int) string { return fmt.Sprintf("GPU-90000000-0000-4000-8000-%012d", n) }

// linux is a host with two GPUs that have MIG, one of which is reset for its mode, and one
// that has not.
func linux() gpu.Host {
	return gpu.Host{
		Name: name, Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, ContainerToolkit: "1.20.1",
		GPUs:  []gpu.GPU{card(0, "A100-SXM4-80GB"), card(1, "H100 80GB HBM3"), card(2, "L40S")},
		Units: []string{"nvidia-dcgm.service", "trainer.service"},
		MPS:   &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"},
	}
}

// kvm is a host with vGPUs: on virtual functions of two GPUs, and on a GPU itself.
func kvm() gpu.Host {
	h := gpu.Host{
		Name: name, Platform: gpu.Linux, GPUs: []gpu.GPU{card(0, "L40S"), card(1, "L40S"), card(2, "T4")}, Units: []string{"nvidia-dcgm.service"},
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		g.MIG, g.TimeSlice = nil, ""
		g.VGPU = &gpu.VGPU{Functions: 32, HeterogeneousSupported: true, Types: []gpu.VGPUType{
			{Name: "L40S-12Q", FrameBuffer: 12 * gib, Max: 4}, {Name: "L40S-24Q", FrameBuffer: 24 * gib, Max: 2},
		}}
	}
	h.GPUs[2].VGPU = &gpu.VGPU{Types: []gpu.VGPUType{{Name: "T4-4Q", FrameBuffer: 4 * gib, Max: 4}}}
	return h
}

func clone[T any](t *testing.T, v T) T {
	t.Helper()
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out T
	if err := json.Unmarshal(doc, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// plain is a host without what each start of a VM or a daemon gives anew, without the order
// of what has none, and without what no step changes.
func plain(h gpu.Host) gpu.Host {
	h.GPUs, h.VMs, h.Pools = slices.Clone(h.GPUs), slices.Clone(h.VMs), slices.Clone(h.Pools)
	var held []gpu.Partition
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Partitionable != nil {
			p := *g.Partitionable
			for _, part := range p.Partitions {
				held = append(held, gpu.Partition{VMID: part.VMID})
			}
			p.Partitions = nil
			for _, c := range []*gpu.Capacity{&p.VRAM, &p.Encode, &p.Decode, &p.Compute} {
				c.Available = 0
			}
			g.Partitionable = &p
		}
		if g.Dismounted {
			g.Status = "" // which GPU of a pool a VM has is Hyper-V's affair
		}
		if g.MIG != nil {
			g.TimeSlice = "" // which a change of the mode puts back to the driver's own
			m := *g.MIG
			m.Profiles = nil
			m.Instances = sorted(m.Instances, func(i gpu.GPUInstance) string { return fmt.Sprint(i.Start) })
			g.MIG = &m
		}
		if g.VGPU != nil {
			v := *g.VGPU
			v.Types = nil
			v.Instances = sorted(v.Instances, func(i gpu.VGPUInstance) string { return fmt.Sprint(i.Function, i.UUID) })
			g.VGPU = &v
		}
	}
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			p.Partitions = sorted(held, func(p gpu.Partition) string { return p.VMID }) // of which GPU they are is Hyper-V's affair
			break
		}
	}
	for i := range h.VMs {
		vm := &h.VMs[i]
		vm.PartitionAdapters, vm.Devices = slices.Clone(vm.PartitionAdapters), slices.Clone(vm.Devices)
		for j := range vm.PartitionAdapters {
			vm.PartitionAdapters[j].ID = ""
		}
		for j := range vm.Devices {
			d := &vm.Devices[j]
			if d.ID = ""; d.Pool != "" && d.GPU != "" {
				d.GPU = "one of the pool"
			}
		}
		vm.Devices = sorted(vm.Devices, func(d gpu.DeviceAssignment) string { return d.Pool + d.GPU })
	}
	if h.MPS != nil {
		m := *h.MPS
		m.Daemons = slices.Clone(m.Daemons)
		for i := range m.Daemons {
			d := &m.Daemons[i]
			d.PID, d.Clients, d.PipeDir = min(max(d.PID, -d.PID), 1), nil, ""
			d.Devices = slices.DeleteFunc(slices.Clone(d.Devices), func(of gpu.SharedDevice) bool {
				g, ok := h.GPU(of.GPU)
				return ok && of.Instance == nil && g.MIGEnabled() // it serves nothing there, and would not be started with it
			})
		}
		m.Daemons = slices.DeleteFunc(m.Daemons, func(d gpu.MPSDaemon) bool { return len(d.Devices) == 0 })
		h.MPS = &m
	}
	h.Pools = sorted(h.Pools, func(p gpu.Pool) string { return p.Name })
	h.Units = sorted(h.Units, func(u string) string { return u })
	h.Claims = sorted(h.Claims, func(c gpu.Claim) string { return string(c.Kind) + c.ID })
	return h
}

func sorted[T any](of []T, by func(T) string) []T {
	out := append([]T{}, of...)
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(by(a), by(b)) })
	return out
}

func wantSame(t *testing.T, what func() string, want, got gpu.Host) {
	t.Helper()
	a, errA := json.Marshal(plain(want))
	b, errB := json.Marshal(plain(got))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("%s (-want +got):\n%s", what(), cmp.Diff(plain(want), plain(got), cmpopts.EquateEmpty()))
	}
}

// cutAnywhere lets steps run up to each of them, puts them back, and wants the host as it
// was: the step at which it was cut off ran, or did not. It returns the host after all.
func cutAnywhere(t *testing.T, host gpu.Host, steps []change.Step) gpu.Host {
	t.Helper()
	kept := clone(t, host)
	undo, after := change.Schedule(host, steps)
	wantSame(t, func() string { return "Schedule changed the host that it was given" }, kept, host)
	reached := host
	for k := range len(steps) + 1 {
		for _, ran := range []bool{true, false} {
			if k == 0 && ran || k == len(steps) && !ran {
				continue
			}
			back, last := reached, k-1
			if !ran {
				last = k // its inverse was journaled before it
			}
			for i := last; i >= 0; i-- {
				for _, s := range undo[i] {
					back = change.Project(back, s)
				}
			}
			wantSame(t, func() string {
				return fmt.Sprintf("cut off at step %d of %v (ran: %v), put back by %v", last, steps, ran, undo)
			}, host, back)
		}
		if k < len(steps) {
			reached = change.Project(reached, steps[k])
		}
	}
	wantSame(t, func() string { return "Schedule expects another host than its steps make" }, after, reached)
	return after
}
