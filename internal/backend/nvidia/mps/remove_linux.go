package mps

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// Remove ends a daemon and takes away all that is on the host for it, its logs too. It
// tells whether there was anything. A daemon that is not there is no error.
func (h *Host) Remove(ctx context.Context, name string, allowed Disruption) (bool, error) {
	const op = "remove it"
	if err := mpsconf.CheckName(name); err != nil {
		return false, refuse(backend.InvalidParameter, op, name, "%v", err)
	}
	s, err := h.look(ctx, name)
	if err != nil {
		return false, failed(op, name, err)
	}
	clients, err := h.clients(ctx, name, s)
	if err != nil {
		return false, failed(op, name, err)
	}
	if err := refuseClients(op, name, clients, allowed); err != nil {
		return false, err
	}
	h.terminate(ctx, name, s, clients)
	found := s.control != nil || len(s.servers) > 0
	if err := h.stop(ctx, name, s); err != nil {
		return found, failed(op, name, err)
	}
	if err := (&units{opt: h.opt}).forget(ctx, name); err != nil {
		return found, failed(op, name, err)
	}
	for _, dir := range []string{h.logDir(name), h.dir(name)} {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found = true
		if err := os.RemoveAll(dir); err != nil {
			return found, failed(op, name, err)
		}
	}
	return found, nil
}

// EndClients has our daemons end what some of their clients compute, and waits until they have let
// go of them. Nobody else on a daemon notices.
func (h *Host) EndClients(ctx context.Context, which func(Client) bool) error {
	const op = "end clients"
	daemons, err := h.Read(ctx)
	if err != nil {
		return err
	}
	for i := range daemons {
		d := &daemons[i]
		for _, c := range d.Clients {
			if d.Name == "" || !which(c) {
				continue
			}
			if d.PID == 0 || c.Server == 0 {
				return refuse(backend.InUse, op, d.Name, "%s goes on, since the daemon cannot be told to end it: %s", c, d.Problem)
			}
			if err := h.control(d.Name).TerminateClient(ctx, c.Server, c.PID); err != nil && !backend.Is(err, backend.NotFound) {
				return failed(op, d.Name, err)
			}
			if err := h.letsGo(ctx, d.Name, c); err != nil {
				return failed(op, d.Name, err)
			}
		}
	}
	return nil
}

// letsGo waits until a server no longer has a client that was terminated.
func (h *Host) letsGo(ctx context.Context, name string, client Client) error {
	bounded, cancel := context.WithTimeout(ctx, h.opt.StopTimeout)
	defer cancel()
	for {
		pids, err := h.control(name).Clients(ctx, client.Server)
		if backend.Is(err, backend.NotFound) || err == nil && !slices.Contains(pids, client.PID) {
			return nil
		}
		if err != nil {
			return err
		}
		if pause(bounded) != nil {
			return refuse(backend.InUse, "end clients", name, "%s is still a client %s after it was terminated: stop it", client, h.opt.StopTimeout)
		}
	}
}

// terminate has the daemon end what its clients have begun on the GPU. A client that is killed
// with work in flight takes others with it, and hangs the server. Drivers that do not know the
// command, and clients that have ended meanwhile, are none of a stop's concern.
func (h *Host) terminate(ctx context.Context, name string, s *sight, clients []Client) {
	if s.silent != "" {
		return
	}
	for _, c := range clients {
		_ = h.control(name).TerminateClient(ctx, c.Server, c.PID)
	}
}

// stop ends a daemon and its servers: by asking, then by signals.
func (h *Host) stop(ctx context.Context, name string, s *sight) error {
	left := s.servers
	if s.control != nil {
		left = append(left, *s.control)
	}
	asked := h.ask(ctx, name, s)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if asked == nil {
		if done, err := h.gone(ctx, afterTerminate, left...); done || err != nil {
			return err
		}
	}
	// Whatever the reason was that it did not end by being asked, what counts is that it
	// ends.
	return h.end(ctx, left...)
}

var errSilent = errors.New("there is nobody to ask")

// ask asks a daemon to end. systemd is asked even for a daemon that is dead: it may be
// about to start it again.
func (h *Host) ask(ctx context.Context, name string, s *sight) error {
	if s.record != nil && s.record.Systemd {
		return (&units{opt: h.opt}).stop(ctx, name)
	}
	if s.silent != "" {
		return errSilent
	}
	return h.control(name).Quit(ctx, h.opt.StopTimeout)
}
