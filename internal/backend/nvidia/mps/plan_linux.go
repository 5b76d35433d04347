package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Action is what has to be done to bring a daemon to its spec.
type Action string

// Actions.
const (
	Keep      Action = "keep"      // nothing
	Configure Action = "configure" // clients stay; those that come later get the new settings
	Start     Action = "start"     // it does not run
	Restart   Action = "restart"   // its clients end
)

// Effect is what [Host.Ensure] would do, and to whom.
type Effect struct {
	Action Action
	Why    string
	// Clients are those that would end with a restart, or with servers that have outlived
	// their daemon (assumption linux-mps-orphans).
	Clients []Client
}

// Client is a process that computes through a daemon.
type Client struct {
	PID    int    `json:"pid"`
	Name   string `json:"name,omitempty"`
	Server int    `json:"server,omitempty"` // its server's process id, where the daemon tells
}

func (c Client) String() string {
	if c.Name == "" {
		return fmt.Sprintf("process %d", c.PID)
	}
	return fmt.Sprintf("%s (process %d)", c.Name, c.PID)
}

// sight is what is seen of a daemon of ours.
type sight struct {
	record  *record
	control *process // nil when no control daemon has our pipes
	servers []process
	silent  string // why the daemon does not answer, "" when it does
	// wedged is why one of its servers is of no use.
	wedged string
	// threads are what the daemon gives its next server.
	threads float64
}

// look finds a daemon by its pipes: whatever an agent noted before it was killed, these
// are how clients and commands find it.
func (h *Host) look(ctx context.Context, name string) (*sight, error) {
	all, err := h.mpsProcesses()
	if err != nil {
		return nil, err
	}
	return h.lookAmong(ctx, name, all)
}

// lookAmong is look where the processes of MPS are known.
func (h *Host) lookAmong(ctx context.Context, name string, all []process) (*sight, error) {
	rec, err := h.load(name)
	if err != nil {
		return nil, err
	}
	s := &sight{record: rec}
	for _, p := range all {
		if p.pipeDir() != h.pipeDir(name) {
			continue
		}
		if p.program() == serverProgram {
			s.servers = append(s.servers, p)
		} else if p.user == os.Geteuid() && (s.control == nil || rec != nil && p.pid == rec.PID && p.started == rec.Started) {
			s.control = &p
		}
	}
	if s.control == nil {
		s.silent = "the control daemon does not run"
	} else if s.threads, err = h.answers(ctx, name); err != nil {
		s.silent = detail(err)
	} else if err := h.askServers(ctx, name, s); err != nil {
		return nil, err
	}
	return s, ctx.Err()
}

// askServers asks how the servers are. After a fault of one client a server takes no new ones
// until all have ended, and some never do again: new processes hang, and the daemon answers.
func (h *Host) askServers(ctx context.Context, name string, s *sight) error {
	for _, p := range s.servers {
		status, err := h.control(name).ServerStatus(ctx, p.pid)
		if err != nil && !backend.Is(err, backend.NotFound) {
			return err
		}
		if status == statusFault {
			s.wedged = fmt.Sprintf("its server %d has had a fault, and processes that come to it hang", p.pid)
		}
	}
	return nil
}

// answers tells whether a daemon serves, by what it gives its next server of a GPU's threads.
// Root's commands have a socket of their own, so that they are answered even where clients find
// nobody.
func (h *Host) answers(ctx context.Context, name string) (threads float64, err error) {
	socket := filepath.Join(h.pipeDir(name), "control")
	if info, err := os.Lstat(socket); err != nil || info.Mode().Type() != fs.ModeSocket {
		return 0, fmt.Errorf("its clients' socket %s is gone", socket)
	}
	return h.control(name).Threads(ctx, NextServer)
}

// check refuses what this host could never run.
func (h *Host) check(spec mpsconf.Spec) error {
	if err := spec.Validate(); err != nil {
		return refuse(backend.InvalidParameter, "declare it", spec.Name, "%v", err)
	}
	_, err := h.launch(spec)
	return err
}

