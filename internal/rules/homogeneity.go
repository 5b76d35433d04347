package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// likeness is what must be the same for GPUs that stand in for each other.
type likeness struct {
	vendor, family, model string
	vram                  gpu.Bytes
}

// likenessOf looks the GPU up in the catalog by its PCI id and by its name; a model that
// the catalog does not know counts by what the host calls it.
func likenessOf(g *gpu.GPU) likeness {
	m, ok := catalog.Of(g.PCI, g.Model)
	if !ok {
		return likeness{vendor: g.Vendor, model: g.Model, vram: g.VRAM}
	}
	return likeness{vendor: m.Vendor, family: m.Family, model: m.Name, vram: g.VRAM}
}

func (k likeness) String() string {
	out := cmp.Or(k.model, k.vendor, "unknown model")
	if k.vram > 0 {
		out += ", " + k.vram.String()
	}
	return out
}

// differs compares with what most GPUs are: the first aspect that
// differs, from the gravest on. What is not known does not differ.
func (k likeness) differs(most likeness) aspect {
	unlike := func(a, b string) bool { return a != "" && b != "" && !gpu.SameID(a, b) }
	switch {
	case unlike(k.vendor, most.vendor) || unlike(k.family, most.family):
		return otherFamily
	case unlike(k.model, most.model):
		return otherModel
	case k.vram > 0 && most.vram > 0 && !whatif.Within(k.vram, most.vram, 1):
		return otherSize
	}
	return same
}

type aspect int

const (
	same aspect = iota
	otherFamily
	otherModel
	otherSize
)

var aspectTitles = map[aspect]string{
	otherFamily: "GPUs of different vendors or product families",
	otherModel:  "GPUs of different models",
	otherSize:   "GPUs with different amounts of memory",
}

// member is a GPU that belongs to a group of GPUs that should be alike.
type member struct {
	host     string
	gpu      *gpu.GPU
	likeness likeness
}

func (m member) text() string {
	return "GPU " + m.gpu.ID + " on " + hostText(m.host) + " (" + m.likeness.String() + ")"
}

func (m member) key(what string) string { return key(what, m.host, m.gpu.ID) }

// group is the GPUs of one config or pool inside one cluster, or on its standalone
// hosts together.
type group struct {
	cluster string // "" for the standalone hosts
	hosts   []string
	members []member
}

func (g group) text() string {
	if g.cluster == "" {
		return "on its standalone hosts"
	}
	return "in cluster " + quote(g.cluster)
}

// groups sorts the GPUs of a config or a pool by cluster.
func (r *run) groups(gpus map[string][]string) []group {
	var out []group
	for key, h := range r.HostsAtHand(gpus) {
		at := slices.IndexFunc(out, func(g group) bool {
			return gpu.SameID(g.cluster, h.ClusterName()) && (g.cluster == "" || slices.Contains(r.Fleet.Cluster(h), g.hosts[0]))
		})
		if at < 0 {
			out = append(out, group{cluster: h.ClusterName()})
			at = len(out) - 1
		}
		out[at].hosts = append(out[at].hosts, key)
		for g := range whatif.Selected(h, gpus[key]) {
			out[at].members = append(out[at].members, member{key, g, likenessOf(g)})
		}
	}
	return out
}

// gpusPath is the attribute that chooses the GPUs of a config or a pool.
func gpusPath(w gpu.Want) string {
	if w.Pool != nil {
		return "members"
	}
	return "selector"
}

func checkHomogeneousGPUs(r *run) {
	gpus, path := whatif.WantedGPUs(r.Plan.Want), gpusPath(r.Plan.Want)
	for _, g := range r.groups(gpus) {
		if len(g.members) == 0 {
			continue
		}
		most := majority(g.members)
		reportUnlike(r, g, most, path)
		if c := r.Plan.Want.Config; c != nil && c.Kind != gpu.KindGPUP {
			reportProblems(r, g, path)
			continue // no VM moves between these
		}
		if r.linuxPool(g) {
			reportProblems(r, g, path)
			continue
		}
		reportDriverBranches(r, g, path)
		if r.Plan.Want.Config != nil { // of a pool gpu-assignable says it
			reportProblems(r, g, path)
			reportUnlikeNeighbours(r, g, most, path)
		}
	}
}

// linuxPool tells whether the plan is of a pool and the group on Linux hosts.
func (r *run) linuxPool(g group) bool {
	return r.Plan.Want.Pool != nil && len(g.hosts) > 0 && r.At(g.hosts[0]).Platform == gpu.Linux
}

