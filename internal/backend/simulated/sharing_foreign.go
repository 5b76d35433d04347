package simulated

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The methods in this file are what others do to a Linux host behind our back: users with
// processes in shares, an administrator with nvidia-smi and daemons of his own, a kernel
// that is out of memory.

// admits refuses a process that comes to a GPU past MPS. Those that are there go on,
// whatever the mode became.
func admits(g *gpu.GPU) error {
	switch {
	case isInMIG(g), g.ComputeMode == "", g.ComputeMode == gpu.ComputeDefault:
		return nil
	case g.ComputeMode == gpu.ComputeExclusiveProcess && len(g.Processes) == 0:
		return nil
	}
	return fmt.Errorf("all CUDA-capable devices are busy or unavailable: the compute mode of GPU %s is %s, and it is used by %d processes", g.ID, g.ComputeMode, len(g.Processes))
}

// StartClient has a process compute through a daemon of ours, on all of its devices. It
// returns the process id, which is the process's own if it has one.
func (f *Fleet) StartClient(ctx context.Context, host, daemon string, p gpu.Process) (int, error) {
	err := f.onHost(ctx, host, func(r *record) error {
		d, ok := r.Daemon(daemon)
		if !ok {
			return f.file.fail(fmt.Errorf("host %q has no MPS daemon %q", r.Name, daemon))
		}
		if err := r.connect(d, &p, d.Devices); err != nil {
			return f.file.fail(fmt.Errorf("host %q, MPS daemon %s: %w", r.Name, daemon, err))
		}
		return nil
	})
	return p.PID, err
}

// StartInShare has a process compute that has the environment of a share: on the share's
// devices, through its daemon if it has one.
func (f *Fleet) StartInShare(ctx context.Context, host, share string, p gpu.Process) (int, error) {
	err := f.onHost(ctx, host, func(r *record) error {
		s, ok := r.HandedShare(share)
		if !ok {
			return f.file.fail(fmt.Errorf("host %q has no share %q", r.Name, share))
		}
		if err := r.enter(s, &p); err != nil {
			return f.file.fail(fmt.Errorf("host %q, share %s: %w", r.Name, share, err))
		}
		return nil
	})
	return p.PID, err
}

// enter has a process go where the environment of a share leads.
func (r *record) enter(s *gpu.HandedShare, p *gpu.Process) error {
	p.Share = s.Name
	var devices []gpu.SharedDevice
	for uuid := range strings.SplitSeq(s.Environment["CUDA_VISIBLE_DEVICES"], ",") {
		devices = append(devices, r.byUUID(uuid))
	}
	pipe, served := s.Environment["CUDA_MPS_PIPE_DIRECTORY"]
	if !served {
		if p.PID == 0 {
			p.PID = r.newPID()
		}
		return r.compute(*p, devices...)
	}
	if r.MPS != nil {
		for i := range r.MPS.Daemons {
			if d := &r.MPS.Daemons[i]; d.PipeDir == pipe {
				return r.connect(d, p, devices)
			}
		}
	}
	return fmt.Errorf("there is no MPS daemon at %s", pipe)
}

// connect has a process compute through a daemon, whose server starts with its first
// client: on an exclusive GPU only if nobody else is there.
func (r *record) connect(d *gpu.MPSDaemon, p *gpu.Process, devices []gpu.SharedDevice) error {
	if d.PID == 0 {
		return fmt.Errorf("the MPS daemon does not run")
	}
	if !r.hasServer(d) {
		server := gpu.Process{PID: r.newPID(), Name: serverName, Holder: daemonUnit(d)}
		if err := r.compute(server, d.Devices...); err != nil {
			return fmt.Errorf("its server exited with status 1: %w", err)
		}
	}
	if p.PID == 0 {
		p.PID = r.newPID()
	}
	for _, at := range devices {
		g, ok := r.GPU(at.GPU)
		if !ok {
			return fmt.Errorf("the host has no GPU %s any more", at.GPU)
		}
		if err := (migFace{g}).place(*p, at.Instance); err != nil {
			return err
		}
	}
	d.Clients = append(d.Clients, *p)
	return nil
}

