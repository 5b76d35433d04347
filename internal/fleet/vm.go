package fleet

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// FoundVM is a VM and the host that owns it now.
type FoundVM struct {
	Host string
	VM   *gpu.VM
	// Among are the hosts that count for where the VM is; nil means all.
	Among []string
}

// AmbiguousVMError is a name that several VMs have, or an id that hosts show which are not nodes
// of one cluster.
type AmbiguousVMError struct {
	Name  string
	Found []FoundVM
}

// SameID reports whether two of the VMs have one id, so that the id does not tell them apart.
func (e *AmbiguousVMError) SameID() bool {
	for i, f := range e.Found {
		if slices.ContainsFunc(e.Found[:i], func(o FoundVM) bool { return gpu.SameID(o.VM.ID, f.VM.ID) }) {
			return true
		}
	}
	return false
}

func (e *AmbiguousVMError) Error() string {
	list := words.Each(e.Found, func(f FoundVM) string { return fmt.Sprintf("%s on %s (id %s)", words.Name(f.VM.Name), f.Host, f.VM.ID) })
	if e.SameID() {
		return fmt.Sprintf("several hosts, which are not nodes of one cluster, show a VM under one id: %s", strings.Join(list, ", "))
	}
	return fmt.Sprintf("several VMs are called %q: %s", e.Name, strings.Join(list, ", "))
}

var guid = regexp.MustCompile(`^\{?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?$`)

// IsVMID tells whether a reference to a VM is an id rather than a name.
func IsVMID(ref string) bool { return guid.MatchString(ref) }

// VMID is a VM id without the braces that some tools print around it.
func VMID(ref string) string { return strings.Trim(ref, "{}") }

// FindVM finds a VM by id or name among the hosts of a view. Copies that Hyper-V Replica keeps do
// not count. The error is a *VMGoneError when no host has it, and an *AmbiguousVMError for a name
// that several VMs have, or an id on hosts that are not nodes of one cluster.
func FindVM(v View, ref string) (FoundVM, error) { return FindVMNear(v, ref, "") }

// FindVMNear is FindVM for a VM that was on a host when this state last found it: while that
// host, or another node of its cluster, has it, no other host's word counts.
func FindVMNear(v View, ref, last string) (FoundVM, error) {
	var names []string
	if v.index == nil {
		names = slices.Sorted(maps.Keys(v.Hosts))
	} else {
		names, _ = v.index.VMs(VMID(ref), ref)
		names = slices.Compact(slices.DeleteFunc(names, func(name string) bool { return v.Hosts[name] == nil }))
	}
	// A node that cannot read its cluster may show VMs that are elsewhere by now.
	slices.SortStableFunc(names, func(a, b string) int { return clusterUnknown(v.Hosts[a]) - clusterUnknown(v.Hosts[b]) })
	var byID, byName []FoundVM
	var copies []string
	for _, name := range names {
		h := v.Hosts[name]
		for i := range h.VMs {
			vm := &h.VMs[i]
			id := gpu.SameID(vm.ID, VMID(ref))
			switch at := (FoundVM{Host: name, VM: vm}); {
			case !id && !gpu.SameID(vm.Name, ref):
			case vm.IsCopy():
				copies = append(copies, name)
			case id:
				byID = append(byID, at)
			default:
				byName = append(byName, at)
			}
		}
	}
	found := v.distinct(byID, last)
	if len(found) == 0 {
		found = v.distinct(byName, last)
	}
	switch len(found) {
	case 0:
		for name, h := range v.Hosts {
			if u, unknown := h.UnknownVM(ref); unknown {
				v.doubt(name, u)
			}
		}
		return FoundVM{}, &VMGoneError{VM: ref, Silent: v.Silent(), Copies: copies}
	case 1:
		return found[0], nil
	default:
		return FoundVM{}, &AmbiguousVMError{Name: ref, Found: found}
	}
}

