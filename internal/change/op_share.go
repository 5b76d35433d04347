package change

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// sharingRows are the operations on what processes and containers share GPUs with. Clients that
// a step may end may also end when it is put back.
var sharingRows = map[Op]row{
	OpSetComputeMode: {
		by: BySharing, needs: []string{"gpu", "compute_mode"}, disrupts: nobody, shows: ofGPU("the compute mode", computeModeOf),
		text: func(s Step) string { return fmt.Sprintf("set compute mode %s on GPU %s", s.ComputeMode, s.GPU) },
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			return unless(g.ComputeMode == "", Step{Op: OpSetComputeMode, GPU: s.GPU, Force: s.Force, ComputeMode: g.ComputeMode})
		}),
		project: eachGPU(func(g *gpu.GPU, s Step) { g.ComputeMode = s.ComputeMode }),
		notes:   noteSharing(func(e *SharingEffect, g *gpu.GPU, s Step) { e.ComputeFrom, e.ComputeTo = g.ComputeMode, s.ComputeMode }),
	},
	OpSetTimeSlice: {
		by: BySharing, needs: []string{"gpu", "time_slice"}, disrupts: nobody, shows: ofGPU("the time slice", timeSliceOf),
		text: func(s Step) string { return fmt.Sprintf("set the time slice of GPU %s to %s", s.GPU, s.TimeSlice) },
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			return unless(g.TimeSlice == "", Step{Op: OpSetTimeSlice, GPU: s.GPU, Force: s.Force, TimeSlice: g.TimeSlice})
		}),
		project: eachGPU(func(g *gpu.GPU, s Step) {
			if g.TimeSlice != "" { // else the host may not tell it afterwards either
				g.TimeSlice = s.TimeSlice
			}
		}),
		notes: noteSharing(func(e *SharingEffect, g *gpu.GPU, s Step) { e.SliceFrom, e.SliceTo = g.TimeSlice, s.TimeSlice }),
	},
	OpEnsureDaemon: {
		by: BySharing, needs: []string{"mps_daemon"}, depends: []gpu.Part{gpu.PartDaemons}, disrupts: forced(gpu.DisruptProcessRestart),
		shows: ofDaemon,
		text: func(s Step) string {
			return fmt.Sprintf("have MPS daemon %s serve %s%s", s.Daemon.Name, DevicesText(s.Daemon.Devices), s.endingText())
		},
		inverse: func(h *gpu.Host, s Step) []Step {
			if back := daemonBack(h, s); back != nil {
				return back
			}
			return []Step{{Op: OpRemoveDaemon, Force: s.Force, Daemon: &gpu.MPSDaemonSpec{Name: s.Daemon.Name}}}
		},
		project: projectDaemon,
	},
	OpRemoveDaemon: {
		by: BySharing, needs: []string{"mps_daemon"}, depends: []gpu.Part{gpu.PartDaemons}, disrupts: forced(gpu.DisruptProcessRestart),
		shows:   ofDaemon,
		text:    func(s Step) string { return fmt.Sprintf("end MPS daemon %s%s", s.Daemon.Name, s.endingText()) },
		inverse: daemonBack,
		project: projectDaemon,
	},
	OpWriteShare: {
		by: BySharing, needs: []string{"share"}, depends: []gpu.Part{gpu.PartShares}, disrupts: nobody, shows: ofShare,
		text: func(s Step) string {
			return fmt.Sprintf("hand share %q to containers, of %s", s.Share.Name, DevicesText(s.Share.Devices))
		},
		inverse: func(h *gpu.Host, s Step) []Step {
			_, handed := h.HandedShare(s.Share.Name)
			if !handed {
				return []Step{{Op: OpRemoveShare, Force: s.Force, Share: &gpu.ShareSpec{Name: s.Share.Name}}}
			}
			return shareBack(h, s)
		},
		project: func(h *draft, s Step) { h.Shares = projectShares(h.Shares, s) },
		hinders: notHandedOut,
	},
	OpRemoveShare: {
		by: BySharing, needs: []string{"share"}, depends: []gpu.Part{gpu.PartShares}, disrupts: forced(gpu.DisruptProcessRestart), shows: ofShare,
		text: func(s Step) string {
			return fmt.Sprintf("take share %q back from containers%s", s.Share.Name, s.endingText())
		},
		inverse: shareBack,
		project: func(h *draft, s Step) {
			h.Shares = projectShares(h.Shares, s)
			if s.Force {
				endClients(&h.Host, h.ClientsIn(s.Share.Name))
			}
		},
	},
}

