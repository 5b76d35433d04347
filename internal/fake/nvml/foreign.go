//go:build linux

package fakenvml

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Codes of NVML for [Machine.BreakDriver] and [Fault].
const (
	DriverNotLoaded = 9
	VersionMismatch = 18
)

// Reboot starts the host again: processes and instances end, and with them what is not
// kept: persistence, compute modes, time slices, and from Hopper on the MIG mode.
// Whoever had NVML initialised must do so again.
func (m *Machine) Reboot() {
	m.tb.Helper()
	m.must(m.operate("reboot"))
}

// Reset resets a GPU, whoever holds it, as a driver does after an error.
func (m *Machine) Reset(index int) {
	m.tb.Helper()
	m.must(m.operate("reset", strconv.Itoa(index)))
}

// CreateInstance is somebody else who creates a GPU instance, and one compute instance
// that fills it.
func (m *Machine) CreateInstance(index int, profile string, start int) {
	m.tb.Helper()
	m.must(m.operate("create", strconv.Itoa(index), profile, strconv.Itoa(start)))
}

// DestroyInstance is somebody else who destroys the GPU instance at a start, with its
// compute instances.
func (m *Machine) DestroyInstance(index, start int) {
	m.tb.Helper()
	m.must(m.operate("destroy", strconv.Itoa(index), strconv.Itoa(start)))
}

// SetMIG is somebody else who sets the MIG mode, by whatever way.
func (m *Machine) SetMIG(index int, on bool) {
	m.tb.Helper()
	m.change(func(s *state) error {
		g := m.at(s, index)
		if !on && len(s.instances(index)) > 0 {
			return fmt.Errorf("fakenvml: GPU %d has instances", index)
		}
		g.MIG, g.MIGPending = on, on
		return nil
	})
}

// SetPendingMIG is somebody else who asks for a MIG mode that the next reset brings.
func (m *Machine) SetPendingMIG(index int, on bool) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).MIGPending = on
		return nil
	})
}

// AllowMIGSlices gives a GPU's driver the mode in which vGPUs share GPU instances, or takes it away.
func (m *Machine) AllowMIGSlices(index int, yes bool) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).VGPUMIGSlices = yes
		return nil
	})
}

// SwapGPU puts another card of the same kind in a GPU's place, as a technician does,
// between a shutdown and a start of the host.
func (m *Machine) SwapGPU(index int, uuid string) {
	m.tb.Helper()
	m.Reboot()
	m.change(func(s *state) error {
		g := m.at(s, index)
		g.UUID, g.Serial, g.MIG, g.MIGPending = uuid, "swapped-"+g.Serial, false, false
		return nil
	})
}

// LoseGPU has a GPU fall off its bus.
func (m *Machine) LoseGPU(index int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).Lost = true
		return nil
	})
}

// Sicken has every call for a GPU fail with a code, but those for its name, its UUID and its
// place, until code 0: a GPU whose firmware does not answer is listed as before.
func (m *Machine) Sicken(index, code int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).Sick = code
		return nil
	})
}

// Hang has the same calls take a while. Calls for other GPUs do not wait for them.
func (m *Machine) Hang(index int, d time.Duration) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).Hang = int(d.Microseconds())
		return nil
	})
}

// BreakDriver has every call fail with a code until RepairDriver: DriverNotLoaded, or
// VersionMismatch after an upgrade without a reload.
func (m *Machine) BreakDriver(code int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Machine[0].InitError = code
		return nil
	})
}

// RepairDriver ends BreakDriver.
func (m *Machine) RepairDriver() {
	m.tb.Helper()
	m.BreakDriver(0)
}

// SetRoot says whether who calls NVML or nvidia-smi is root.
func (m *Machine) SetRoot(root bool) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Machine[0].Root = root
		return nil
	})
}

// SetPersistence starts or stops nvidia-persistenced for a GPU. While it runs, it holds
// the GPU.
func (m *Machine) SetPersistence(index int, on bool) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).Persistence = on
		return nil
	})
}

// StartVGPU is a VM that starts with a vGPU, on a GPU instance or, with -1, on the GPU.
// It returns the vGPU's id.
func (m *Machine) StartVGPU(index, vgpuType, instance int, vm string) int {
	m.tb.Helper()
	id := 0
	m.change(func(s *state) error {
		known := slices.ContainsFunc(s.VGPUTypes, func(t vgpuTypeRecord) bool { return t.GPU == index && t.ID == vgpuType })
		if !known {
			return fmt.Errorf("fakenvml: GPU %d has no vGPU type %d", index, vgpuType)
		}
		s.Machine[0].Next++
		id = s.Machine[0].Next
		s.VGPUs = append(s.VGPUs, vgpuRecord{
			GPU: index, ID: id, Type: vgpuType, Instance: instance, VM: vm,
			UUID: fmt.Sprintf("%08x-0000-4000-8000-%012x", id, vgpuType),
		})
		return nil
	})
	return id
}

// UnbindGPU takes the driver from a GPU and gives it back, as sriov-manage does: the mode
// of mixed vGPU sizes and the MIG instances are lost.
func (m *Machine) UnbindGPU(index int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).VGPUMixed = false
		s.Instances = slices.DeleteFunc(s.Instances, func(i instanceRecord) bool { return i.GPU == index })
		s.Computes = slices.DeleteFunc(s.Computes, func(c computeRecord) bool { return c.GPU == index })
		return nil
	})
}

