package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// filling is a host whose GPUs containers share by MPS, with shares on it, and what a run
// makes of them.
type filling struct {
	host  *gpu.Host
	fresh []*gpu.Share
	// ends and changes are by name of a share that is placed.
	ends    []string
	changes map[string]*gpu.Share
}

func claimOf(s *gpu.Share) gpu.Claim {
	return gpu.Claim{Kind: gpu.ClaimShare, ID: s.Name, Token: s.Name, Want: gpu.Want{Share: s}}
}

func randomFilling(r *rand.Rand) filling {
	sizes := []int64{8, 12, 16, 20, 24, 28, 36, 48}
	f := filling{host: &gpu.Host{Name: "ml01", Platform: gpu.Linux}, changes: map[string]*gpu.Share{}}
	var all []string
	for n := range 1 + r.IntN(4) {
		f.host.GPUs = append(f.host.GPUs, gpu.GPU{ID: gpuID(n), Model: "NVIDIA L40S", VRAM: 48 * 1024 * gpu.MiB, ComputeCapability: "8.9"})
		all = append(all, gpuID(n))
	}
	config := &gpu.PartitionConfig{ID: "c", GPUs: map[string][]string{"ml01": all}}
	switch r.IntN(4) {
	case 0:
		config.Kind, config.TimeSlicing = gpu.KindTimeSlicing, &gpu.TimeSlicing{Replicas: 1 + r.IntN(3)}
	default:
		config.Kind, config.MPS = gpu.KindMPS, &gpu.MPSLayout{MultiUser: true}
	}
	f.host.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "c", Token: "c", GPUs: all, Want: gpu.Want{Config: config}}}
	random := func(name string) *gpu.Share {
		s := &gpu.Share{Name: name, Host: "ml01", Count: 1, MemoryRequest: gpu.FromMiB(sizes[r.IntN(len(sizes))] * 1024)}
		s.MemoryLimit = s.MemoryRequest
		if config.MPS != nil && r.IntN(3) == 0 {
			s.ActiveThreadPercentage = float64(10 * (1 + r.IntN(10)))
		}
		if r.IntN(8) == 0 {
			s.Count = 2
		}
		if r.IntN(6) == 0 {
			s.GPUIDs, s.Count = []string{all[r.IntN(len(all))]}, 1
		}
		return s
	}
	for i := range r.IntN(3) {
		s := random(fmt.Sprint("old", i))
		at, err := placement.PlaceShare(f.host, "ml01", s, s.Name)
		if err != nil {
			continue
		}
		s.Devices = at
		f.host.Claims = append(f.host.Claims, claimOf(s))
		switch r.IntN(3) {
		case 0:
			f.ends = append(f.ends, s.Name)
		case 1:
			to := *s
			to.MemoryRequest = gpu.FromMiB(sizes[r.IntN(len(sizes))] * 1024)
			to.MemoryLimit = to.MemoryRequest
			f.changes[s.Name] = &to
		}
	}
	for i := range 1 + r.IntN(4) {
		f.fresh = append(f.fresh, random(fmt.Sprint("new", i)))
	}
	return f
}

// rooms are the host with what stays and what is changed, and the moves to that.
func (f filling) rooms() ([]*placement.SharedHost, []placement.Move) {
	room := placement.NewSharedHost("ml01", f.host, f.host)
	var moves []placement.Move
	for _, c := range f.host.Claims[1:] {
		switch to := f.changes[c.ID]; {
		case slices.Contains(f.ends, c.ID):
			moves = append(moves, placement.Move{Room: room, From: c.Want.Share})
		case to != nil:
			moves = append(moves, placement.Move{Room: room, From: c.Want.Share, To: to})
			room.Put(to)
		default:
			room.Put(c.Want.Share)
		}
	}
	return []*placement.SharedHost{room}, moves
}

// apply does everything in an order, as the host does. What finds no room waits until
// something else is done. It returns what never finds any.
func (f filling) apply(order []string) []string {
	h := *f.host
	h.Claims = slices.Clone(f.host.Claims)
	at := func(name string) int {
		return slices.IndexFunc(h.Claims, func(c gpu.Claim) bool { return c.ID == name })
	}
	for again := true; again; {
		again = false
		for i, name := range order {
			if slices.Contains(f.ends, name) {
				h.Claims = slices.Delete(h.Claims, at(name), at(name)+1)
			} else {
				s := f.changes[name]
				if n := slices.IndexFunc(f.fresh, func(s *gpu.Share) bool { return s.Name == name }); n >= 0 {
					s = f.fresh[n]
				}
				placed := *s
				var err error
				if placed.Devices, err = placement.PlaceShare(&h, "ml01", s, name); err != nil {
					if from := at(name); from < 0 || !eased(h.Claims[from].Want.Share, s) {
						continue
					}
					placed.Devices = s.Devices
				}
				if from := at(name); from >= 0 {
					h.Claims = slices.Delete(h.Claims, from, from+1)
				}
				h.Claims = append(h.Claims, claimOf(&placed))
			}
			order = slices.Delete(slices.Clone(order), i, i+1)
			again = true
			break
		}
	}
	return order
}

