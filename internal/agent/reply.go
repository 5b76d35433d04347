package agent

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// said is a text of a host as the client keeps it: a part of one line, of a length that can be read.
// Names and ids, by which objects are found, stay as they are: messages quote them.
func said(text string) string { return gpu.Said(text, maxWords) }

func sayAll(texts []string) {
	for i := range texts {
		texts[i] = said(texts[i])
	}
}

func say(texts ...*string) {
	for _, t := range texts {
		*t = said(*t)
	}
}

// say makes what a host says of its failure fit to be shown.
func (e *Error) say() {
	say(&e.Message, &e.Step)
	sayFindings(e.Findings)
	if e.Cause != nil {
		say(&e.Cause.Op, &e.Cause.Object, &e.Cause.Detail, &e.Cause.Fix)
	}
	if e.Lease != nil {
		say(&e.Lease.Run, &e.Lease.Owner, &e.Lease.Holder)
	}
	if o := e.Outcome; o != nil {
		sayAll(o.Stands)
		sayHost(&o.Host)
	}
}

func sayFindings(findings []rules.Finding) {
	for i := range findings {
		f := &findings[i]
		say(&f.Rule, &f.Path, &f.Title, &f.Host, &f.GPU, &f.VM, &f.Found, &f.Wanted, &f.Fix, &f.Other)
	}
}

func (j *Journal) say() {
	if l := j.Lease; l != nil {
		say(&l.Run, &l.Owner, &l.Holder)
	}
	for i := range j.Changes {
		c := &j.Changes[i]
		say(&c.ID, &c.Subject, &c.Run, &c.Status)
		sayAll(c.Steps)
	}
	sayRecords(j.Unreadable)
}

func sayRecords(records []gpu.UnreadableRecord) {
	for i := range records {
		r := &records[i]
		say(&r.ID, &r.File, &r.Record, &r.Found, &r.Agent)
	}
}

// sayHost does so with all that only informs of a host.
func sayHost(h *gpu.Host) {
	say(&h.OS.Name, &h.OS.Version, &h.ContainerToolkit)
	sayAll(h.Stale)
	sayAll(h.Unfinished)
	for i := range h.Unknown {
		say(&h.Unknown[i].Why)
	}
	for i := range h.Controllers {
		say(&h.Controllers[i].Name)
	}
	if b := h.HeldBy; b != nil {
		say(&b.Of, &b.Run, &b.Name, &b.Owner)
	}
	for i := range h.Owed {
		say(&h.Owed[i].Subject, &h.Owed[i].Run, &h.Owed[i].Why)
	}
	sayRecords(h.Unreadable)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		say(&g.Model, &g.Vendor, &g.Driver.Version, &g.ComputeCapability, &g.Problem)
		sayProcesses(g.Processes)
		if g.VGPU != nil {
			for i := range g.VGPU.Instances {
				say(&g.VGPU.Instances[i].Holder)
			}
		}
	}
	for i := range h.VMs {
		say(&h.VMs[i].Guest)
	}
	if h.MPS != nil {
		for i := range h.MPS.Daemons {
			d := &h.MPS.Daemons[i]
			say(&d.PipeDir, &d.Problem)
			sayProcesses(d.Clients)
		}
	}
}

func sayProcesses(processes []gpu.Process) {
	for i := range processes {
		say(&processes[i].Name, &processes[i].Holder)
	}
}

// checkHost checks what the client works out of what a host says.
func checkHost(h *gpu.Host) error {
	if err := h.Validate(); err != nil {
		return err
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		for what, n := range hostCounts(g) {
			if n < -1 || n > maxCount {
				return fmt.Errorf("GPU %s has %d %s", g.ID, n, what)
			}
		}
	}
	return nil
}

// hostCounts are the numbers of things that a GPU has.
func hostCounts(g *gpu.GPU) func(yield func(string, int) bool) {
	return func(yield func(string, int) bool) {
		if p := g.Partitionable; p != nil {
			if !yield("partitions", p.Count) {
				return
			}
			for _, n := range p.ValidCounts {
				if !yield("partitions", n) {
					return
				}
			}
		}
		if m := g.MIG; m != nil {
			for i := range m.Profiles {
				p := &m.Profiles[i]
				if !yield("slices", p.Slices) || !yield("instances", p.Max) || !yield("slices", p.Size) {
					return
				}
				for _, n := range p.Starts {
					if !yield("slices", n) {
						return
					}
				}
			}
			for i := range m.Instances {
				if in := &m.Instances[i]; !yield("slices", in.Start) || !yield("slices", in.Size) {
					return
				}
			}
		}
		if v := g.VGPU; v != nil {
			if !yield("functions", v.Functions) {
				return
			}
			for i := range v.Types {
				if !yield("vGPUs", v.Types[i].Max) {
					return
				}
			}
		}
	}
}

// checkClaim checks a claim as the agent that wrote it does.
func checkClaim(c *gpu.Claim) error {
	if err := c.Validate(); err != nil {
		return err
	}
	for _, w := range []gpu.Want{c.Want, {Assignment: c.Holds}} {
		for what, n := range counts(w) {
			if n < 0 || n > maxCount {
				return fmt.Errorf("it asks for %d %s", n, what)
			}
		}
	}
	return nil
}
