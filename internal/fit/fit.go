// Package fit finds which layout of which GPUs holds given demands, and is pure: with the fewest GPUs, then with the fewest
// changes, and with hosts to spare. What a GPU can be cut into it asks of internal/placement and of what hosts report, as the plan does.
package fit

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Kind is what a demand asks for.
type Kind string

// Kinds of demands.
const (
	Partitions Kind = "gpu_p" // partitions of GPU-P
	Instances  Kind = "mig"   // MIG instances of one profile
	Shares     Kind = "share" // parts of a GPU's memory and threads, under MPS
	Whole      Kind = "gpu"   // whole GPUs, those of one unit on one host
)

// kinds are all of them, as texts list them.
var kinds = []Kind{Partitions, Instances, Shares, Whole}

// Demand is a number of units that are alike.
type Demand struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	Kind  Kind   `json:"kind"`
	// VRAMMiB is the least memory of a partition, 0 for any.
	VRAMMiB int64 `json:"vram_mib,omitempty"`
	// Profile is that of the MIG instances.
	Profile string `json:"profile,omitempty"`
	// MemoryMiB and Threads, a percentage, are what a share takes of a GPU. Without threads it is not held to a part of them.
	MemoryMiB int64   `json:"memory_mib,omitempty"`
	Threads   float64 `json:"threads,omitempty"`
	// GPUs is how many whole GPUs one unit has, on one host.
	GPUs int `json:"gpus,omitempty"`
	// Label says for whom it is, for people.
	Label string `json:"label,omitempty"`
}

// Options are what is wanted beside the demands.
type Options struct {
	// SpareHosts is how many hosts may fail at once while the layouts of the others still hold all demands.
	SpareHosts int `json:"spare_hosts,omitempty"`
	// Keep is what there is; nil for what the hosts show.
	Keep Layouts `json:"keep,omitempty"`
}

// Layouts are those of GPUs, by host and GPU id.
type Layouts map[string]map[string]Layout

// Layout is one GPU's, with the blocks of gpu_partition_config; a whole GPU has none of them.
type Layout struct {
	Kind gpu.Kind `json:"kind"` // of the partition config, or WholeGPU
	GPUP *GPUP    `json:"gpu_p,omitempty"`
	MIG  *MIG     `json:"mig,omitempty"`
	MPS  *MPS     `json:"mps,omitempty"`
}

// WholeGPU is the kind of the layout of a GPU that is given out whole.
const WholeGPU gpu.Kind = "gpu"

// GPUP is a number of partitions.
type GPUP struct {
	PartitionCount int `json:"partition_count"`
}

// MIG is numbers of instances by profile.
type MIG struct {
	Profiles map[string]int `json:"profiles"`
}

// MPS is shared by processes.
type MPS struct {
	MultiUser bool `json:"multi_user"`
}

// Place is where one unit of a demand goes. Unit names the part: a partition or a share by its number on the GPU, an instance
// as "3g.40gb@4", and a whole GPU as "gpu".
type Place struct {
	Host string `json:"host"`
	GPU  string `json:"gpu_id"`
	Unit string `json:"unit"`
}

// Unused is a GPU that nothing was placed on.
type Unused struct {
	Host  string `json:"host"`
	GPU   string `json:"gpu_id"`
	Model string `json:"model"`
}

// Result is what was found.
type Result struct {
	// Fits is nil where it was not found out: a place was not found for all, and that there is none was not proved.
	Fits *bool `json:"fits"`
	// Layouts are those of the GPUs in use, and of others that must not stay as they are beside them.
	Layouts Layouts `json:"layouts"`
	// Configs are the partition configs that make them, by name.
	Configs    map[string]Config  `json:"configs"`
	Placements map[string][]Place `json:"placements"`
	Missing    map[string]int     `json:"missing"`
	Reason     string             `json:"reason"`
	Unused     []Unused           `json:"unused"`
	// Remaining is what still fits beside on the GPUs in use, each alone: by MIG profile, and partitions, shares and whole GPUs
	// by their kind.
	Remaining map[string]int `json:"remaining"`
	// GPUs is how many are in use, and AtLeast what is proved to be needed. Where they differ nobody knows whether fewer would do.
	GPUs    int `json:"gpus"`
	AtLeast int `json:"gpus_at_least"`
	// Changes is how many GPUs get another layout than they have.
	Changes int `json:"changes"`
}

// exactGPUs is up to how many GPUs all layouts are searched, within the budget.
const exactGPUs = 64

