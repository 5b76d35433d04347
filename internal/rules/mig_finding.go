package rules

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// migFinding words an error of package placement as a finding of the rule that it
// violates. Who wants the layout, where and at which level is the caller's to add.
func migFinding(err error) Finding {
	f := Finding{
		Rule: "mig-placement", Path: "mig", Title: "The MIG layout does not fit",
		Found: sentence(err), Fix: "Ask for fewer or smaller instances.",
	}
	var (
		unknown *placement.MIGUnknownProfileError
		inUse   *placement.MIGInUseError
		tooMany *placement.MIGTooManyError
		start   *placement.MIGStartError
		overlap *placement.MIGOverlapError
	)
	switch {
	case errors.As(err, &unknown):
		f.Rule, f.Title = "mig-profile-supported", "The GPU does not offer this MIG profile"
		f.Fix = "Write profiles that the GPU offers, or leave it out of `selector`."
	case errors.As(err, &inUse):
		f.Title = "MIG instances in use block the change"
		f.Fix = "Stop what uses these instances, or keep them in the layout: with `placements` where they are, with `profiles` in their number."
	case errors.As(err, &tooMany):
		f.Fix = fmt.Sprintf("Write at most %d for %s.", tooMany.Max, tooMany.Profile)
	case errors.As(err, &start):
		f.Fix = "Write a start at which the profile may begin, or `profiles` in place of `placements`: the places are then found for you."
	case errors.As(err, &overlap):
		f.Fix = "Write places that do not overlap, or `profiles` in place of `placements`: the places are then found for you."
	}
	return f
}

// sentence makes sentences of an error, one of each that is joined in it.
func sentence(err error) string {
	return strings.Join(words.Each(strings.Split(err.Error(), "\n"), func(l string) string { return capital(l) + "." }), " ")
}
