package partitionconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// shares tells whether a config is about how processes share GPUs or GPU instances.
func shares(c gpu.PartitionConfig) bool { return c.MPS != nil || c.TimeSlicing != nil }

// modes are the compute mode and the time slice of a GPU, "" for one that a config does not
// set or the driver does not tell.
type modes struct {
	compute gpu.ComputeMode
	slice   gpu.TimeSlice
}

// wantedModes are those that a config of kind MPS or time-slicing gives its GPUs.
func wantedModes(c gpu.PartitionConfig) modes {
	if c.MPS != nil {
		return modes{compute: cmp.Or(c.MPS.ComputeMode, gpu.ComputeExclusiveProcess)}
	}
	return modes{compute: gpu.ComputeDefault, slice: cmp.Or(c.TimeSlicing.Interval, gpu.TimeSliceDefault)}
}

// modesOf are what a GPU has of what is wanted.
func modesOf(g *gpu.GPU, want modes) modes {
	have := modes{compute: g.ComputeMode, slice: g.TimeSlice}
	if want.slice == "" {
		have.slice = ""
	}
	return have
}

// differs tells whether a GPU has other modes than are wanted. One that the driver does not
// tell is taken for the wanted one.
func (m modes) differs(want modes) bool {
	return m.compute != "" && m.compute != want.compute || m.slice != "" && want.slice != "" && m.slice != want.slice
}

func (m modes) String() string {
	var parts []string
	if m.compute != "" {
		parts = append(parts, "compute mode "+string(m.compute))
	}
	if m.slice != "" {
		parts = append(parts, "time slice "+string(m.slice))
	}
	return strings.Join(parts, " and ")
}

// hasModes tells whether a GPU is as a config of kind MPS or time-slicing wants it. The
// daemons of MPS are the host's.
func hasModes(c gpu.PartitionConfig, g *gpu.GPU) bool {
	want := wantedModes(c)
	return !inMIGMode(g) && !modesOf(g, want).differs(want)
}

func inMIGMode(g *gpu.GPU) bool { return g.MIG != nil && g.MIG.Enabled }

// modeWords tell what a GPU has and what is declared: "has compute mode default, declared
// is MPS in compute mode exclusive_process".
func modeWords(c gpu.PartitionConfig, g *gpu.GPU) string {
	want := wantedModes(c)
	found := cmp.Or(modesOf(g, want).String(), "a compute mode that its driver does not tell")
	if inMIGMode(g) {
		found = "MIG mode on"
	}
	kind := "MPS in "
	if c.TimeSlicing != nil {
		kind = "time-slicing in "
	}
	return fmt.Sprintf("has %s, declared is %s%s", found, kind, want)
}

// sharingText is the layout of a GPU that has none of its own: "mps:exclusive_process" when
// a daemon of the config serves it, "time_slicing:long", or "mps:none".
func sharingText(c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU) string {
	kind, mode := string(c.Kind)+":", "none"
	switch {
	case inMIGMode(g):
	case c.MPS != nil && served(c, h, g):
		mode = string(cmp.Or(g.ComputeMode, gpu.ComputeDefault))
	case c.TimeSlicing != nil && (g.ComputeMode == "" || g.ComputeMode == gpu.ComputeDefault):
		mode = string(cmp.Or(g.TimeSlice, gpu.TimeSliceDefault))
	}
	return kind + mode
}

// served tells whether a daemon of the config that runs has a GPU among its devices.
func served(c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU) bool {
	return slices.ContainsFunc(placement.Daemons(h, &c, []string{g.ID}), func(want gpu.MPSDaemonSpec) bool {
		d, ok := h.Daemon(want.Name)
		return ok && d.PID != 0 && slices.ContainsFunc(d.Devices, func(at gpu.SharedDevice) bool { return gpu.SameID(at.GPU, g.ID) })
	})
}

// modeDrift says why a GPU has other modes than the declared ones. After a reboot every GPU
// has the driver's own.
func modeDrift(c gpu.PartitionConfig, claim *gpu.Claim, g *gpu.GPU) string {
	want := wantedModes(c)
	lost := modesOf(g, want)
	lost.compute, lost.slice = cmp.Or(lost.compute, gpu.ComputeDefault), cmp.Or(lost.slice, gpu.TimeSliceDefault)
	why := "changed by another owner: it "
	switch {
	case claim == nil:
		why = ""
	case !inMIGMode(g) && lost == (modes{gpu.ComputeDefault, gpu.TimeSliceDefault}):
		why = "lost by reboot, or changed by others: it "
	}
	return why + modeWords(c, g)
}

// daemonDrift says, one sentence each, which daemons of a config do not serve its GPUs as
// declared.
func daemonDrift(c gpu.PartitionConfig, claim *gpu.Claim, h *gpu.Host, ids []string) []string {
	var out []string
	for _, want := range placement.Daemons(h, &c, ids) {
		on := devicesText(want.Devices)
		have, there := h.Daemon(want.Name)
		switch {
		case !there && claim == nil:
			out = append(out, fmt.Sprintf("MPS daemon %s of %s does not exist", want.Name, on))
		case !there:
			out = append(out, fmt.Sprintf("MPS daemon %s of %s is gone: lost by reboot, or removed by others", want.Name, on))
		case have.PID == 0:
			out = append(out, fmt.Sprintf("MPS daemon %s of %s does not run: %s", want.Name, on, cmp.Or(have.Problem, "it ended, or was lost by reboot")))
		case have.Problem != "":
			out = append(out, fmt.Sprintf("MPS daemon %s of %s does not answer: %s", want.Name, on, have.Problem))
		case !have.Equal(&want):
			out = append(out, fmt.Sprintf("MPS daemon %s has %s, declared is %s", want.Name, daemonText(&have.MPSDaemonSpec), daemonText(&want)))
		}
	}
	return out
}

// daemonText says whom a daemon serves, and how.
func daemonText(d *gpu.MPSDaemonSpec) string {
	parts := []string{devicesText(d.Devices)}
	switch {
	case d.User != nil:
		parts = append(parts, "user "+strconv.Itoa(*d.User))
	case d.MultiUser:
		parts = append(parts, "all users")
	}
	if d.ActiveThreadPercentage > 0 {
		parts = append(parts, strconv.FormatFloat(d.ActiveThreadPercentage, 'f', -1, 64)+" % of the threads")
	}
	if d.PinnedMemoryLimit > 0 {
		parts = append(parts, d.PinnedMemoryLimit.String()+" of memory")
	}
	return strings.Join(parts, ", ")
}

// devicesText names GPUs by their ids, and instances by profile and start besides.
func devicesText(list []gpu.SharedDevice) string {
	out := make([]string, len(list))
	for i, d := range list {
		out[i] = "GPU " + d.GPU
		if d.Instance != nil {
			out[i] = instanceText(*d.Instance) + " of " + out[i]
		}
	}
	return strings.Join(out, ", ")
}

// instanceText names a GPU instance: "3g.40gb@4".
func instanceText(p gpu.MIGPlacement) string { return fmt.Sprintf("%s@%d", p.Profile, p.Start) }
