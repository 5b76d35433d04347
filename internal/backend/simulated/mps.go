package simulated

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// MPS is what a Linux host knows of the Multi-Process Service beyond the snapshot.
type MPS struct {
	// StartFails is the reason for which no control daemon starts; empty lets them start.
	StartFails string `json:"start_fails,omitempty"`
	// Devices are the UUIDs that a daemon of ours was started with, by its name. The simulator
	// writes it: a MIG device that is made again has another one.
	Devices map[string][]string `json:"devices,omitempty"`
}

// Reasons for which a daemon does not run.
const (
	CutOff = "it was declared, and its start was cut off"
	Killed = "it has ended, and its log gives no reason: it was killed, or the host ran out of memory"
)

// EnsureDaemon brings an MPS control daemon to what is wanted.
func (h *Host) EnsureDaemon(ctx context.Context, d gpu.MPSDaemonSpec, endClients bool) error {
	return h.do(ctx, call{op: OpEnsureDaemon, daemon: d.Name}, func(r *record) error {
		return r.ensureDaemon(d, endClients)
	})
}

// RemoveDaemon ends a daemon and takes away what is on the host for it.
func (h *Host) RemoveDaemon(ctx context.Context, name string, endClients bool) error {
	return h.do(ctx, call{op: OpRemoveDaemon, daemon: name}, func(r *record) error {
		return r.removeDaemon(name, endClients)
	})
}

func (r *record) ensureDaemon(want gpu.MPSDaemonSpec, endClients bool) error {
	devices, err := r.locate(want.Devices)
	if err != nil {
		return err
	}
	if err := r.acceptsDaemon(want, uuidsOf(devices)); err != nil {
		return err
	}
	want.Devices = sharedDevices(devices)
	d, ok := r.Daemon(want.Name)
	if !ok {
		return r.startDaemon(want, uuidsOf(devices))
	}
	why := "servers have outlived their control daemon"
	if d.PID != 0 {
		why = r.whyRestart(d, want, uuidsOf(devices))
	}
	if why == "" {
		d.MPSDaemonSpec = want // those of a server that runs are for clients that come
		return nil
	}
	if err := keepClients(d, endClients); err != nil {
		return refuse(backend.InUse, "%s, which takes a restart, and %v", why, err)
	}
	r.endDaemon(d)
	r.stands = true
	return r.startDaemon(want, uuidsOf(devices))
}

// acceptsDaemon refuses what this host's driver could never run.
func (r *record) acceptsDaemon(want gpu.MPSDaemonSpec, uuids []string) error {
	spec := mpsconf.Spec{Name: want.Name, Devices: uuids, User: want.User, MultiUser: want.MultiUser}
	spec.ActiveThreadPercentage = want.ActiveThreadPercentage
	if want.PinnedMemoryLimit > 0 {
		spec.PinnedMemory = map[string]gpu.Bytes{}
		for _, id := range uuids {
			spec.PinnedMemory[id] = want.PinnedMemoryLimit
		}
	}
	if err := spec.Validate(); err != nil {
		return refuse(backend.InvalidParameter, "%v", err)
	}
	if want.StaticPartitions {
		for _, d := range want.Devices {
			if g, ok := r.GPU(d.GPU); ok && !g.StaticPartitions() {
				return refuse(backend.Failed, "the driver's MPS has no static partitions for GPU %s", g.ID)
			}
		}
	}
	if r.MPS == nil || r.MPS.Program == "" {
		return refuse(backend.NotSupported,
			"nvidia-cuda-mps-control is not installed: it comes with the driver, in some distributions as a package of its own")
	}
	return nil
}

// whyRestart is the reason for which a daemon that runs must start again, "" for none.
func (r *record) whyRestart(d *gpu.MPSDaemon, want gpu.MPSDaemonSpec, uuids []string) string {
	differs := d.Differs(&want)
	if have, known := r.Simulation.MPS.Devices[d.Name]; known {
		differs.Devices = !slices.Equal(have, uuids)
	}
	return differs.WhyRestart()
}

