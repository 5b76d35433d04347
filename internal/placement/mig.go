package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// MIGInstance is a GPU instance that a GPU has.
type MIGInstance struct {
	gpu.MIGPlacement
	Size int // Memory slices
	// Held says why the instance must stay, for people: "process 4711 (python)"; "" when it
	// may be removed.
	Held string
}

// MIGPlan says how a GPU comes from the instances that it has to those that are
// wanted. Each list is sorted by start; what is kept and what is created is the layout.
type MIGPlan struct {
	Keep, Remove, Create []gpu.MIGPlacement
}

// Layout is what the GPU has when the plan is done, by start.
func (p MIGPlan) Layout() []gpu.MIGPlacement {
	return sortPlacements(slices.Concat(p.Keep, p.Create))
}

// Changes tells whether there is anything to do.
func (p MIGPlan) Changes() bool { return len(p.Remove)+len(p.Create) > 0 }

func comparePlacements(a, b gpu.MIGPlacement) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), strings.Compare(a.Profile, b.Profile))
}

func sortPlacements(list []gpu.MIGPlacement) []gpu.MIGPlacement {
	slices.SortFunc(list, comparePlacements)
	return list
}

// mask are the memory slices of an instance, one bit each. What does not fit into 64
// bits, which no GPU comes near, is no instance.
func mask(start, size int) (uint64, bool) {
	if start < 0 || size < 1 || size > 64 || start > 64-size {
		return 0, false
	}
	return (^uint64(0) >> (64 - size)) << start, true
}

// slicesOf is the number of memory slices that a GPU with these profiles has.
func slicesOf(profiles []gpu.MIGProfile) int {
	n := 0
	for i := range profiles {
		for _, s := range profiles[i].Starts {
			if _, ok := mask(s, profiles[i].Size); ok {
				n = max(n, s+profiles[i].Size)
			}
		}
	}
	return n
}

func findProfile(profiles []gpu.MIGProfile, name string) (*gpu.MIGProfile, bool) {
	i := slices.IndexFunc(profiles, func(p gpu.MIGProfile) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return &profiles[i], true
}

// media is what a profile takes of a GPU's media engines, by the suffix of its name.
type media int

const (
	mediaShare media = iota // its share of the decoders and encoders
	mediaNone               // -me
	mediaExtra              // +me: the engines that a GPU has once
	mediaAll                // +me.all
)

func mediaOf(profile string) media {
	switch {
	case strings.HasSuffix(profile, "+me.all"):
		return mediaAll
	case strings.HasSuffix(profile, "+me"):
		return mediaExtra
	case strings.HasSuffix(profile, "-me"):
		return mediaNone
	}
	return mediaShare
}

// excludes tells whether two instances cannot stand on one GPU wherever they are: both
// want the media engines that there are once, or one wants all that the other shares.
func (m media) excludes(o media) bool {
	if m == mediaAll || o == mediaAll {
		return m != mediaNone && o != mediaNone
	}
	return m == mediaExtra && o == mediaExtra
}

// CheckMIGPlacements checks a layout that is written as placements. The error joins all
// that is wrong with it.
func CheckMIGPlacements(profiles []gpu.MIGProfile, layout []gpu.MIGPlacement) error {
	var found gpu.Refusal
	counts := map[string]int{}
	var known []gpu.MIGPlacement
	for _, p := range layout {
		profile, ok := findProfile(profiles, p.Profile)
		switch {
		case !ok:
			addProfile(&found, p.Profile, profiles)
			continue
		case !slices.Contains(profile.Starts, p.Start):
			add(&found, MIGStart, "%s cannot start at %d: it may start at %s", p.Profile, p.Start, startsText(profile.Starts))
			continue
		}
		counts[p.Profile]++
		known = append(known, p)
	}
	addTooMany(&found, profiles, counts)
	for i, p := range known {
		for _, o := range known[:i] {
			a, _ := findProfile(profiles, o.Profile)
			b, _ := findProfile(profiles, p.Profile)
			if o.Start < p.Start+b.Size && p.Start < o.Start+a.Size {
				add(&found, MIGOverlap, "%s and %s overlap", spanText(o, a.Size), spanText(p, b.Size))
			}
		}
	}
	addMedia(&found, profiles, counts)
	return found.Err()
}

// FollowMIG plans a layout that is written as placements: what stands as written is
// kept, everything else is removed.
func FollowMIG(profiles []gpu.MIGProfile, have []MIGInstance, layout []gpu.MIGPlacement) (MIGPlan, error) {
	if err := CheckMIGPlacements(profiles, layout); err != nil {
		return MIGPlan{}, err
	}
	var plan MIGPlan
	var blocking []MIGInstance
	wanted := slices.Clone(layout)
	for _, h := range have {
		if i := slices.Index(wanted, h.MIGPlacement); i >= 0 {
			wanted = slices.Delete(wanted, i, i+1)
			plan.Keep = append(plan.Keep, h.MIGPlacement)
			continue
		}
		if h.Held != "" {
			blocking = append(blocking, h)
			continue
		}
		plan.Remove = append(plan.Remove, h.MIGPlacement)
	}
	if len(blocking) > 0 {
		return MIGPlan{}, instancesInUse(blocking, 0, 0)
	}
	plan.Create = wanted
	sortPlacements(plan.Keep)
	sortPlacements(plan.Remove)
	sortPlacements(plan.Create)
	return plan, nil
}
