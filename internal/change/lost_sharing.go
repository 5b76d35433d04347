package change

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// SharesGPUs tells whether a claim is for a config that has processes share GPUs.
func SharesGPUs(c *gpu.Claim) bool {
	return c.Kind == gpu.ClaimConfig && c.Want.Config != nil && (c.Want.Config.MPS != nil || c.Want.Config.TimeSlicing != nil)
}

// lostSharing finds modes and daemons that are missing. What others have set is theirs, and
// no client ends for it.
func (l *Lost) lostSharing(host *gpu.Host, c *gpu.Claim) {
	config := c.Want.Config
	for _, id := range c.GPUs {
		if config.MIG == nil {
			l.lostModes(host, id, config)
		}
	}
	after := *host
	for _, s := range l.Steps(host) {
		after = Project(after, s)
	}
	for _, want := range placement.Daemons(&after, config, c.GPUs) {
		d, there := host.Daemon(want.Name)
		object := "MPS daemon " + want.Name
		switch u, unknown := host.UnknownPart(gpu.PartDaemons); {
		case unknown:
			l.conflict(object, "it cannot be read: "+u.Why)
		case there && d.PID != 0 && d.Problem == "" && gpu.SameDevices(d.Devices, want.Devices):
		case host.MPS == nil || host.MPS.Program == "":
			l.conflict(object, "it does not run, and nvidia-cuda-mps-control is not installed")
		case there && len(d.Clients) > 0 && d.PID == 0:
			l.conflict(object, "it does not run, and to start it ends the clients that its servers have still: "+ClientsOf(host, d.Name))
		case there && len(d.Clients) > 0:
			l.conflict(object, "it serves "+DevicesText(d.Devices)+" in place of "+DevicesText(want.Devices)+", and cannot be restarted under its clients: "+ClientsOf(host, d.Name))
		default:
			l.daemons = append(l.daemons, want)
		}
	}
}

// lostModes finds a compute mode and a time slice that are the driver's own again.
func (l *Lost) lostModes(host *gpu.Host, id string, config *gpu.PartitionConfig) {
	object := "GPU " + id
	g, ok := host.GPU(id)
	switch why := blind(host, id); {
	case why != "":
		l.conflict(object, why)
		return
	case !ok:
		l.conflict(object, "the host does not have it any more")
		return
	case g.Dismounted:
		l.conflict(object, "it is dismounted from the host, for passthrough")
		return
	case g.MIG != nil && g.MIG.Enabled:
		l.conflict(object, "it is in MIG mode, in which it has no compute mode and no time slice")
		return
	}
	mode, turn := placement.WantedModes(config)
	if lost, theirs := differs(g.ComputeMode, mode, gpu.ComputeDefault); theirs {
		l.conflict(object, "its compute mode is "+string(g.ComputeMode)+", which no reboot sets, and "+string(mode)+" is declared")
	} else if who := placement.Strangers(host, g); lost && len(who) > 0 {
		l.conflict(object, "its compute mode cannot be made "+string(mode)+" while it is in use by "+strings.Join(who, ", "))
	} else if lost {
		l.modes = append(l.modes, Step{Op: OpSetComputeMode, GPU: g.ID, ComputeMode: mode})
	}
	if lost, theirs := differs(g.TimeSlice, turn, gpu.TimeSliceDefault); theirs {
		l.conflict(object, "its time slice is "+string(g.TimeSlice)+", which no reboot sets, and "+string(turn)+" is declared")
	} else if lost {
		l.modes = append(l.modes, Step{Op: OpSetTimeSlice, GPU: g.ID, TimeSlice: turn})
	}
}

// differs tells whether something is not as wanted: lost, when it is what a reboot makes of
// it, or else somebody's who has set it. What is not wanted, or not told, is neither.
func differs[T ~string](have, want, afterReboot T) (lost, theirs bool) {
	if have == want || have == "" || want == "" {
		return false, false
	}
	return have == afterReboot, have != afterReboot
}

// lostShare finds a share that containers can no longer ask for, or that leads them to a
// GPU instance which was made again. after is the host as it will be by then.
func lostShare(host, after *gpu.Host, s *gpu.Share) Lost {
	l := Lost{Subject: DescribeObject(gpu.ClaimShare, s.Name)}
	if u, unknown := host.UnknownPart(gpu.PartShares); unknown {
		l.conflict(l.Subject, "it cannot be read: "+u.Why)
		return l
	}
	handed, there := host.HandedShare(s.Name)
	if len(s.Devices) == 0 || there && leads(host, s, handed) {
		return l
	}
	spec, err := placement.ShareSpec(after, s)
	if err != nil {
		l.conflict(l.Subject, oneLine(err))
		return l
	}
	for _, d := range s.Devices {
		if why := blind(host, d.GPU); why != "" {
			l.conflict(l.Subject, "GPU "+d.GPU+": "+why)
			return l
		}
		if !hasDevice(after, d) {
			l.conflict(l.Subject, deviceText(d)+" is not there")
			return l
		}
	}
	if _, serves := after.Daemon(spec.Daemon); spec.Daemon != "" && !serves {
		l.conflict(l.Subject, "MPS daemon "+spec.Daemon+" is not there")
		return l
	}
	l.share = &spec
	return l
}

// leads tells whether what is handed over names the GPU instances that there are now. Some
// hosts do not tell what they hand over.
func leads(host *gpu.Host, s *gpu.Share, handed *gpu.HandedShare) bool {
	for _, d := range s.Devices {
		if d.Instance == nil || len(handed.Environment) == 0 {
			continue
		}
		uuid, _ := host.UUID(d)
		named := false
		for _, value := range handed.Environment {
			named = named || uuid != "" && strings.Contains(value, uuid)
		}
		if !named {
			return false
		}
	}
	return true
}

func hasDevice(host *gpu.Host, d gpu.SharedDevice) bool {
	g, ok := host.GPU(d.GPU)
	if !ok || d.Instance == nil {
		return ok
	}
	if g.MIG == nil {
		return false
	}
	return hasInstance(g.MIG, *d.Instance)
}

// orphans are shares that containers can ask for and that no claim declares: what a failed
// change left, or claims that were lost.
func orphans(host *gpu.Host) Lost {
	l := Lost{Subject: "the shares that no claim declares"}
	for i := range host.Shares {
		name := host.Shares[i].Name
		if findClaim(host, gpu.ClaimShare, name) != nil {
			continue
		}
		if who := inShare(host, name); len(who) > 0 {
			l.conflict(DescribeObject(gpu.ClaimShare, name), "it has no claim, and processes run in it: "+strings.Join(who, ", "))
			continue
		}
		l.orphans = append(l.orphans, name)
	}
	return l
}
