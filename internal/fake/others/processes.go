package others

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// StartProcess has a process compute on a GPU, or in its GPU instance at a place: on
// that instance's first compute instance. It returns the process id, which is the
// process's own if it has one.
func (f *Fleet) StartProcess(ctx context.Context, host, gpuID string, at *gpu.MIGPlacement, p gpu.Process) (int, error) {
	err := f.onGPU(ctx, host, gpuID, func(m simulated.Machine, g *gpu.GPU) error {
		number(m, &p)
		if err := compute(m, p, gpu.SharedDevice{GPU: g.ID, Instance: at}); err != nil {
			return fmt.Errorf("host %q, GPU %s: %w", m.Name(), g.ID, err)
		}
		return nil
	})
	return p.PID, err
}

func number(m simulated.Machine, p *gpu.Process) {
	if p.PID == 0 {
		p.PID = m.NewPID()
	}
}

// compute has a process compute on devices that let it in.
func compute(m simulated.Machine, p gpu.Process, devices ...gpu.SharedDevice) error {
	return place(m, p, admits, devices...)
}

// admits refuses a process that comes to a GPU past MPS. Those that are there go on,
// whatever the mode became.
func admits(g *gpu.GPU) error {
	switch {
	case g.MIG != nil && g.MIG.Enabled, g.ComputeMode == "", g.ComputeMode == gpu.ComputeDefault:
		return nil
	case g.ComputeMode == gpu.ComputeExclusiveProcess && len(g.Processes) == 0:
		return nil
	}
	return fmt.Errorf("all CUDA-capable devices are busy or unavailable: the compute mode of GPU %s is %s, and it is used by %d processes",
		g.ID, g.ComputeMode, len(g.Processes))
}

// place has a process on devices.
func place(m simulated.Machine, p gpu.Process, admits func(*gpu.GPU) error, devices ...gpu.SharedDevice) error {
	for _, d := range devices {
		g, ok := m.State().GPU(d.GPU)
		if !ok {
			return fmt.Errorf("the host has no GPU %s any more", d.GPU)
		}
		if err := errors.Join(admits(g), seat(g, &p, d.Instance)); err != nil {
			return err
		}
		g.Processes = append(g.Processes, p)
	}
	return nil
}

// seat says of a process where on the GPU it runs.
func seat(g *gpu.GPU, p *gpu.Process, at *gpu.MIGPlacement) error {
	p.GPUInstance, p.ComputeInstance = nil, nil
	switch inMIG := g.MIG != nil && g.MIG.Enabled; {
	case !inMIG && at != nil:
		return fmt.Errorf("it is not in MIG mode, so that no process runs in %s@%d", at.Profile, at.Start)
	case !inMIG:
		return nil
	case at == nil:
		return fmt.Errorf("it is in MIG mode, so that a process runs in an instance or not at all")
	}
	i := instance(g, *at)
	if i == nil || len(i.Compute) == 0 {
		return fmt.Errorf("it has no instance %s@%d with a compute instance", at.Profile, at.Start)
	}
	id, first := i.ID, i.Compute[0].ID
	p.GPUInstance, p.ComputeInstance = &id, &first
	return nil
}

// StopProcess ends a process, on all GPUs of its host.
func (f *Fleet) StopProcess(ctx context.Context, host string, pid int) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		m.State().EndProcesses(func(p gpu.Process) bool { return p.PID == pid })
		return nil
	})
}

// endOn ends the processes on one GPU, wherever else they are.
func endOn(h *gpu.Host, g *gpu.GPU) {
	on := slices.Clone(g.Processes)
	h.EndProcesses(among(on))
}

func among(list []gpu.Process) func(gpu.Process) bool {
	return func(p gpu.Process) bool {
		return slices.ContainsFunc(list, func(o gpu.Process) bool { return o.PID == p.PID })
	}
}

// SetUnit gives a host a unit, or changes how it behaves, and starts or stops it.
func (f *Fleet) SetUnit(ctx context.Context, host, name string, u simulated.Unit, run bool) error {
	if !strings.Contains(name, ".") {
		name += ".service"
	}
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		s := m.Simulation()
		if s.Units == nil {
			s.Units = map[string]simulated.Unit{}
		}
		if s.Units[name] = u; run {
			return m.StartUnit(ctx, name)
		}
		return m.StopUnit(ctx, name)
	})
}

// StartClient has a process compute through a daemon of ours, on all of its devices. It
// returns the process id, which is the process's own if it has one.
func (f *Fleet) StartClient(ctx context.Context, host, daemon string, p gpu.Process) (int, error) {
	err := f.onDaemon(ctx, host, daemon, func(m simulated.Machine, d *gpu.MPSDaemon) error {
		if err := connect(m, d, &p, d.Devices); err != nil {
			return fmt.Errorf("host %q, MPS daemon %s: %w", m.Name(), daemon, err)
		}
		return nil
	})
	return p.PID, err
}

// StartInShare has a process compute that has the environment of a share: on the share's
// devices, through its daemon if it has one.
func (f *Fleet) StartInShare(ctx context.Context, host, share string, p gpu.Process) (int, error) {
	err := f.onHost(ctx, host, func(m simulated.Machine) error {
		s, ok := m.State().HandedShare(share)
		if !ok {
			return fmt.Errorf("host %q has no share %q", m.Name(), share)
		}
		if err := enter(m, s, &p); err != nil {
			return fmt.Errorf("host %q, share %s: %w", m.Name(), share, err)
		}
		return nil
	})
	return p.PID, err
}

