package fakewmi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// clusterSources make the instances of root\MSCluster. They are the same on all nodes.
func clusterSources() sources {
	return sources{
		"MSCluster_Cluster":                 (*view).clusters,
		"MSCluster_Node":                    (*view).clusterNodes,
		"MSCluster_ResourceGroup":           (*view).groups,
		"MSCluster_Resource":                (*view).clusterResources,
		"MSCluster_ClusterSharedVolume":     (*view).sharedVolumes,
		"MSCluster_ResourceToPossibleOwner": (*view).possibleOwners,
		"MSCluster_ClusterToNode":           (*view).clusterToNode,
		"MSCluster_ResourceGroupToResource": (*view).groupToResource,
	}
}

// domain is that of every cluster.
const domain = "corp.example.com"

func (v *view) clusters() []*Object {
	name := v.host.Cluster.Name
	return []*Object{v.make("MSCluster_Cluster", fields{
		"CreationClassName": "MSCluster_Cluster", "Name": name, "Fqdn": name + "." + domain,
		"ClusterFunctionalLevel": 12, "DrainOnShutdown": 1, "SharedVolumesRoot": sharedVolumes,
	})}
}

// Values of MSCluster_Node.State and NodeDrainStatus.
var nodeStates = map[gpu.NodeState]int{
	gpu.NodeUp: 0, gpu.NodeDown: 1, gpu.NodePaused: 2, gpu.NodeDraining: 2, gpu.NodeJoining: 3,
}

const (
	drainInProgress = 1
	drainCompleted  = 2
	drainFailed     = 3
)

func (v *view) clusterNodes() []*Object {
	var out []*Object
	for i, n := range v.host.Cluster.Nodes {
		f := fields{
			"CreationClassName": "MSCluster_Node", "Name": n.Name, "Id": fmt.Sprint(i + 1), "State": nodeStates[n.State],
			"NodeDrainStatus": 0, "NodeWeight": 1, "BuildNumber": v.host.OS.Build,
		}
		switch n.State {
		case gpu.NodeDraining:
			f["NodeDrainStatus"] = drainInProgress
		case gpu.NodePaused:
			f["NodeDrainStatus"] = drainCompleted
			if v.keepsVMs(n.Name) {
				f["NodeDrainStatus"] = drainFailed
			}
		}
		out = append(out, v.make("MSCluster_Node", f))
	}
	return out
}

// keepsVMs tells whether clustered VMs run on a node, from which a drain has moved all
// that could be moved.
func (v *view) keepsVMs(node string) bool {
	for _, h := range v.nodes {
		if gpu.SameID(h.Name, node) {
			return slices.ContainsFunc(h.VMs, func(vm gpu.VM) bool { return vm.Clustered && vm.Runs() })
		}
	}
	return false
}

// coreOwner is the node that runs what belongs to the cluster itself.
func (v *view) coreOwner() string {
	for _, n := range v.host.Cluster.Nodes {
		if n.State != gpu.NodeDown {
			return n.Name
		}
	}
	return v.host.Name
}

// role is a clustered VM: its group and its resources.
type role struct {
	node  string
	vm    *gpu.VM
	group string
	// number is the VM's among those of the cluster.
	number int
}

func (r role) resource() string      { return "Virtual Machine " + r.group }
func (r role) configuration() string { return "Virtual Machine Configuration " + r.group }

// roles are the clustered VMs of all nodes. The name of a group is that of its VM, with
// a number if it is taken.
func (v *view) roles() []role {
	var out []role
	taken := map[string]int{}
	for i := range v.nodes {
		node := &v.nodes[i]
		for j := range node.VMs {
			vm := &node.VMs[j]
			if !vm.Clustered {
				continue
			}
			taken[fold(vm.Name)]++
			r := role{node: node.Name, vm: vm, group: vm.Name, number: len(out)}
			if n := taken[fold(vm.Name)]; n > 1 {
				r.group = fmt.Sprintf("%s (%d)", vm.Name, n)
			}
			out = append(out, r)
		}
	}
	return out
}

// Values of GroupType.
const (
	coreGroup           = 1
	virtualMachineGroup = 111
)

// Values of the state of groups and of resources.
const (
	groupOnline     = 0
	groupOffline    = 1
	groupPending    = 4
	resourceOnline  = 2
	resourceOffline = 3
	onlinePending   = 129
	offlinePending  = 130
)

func (v *view) groups() []*Object {
	const class = "MSCluster_ResourceGroup"
	out := []*Object{v.make(class, fields{
		"Name": "Cluster Group", "Id": derivedGUID("group"), "GroupType": coreGroup, "OwnerNode": v.coreOwner(),
		"State": groupOnline, "IsCore": true,
	})}
	for _, r := range v.roles() {
		group, _ := v.states(r.vm)
		out = append(out, v.make(class, fields{
			"Name": r.group, "Id": strings.ToLower(derivedGUID("group", r.vm.ID)), "GroupType": virtualMachineGroup, "OwnerNode": r.node,
			"State": group, "IsCore": false, "Priority": 2000, "PersistentState": group == groupOnline,
		}))
	}
	return out
}

