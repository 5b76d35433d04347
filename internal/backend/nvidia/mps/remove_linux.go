package mps

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Remove ends a daemon and takes away all that is on the host for it, its logs too. It
// tells whether there was anything. A daemon that is not there is no error.
func (h *Host) Remove(ctx context.Context, name string, allowed Disruption) (bool, error) {
	const op = "remove it"
	if err := (Spec{Name: name}).checkName(h.Protocol()); err != nil {
		return false, refuse(backend.InvalidParameter, op, name, "%v", err)
	}
	s, err := h.look(ctx, name)
	if err != nil {
		return false, failed(op, name, err)
	}
	if s.control != nil {
		clients, err := h.clients(ctx, name, s)
		if err != nil {
			return false, failed(op, name, err)
		}
		if err := refuseClients(op, name, clients, allowed); err != nil {
			return false, err
		}
	}
	found := s.control != nil || len(s.servers) > 0
	if err := h.stop(ctx, name, s); err != nil {
		return found, failed(op, name, err)
	}
	for _, k := range []keeper{h.keeper(true), h.keeper(false)} {
		if err := k.forget(ctx, name); err != nil {
			return found, failed(op, name, err)
		}
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

// stop ends a daemon and its servers: by asking, then by signals.
func (h *Host) stop(ctx context.Context, name string, s *sight) error {
	quit := func(ctx context.Context) error {
		if s.control == nil || s.silent != "" {
			return nil // nobody to ask
		}
		c := h.control(name)
		if s.control.protocol() == V3 {
			return c.quit3(ctx, h.opt.StopTimeout)
		}
		return c.Quit(ctx, h.opt.StopTimeout)
	}
	systemd := s.record != nil && s.record.Systemd
	asked := h.keeper(systemd).stop(ctx, name, quit)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	left := s.servers
	if s.control != nil {
		left = append(left, *s.control)
	}
	if asked == nil {
		if done, err := h.gone(ctx, afterTerminate, left...); done || err != nil {
			return err
		}
	}
	// It did not end by being asked. Whatever the reason was, what counts is that it ends.
	return h.end(ctx, left...)
}