// majority is what most of the GPUs are; of two equally frequent ones
// the one that comes first in the order of the hosts.
func majority(members []member) likeness {
	model := func(k likeness) likeness { k.vram = 0; return k }
	best := mostFrequent(members, func(m member) likeness { return model(m.likeness) })
	alike := slices.DeleteFunc(slices.Clone(members), func(m member) bool { return model(m.likeness) != best })
	return mostFrequent(alike, func(m member) likeness { return m.likeness })
}

func mostFrequent(members []member, of func(member) likeness) likeness {
	count := map[likeness]int{}
	for _, m := range members {
		count[of(m)]++
	}
	best := of(members[0])
	for _, m := range members {
		if k := of(m); count[k] > count[best] {
			best = k
		}
	}
	return best
}

func reportUnlike(r *run, g group, most likeness, path string) {
	alike := len(slices.DeleteFunc(slices.Clone(g.members), func(m member) bool { return m.likeness.differs(most) != same }))
	for _, a := range []aspect{otherFamily, otherModel, otherSize} {
		var unlike []member
		for _, m := range g.members {
			if m.likeness.differs(most) == a {
				unlike = append(unlike, m)
			}
		}
		if len(unlike) == 0 {
			continue
		}
		f := Finding{
			Path: path, Title: aspectTitles[a],
			Found: fmt.Sprintf("Most GPUs of %s %s are %s, but %s: %s.", r.label(), g.text(), most,
				verb(len(unlike), "one is not", fmt.Sprintf("%d are not", len(unlike))), join(texts(unlike))),
		}
		if alike*2 <= len(g.members) { // none of them are most
			f.Found = fmt.Sprintf("The GPUs of %s %s are not alike: %s.", r.label(), g.text(), join(texts(g.members)))
		}
		f.Wanted = fmt.Sprintf("%s groups all of them, and they must be of the same vendor, model and memory size, so that a VM finds the same "+
			"wherever it runs.", r.label())
		f.Fix = "Leave the GPUs that differ out with `selector = { models = [" + quote(most.model) +
			"] }` or `selector = { gpu_ids = ... }`, and give them a resource of their own."
		if c := r.Plan.Want.Config; c != nil && c.Kind == gpu.KindGPUP {
			f.Fix += " VMs take a partition of either with `partition = { configs = [...] }`."
		}
		if c := r.Plan.Want.Config; c != nil && c.Kind == gpu.KindMIG {
			// That each of them has the profiles is the business of mig-profile-supported.
			f.Level = Warning
			f.Wanted = fmt.Sprintf("%s gives all of them one layout; a profile of the same name has other memory or speed on another model.",
				r.label())
		} else if c != nil && c.Kind == gpu.KindVGPU {
			// That each of them offers the types is the business of vgpu-type-offered.
			f.Level = Warning
			f.Wanted = fmt.Sprintf("%s gives all of them one layout; types of vGPU are named after the model that offers them.", r.label())
		} else if c != nil && c.Kind != gpu.KindGPUP || r.linuxPool(g) {
			f.Level = Warning
			f.Wanted = fmt.Sprintf("%s shares all of them; the same part of another model has other memory or speed.", r.label())
		}
		if path == "members" {
			f.Fix = "Remove the GPUs that differ from `members`, and give them a pool of their own."
		}
		r.reportGPUs(f, "unlike", unlike)
	}
}

// reportGPUs records one violation of some GPUs, the first of which stands for them.
func (r *run) reportGPUs(f Finding, what string, members []member) {
	if len(members) > 0 {
		f.at(members)
		r.report(f, keysOf(what, members)...)
	}
}

// at says where some GPUs are by the first of them. Of those that are counted none stands for the others.
func (f *Finding) at(members []member) {
	f.Host = members[0].host
	if id := members[0].gpu.ID; len(members) == 1 || strings.Contains(f.Found, id) {
		f.GPU = id
	}
}

// those are the GPUs of a selection that are so.
func (r *run) those(gpus map[string][]string, are func(h *gpu.Host, g *gpu.GPU) bool) []member {
	var out []member
	for host, h := range r.HostsAtHand(gpus) {
		for g := range whatif.Selected(h, gpus[host]) {
			if are(h, g) {
				out = append(out, member{host: host, gpu: g})
			}
		}
	}
	return out
}

func keysOf(what string, members []member) []string {
	return words.Each(members, func(m member) string { return m.key(what) })
}

func texts(members []member) []string { return words.Each(members, member.text) }

