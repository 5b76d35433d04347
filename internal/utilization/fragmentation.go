package utilization

import "slices"

// fragmentation counts slices of memory: all, those without an instance, and those of
// them that no instance can be made of.
func fragmentation(m *MIG) (total, free, unallocatable int) {
	left := 0 // slices of compute
	for _, p := range m.Profiles {
		left = max(left, p.Slices)
		for _, start := range p.Starts {
			total = max(total, start+p.Size)
		}
	}
	taken := make([]bool, total)
	made := map[string]int{}
	for i := range m.Instances {
		in := &m.Instances[i]
		left -= computeSlices(m.Profiles, in.Profile)
		made[in.Profile]++
		for s := max(0, in.Start); s < min(total, in.Start+in.Size); s++ {
			taken[s] = true
		}
	}
	reachable := make([]bool, total)
	for _, p := range m.Profiles {
		if p.Slices > left || p.Max > 0 && made[p.Name] >= p.Max {
			continue
		}
		for _, start := range p.Starts {
			if fits(taken, start, p.Size) {
				for s := start; s < start+p.Size; s++ {
					reachable[s] = true
				}
			}
		}
	}
	for s := range taken {
		if taken[s] {
			continue
		}
		free++
		if !reachable[s] {
			unallocatable++
		}
	}
	return total, free, unallocatable
}

func fits(taken []bool, start, size int) bool {
	return start >= 0 && start+size <= len(taken) && !slices.Contains(taken[start:start+size], true)
}
