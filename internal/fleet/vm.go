package fleet

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// FoundVM is a VM and the host that owns it now.
type FoundVM struct {
	Host string
	VM   *gpu.VM
}

// AmbiguousVMError is a name that several VMs have.
type AmbiguousVMError struct {
	Name  string
	Found []FoundVM
}

func (e *AmbiguousVMError) Error() string {
	list := words.Each(e.Found, func(f FoundVM) string { return fmt.Sprintf("%s on %s (id %s)", words.Name(f.VM.Name), f.Host, f.VM.ID) })
	return fmt.Sprintf("several VMs are called %q: %s", e.Name, strings.Join(list, ", "))
}

var guid = regexp.MustCompile(`^\{?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?$`)

// IsVMID tells whether a reference to a VM is an id rather than a name.
func IsVMID(ref string) bool { return guid.MatchString(ref) }

// VMID is a VM id without the braces that some tools print around it.
func VMID(ref string) string { return strings.Trim(ref, "{}") }

// FindVM finds a VM by id or name among the hosts of a view. The error is a
// *VMGoneError when no host has it, and an *AmbiguousVMError for a name that
// several VMs have.
func FindVM(v View, ref string) (FoundVM, error) {
	var found []FoundVM
	var names []string
	if v.index == nil {
		names = slices.Sorted(maps.Keys(v.Hosts))
	} else {
		names, _ = v.index.VMs(VMID(ref), ref)
		names = slices.Compact(slices.DeleteFunc(names, func(name string) bool { return v.Hosts[name] == nil }))
	}
	// A node that cannot read its cluster may show VMs that are elsewhere by now.
	slices.SortStableFunc(names, func(a, b string) int { return clusterUnknown(v.Hosts[a]) - clusterUnknown(v.Hosts[b]) })
	for _, name := range names {
		h := v.Hosts[name]
		for i := range h.VMs {
			vm := &h.VMs[i]
			if gpu.SameID(vm.ID, VMID(ref)) {
				return FoundVM{Host: name, VM: vm}, nil
			}
			if gpu.SameID(vm.Name, ref) {
				found = append(found, FoundVM{Host: name, VM: vm})
			}
		}
	}
	switch len(found) {
	case 0:
		for name, h := range v.Hosts {
			if u, unknown := h.UnknownVM(ref); unknown {
				v.doubt(name, u)
			}
		}
		return FoundVM{}, &VMGoneError{VM: ref, Silent: v.Silent()}
	case 1:
		return found[0], nil
	default:
		return FoundVM{}, &AmbiguousVMError{Name: ref, Found: found}
	}
}

func clusterUnknown(h *gpu.Host) int {
	if _, unknown := h.UnknownPart(gpu.PartCluster); unknown {
		return 1
	}
	return 0
}

// LookForVM looks at the hosts on which a VM may be: the named hosts, the nodes of a
// cluster, or else first the hosts of hint with their cluster and then every host.
func (f *Fleet) LookForVM(ctx context.Context, ref string, hosts []string, cluster string, hint []string) (View, FoundVM, error) {
	if at, ok := f.lastSeen(ref, hosts, cluster, hint); ok {
		v := f.LookAround(ctx, []string{at})
		if found, err := FindVM(v, ref); err == nil && found.Host == at {
			return v, found, nil
		}
	}
	switch {
	case len(hosts) > 0:
		v := f.Look(ctx, hosts)
		found, err := FindVM(v, ref)
		return v, found, err
	case cluster != "":
		all := f.LookAll(ctx)
		members, unknown := f.ClusterHosts(all, cluster)
		v := f.Look(ctx, slices.Concat(members, unknown))
		found, err := FindVM(v, ref)
		return v, found, err
	}
	if len(hint) > 0 {
		v := f.LookAround(ctx, hint)
		if found, err := FindVM(v, ref); err == nil {
			return v, found, nil
		}
	}
	v := f.LookAll(ctx)
	found, err := FindVM(v, ref)
	return v, found, err
}

// lastSeen is the host that had a VM when this run looked, if it has looked at all hosts and
// no other one of those in question has one by that name. To look through all hosts for each
// VM of a large fleet would take longer than all the rest.
func (f *Fleet) lastSeen(ref string, hosts []string, cluster string, hint []string) (string, bool) {
	on, looked := f.seen.VMs(VMID(ref), ref)
	if looked < len(f.hosts) {
		return "", false
	}
	in := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(on), func(host string) bool { return !slices.Contains(names, host) })
	}
	switch {
	case cluster != "":
		return "", false
	case len(hosts) > 0:
		on = in(hosts)
	case len(on) > 1:
		if near := in(hint); len(near) > 0 {
			on = near
		}
	}
	if len(on) != 1 {
		return "", false
	}
	return on[0], true
}

// RecordOf is the claim for a VM where it belongs: on its host, or in its cluster; where the
// nodes have no records in common, on any of them.
func RecordOf(v View, at FoundVM) (*gpu.Claim, bool) {
	host := v.Hosts[at.Host]
	if c, ok := host.Claim(gpu.ClaimAssignment, at.VM.ID); ok || host.Cluster == nil || host.Cluster.Records {
		return c, ok
	}
	for _, name := range slices.Sorted(maps.Keys(v.Hosts)) {
		if h := v.Hosts[name]; h.Cluster != nil && gpu.SameID(h.Cluster.Name, host.Cluster.Name) {
			if c, ok := h.Claim(gpu.ClaimAssignment, at.VM.ID); ok {
				return c, true
			}
		}
	}
	return nil, false
}

// Claims are the claims for an object, by host.
func (v View) Claims(kind gpu.ClaimKind, id string) iter.Seq2[string, *gpu.Claim] {
	return func(yield func(string, *gpu.Claim) bool) {
		var names []string
		if v.index == nil {
			names = slices.Sorted(maps.Keys(v.Hosts))
		} else {
			names = slices.DeleteFunc(v.index.Claimed(kind, id), func(name string) bool { return v.Hosts[name] == nil })
		}
		for _, name := range names {
			if c, ok := v.Hosts[name].Claim(kind, id); ok && !yield(name, c) {
				return
			}
		}
	}
}

// Claim is the newest claim for an object on any host.
func (v View) Claim(kind gpu.ClaimKind, id string) (newest gpu.Claim, ok bool) {
	for _, c := range v.Claims(kind, id) {
		if !ok || c.Revision > newest.Revision {
			newest, ok = *c, true
		}
	}
	return newest, ok
}
