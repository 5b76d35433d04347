package main

import (
	"fmt"

	steps "github.com/gpufleet/terraform-provider-gpu/internal/change"
)

const (
	rules     = "internal/rules"
	whatif    = "internal/whatif"
	change    = "internal/change"
	agent     = "internal/agent"
	statedir  = "internal/agent/statedir"
	placement = "internal/placement"
	fleet     = "internal/fleet"
	provider  = "internal/provider"
)

// list are the places that matter: what a rule finds, how a step is put back, who may
// write, whose an object is, what is not known yet, and where things go.
func list() []mutation {
	var all []mutation
	// Every rule's check.
	for _, check := range []string{
		"checkCapacity", "checkMaintenanceWindow", "checkDDAXorPartition", "checkExistingPool", "checkFailoverHeadroom",
		"checkForeignController", "checkGPUAssignable", "checkGPUExists", "checkGeneration2", "checkHostdevManaged",
		"checkHomogeneousGPUs", "checkHomogeneousLayout", "checkKeptInitialized", "checkKindOnPlatform", "checkKnownConfig",
		"checkKnownPool", "checkLiveMigrationSupport", "checkMIGMode", "checkMIGPlacement",
		"checkMIGProfileSupported", "checkMPSInUse", "checkMPSNotOnMIG", "checkMPSOneUser", "checkMPSSupported",
		"checkNodeInService", "checkNotOurClaim", "checkNotParavirtual", "checkNothingSelected", "checkOSBuild",
		"checkOfflineAction", "checkOneConfigPerGPU", "checkPartitionInUse", "checkPinnedOnClustered",
		"checkPolicyGate", "checkPoolCounts", "checkPoolCoversOwners", "checkPoolOneMode", "checkPoolQuota",
		"checkSameHost", "checkShareRoom", "checkSharesUnder", "checkShutdownPermitted", "checkSinglePartition", "checkSupportedGuest",
		"checkTimeSlicingNoIsolation", "checkUniqueName", "checkVGPU", "checkVGPUInUse", "checkVGPUReferenced", "checkVMMustBeOff",
		"checkVMSettings", "checkVMXorShare", "checkVRAMMatchesPartition", "checkValidPartitionCount",
		"checkAgentKnows", "checkFeasible", "checkPartitionOfConfig", "checkReadable", "checkReadableRecords",
	} {
		all = append(all, mutation{in: rules, function: check})
	}
	// The inverse of every operation. Device nodes have none.
	for _, op := range steps.Ops() {
		if op == steps.OpRefreshDevices {
			continue
		}
		all = append(all, mutation{
			in: change, function: "inverse", from: `return back(host, s)`, to: fmt.Sprintf("if s.Op == %q { return nil }; return back(host, s)", op),
		})
	}
	return append(all, []mutation{
		{in: change, function: "readdAdapters"},
		{in: change, function: "readdDevices"},

		// What only the plans of a run show together.
		{in: rules, function: "StillUsed"},
		{in: rules, function: "checkPinned"},
		{in: whatif, function: "Drains.Orders"},
		{in: whatif, function: "EndsLayout"},
		{in: whatif, function: "Run.overtaken"},
		{in: whatif, function: "Run.leavesOver"},
		{in: whatif, function: "ordered", from: `return handsOver(user, used) || `, to: `return `},
		{in: "internal/gpu", function: "Refusals.Layout"},

		// What is handed over, and what was announced.
		{in: fleet, function: "Fleet.awaitSuccessor"},
		{in: fleet, function: "Fleet.AwaitNamed"},
		{in: fleet, function: "Fleet.comesLate"},
		{in: fleet, function: "Fleet.PlanDestroy", from: `l.book.Put(ch.Token, ch)`, to: ``},
		{in: fleet, function: "Fleet.PlanDestroy", from: `ch.Prior = without(ch.Prior, d.Approved.Handed)`, to: ``},
		{in: change, function: "planner.keepsTo"},

		// Which walk of Terraform a process serves, and whom it may ask.
		{in: provider, function: "walks.isOfAnotherWalk", from: `q.applying != w.applying`, to: `false`},
		{in: provider, function: "walks.isOfAnotherWalk", from: `!q.applying && w.asked[q.object]`, to: `false`},
		{in: provider, function: "walks.ReadResource", from: `w.asked[before] = true`, to: ``},
		{in: provider, function: "leavesOpen", from: `!v.IsKnown()`, to: `false`},
		{in: fleet, function: "Fleet.NoHosts"},

		// Whose a claim is.
		{in: change, function: "planner.owns", from: `return claim.Token == ch.Token, nil`, to: `return true, nil`},
		{in: change, function: "planner.owns", from: `claim.Owner != ch.Owner`, to: `false`},
		{in: change, function: "planner.owns", from: `case had:`, to: `case had && false:`},
		{in: change, function: "planner.owns", from: `case ch.Owner == "":`, to: `case false:`},
		{in: change, function: "WithClaims", from: `o.Revision > c.Revision`, to: `true`},
		{in: change, function: "sameClaim"},
		{in: change, function: "DropClaim"},

		// Who may write: leases, fences, and what another process does.
		{in: agent, function: "Server.pass"},
		{in: agent, function: "Server.standing", from: `l.Fence == fence && `, to: ``},
		{in: agent, function: "Server.standing", from: `st.Fence > fence`, to: `false`},

		// What is obeyed of what was written.
		{in: agent, function: "recordStore.idOf", from: `id != ""`, to: `true`},
		{in: agent, function: "Server.rewrite", from: `err == nil && id == e.ID`, to: `err == nil && id == e.ID || true`},

		// What a process does that lost its lease, and what a dead one left.
		{in: agent, function: "Server.recover"},
		{in: agent, function: "Server.note", from: `st.Fence > fence`, to: `true`},
		{in: agent, function: "journal.dead", from: `e.Run == lease.Run && `, to: ``},
		{in: agent, function: "journal.dead", from: `e.Status == applied`, to: `false`},
		{in: agent, function: "Server.settleOne", from: `w.hostIsBack = back`, to: `w.hostIsBack = back && false`},
		{in: agent, function: "entry.putBackOn", from: `change.Project(host, back)`, to: `host`},

		// Whose start is pending.
		{in: agent, function: "entry.pendingStarts"},
		{in: agent, function: "stillPending", from: `vm.Started() || `, to: `vm == nil || `},
		{in: agent, function: "stillPending", from: `c.Want.Assignment.Power.StayOff`, to: `false`},
		{in: agent, function: "Server.startPending"},
		{in: agent, function: "Server.checkCluster"},
		{in: agent, function: "Server.left"},
		{in: agent, function: "Server.endsIn", from: `l.Clock == clockOf(node)`, to: `true`},
		{in: agent, function: "Server.left", from: `g.lease.Ends != l.Ends`, to: `false`},
		{in: agent, function: "Server.tryLease", from: `l.Run != req.Run || `, to: ``},
		{in: agent, function: "Server.tryLease", from: `st.Fence++`, to: ``},
		{in: agent, function: "journal.busyElsewhere"},
		{in: agent, function: "Server.guarded", from: `s.write(st.Lease, "")`, to: ``},
		{in: agent, function: "Server.giveBack", from: `s.standing(st, fence) != ours`, to: `false`},
		{in: agent, function: "Server.leaveCluster", from: `len(st.Lease.Hosts) == 0`, to: `true`},
		{in: agent, function: "Server.renewCluster"},
		{in: agent, function: "keepApplied"},
		{in: statedir, function: "Dir.change", from: `replaceFile(d.statePath(), data)`, to: `error(nil)`},

		// Where things go.
		{in: placement, function: "checkMIGCounts"},
		{in: placement, function: "migWay.room"},
		{in: placement, function: "migScore.beats"},
		{in: placement, function: "migSearch.place", from: `spot.mask&taken != 0`, to: `false`},
		{in: placement, function: "checkPlaces"},
		{in: placement, function: "vgpuRoom"},
		{in: placement, function: "planVGPU", from: `len(held) > 0`, to: `false`},
		{in: placement, function: "planVGPU", from: `p.Switches(g) && len(by) > 0`, to: `p.Switches(g) && len(by) > 99`},
		{in: placement, function: "VGPUPlan.Cycles"},
		{in: placement, function: "mayLiveIn"},
		{in: placement, function: "perInstance"},
		{in: placement, function: "freeFunction", from: `i++`, to: `i += 2`},
		{in: placement, function: "SharedHost.checkQuota"},
		{in: placement, function: "Usage.Exceeds", from: `u.Shares > *q.Shares`, to: `false`},
		{in: placement, function: "Usage.Exceeds", from: `u.Memory > *q.Memory`, to: `false`},
		{in: placement, function: "Usage.Exceeds", from: `u.GPUs > *q.GPUs*(1+Tolerance)+Tolerance`, to: `false`},
		{in: placement, function: "hadAsMuch", from: `c.Token == token`, to: `true`},
		{in: placement, function: "WantsNoMore"},
		{in: placement, function: "missingPins"},
		{in: placement, function: "compareFit"},

		// What is not known yet.
		{in: provider + "/object", function: "Decode", from: `o.IsNull() || o.IsUnknown()`, to: `o.IsNull()`},
		{in: provider + "/partitionconfig", function: "Resource.declare", from: `plan.ID.IsUnknown() ||`, to: `false ||`},
		{in: provider + "/partitionconfig", function: "of", from: `!object.Known(c.Plan.GPUs) ||`, to: `false ||`},
		{in: provider + "/pool", function: "Resource.declare", from: `plan.ID.IsUnknown() ||`, to: `false ||`},
		{in: provider + "/pool", function: "of", from: `c.Plan.GPUs.IsUnknown()`, to: `false`},
		{in: provider + "/vmassignment", function: "Resource.compute", from: `state != nil && plan.VM.IsUnknown()`, to: `false`},
		{in: provider + "/lifecycle", function: "plan", from: `!p.Known || s.Fleet.Unknown()`, to: `!p.Known`},
		{in: provider + "/share", function: "model.replaces", from: `case m.Count.IsUnknown():`, to: `case false:`},
		{in: provider + "/share", function: "model.keepPlanned", from: `!planned.Devices.IsUnknown()`, to: `true`},
		{in: provider, function: "gpuProvider.Configure", from: `m.Hosts.IsUnknown()`, to: `false`},
		{in: provider, function: "gpuProvider.Configure", from: `m.Owner.IsUnknown()`, to: `false`},
		{in: provider, function: "gpuProvider.Configure", from: `!object.Known(m.Power, m.Rules, m.MaintenanceWindow)`, to: `false`},
	}...)
}
