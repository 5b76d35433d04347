package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Adoptable is an object of hosts that a Terraform state can import.
type Adoptable struct {
	// Want is what a configuration of it declares.
	Want gpu.Want
	// Hosts are those that have a part of it, sorted.
	Hosts []string
	// GPUs name a config's GPUs on the first of them; nil for all that have a layout of its kind.
	GPUs []string
	// Claim is the record of it; nil where nobody has one.
	Claim *gpu.Claim
	// SameName and SameID tell of a VM that another host shows one of that name, or of that id: only its host tells it apart.
	SameName, SameID bool
}

// Kind is the kind of its claim.
func (a *Adoptable) Kind() gpu.ClaimKind {
	kind, _ := a.Want.Object()
	return kind
}

// String names it for people.
func (a *Adoptable) String() string {
	switch on := " on " + strings.Join(a.Hosts, ", "); a.Kind() {
	case gpu.ClaimConfig:
		c := a.Want.Config
		what := cmp.Or(c.Name, change.LayoutDeclared(c))
		if len(a.GPUs) > 0 {
			on = " on " + strings.Join(a.GPUs, ", ") + " of " + strings.Join(a.Hosts, ", ")
		}
		return string(c.Kind) + " " + what + on
	case gpu.ClaimAssignment:
		return "VM " + words.Name(cmp.Or(a.Want.Assignment.VMName, a.Want.Assignment.VM)) + on
	case gpu.ClaimPool:
		return "pool " + words.Name(a.Want.Pool.Name) + on
	case gpu.ClaimShare:
	}
	return "share " + words.Name(a.Want.Share.Name) + " on " + a.Hosts[0]
}

// Left is what no import can take, and why. Claimed is true of what another owner has.
type Left struct {
	Kind              gpu.ClaimKind
	Host, Object, Why string
	Claimed           bool
}

// ImportID is the id by which any version of Terraform imports it.
func (a *Adoptable) ImportID() string {
	switch w := a.Want; {
	case w.Config != nil:
		return configImportID(a.Hosts[0], w.Config.Kind, a.GPUs)
	case w.Assignment != nil && a.SameID:
		return a.Hosts[0] + "/" + w.Assignment.VMID
	case w.Assignment != nil:
		return w.Assignment.VMID
	case w.Pool != nil:
		return a.Hosts[0] + "/" + w.Pool.Name
	default:
		return a.Hosts[0] + "/" + w.Share.Name
	}
}

func configImportID(host string, kind gpu.Kind, ids []string) string {
	id := host + ":" + string(kind)
	if len(ids) > 0 {
		id += "@" + strings.Join(ids, ",")
	}
	return id
}

// Adoptables lists what a state of an owner can import from hosts, by the provider's names for
// them, each object once, and what is left: the claims of other owners and what no
// configuration describes.
func Adoptables(hosts map[string]*gpu.Host, owner string) ([]Adoptable, []Left) {
	s := survey{hosts: hosts, owner: owner, seen: map[string]int{}, shown: map[string]int{}}
	names := slices.Sorted(maps.Keys(hosts))
	for _, h := range hosts {
		for i := range h.VMs {
			s.shown[gpu.FoldID(h.VMs[i].ID)]++
			s.shown["name "+gpu.FoldID(h.VMs[i].Name)]++
		}
	}
	for _, name := range names {
		s.claims(name)
	}
	for _, name := range names {
		layouts, left := LayoutsOn(hosts, []string{name}, "")
		s.left = append(s.left, left...)
		for i := range layouts {
			s.found = append(s.found, layouts[i].adoptable())
		}
	}
	for _, name := range names {
		s.pools(name)
		s.assignments(name)
		s.sharing(name)
		s.left = append(s.left, unread(name, hosts[name], gpu.ClaimAssignment, gpu.ClaimPool, gpu.ClaimShare)...)
		for _, share := range hosts[name].Shares {
			if _, claimed := hosts[name].Claim(gpu.ClaimShare, share.Name); !claimed {
				s.left = append(s.left, Left{
					Kind: gpu.ClaimShare, Host: name, Object: fmt.Sprintf("share %q", share.Name),
					Why: "its host has no record of it, and what was asked for is nowhere else",
				})
			}
		}
	}
	s.readable()
	return s.found, s.left
}