// FindAssigned finds the VM of an assignment: where it was, or, for one that only reserves a vGPU, on the host of that, whether the
// VM is there by now or not.
func FindAssigned(v View, a *gpu.Assignment) (FoundVM, error) {
	if !a.Reserves() {
		return FindVMNear(v, a.VMID, a.Host)
	}
	if h := v.Hosts[a.Host]; h != nil {
		return FoundVM{Host: a.Host, VM: change.VMFor(h, a)}, nil
	}
	return FoundVM{}, &VMGoneError{VM: cmp.Or(a.VMID, a.VM), Silent: v.Silent()}
}

// distinct are VMs under different ids, and those under one id that are not one VM.
func (v View) distinct(found []FoundVM, last string) []FoundVM {
	if len(found) < 2 {
		return found
	}
	var out []FoundVM
	for i, f := range found {
		same := func(o FoundVM) bool { return gpu.SameID(o.VM.ID, f.VM.ID) }
		if !slices.ContainsFunc(found[:i], same) {
			out = append(out, v.owners(slices.DeleteFunc(slices.Clone(found), func(o FoundVM) bool { return !same(o) }), last)...)
		}
	}
	return out
}

// owners are those of the hosts that show one id of which nobody can tell that they are not the VM's
// owner. A VM that moves may be shown by two nodes of its cluster, and a node that cannot read its
// cluster may show VMs that are elsewhere by now.
func (v View) owners(found []FoundVM, last string) []FoundVM {
	inCluster := func(f FoundVM) bool { return v.Hosts[f.Host].Cluster != nil }
	if slices.ContainsFunc(found, inCluster) {
		found = slices.DeleteFunc(found, func(f FoundVM) bool { return !inCluster(f) && clusterUnknown(v.Hosts[f.Host]) > 0 })
	}
	is := func(f FoundVM) bool { return f.Host == last }
	near := func(f FoundVM) bool { return v.Hosts[last] != nil && v.Hosts[last].SharesCluster(v.Hosts[f.Host]) }
	for _, known := range []func(FoundVM) bool{is, near} {
		if i := slices.IndexFunc(found, known); i >= 0 {
			return found[i : i+1]
		}
	}
	if !slices.ContainsFunc(found[1:], func(f FoundVM) bool { return !v.Hosts[found[0].Host].SharesCluster(v.Hosts[f.Host]) }) {
		return found[:1]
	}
	return found
}

func clusterUnknown(h *gpu.Host) int {
	if _, unknown := h.UnknownPart(gpu.PartCluster); unknown {
		return 1
	}
	return 0
}

// VMSearch says which VM is looked for, and where it may be.
type VMSearch struct {
	// VM is its id or name.
	VM string
	// Cluster is the one that it is in; "" for any host.
	Cluster string
	// Hint are hosts on which it probably is. A hint of one host is where the VM was: what hosts outside of its cluster
	// say does not count while it is there.
	Hint []string
}

// In finds the VM among the hosts of a view, as FindVMNear does.
func (s VMSearch) In(v View) (FoundVM, error) {
	last := ""
	if len(s.Hint) == 1 {
		last = s.Hint[0]
	}
	return FindVMNear(v, s.VM, last)
}

