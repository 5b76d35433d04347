package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// Daemon is what is seen of a control daemon, of ours or of somebody else.
type Daemon struct {
	// Name is ours. Other people's daemons have none.
	Name string `json:"name,omitempty"`
	// Spec is what was declared, nil for other people's.
	Spec *mpsconf.Spec `json:"spec,omitempty"`
	// PID is 0 when it does not run.
	PID       int  `json:"pid,omitempty"`
	Systemd   bool `json:"systemd,omitempty"`
	MultiUser bool `json:"multi_user,omitempty"`
	// StaticPartitions tells whether it was started with them.
	StaticPartitions bool `json:"static_partitions,omitempty"`
	// Devices are what its clients see, nil for every GPU. With Hidden it is not known what
	// they see, and where its pipes are: only root may read that of another user's daemon.
	Devices []string `json:"devices,omitempty"`
	Hidden  bool     `json:"hidden,omitempty"`
	PipeDir string   `json:"pipe_dir"`
	// Settings are read back from the daemon and its servers, nil when it does not tell.
	Settings *mpsconf.Settings `json:"settings,omitempty"`
	// Servers are the process ids of those that compute for its clients.
	Servers []int `json:"servers,omitempty"`
	// Clients are known of ours only. They may outlive the daemon, with its servers.
	Clients []Client `json:"clients,omitempty"`
	// Problem says why a daemon of ours does not run or answer.
	Problem string `json:"problem,omitempty"`
}

// readAtOnce is how many daemons are asked at the same time: one that does not answer must
// not keep the others waiting.
const readAtOnce = 16

// Read are the daemons of the host, ours by name, then other people's by process id.
func (h *Host) Read(ctx context.Context) ([]Daemon, error) {
	// Before the directories, which a daemon has for as long as it runs.
	all, err := h.mpsProcesses()
	if err != nil {
		return nil, &backend.Error{Code: backend.Failed, Op: "read the MPS daemons", Object: h.opt.ProcDir, Detail: err.Error()}
	}
	entries, err := os.ReadDir(h.opt.RunDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &backend.Error{Code: backend.Failed, Op: "read the MPS daemons", Object: h.opt.RunDir, Detail: err.Error()}
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !mpsconf.IsName(e.Name()) })
	ours := make([]Daemon, len(entries))
	var group errgroup.Group
	group.SetLimit(readAtOnce)
	for i, e := range entries {
		group.Go(func() error {
			d, err := h.read(ctx, e.Name(), all)
			switch {
			case ctx.Err() != nil:
				return failed("read it", e.Name(), ctx.Err())
			case err != nil: // one that is broken must not hide the others
				d = &Daemon{Name: e.Name(), PipeDir: h.pipeDir(e.Name()), Problem: detail(err)}
			}
			ours[i] = *d
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	isOurs := func(p process) bool {
		return slices.ContainsFunc(ours, func(d Daemon) bool { return d.PipeDir == p.pipeDir() })
	}
	var others []Daemon
	slices.SortFunc(all, func(a, b process) int { return a.pid - b.pid })
	for _, p := range all {
		if p.isControl() && !isOurs(p) {
			others = append(others, foreign(p, all))
		}
	}
	return slices.Concat(ours, others), nil
}

// foreign is somebody else's daemon, as far as /proc tells. Nothing is said to it.
func foreign(p process, all []process) Daemon {
	d := Daemon{PipeDir: p.pipeDir(), Hidden: p.hidden}
	d.from(p)
	for _, s := range all {
		if s.program() == serverProgram && s.parent == p.pid {
			d.Servers = append(d.Servers, s.pid)
		}
	}
	return d
}

// from takes what a control daemon's process tells.
func (d *Daemon) from(p process) {
	d.PID, d.MultiUser, d.StaticPartitions, d.Devices = p.pid, p.isMultiUser(), p.hasPartitions(), p.devices()
}

func (h *Host) read(ctx context.Context, name string, all []process) (*Daemon, error) {
	if problem := h.whyHidden(name); problem != "" {
		return &Daemon{Name: name, PipeDir: h.pipeDir(name), Problem: problem}, nil
	}
	s, err := h.lookAmong(ctx, name, all)
	if err != nil {
		return nil, err
	}
	d := &Daemon{Name: name, PipeDir: h.pipeDir(name)}
	if s.record != nil {
		d.Spec, d.Systemd = &s.record.Spec, s.record.Systemd
	}
	for _, p := range s.servers {
		d.Servers = append(d.Servers, p.pid)
	}
	if s.silent != "" {
		d.Clients, _ = h.orphans(s)
	}
	if s.control == nil {
		d.Problem = h.whyEnded(s, name)
		if d.Problem == "" {
			d.Problem = "it was declared, and its start was cut off"
		}
		return d, nil
	}
	d.from(*s.control)
	if s.silent != "" {
		d.Problem = "it runs and does not answer: " + s.silent
		return d, nil
	}
	return d, h.complete(ctx, d, s)
}

// whyHidden says why nothing can be told of a daemon: without root, another user's
// processes do not show whose daemon they are.
func (h *Host) whyHidden(name string) string {
	info, err := os.Stat(h.dir(name))
	if err != nil || os.Geteuid() == 0 {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return fmt.Sprintf("only root and user id %d can tell whether it runs, and the agent runs as %d", owner.Uid, os.Geteuid())
	}
	return ""
}

// complete adds to what is seen of a daemon what it says.
func (h *Host) complete(ctx context.Context, d *Daemon, s *sight) error {
	var err error
	if d.Clients, err = h.clients(ctx, d.Name, s); err != nil {
		return err
	}
	var declared mpsconf.Settings
	if d.Spec != nil {
		declared = d.Spec.Settings
	}
	settings, err := h.inForce(ctx, d.Name, d.Devices, s, declared)
	if err != nil {
		return err
	}
	d.Settings = &settings
	d.Problem = s.wedged
	return nil
}