// endClients takes processes of MPS from a host and all of its GPUs.
func endClients(h *gpu.Host, clients []gpu.Process) {
	ended := func(p gpu.Process) bool {
		return slices.ContainsFunc(clients, func(c gpu.Process) bool { return c.PID == p.PID })
	}
	h.GPUs = slices.Clone(h.GPUs)
	for i := range h.GPUs {
		h.GPUs[i].Processes = slices.DeleteFunc(slices.Clone(h.GPUs[i].Processes), ended)
	}
	if h.MPS == nil {
		return
	}
	after := *h.MPS
	after.Daemons = slices.Clone(after.Daemons)
	for i := range after.Daemons {
		after.Daemons[i].Clients = slices.DeleteFunc(slices.Clone(after.Daemons[i].Clients), ended)
	}
	h.MPS = &after
}

// daemonBack has a daemon as it is, with what is handed over of it; nil when it is not there.
func daemonBack(host *gpu.Host, s Step) []Step {
	d, ok := host.Daemon(s.Daemon.Name)
	if !ok {
		return nil
	}
	was := d.MPSDaemonSpec
	was.Devices = slices.DeleteFunc(slices.Clone(was.Devices), func(x gpu.SharedDevice) bool { // which it would not be started with
		g, _ := host.GPU(x.GPU)
		return !hasDevice(host, x) || x.Instance == nil && g.MIGEnabled()
	})
	if len(was.Devices) == 0 {
		return nil
	}
	return append([]Step{{Op: OpEnsureDaemon, Force: s.Force, Daemon: &was}}, rewritten(host, was.Name)...)
}

// shareBack hands a share over as it is, where its claim tells how.
func shareBack(host *gpu.Host, s Step) []Step {
	shown, handed := host.HandedShare(s.Share.Name)
	was := claimedSpec(host, s.Share.Name)
	if !handed || was == nil {
		return nil
	}
	if _, there := host.Daemon(was.Daemon); was.Daemon != "" && !there {
		return nil // it comes back with its daemon
	}
	return []Step{{Op: OpWriteShare, Force: s.Force, Share: was, Handed: shown}}
}

// ends are the clients of MPS that a step ends, on the host as it is before it.
func (s Step) ends(host *gpu.Host) []gpu.Process {
	if s.Daemon == nil {
		return host.ClientsIn(s.Share.Name)
	}
	d, ok := host.Daemon(s.Daemon.Name)
	if !ok {
		return nil
	}
	return d.Clients
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
	return strings.Join(words.Each(devices, deviceText), ", ")
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
	claim, _ := host.Claim(gpu.ClaimShare, name)
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
	h.Outdated = ""
	out = append(out, h)
	slices.SortFunc(out, func(a, b gpu.HandedShare) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// projectDaemon is a host as it should be after a step on a daemon. With one that ends go its
// clients and its servers.
func projectDaemon(h *draft, s Step) {
	if d, there := h.Daemon(s.Daemon.Name); there && (s.Op == OpRemoveDaemon || d.WhyRestart(s.Daemon) != "") {
		endClients(&h.Host, slices.Concat(d.Clients, placement.Servers(&h.Host, d)))
	}
	h.MPS = projectMPS(h.MPS, s)
}

// projectMPS is a host's MPS as it should be after a step. What a restart changes is told
// by nobody before it.
func projectMPS(have *gpu.MPSHost, s Step) *gpu.MPSHost {
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
		if o.WhyRestart(s.Daemon) == "" {
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

// notKnown is what a host does not tell.
const notKnown = "not known"

func told(what string) string { return cmp.Or(what, notKnown) }

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