func (r *record) hasServer(d *gpu.MPSDaemon) bool {
	return slices.ContainsFunc(r.GPUs, func(g gpu.GPU) bool {
		return slices.ContainsFunc(g.Processes, func(p gpu.Process) bool { return isServer(d, p) })
	})
}

// KillDaemon ends a daemon of ours with its servers and clients, as the kernel does when
// memory runs out.
func (f *Fleet) KillDaemon(ctx context.Context, host, daemon string) error {
	return f.onHost(ctx, host, func(r *record) error {
		d, ok := r.Daemon(daemon)
		if !ok {
			return f.file.fail(fmt.Errorf("host %q has no MPS daemon %q", r.Name, daemon))
		}
		r.endDaemon(d)
		d.PID, d.Problem = 0, killed
		return nil
	})
}

// KillControl ends the control daemon of ours alone. Its server goes on, and its clients.
func (f *Fleet) KillControl(ctx context.Context, host, daemon string) error {
	return f.onHost(ctx, host, func(r *record) error {
		d, ok := r.Daemon(daemon)
		if !ok {
			return f.file.fail(fmt.Errorf("host %q has no MPS daemon %q", r.Name, daemon))
		}
		d.PID, d.Problem = 0, killed
		return nil
	})
}

// LeaveSockets leaves what a daemon leaves that was killed.
func (f *Fleet) LeaveSockets(ctx context.Context, host, daemon string) error {
	return f.onHost(ctx, host, func(r *record) error {
		d := gpu.MPSDaemon{PipeDir: "/run/gpu-mps/" + daemon + "/pipe", Problem: cutOff}
		d.Name = daemon
		r.putDaemon(d, nil)
		return nil
	})
}

// StartDaemonOutside starts a daemon of somebody else for GPUs, and returns its process id.
func (f *Fleet) StartDaemonOutside(ctx context.Context, host string, gpuIDs ...string) (int, error) {
	var d gpu.MPSDaemon
	err := f.onHost(ctx, host, func(r *record) error {
		d.PID = r.newPID()
		d.PipeDir = fmt.Sprintf("/tmp/nvidia-mps-%d", d.PID)
		for _, id := range gpuIDs {
			d.Devices = append(d.Devices, gpu.SharedDevice{GPU: id})
		}
		r.putDaemon(d, nil)
		return nil
	})
	return d.PID, err
}

// SetComputeModeOutside sets a compute mode as nvidia-smi does.
func (f *Fleet) SetComputeModeOutside(ctx context.Context, host, gpuID string, mode gpu.ComputeMode) error {
	return f.onHost(ctx, host, func(r *record) error {
		return complete(r.setComputeMode(gpuID, mode), call{op: OpSetComputeMode, gpu: gpuID}, r)
	})
}

// SetTimeSliceOutside sets a time slice as nvidia-smi does.
func (f *Fleet) SetTimeSliceOutside(ctx context.Context, host, gpuID string, t gpu.TimeSlice) error {
	return f.onHost(ctx, host, func(r *record) error {
		return complete(r.setTimeSlice(gpuID, t), call{op: OpSetTimeSlice, gpu: gpuID}, r)
	})
}

// WriteForeignSpec writes a CDI specification of somebody else in the place of a share's.
func (f *Fleet) WriteForeignSpec(ctx context.Context, host, share string) error {
	return f.onHost(ctx, host, func(r *record) error {
		r.dropShare(share)
		if !slices.Contains(r.Simulation.ForeignSpecs, share) {
			r.Simulation.ForeignSpecs = append(r.Simulation.ForeignSpecs, share)
		}
		return nil
	})
}

// RemoveShareOutside removes the CDI specification of a share, whoever wrote it.
func (f *Fleet) RemoveShareOutside(ctx context.Context, host, share string) error {
	return f.onHost(ctx, host, func(r *record) error {
		r.dropShare(share)
		r.Simulation.ForeignSpecs = slices.DeleteFunc(r.Simulation.ForeignSpecs, func(s string) bool { return s == share })
		return nil
	})
}
