package rules_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// seat is a device as the oracle knows it, by what the test made.
type seat struct {
	at     gpu.SharedDevice
	mode   gpu.ShareMode
	config string
	memory gpu.Bytes
	over   float64
	most   int // shares
}

// shareOracle says by trying everything what shares fit where.
type shareOracle struct {
	seats  []seat
	placed []gpu.Share
}

// room tells whether the shares of a seat keep within it.
func (o *shareOracle) room(s seat, more ...gpu.Share) bool {
	n, request, limit, threads := 0, gpu.Bytes(0), gpu.Bytes(0), 0.0
	for _, x := range append(slices.Clone(o.placed), more...) {
		if !slices.ContainsFunc(x.Devices, s.at.Same) {
			continue
		}
		n++
		request += x.MemoryRequest
		limit += x.MemoryLimit
		threads += x.ActiveThreadPercentage
		if max(x.MemoryRequest, x.MemoryLimit) > s.memory || s.mode != gpu.ShareMPS && x.ActiveThreadPercentage > 0 {
			return false
		}
	}
	return n <= s.most && request <= s.memory && float64(limit) <= s.over*float64(s.memory) && threads <= 100*s.over
}

// ways are the sets of seats that one share may have by themselves.
func (o *shareOracle) ways(x gpu.Share) [][]gpu.SharedDevice {
	var out [][]gpu.SharedDevice
	n := max(x.Count, 1)
	for set := range 1 << len(o.seats) {
		var chosen []seat
		for i, s := range o.seats {
			if set&(1<<i) != 0 {
				chosen = append(chosen, s)
			}
		}
		if len(chosen) != n {
			continue
		}
		ok := true
		var at []gpu.SharedDevice
		for _, s := range chosen {
			at = append(at, s.at)
			together := s.mode == chosen[0].mode && (s.mode != gpu.ShareMPS || s.config == chosen[0].config) && (n == 1 || s.at.Instance == nil)
			named := (x.Config == "" || s.config == x.Config) && (x.Profile == "" || s.at.Instance != nil && s.at.Instance.Profile == x.Profile)
			pinned := len(x.GPUIDs) == 0 || slices.Contains(x.GPUIDs, s.at.GPU)
			ok = ok && together && named && pinned
		}
		if ok {
			out = append(out, at)
		}
	}
	return out
}

// fits tells whether all of some shares have places at the same time.
func (o *shareOracle) fits(shares ...gpu.Share) bool {
	if len(shares) == 0 {
		return true
	}
	x := shares[0]
	for _, at := range o.ways(x) {
		x.Devices = at
		o.placed = append(o.placed, x)
		ok := o.sound() && o.fits(shares[1:]...)
		o.placed = o.placed[:len(o.placed)-1]
		if ok {
			return true
		}
	}
	return false
}

// sound tells whether no seat is above what it can give.
func (o *shareOracle) sound() bool {
	return !slices.ContainsFunc(o.seats, func(s seat) bool { return !o.room(s) })
}

// drawShareHost makes a host with up to three GPUs of all modes, and tells the oracle.
func drawShareHost(t *rapid.T) (*gpu.Host, *shareOracle) {
	h := shareServer()
	h.GPUs = nil
	o := &shareOracle{}
	configs := map[string]gpu.Want{}
	over := rapid.SampledFrom([]float64{0, 1.5}).Draw(t, "oversubscription")
	for i := range rapid.IntRange(1, 3).Draw(t, "gpus") {
		id := []string{migGPU0, migGPU1, "GPU-00000000-0000-4000-8000-000000000002"}[i]
		kind := rapid.SampledFrom([]string{"whole", "mps", "mps-b", "slices", "mig", "mig-mps"}).Draw(t, "kind")
		c := mpsConfig(kind, "gpu01")
		c.Config.MPS.Oversubscription = over
		s := seat{at: gpu.SharedDevice{GPU: id}, memory: 80 * gib, over: max(over, 1), config: kind}
		switch kind {
		case "whole":
			s.mode, s.most, s.over, s.config = gpu.ShareWholeGPU, 1, 1, ""
		case "mps", "mps-b":
			s.mode, s.most = gpu.ShareMPS, 48
		case "slices":
			s.mode, s.most = gpu.ShareTimeSlicing, 2
			c = slicesConfig(kind, 2, "gpu01")
			c.Config.TimeSlicing.Oversubscription = over
		}
		if kind != "mig" && kind != "mig-mps" {
			h.GPUs = append(h.GPUs, freeGPU(id))
			o.seats = append(o.seats, s)
		} else {
			g := h100(id, at("3g.40gb", 0), at("1g.10gb", 4))
			h.GPUs = append(h.GPUs, g)
			for _, in := range g.MIG.Instances {
				place := in.Placement()
				s := seat{at: gpu.SharedDevice{GPU: id, Instance: &place}, mode: gpu.ShareMIG, config: kind, memory: in.Memory, over: 1, most: 1}
				if kind == "mig-mps" {
					s.mode, s.over, s.most = gpu.ShareMPS, max(over, 1), map[string]int{"3g.40gb": 20, "1g.10gb": 6}[in.Profile]
				}
				o.seats = append(o.seats, s)
			}
			c.Config.Kind, c.Config.MIG = gpu.KindMIG, &gpu.MIGLayout{Placements: []gpu.MIGPlacement{at("3g.40gb", 0), at("1g.10gb", 4)}}
			if kind == "mig" {
				c.Config.MPS = nil
			}
		}
		if kind != "whole" {
			if had, ok := configs[kind]; ok {
				c.Config.GPUs["gpu01"] = append(slices.Clone(had.Config.GPUs["gpu01"]), id)
			} else {
				c.Config.GPUs["gpu01"] = []string{id}
			}
			configs[kind] = c
		}
	}
	for _, kind := range []string{"mps", "mps-b", "slices", "mig", "mig-mps"} {
		if c, ok := configs[kind]; ok {
			laidOut(h, c)
		}
	}
	return h, o
}

// drawShare makes a share of any kind for that host.
func drawShare(t *rapid.T, h *gpu.Host, name string) gpu.Share {
	s := share(name, 0)
	s.MemoryRequest = rapid.SampledFrom([]gpu.Bytes{0, 5, 25, 45, 81}).Draw(t, "request") * gib
	s.MemoryLimit = s.MemoryRequest + rapid.SampledFrom([]gpu.Bytes{0, 20}).Draw(t, "more")*gib
	s.ActiveThreadPercentage = rapid.SampledFrom([]float64{0, 0, 30, 60}).Draw(t, "threads")
	s.Count = rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "count")
	switch rapid.IntRange(0, 5).Draw(t, "narrowed") {
	case 0:
		s.Profile = rapid.SampledFrom([]string{"1g.10gb", "3g.40gb"}).Draw(t, "profile")
	case 1:
		s.Config = rapid.SampledFrom([]string{"mps", "slices", "mig", "mig-mps"}).Draw(t, "config")
	case 2:
		s.GPUIDs, s.Count = []string{h.GPUs[rapid.IntRange(0, len(h.GPUs)-1).Draw(t, "pin")].ID}, 1
	}
	return s
}