// reportDriverBranches warns only: during a rolling driver upgrade branches differ.
func reportDriverBranches(r *run, g group, path string) {
	byBranch := map[string][]member{}
	for _, m := range g.members {
		if b := m.gpu.Driver.Branch(); b != "" {
			byBranch[b] = append(byBranch[b], m)
		}
	}
	if len(byBranch) < 2 {
		return
	}
	branches := whatif.SortedKeys(byBranch)
	most := branches[0]
	for _, b := range branches {
		if len(byBranch[b]) > len(byBranch[most]) {
			most = b
		}
	}
	var lines []string
	var keys []string
	var first member
	for _, b := range branches {
		hosts := hostsOf(byBranch[b])
		lines = append(lines, "branch "+b+" on "+join(quoteAll(hosts)))
		if b == most {
			continue
		}
		if first.gpu == nil {
			first = byBranch[b][0]
		}
		keys = append(keys, keysOf("branch "+b, byBranch[b])...)
	}
	r.report(Finding{
		Level:  Warning,
		Path:   path,
		Title:  "GPU drivers of different branches",
		Host:   first.host,
		GPU:    first.gpu.ID,
		Found:  fmt.Sprintf("The GPUs of %s %s run drivers of different branches: %s.", r.label(), g.text(), strings.Join(lines, "; ")),
		Wanted: "Hosts between which VMs move should run one driver branch; a guest's driver may not work with the other one.",
		Fix:    "Finish the driver upgrade on all hosts.",
	}, keys...)
}

func hostsOf(members []member) []string {
	out := words.Each(members, func(m member) string { return m.host })
	slices.Sort(out)
	return slices.Compact(out)
}

func reportProblems(r *run, g group, path string) {
	var broken []member
	var lines []string
	for _, m := range g.members {
		if m.gpu.Problem != "" {
			broken = append(broken, m)
			lines = append(lines, gpuOn(m.host, m.gpu)+" ("+m.gpu.Problem+")")
		}
	}
	r.reportGPUs(Finding{
		Level:  Warning,
		Path:   path,
		Title:  "A GPU has a problem",
		Found:  fmt.Sprintf("The host reports a problem with %s.", join(lines)),
		Wanted: r.label() + " needs every GPU that it selects.",
		Fix:    "Repair the GPU or its driver on the host, or leave the GPU out of the selection.",
	}, "problem", broken)
}

// reportUnlikeNeighbours warns of GPUs of the cluster that no part of this plan
// touches: they stood before, but failover will meet them.
func reportUnlikeNeighbours(r *run, g group, most likeness, path string) {
	if g.cluster == "" {
		return
	}
	var unlike []member
	for _, key := range r.Fleet.Cluster(r.At(g.hosts[0])) {
		h := r.At(key)
		for i := range h.GPUs {
			n := member{key, &h.GPUs[i], likenessOf(&h.GPUs[i])}
			if whatif.Partitions(n.gpu) && !gpu.HasID(r.Plan.Want.Config.GPUs[key], n.gpu.ID) && n.likeness.differs(most) != same &&
				!r.ownConfigCovers(h, n.gpu.ID) {
				unlike = append(unlike, n)
			}
		}
	}
	r.reportGPUs(Finding{
		Level: Warning,
		Path:  path,
		Title: "The cluster has other GPUs outside this configuration",
		Found: fmt.Sprintf("Most GPUs of %s %s are %s, but the cluster also has %s.", r.label(), g.text(), most, join(texts(unlike))),
		Wanted: "All partitionable GPUs of a cluster should be of the same vendor, model and memory size: Hyper-V takes a partition from any " +
			"of them, " +
			"on any node where a VM starts.",
		Fix: "Exclude these GPUs from partitioning, for example with a gpu_pool, or give them a gpu_partition_config of their own and let VMs " +
			"take a partition of either: `partition = { configs = [...] }`.",
	}, "neighbour", unlike)
}

// ownConfigCovers tells whether another config of this state has a GPU.
func (r *run) ownConfigCovers(h *gpu.Host, id string) bool {
	for c := range h.ClaimsOf(gpu.ClaimConfig) {
		if c.Owner == r.Owner && !gpu.SameID(c.ID, r.Plan.Want.Config.ID) && c.Covers(id) {
			return true
		}
	}
	return false
}

func checkHomogeneousLayout(r *run) {
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	said := map[*whatif.Entry]bool{}
	clusters := map[string]bool{}
	for _, h := range r.HostsAtHand(c.GPUs) {
		if whatif.Cluster(h) == "" || clusters[whatif.Cluster(h)] {
			continue
		}
		clusters[whatif.Cluster(h)] = true
		reportOtherLayouts(r, c, h, said)
		reportLeftoverLayouts(r, c, h)
	}
}

