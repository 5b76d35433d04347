package vgpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Finding is one thing that stands in a layout's way.
type Finding struct {
	Rule    string
	Message string
}

// Rules, by their ids.
const (
	RuleSupported       = "vgpu-supported"
	RuleTypeOffered     = "vgpu-type-offered"
	RuleSameFrameBuffer = "vgpu-same-framebuffer"
	RuleHeterogeneous   = "vgpu-heterogeneous-supported"
	RuleCapacity        = "vgpu-capacity"
	RuleMIG             = "vgpu-mig"
)

// Check tells what of a valid layout a GPU cannot have. Who holds what is there now is
// not its subject but [Plan]'s.
func Check(g GPU, l Layout) []Finding {
	if l.Empty() {
		return nil
	}
	c := check{gpu: &g, layout: l}
	if g.Shape == ShapeNone {
		c.add(RuleSupported, "the driver offers no vGPUs: it has neither SR-IOV nor mediated devices there; "+
			"install the vGPU Manager's host driver, or exclude the GPU")
		return c.findings
	}
	c.wanted, c.unknown = l.resolve(&g)
	c.offered()
	if len(c.wanted) > 0 {
		c.sameFrameBuffer()
		c.mig()
		c.capacity()
	}
	return c.findings
}

type check struct {
	gpu      *GPU
	layout   Layout
	wanted   []demand
	unknown  []string
	findings []Finding
}

func (c *check) add(rule, format string, args ...any) {
	c.findings = append(c.findings, Finding{Rule: rule, Message: "GPU " + c.gpu.Address + ": " + fmt.Sprintf(format, args...)})
}

func (c *check) offered() {
	switch {
	case len(c.unknown) == 0:
	case len(c.gpu.Types) == 0:
		c.add(RuleTypeOffered, "its vGPU types cannot be told (wanted %s): NVML answers none, and sysfs shows them only while the virtual functions are on",
			strings.Join(c.unknown, ", "))
	default:
		c.add(RuleTypeOffered, "it has no vGPU type %s; it offers %s", strings.Join(c.unknown, ", "), c.gpu.offers())
	}
}

func (c *check) sameFrameBuffer() {
	on := c.layout.heterogeneous(c.gpu, c.wanted)
	switch {
	case on && migBacked(c.wanted):
		c.add(RuleHeterogeneous, "heterogeneous mode is for time-sliced types, wanted it with the MIG-backed %s; leave it out", describe(c.wanted))
	case on && !c.gpu.Heterogeneous.Supported && mixed(c.wanted):
		c.add(RuleSameFrameBuffer, "all time-sliced vGPUs of a GPU have the same frame buffer unless it has heterogeneous mode, "+
			"which this one or its driver does not support; wanted %s", describe(c.wanted))
	case on && !c.gpu.Heterogeneous.Supported:
		c.add(RuleHeterogeneous, "the GPU or its driver does not support heterogeneous mode; leave it out")
	case !on && mixed(c.wanted):
		c.add(RuleSameFrameBuffer, "all time-sliced vGPUs of a GPU have the same frame buffer unless it is in heterogeneous mode; "+
			"wanted %s with heterogeneous = false", describe(c.wanted))
	}
}

func (c *check) mig() {
	backed := slices.ContainsFunc(c.wanted, func(d demand) bool { return d.typ.MIGBacked() })
	sliced := slices.ContainsFunc(c.wanted, func(d demand) bool { return !d.typ.MIGBacked() })
	// While the virtual functions are off no vGPU uses the instances, so they are
	// somebody else's, and enabling the functions destroys them.
	foreign := c.gpu.SRIOV != nil && !c.gpu.VFsOn() && len(c.gpu.instances()) > 0
	switch {
	case backed && sliced:
		c.add(RuleMIG, "MIG-backed and time-sliced vGPU types exclude each other on one GPU; wanted %s", describe(c.wanted))
	case foreign:
		c.add(RuleMIG, "it has the MIG instances %s, and no vGPU uses them: vGPUs would destroy them; wanted %s; "+
			"destroy the instances first or choose another GPU", counts(c.gpu.instances()), describe(c.wanted))
	case backed && c.gpu.MIG == nil:
		c.add(RuleMIG, "%s lives in MIG instances, which the GPU does not have or NVML does not show", describe(c.wanted))
	case backed:
		for _, d := range c.wanted {
			if d.typ.Instance == "" {
				c.add(RuleMIG, "NVML does not tell which MIG profile %s lives in", d.typ.ShortName())
			}
		}
	}
}

func (c *check) capacity() {
	total, most := 0, 0
	var memory gpu.Bytes
	for _, d := range c.wanted {
		switch {
		case d.count == 0 && d.typ.Max > 0:
			c.add(RuleCapacity, "how many %s fit in heterogeneous mode depends on their placement; say count", d.typ.ShortName())
		case d.count == 0:
			c.add(RuleCapacity, "it does not tell how many %s fit; say count", d.typ.ShortName())
		case d.typ.Max > 0 && d.count > d.typ.Max:
			c.add(RuleCapacity, "it takes at most %d %s, wanted %d", d.typ.Max, d.typ.ShortName(), d.count)
		}
		total += d.count
		most = max(most, d.typ.Max)
		memory += gpu.Bytes(d.count) * d.typ.FrameBuffer
	}
	if len(c.findings) > 0 {
		return
	}
	switch usable := c.gpu.usable(); {
	case c.gpu.SRIOV != nil && total > c.gpu.SRIOV.Total:
		c.add(RuleCapacity, "each vGPU needs a virtual function, of which there are %d; wanted %s", c.gpu.SRIOV.Total, describe(c.wanted))
	case migBacked(c.wanted):
		// Which instances fit together is a matter of MIG placement.
	case !mixed(c.wanted) && most > 0 && total > most:
		c.add(RuleCapacity, "it takes at most %d vGPUs of that size, wanted %s", most, describe(c.wanted))
	case memory > usable:
		c.add(RuleCapacity, "its vGPUs have %s in all, wanted %s (%s)", usable, memory, describe(c.wanted))
	}
}

func describe(wanted []demand) string {
	var all []string
	for _, d := range wanted {
		if d.count == 0 {
			all = append(all, d.typ.ShortName())
			continue
		}
		all = append(all, fmt.Sprintf("%d %s", d.count, d.typ.ShortName()))
	}
	return strings.Join(all, ", ")
}
