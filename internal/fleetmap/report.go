package fleetmap

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Picture is what is drawn: a fleet, and where a plan is known what the fleet is after it.
type Picture struct {
	Title string `json:"title"`
	Now   Map    `json:"now"`
	// After is nil without a report.
	After *Map   `json:"after,omitempty"`
	Turns []Turn `json:"turns,omitempty"`
	// Notes are what else there is to say of all of it, in sentences.
	Notes []string `json:"notes,omitempty"`
}

// Turn is what happens at one time of a plan's apply.
type Turn struct {
	Turn int `json:"turn"`
	// Events are in the order of the report.
	Events []Event `json:"events"`
}

// Event is something that a change does to what runs.
type Event struct {
	Host string `json:"host"`
	Who  string `json:"who"`
	ID   string `json:"id,omitempty"`
	// What becomes of it: "off, starts again".
	What string `json:"what"`
	// Off is true of a VM that is off then.
	Off bool   `json:"off,omitempty"`
	By  string `json:"by,omitempty"`
}

// Of is the picture of some hosts.
func Of(title string, s gpu.Snapshot) Picture { return Picture{Title: title, Now: New(s)} }

// With adds what a plan makes of the hosts. Those of which the report knows nothing stay as they are; a report of another
// fleet is an error.
func (p Picture) With(r planreport.Report, now gpu.Snapshot) (Picture, error) {
	has := map[string]bool{}
	for i := range now.Hosts {
		has[gpu.FoldID(now.Hosts[i].Name)] = true
	}
	var missing []string
	for i := range r.Before.Hosts {
		if name := r.Before.Hosts[i].Name; !has[gpu.FoldID(name)] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return p, fmt.Errorf("the report is of another fleet: it has %s, which %s not in what is drawn. "+
			"Draw the report alone, or the fleet that it was made of", words.Join(words.QuoteAll(missing)), words.Verb(len(missing), "is", "are"))
	}
	then := gpu.Snapshot{Format: gpu.SnapshotFormat}
	for i := range now.Hosts {
		h := now.Hosts[i]
		at := slices.IndexFunc(r.After.Hosts, func(a gpu.Host) bool { return gpu.SameID(a.Name, h.Name) })
		if at >= 0 {
			h = r.After.Hosts[at]
		}
		then.Hosts = append(then.Hosts, h)
	}
	for i := range r.After.Hosts {
		if !has[gpu.FoldID(r.After.Hosts[i].Name)] {
			then.Hosts = append(then.Hosts, r.After.Hosts[i])
		}
	}
	after := New(then)
	p.After, p.Turns = &after, turns(r)
	gpu.SayPlainly(&p.Turns)
	if !r.Complete {
		p.Notes = append(p.Notes, "The report is not complete: what is drawn as after may lack changes.")
		p.Notes = append(p.Notes, r.Incomplete...)
		gpu.SayPlainly(&p.Notes)
	}
	return p, nil
}

// turns are the events of a report by their turn.
func turns(r planreport.Report) []Turn {
	byTurn := map[int]*Turn{}
	var out []Turn
	for _, c := range r.Changes {
		var events []Event
		for _, s := range c.Stops {
			what := "off, and stays off"
			if s.StartsAgain {
				what = "off, starts again"
			}
			events = append(events, Event{Host: cmp.Or(s.Host, c.Host), Who: cmp.Or(s.VM, s.VMID), ID: s.VMID, What: what, Off: true, By: c.Label})
		}
		for _, e := range c.Ends {
			who := cmp.Or(e.Name, "process")
			events = append(events, Event{Host: c.Host, Who: who, ID: fmt.Sprint(e.PID), What: "ends, on GPU " + e.GPU, By: c.Label})
		}
		for _, id := range c.Resets {
			events = append(events, Event{Host: c.Host, Who: "GPU " + id, ID: id, What: "is reset", By: c.Label})
		}
		for _, host := range c.Drains {
			who := "all VMs"
			if len(c.Moves) > 0 {
				who = words.JoinAll(c.Moves)
			}
			events = append(events, Event{Host: host, Who: who, What: "move to other nodes, and back", By: c.Label})
		}
		if len(events) == 0 {
			continue
		}
		if byTurn[c.Turn] == nil {
			byTurn[c.Turn] = &Turn{Turn: c.Turn}
		}
		byTurn[c.Turn].Events = append(byTurn[c.Turn].Events, events...)
	}
	for _, t := range byTurn {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Turn) int { return a.Turn - b.Turn })
	return out
}

