package rules

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
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

// label names the plan's resource for people.
func (r *run) label() string { return whatif.Label(r.Plan) }

// both names the two sides of a conflict in the same order whoever reports it.
func (r *run) both(e *whatif.Entry) string {
	pair := []string{r.label(), whatif.Label(e.Plan)}
	if pair[0] == pair[1] {
		return "Two instances of " + pair[0]
	}
	slices.Sort(pair)
	return pair[0] + " and " + pair[1]
}

// wayOut ends the advice on a conflict inside one configuration: the plan of a
// plain destroy refreshes and plans the conflicting configuration first.
const wayOut = " To destroy a configuration that has this conflict, run `terraform destroy -refresh=false`."