// survey collects what hosts have. seen has where in found an object of several hosts is, and shown how many VMs have an id or a name.
type survey struct {
	hosts map[string]*gpu.Host
	owner string
	found []Adoptable
	left  []Left
	seen  map[string]int
	shown map[string]int
}

// claims adds what the host has a record of; the newest one of each object counts.
func (s *survey) claims(host string) {
	for i := range s.hosts[host].Claims {
		c := &s.hosts[host].Claims[i]
		key := string(c.Kind) + " " + cmp.Or(c.Token, host+" "+c.ID)
		n, again := s.seen[key]
		switch {
		case c.Owner != s.owner:
			s.left = append(s.left, Left{
				Kind: c.Kind, Host: host, Object: change.DescribeObject(c.Kind, c.ID), Why: fmt.Sprintf("it is claimed by owner %q", c.Owner),
				Claimed: true,
			})
		case c.Want.Empty():
			s.left = append(s.left, Left{
				Kind: c.Kind, Host: host, Object: change.DescribeObject(c.Kind, c.ID), Why: "its record does not say what was asked for", Claimed: true,
			})
		case !again:
			s.seen[key] = len(s.found)
			a := Adoptable{Want: c.Want, Hosts: []string{host}, Claim: c}
			if c.Kind == gpu.ClaimConfig {
				a.GPUs = c.GPUs
			}
			s.found = append(s.found, a)
		default:
			a := &s.found[n]
			if !slices.Contains(a.Hosts, host) {
				a.Hosts = append(a.Hosts, host)
			}
			if p := c.Want.Pool; p != nil && a.Want.Pool.Scope.Cluster == "" && len(a.Want.Pool.Scope.Hosts) == 0 { // each host has its own members
				all := *a.Want.Pool
				all.Members = maps.Clone(all.Members)
				maps.Copy(all.Members, p.Members)
				a.Want.Pool = &all
			}
			if c.Revision > a.Claim.Revision {
				a.Claim = c
				if c.Kind == gpu.ClaimAssignment {
					a.Want = c.Want
				}
			}
		}
	}
}

// pools adds those that nobody has a record of. One name in one cluster is one pool.
func (s *survey) pools(host string) {
	h := s.hosts[host]
	for _, p := range h.Pools {
		key := "pool of " + gpu.FoldID(cmp.Or(h.ClusterName(), "host "+host)+"/"+p.Name)
		n, again := s.seen[key]
		switch {
		case s.claimed(gpu.ClaimPool, p.Name, h):
			continue
		case !again:
			n = len(s.found)
			s.seen[key] = n
			s.found = append(s.found, Adoptable{
				Want: gpu.Want{Pool: &gpu.PoolConfig{ID: host + "/" + p.Name, Name: p.Name, Members: map[string][]string{}}},
			})
		}
		s.found[n].Hosts = append(s.found[n].Hosts, host)
		s.found[n].Want.Pool.Members[host] = slices.Concat([]string{}, p.GPUs)
	}
}

// readable leaves what nobody has a record of and has a GPU that could not be read: a record of it
// is written only by who can see all of it.
func (s *survey) readable() {
	s.found = slices.DeleteFunc(s.found, func(a Adoptable) bool {
		if a.Claim != nil {
			return false
		}
		for _, host := range a.Hosts {
			var ids []string
			switch w := a.Want; {
			case w.Pool != nil:
				ids = w.Pool.Members[host]
			case w.Assignment != nil:
				if p := w.Assignment.Partition; p != nil && p.PinnedGPU != "" {
					ids = append(ids, p.PinnedGPU)
				}
				if vm, ok := s.hosts[host].VM(w.Assignment.VMID); ok {
					for _, d := range vm.Devices {
						ids = append(ids, d.GPU)
					}
				}
			}
			for _, id := range ids {
				if u, is := s.hosts[host].UnknownGPU(id); is {
					s.left = append(s.left, Left{Kind: a.Kind(), Host: host, Object: a.String(), Why: u.What() + " could not be read: " + u.Why})
					return true
				}
			}
		}
		return false
	})
}