// row is a GPU as it is and as it will be; nil where it is not there.
type row struct{ now, then *GPU }

// changed reports whether the plan makes anything else of the GPU.
func (r row) changed() bool { return !reflect.DeepEqual(r.now, r.then) }

// is is whichever there is, rather the one of now.
func (r row) is() *GPU {
	if r.now != nil {
		return r.now
	}
	return r.then
}

// hostRows are the GPUs of one host, before beside after.
type hostRows struct {
	now, then *Host
	gpus      []row
}

func (h hostRows) is() *Host {
	if h.now != nil {
		return h.now
	}
	return h.then
}

// changed reports whether the plan makes anything else of the host.
func (h hostRows) changed() bool {
	return h.now == nil || h.then == nil || !reflect.DeepEqual(h.now.Waiting, h.then.Waiting) || slices.ContainsFunc(h.gpus, row.changed)
}

// rows are all hosts of the picture. Without a report before and after are one.
func (p Picture) rows() []hostRows {
	then := p.Now
	if p.After != nil {
		then = *p.After
	}
	at := map[string]*Host{}
	for i := range then.Hosts {
		at[gpu.FoldID(then.Hosts[i].Name)] = &then.Hosts[i]
	}
	var out []hostRows
	for i := range p.Now.Hosts {
		h := &p.Now.Hosts[i]
		out = append(out, newRows(h, at[gpu.FoldID(h.Name)]))
		delete(at, gpu.FoldID(h.Name))
	}
	for i := range then.Hosts {
		if h := &then.Hosts[i]; at[gpu.FoldID(h.Name)] != nil {
			out = append(out, newRows(nil, h))
		}
	}
	return out
}

func newRows(now, then *Host) hostRows {
	out := hostRows{now: now, then: then}
	at := map[string]*GPU{}
	if then != nil {
		for i := range then.GPUs {
			at[gpu.FoldID(then.GPUs[i].ID)] = &then.GPUs[i]
		}
	}
	if now != nil {
		for i := range now.GPUs {
			g := &now.GPUs[i]
			out.gpus = append(out.gpus, row{g, at[gpu.FoldID(g.ID)]})
			delete(at, gpu.FoldID(g.ID))
		}
	}
	if then != nil {
		for i := range then.GPUs {
			if g := &then.GPUs[i]; at[gpu.FoldID(g.ID)] != nil {
				out.gpus = append(out.gpus, row{nil, g})
			}
		}
	}
	return out
}

// owners are all that a picture names, sorted: the place of one is its colour and its pattern.
func (p Picture) owners() []string {
	found := map[string]bool{}
	note := func(name string) {
		if name != "" {
			found[name] = true
		}
	}
	for _, h := range p.rows() {
		for _, host := range []*Host{h.now, h.then} {
			if host == nil {
				continue
			}
			for _, w := range host.Waiting {
				note(w.Owner)
			}
			for i := range host.GPUs {
				note(host.GPUs[i].Owner)
				for _, who := range host.GPUs[i].everyone() {
					note(who.Owner)
				}
			}
		}
	}
	out := make([]string, 0, len(found))
	for name := range found {
		out = append(out, name)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

// everyone are all who have something of a GPU.
func (g *GPU) everyone() []Holder {
	out := slices.Clone(g.Beside)
	for i := range g.Parts {
		out = append(out, g.Parts[i].everyone()...)
	}
	return out
}

// everyone are all who have something of a part.
func (p *Part) everyone() []Holder {
	out := slices.Clone(p.Holders)
	if p.Inside != nil {
		for i := range p.Inside.Parts {
			out = append(out, p.Inside.Parts[i].everyone()...)
		}
	}
	return out
}

// owner is whose a part is, by those who hold it; "" for nobody's.
func (p *Part) owner() string {
	for _, who := range p.everyone() {
		if who.Owner != "" {
			return who.Owner
		}
	}
	return ""
}
