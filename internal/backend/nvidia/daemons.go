//go:build linux && cgo

package nvidia

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// daemons are the MPS daemons of the host. Without a driver the session is nil.
func (b *Backend) daemons(s *session) *mps.Host {
	o := b.opt.MPS
	o.Root, o.Systemctl = b.opt.Root, b.opt.Systemctl
	if s != nil {
		o.Computing = func(devices []string) ([]mps.Client, bool) { return b.computing(s, devices) }
	}
	return mps.New(o)
}

func daemonObject(name string) string { return "MPS daemon " + name }

// EnsureDaemon brings an MPS control daemon to what is wanted.
func (b *Backend) EnsureDaemon(ctx context.Context, d gpu.MPSDaemonSpec, endClients bool) error {
	var answer error // says itself what was tried
	err := b.ask(ctx, "start it", daemonObject(d.Name), func(s *session) error {
		host := b.daemons(s)
		spec, err := s.daemonSpec(d)
		if err != nil {
			return err
		}
		_, answer = host.Ensure(ctx, spec, mps.Disruption(endClients))
		return nil
	})
	if err != nil {
		return err
	}
	return answer
}

// daemonSpec is what is wanted, with its devices as they are called now.
func (s *session) daemonSpec(d gpu.MPSDaemonSpec) (mpsconf.Spec, error) {
	spec := mpsconf.Spec{
		Name: d.Name, User: d.User, MultiUser: d.MultiUser, StaticPartitions: d.StaticPartitions,
		Settings: mpsconf.Settings{ActiveThreadPercentage: d.ActiveThreadPercentage},
	}
	for _, device := range d.Devices {
		at, err := s.locate(device)
		if err != nil {
			return spec, err
		}
		spec.Devices = append(spec.Devices, at.uuid)
		if d.PinnedMemoryLimit == 0 {
			continue
		}
		if spec.PinnedMemory == nil {
			spec.PinnedMemory = map[string]gpu.Bytes{}
		}
		spec.PinnedMemory[at.uuid] = d.PinnedMemoryLimit
	}
	return spec, nil
}

// RemoveDaemon ends a daemon and takes away all that is on the host for it. It does so
// without the driver, too: a daemon that outlives it is in the way of another one.
func (b *Backend) RemoveDaemon(ctx context.Context, name string, endClients bool) error {
	if err := b.take(ctx, "remove "+daemonObject(name)); err != nil {
		return complete(ctx, err, "remove it", daemonObject(name))
	}
	defer b.leave()
	s, err := b.open()
	if err != nil {
		s = nil
	}
	_, err = b.daemons(s).Remove(ctx, name, mps.Disruption(endClients))
	return err
}

// readMPS is what the host has for MPS.
func (b *Backend) readMPS(ctx context.Context, s *session, gpus []gpu.GPU) (*gpu.MPSHost, error) {
	host := b.daemons(s)
	out := &gpu.MPSHost{Program: host.Program()}
	all, err := host.Read(ctx)
	if err != nil {
		return out, err
	}
	for i := range all {
		out.Daemons = append(out.Daemons, b.daemon(&all[i], gpus))
	}
	return out, nil
}

// daemon is a daemon as the host shows it.
func (b *Backend) daemon(d *mps.Daemon, gpus []gpu.GPU) gpu.MPSDaemon {
	out := gpu.MPSDaemon{PID: d.PID, PipeDir: gpu.Printable(d.PipeDir), Problem: d.Problem}
	out.Name, out.MultiUser, out.StaticPartitions = d.Name, d.MultiUser, d.StaticPartitions
	devices := d.Devices
	var declared mpsconf.Settings
	if d.Spec != nil {
		out.User, out.MultiUser, declared = d.Spec.User, d.Spec.MultiUser, d.Spec.Settings
		if d.PID == 0 {
			devices, out.StaticPartitions = d.Spec.Devices, d.Spec.StaticPartitions
		}
	}
	out.Devices = sharedDevices(gpus, devices)
	if d.Name == "" && !d.Hidden && len(devices) == 0 {
		out.Devices = everyGPU(gpus)
	}
	have := declared
	if d.Settings != nil {
		have = *d.Settings
	}
	out.ActiveThreadPercentage = shownThreads(declared, have)
	out.PinnedMemoryLimit = shownLimit(devices, declared, have)
	for _, c := range d.Clients {
		p := b.identify(c.PID)
		if p.Name == "" {
			p.Name = c.Name
		}
		out.Clients = append(out.Clients, p)
	}
	return out
}

// shownThreads is the percentage in force. A daemon shows 100 for no limit: that is what
// was declared where it amounts to the same.
func shownThreads(declared, have mpsconf.Settings) float64 {
	const all = 100
	if have.ActiveThreadPercentage != all {
		return have.ActiveThreadPercentage
	}
	if declared.ActiveThreadPercentage == all {
		return all
	}
	return 0
}

// shownLimit is the memory limit in force on each device; where somebody has made them
// differ, one that is not as declared.
func shownLimit(devices []string, declared, have mpsconf.Settings) gpu.Bytes {
	var out gpu.Bytes
	for _, id := range devices {
		out = have.PinnedMemory[id]
		if out != declared.PinnedMemory[id] {
			break
		}
	}
	return out
}
