// Package fastpath answers for resources beside the framework, in a fraction of its time.
//
// # What it replaces, and why
//
// The framework (v1.19.0) walks through each value a dozen times on the way to a resource and back: for blocks, defaults, write-only
// attributes, plan modifiers and values that are as good as equal. At every step it copies all attributes of the schema. That is
// most of what a plan takes: Terraform and the provider plan 400 new assignments with 1.3 s of CPU with this package and with 2.4 s
// without it, and 400 that stay as they are with 2.2 s and 3.8 s, some 3 to 4 ms for each resource. Hardly anybody notices with a hundred
// resources, and everybody does with ten thousand.
//
// The package answers these calls by itself, and no others:
//
//   - UpgradeResourceState (upgrade.go) of a state of the schema's own version: it comes back as it came, in the encoding of all
//     other answers, which Terraform reads in a third of the time.
//   - ValidateResourceConfig (validate.go) of a configuration without a fault: the resource's own validators are asked. What is wrong
//     with another configuration the framework says.
//   - ReadResource, PlanResourceChange of what is new or stays as it is, and ApplyResourceChange of what is new (server.go).
//
// An update, a destroy, an import, a state of another version and whatever cannot be read go to the framework. It also gives
// the calls their contexts (contexts.go), which the framework would remember until the process ends.
//
// Package object, which reads plans and states into structs, does not belong to it: resources use that on either way.
//
// # What keeps it right
//
// An answer is the framework's answer, byte for byte but for what is random in it. Three things hold the package to that:
//
//   - The guard (guard.go) looks at the schema of each type when the provider starts. A type stays here only if this package knows all
//     that its schema says: kinds of attributes, plan modifiers that leave alone what is new and what stays, no defaults, no
//     write-only attributes, no blocks, no types of its own, nothing computed in the elements of a collection. Any other type is the
//     framework's, which is slower and right. With TF_LOG_PROVIDER=info the provider says of which types that is so, and why.
//   - TestAnswersAreTheFrameworks and TestAnswersToAnythingAreTheFrameworks, in package provider, ask the framework whatever they ask
//     this package, on real and on random states, and compare. TestEveryResourceIsOnTheFastPath fails where the guard
//     has taken a type off: teach the package what the type has, and the random test to make it; or take the type off that list.
//   - Nothing here depends on whether somebody reads logs, so that a fault is the same with TF_LOG set.
//
// A new release of the framework may do more at a call than this one does. The tests above show it where schemas have it; a new field
// of an attribute, the guard does not know.
//
// # How to turn it off
//
// With GPU_FAST_PATH=off in its environment the provider answers all calls by the framework alone. Nothing else changes, so that a
// difference between the two is a fault of this package. Whoever deletes the package deletes three lines of Server in package
// provider, and what InContext does there, at the price above.
package fastpath

import "os"

// EnvFastPath is the environment variable that turns the package off, where it is EnvOff.
const (
	EnvFastPath = "GPU_FAST_PATH"
	EnvOff      = "off"
)

// Off reports whether all answers are to be the framework's.
func Off() bool { return os.Getenv(EnvFastPath) == EnvOff }
