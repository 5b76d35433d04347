package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// sharingText says what a step does for processes and containers that share GPUs, for
// people.
func (s Step) sharingText() string {
	switch s.Op {
	case OpSetComputeMode:
		return fmt.Sprintf("set compute mode %s on GPU %s", s.ComputeMode, s.GPU)
	case OpSetTimeSlice:
		return fmt.Sprintf("set the time slice of GPU %s to %s", s.GPU, s.TimeSlice)
	case OpEnsureDaemon:
		return fmt.Sprintf("have MPS daemon %s serve %s%s", s.Daemon.Name, DevicesText(s.Daemon.Devices), s.endingText())
	case OpRemoveDaemon:
		return fmt.Sprintf("end MPS daemon %s%s", s.Daemon.Name, s.endingText())
	case OpWriteShare:
		return fmt.Sprintf("hand share %q to containers, of %s", s.Share.Name, DevicesText(s.Share.Devices))
	case OpRemoveShare:
		return fmt.Sprintf("take share %q back from containers", s.Share.Name)
	}
	return string(s.Op)
}

func (s Step) endingText() string {
	if s.Force {
		return ", whose clients end"
	}
	return ""
}

// deviceText is "GPU GPU-1f3c" or "1g.10gb at 4 of GPU GPU-1f3c".
func deviceText(d gpu.SharedDevice) string {
	if d.Instance == nil {
		return "GPU " + d.GPU
	}
	return placementText(*d.Instance) + " of GPU " + d.GPU
}

// DevicesText names devices, for people.
func DevicesText(devices []gpu.SharedDevice) string {
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = deviceText(d)
	}
	return strings.Join(names, ", ")
}

// inverseSharing is inverse for the steps on what processes and containers share GPUs with.
// Clients that a step may end may also end when it is put back.
func inverseSharing(host *gpu.Host, s Step) []Step {
	back := Step{GPU: s.GPU, Force: s.Force}
	switch s.Op {
	case OpSetComputeMode:
		if g, ok := host.GPU(s.GPU); ok && g.ComputeMode != "" {
			back.Op, back.ComputeMode = OpSetComputeMode, g.ComputeMode
			return []Step{back}
		}
	case OpSetTimeSlice:
		if g, ok := host.GPU(s.GPU); ok && g.TimeSlice != "" {
			back.Op, back.TimeSlice = OpSetTimeSlice, g.TimeSlice
			return []Step{back}
		}
	case OpEnsureDaemon, OpRemoveDaemon:
		if d, ok := host.Daemon(s.Daemon.Name); ok {
			was := d.MPSDaemonSpec
			back.Op, back.Daemon = OpEnsureDaemon, &was
			return append([]Step{back}, rewritten(host, was.Name)...)
		}
		if s.Op == OpEnsureDaemon {
			back.Op, back.Daemon = OpRemoveDaemon, &gpu.MPSDaemonSpec{Name: s.Daemon.Name}
			return []Step{back}
		}
	case OpWriteShare, OpRemoveShare:
		shown, handed := host.HandedShare(s.Share.Name)
		if was := claimedSpec(host, s.Share.Name); handed && was != nil {
			if _, there := host.Daemon(was.Daemon); was.Daemon != "" && !there {
				return nil // it comes back with its daemon
			}
			back.Op, back.Share, back.Handed = OpWriteShare, was, shown
			return []Step{back}
		}
		if s.Op == OpWriteShare && !handed {
			back.Op, back.Share = OpRemoveShare, &gpu.ShareSpec{Name: s.Share.Name}
			return []Step{back}
		}
	}
	return nil
}

// rewritten hands over again what a daemon serves, which reaches it where it was started.
func rewritten(host *gpu.Host, daemon string) []Step {
	var out []Step
	for _, h := range host.Shares {
		if was := claimedSpec(host, h.Name); was != nil && was.Daemon == daemon {
			out = append(out, Step{Op: OpWriteShare, Share: was, Handed: &h})
		}
	}
	return out
}

// claimedSpec is what a host hands over for a share by its claims, nil when they do not
// tell: an inventory does not show it.
func claimedSpec(host *gpu.Host, name string) *gpu.ShareSpec {
	claim := findClaim(host, gpu.ClaimShare, name)
	if claim == nil || claim.Want.Share == nil {
		return nil
	}
	spec, err := placement.ShareSpec(host, claim.Want.Share)
	if err != nil {
		return nil // one that is not placed yet
	}
	return &spec
}

