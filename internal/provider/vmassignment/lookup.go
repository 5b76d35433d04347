package vmassignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// find resolves the VM for a plan that changes something.
func (r *Resource) find(
	ctx context.Context, plan *model, want gpu.Assignment, prior *gpu.Assignment, diags *diag.Diagnostics,
) (fleet.View, fleet.FoundVM, bool) {
	hosts, cluster := r.within(ctx, plan, diags)
	if diags.HasError() {
		return fleet.View{}, fleet.FoundVM{}, false
	}
	if want.Reserves() {
		return r.findReserved(ctx, reserving{want: want, prior: prior, hosts: hosts, cluster: cluster}, diags)
	}
	ref, hint := want.VM, r.hint(want)
	if prior != nil {
		hint = append(hint, prior.Host)
		if prior.VM == want.VM { // the same VM, whatever it is called now
			ref, hosts, cluster, hint = prior.VMID, nil, "", []string{prior.Host}
		}
	}
	search := fleet.VMSearch{VM: ref, Cluster: cluster, Hint: hint}
	view := r.Fleet.Snapshot(ctx, hosts, fleet.ForVM(search))
	at, err := search.In(view)
	if err != nil {
		if cluster != "" && len(view.Hosts) == 0 && view.Complete() {
			scope.UnknownCluster(r.Fleet, r.Fleet.Snapshot(ctx, r.Fleet.HostNames()), cluster, diags)
			return view, at, false
		}
		held := ""
		if prior != nil {
			held = prior.Host
		}
		r.notFound(diags, want.VM, view, err, held)
		return view, at, false
	}
	at.Among = slices.AppendSeq(slices.Collect(maps.Keys(view.Hosts)), maps.Keys(view.Errors))
	// Rules need the whole cluster of the VM, and to say that a config is unknown all hosts.
	around := r.Fleet.Snapshot(ctx, r.Fleet.Peers(view, []string{at.Host}))
	maps.Copy(around.Hosts, view.Hosts)
	if want.Partition != nil && slices.ContainsFunc(want.Partition.ConfigIDs(), func(id string) bool {
		_, planned := r.Fleet.Ledger.Config(id)
		_, claimed := around.Claim(gpu.ClaimConfig, id)
		return !planned && !claimed
	}) {
		around = r.Fleet.Snapshot(ctx, r.Fleet.HostNames())
	}
	if want.Device != nil && !r.Fleet.Has(want.Device.Host) {
		diags.AddAttributeError(path.Root("device"), "Unknown host", fmt.Sprintf(
			"Found: device.host is %q, which is not a host of the provider; it knows %s.\nFix: %s", want.Device.Host,
			words.Some(want.Device.Host, r.Fleet.HostNames()), words.Meant(want.Device.Host, r.Fleet.HostNames(), "Correct the name.")))
		return around, at, false
	}
	return around, at, true
}

// within reads where the configuration says to look.
func (r *Resource) within(ctx context.Context, m *model, diags *diag.Diagnostics) (hosts []string, cluster string) {
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, types.ObjectNull(scope.SelectorType), diags)
	for _, n := range s.Hosts {
		if !r.Fleet.Has(n) {
			diags.AddAttributeError(path.Root("hosts"), "Unknown host", scope.UnknownHost(r.Fleet, n))
		}
	}
	return s.Hosts, s.Cluster
}

func (r *Resource) notFound(diags *diag.Diagnostics, ref string, v fleet.View, err error, held string) {
	var ambiguous *fleet.AmbiguousVMError
	var gone *fleet.VMGoneError
	switch {
	case errors.As(err, &ambiguous) && ambiguous.SameID():
		diags.AddAttributeError(path.Root("vm"), "Several hosts show this VM", fmt.Sprintf(
			"%s\n\nFound: %v.\nWanted: A VM is on one host, or moves between the nodes of one cluster.\n"+
				"Fix: Say with hosts which one is meant. Then remove the copy "+
				"from the host where it does not belong, or take a host that shows VMs that are not there out of the provider's hosts.", label(ref),
			words.Capital(err.Error())))
	case errors.As(err, &ambiguous):
		diags.AddAttributeError(path.Root("vm"), "VM name is not unique", fmt.Sprintf(
			"%s\n\nFound: %v.\nFix: Write the VM's id, or say where to look with hosts or cluster.", label(ref), words.Capital(err.Error())))
	case errors.As(err, &gone) && len(gone.Copies) > 0:
		diags.AddAttributeError(path.Root("vm"), "Only a replica of the VM was found", fmt.Sprintf(
			"%s\n\nFound: %v.\nFix: Add the host that has the VM itself to the provider's hosts, or fail the VM over to the replica first.",
			label(ref), words.Capital(err.Error())))
	case v.Complete() && (r.Fleet.Ledger.Deleted(ref) || recorded(v, ref)):
		// An error would keep the rest of the state from being changed, and all of it from being destroyed.
		diags.AddAttributeWarning(path.Root("vm"), "The VM was deleted", fmt.Sprintf(
			"%s\n\nFound: None of the hosts %s has the VM of this assignment any more.\nFix: Remove the resource from the configuration, "+
				"or make the VM again: until then an apply of this resource fails. All else, and `terraform destroy`, goes on without it.",
			label(ref), words.Join(slices.Sorted(maps.Keys(v.Hosts)))))
	case v.Complete():
		diags.AddAttributeError(path.Root("vm"), "VM does not exist", fmt.Sprintf(
			"%s\n\nFound: None of the hosts %s has a VM with the name or id %q.\nFix: %s "+
				"For a VM that is made in the same run, refer to its "+
				"resource's id: it is unknown until the VM exists, and this check then waits for it.", label(ref),
			words.Join(slices.Sorted(maps.Keys(v.Hosts))), ref, strings.TrimSpace(v.VMMeant(ref)+" Correct the name.")))
	default:
		report.Unreachable(diags, r.Fleet, label(ref), v, held)
	}
}

// recorded tells whether a host still has the record of an assignment of a VM that no host has any more, by its name or id: an earlier
// run has taken it out of the state.
func recorded(v fleet.View, ref string) bool {
	for _, h := range v.Hosts {
		for c := range h.ClaimsOf(gpu.ClaimAssignment) {
			a := c.Want.Assignment
			if _, err := fleet.FindVM(v, c.ID); err == nil {
				continue // it is there, under another name
			}
			if gpu.SameID(c.ID, ref) || a != nil && (gpu.SameID(a.VM, ref) || gpu.SameID(a.VMName, ref)) {
				return true
			}
		}
	}
	return false
}

// hint is where a VM's partition configs are: the VM is most likely there.
func (r *Resource) hint(a gpu.Assignment) []string {
	if a.Host != "" {
		return []string{a.Host}
	}
	hosts := map[string]bool{}
	if a.Partition != nil {
		for _, id := range a.Partition.ConfigIDs() {
			if c, ok := r.Fleet.Ledger.Config(id); ok && c.Want.Config != nil {
				for host := range c.Want.Config.GPUs {
					hosts[host] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// configChanges tells whether this run changes the layout that the VM's partition
// comes from: then the VM gets another partition, though nothing of the assignment
// itself changes.
func (r *Resource) configChanges(a gpu.Assignment) bool {
	return a.Partition != nil && slices.ContainsFunc(a.Partition.ConfigIDs(), r.Fleet.Ledger.Reshaped)
}
