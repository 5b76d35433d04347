package mps

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// defaults reads what a daemon gives its next server, but for the threads, which are known.
func (h *Host) defaults(ctx context.Context, name string, devices []string, threads float64) (mpsconf.Settings, error) {
	c := h.control(name)
	s := mpsconf.Settings{ActiveThreadPercentage: threads}
	var err error
	if s.ClientPriority, err = c.DefaultPriority(ctx); err == nil {
		s.PinnedMemory, err = c.limits(ctx, NextServer, devices)
	}
	return s, err
}

// ofServer reads what a server gives its next client. The priority is the daemon's.
func (h *Host) ofServer(ctx context.Context, name string, pid int, devices []string, priority int) (mpsconf.Settings, error) {
	c := h.control(name)
	s := mpsconf.Settings{ClientPriority: priority}
	var err error
	if s.ActiveThreadPercentage, err = c.Threads(ctx, pid); err == nil {
		s.PinnedMemory, err = c.limits(ctx, pid, devices)
	}
	return s, err
}

func (c *Control) limits(ctx context.Context, server int, devices []string) (map[string]gpu.Bytes, error) {
	out := map[string]gpu.Bytes{}
	for ordinal, id := range devices {
		limit, err := c.MemoryLimit(ctx, server, ordinal)
		if err != nil {
			return nil, err
		}
		if limit != 0 {
			out[id] = limit
		}
	}
	return out, nil
}

// inForce reads what a daemon gives its next server, or what one that runs gives its next client
// where that is not as declared.
func (h *Host) inForce(ctx context.Context, name string, devices []string, s *sight, declared mpsconf.Settings) (mpsconf.Settings, error) {
	defaults, err := h.defaults(ctx, name, devices, s.threads)
	if err != nil || !defaults.Equal(declared) {
		return defaults, err
	}
	for _, server := range s.servers {
		have, err := h.ofServer(ctx, name, server.pid, devices, declared.ClientPriority)
		if backend.Is(err, backend.NotFound) {
			continue // it has ended meanwhile
		}
		if err != nil || !have.Equal(declared) {
			return have, err
		}
	}
	return defaults, nil
}

// setDefaults sets what differs of what the next server gets, each by its own command.
func (h *Host) setDefaults(ctx context.Context, spec mpsconf.Spec) error {
	c := h.control(spec.Name)
	threads, err := c.Threads(ctx, NextServer)
	if err != nil {
		return err
	}
	have, err := h.defaults(ctx, spec.Name, spec.Devices, threads)
	if err != nil {
		return err
	}
	if have.ClientPriority != spec.ClientPriority {
		if err := c.SetDefaultPriority(ctx, spec.ClientPriority); err != nil {
			return err
		}
	}
	return c.change(ctx, NextServer, have, spec)
}

// change sets what differs for a server, but for the priority, which is the daemon's.
func (c *Control) change(ctx context.Context, server int, have mpsconf.Settings, spec mpsconf.Spec) error {
	if have.Percentage() != spec.Percentage() {
		if err := c.SetThreads(ctx, server, spec.Percentage()); err != nil {
			return err
		}
	}
	for ordinal, id := range spec.Devices {
		if have.PinnedMemory[id] == spec.PinnedMemory[id] {
			continue
		}
		if err := c.SetMemoryLimit(ctx, server, ordinal, spec.PinnedMemory[id]); err != nil {
			return err
		}
	}
	return nil
}

// setServers sets what differs for the next clients of the servers that run. Clients that
// are there keep what they got.
func (h *Host) setServers(ctx context.Context, spec mpsconf.Spec) error {
	servers, err := h.control(spec.Name).Servers(ctx)
	if err != nil {
		return err
	}
	for _, pid := range servers {
		if err := h.setServer(ctx, spec, pid); err != nil && !backend.Is(err, backend.NotFound) {
			return err
		}
	}
	return nil
}

func (h *Host) setServer(ctx context.Context, spec mpsconf.Spec, pid int) error {
	c := h.control(spec.Name)
	have, err := h.ofServer(ctx, spec.Name, pid, spec.Devices, spec.ClientPriority)
	if err != nil || have.Equal(spec.Settings) {
		return err
	}
	clients, err := c.Clients(ctx, pid)
	if err != nil {
		return err
	}
	if len(clients) == 0 {
		return c.ShutdownServer(ctx, pid) // the next one starts with the defaults
	}
	return c.change(ctx, pid, have, spec)
}
