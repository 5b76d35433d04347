package mps

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Disruption is what a change may do to processes that compute.
type Disruption bool

// Disruptions.
const (
	KeepClients Disruption = false
	EndClients  Disruption = true
)

// Ensure brings a daemon to its spec and tells whether it had to change anything. It is
// reversed by Ensure with the spec from before, or by Remove. A daemon whose first start
// fails leaves nothing behind.
func (h *Host) Ensure(ctx context.Context, spec mpsconf.Spec, allowed Disruption) (bool, error) {
	if err := h.check(spec); err != nil {
		return false, err
	}
	s, err := h.look(ctx, spec.Name)
	if err != nil {
		return false, failed("read it", spec.Name, err)
	}
	effect, err := h.plan(ctx, spec, s)
	if err != nil {
		return false, failed("read it", spec.Name, err)
	}
	op := "restart it, because " + effect.Why
	if effect.Action == Start {
		op = "start it, because servers that have outlived their control daemon have to end first"
	}
	if err := refuseClients(op, spec.Name, effect.Clients, allowed); err != nil {
		return false, err
	}
	switch effect.Action {
	case Keep:
		return false, nil
	case Configure:
		return true, failed("configure it", spec.Name, h.configure(ctx, spec, s))
	case Start, Restart:
	}
	h.terminate(ctx, spec.Name, s, effect.Clients)
	// One that is dead may be about to come back by systemd, and its servers, which serve
	// nobody new, hold the GPU.
	if err := h.stop(ctx, spec.Name, s); err != nil {
		return effect.Action == Restart, failed("stop it", spec.Name, err)
	}
	if err := h.start(ctx, spec); err != nil {
		if s.record == nil && s.control == nil {
			err = h.undo(ctx, spec.Name, err)
		}
		return true, err
	}
	return true, nil
}

func refuseClients(op, name string, clients []Client, allowed Disruption) error {
	if len(clients) == 0 || allowed == EndClients {
		return nil
	}
	who := words.Each(clients, Client.String)
	return refuse(backend.InUse, op, name, "%d clients would end: %s. Wait until they have ended, or allow that processes are ended",
		len(clients), strings.Join(who, ", "))
}

// start starts a daemon that does not run, with its settings.
func (h *Host) start(ctx context.Context, spec mpsconf.Spec) error {
	const op = "start it"
	l, err := h.launch(spec)
	if err != nil {
		return err
	}
	rec := record{Spec: spec, Systemd: h.hasSystemd()}
	for _, prepare := range []func() error{
		func() error { return h.makeDirs(spec) },
		func() error { return h.clean(spec.Name) },
		func() error { return h.rotate(spec.Name) },
		func() error { return h.writeSettings(spec) },
		func() error { return h.save(rec) },
	} {
		if err := prepare(); err != nil {
			return failed(op, spec.Name, h.explainFull(spec.Name, err, h.opt.RunDir))
		}
	}
	before := logSize(h.controlLog(spec.Name))
	if err := h.starter(rec.Systemd).start(ctx, l); err != nil {
		return h.whyNotUp(spec, before, err)
	}
	s, err := h.up(ctx, spec.Name)
	if err != nil {
		return h.whyNotUp(spec, before, err)
	}
	return failed("configure it", spec.Name, h.configure(ctx, spec, s))
}

// up waits until a daemon that was started answers. systemd may have to find its process.
func (h *Host) up(ctx context.Context, name string) (*sight, error) {
	bounded, cancel := context.WithTimeout(ctx, h.opt.StartTimeout)
	defer cancel()
	var why string
	for {
		s, err := h.look(bounded, name)
		if err == nil && s.silent == "" {
			return s, nil
		}
		if err == nil {
			why = s.silent
			err = pause(bounded)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case bounded.Err() != nil:
			return nil, &backend.Error{Code: backend.Timeout, Detail: fmt.Sprintf("it was started, and %s later: %s", h.opt.StartTimeout, why)}
		case err != nil:
			return nil, err
		}
	}
}

// whyNotUp adds to a failed start what the program does not say: it is silent about a
// missing option and a full disk, and has the rest in its log.
func (h *Host) whyNotUp(spec mpsconf.Spec, logged int64, err error) error {
	var hint string
	switch why := lastWords(logSince(h.controlLog(spec.Name), logged)); {
	case why != "":
		hint = h.controlLog(spec.Name) + " says: " + why
	case isCrowded(h.opt.RunDir):
		return refuse(backend.Insufficient, "start it", spec.Name, "%s", sentence(detail(err), h.room(h.opt.RunDir)))
	case isCrowded(h.opt.LogDir):
		return refuse(backend.Insufficient, "start it", spec.Name, "%s", sentence(detail(err), h.room(h.opt.LogDir)))
	case spec.StaticPartitions:
		hint = "perhaps this driver's MPS has no static partitions, which came with R590"
	case spec.MultiUser:
		hint = "perhaps this driver's MPS has no server for several users: state one user"
	}
	return failed("start it", spec.Name, err, hint)
}

// undo takes away what a failed first start has made.
func (h *Host) undo(ctx context.Context, name string, cause error) error {
	// What was begun is put away even when the caller has given up.
	if _, err := h.Remove(context.WithoutCancel(ctx), name, EndClients); err != nil {
		return failed("start it", name, cause, "what it left could not be removed: "+detail(err))
	}
	return cause
}

// writeSettings writes what a daemon takes its settings from when it starts.
func (h *Host) writeSettings(spec mpsconf.Spec) error {
	return replace(h.commandsPath(spec.Name), spec.Commands())
}

// configure brings a daemon that answers to its settings. What a restart takes them from
// is written first, so that a daemon that ends meanwhile comes back with the new ones.
func (h *Host) configure(ctx context.Context, spec mpsconf.Spec, s *sight) error {
	for _, write := range []func() error{
		func() error { return h.makeDirs(spec) },
		func() error { return h.writeSettings(spec) },
	} {
		if err := write(); err != nil {
			return h.explainFull(spec.Name, err, h.opt.RunDir)
		}
	}
	systemd := h.hasSystemd()
	if s.record != nil {
		systemd = s.record.Systemd
	}
	if err := h.setDefaults(ctx, spec); err != nil {
		return err
	}
	if err := h.setServers(ctx, spec); err != nil {
		return err
	}
	// Last, so that an agent that is killed before this configures again.
	rec := record{Spec: spec, Systemd: systemd, PID: s.control.pid, Started: s.control.started}
	return h.explainFull(spec.Name, h.save(rec), h.opt.RunDir)
}