func eased(from, to *gpu.Share) bool { return to.MemoryRequest <= from.MemoryRequest }

func permutations(of []string) [][]string {
	if len(of) == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for i := range of {
		rest := slices.Delete(slices.Clone(of), i, i+1)
		for _, p := range permutations(rest) {
			out = append(out, append([]string{of[i]}, p...))
		}
	}
	return out
}

// TestEveryOrder: what is said to fit in every order does so on the host, in each of them;
// what is said not to gets stuck in one; and pins that are named fit in every order.
func TestEveryOrder(t *testing.T) {
	t.Parallel()
	count := map[placement.Verdict]int{}
	pinned := 0
	for seed := range 1500 {
		f := randomFilling(rand.New(rand.NewPCG(uint64(seed), 3)))
		rooms, moves := f.rooms()
		var items []placement.PackItem
		names := slices.Clone(f.ends)
		for _, s := range f.fresh {
			items = append(items, placement.NewPackItem(s, s.Name, rooms))
			names = append(names, s.Name)
		}
		for _, c := range f.host.Claims[1:] {
			if f.changes[c.ID] != nil {
				names = append(names, c.ID)
			}
		}
		v, stuck := placement.EveryOrder(items, moves)
		count[v]++
		var left []string
		for _, order := range permutations(names) {
			if left = f.apply(order); len(left) > 0 {
				break
			}
		}
		if (v == placement.Fit) != (len(left) == 0) || (stuck != nil) != (v == placement.DoNotFit) {
			t.Fatalf("seed %d: verdict %d, stuck %v; on the host %v are left over", seed, v, stuck, left)
		}
		pins := placement.Pins(items, moves)
		if pins == nil || v == placement.Fit {
			continue
		}
		pinned++
		for i, s := range f.fresh {
			if ids := pins[s.Name]; ids != nil {
				at := *s
				at.GPUIDs, at.Count = ids, len(ids)
				f.fresh[i] = &at
			}
		}
		for _, order := range permutations(names) {
			if left = f.apply(order); len(left) > 0 {
				t.Fatalf("seed %d: with the pins %v, %v are left over in the order %v", seed, pins, left, order)
			}
		}
	}
	if count[placement.Fit] < 300 || count[placement.DoNotFit] < 300 || count[placement.Undecided] > 0 || pinned < 20 {
		t.Errorf("too few of one kind to prove anything: %v, %d with pins", count, pinned)
	}
	t.Log(count, pinned)
}

// Shares that have a place anyway are not tried out.
func TestEveryOrderOfManySharesIsQuick(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gpus, shares int
		gib          func(i int) int64
		want         placement.Verdict
	}{
		"a quarter full, all different": {40, 100, func(i int) int64 { return int64(1 + i%9) }, placement.Fit},
		"full, all alike":               {24, 96, func(int) int64 { return 12 }, placement.Fit},
		"full, all different":           {24, 190, func(i int) int64 { return int64(1 + i%11) }, placement.DoNotFit},
		"three quarters, all different": {24, 150, func(i int) int64 { return int64(1 + i%11) }, placement.Fit},
		"more than can be tried":        {24, 60, func(i int) int64 { return int64(9 + i%9) }, placement.Undecided},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := filling{host: &gpu.Host{Name: "ml01", Platform: gpu.Linux}}
			config := &gpu.PartitionConfig{ID: "c", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{MultiUser: true}}
			var all []string
			for n := range c.gpus {
				all = append(all, gpuID(n))
				f.host.GPUs = append(f.host.GPUs, gpu.GPU{ID: gpuID(n), Model: "NVIDIA L40S", VRAM: 48 * 1024 * gpu.MiB, ComputeCapability: "8.9"})
			}
			f.host.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "c", GPUs: all, Want: gpu.Want{Config: config}}}
			rooms, _ := f.rooms()
			var items []placement.PackItem
			for i := range c.shares {
				memory := gpu.FromMiB(c.gib(i) * 1024)
				items = append(items, placement.NewPackItem(&gpu.Share{Name: fmt.Sprint(i), Count: 1, MemoryRequest: memory, MemoryLimit: memory},
					"", rooms))
			}
			if v, _ := placement.EveryOrder(items, nil); v != c.want {
				t.Errorf("verdict %d, want %d", v, c.want)
			}
		})
	}
}
