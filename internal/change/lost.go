package change

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Lost is where a host is not as one claim declares and something can be put back, or why it
// cannot. A reboot takes all GPU instances, and from Hopper on the mode as well; virtual
// functions and all vGPUs; compute modes and time slices; MPS daemons, and what is handed to
// containers.
type Lost struct {
	Subject     string
	Differences []Difference
	// watchers are units that only watch GPUs, and are stopped while a mode changes.
	watchers []string
}

// Steps are those that put back what is missing. Daemons need the instances, and shares
// the daemons.
func (l *Lost) Steps(host *gpu.Host) []Step {
	p := &planner{host: *host}
	quiet := slices.ContainsFunc(l.Differences, func(d Difference) bool { return d.repair.quiet })
	served := slices.IndexFunc(l.Differences, func(d Difference) bool { return !strings.HasPrefix(d.Object, "GPU ") })
	if served < 0 {
		served = len(l.Differences)
	}
	p.without(l.watchers, quiet, func() { p.add(steps(l.Differences[:served])...) })
	p.add(steps(l.Differences[served:])...)
	return p.steps
}

// Of is how an object differs now, nil when it does not.
func (l *Lost) Of(object string) *Difference {
	if i := slices.IndexFunc(l.Differences, func(d Difference) bool { return d.Object == object }); i >= 0 {
		return &l.Differences[i]
	}
	return nil
}

// Restorable reports whether something can be put back.
func (l *Lost) Restorable() bool {
	return slices.ContainsFunc(l.Differences, func(d Difference) bool { return len(d.repair.steps) > 0 })
}

// FindLost is what a host lacks, in the order in which it can be put back.
func FindLost(host *gpu.Host) []Lost {
	var out []Lost
	add := func(l Lost) {
		l.Differences = slices.DeleteFunc(l.Differences, func(d Difference) bool { return len(d.repair.steps)+len(d.repair.stays) == 0 })
		if len(l.Differences) > 0 {
			out = append(out, l)
		}
	}
	after := *host // what there will be by then
	for c := range host.ClaimsOf(gpu.ClaimConfig) {
		if c.Want.Config != nil {
			found := differences(host, c.Want.Config, c, slices.Sorted(slices.Values(c.GPUs)))
			after = ProjectAll(after, steps(found))
			add(Lost{
				Subject: kinds[c.Want.Config.Kind].layout + " of " + DescribeObject(c.Kind, c.ID), Differences: found,
				watchers: c.Want.Config.QuiesceUnits,
			})
		}
	}
	for c := range host.ClaimsOf(gpu.ClaimShare) {
		if c.Want.Share != nil {
			add(Lost{Subject: DescribeObject(gpu.ClaimShare, c.ID), Differences: shareDifferences(host, &after, c.Want.Share, c)})
		}
	}
	add(orphans(host))
	return out
}

// StillLost is what a host lacks of one subject.
func StillLost(host *gpu.Host, subject string) *Lost {
	for _, l := range FindLost(host) {
		if l.Subject == subject {
			return &l
		}
	}
	return &Lost{Subject: subject}
}

// lostShare hands a share over again. after is the host as it will be by then.
func lostShare(host, after *gpu.Host, s *gpu.Share) repair {
	spec, err := placement.ShareSpec(after, s)
	if err != nil {
		return stays(gpu.RefusalOf(err).Found())
	}
	for _, d := range s.Devices {
		if u, is := host.UnknownGPU(d.GPU); is {
			return stays("GPU " + d.GPU + " cannot be read: " + u.Why)
		}
		if !hasDevice(after, d) {
			return stays(deviceText(d) + " is not there")
		}
	}
	d, serves := after.Daemon(spec.Daemon)
	switch {
	case spec.Daemon == "":
	case !serves:
		return stays("MPS daemon " + spec.Daemon + " is not there")
	case d.StaticPartitions && d.PID == 0:
		return stays("MPS daemon " + spec.Daemon + ", which makes its static partition, does not run")
	}
	return repair{steps: []Step{{Op: OpWriteShare, Share: &spec}}, lacks: []string{"CDI device " + gpu.CDIDevice(s.Name)}}
}

// partitionEnded tells whether the daemon that made a share's static partition does not run.
func partitionEnded(host *gpu.Host, s *gpu.Share) bool {
	spec, err := placement.ShareSpec(host, s)
	if err != nil {
		return false
	}
	d, there := host.Daemon(spec.Daemon)
	return there && d.StaticPartitions && d.PID == 0
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
		if _, claimed := host.Claim(gpu.ClaimShare, name); claimed {
			continue
		}
		d := Difference{Object: DescribeObject(gpu.ClaimShare, name), Found: "has no claim"}
		d.repair = repair{steps: []Step{{Op: OpRemoveShare, Share: &gpu.ShareSpec{Name: name}}}, lacks: []string{"a claim"}, undeclared: true}
		if who := inShare(host, name); len(who) > 0 {
			d.repair = stays("processes run in it: " + strings.Join(who, ", "))
		}
		l.Differences = append(l.Differences, d)
	}
	return l
}
