package others

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SetGuest says how the guest of a VM behaves. It moves with the VM.
func (f *Fleet) SetGuest(ctx context.Context, vm string, g simulated.Guest) error {
	return f.onVM(ctx, vm, func(_ *simulated.Hands, m simulated.Machine, vm *gpu.VM) error {
		setGuest(m, vm.ID, g)
		return nil
	})
}

func guest(m simulated.Machine, vmID string) simulated.Guest {
	for id, g := range m.Simulation().Guests {
		if gpu.SameID(id, vmID) {
			return g
		}
	}
	return simulated.Guest{}
}

func setGuest(m simulated.Machine, vmID string, g simulated.Guest) {
	s := m.Simulation()
	maps.DeleteFunc(s.Guests, func(id string, _ simulated.Guest) bool { return gpu.SameID(id, vmID) })
	if g == (simulated.Guest{}) {
		return
	}
	if s.Guests == nil {
		s.Guests = map[string]simulated.Guest{}
	}
	s.Guests[vmID] = g
}

// SetVMState starts, stops, saves or pauses a VM as its owner would in Hyper-V
// Manager. A VM that finds no partition does not start, which is the error.
func (f *Fleet) SetVMState(ctx context.Context, vm string, state gpu.VMState) error {
	return f.onVM(ctx, vm, func(_ *simulated.Hands, m simulated.Machine, vm *gpu.VM) error {
		switch state {
		case gpu.VMOff, gpu.VMSaved:
			return stop(ctx, m, vm, state)
		case gpu.VMRunning:
			return m.StartVM(ctx, vm.ID)
		default:
			vm.State = state
			return nil
		}
	})
}

// stop ends a VM's execution. What it held is free.
func stop(ctx context.Context, m simulated.Machine, vm *gpu.VM, state gpu.VMState) error {
	if vm.State != gpu.VMSaved { // which holds nothing
		if err := m.TurnOffVM(ctx, vm.ID); err != nil {
			return err
		}
	}
	vm.State = state
	return nil
}

// RenameVM gives a VM another name.
func (f *Fleet) RenameVM(ctx context.Context, vm, name string) error {
	return f.onVM(ctx, vm, func(_ *simulated.Hands, _ simulated.Machine, vm *gpu.VM) error {
		vm.Name = name
		return nil
	})
}

