package change

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Plan works out the steps that make a host as a change wants it: only what differs.
// The host carries the claims that other hosts hold for its VMs. The rules have been
// asked; what is checked here again is what would stop somebody's VM or touch
// somebody's object.
//
// The key is the caller's name for the host, by which the wants know it. With Refusals it
// returns the steps that are refused, as far as they are known.
func Plan(host gpu.Host, key string, ch Change) ([]Step, error) {
	p, err := planOn(host, key, ch)
	return p.steps, err
}

// After returns the host as a change would leave it, and why the host does not let it.
func After(host gpu.Host, key string, ch Change) (gpu.Host, error) {
	p, err := planOn(host, key, ch)
	if err == nil && p.after != nil {
		return *p.after, nil
	}
	return ProjectAll(host, p.steps), err
}

// planOn plans a change. Where a config cannot be put right on some GPUs, they stay as they are and the others are put right.
func planOn(host gpu.Host, key string, ch Change) (*planner, error) {
	p := &planner{host: host, key: key, change: ch.On(key)}
	err := p.plan()
	if ids := p.mayStay(); len(ids) > 0 {
		rest := &planner{host: host, key: key, change: p.change, stay: ids, left: p.refused}
		if rest.plan() == nil && slices.ContainsFunc(rest.steps, func(s Step) bool { return s.Claim == nil }) {
			return rest, nil
		}
	}
	return p, err
}

// mayStay are the GPUs of a config that all refusals are about, if the change would only put right what differs there; none where
// something else is refused. A daemon of MPS may serve several GPUs, which are then one.
func (p *planner) mayStay() (ids []string) {
	want, wanted := configOn(p.change.Want.Config, p.key)
	claim, _ := p.host.Claim(gpu.ClaimConfig, want.ID)
	if !wanted || claim == nil || p.change.Act != "" || want.MPS != nil || !sameLayout(claim.Want.Config, &want) {
		return nil
	}
	for _, r := range p.refused {
		if r.Code == gpu.Unannounced || r.Restores != "" || !claim.Covers(r.GPU) || !gpu.HasID(want.GPUs[p.key], r.GPU) {
			return nil
		}
		ids = append(ids, r.GPU)
	}
	return ids
}

func (p *planner) plan() error {
	host, key, ch := p.host, p.key, p.change
	if ch.Unchanged {
		return nil
	}
	if r := fits(&host, key, ch); r != nil {
		return gpu.Refusals{r}
	}
	var err error
	switch {
	case ch.Act != "" && !ch.Act.isOn(ch.Want) && !ch.ClaimOnly:
		err = refuseFor(gpu.BadRequest, "%s is done with a VM's assignment or a partition config, and the change has none", ch.Act)
	case ch.Want.Config != nil || ch.Want.Empty() && ch.Prior.Config != nil:
		err = p.config()
	case ch.Want.Pool != nil || ch.Want.Empty() && ch.Prior.Pool != nil:
		err = p.pool()
	case ch.Want.Share != nil || ch.Want.Empty() && ch.Prior.Share != nil:
		err = p.share()
	default:
		err = p.assignment()
	}
	if err == nil && len(p.refused) == 0 {
		err = cmp.Or(p.stepsKnown(), p.keepsTo(ch.Approved))
	}
	if err == nil && len(p.refused) == 0 {
		err = p.feasible()
	}
	if r := gpu.RefusalOf(err); r != nil {
		p.refuse(r)
	}
	if len(p.refused) > 0 {
		return p.refused
	}
	return err
}

// fits tells whether a host is of the platform that has what a change wants.
func fits(host *gpu.Host, key string, ch Change) *gpu.Refusal {
	names := map[gpu.Platform]string{gpu.HyperV: "Hyper-V", gpu.Linux: "Linux"}
	var need gpu.Platform
	var op string
	switch c := ch.Want.Config; {
	case ch.Want.Empty() || ch.ClaimOnly || c != nil && len(c.GPUs[key]) == 0:
		return nil
	case c != nil:
		need, op = kinds[c.Kind].platform, kinds[c.Kind].op
	case ch.Want.Pool != nil:
		return nil // both have pools, each of its own sort
	case ch.Want.Share != nil:
		need, op = gpu.Linux, placeShare
	default:
		op = "give a VM a GPU"
		if why, fix := Unfit(host.Platform, ch.Want.Assignment); why != "" {
			return refuse(gpu.NotSupported, op, "host "+host.Name, "%s", why).Or("%s", fix)
		}
		return isManaged(host, ch.Want.Assignment)
	}
	if host.Platform == need {
		return nil
	}
	return refuse(gpu.NotSupported, op, "host "+host.Name, "it runs %s, and this requires %s", names[host.Platform], names[need])
}

// planner collects the steps of one change to one host.
type planner struct {
	host   gpu.Host
	key    string
	change Change
	steps  []Step
	// refused is all that stands in the way.
	refused gpu.Refusals
	// stay are GPUs of a config that stay as they are, and left is why. It is also why GPUs are not mounted back.
	stay  []string
	left  gpu.Refusals
	after *gpu.Host // the steps, if nothing does
}

