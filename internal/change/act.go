package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Act is what is done once with an object that stays as it is declared.
type Act string

// Acts.
const (
	// ActPending makes a change that waits for a VM's next power-off now.
	ActPending Act = "apply_pending"
	// ActStart and ActStop start and shut down a VM that has an assignment.
	ActStart Act = "start_vm"
	ActStop  Act = "stop_vm"
	// ActDrain and ActResume take a cluster node that has a partition config out of service,
	// whose VMs go on elsewhere, and back into it.
	ActDrain  Act = "drain_host"
	ActResume Act = "resume_host"
	// ActRestart starts the MPS daemons of a partition config on a host again.
	ActRestart Act = "restart_mps"
)

var (
	vmActs     = []Act{ActPending, ActStart, ActStop}
	configActs = []Act{ActDrain, ActResume, ActRestart}
)

// Values lists the acts (document.Enum).
func (Act) Values() []string {
	return words.Each(slices.Concat(vmActs, configActs), func(a Act) string { return string(a) })
}

// OnNode tells whether an act is about the cluster node and not about its GPUs.
func (a Act) OnNode() bool { return a == ActDrain || a == ActResume }

// isOn tells whether an act is done with what is wanted.
func (a Act) isOn(w gpu.Want) bool {
	return slices.Contains(vmActs, a) && w.Assignment != nil || slices.Contains(configActs, a) && w.Config != nil
}

// ClaimFor is the claim of the partition config by which something is done on a host: of those
// that belong to an owner, or to whomever with "*", the one of that id, or for a node with "" one
// that allows to drain it, if any does.
func (a Act) ClaimFor(host *gpu.Host, owner, id string) (found gpu.Claim, ok bool) {
	for _, c := range host.Claims {
		switch config := c.Want.Config; {
		case c.Kind != gpu.ClaimConfig || config == nil || owner != "*" && c.Owner != owner:
		case id != "" && !gpu.SameID(c.ID, id), a.OnNode() && config.Kind != gpu.KindGPUP:
		case !ok || config.Drain && !found.Want.Config.Drain:
			found, ok = c, true
		}
	}
	return found, ok
}

// ActOn is the change that does something once with the object of a claim, on behalf of who has
// claimed it. Of VMs it disturbs that of the claim only.
func ActOn(act Act, c gpu.Claim) Change {
	if c.Want.Config != nil {
		return Change{
			Subject: fmt.Sprintf("gpu_partition_config %q", c.Want.Config.ID), Owner: c.Owner, Token: c.Token, Want: c.Want, Prior: c.Want, Act: act,
		}
	}
	ch := Change{
		Subject: fmt.Sprintf("gpu_vm_assignment for VM %q", c.Want.Assignment.VM), Owner: c.Owner, Token: c.Token,
		Want: c.Want, Prior: c.Want, Act: act,
	}
	if c.Pending && act == ActPending {
		ch.Prior.Assignment = c.HeldUntilOff
	}
	ch.Approved = (&Approved{Keys: []string{}}).WithVMs(c.ID)
	return ch
}

const setPower = "set the VM's power state"

// power starts or shuts down a VM, as far as its assignment on record allows it.
func (p *planner) power(vm *gpu.VM, claim *gpu.Claim) error {
	switch {
	case vm == nil:
		return refuse(gpu.NotFound, "find the VM", vmText(p.change.Want.Assignment.VM), "the host has no such VM")
	case claim == nil || claim.Want.Assignment == nil:
		return refuse(gpu.NotOwner, setPower, vmText(vm.Name), "the host has no record of an assignment of it").Or("assign a GPU to the VM first")
	}
	power := claim.Want.Assignment.Power
	switch stop := p.change.Act == ActStop; {
	case stop && vm.State == gpu.VMOff, !stop && vm.State == gpu.VMRunning:
	case !stop && vm.State == gpu.VMOff:
		power.StayOff = false // which is about changes
		p.start(vm, power)
	case !vm.Runs():
		return refuse(gpu.InvalidState, setPower, vmText(vm.Name), "it is %s", vm.State).Or("it must be running or off")
	case !power.AllowShutdown:
		return refuse(gpu.InvalidState, setPower, vmText(vm.Name), "it runs, and its assignment does not allow a shutdown").
			Or("set power.allow_shutdown = true, or shut the VM down yourself").OfRule(VMMustBeOff)
	default:
		power.StayOff = true
		p.stop(vm, power)
	}
	return nil
}