func (h *Host) plan(ctx context.Context, spec mpsconf.Spec, s *sight) (Effect, error) {
	if s.control == nil {
		clients, err := h.clients(ctx, spec.Name, s)
		return Effect{Action: Start, Why: h.whyEnded(s, spec.Name), Clients: clients}, err
	}
	why := h.whyRestart(spec, s)
	if why != "" {
		clients, err := h.clients(ctx, spec.Name, s)
		return Effect{Action: Restart, Why: why, Clients: clients}, err
	}
	have, err := h.inForce(ctx, spec.Name, spec.Devices, s, spec.Settings)
	if err != nil {
		return Effect{}, err
	}
	if !have.Equal(spec.Settings) || !h.isRecorded(spec, s) {
		return Effect{Action: Configure, Why: "its settings differ"}, nil
	}
	return Effect{Action: Keep}, nil
}

// whyEnded is what is known of the end of a daemon that should run, "" when it never ran.
func (h *Host) whyEnded(s *sight, name string) string {
	if s.record == nil || s.record.PID == 0 {
		return ""
	}
	if why := lastWords(logSince(h.controlLog(name), 0)); why != "" {
		return "it has ended: " + why
	}
	return "it has ended, and " + h.controlLog(name) + " gives no reason: it was killed, or the host ran out of memory"
}

// whyRestart is the reason for which a daemon that runs must start again, "" for none.
func (h *Host) whyRestart(spec mpsconf.Spec, s *sight) string {
	differs := gpu.MPSDifference{
		Devices:    !slices.Equal(s.control.devices(), spec.Devices),
		Partitions: s.control.hasPartitions() != spec.StaticPartitions,
		Users:      s.control.isMultiUser() != spec.MultiUser || s.record != nil && !sameUser(s.record.Spec.User, spec.User),
	}
	switch {
	case s.silent != "":
		return fmt.Sprintf("process %d runs and does not answer: %s", s.control.pid, s.silent)
	case s.wedged != "":
		return s.wedged
	case s.control.speaksProtocol3():
		return "it was started with protocol 3 of MPS"
	case differs.Devices:
		return fmt.Sprintf("its devices are %s, and %s is wanted", orNone(s.control.devices()), orNone(spec.Devices))
	}
	return differs.WhyRestart()
}

func detail(err error) string {
	if known, ok := errors.AsType[*backend.Error](err); ok {
		return known.Detail
	}
	return err.Error()
}

func orNone(ids []string) string {
	if len(ids) == 0 {
		return "every GPU"
	}
	return strings.Join(ids, ", ")
}

func sameUser(a, b *int) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// isRecorded tells whether what is noted of a daemon is what runs, and what a restart by
// systemd would bring back.
func (h *Host) isRecorded(spec mpsconf.Spec, s *sight) bool {
	if s.record == nil || s.record.PID != s.control.pid || s.record.Started != s.control.started || !s.record.Spec.Equal(spec.Settings) ||
		s.record.Spec.ActiveThreadPercentage != spec.ActiveThreadPercentage { // no limit is stated in two ways
		return false
	}
	have, err := document.ReadFile(h.commandsPath(spec.Name))
	return !errors.Is(err, fs.ErrNotExist) && bytes.Equal(have, spec.Commands())
}

// clients are the processes that would end with a daemon.
func (h *Host) clients(ctx context.Context, name string, s *sight) ([]Client, error) {
	if s.silent != "" {
		clients, known := h.orphans(s)
		if !known {
			clients = []Client{{PID: s.servers[0].pid, Name: "an MPS server whose clients cannot be counted"}}
		}
		return clients, nil
	}
	c := h.control(name)
	servers, err := c.Servers(ctx)
	if err != nil {
		return nil, err
	}
	var out []Client
	for _, server := range servers {
		pids, err := c.Clients(ctx, server)
		if err != nil && !backend.Is(err, backend.NotFound) {
			return nil, err
		}
		out = append(out, words.Each(pids, func(pid int) Client { return Client{PID: pid, Name: h.processName(pid), Server: server} })...)
	}
	slices.SortFunc(out, func(a, b Client) int { return a.PID - b.PID })
	return out, nil
}

// orphans are the clients of servers whose daemon does not answer, and whether they are
// known. The driver does not tell by which of the servers on a device they compute.
func (h *Host) orphans(s *sight) (clients []Client, known bool) {
	switch {
	case len(s.servers) == 0:
		return nil, true
	case h.opt.Computing == nil:
		return nil, false
	}
	h.asking.Lock()
	defer h.asking.Unlock()
	if s.record != nil {
		return h.opt.Computing(s.record.Spec.Devices)
	}
	return h.opt.Computing(s.servers[0].devices())
}