// assignments adds the VMs with a GPU that nobody has a record of.
func (s *survey) assignments(host string) {
	h := s.hosts[host]
	for i := range h.VMs {
		if h.VMs[i].IsCopy() || s.claimed(gpu.ClaimAssignment, h.VMs[i].ID, h) {
			continue
		}
		a := Assigned(host, h, &h.VMs[i])
		if a.Partition == nil && a.Pool == nil && a.Device == nil {
			continue
		}
		id := gpu.FoldID(a.VMID)
		found := Adoptable{
			Want: gpu.Want{Assignment: &a}, Hosts: []string{host}, SameID: s.shown[id] > 1 && s.ambiguous(a.VMID),
			SameName: s.shown["name "+gpu.FoldID(a.VM)] > 1 && s.ambiguous(a.VM),
		}
		if n, again := s.seen["vm "+id]; again && found.SameID {
			s.left = append(s.left, Left{
				Kind: gpu.ClaimAssignment, Host: host, Object: found.String(),
				Why: fmt.Sprintf("host %s shows a VM of the same id, and one of the two is a copy; if that is the one on %[1]s, "+
					"import %s instead and name this host in hosts", s.found[n].Hosts[0], found.ImportID()),
			})
			continue
		}
		s.seen["vm "+id] = len(s.found)
		s.found = append(s.found, found)
	}
}

// ambiguous tells whether a VM's id or name does not say which VM it is.
func (s *survey) ambiguous(ref string) bool {
	_, err := FindVM(View{Hosts: s.hosts}, ref)
	_, is := errors.AsType[*AmbiguousVMError](err)
	return is
}

// sharing names the GPUs that processes share as others have set it up: hosts do not tell all that
// a config would declare of it.
func (s *survey) sharing(host string) {
	h := s.hosts[host]
	for i := range h.GPUs {
		g := &h.GPUs[i]
		var has []string
		if g.ComputeMode != "" && g.ComputeMode != gpu.ComputeDefault {
			has = append(has, "compute mode "+string(g.ComputeMode))
		}
		if g.TimeSlice != "" && g.TimeSlice != gpu.TimeSliceDefault {
			has = append(has, "time slice "+string(g.TimeSlice))
		}
		if h.MPS != nil && slices.ContainsFunc(h.MPS.Daemons, func(d gpu.MPSDaemon) bool {
			return slices.ContainsFunc(d.Devices, func(at gpu.SharedDevice) bool { return gpu.SameID(at.GPU, g.ID) })
		}) {
			has = append(has, "an MPS daemon")
		}
		if len(has) > 0 && !taken(h, g.ID, func(*gpu.Claim) bool { return false }) {
			s.left = append(s.left, Left{
				Kind: gpu.ClaimConfig, Host: host, Object: "GPU " + g.ID,
				Why: "processes share it (" + strings.Join(has, ", ") + "), which only a new config of kind mps or time_slicing can declare",
			})
		}
	}
}

// hides is what may be in a part of a host that could not be read.
var hides = map[gpu.Part]gpu.ClaimKind{
	gpu.PartGPUs: gpu.ClaimConfig, gpu.PartVMs: gpu.ClaimAssignment, gpu.PartPartitions: gpu.ClaimAssignment,
	gpu.PartDevices: gpu.ClaimAssignment, gpu.PartPools: gpu.ClaimPool, gpu.PartShares: gpu.ClaimShare,
}

// unread names what could not be read of a host, where an object of some kinds may be in it that
// nobody has a record of.
func unread(host string, h *gpu.Host, kinds ...gpu.ClaimKind) []Left {
	var out []Left
	for _, u := range h.Unknown {
		if kind, some := hides[u.Part]; some && slices.Contains(kinds, kind) &&
			(u.GPU == "" || !taken(h, u.GPU, func(*gpu.Claim) bool { return false })) {
			out = append(out, Left{Kind: kind, Host: host, Object: u.What(), Why: "it could not be read: " + u.Why})
		}
	}
	return out
}

