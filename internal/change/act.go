package change

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
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
)

// Values lists the acts (document.Enum).
func (Act) Values() []string { return []string{string(ActPending), string(ActStart), string(ActStop)} }

// ActOn is the change that does something once with the VM of an assignment, on behalf of who
// has claimed it. It disturbs nobody else.
func ActOn(act Act, c gpu.Claim) Change {
	ch := Change{Subject: fmt.Sprintf("gpu_vm_assignment for VM %q", c.Want.Assignment.VM), Owner: c.Owner, Token: c.Token, Want: c.Want, Prior: c.Want, Act: act}
	if c.Pending {
		ch.Prior.Assignment = c.Holds
	}
	ch.Approved = (&Approved{Keys: []string{}}).WithVMs(c.ID)
	return ch
}

const setPower = "set the VM's power state"

// power starts or shuts down a VM, as far as its assignment on record allows it.
func (p *planner) power(vm *gpu.VM, claim *gpu.Claim) error {
	switch {
	case vm == nil:
		return refuse(NotFound, "find the VM", "VM "+p.change.Want.Assignment.VM, "host %s has no such VM", p.host.Name)
	case claim == nil || claim.Want.Assignment == nil:
		return refuse(NotOwner, setPower, "VM "+vm.Name, "host %s has no record of an assignment of it", p.host.Name).or("assign a GPU to the VM first")
	}
	power := claim.Want.Assignment.Power
	switch stop := p.change.Act == ActStop; {
	case stop && vm.State == gpu.VMOff, !stop && vm.State == gpu.VMRunning:
	case !stop && vm.State == gpu.VMOff:
		power.StayOff = false // which is about changes
		p.start(vm, power)
	case !vm.Runs():
		return refuse(InvalidState, setPower, "VM "+vm.Name, "it is %s", vm.State).or("it must be running or off")
	case !power.AllowShutdown:
		return refuse(InvalidState, setPower, "VM "+vm.Name, "it runs, and its assignment does not allow a shutdown").
			or("set power.allow_shutdown = true, or shut the VM down yourself").of(VMMustBeOff)
	default:
		power.StayOff = true
		p.stop(vm, power)
	}
	return nil
}