// StopVGPU stops a vGPU.
func (m *Machine) StopVGPU(id int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.VGPUs = slices.DeleteFunc(s.VGPUs, func(v vgpuRecord) bool { return v.ID == id })
		return nil
	})
}

// Activity is how busy a GPU or GPU instance is, in percent, to performance monitoring. An SM
// below zero is not a number, as of counters that could not be read.
type Activity struct{ Graphics, SM, Occupancy, DRAM int }

// SetActivity sets the activity of a GPU instance or, with -1, of the GPU.
func (m *Machine) SetActivity(index, instance int, a Activity) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Activities = slices.DeleteFunc(s.Activities, func(r activityRecord) bool {
			return r.GPU == index && r.Instance == instance
		})
		s.Activities = append(s.Activities, activityRecord{
			GPU: index, Instance: instance, Graphics: a.Graphics, SM: a.SM, Occupancy: a.Occupancy, DRAM: a.DRAM,
		})
		return nil
	})
}

// SetUtilization sets the busy figures of a GPU without MIG, in percent.
func (m *Machine) SetUtilization(index, busy, memory int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		g := m.at(s, index)
		g.Busy, g.MemoryBusy = busy, memory
		return nil
	})
}

// ProcessKind is what a process does with a GPU.
type ProcessKind string

// The kinds of processes. A watcher holds the GPU open without working on it, as DCGM
// and nvidia-persistenced do: NVML does not list it, but a reset is refused.
const (
	Compute  ProcessKind = "compute"
	Graphics ProcessKind = "graphics"
	MPS      ProcessKind = "mps"
	Watcher  ProcessKind = "client"
)

// Compute modes of NVML.
const (
	computeModeProhibited = 2
	computeModeExclusive  = 3
)

// SetComputeMode is somebody else who sets a compute mode, by NVML's number of it.
func (m *Machine) SetComputeMode(index, mode int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		m.at(s, index).ComputeMode = mode
		return nil
	})
}

// StartProcess starts a process on a GPU. In MIG mode it runs on a compute instance,
// unless it is a watcher.
func (m *Machine) StartProcess(index int, kind ProcessKind, p gpu.Process) {
	m.tb.Helper()
	m.change(func(s *state) error {
		g := m.at(s, index)
		r := processRecord{GPU: index, PID: p.PID, Name: p.Name, Kind: string(kind), Memory: int(p.Memory), Instance: -1, Compute: -1}
		if g.MIG && kind != Watcher {
			if err := s.onCompute(&r, p); err != nil {
				return err
			}
		}
		if kind != Watcher {
			if err := s.admit(g, kind); err != nil {
				return err
			}
		}
		s.Processes = append(s.Processes, r)
		return nil
	})
}

// onCompute puts a process on the compute instance that it names.
func (s *state) onCompute(r *processRecord, p gpu.Process) error {
	if p.GPUInstance != nil && p.ComputeInstance != nil {
		r.Instance, r.Compute = *p.GPUInstance, *p.ComputeInstance
	}
	for _, c := range s.Computes {
		if c.GPU == r.GPU && c.Instance == r.Instance && c.ID == r.Compute {
			return nil
		}
	}
	return fmt.Errorf("fakenvml: GPU %d is in MIG mode and has no compute instance %d of GPU instance %d", r.GPU, r.Compute, r.Instance)
}

// admit refuses what CUDA would not run for the GPU's compute mode. Clients of MPS are in
// the one process that is their server.
func (s *state) admit(g *gpuRecord, kind ProcessKind) error {
	others := slices.ContainsFunc(s.Processes, func(p processRecord) bool {
		return p.GPU == g.Index && p.Kind != string(MPS) && p.Kind != string(Watcher)
	})
	switch {
	case g.ComputeMode == computeModeProhibited:
		return fmt.Errorf("fakenvml: GPU %d prohibits compute", g.Index)
	case g.ComputeMode == computeModeExclusive && kind != MPS && others:
		return fmt.Errorf("fakenvml: GPU %d belongs to one process already", g.Index)
	}
	return nil
}

// StopProcess ends a process, on all GPUs.
func (m *Machine) StopProcess(pid int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Processes = slices.DeleteFunc(s.Processes, func(p processRecord) bool { return p.PID == pid })
		return nil
	})
}

// SetBusy sets the share of the multiprocessors that a process uses, in percent.
func (m *Machine) SetBusy(pid, percent int) {
	m.tb.Helper()
	m.change(func(s *state) error {
		for i := range s.Processes {
			if s.Processes[i].PID == pid {
				s.Processes[i].Busy = percent
			}
		}
		return nil
	})
}

// LimitMemory is the container toolkit's hook that limits a control group, by its whole path.
func (m *Machine) LimitMemory(index int, cgroup string, hard gpu.Bytes) {
	m.tb.Helper()
	m.change(func(s *state) error {
		s.Limits = append(s.Limits, limitRecord{GPU: index, Cgroup: cgroup, Hard: int(hard)})
		return nil
	})
}