// search takes a snapshot of some hosts on which a VM may be, or else of the nodes of its cluster, or else first of the
// hosts of the hint with their clusters and then of every host.
func (f *Fleet) search(ctx context.Context, hosts []string, s VMSearch) View {
	if at, ok := f.lastSeen(s.VM, hosts, s.Cluster, s.Hint); ok {
		v := f.Snapshot(ctx, []string{at}, WithClusterPeers)
		if found, err := s.In(v); err == nil && found.Host == at {
			return v
		}
	}
	switch {
	case len(hosts) > 0:
		return f.Snapshot(ctx, hosts)
	case s.Cluster != "":
		members, unknown := f.ClusterHosts(f.Snapshot(ctx, f.names), s.Cluster)
		return f.Snapshot(ctx, slices.Concat(members, unknown))
	case len(s.Hint) > 0:
		v := f.Snapshot(ctx, s.Hint, WithClusterPeers)
		if _, err := s.In(v); err == nil {
			return v
		}
	}
	return f.Snapshot(ctx, f.names)
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
// nodes have no records in common, what those agree on that have one. What any other host has on
// record of the VM says nothing.
func RecordOf(v View, at FoundVM) (*gpu.Claim, bool) {
	host := v.Hosts[at.Host]
	known := *host
	if host.Cluster != nil && !host.Cluster.Records {
		var peers []gpu.Claim
		for _, name := range slices.Sorted(maps.Keys(v.Hosts)) {
			if c, ok := v.Hosts[name].Claim(gpu.ClaimAssignment, at.VM.ID); ok && host.SharesCluster(v.Hosts[name]) {
				peers = append(peers, *c)
			}
		}
		known = change.WithPeerClaims(known, peers, v.owner, "")
	}
	return known.Claim(gpu.ClaimAssignment, at.VM.ID)
}

// cameAlong is the record of an assignment whose VM has come to a host that has none: the one that a host
// still has which no longer shows the VM. What the VM's settings were before stands there. That it is this
// resource's, its token says, which only hosts know that had the VM.
func (v View) cameAlong(ch change.Change) (at FoundVM, claim gpu.Claim, ok bool) {
	was := ch.Prior.Assignment
	if was == nil || ch.Token == "" || was.Reserves() {
		return at, claim, false
	}
	at, err := FindVMNear(v, was.VMID, was.Host)
	if err != nil {
		return at, claim, false
	}
	if _, recorded := RecordOf(v, at); recorded {
		return at, claim, false
	}
	for name, c := range v.Claims(gpu.ClaimAssignment, was.VMID) {
		if _, stays := v.Hosts[name].VM(was.VMID); !stays && c.Token == ch.Token && (!ok || c.Revision > claim.Revision) {
			claim, ok = *c, true
		}
	}
	return at, claim, ok
}

// withRecord is the view in which a VM has brought its record along.
func (v View) withRecord(ch change.Change) View {
	at, claim, ok := v.cameAlong(ch)
	if !ok {
		return v
	}
	known := change.WithPeerClaims(*v.Hosts[at.Host], []gpu.Claim{claim}, v.owner, ch.Token)
	v.index, v.Hosts = nil, maps.Clone(v.Hosts)
	v.Hosts[at.Host] = &known
	return v
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

// Claim is the newest claim for a config, pool or share on any host. Whose a VM is, RecordOf tells.
func (v View) Claim(kind gpu.ClaimKind, id string) (newest gpu.Claim, ok bool) {
	for _, c := range v.Claims(kind, id) {
		if !ok || c.Revision > newest.Revision {
			newest, ok = *c, true
		}
	}
	return newest, ok
}

// VMMeant asks which VM somebody may have meant by a name that none has, with its host.
func (v View) VMMeant(ref string) string {
	on := map[string][]string{}
	for host, h := range v.Hosts {
		for i := range h.VMs {
			on[h.VMs[i].Name] = append(on[h.VMs[i].Name], host)
		}
	}
	near := words.Nearest(ref, slices.Sorted(maps.Keys(on)))
	if len(near) == 0 {
		return ""
	}
	return words.Question(words.Each(near[:min(len(near), words.Offered)], func(name string) string {
		return fmt.Sprintf("%q (%s)", name, words.Join(slices.Sorted(slices.Values(on[name]))))
	}))
}

// ClaimIDs are the ids of all claims of a kind.
func (v View) ClaimIDs(kind gpu.ClaimKind) []string {
	ids := map[string]bool{}
	for _, h := range v.Hosts {
		for c := range h.ClaimsOf(kind) {
			ids[c.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