// startDaemon starts a daemon that does not run. One whose first start fails leaves
// nothing.
func (r *record) startDaemon(want gpu.MPSDaemonSpec, uuids []string) error {
	d := gpu.MPSDaemon{MPSDaemonSpec: want, PipeDir: "/run/gpu-mps/" + want.Name + "/pipe"}
	switch reason := r.Simulation.MPS.StartFails; {
	case r.halfway:
		d.Problem = CutOff
	case reason != "":
		d.Problem = "it has ended: " + reason
	default:
		d.PID = r.newPID()
	}
	r.putDaemon(d, uuids)
	if d.PID == 0 && !r.halfway {
		return refuse(backend.Failed, "the daemon was started, and %s", d.Problem)
	}
	return nil
}

// putDaemon puts a daemon in place of the one that has its name, in the order in which a
// host tells them: ours by name, then those of others by process id.
func (r *record) putDaemon(d gpu.MPSDaemon, uuids []string) {
	if r.MPS == nil {
		r.MPS = &gpu.MPSHost{}
	}
	r.dropDaemon(d.Name)
	r.MPS.Daemons = append(r.MPS.Daemons, d)
	slices.SortFunc(r.MPS.Daemons, func(a, b gpu.MPSDaemon) int {
		if (a.Name == "") != (b.Name == "") {
			return strings.Compare(b.Name, a.Name)
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID))
	})
	if d.Name == "" {
		return
	}
	if r.Simulation.MPS.Devices == nil {
		r.Simulation.MPS.Devices = map[string][]string{}
	}
	r.Simulation.MPS.Devices[d.Name] = uuids
}

// dropDaemon forgets a daemon of ours.
func (r *record) dropDaemon(name string) {
	if name == "" || r.MPS == nil {
		return
	}
	r.MPS.Daemons = slices.DeleteFunc(r.MPS.Daemons, func(d gpu.MPSDaemon) bool { return d.Name == name })
	delete(r.Simulation.MPS.Devices, name)
}

func (r *record) removeDaemon(name string, endClients bool) error {
	d, ok := r.Daemon(name)
	if !ok {
		return nil
	}
	if err := keepClients(d, endClients); err != nil {
		return refuse(backend.InUse, "%v", err)
	}
	r.endDaemon(d)
	if r.halfway {
		d.PID, d.Problem = 0, Killed
		return nil
	}
	r.dropDaemon(name)
	return nil
}

// keepClients says who would end with a daemon, unless that is allowed.
func keepClients(d *gpu.MPSDaemon, end bool) error {
	if len(d.Clients) == 0 || end {
		return nil
	}
	return fmt.Errorf("%d clients would end with it: %s", len(d.Clients), listProcesses(d.Clients))
}

// endDaemon ends a daemon's servers and clients, and nobody else on its devices.
func (r *record) endDaemon(d *gpu.MPSDaemon) {
	clients := slices.Clone(d.Clients)
	r.EndProcesses(func(p gpu.Process) bool {
		return isServer(d, p) || slices.ContainsFunc(clients, func(c gpu.Process) bool { return c.PID == p.PID })
	})
}

// serverName is the program that computes for clients.
const serverName = "nvidia-cuda-mps-server"

// isServer tells whether a process is a daemon's server.
func isServer(d *gpu.MPSDaemon, p gpu.Process) bool {
	return p.Name == serverName && p.Holder == daemonUnit(d)
}

func daemonUnit(d *gpu.MPSDaemon) string { return "unit gpu-mps@" + d.Name + ".service" }

// refreshDaemons has daemons show the devices that the host has by now.
func (r *record) refreshDaemons() {
	if r.MPS == nil {
		return
	}
	for i := range r.MPS.Daemons {
		d := &r.MPS.Daemons[i]
		uuids, known := r.Simulation.MPS.Devices[d.Name]
		if !known {
			continue
		}
		d.Devices = nil
		for _, id := range uuids {
			d.Devices = append(d.Devices, r.byUUID(id))
		}
	}
}

// firstPID is the id of the first process that is started on a host without any.
const firstPID = 4001

// newPID is one that no process on the host has had.
func (r *record) newPID() int {
	r.Simulation.LastPID = max(r.Simulation.LastPID, firstPID-1)
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			r.Simulation.LastPID = max(r.Simulation.LastPID, p.PID)
		}
	}
	if r.MPS != nil {
		for _, d := range r.MPS.Daemons {
			r.Simulation.LastPID = max(r.Simulation.LastPID, d.PID)
		}
	}
	r.Simulation.LastPID++
	return r.Simulation.LastPID
}
