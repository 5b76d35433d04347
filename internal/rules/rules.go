// Package rules holds every rule of the project once, as a pure function with an
// id. A rule looks at hosts as an inventory showed them, at what one resource
// wants, and at what the other resources of the same run want. The provider asks
// at plan, the agent asks again at apply under the host's lease, and the guide on
// rules is generated from the registry.
//
// A caller with many resources keeps two indexed structures and hands them to
// every check, so that one check costs what its own hosts hold and not what the
// fleet holds: Fleet for the inventories and the claims in them, Book for the plans
// of the run. Both are updated one host or one plan at a time and are safe for
// concurrent use. A caller with one host fills World.Hosts and leaves them nil.
package rules

import (
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Level is how much a violation matters.
type Level string

// Levels.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Off     Level = "off"
)

// Levels overrides the default level of rules, by rule id.
type Levels map[string]Level

// Without is the levels with a rule off.
func (l Levels) Without(id string) Levels {
	out := Levels{id: Off}
	for k, v := range l {
		if k != id {
			out[k] = v
		}
	}
	return out
}

// Rule is one rule as the documentation lists it.
type Rule struct {
	ID       string
	Sentence string // one sentence that says what must hold
	Default  Level
	Source   string // where the platform's vendor documents it
	// Scope tells where the rule can be decided: on one host (asked again by the
	// agent) or only over several.
	Scope Scope
	// Fixed is true for a rule whose level cannot be overridden.
	Fixed bool
	// Lenient is true for a rule of good practice: nothing breaks where people know better, and findings say how to relax it.
	Lenient bool
	// Subjects are the claim kinds whose plans the rule looks at.
	Subjects []gpu.ClaimKind

	// passes is true for a rule about room, or about who is in the way: what another resource has of
	// it, that one may give up in the same run, and what is to be restored, that one may take.
	passes bool
	// standing is true for a rule whose warnings every plan repeats.
	standing bool
	// kind is the only kind of partition config that the rule is about; "" for every kind.
	kind  gpu.Kind
	check func(*run)
}

// Scope is how far a rule has to look.
type Scope string

// Scopes.
const (
	HostScope  Scope = "host"
	FleetScope Scope = "fleet"
)

// World is what the rules may look at.
type World struct {
	whatif.World
	// Complete is true when every host of the fleet is in Hosts, so that "no host
	// has it" can be said.
	Complete bool
	// Window is when disruption is wanted; nil means always. Now is the time that it goes
	// by.
	Window *Window
	Now    time.Time
	// Agents say what the agents of the hosts know. Nil on an agent, and where they are all
	// of this build.
	Agents Agents
}

// Agents are those of the hosts.
type Agents interface {
	// Asks lists what a change asks an agent to know.
	Asks(change.Change) []string
	// Lacks lists what the agent of a host does not know of what may be asked, and its
	// version.
	Lacks(host string) (fields []string, version string)
}

// Finding is one violation.
type Finding struct {
	Rule  string `json:"rule"`
	Level Level  `json:"level"`
	// Path is the attribute that the finding is about, in HCL notation:
	// "gpu_p.partition_count", "partition.gpu_id", "vm".
	Path string `json:"path"`
	// Title is a short sentence without the names, for a diagnostic's summary.
	Title string `json:"title"`
	Host  string `json:"host,omitempty"`
	GPU   string `json:"gpu,omitempty"`
	VM    string `json:"vm,omitempty"`
	// Found, Wanted and Fix are sentences: what the host or the other resource has,
	// what this plan wants, and what to do about it.
	Found  string `json:"found"`
	Wanted string `json:"wanted"`
	Fix    string `json:"fix"`
	// Other is the label of the other resource of this run, if there is one.
	Other string `json:"other,omitempty"`
	// Of is set where the plan of another resource tells the finding: the label of the resource that it is about.
	Of string `json:"of,omitempty"`
	// Contended names what several resources of a run contend for, such as the quota of a label. Which of them tells it hangs
	// on the order in which they are planned, so that a run tells it once, and the text names none of them.
	Contended string `json:"-"`
	// Again is true where the run has told the cause in full, of another resource.
	Again bool `json:"-"`
	// Stood is true for a violation that this change neither creates nor worsens; its
	// level is then at most a warning.
	Stood bool `json:"stood,omitempty"`
}

// Check returns the violations of a plan, errors first, each at its level in
// force. A violation that holds already for what the resource had before, or for
// hosts that it does not touch, is at most a warning. For a plan that changes
// nothing only what would otherwise be an error is returned, as a warning unless
// another plan of the run brings it about. A rule that is off, or that
// cannot be decided with the hosts at hand, returns nothing. Scopes limits the
// check to rules of those scopes; none means all.
//
// An override of "error" raises a rule that is a warning by default; findings that
// a stricter rule itself reports as warnings stay warnings. An override of
// "warning" lowers everything that the rule reports.
func Check(w World, p change.Change, levels Levels, scopes ...Scope) []Finding {
	r, done := begin(w, p)
	defer done()
	return r.check(levels, scopes)
}

// CheckAndSimulate is Check with Foresee, which goes by what the rules have worked out.
func CheckAndSimulate(w World, p change.Change, levels Levels) ([]Finding, []change.Forecast) {
	r, done := begin(w, p)
	defer done()
	findings := r.check(levels, nil)
	return findings, r.SimulatedOnceOthersYield()
}

// All lists the rules in the order of the documentation.
func All() []Rule { return slices.Clone(registry) }

// Passes tells whether what a rule finds may be gone once another change of the same run
// is made.
func Passes(id string) bool {
	return slices.ContainsFunc(registry, func(r Rule) bool { return r.ID == id && r.passes })
}
