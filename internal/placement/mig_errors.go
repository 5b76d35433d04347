package placement

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// MIGUnknownProfileError is a profile that the GPU does not offer.
type MIGUnknownProfileError struct {
	Profile string
	Offered []string
}

func (e *MIGUnknownProfileError) Error() string {
	if len(e.Offered) == 0 {
		return fmt.Sprintf("there is no profile %s: the GPU offers none", e.Profile)
	}
	return fmt.Sprintf("there is no profile %s: the GPU offers %s", e.Profile, words.JoinAll(e.Offered))
}

// MIGCountError is a number of instances below zero.
type MIGCountError struct {
	Profile string
	Count   int
}

func (e *MIGCountError) Error() string {
	return fmt.Sprintf("%d instances of %s cannot be made", e.Count, e.Profile)
}

// MIGTooManyError is more instances of one profile than an empty GPU takes.
type MIGTooManyError struct {
	Profile   string
	Want, Max int
}

func (e *MIGTooManyError) Error() string {
	return fmt.Sprintf("%s of %s, but the GPU takes %d at most", words.Plural(e.Want, "instance"), e.Profile, e.Max)
}

// MIGMediaError is instances that want the same media engines.
type MIGMediaError struct {
	Profiles []string // By name, a profile for each of its instances
}

func (e *MIGMediaError) Error() string {
	return "a GPU has media engines for one instance with +me, or gives all of them to one with +me.all beside which " +
		"only instances with -me stand; wanted are " + words.JoinAll(e.Profiles)
}

// MIGSlicesError is more memory slices than the GPU has.
type MIGSlicesError struct {
	Want, Has int
}

func (e *MIGSlicesError) Error() string {
	return fmt.Sprintf("the instances take %s together, but the GPU has %d", words.Plural(e.Want, "memory slice"), e.Has)
}

// MIGNoRoomError is a set of instances for which an empty GPU has slices enough, but
// not where the profiles may begin.
type MIGNoRoomError struct {
	Profiles []gpu.MIGProfile // the wanted ones
}

func (e *MIGNoRoomError) Error() string {
	at := words.Each(e.Profiles, func(p gpu.MIGProfile) string {
		return fmt.Sprintf("%s takes %s at %s", p.Name, words.Plural(p.Size, "slice"), startsText(p.Starts))
	})
	return "the instances do not fit beside each other wherever they are put: " + words.JoinAll(at)
}

// MIGInUseError is instances in use that stand where others are wanted, or that are
// not wanted at all.
type MIGInUseError struct {
	Blocking []MIGInstance
	// Free and Want are the memory slices beside the instances in use and those that the
	// other wanted instances take. When there are enough, they are scattered. Both are 0
	// when the blocking instances are not wanted.
	Free, Want int
}

func (e *MIGInUseError) Error() string {
	who := words.Each(e.Blocking, func(b MIGInstance) string { return fmt.Sprintf("%s at %d (%s)", b.Profile, b.Start, b.Held) })
	text := fmt.Sprintf("%s in use %s the way: %s", words.Plural(len(e.Blocking), "instance"),
		words.Verb(len(e.Blocking), "is in", "are in"), words.JoinAll(who))
	switch {
	case e.Want == 0:
		return text
	case e.Want > e.Free:
		return text + fmt.Sprintf("; beside what is in use %s free, and %d are needed",
			words.Plural(e.Free, "memory slice")+" "+words.Verb(e.Free, "is", "are"), e.Want)
	}
	return text + fmt.Sprintf("; beside what is in use %s free, which would be enough if they lay together", words.Plural(e.Free, "memory slice")+" "+words.Verb(e.Free, "is", "are"))
}

// MIGStartError is a placement where its profile may not begin.
type MIGStartError struct {
	Placement gpu.MIGPlacement
	Starts    []int
}

func (e *MIGStartError) Error() string {
	return fmt.Sprintf("%s cannot start at %d: it may start at %s", e.Placement.Profile, e.Placement.Start, startsText(e.Starts))
}

// MIGOverlapError is two placements that want the same memory slice.
type MIGOverlapError struct {
	First, Second         gpu.MIGPlacement
	FirstSize, SecondSize int
}

func (e *MIGOverlapError) Error() string {
	return fmt.Sprintf("%s and %s overlap", spanText(e.First, e.FirstSize), spanText(e.Second, e.SecondSize))
}

// spanText is "3g.40gb at 4 (slices 4 to 7)".
func spanText(p gpu.MIGPlacement, size int) string {
	if size == 1 {
		return fmt.Sprintf("%s at %d", p.Profile, p.Start)
	}
	return fmt.Sprintf("%s at %d (slices %d to %d)", p.Profile, p.Start, p.Start, p.Start+size-1)
}

func startsText(starts []int) string { return words.JoinAll(words.Each(starts, strconv.Itoa)) }

// faults gathers what is wrong with a layout.
type faults []error

func (f *faults) add(err error) { *f = append(*f, err) }

func (f faults) err() error { return errors.Join(f...) }

func (f *faults) addUnknown(profile string, profiles []gpu.MIGProfile) {
	f.add(&MIGUnknownProfileError{Profile: profile, Offered: words.Each(profiles, func(p gpu.MIGProfile) string { return p.Name })})
}

// addTooMany compares numbers of instances with what an empty GPU takes. A profile
// whose maximum is not known is bounded by its placements alone.
func (f *faults) addTooMany(profiles []gpu.MIGProfile, counts map[string]int) {
	for i := range profiles {
		if p := &profiles[i]; p.Max > 0 && counts[p.Name] > p.Max {
			f.add(&MIGTooManyError{Profile: p.Name, Want: counts[p.Name], Max: p.Max})
		}
	}
}

// addMedia names the instances of which at most one may stand.
func (f *faults) addMedia(profiles []gpu.MIGProfile, counts map[string]int) {
	var wanted []string
	for i := range profiles {
		// Two of a kind that excludes itself are one too many; more say nothing more.
		for range min(counts[profiles[i].Name], 2) {
			wanted = append(wanted, profiles[i].Name)
		}
	}
	var clash []string
	for i, p := range wanted {
		if slices.ContainsFunc(slices.Concat(wanted[:i], wanted[i+1:]), func(o string) bool { return mediaOf(p).excludes(mediaOf(o)) }) {
			clash = append(clash, p)
		}
	}
	if len(clash) > 0 {
		slices.Sort(clash)
		f.add(&MIGMediaError{Profiles: clash})
	}
}
