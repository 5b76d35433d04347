package placement

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// PlaceShare tells where a share goes on a host, among the shares that the host's claims
// tell of; that with the given token, and one of the share's own name, are its own and do
// not count. There is a place exactly when some devices fit. Among several the share goes
// to a device that others share before it takes one for itself, there to the fullest one,
// and else to the smallest; then the order of the ids decides. A share that is placed stays
// where it is and is only checked.
//
// The error is a *gpu.Refusal, which says for each device why the share does not fit.
func PlaceShare(h *gpu.Host, hostKey string, s *gpu.Share, token string) ([]gpu.SharedDevice, error) {
	if err := CheckShare(s); err != nil {
		return nil, err
	}
	host := claimedShares(h, hostKey, func(c *gpu.Claim) bool {
		return (c.Token == "" || c.Token != token) && !gpu.SameID(c.ID, s.Name)
	})
	if err := host.checkQuota(s); err != nil && len(s.Devices) == 0 {
		return nil, err
	}
	devices, err := host.Place(s)
	if err != nil {
		return nil, err
	}
	if err := host.checkQuota(s, devices...); err != nil && !hadAsMuch(h, host, s, token, devices) {
		return nil, err
	}
	return sharedDevices(devices), nil
}

// hadAsMuch tells whether a placed share wants no more of its label's quota than its claim says.
func hadAsMuch(h *gpu.Host, host *SharedHost, s *gpu.Share, token string, devices []*Device) bool {
	return len(s.Devices) > 0 && token != "" && slices.ContainsFunc(h.Claims, func(c gpu.Claim) bool {
		was := c.Want.Share
		return was != nil && c.Token == token && WantsNoMore(s, devices, was, host.devicesOf(was))
	})
}

// RankHosts orders the hosts on which a share that is not placed fits, the best first: as
// PlaceShare orders devices, so that a share goes to the fullest host that takes it. For
// each of the others it tells why it does not fit there.
func RankHosts(hosts map[string]*gpu.Host, s *gpu.Share, token string) (fit []string, lacks map[string]*gpu.Refusal) {
	best := map[string][]*Device{}
	lacks = map[string]*gpu.Refusal{}
	for _, key := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[key]
		if other := namesake(h, s.Name, token); other != nil {
			lacks[key] = wrongShare(ShareNamesake, key, "host %q has a share %q already, which %s manages", key, s.Name, words.State(other.Owner))
			continue
		}
		at, err := PlaceShare(h, key, s, token)
		if err != nil {
			lacks[key] = gpu.RefusalOf(err)
			continue
		}
		host := claimedShares(h, key, func(*gpu.Claim) bool { return true })
		for _, d := range at {
			best[key] = append(best[key], host.Find(d))
		}
		fit = append(fit, key)
	}
	slices.SortStableFunc(fit, func(a, b string) int { return compareChoices(best[a], best[b]) })
	return fit, lacks
}

// namesake is the claim of another share of that name.
func namesake(h *gpu.Host, name, token string) *gpu.Claim {
	c, ok := h.Claim(gpu.ClaimShare, name)
	if !ok || c.Token != "" && c.Token == token {
		return nil
	}
	return c
}

// Place finds devices for a share, or checks those that it has.
func (h *SharedHost) Place(s *gpu.Share) ([]*Device, error) {
	if len(s.Devices) > 0 {
		return h.stay(s)
	}
	if chosen := h.Pick(s); chosen != nil {
		return chosen, nil
	}
	scope, err := h.scope(s)
	if err != nil {
		return nil, err
	}
	var lacks []*gpu.Refusal
	var fits []gpu.SharedDevice
	for _, d := range scope {
		if lack := d.lacks(s); lack != nil {
			lacks = append(lacks, lack)
			continue
		}
		fits = append(fits, d.SharedDevice)
	}
	return nil, h.noRoom(s, DevicesWanted(s), lacks, fits, missingPins(h.Host, s))
}

// Pick finds the best devices for a share that is not placed, nil when there are none.
func (h *SharedHost) Pick(s *gpu.Share) []*Device {
	scope, err := h.scope(s)
	if err != nil {
		return nil
	}
	fitting := slices.DeleteFunc(scope, func(d *Device) bool { return !d.Takes(s) })
	slices.SortStableFunc(fitting, compareFit)
	for i, d := range fitting {
		if slices.ContainsFunc(fitting[:i], func(o *Device) bool { return o.group == d.group }) {
			continue
		}
		group := slices.DeleteFunc(slices.Clone(fitting), func(o *Device) bool { return o.group != d.group })
		if chosen := choose(group, s); chosen != nil {
			return chosen
		}
	}
	return nil
}

// DevicesWanted is how many devices a share has part in.
func DevicesWanted(s *gpu.Share) int {
	if len(s.GPUIDs) > 0 {
		return len(s.GPUIDs)
	}
	return max(s.Count, 1)
}

// choose takes the best devices of a group, on each pinned GPU one, and nil when there are
// too few. They are in the order of their ids.
func choose(group []*Device, s *gpu.Share) []*Device {
	var chosen []*Device
	for _, id := range s.GPUIDs {
		i := slices.IndexFunc(group, func(d *Device) bool { return gpu.SameID(d.GPU, id) && !slices.Contains(chosen, d) })
		if i < 0 {
			return nil
		}
		chosen = append(chosen, group[i])
	}
	if len(s.GPUIDs) == 0 {
		n := DevicesWanted(s)
		if len(group) < n {
			return nil
		}
		chosen = slices.Clone(group[:n])
	}
	slices.SortFunc(chosen, func(a, b *Device) int { return compareDevices(a.SharedDevice, b.SharedDevice) })
	return chosen
}

func missingPins(h *gpu.Host, s *gpu.Share) []string {
	return slices.DeleteFunc(slices.Clone(s.GPUIDs), func(id string) bool { _, ok := h.GPU(id); return ok })
}

// compareFit orders devices by where a share should go: to one that others may share, the
// fullest first; then to one of its own, the smallest first. Ids come last, through the
// Order of the devices.
func compareFit(a, b *Device) int {
	if d := cmp.Compare(a.exclusive(), b.exclusive()); d != 0 {
		return d
	}
	if a.exclusive() == 0 {
		ta, tb := a.Taken(), b.Taken()
		return cmp.Or(cmp.Compare(round(tb.fraction/b.part), round(ta.fraction/a.part)), cmp.Compare(tb.shares, ta.shares),
			cmp.Compare(a.Memory, b.Memory))
	}
	return cmp.Compare(a.Memory, b.Memory)
}

// round makes sums of fractions that only differ by their order the same.
func round(f float64) float64 { return math.Round(f/Tolerance) * Tolerance }

// exclusive is 0 for a device that several shares have part in, 1 for a GPU instance and 2
// for a GPU that one takes for itself.
func (d *Device) exclusive() int {
	switch d.Mode {
	case gpu.ShareMIG:
		return 1
	case gpu.ShareWholeGPU:
		return 2
	case gpu.ShareMPS, gpu.ShareTimeSlicing:
	}
	return 0
}

// compareChoices orders the devices that two hosts offer.
func compareChoices(a, b []*Device) int {
	byFit := func(list []*Device) []*Device {
		return slices.SortedStableFunc(slices.Values(list), compareFit)
	}
	return slices.CompareFunc(byFit(a), byFit(b), compareFit)
}

func sharedDevices(devices []*Device) []gpu.SharedDevice {
	out := make([]gpu.SharedDevice, len(devices))
	for i, d := range devices {
		out[i] = d.SharedDevice
	}
	return out
}
