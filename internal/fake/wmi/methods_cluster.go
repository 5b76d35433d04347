package fakewmi

import (
	"context"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func nodeOperations() map[string]operation {
	return map[string]operation{
		"Pause":  (*invocation).pauseNode,
		"Resume": (*invocation).resumeNode,
	}
}

func groupOperations() map[string]operation {
	return map[string]operation{
		"BringOnline":   (*invocation).bringGroupOnline,
		"TakeOffline":   (*invocation).takeGroupOffline,
		"MoveToNewNode": (*invocation).moveGroup,
	}
}

func resourceOperations() map[string]operation {
	return map[string]operation{
		"BringOnline":          (*invocation).bringResourceOnline,
		"TakeOffline":          (*invocation).takeResourceOffline,
		"UpdateVirtualMachine": (*invocation).updateVirtualMachine,
	}
}

// Codes of the cluster service, as HRESULTs.
const (
	fileNotFoundCode  hyperv.Code = 0x80070002 // ERROR_FILE_NOT_FOUND
	nodeNotFound      hyperv.Code = 0x800713B2 // ERROR_CLUSTER_NODE_NOT_FOUND
	sharingPaused     hyperv.Code = 0x80070046 // ERROR_SHARING_PAUSED
	invalidOperation  hyperv.Code = 0x800710DD // ERROR_INVALID_OPERATION
	resourceNotOnline hyperv.Code = 0x8007138C // ERROR_RESOURCE_NOT_ONLINE
)

func (c *invocation) nodeClusterState() error {
	state, set := c.machine.faults.clusterService()
	if !set {
		state = ClusterRunning
	}
	return c.out.Set("ClusterState", int64(state))
}

// role is the VM that a group or a resource is for.
func (c *invocation) role(fits func(role) bool) (role, error) {
	for _, r := range c.roles() {
		if fits(r) {
			return r, nil
		}
	}
	return role{}, fault(invalidOperation, "%s is of no virtual machine", c.target.text("Name"))
}

func (c *invocation) groupRole() (role, error) {
	return c.role(func(r role) bool { return r.group == c.target.text("Name") })
}

func (c *invocation) resourceRole() (role, error) {
	return c.role(func(r role) bool { return r.resource() == c.target.text("Name") })
}

func (c *invocation) bringGroupOnline() error    { return c.online(c.groupRole()) }
func (c *invocation) bringResourceOnline() error { return c.online(c.resourceRole()) }
func (c *invocation) takeGroupOffline() error    { return c.offline(c.groupRole()) }
func (c *invocation) takeResourceOffline() error { return c.offline(c.resourceRole()) }

// online starts a VM on its node. A node that is paused takes no new ones.
func (c *invocation) online(r role, err error) error {
	if err != nil {
		return err
	}
	if state := c.stateOf(r.node); state != gpu.NodeUp {
		return fault(sharingPaused, "node %s is %s (%v)", r.node, state, sharingPaused)
	}
	if c.machine.unrest.takes(r.vm.ID, holdsMemory(r.vm), false) {
		return nil
	}
	engine, err := c.machine.fleet.Host(r.node)
	if err != nil {
		return err
	}
	if err := engine.StartVM(c.ctx, r.vm.ID); err != nil {
		return err
	}
	c.machine.unrest.takes(r.vm.ID, true, true)
	return nil
}

func (c *invocation) stateOf(node string) gpu.NodeState {
	for _, n := range c.host.Cluster.Nodes {
		if gpu.SameID(n.Name, node) {
			return n.State
		}
	}
	return gpu.NodeDown
}

// offline stops a VM as its offline action says.
func (c *invocation) offline(r role, err error) error {
	if err != nil {
		return err
	}
	if !holdsMemory(r.vm) {
		return nil
	}
	engine, err := c.machine.fleet.Host(r.node)
	if err != nil {
		return err
	}
	action := gpu.OfflineSave
	if r.vm.Settings.OfflineAction != nil {
		action = *r.vm.Settings.OfflineAction
	}
	switch action {
	case gpu.OfflineTurnOff:
		return engine.TurnOffVM(c.ctx, r.vm.ID)
	case gpu.OfflineShutDown, gpu.OfflineForcedShutdown:
		return engine.ShutDownVM(c.ctx, r.vm.ID, action == gpu.OfflineForcedShutdown)
	default:
		if len(r.vm.PartitionAdapters)+len(r.vm.Devices) > 0 {
			return fault(resourceNotOnline, "the VM has GPUs assigned and cannot be saved")
		}
		return c.machine.fleet.SetVMState(c.ctx, r.vm.ID, gpu.VMSaved)
	}
}

// moveGroup moves a VM to another node.
func (c *invocation) moveGroup() error {
	r, err := c.groupRole()
	if err != nil {
		return err
	}
	return c.move(r, c.in.text("NodeName"))
}

func (c *invocation) move(r role, node string) error {
	if !slices.ContainsFunc(c.nodes, func(h gpu.Host) bool { return gpu.SameID(h.Name, node) }) {
		return fault(nodeNotFound, "the cluster has no node %s", node)
	}
	if state := c.stateOf(node); state != gpu.NodeUp {
		return fault(sharingPaused, "node %s is %s (%v)", node, state, sharingPaused)
	}
	return c.machine.fleet.MoveVM(c.ctx, r.vm.ID, node)
}

// Values of Pause's DrainType and Resume's FailbackType.
const (
	noDrain    = 0
	failBack   = 1
	noFailBack = 0
)

// pauseNode pauses a node. With a drain its VMs move away, one after the other; the
// call does not wait for that.
func (c *invocation) pauseNode() error {
	node := c.target.text("Name")
	target := c.in.text("TargetNode")
	if target != "" && c.stateOf(target) != gpu.NodeUp {
		return fault(nodeNotFound, "node %s cannot take the VMs", target)
	}
	drain, _ := c.in.number("DrainType")
	fleet := c.machine.fleet
	if drain == noDrain {
		return fleet.SetNodeState(c.ctx, node, gpu.NodePaused)
	}
	if err := fleet.SetNodeState(c.ctx, node, gpu.NodeDraining); err != nil {
		return err
	}
	var leave []role
	for _, r := range c.roles() {
		if gpu.SameID(r.node, node) && holdsMemory(r.vm) {
			leave = append(leave, r)
		}
	}
	c.machine.jobs.begin(c.method.Name, 0, c.machine.faults.time(), func(ctx context.Context) error {
		var moved []string
		for _, r := range leave {
			for _, to := range c.destinations(r, node, target) {
				if fleet.LiveMigrate(ctx, r.vm.ID, to) == nil {
					moved = append(moved, r.vm.ID)
					break
				}
			}
		}
		if err := fleet.EditSimulation(ctx, node, func(s *simulated.Simulation) { s.Drained = moved }); err != nil {
			return err
		}
		return finishDrain(ctx, fleet, node)
	})
	return nil
}

// finishDrain ends a drain, unless the node was resumed in the meantime.
func finishDrain(ctx context.Context, fleet *others.Fleet, node string) error {
	all, err := fleet.Snapshot(ctx)
	if err != nil {
		return err
	}
	for i := range all.Hosts {
		if gpu.SameID(all.Hosts[i].Name, node) && all.Hosts[i].NodeState() == gpu.NodeDraining {
			return fleet.SetNodeState(ctx, node, gpu.NodePaused)
		}
	}
	return nil
}

// destinations are the nodes that a VM may move to.
func (c *invocation) destinations(r role, from, target string) []string {
	var out []string
	for _, n := range c.host.Cluster.Nodes {
		allowed := len(r.vm.PossibleOwners) == 0 ||
			slices.ContainsFunc(r.vm.PossibleOwners, func(o string) bool { return gpu.SameID(o, n.Name) })
		if allowed && n.State == gpu.NodeUp && !gpu.SameID(n.Name, from) && (target == "" || gpu.SameID(n.Name, target)) {
			out = append(out, n.Name)
		}
	}
	return out
}

// resumeNode resumes a node. With a failback the VMs come back that its drain has moved.
func (c *invocation) resumeNode() error {
	kind, _ := c.in.number("FailbackType")
	if kind != noFailBack && kind != failBack {
		return fault(invalidMethodParameters, "there is no failback type %d", kind)
	}
	return c.machine.fleet.Resume(c.ctx, c.target.text("Name"), kind == failBack)
}

// updateVirtualMachine refreshes the cluster's copy of a VM's configuration, which here
// is always that of its node.
func (c *invocation) updateVirtualMachine() error {
	_, err := c.role(func(r role) bool { return r.configuration() == c.target.text("Name") })
	return err
}
