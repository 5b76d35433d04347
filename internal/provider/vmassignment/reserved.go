package vmassignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// reserving is a vGPU that is to be reserved, and where the configuration has it looked for.
type reserving struct {
	want    gpu.Assignment
	prior   *gpu.Assignment
	hosts   []string
	cluster string
}

// findReserved finds the host on which a vGPU is reserved: that of the VM while one has it, else the one that has the
// reservation, else the only one that the configuration names.
func (r *Resource) findReserved(ctx context.Context, of reserving, diags *diag.Diagnostics) (fleet.View, fleet.FoundVM, bool) {
	hosts := of.hosts
	if len(hosts) == 0 && of.cluster == "" {
		hosts = r.configHosts(ctx, of.want)
	}
	if len(hosts) == 0 {
		hosts = r.Fleet.HostNames()
	}
	view := r.Fleet.Snapshot(ctx, hosts)
	want, prior := of.want, of.prior
	if prior != nil && (!prior.Reserves() || prior.VM != want.VM) {
		prior = nil
	}
	at, err := fleet.FindVM(view, want.VM)
	switch _, gone := errors.AsType[*fleet.VMGoneError](err); {
	case err == nil:
		want.Host = at.Host
	case !gone:
		r.notFound(diags, want.VM, view, err, "")
		return view, fleet.FoundVM{}, false
	case prior != nil && slices.Contains(hosts, prior.Host):
		want.Host = prior.Host
	case len(hosts) == 1:
		want.Host = hosts[0]
	default:
		slices.Sort(hosts)
		diags.AddAttributeError(path.Root("vm"), "The host of the reservation is not known", fmt.Sprintf(
			"%s\n\nFound: No host that answers has a VM with the name or id %q, and the vGPU could be of any of the hosts %s.\n"+
				"Wanted: A vGPU is reserved on the host of its VM, or, while there is no VM, on one that is named.\n"+
				"Fix: Name the one on which the VM will be, as in hosts = [%q].", label(want.VM), want.VM, words.Join(hosts), hosts[0]))
		return view, fleet.FoundVM{}, false
	}
	if err, silent := view.Errors[want.Host]; silent {
		report.Unreachable(diags, r.Fleet, label(want.VM), fleet.View{Errors: map[string]error{want.Host: err}}, want.Host)
		return view, fleet.FoundVM{}, false
	}
	switch {
	case prior != nil:
		want.VMID = prior.VMID // under which it is on record, whatever VM has come since
	case at.VM != nil:
		want.VMID = at.VM.ID
	default:
		want.VMID = want.VM
	}
	found, err := fleet.FindAssigned(view, &want)
	if err != nil {
		r.notFound(diags, want.VM, view, err, "")
		return view, found, false
	}
	found.Among = slices.AppendSeq(slices.Collect(maps.Keys(view.Hosts)), maps.Keys(view.Errors))
	around := r.Fleet.Snapshot(ctx, r.Fleet.HostNames(), fleet.Cached)
	maps.Copy(around.Hosts, view.Hosts)
	around.Errors = view.Errors
	return around, found, true
}

// configHosts are the hosts of the configs that an assignment names, as the run plans them or hosts have them on record.
func (r *Resource) configHosts(ctx context.Context, a gpu.Assignment) []string {
	hosts := map[string]bool{}
	for _, id := range a.Partition.ConfigIDs() {
		if c, ok := r.Fleet.Ledger.Config(id); ok {
			for host, ids := range c.Want.Config.GPUs {
				hosts[host] = hosts[host] || len(ids) > 0
			}
			continue
		}
		for host := range r.Fleet.Snapshot(ctx, r.Fleet.HostNames()).Claims(gpu.ClaimConfig, id) {
			hosts[host] = true
		}
	}
	maps.DeleteFunc(hosts, func(_ string, has bool) bool { return !has })
	return slices.Sorted(maps.Keys(hosts))
}

// reservation is the one that a state is of. Of an imported state only its record tells that it is one.
func (r *Resource) reservation(ctx context.Context, state *model, diags *diag.Diagnostics) (*gpu.Assignment, bool) {
	a := gpu.Assignment{VM: state.VM.ValueString(), VMID: state.VMID.ValueString(), Host: state.OwnerHost.ValueString()}
	if !state.Partition.IsNull() {
		a.Partition = state.declared(ctx, r.Fleet.Power(), diags).Partition
		return &a, a.Reserves()
	}
	if !state.Pool.IsNull() || !state.Device.IsNull() {
		return nil, false
	}
	_, c, ok := recordedReservation(r.Fleet.Snapshot(ctx, []string{a.Host}), a.VMID)
	if !ok {
		return nil, false
	}
	a.Partition = c.Want.Assignment.Partition
	return &a, true
}

// recordedReservation is the record that a host has of a reservation of an id.
func recordedReservation(v fleet.View, id string) (host string, claim *gpu.Claim, ok bool) {
	for host, c := range v.Claims(gpu.ClaimAssignment, id) {
		if c.Want.Assignment.Reserves() {
			return host, c, true
		}
	}
	return "", nil, false
}

// lookAtReservation looks at the host that has the reservation, and tells where its VM is by now, if that is another one.
func (r *Resource) lookAtReservation(
	ctx context.Context, a *gpu.Assignment, diags *diag.Diagnostics,
) (view fleet.View, at fleet.FoundVM, found bool) {
	view = r.Fleet.Snapshot(ctx, []string{a.Host})
	if !r.Fleet.Has(a.Host) {
		view.Errors[a.Host] = &fleet.UnknownHostError{Host: a.Host, Known: r.Fleet.HostNames()}
	}
	at, err := fleet.FindAssigned(view, a)
	if err != nil {
		report.Unreachable(diags, r.Fleet, label(a.VM), view, a.Host)
		return view, at, false
	}
	search := fleet.VMSearch{VM: a.VM, Hint: []string{a.Host}}
	if is, err := search.In(r.Fleet.Snapshot(ctx, nil, fleet.ForVM(search))); err == nil && is.Host != a.Host {
		diags.AddAttributeWarning(path.Root("vm"), "The VM is not where its vGPU is reserved", fmt.Sprintf(
			"%s\n\nHost: %s\nFound: The vGPU is reserved on this host, and the VM is on %s.\n"+
				"Fix: Replace the assignment (`-replace`), which reserves one where the VM is, or move the VM back.", label(a.VM), a.Host, is.Host))
	}
	return view, at, true
}

// importReserved finds a reservation by its id, where no VM has it.
func (r *Resource) importReserved(ctx context.Context, ref string, hosts []string) (fleet.FoundVM, bool) {
	if len(hosts) == 0 {
		hosts = r.Fleet.HostNames()
	}
	v := r.Fleet.Snapshot(ctx, hosts)
	host, c, ok := recordedReservation(v, ref)
	if !ok {
		return fleet.FoundVM{}, false
	}
	return fleet.FoundVM{Host: host, VM: &gpu.VM{ID: c.ID, Name: c.Want.Assignment.VM}}, true
}
