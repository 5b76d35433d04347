package rules

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Short names for what every rule says.
var (
	join     = words.Join
	joinAll  = words.JoinAll
	quoteAll = words.QuoteAll
	capital  = words.Capital
	plural   = words.Plural
	verb     = words.Verb
)

func quote(s string) string { return strconv.Quote(s) }

// hostText is `host "hv01"`.
func hostText(key string) string { return "host " + quote(key) }

// gpuText is `GPU PCIROOT(16)#PCI(0000) (NVIDIA A2)`.
func gpuText(g *gpu.GPU) string { return "GPU " + g.ID + " (" + cmp.Or(g.Model, "unknown model") + ")" }

// gpuOn is gpuText with the host.
func gpuOn(host string, g *gpu.GPU) string { return gpuText(g) + " on " + hostText(host) }

// vmText is `VM "avd-02"`.
func vmText(vm *gpu.VM) string { return "VM " + quote(cmp.Or(vm.Name, vm.ID)) }

// vmWritten names an assignment's VM when the VM itself is not at hand.
func vmWritten(a *gpu.Assignment) string {
	return cmp.Or(a.VMName, a.VM, a.VMID)
}

// label names the plan's resource for people.
func (r *run) label() string { return labelOf(r.plan) }

func labelOf(p change.Change) string {
	if p.Subject != "" {
		return p.Subject
	}
	w := p.Want
	if w.Empty() {
		w = p.Prior
	}
	switch {
	case w.Config != nil:
		return "gpu_partition_config " + quote(w.Config.ID)
	case w.Pool != nil:
		return "gpu_pool " + quote(w.Pool.Name)
	case w.Assignment != nil:
		return "gpu_vm_assignment for VM " + quote(vmWritten(w.Assignment))
	case w.Share != nil:
		return "gpu_share " + quote(w.Share.Name)
	}
	return "a resource of this run"
}

// both names the two sides of a conflict in the same order whoever reports it.
func (r *run) both(e *entry) string {
	pair := []string{r.label(), labelOf(e.plan)}
	if pair[0] == pair[1] {
		return "Two instances of " + pair[0]
	}
	slices.Sort(pair)
	return pair[0] + " and " + pair[1]
}

// wayOut ends the advice on a conflict inside one configuration: the plan of a
// plain destroy refreshes and plans the conflicting configuration first.
const wayOut = " To destroy a configuration that has this conflict, run `terraform destroy -refresh=false`."

// sortedKeys are the keys of a map. Every rule asks for them, of maps that are mostly empty or
// have one: an iterator would take five allocations for what takes one.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	if len(m) == 0 {
		return nil
	}
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