// actOnConfig does something once by a config on record, as far as that allows it.
func (p *planner) actOnConfig(id string, claim *gpu.Claim) error {
	switch {
	case claim == nil || claim.Want.Config == nil:
		return refuse(gpu.NotOwner, "act on the config", "host "+p.host.Name, "it has no record of %s", DescribeObject(gpu.ClaimConfig, id)).
			Or("apply the config first")
	case p.change.Act.OnNode():
		return p.node(claim.Want.Config)
	}
	return p.restartDaemons(claim)
}

// node takes the host out of its cluster's service, or back into it. No VM is stopped for that.
func (p *planner) node(config *gpu.PartitionConfig) error {
	const op = "be drained or resumed"
	whole, state := "host "+p.host.Name, p.host.NodeState()
	why := p.change.Undrained[p.key]
	if why == "" {
		why = WhyNotDrained(&p.host)
	}
	switch {
	case p.host.Cluster == nil:
		return refuse(gpu.NotSupported, op, whole, "it is in no cluster")
	case state != gpu.NodeUp && state != gpu.NodePaused:
		return refuse(gpu.InvalidState, op, whole, "its node is %s", state).Or("wait until it is up or paused")
	case p.change.Act == ActResume && state == gpu.NodePaused:
		p.add(Step{Op: OpResumeNode})
	case p.change.Act == ActResume, state == gpu.NodePaused && len(movable(&p.host)) == 0:
	case !config.Drain:
		return refuse(gpu.InvalidState, op, whole, "no gpu_partition_config of this owner there allows it to be drained").
			Or("set rollout = { drain = true } in the config and apply that first")
	case why != "":
		return refuse(gpu.InvalidState, op, whole, "its VMs cannot move to other nodes: %s", why).
			Or("remove the cause, or shut down or move these VMs yourself")
	default:
		p.add(Step{Op: OpDrainNode})
	}
	return nil
}

// restartDaemons starts the MPS daemons of a config again, and those that do not run. Their
// clients end, if the config allows that.
func (p *planner) restartDaemons(claim *gpu.Claim) error {
	const op = "restart the MPS daemons"
	config := claim.Want.Config
	s := sharingChange{planner: p, limit: config.MaxDisruption}
	daemons := placement.Daemons(&p.host, config, claim.GPUs)
	switch {
	case len(daemons) == 0:
		return refuse(gpu.NotSupported, op, "host "+p.host.Name, "%s has no MPS daemon there", DescribeObject(gpu.ClaimConfig, claim.ID))
	case p.host.MPS == nil || p.host.MPS.Program == "":
		return refuse(gpu.NotSupported, op, "host "+p.host.Name, "nvidia-cuda-mps-control is not installed").Or("install it with NVIDIA's driver")
	}
	for _, id := range claim.GPUs {
		if why := p.unservable(config, id); why != "" {
			return refuseGPU(gpu.InvalidState, op, id, "%s", why).Or("apply the config first, which puts that right or says what is in the way")
		}
	}
	for i := range daemons {
		if d, there := p.host.Daemon(daemons[i].Name); there {
			s.ends = append(s.ends, Step{Op: OpRemoveDaemon, Daemon: &gpu.MPSDaemonSpec{Name: d.Name}, Force: s.endsClients(d, op)})
		}
		s.starts = append(s.starts, Step{Op: OpEnsureDaemon, Daemon: &daemons[i]})
	}
	p.add(s.order()...)
	for i := range daemons {
		p.add(rewritten(&p.host, daemons[i].Name)...)
	}
	return nil
}

// unservable says why a daemon could not start on a GPU of its config as that is now, "" if it can.
func (p *planner) unservable(config *gpu.PartitionConfig, id string) string {
	g, ok := p.host.GPU(id)
	switch {
	case !ok:
		return "the host has no such GPU"
	case g.Dismounted:
		return "it is dismounted from the host"
	case !kinds[config.Kind].has(config, g):
		return "it is not as " + DescribeObject(gpu.ClaimConfig, config.ID) + " declares"
	}
	if others := placement.ForeignDaemons(&p.host, g); len(others) > 0 {
		return strings.Join(others, ", ") + " serves it already"
	}
	return ""
}