// reportOtherLayouts finds configs of this run with another count in the cluster.
func reportOtherLayouts(r *run, c *gpu.PartitionConfig, h *gpu.Host, said map[*whatif.Entry]bool) {
	for _, host := range r.Fleet.Cluster(h) {
		for e := range r.Others(whatif.GPUsOn(host)) {
			o := e.Plan.Want.Config
			if o == nil || o.Kind != gpu.KindGPUP || o.Count == c.Count || len(o.GPUs[host]) == 0 || said[e] ||
				overlap(c, o) { // one-config-per-gpu says so
				continue
			}
			said[e] = true
			var level Level
			if r.has(c) && r.has(o) {
				level = Warning // it is so, whether these declare it or not
			}
			r.report(Finding{
				Level: level,
				Path:  "gpu_p.partition_count",
				Title: "Two partition counts in one cluster",
				Host:  host,
				Other: whatif.Label(e.Plan),
				Found: fmt.Sprintf("%s want different partition counts in cluster %s: %s.", r.both(e), quote(h.Cluster.Name),
					join(slices.Sorted(slices.Values([]string{countText(r.label(), c.Count), countText(whatif.Label(e.Plan), o.Count)})))),
				Wanted: "All GPUs of a cluster must have the same partition count, or a VM gets another amount of memory after a failover.",
				Fix:    "Give both the same `partition_count`, or cover the whole cluster with one gpu_partition_config." + wayOut,
			}, key("layout", whatif.Cluster(h), whatif.Label(e.Plan)))
			r.found[len(r.found)-1].stands = level == Warning // as two applies with -target may have left it
		}
	}
}

// overlap tells whether two configs cover a GPU both.
func overlap(a, b *gpu.PartitionConfig) bool {
	for host, ids := range a.GPUs {
		if slices.ContainsFunc(ids, func(id string) bool { return gpu.HasID(b.GPUs[host], id) }) {
			return true
		}
	}
	return false
}

// has tells whether the GPUs of a config have its count already.
func (r *run) has(c *gpu.PartitionConfig) bool {
	for host, ids := range c.GPUs {
		for _, id := range ids {
			if h := r.At(host); h != nil {
				if g, ok := h.GPU(id); ok && g.Partitionable != nil && g.Partitionable.Count == c.Count {
					continue
				}
			}
			return false
		}
	}
	return true
}

func countText(label string, count int) string {
	return fmt.Sprintf("%d by %s", count, label)
}

// reportLeftoverLayouts warns of GPUs of the cluster that no config of this run
// covers and that have another count.
func reportLeftoverLayouts(r *run, c *gpu.PartitionConfig, h *gpu.Host) {
	var other []member
	var lines []string
	for _, host := range r.Fleet.Cluster(h) {
		node := r.At(host)
		for _, s := range r.Future().Slots(host, node) {
			claim := s.Config
			if claim != nil && r.Superseded(claim) || gpu.HasID(c.GPUs[host], s.GPU.ID) || likenessOf(s.GPU).vendor != "NVIDIA" {
				continue
			}
			count, by := s.Count, ""
			if claim != nil && claim.Want.Config != nil && claim.Want.Config.Kind == gpu.KindGPUP {
				count, by = claim.Want.Config.Count, ", claimed as "+quote(claim.ID)+" by "+whose(claim)
			}
			if count == c.Count {
				continue
			}
			other = append(other, member{host: host, gpu: s.GPU})
			lines = append(lines, fmt.Sprintf("%s (%s%s)", gpuOn(host, s.GPU), plural(count, "partition"), by))
		}
	}
	fix := "Cover all nodes with this configuration: `cluster = " + quote(h.Cluster.Name) + "` instead of `hosts`, or list the missing hosts."
	if c.Scope.Cluster != "" {
		fix = "Give these GPUs a gpu_partition_config of their own with the same count."
	}
	r.reportGPUs(Finding{
		Level: Warning,
		Path:  "gpu_p.partition_count",
		Title: "GPUs of the cluster with another partition count",
		Found: fmt.Sprintf("Cluster %s also has GPUs with another partition count: %s.", quote(h.Cluster.Name), join(lines)),
		Wanted: fmt.Sprintf("%s wants %s on each GPU, and all GPUs of a cluster should have the same count.",
			r.label(), plural(c.Count, "partition")),
		Fix: fix,
	}, "leftover", other)
}
