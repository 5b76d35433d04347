package agent

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// said is a text of a host as the client keeps it: a part of one line, of a length that can be read.
func said(text string) string { return gpu.Said(text, gpu.MostSaid) }

// say makes what a host says of its failure fit to be shown. The steps of the outcome stay as they are.
func (e *Error) say() {
	gpu.SayPlainly(&e.Message)
	gpu.SayPlainly(&e.Step)
	gpu.SayPlainly(e.Findings)
	gpu.SayPlainly(e.Cause)
	gpu.SayPlainly(e.Lease)
	if o := e.Outcome; o != nil {
		gpu.SayPlainly(o.Stands)
		gpu.SayPlainly(&o.Host)
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
	for _, w := range []gpu.Want{c.Want, {Assignment: c.HeldUntilOff}} {
		for what, n := range counts(w) {
			if n < 0 || n > maxCount {
				return fmt.Errorf("it asks for %d %s", n, what)
			}
		}
	}
	return nil
}