// newPID stands for the process of a daemon that is still to be started.
const newPID = -1

// projectSharing makes of a host what a step should make of it.
func projectSharing(host gpu.Host, s Step) gpu.Host {
	switch s.Op {
	case OpSetComputeMode, OpSetTimeSlice:
		host.GPUs = slices.Clone(host.GPUs)
		g, ok := host.GPU(s.GPU)
		switch {
		case !ok:
		case s.Op == OpSetComputeMode:
			g.ComputeMode = s.ComputeMode
		case g.TimeSlice != "": // else the host does not tell it afterwards either
			g.TimeSlice = s.TimeSlice
		}
	case OpEnsureDaemon, OpRemoveDaemon:
		host.MPS = projectMPS(host.MPS, host.MPSProtocol(), s)
	case OpWriteShare, OpRemoveShare:
		host.Shares = projectShares(host.Shares, s)
	}
	return host
}

// projectShares are what containers can ask for after a step. What the host makes of a
// share's part is its own affair.
func projectShares(have []gpu.HandedShare, s Step) []gpu.HandedShare {
	h := gpu.HandedShare{Name: s.Share.Name, CDIDevice: gpu.CDIDevice(s.Share.Name)}
	out := slices.DeleteFunc(slices.Clone(have), func(o gpu.HandedShare) bool {
		if !gpu.SameID(o.Name, h.Name) {
			return false
		}
		h = o
		return true
	})
	if s.Op == OpRemoveShare {
		return out
	}
	if s.Handed != nil {
		h = *s.Handed
	}
	out = append(out, h)
	slices.SortFunc(out, func(a, b gpu.HandedShare) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// projectMPS is a host's MPS as it should be after a step. What a restart changes is told
// by nobody before it.
func projectMPS(have *gpu.MPSHost, p gpu.MPSProtocol, s Step) *gpu.MPSHost {
	var out gpu.MPSHost
	if have != nil {
		out = *have
	}
	d := gpu.MPSDaemon{PID: newPID}
	out.Daemons = slices.DeleteFunc(slices.Clone(out.Daemons), func(o gpu.MPSDaemon) bool {
		if o.Name != s.Daemon.Name {
			return false
		}
		d.PipeDir = o.PipeDir
		if o.WhyRestart(s.Daemon, p) == "" {
			d.PID, d.Clients = o.PID, o.Clients
		}
		return true
	})
	if s.Op == OpEnsureDaemon {
		d.MPSDaemonSpec = *s.Daemon
		at := slices.IndexFunc(out.Daemons, func(o gpu.MPSDaemon) bool { return o.Name == "" || o.Name > d.Name })
		if at < 0 {
			at = len(out.Daemons)
		}
		out.Daemons = slices.Insert(out.Daemons, at, d)
	}
	return &out
}

func computeModeOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok {
		return "missing"
	}
	return told(string(g.ComputeMode))
}

func timeSliceOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok {
		return "missing"
	}
	return told(string(g.TimeSlice))
}

func told(what string) string {
	if what == "" {
		return "not known"
	}
	return what
}

// daemonOf tells what a daemon is and that it runs, and not the process that a restart
// changes.
func daemonOf(host *gpu.Host, name string) string {
	d, ok := host.Daemon(name)
	if !ok {
		return "missing"
	}
	text := "on " + DevicesText(d.Devices)
	switch {
	case d.MultiUser:
		text += " for several users"
	case d.User != nil:
		text += fmt.Sprintf(" for user %d", *d.User)
	}
	if d.ActiveThreadPercentage != 0 {
		text += fmt.Sprintf(", with %g %% of the threads", d.ActiveThreadPercentage)
	}
	if d.PinnedMemoryLimit != 0 {
		text += fmt.Sprintf(", with %d bytes of memory", d.PinnedMemoryLimit)
	}
	switch {
	case d.Problem != "":
		text += ", and has a problem: " + d.Problem
	case d.PID == 0:
		text += ", and does not run"
	}
	return text
}

func handedOf(host *gpu.Host, name string) string {
	h, ok := host.HandedShare(name)
	if !ok {
		return "missing"
	}
	return "handed over as " + h.CDIDevice
}

// ClientsOf lists who is a client of a daemon, in words.
func ClientsOf(host *gpu.Host, daemon string) string {
	d, ok := host.Daemon(daemon)
	if !ok {
		return "nobody"
	}
	return list(d.Clients, placement.ProcessText)
}