// AddForeignAdapter gives a VM a partition as Windows Admin Center does: it turns a
// running VM off and starts it again. It returns the adapter's id.
func (f *Fleet) AddForeignAdapter(ctx context.Context, vm string) (id string, err error) {
	err = f.onVM(ctx, vm, func(_ *simulated.Hands, m simulated.Machine, vm *gpu.VM) error {
		was := vm.State
		if err := stop(ctx, m, vm, gpu.VMOff); err != nil {
			return err
		}
		if id, err = m.AddPartitionAdapter(ctx, vm.ID, gpu.PartitionAdapter{}); err != nil {
			return err
		}
		switch was {
		case gpu.VMRunning, gpu.VMStarting:
			return m.StartVM(ctx, vm.ID)
		case gpu.VMPaused: // which holds what it has
			if err := m.StartVM(ctx, vm.ID); err != nil {
				return err
			}
		}
		vm.State = was
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// MoveVM moves a VM to another host, as a failover or a cold migration does: a VM
// that ran is started there and gets a new partition. The move stands even when the
// VM finds none and stays off, which is the error.
func (f *Fleet) MoveVM(ctx context.Context, vm, toHost string) error {
	var refusal error
	err := f.onVM(ctx, vm, func(h *simulated.Hands, from simulated.Machine, vm *gpu.VM) error {
		to, ok := h.Machine(toHost)
		if !ok {
			return fmt.Errorf("there is no host %q in it", toHost)
		}
		if from.Name() == to.Name() {
			return nil
		}
		ran, id := vm.Runs(), vm.ID
		if err := stop(ctx, from, vm, gpu.VMOff); err != nil {
			return err
		}
		setGuest(to, id, guest(from, id))
		setGuest(from, id, simulated.Guest{})
		there, here := to.State(), from.State()
		there.VMs = append(there.VMs, *vm)
		here.VMs = slices.DeleteFunc(here.VMs, func(v gpu.VM) bool { return gpu.SameID(v.ID, id) })
		if ran {
			refusal = to.StartVM(ctx, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return refusal
}

// LiveMigrate moves a running VM to another node of its cluster without stopping it. It
// stays where it is when it cannot.
func (f *Fleet) LiveMigrate(ctx context.Context, vm, toHost string) error {
	return f.onVM(ctx, vm, func(_ *simulated.Hands, m simulated.Machine, vm *gpu.VM) error {
		return m.LiveMigrate(vm.ID, toHost)
	})
}

// Reboot stops all VMs of a host and, after the boot, starts those that ran. They get
// new partitions; one that finds none stays off. A GPU comes up with another count if
// its CountAfterReboot says so. Processes end, MIG is lost as far as the hardware forgets
// it, vGPUs and their modes, MPS daemons and shares are lost, and units that are not
// disabled run.
func (f *Fleet) Reboot(ctx context.Context, host string) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		h, s := m.State(), m.Simulation()
		var ran []string
		for i := range h.VMs {
			vm := &h.VMs[i]
			if vm.State == gpu.VMOff || vm.State == gpu.VMSaved {
				continue
			}
			if vm.Runs() {
				ran = append(ran, vm.ID)
			}
			if err := stop(ctx, m, vm, gpu.VMOff); err != nil {
				return err
			}
		}
		for id, hidden := range s.GPUs {
			if g, ok := h.GPU(id); ok && g.Partitionable != nil && hidden.CountAfterReboot > 0 {
				if err := m.SetPartitionCount(ctx, g.ID, hidden.CountAfterReboot); err != nil {
					return err
				}
			}
		}
		for i := range h.GPUs {
			boot(&h.GPUs[i])
		}
		// What is in /run is lost: daemons, whosever they are, and CDI specifications.
		if h.MPS != nil {
			h.MPS.Daemons = nil
		}
		s.MPS.Devices, h.Shares, s.ForeignSpecs = nil, nil, nil
		startUnits(h, s)
		h.Boot = &gpu.Boot{ID: rand.Text(), At: time.Now().UTC().Truncate(time.Second)}
		for _, id := range ran {
			// A VM that does not start is part of what a reboot may bring.
			_ = m.StartVM(ctx, id)
		}
		return nil
	})
}

// startUnits starts what starts at boot.
func startUnits(h *gpu.Host, s *simulated.Simulation) {
	for _, name := range slices.Sorted(maps.Keys(s.Units)) {
		if s.Units[name].Disabled {
			h.Units = slices.DeleteFunc(h.Units, func(u string) bool { return u == name })
		} else if !slices.Contains(h.Units, name) {
			h.Units = append(h.Units, name)
		}
	}
	slices.Sort(h.Units)
}

// SetNodeState pauses, drains, stops or resumes a cluster node, in the eyes of every
// node of its cluster.
func (f *Fleet) SetNodeState(ctx context.Context, node string, state gpu.NodeState) error {
	return f.Handle(ctx, func(h *simulated.Hands) error {
		m, ok := h.Machine(node)
		if !ok || m.State().Cluster == nil {
			return fmt.Errorf("there is no cluster node %q in it", node)
		}
		cluster := m.State().ClusterName()
		for _, name := range f.Hosts() {
			peer, ok := h.Machine(name)
			if !ok || !gpu.SameID(peer.State().ClusterName(), cluster) {
				continue
			}
			nodes := peer.State().Cluster.Nodes
			for i := range nodes {
				if gpu.SameID(nodes[i].Name, m.Name()) {
					nodes[i].State = state
				}
			}
		}
		return nil
	})
}

// Resume resumes a node, with its VMs or without them.
func (f *Fleet) Resume(ctx context.Context, node string, failback bool) error {
	if !failback {
		return f.SetNodeState(ctx, node, gpu.NodeUp)
	}
	return f.onHost(ctx, node, func(m simulated.Machine) error { return m.ResumeNode(ctx) })
}
