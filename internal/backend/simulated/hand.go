package simulated

import (
	"context"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Handle changes the hosts of the file as whoever stands before them does: at once, past latency,
// faults and reach. What change did is written unless it fails.
func (f *Fleet) Handle(ctx context.Context, change func(*Hands) error) error {
	return f.file.update(ctx, func(d *document) error {
		h := &Hands{fleet: f, doc: d}
		if err := change(h); err != nil {
			return f.file.fail(err)
		}
		if !h.replaced {
			for i := range d.touched {
				d.hosts[i].rec.refreshStatuses()
			}
		}
		return nil
	})
}

// Hands are laid on the hosts of a file.
type Hands struct {
	fleet    *Fleet
	doc      *document
	replaced bool
}

// Machine is a host in hand. Its operations are those of the host, done at once.
type Machine struct{ *Host }

// Machine finds a host by its name.
func (h *Hands) Machine(name string) (Machine, bool) {
	rec, ok := h.doc.edit(name, time.Now())
	if !ok {
		return Machine{}, false
	}
	return Machine{&Host{fleet: h.fleet, name: rec.Name, hand: h.doc}}, true
}

func (m Machine) record() *record {
	rec, _ := m.hand.edit(m.name, time.Now())
	return rec
}

// State is the host itself, to change. An operation may put another in its place.
func (m Machine) State() *gpu.Host { return &m.record().Host }

// Simulation is the host's simulation section, to change.
func (m Machine) Simulation() *Simulation { return &m.record().Simulation }

// NewPID is a process id that no process on the host has had.
func (m Machine) NewPID() int { return m.record().newPID() }

// DeviceOf is the device that CUDA has under a UUID.
func (m Machine) DeviceOf(uuid string) gpu.SharedDevice { return m.record().byUUID(uuid) }

// PutDaemon has the host show an MPS daemon, in the order in which hosts do.
func (m Machine) PutDaemon(d gpu.MPSDaemon) { m.record().putDaemon(d, nil) }

// LiveMigrate moves a running VM to another node of its cluster without stopping it. It
// stays where it is when it cannot.
func (m Machine) LiveMigrate(vmID, toHost string) error {
	return m.hand.liveMigrate(m.name, vmID, toHost)
}

// Shown are all hosts as their agents show them, each to be changed for Replace.
func (h *Hands) Shown() gpu.Snapshot { return h.doc.shown(time.Now()) }

// Replace puts others in place of all hosts. Each keeps its agent and simulation sections, by
// name.
func (h *Hands) Replace(s gpu.Snapshot) {
	d, sections := h.doc, map[string]entry{}
	for _, e := range d.hosts {
		sections[gpu.FoldID(e.rec.Name)] = entry{raw: e.raw, rec: clone(e.rec)}
	}
	d.keepTogether(s.Hosts)
	d.format, d.hosts, d.index, d.touched, d.recorded = s.Format, nil, map[string]int{}, map[int]*record{}, map[int]bool{}
	for i, host := range s.Hosts {
		e := sections[gpu.FoldID(host.Name)]
		rec := &record{Host: host}
		if e.rec != nil {
			rec.Agent, rec.Simulation = e.rec.Agent, e.rec.Simulation
		}
		d.touched[i] = rec
		d.add(entry{raw: e.raw, rec: rec})
	}
	h.replaced = true
}
