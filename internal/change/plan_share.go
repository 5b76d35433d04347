package change

import (
	"reflect"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

const (
	placeShare = "place the share"
	endShare   = "end the share"
)

// share plans a fraction of GPUs for containers. It is placed here, among the claims that
// stand under the lease, and never moved.
func (p *planner) share() error {
	want, prior := shareOn(p.change.Want.Share, p.key), shareOn(p.change.Prior.Share, p.key)
	shape := want
	if want == nil {
		shape = prior
	}
	if shape == nil {
		return nil // it is on another host
	}
	claim, _ := p.host.Claim(gpu.ClaimShare, shape.Name)
	ours, err := p.owns(gpu.ClaimShare, shape.Name, claim, prior != nil, want != nil)
	if err != nil || !ours {
		return err
	}
	if err := p.knows(placeShare, "", nil, gpu.PartShares); err != nil {
		return err
	}
	if want == nil {
		return p.endShare(shape, claim)
	}
	placed, err := p.place(want, claim)
	if err != nil {
		return err
	}
	record := p.shareClaim(placed, claim)
	if p.change.ClaimOnly {
		p.put(record)
		return nil
	}
	handed, is := p.host.HandedShare(placed.Name)
	spec, err := placement.ShareSpec(&p.host, placed)
	if is && handed.Outdated == "" && memoryUnknown(err) && asksAsBefore(claim, placed) {
		p.putOver(claim, record) // it has been written while the memory was known
		return nil
	}
	if err != nil {
		return refuseShare(err, placed.Name)
	}
	if was := claimedSpec(&p.host, placed.Name); !is || handed.Outdated != "" || was == nil || !reflect.DeepEqual(*was, spec) {
		p.add(Step{Op: OpWriteShare, Share: &spec})
	}
	p.putOver(claim, record)
	return nil
}

// shareOn is a share if it is, or shall be, on a host.
func shareOn(s *gpu.Share, host string) *gpu.Share {
	if s == nil || s.Host != "" && s.Host != host {
		return nil
	}
	return s
}

// place finds the share's devices. One that its claim knows stays where it is.
func (p *planner) place(want *gpu.Share, claim *gpu.Claim) (*gpu.Share, error) {
	s := *want
	s.Host = p.key
	if claim != nil && claim.Want.Share != nil {
		switch was := claim.Want.Share; {
		case SamePlacement(was, &s):
			s.Devices = was.Devices
		case !p.change.ClaimOnly:
			// What another instance left is of another shape.
			if r := p.notRunning(s.Name, "replace the share"); r != nil {
				return nil, r
			}
		}
	}
	if p.change.ClaimOnly && len(s.Devices) > 0 {
		return &s, nil
	}
	var err error
	placed := s.Devices
	if s.Devices, err = placement.PlaceShare(&p.host, p.key, &s, p.change.Token); err != nil {
		if len(placed) > 0 && memoryUnknown(err) && asksAsBefore(claim, &s) {
			s.Devices = placed // it was placed while the memory was known
			return &s, nil
		}
		return nil, refuseShare(err, s.Name)
	}
	return &s, nil
}

// memoryUnknown tells whether a share is refused since nobody tells the memory of its device by now.
func memoryUnknown(err error) bool {
	fault := placement.FaultOf(err)
	return fault == placement.LackFigure || fault == placement.ShareMemory
}

// asksAsBefore tells whether a share wants the amounts that its claim has.
func asksAsBefore(claim *gpu.Claim, s *gpu.Share) bool {
	return claim != nil && claim.Want.Share.SameAmounts(s)
}

// SamePlacement tells whether a share is placed for what another one wants: the rest can
// change where it is. One that knows its place is not moved by pins that came later.
func SamePlacement(was, want *gpu.Share) bool {
	if len(was.Devices) == 0 || was.Count != want.Count || was.Profile != want.Profile || !gpu.SameID(was.Pool, want.Pool) ||
		!gpu.SameID(was.Config, want.Config) {
		return false
	}
	if len(want.Devices) > 0 {
		return gpu.SameDevices(was.Devices, want.Devices)
	}
	return slices.EqualFunc(was.GPUIDs, want.GPUIDs, gpu.SameID)
}

// refuseShare is the refusal of a share that has no place.
func refuseShare(err error, name string) *gpu.Refusal {
	r := gpu.RefusalOf(err)
	r.Op, r.Object = placeShare, "share "+name
	return r
}

func (p *planner) shareClaim(s *gpu.Share, old *gpu.Claim) gpu.Claim {
	c := p.newClaim(gpu.ClaimShare, s.Name, old)
	c.Want.Share = s
	for _, d := range s.Devices {
		if !c.Covers(d.GPU) {
			c.GPUs = append(c.GPUs, d.GPU)
		}
	}
	return c
}

// endShare plans to take a share back. All that bears its name is ours, so that there is
// WholeHost to leave alone of one that a failed change left half done.
func (p *planner) endShare(s *gpu.Share, claim *gpu.Claim) error {
	if !p.change.ClaimOnly {
		ends, r := p.endsIn(s)
		if r != nil {
			p.refuse(r)
		}
		if _, handed := p.host.HandedShare(s.Name); handed || ends {
			p.add(Step{Op: OpRemoveShare, Share: &gpu.ShareSpec{Name: s.Name}, Force: ends})
		}
	}
	if claim != nil {
		p.drop(*claim)
	}
	return nil
}

// endsIn tells whether clients of MPS end with a share, and refuses that where it is not allowed,
// and under other processes.
func (p *planner) endsIn(s *gpu.Share) (bool, *gpu.Refusal) {
	clients := processTexts(p.host.ClientsIn(s.Name))
	who := inShare(&p.host, s.Name)
	others := slices.DeleteFunc(slices.Clone(who), func(text string) bool { return slices.Contains(clients, text) })
	switch {
	case len(others) > 0 || len(who) == 0:
		return false, p.notRunning(s.Name, endShare)
	case gpu.DisruptProcessRestart.Exceeds(s.MaxDisruption):
		return false, p.notRunning(s.Name, endShare).
			Or("stop them first, or allow that they end with max_disruption = \"process_restart\" on the share").Unless(gpu.DisruptProcessRestart)
	}
	return true, nil
}

// notRunning refuses a change under processes of a share.
func (p *planner) notRunning(name, op string) *gpu.Refusal {
	if who := inShare(&p.host, name); len(who) > 0 {
		return refuse(gpu.InUse, op, "share "+name, "it is in use by %s", strings.Join(who, ", ")).Or("stop them first")
	}
	return nil
}

// inShare are the processes that run in a share.
func inShare(host *gpu.Host, name string) []string {
	who := processTexts(host.ClientsIn(name))
	for i := range host.GPUs {
		for _, p := range host.GPUs[i].Processes {
			if text := placement.ProcessText(p); p.Share != "" && gpu.SameID(p.Share, name) && !slices.Contains(who, text) {
				who = append(who, text)
			}
		}
	}
	return who
}