// Change is what one resource wants of hosts, or had and gives up. It is checked at plan,
// made by the fleet, and planned and carried out by each host that it concerns.
type Change struct {
	// Subject names the resource for people, by type and key attributes, the same whichever
	// side of a conflict reports it: `gpu_vm_assignment for VM "avd-02"`.
	Subject string `json:"subject"`
	Owner   string `json:"owner,omitempty"` // the name of the state in claims
	// Token is the resource instance's token; "" when it has none yet. On a create or update
	// the claim gets it; on a delete the claim must have it (or Adopt must be set) or nothing
	// is done.
	Token string `json:"token"`
	// Adopt is true of an object that was imported and that no host holds a claim for. That
	// another resource of the run has it did not stand before, and a delete acts without a claim.
	Adopt bool `json:"adopt,omitempty"`
	// Want is what shall be; empty on a delete, or when a host leaves the object.
	Want gpu.Want `json:"want"`
	// Prior is what the resource had; empty on a create.
	Prior gpu.Want `json:"prior"`
	// ClaimOnly writes or drops the claim and touches nothing else.
	ClaimOnly bool `json:"claim_only,omitempty"`
	// Incomplete marks the claim when the resource as a whole did not succeed.
	Incomplete bool `json:"incomplete,omitempty"`
	// Act is what is done once with an object that stays as it is declared; "" for nothing.
	Act Act `json:"act,omitempty"`
	// Unchanged is true when the run leaves the resource as it is: no host hears of it, and
	// what is wrong stood before, unless another change of the run brings it about.
	Unchanged bool `json:"-"`
	// Replaces is true when Terraform ends what Prior says before it makes what Want says,
	// also where the two look alike.
	Replaces bool `json:"-"`
	// Undrained are nodes, by the caller's names, that a config is not to drain, and why.
	Undrained map[string]string `json:"undrained,omitempty"`
	// Approved is what the change may disturb, nil for all that its policies allow.
	Approved *Approved `json:"approved,omitempty"`
}

func (p *planner) add(s ...Step) { p.steps = append(p.steps, s...) }

func (p *planner) put(c gpu.Claim) { p.add(Step{Op: OpPutClaim, Claim: &c}) }

// putOver writes a claim in the place of another one, nil for none, where that changes anything:
// what is made anew is of this boot.
func (p *planner) putOver(old *gpu.Claim, c gpu.Claim) {
	if old == nil || !sameClaim(*old, c) || len(p.steps) > 0 && old.Boot != c.Boot {
		p.put(c)
	}
}

func (p *planner) drop(c gpu.Claim) { p.add(Step{Op: OpDropClaim, Claim: &c}) }

// dropOnly tells whether a delete only takes the claim away: it was asked to, or a
// failed change left the object half done and nobody knows what of it is ours.
func (p *planner) dropOnly(claim *gpu.Claim) bool {
	return p.change.ClaimOnly || claim != nil && claim.Incomplete
}

// stop plans to stop a VM. The caller has made sure that it may.
func (p *planner) stop(vm *gpu.VM, power gpu.Power) {
	p.add(Step{Op: OpStopVM, VM: vm.ID, Name: vm.Name, Power: &power})
}

// start plans to start a VM again, unless its owner wants it to stay off.
func (p *planner) start(vm *gpu.VM, power gpu.Power) {
	if !power.StayOff {
		p.add(Step{Op: OpStartVM, VM: vm.ID, Name: vm.Name, Power: &power})
	}
}

// vmNames names VMs for people. A VM that the host does not list goes by its id.
func (p *planner) vmNames(ids []string) string { return vmNames(&p.host, ids) }

func vmNames(host *gpu.Host, ids []string) string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if vm, ok := host.VM(id); ok {
			id = vm.Name
		}
		if name := strconv.Quote(id); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return words.Join(names)
}

func vmText(name string) string { return "VM " + strconv.Quote(name) }

// vmTexts are VMs as they are named in lists: `VM "avd-01"`.
func (p *planner) vmTexts(ids []string) []string {
	out := words.Each(ids, func(id string) string { return "VM " + p.vmNames([]string{id}) })
	slices.Sort(out)
	return slices.Compact(out)
}

// holders are the VMs that hold partitions of a GPU now.
func holders(g *gpu.GPU) []string {
	if g.Partitionable == nil {
		return nil
	}
	return words.Each(g.Partitionable.Partitions, func(part gpu.Partition) string { return part.VMID })
}

// sameIDs compares two lists of ids as sets.
func sameIDs(a, b []string) bool {
	return !slices.ContainsFunc(a, func(id string) bool { return !gpu.HasID(b, id) }) &&
		!slices.ContainsFunc(b, func(id string) bool { return !gpu.HasID(a, id) })
}
