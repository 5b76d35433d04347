// Package rules holds every rule of the project once, as a pure function with an
// id. A rule looks at hosts as an inventory showed them, at what one resource
// wants, and at what the other resources of the same run want. The provider asks
// at plan, the agent asks again at apply under the host's lease, and the registry
// prints the documentation.
package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
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

// Rule is one rule as the documentation lists it.
type Rule struct {
	ID       string
	Sentence string // one sentence that says what must hold
	Default  Level
	Source   string // where the platform's vendor documents it
	// Scope tells where the rule can be decided: on one host (asked again by the
	// agent) or only over several.
	Scope Scope
	// Subjects are the claim kinds whose plans the rule looks at.
	Subjects []gpu.ClaimKind

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
	// Hosts are the inventories at hand, keyed by the provider's name for the host.
	// A host that could not be asked is missing: a rule that needs it says nothing.
	Hosts map[string]*gpu.Host
	// Owner is the name of this state in claims.
	Owner string
	// Others are the other plans of this run. At apply on the agent it is empty.
	Others []Plan
	// Complete is true when every host of the fleet is in Hosts, so that "no host
	// has it" can be said.
	Complete bool
}

// Plan is what one resource instance means to hold.
type Plan struct {
	// Label names the resource for people, by type and key attributes, the same
	// whichever side of a conflict reports it: `gpu_vm_assignment for VM "avd-02"`.
	Label string
	// Token is the instance's token in claims; "" before the first apply.
	Token string
	Want  gpu.Want // what the plan wants; empty when it is destroyed
	Prior gpu.Want // what it had before, from state; empty when it is created
	// Unchanged is true when the plan changes nothing: whatever is wrong stood before.
	Unchanged bool
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
	// Stood is true for a violation that this change neither creates nor worsens; its
	// level is then at most a warning.
	Stood bool `json:"stood,omitempty"`

	// key identifies the violation, to find it again in the world before the change.
	key string
}

// Scopes limits a check to rules of some scopes; none means all.
//
// Check returns the violations of a plan, errors first, each at its level in
// force. A violation that holds already for what the resource had before, or for
// hosts that it does not touch, is at most a warning. A rule that is off, or that
// cannot be decided with the hosts at hand, returns nothing.
func Check(w World, p Plan, levels Levels, scopes ...Scope) []Finding { return check(w, p, levels, scopes) }

// All lists the rules in the order of the documentation.
func All() []Rule { return registry }

// Known tells whether there is a rule of that id.
func Known(id string) bool {
	for _, r := range registry {
		if r.ID == id {
			return true
		}
	}
	return false
}