// Solve finds the layouts. An error is about what was asked, and names it.
func Solve(hosts []gpu.Host, demands []Demand, options Options) (Result, error) {
	p, err := newProblem(hosts, demands, options)
	if err != nil {
		return Result{}, err
	}
	return p.solve(), nil
}

func (p *problem) solve() Result {
	need := p.counts()
	best, found := p.find(need)
	verdict := &found
	var missing []int
	if !found {
		best, missing = p.partly(need)
		if !p.impossible(need) && !best.exhausted {
			verdict = nil
		}
	}
	out := p.result(best, missing)
	out.Fits = verdict
	out.Reason = p.reason(verdict, best, missing)
	return out
}

// find is the best solution for the units of each type, and whether there is one.
func (p *problem) find(need []int) (*solution, bool) {
	best := p.greedy(need)
	atLeast := p.atLeast(need)
	if len(p.gpus) <= exactGPUs && (best == nil || best.used > atLeast || best.changes > p.leastChanges(best.used)) && !p.impossible(need) {
		if best != nil && best.used > atLeast {
			atLeast = max(atLeast, p.apart(need))
		}
		best = p.search(need, best, atLeast)
	}
	if best == nil {
		return &solution{exhausted: p.searched}, false
	}
	best.atLeast = max(best.atLeast, min(atLeast, best.used))
	return best, true
}

// apart is how many GPUs are needed at least, by what each kind needs alone: a GPU is of one kind.
func (p *problem) apart(need []int) int {
	total := 0
	for _, kind := range kinds {
		only := make([]int, len(need))
		for _, t := range p.of[kind] {
			only[t] = need[t]
		}
		least := p.atLeast(only)
		if best := p.greedy(only); best != nil && best.used > least && p.wants(kind, only) {
			if best = p.search(only, best, least); p.searched {
				least = best.used
			}
		}
		total += least
	}
	return total
}

// partly places as many units as it can, and says of each type how many have no place.
func (p *problem) partly(need []int) (*solution, []int) {
	exhausted := p.searched
	got := p.greedyPart(need)
	if p.spare > 0 {
		got = p.mostOf(need)
	}
	missing := make([]int, len(need))
	for t := range need {
		missing[t] = need[t] - got[t]
	}
	for t := range need {
		for tries := 0; missing[t] > 0 && len(p.gpus) <= exactGPUs && tries < 8 && p.nodes > 0; tries++ {
			got[t]++
			if _, fits := p.find(got); !fits {
				got[t]--
				break
			}
			missing[t]--
		}
	}
	best, found := p.find(got)
	if !found {
		best = &solution{roles: make([]role, len(p.gpus)), units: make([][]load, len(p.gpus))}
		copy(missing, need)
	}
	best.exhausted = exhausted
	return best, missing
}

// mostOf is the most units of each type, one type after the other, that have a place whichever hosts fail.
func (p *problem) mostOf(need []int) []int {
	got := make([]int, len(need))
	for _, kind := range slices.Backward(kinds) {
		for _, t := range p.of[kind] {
			got[t] = sort.Search(need[t], func(n int) bool {
				with := slices.Clone(got)
				with[t] = n + 1
				_, fits := p.find(with)
				return !fits
			})
		}
	}
	return got
}

// String is for texts: "4 partitions", "1g.10gb + 2 x 3g.40gb", "mps", "gpu".
func (l Layout) String() string {
	switch {
	case l.GPUP != nil:
		return fmt.Sprintf("%d partitions", l.GPUP.PartitionCount)
	case l.MIG != nil:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(l.MIG.Profiles)) {
			parts = append(parts, fmt.Sprintf("%d x %s", l.MIG.Profiles[name], name))
		}
		return strings.Join(parts, " + ")
	case l.MPS != nil:
		return "shared by MPS"
	case l.Kind != WholeGPU:
		return string(l.Kind)
	}
	return "whole"
}

// Check finds a layout whose kind and block do not go together.
func (l Layout) Check() error {
	for kind, has := range map[gpu.Kind]bool{gpu.KindGPUP: l.GPUP != nil, gpu.KindMIG: l.MIG != nil, gpu.KindMPS: l.MPS != nil} {
		if has != (l.Kind == kind) {
			return fmt.Errorf("kind is %q; it must be gpu_p, mig or mps with the block of that name, or gpu without any", l.Kind)
		}
	}
	if known := []gpu.Kind{gpu.KindGPUP, gpu.KindMIG, gpu.KindMPS, WholeGPU}; !slices.Contains(known, l.Kind) {
		return fmt.Errorf("kind is %q; it must be gpu_p, mig, mps or gpu", l.Kind)
	}
	return nil
}