// claimed tells whether a host or another node of its cluster has a record of an object.
func (s *survey) claimed(kind gpu.ClaimKind, id string, h *gpu.Host) bool {
	for _, o := range s.hosts {
		if _, ok := o.Claim(kind, id); ok && (o == h || h.SharesCluster(o)) {
			return true
		}
	}
	return false
}

// Assigned is what a VM itself shows of its assignment.
func Assigned(host string, h *gpu.Host, vm *gpu.VM) gpu.Assignment {
	a := gpu.Assignment{VM: vm.Name, VMID: vm.ID, VMName: vm.Name, Host: host}
	switch {
	case len(vm.PartitionAdapters) > 0:
		ad := vm.PartitionAdapters[0]
		a.Kind, a.Partition = gpu.AssignPartition, &gpu.PartitionWant{PinnedGPU: ad.PinnedGPU, Quotas: ad.Quotas}
	case h.Platform == gpu.Linux:
		if i := slices.IndexFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return d.VGPU != nil }); i >= 0 {
			a.Kind, a.Partition = gpu.AssignPartition, &gpu.PartitionWant{Type: vm.Devices[i].VGPU.Type}
		}
	case len(vm.Devices) > 0 && vm.Devices[0].Pool != "":
		a.Kind, a.Pool = gpu.AssignPool, &gpu.PoolWant{ID: host + "/" + vm.Devices[0].Pool, Name: vm.Devices[0].Pool, Count: len(vm.Devices)}
		if c, ok := h.Claim(gpu.ClaimPool, a.Pool.Name); ok && c.Want.Pool != nil {
			a.Pool.ID = c.Want.Pool.ID
		}
	case len(vm.Devices) > 0:
		a.Kind, a.Device = gpu.AssignDevice, &gpu.DeviceWant{
			Host: host, GPUIDs: words.Each(vm.Devices, func(d gpu.DeviceAssignment) string { return d.GPU }),
		}
	}
	return a
}

// Layout is a layout that GPUs of hosts have and that no claim covers, as a config.
type Layout struct {
	gpu.PartitionConfig
	// Text names it for people.
	Text string
	// all tells whether it is that of all GPUs that a config of its kind would cover.
	all bool
}

func (l *Layout) adoptable() Adoptable {
	host := l.Scope.Hosts[0]
	a := Adoptable{Want: gpu.Want{Config: &l.PartitionConfig}, Hosts: l.Scope.Hosts}
	if !l.all {
		a.GPUs = l.GPUs[host]
	}
	return a
}

// ImportIDs are the ids that import the layout's GPUs on each host.
func (l *Layout) ImportIDs() []string {
	return words.Each(l.Scope.Hosts, func(host string) string { return configImportID(host, l.Kind, l.GPUs[host]) })
}

// LayoutsOn lists the distinct layouts of a kind ("" for any) that the free GPUs of some hosts
// have: of several GPUs with the same MIG instances at other places the profiles count. A
// layout that not all have gets a selector. How processes share GPUs is not among them: hosts
// do not tell all of it.
func LayoutsOn(hosts map[string]*gpu.Host, names []string, only gpu.Kind) ([]Layout, []Left) {
	var out []Layout
	var left []Left
	for _, name := range names {
		if h, ok := hosts[name]; ok {
			left = append(left, unread(name, h, gpu.ClaimConfig)...)
		}
	}
	for _, kind := range []gpu.Kind{gpu.KindGPUP, gpu.KindMIG, gpu.KindVGPU} {
		if only != "" && only != kind {
			continue
		}
		first := len(out)
		free := map[string][]string{}
		for _, name := range names {
			h, ok := hosts[name]
			if !ok {
				continue
			}
			free[name] = SelectKind(kind, name, h, nil, func(*gpu.Claim) bool { return false })
			for _, id := range free[name] {
				g, ok := h.GPU(id)
				if !ok {
					continue
				}
				c, text := layoutOf(kind, g)
				switch {
				case c.Kind == "":
					continue
				case !change.HasLayout(&c, g):
					left = append(left, Left{
						Kind: gpu.ClaimConfig, Host: name, Object: "GPU " + g.ID,
						Why: "it has " + text + ", and not as a configuration can declare it: " + undeclarable(&c, g),
					})
					continue
				}
				at := slices.IndexFunc(out[first:], func(l Layout) bool { return l.Text == text })
				if at < 0 {
					at = len(out) - first
					c.GPUs = map[string][]string{}
					out = append(out, Layout{PartitionConfig: c, Text: text})
				}
				l := &out[first+at]
				l.GPUs[name] = append(l.GPUs[name], id)
				if l.MIG != nil && !slices.Equal(l.MIG.Placements, c.MIG.Placements) {
					l.MIG = &gpu.MIGLayout{Profiles: profiles(g)}
				}
			}
		}
		for i := range out[first:] {
			out[first+i].narrow(free, func(name string) bool {
				return slices.ContainsFunc(hosts[name].Claims, func(c gpu.Claim) bool {
					return c.Kind == gpu.ClaimConfig && (c.Want.Config == nil || c.Want.Config.Kind == kind)
				})
			})
		}
	}
	return out, left
}