// states are the state of a VM's group and of its resource, as far as the cluster knows. A
// saved VM is offline.
func (v *view) states(vm *gpu.VM) (group, resource int) {
	online := holdsMemory(vm)
	known := v.machine.unrest.takes(vm.ID, online, false)
	switch {
	case !known:
		return groupOffline, resourceOffline
	case online && vm.State == gpu.VMStarting:
		return groupPending, onlinePending
	case online && vm.State == gpu.VMStopping:
		return groupPending, offlinePending
	default:
		return groupOnline, resourceOnline
	}
}

// Types of resources.
const (
	vmResource            = "Virtual Machine"
	configurationResource = "Virtual Machine Configuration"
)

var offlineActions = map[gpu.OfflineAction]int{
	gpu.OfflineTurnOff: 0, gpu.OfflineSave: 1, gpu.OfflineShutDown: 2, gpu.OfflineForcedShutdown: 3,
}

func (v *view) clusterResources() []*Object {
	const class = "MSCluster_Resource"
	out := []*Object{v.make(class, fields{
		"Name": "Cluster IP Address", "Id": strings.ToLower(derivedGUID("address")), "Type": "IP Address",
		"OwnerGroup": "Cluster Group", "OwnerNode": v.coreOwner(), "State": resourceOnline, "CoreResource": true,
	})}
	for _, r := range v.roles() {
		_, state := v.states(r.vm)
		action := offlineActions[gpu.OfflineSave]
		if a := r.vm.Settings.OfflineAction; a != nil {
			action = offlineActions[*a]
		}
		private := v.embed("MSCluster_Property", fields{
			"VmID": r.clusterID(), "OfflineAction": action, "ShutdownAction": 0, "CheckHeartbeat": 1, "VmStoreRootPath": `C:\ClusterStorage\Volume1`,
		})
		out = append(out,
			v.make(class, fields{
				"Name": r.resource(), "Id": strings.ToLower(derivedGUID("resource", r.vm.ID)), "Type": vmResource,
				"OwnerGroup": r.group, "OwnerNode": r.node, "State": state, "CoreResource": false, "PrivateProperties": private,
			}),
			v.make(class, fields{
				"Name": r.configuration(), "Id": strings.ToLower(derivedGUID("configuration", r.vm.ID)), "Type": configurationResource,
				"OwnerGroup": r.group, "OwnerNode": r.node, "State": resourceOnline, "CoreResource": false,
				"PrivateProperties": v.embed("MSCluster_Property", fields{"VmID": r.clusterID(), "VmStoreRootPath": `C:\ClusterStorage\Volume1`}),
			}))
	}
	return out
}

// clusterID is a VM's id as its resource spells it. Who created the resource decides
// how: any case, with braces or without.
func (r role) clusterID() string {
	switch r.number % 3 {
	case 0:
		return strings.ToLower(r.vm.ID)
	case 1:
		return "{" + strings.ToUpper(r.vm.ID) + "}"
	default:
		return strings.ToUpper(r.vm.ID)
	}
}

// sharedVolumes is where the cluster's shared volumes are, on every node.
const sharedVolumes = `C:\ClusterStorage`

func (v *view) sharedVolumes() []*Object {
	var out []*Object
	for _, path := range v.machine.faults.clusterVolumes() {
		out = append(out, v.make("MSCluster_ClusterSharedVolume", fields{
			"Name": path, "VolumeName": `\\?\Volume{` + strings.ToLower(derivedGUID("volume", path)) + `}\`, "FaultState": 0,
		}))
	}
	return out
}

// possibleOwners are, for each VM, the nodes that may run it. A VM that nobody
// restricted has all.
func (v *view) possibleOwners() []*Object {
	var out []*Object
	for _, resource := range v.instances("MSCluster_Resource") {
		for _, node := range v.instances("MSCluster_Node") {
			if v.mayOwn(resource, node.text("Name")) {
				out = append(out, v.link("MSCluster_ResourceToPossibleOwner", "GroupComponent", resource, "PartComponent", node))
			}
		}
	}
	return out
}

func (v *view) mayOwn(resource *Object, node string) bool {
	for _, r := range v.roles() {
		if name := resource.text("Name"); name == r.resource() || name == r.configuration() {
			owners := r.vm.PossibleOwners
			return len(owners) == 0 || slices.ContainsFunc(owners, func(o string) bool { return gpu.SameID(o, node) })
		}
	}
	return true
}

func (v *view) clusterToNode() []*Object {
	var out []*Object
	for _, cluster := range v.instances("MSCluster_Cluster") {
		for _, node := range v.instances("MSCluster_Node") {
			out = append(out, v.link("MSCluster_ClusterToNode", "Antecedent", cluster, "Dependent", node))
		}
	}
	return out
}

func (v *view) groupToResource() []*Object {
	var out []*Object
	for _, group := range v.instances("MSCluster_ResourceGroup") {
		for _, resource := range v.instances("MSCluster_Resource") {
			if resource.text("OwnerGroup") == group.text("Name") {
				out = append(out, v.link("MSCluster_ResourceGroupToResource", "GroupComponent", group, "PartComponent", resource))
			}
		}
	}
	return out
}