// enter has a process go where the environment of a share leads.
func enter(m simulated.Machine, s *gpu.HandedShare, p *gpu.Process) error {
	p.Share = s.Name
	var devices []gpu.SharedDevice
	for uuid := range strings.SplitSeq(s.Environment["CUDA_VISIBLE_DEVICES"], ",") {
		devices = append(devices, m.DeviceOf(uuid))
	}
	pipe, served := s.Environment["CUDA_MPS_PIPE_DIRECTORY"]
	if !served {
		number(m, p)
		return compute(m, *p, devices...)
	}
	if mps := m.State().MPS; mps != nil {
		for i := range mps.Daemons {
			if d := &mps.Daemons[i]; d.PipeDir == pipe {
				return connect(m, d, p, devices)
			}
		}
	}
	return fmt.Errorf("there is no MPS daemon at %s", pipe)
}

// connect has a process compute through a daemon, whose server starts with its first
// client: on an exclusive GPU only if nobody else is there.
func connect(m simulated.Machine, d *gpu.MPSDaemon, p *gpu.Process, devices []gpu.SharedDevice) error {
	if d.PID == 0 {
		return fmt.Errorf("the MPS daemon does not run")
	}
	if !hasServer(m.State(), d) {
		server := gpu.Process{PID: m.NewPID(), Name: serverName, Holder: unitOf(d)}
		if err := compute(m, server, d.Devices...); err != nil {
			return fmt.Errorf("its server exited with status 1: %w", err)
		}
	}
	number(m, p)
	if err := place(m, *p, func(*gpu.GPU) error { return nil }, devices...); err != nil {
		return err
	}
	d.Clients = append(d.Clients, *p)
	return nil
}

// serverName is the program that computes for clients.
const serverName = "nvidia-cuda-mps-server"

func unitOf(d *gpu.MPSDaemon) string { return "unit gpu-mps@" + d.Name + ".service" }

func isServer(d *gpu.MPSDaemon) func(gpu.Process) bool {
	return func(p gpu.Process) bool { return p.Name == serverName && p.Holder == unitOf(d) }
}

func hasServer(h *gpu.Host, d *gpu.MPSDaemon) bool {
	return slices.ContainsFunc(h.GPUs, func(g gpu.GPU) bool { return slices.ContainsFunc(g.Processes, isServer(d)) })
}

func (f *Fleet) onDaemon(ctx context.Context, host, daemon string, change func(simulated.Machine, *gpu.MPSDaemon) error) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		d, ok := m.State().Daemon(daemon)
		if !ok {
			return fmt.Errorf("host %q has no MPS daemon %q", m.Name(), daemon)
		}
		return change(m, d)
	})
}

// KillDaemon ends a daemon of ours with its servers and clients, as the kernel does when
// memory runs out.
func (f *Fleet) KillDaemon(ctx context.Context, host, daemon string) error {
	return f.onDaemon(ctx, host, daemon, func(m simulated.Machine, d *gpu.MPSDaemon) error {
		m.State().EndProcesses(isServer(d))
		m.State().EndProcesses(among(slices.Clone(d.Clients)))
		d.PID, d.Problem = 0, simulated.Killed
		return nil
	})
}

// KillControl ends the control daemon of ours alone. Its server hangs on, with its clients
// (assumption linux-mps-orphans).
func (f *Fleet) KillControl(ctx context.Context, host, daemon string) error {
	return f.onDaemon(ctx, host, daemon, func(_ simulated.Machine, d *gpu.MPSDaemon) error {
		d.PID, d.Problem = 0, simulated.Killed
		return nil
	})
}

// LeaveSockets leaves what a daemon leaves that was killed.
func (f *Fleet) LeaveSockets(ctx context.Context, host, daemon string) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		d := gpu.MPSDaemon{PipeDir: "/run/gpu-mps/" + daemon + "/pipe", Problem: simulated.CutOff}
		d.Name = daemon
		m.PutDaemon(d)
		return nil
	})
}

// StartDaemonOutside starts a daemon of somebody else for GPUs, and returns its process id.
func (f *Fleet) StartDaemonOutside(ctx context.Context, host string, gpuIDs ...string) (int, error) {
	var d gpu.MPSDaemon
	err := f.onHost(ctx, host, func(m simulated.Machine) error {
		d.PID = m.NewPID()
		d.PipeDir = fmt.Sprintf("/tmp/nvidia-mps-%d", d.PID)
		for _, id := range gpuIDs {
			d.Devices = append(d.Devices, gpu.SharedDevice{GPU: id})
		}
		m.PutDaemon(d)
		return nil
	})
	return d.PID, err
}

// WriteForeignSpec writes a CDI specification of somebody else in the place of a share's.
func (f *Fleet) WriteForeignSpec(ctx context.Context, host, share string) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		dropShare(m.State(), share)
		if s := m.Simulation(); !slices.Contains(s.ForeignSpecs, share) {
			s.ForeignSpecs = append(s.ForeignSpecs, share)
		}
		return nil
	})
}

// RemoveShareOutside removes the CDI specification of a share, whoever wrote it.
func (f *Fleet) RemoveShareOutside(ctx context.Context, host, share string) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		dropShare(m.State(), share)
		s := m.Simulation()
		s.ForeignSpecs = slices.DeleteFunc(s.ForeignSpecs, func(name string) bool { return name == share })
		return nil
	})
}

func dropShare(h *gpu.Host, name string) {
	h.Shares = slices.DeleteFunc(h.Shares, func(s gpu.HandedShare) bool { return s.Name == name })
}