// narrow gives a layout its scope: the hosts that have it, and the GPUs where not all that are
// free have it or configs of its kind have others.
func (l *Layout) narrow(free map[string][]string, shared func(host string) bool) {
	l.Scope.Hosts, l.all = slices.Sorted(maps.Keys(l.GPUs)), true
	for _, host := range l.Scope.Hosts {
		if len(l.GPUs[host]) < len(free[host]) || shared(host) {
			if l.all = false; l.Scope.Selector == nil {
				l.Scope.Selector = &gpu.Selector{GPUIDs: map[string][]string{}}
			}
			l.Scope.Selector.GPUIDs[host] = l.GPUs[host]
		}
	}
}

// layoutOf is what a GPU has of a kind, as a config and in words. The kind is "" for none.
func layoutOf(kind gpu.Kind, g *gpu.GPU) (c gpu.PartitionConfig, text string) {
	switch {
	case kind == gpu.KindGPUP && g.Partitionable.Count > 0:
		c.Count, text = g.Partitionable.Count, fmt.Sprintf("%d partitions", g.Partitionable.Count)
	case kind == gpu.KindMIG && g.MIG.Enabled && (g.VGPU == nil || len(g.VGPU.Instances) == 0): // else its instances are the vGPUs'
		c.MIG = &gpu.MIGLayout{Placements: g.MIG.State().Placements}
		text = placement.MIGLayoutText(&gpu.MIGLayout{Profiles: profiles(g)})
		if len(c.MIG.Placements) == 0 {
			c.MIG = &gpu.MIGLayout{Profiles: map[string]int{}}
		}
	case kind == gpu.KindVGPU && len(g.VGPU.Instances) > 0:
		c.VGPU = &gpu.VGPULayout{Types: gpu.VGPUCounts(g.VGPU.State().Places)}
		text = placement.VGPULayoutText(c.VGPU)
		if len(c.VGPU.Types) == 1 {
			for name, n := range c.VGPU.Types {
				c.VGPU = &gpu.VGPULayout{Type: name, Count: &n}
			}
		}
		if g.VGPU.Heterogeneous { // which a reboot would lose
			c.VGPU.Heterogeneous = new(true)
			text += " in heterogeneous mode"
		}
	default:
		return c, ""
	}
	c.Kind = kind
	return c, text
}

func profiles(g *gpu.GPU) map[string]int {
	out := map[string]int{}
	for _, p := range g.MIG.State().Placements {
		out[p.Profile]++
	}
	return out
}

// undeclarable says why a config that names what a GPU has would change it.
func undeclarable(c *gpu.PartitionConfig, g *gpu.GPU) string {
	unlisted := func(v gpu.VGPUInstance) bool { _, ok := g.VGPU.Offers(v.Type); return !ok }
	switch {
	case c.VGPU != nil && slices.ContainsFunc(g.VGPU.Instances, unlisted):
		return "a vGPU is of a type that the GPU's driver does not list"
	case g.MIG != nil && g.MIG.Enabled && !g.MIG.Pending:
		return "its next reset ends MIG mode"
	case c.VGPU != nil:
		return "its GPU instances, modes or numbers of vGPUs are not those that follow from the types"
	default:
		return "a GPU instance has no compute instance"
	}
}
