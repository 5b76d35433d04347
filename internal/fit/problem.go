package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// problem is hosts and demands as the solvers see them.
type problem struct {
	source  []gpu.Host
	demands []Demand
	options Options

	hosts []host
	gpus  []device // by host
	types []unitType
	// classes are those of the GPUs, each once.
	classes []*class
	of      map[Kind][]int // the types of each kind, the hardest to place first
	spare   int
	// hostsMatter is true where it makes a difference which GPUs are on one host.
	hostsMatter bool

	weighed map[Kind][]measure

	nodes    int  // that searches may look at still
	searched bool // the last search looked at everything
}

type host struct {
	name string
	// group is the cluster, by number; -1 for a host on its own. Hosts of a cluster have one partition count.
	group int
	// vms and containers say which kinds of sharing the platform has; both while it is not known.
	vms, containers bool
	gpus            []int
}

// device is one GPU.
type device struct {
	host  int
	gpu   *gpu.GPU
	class *class
	keep  *Layout // nil for none
	kept  role    // keep as a role, unused where it is of no use here
	// like is the same for GPUs that are alike to the solvers.
	like string
}

// class is what GPUs of one model have in common.
type class struct {
	partitions map[int]gpu.Bytes // memory of one, by count
	counts     []int             // ascending
	memory     gpu.Bytes         // for shares
	seats      int               // shares that it takes, 0 for none
	profiles   []gpu.MIGProfile
	offers     []int   // MIG types of the problem that it has
	patterns   [][]int // all largest sets of instances, by number of each MIG type
	fits       map[string]bool
}

// unitType is what the units of one or several demands ask for.
type unitType struct {
	kind    Kind
	vram    gpu.Bytes
	profile string
	memory  gpu.Bytes
	threads int64 // in millionths of a percent
	gpus    int
	demands []int
	count   int
	// size orders types by how hard they are to place.
	size float64
}

const wholeThreads = 100 * millionths

const millionths = 1_000_000

// Bounds of what is asked: far more than any fleet has, and answered at once.
const (
	mostUnits = 100_000
	mostSpare = 16
)

func newProblem(hosts []gpu.Host, demands []Demand, options Options) (*problem, error) {
	p := &problem{source: hosts, demands: demands, options: options, spare: options.SpareHosts, nodes: 2 * searchBudget, of: map[Kind][]int{}}
	switch {
	case len(hosts) == 0:
		return nil, fmt.Errorf("there are no hosts")
	case options.SpareHosts < 0 || options.SpareHosts > mostSpare:
		return nil, fmt.Errorf("spare_hosts is %d; it must be from 0 to %d", options.SpareHosts, mostSpare)
	case options.SpareHosts > 0 && options.SpareHosts >= len(hosts):
		return nil, fmt.Errorf("spare_hosts is %d, and %s would be none left; it must be less than the number of hosts",
			options.SpareHosts, words.Plural(len(hosts), "host"))
	}
	if err := p.addDemands(demands); err != nil {
		return nil, err
	}
	if err := p.addHosts(hosts, options.Keep); err != nil {
		return nil, err
	}
	if err := p.holdable(demands); err != nil {
		return nil, err
	}
	for _, d := range p.types {
		p.hostsMatter = p.hostsMatter || d.gpus > 1
	}
	p.hostsMatter = p.hostsMatter || p.spare > 0
	p.describe()
	return p, nil
}

func (p *problem) addDemands(demands []Demand) error {
	if len(demands) == 0 {
		return fmt.Errorf("there are no demands")
	}
	index, names, units := map[string]int{}, map[string]bool{}, 0
	for i := range demands {
		d := &demands[i]
		if d.Name == "" {
			return fmt.Errorf("demand %d has no name", i+1)
		}
		if names[d.Name] {
			return fmt.Errorf("there are two demands called %q; each result goes by its demand's name", d.Name)
		}
		names[d.Name] = true
		t, err := d.unit()
		if err != nil {
			return fmt.Errorf("demand %q: %w", d.Name, err)
		}
		if units += d.Count; units > mostUnits {
			return fmt.Errorf("demand %q: with its %d the demands have more than %d units, which is more than fit looks at", d.Name, d.Count,
				mostUnits)
		}
		key := fmt.Sprintf("%s %d %s %d %d %d", t.kind, t.vram, t.profile, t.memory, t.threads, t.gpus) // %d has all digits of bytes
		at, ok := index[key]
		if !ok {
			at = len(p.types)
			index[key], p.types = at, append(p.types, t)
		}
		p.types[at].demands = append(p.types[at].demands, i)
		p.types[at].count += d.Count
	}
	return nil
}

// unit checks a demand, and is what one unit of it asks for.
func (d *Demand) unit() (unitType, error) {
	t := unitType{kind: d.Kind}
	if d.Count < 1 || d.Count > mostUnits {
		return t, fmt.Errorf("count is %d; it must be from 1 to %d", d.Count, mostUnits)
	}
	has := map[string]bool{
		"vram_mib": d.VRAMMiB != 0, "profile": d.Profile != "", "memory_mib": d.MemoryMiB != 0, "threads": d.Threads != 0, "gpus": d.GPUs != 0,
	}
	may := map[Kind][]string{Partitions: {"vram_mib"}, Instances: {"profile"}, Shares: {"memory_mib", "threads"}, Whole: {"gpus"}}
	allowed, ok := may[d.Kind]
	if !ok {
		names := words.Each(kinds, func(k Kind) string { return string(k) })
		return t, fmt.Errorf("kind is %q. %s", d.Kind, words.Instead(string(d.Kind), names, ""))
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if has[name] && !slices.Contains(allowed, name) {
			return t, fmt.Errorf("%s is not for kind %q, which has %s", name, d.Kind, words.Join(allowed))
		}
	}
	const mostMiB = 1 << 30
	switch {
	case d.VRAMMiB < 0 || d.VRAMMiB > mostMiB:
		return t, fmt.Errorf("vram_mib is %d; it must be from 1 to %d, or left out for any", d.VRAMMiB, mostMiB)
	case d.Kind == Instances && d.Profile == "":
		return t, fmt.Errorf("profile is missing; write the MIG profile of its instances, such as 1g.10gb")
	case d.Kind == Shares && (d.MemoryMiB < 1 || d.MemoryMiB > mostMiB):
		return t, fmt.Errorf("memory_mib is %d; it must be from 1 to %d", d.MemoryMiB, mostMiB)
	case !placement.IsPercentage(d.Threads):
		return t, fmt.Errorf("threads is %s; it must be more than 0 and at most 100, a percentage of a GPU's threads, or left out",
			placement.Decimal(d.Threads))
	case math.Abs(d.Threads*10-math.Round(d.Threads*10)) > 1e-9:
		return t, fmt.Errorf("threads is %s; a share's percentage has one digit after the point at most",
			strconv.FormatFloat(d.Threads, 'f', -1, 64))
	case d.GPUs < 0:
		return t, fmt.Errorf("gpus is %d; it must be 1 or more", d.GPUs)
	}
	t.vram, t.profile, t.memory = gpu.FromMiB(d.VRAMMiB), d.Profile, gpu.FromMiB(d.MemoryMiB)
	t.threads = int64(d.Threads*millionths + 0.5)
	if d.Kind == Whole {
		t.gpus = max(d.GPUs, 1)
	}
	return t, nil
}

func (p *problem) counts() []int { return words.Each(p.types, func(t unitType) int { return t.count }) }

func (p *problem) addHosts(hosts []gpu.Host, keep Layouts) error {
	names := words.Each(hosts, func(h gpu.Host) string { return h.Name })
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("keep: there is no host %q. %s", name, words.Instead(name, names, ""))
		}
	}
	clusters, classes, looked := map[string]int{}, map[string]*class{}, map[string]*class{}
	for i := range hosts {
		h := &hosts[i]
		at := host{name: h.Name, group: -1, vms: h.Platform != gpu.Linux, containers: h.Platform != gpu.HyperV}
		if name := gpu.FoldID(h.ClusterName()); name != "" {
			if _, ok := clusters[name]; !ok {
				clusters[name] = len(clusters)
			}
			at.group = clusters[name]
		}
		if err := keepOfHost(h, keep); err != nil {
			return err
		}
		shared := sharedMemory(h)
		for j := range h.GPUs {
			g := &h.GPUs[j]
			if g.Problem != "" || g.Status == gpu.NotAssignable {
				continue
			}
			d := device{host: i, gpu: g, keep: p.kept(h, g, keep)}
			glance := at.glance(g)
			if looked[glance] == nil {
				looked[glance] = p.classOf(at, g, shared[gpu.FoldID(g.ID)], classes)
			}
			d.class = looked[glance]
			at.gpus = append(at.gpus, len(p.gpus))
			p.gpus = append(p.gpus, d)
		}
		p.hosts = append(p.hosts, at)
	}
	if len(p.gpus) == 0 {
		return fmt.Errorf("the hosts have no GPU that works and can be given out")
	}
	return nil
}

// keepOfHost finds layouts to keep of GPUs that the host has not, and such as no GPU of theirs can have.
func keepOfHost(h *gpu.Host, keep Layouts) error {
	for _, id := range slices.Sorted(maps.Keys(keep[h.Name])) {
		g, ok := h.GPU(id)
		if !ok {
			ids := words.Each(h.GPUs, func(g gpu.GPU) string { return g.ID })
			return fmt.Errorf("keep: host %q has no GPU %q. %s", h.Name, id, words.Instead(id, ids, ""))
		}
		if err := keep[h.Name][id].possible(g); err != nil {
			return fmt.Errorf("keep: GPU %q of host %q: %w", id, h.Name, err)
		}
	}
	return nil
}

// possible finds a layout that a GPU cannot have.
func (l Layout) possible(g *gpu.GPU) error {
	if err := l.Check(); err != nil {
		return err
	}
	if l.MIG != nil {
		_, err := placement.PlaceMIG(placement.MIGProfiles(g), nil, l.MIG.Profiles)
		return err
	}
	if l.GPUP != nil && (g.Partitionable == nil || !slices.Contains(g.Partitionable.ValidCounts, l.GPUP.PartitionCount)) {
		return fmt.Errorf("partition_count is %d, which the GPU does not take", l.GPUP.PartitionCount)
	}
	return nil
}

// sharedMemory is the device of each GPU as shares find it under MPS: of it are memory and the number of clients.
func sharedMemory(h *gpu.Host) map[string]*placement.Device {
	bare := gpu.Host{Name: h.Name, Platform: gpu.Linux}
	var ids []string
	for i := range h.GPUs {
		g := h.GPUs[i]
		g.MIG, g.VGPU, g.Dismounted, g.Partitionable, g.Problem, g.ComputeMode = nil, nil, false, nil, "", ""
		bare.GPUs, ids = append(bare.GPUs, g), append(ids, g.ID)
	}
	config := &gpu.PartitionConfig{ID: "fit", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{MultiUser: true}, GPUs: map[string][]string{h.Name: ids}}
	bare.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: config.ID, GPUs: ids, Want: gpu.Want{Config: config}}}
	out := map[string]*placement.Device{}
	room := placement.NewSharedHost(h.Name, &bare, &bare)
	for _, d := range room.Scoped(&gpu.Share{Name: "fit"}) {
		out[gpu.FoldID(d.GPU)] = d
	}
	return out
}

// glance is the same for GPUs that are alike at first sight: of the same model of the catalog, or one GPU of a recording.
func (h *host) glance(g *gpu.GPU) string {
	text := fmt.Sprintf("%v %v %q %v %q %d %q %q", h.vms, h.containers, g.Model, g.PCI, g.Vendor, g.VRAM, g.ComputeCapability,
		g.Driver.Version)
	if part := g.Partitionable; part != nil {
		text += fmt.Sprintf(" %d %d %d %v", part.ValidCounts, part.Count, part.VRAM, part.Paravirtual)
	}
	if g.MIG != nil && len(g.MIG.Profiles) > 0 {
		text += fmt.Sprintf("%p", &g.MIG.Profiles[0])
	}
	return text
}

func (p *problem) classOf(h host, g *gpu.GPU, shared *placement.Device, known map[string]*class) *class {
	c := &class{partitions: map[int]gpu.Bytes{}, fits: map[string]bool{}}
	if part := g.Partitionable; h.vms && part != nil && !part.Paravirtual {
		for _, n := range part.ValidCounts {
			size := part.EstimatedPartitionVRAM(n)
			if n == part.Count {
				size = part.PartitionVRAM()
			}
			c.partitions[n] = size
		}
		c.counts = slices.Sorted(maps.Keys(c.partitions))
	}
	if h.containers {
		if m, _ := catalog.Of(g.PCI, g.Model); g.Vendor == "NVIDIA" || m.Vendor == "NVIDIA" {
			c.memory, c.seats = shared.Memory, shared.Seats
		}
		c.profiles = placement.MIGProfiles(g)
	}
	key := fmt.Sprintf("%v %v %d %d %d %v", h.vms, h.containers, c.partitions, c.memory, c.seats, c.profiles)
	if known[key] == nil {
		known[key] = c
		p.classes = append(p.classes, c)
		for t := range p.types {
			if p.types[t].kind == Instances && slices.ContainsFunc(c.profiles, func(x gpu.MIGProfile) bool { return x.Name == p.types[t].profile }) {
				c.offers = append(c.offers, t)
			}
		}
	}
	return known[key]
}

// kept is the layout that a GPU keeps for nothing.
func (p *problem) kept(h *gpu.Host, g *gpu.GPU, keep Layouts) *Layout {
	if keep != nil {
		for id, l := range keep[h.Name] {
			if gpu.SameID(id, g.ID) {
				return &l
			}
		}
		return nil
	}
	return layoutOf(h, g)
}

// layoutOf is what a GPU has now, nil for nothing.
func layoutOf(h *gpu.Host, g *gpu.GPU) *Layout {
	if g.Dismounted {
		return &Layout{Kind: WholeGPU}
	}
	if g.MIGEnabled() {
		profiles := map[string]int{}
		for i := range g.MIG.Instances {
			profiles[g.MIG.Instances[i].Profile]++
		}
		return &Layout{Kind: gpu.KindMIG, MIG: &MIG{profiles}}
	}
	for c := range h.ClaimsOf(gpu.ClaimConfig) {
		if c.Want.Config != nil && c.Covers(g.ID) && c.Want.Config.Kind == gpu.KindMPS {
			return mpsLayout()
		}
		if c.Want.Config != nil && c.Covers(g.ID) && c.Want.Config.Kind == gpu.KindTimeSlicing {
			return &Layout{Kind: gpu.KindTimeSlicing} // of no use here, and a change to anything else
		}
	}
	if g.VGPU != nil && len(g.VGPU.Instances) > 0 {
		return &Layout{Kind: gpu.KindVGPU}
	}
	part := g.Partitionable
	if part != nil && h.Platform != gpu.Linux && !part.Paravirtual && (part.Count > 1 || g.Status == gpu.Partitioned) {
		return &Layout{Kind: gpu.KindGPUP, GPUP: &GPUP{part.Count}}
	}
	return nil
}

func mpsLayout() *Layout { return &Layout{Kind: gpu.KindMPS, MPS: &MPS{MultiUser: true}} }

// holdable refuses a demand of which no GPU, and no host, holds a single unit.
func (p *problem) holdable(demands []Demand) error {
	for i := range p.types {
		t := &p.types[i]
		name := demands[t.demands[0]].Name
		if err := p.holds(t); err != nil {
			return fmt.Errorf("demand %q: %w", name, err)
		}
	}
	return nil
}

func (p *problem) holds(t *unitType) error {
	switch t.kind {
	case Partitions:
		most, some := gpu.Bytes(0), false
		for _, c := range p.classes {
			for _, n := range c.counts {
				some, most = true, max(most, c.partitions[n])
			}
		}
		if !some {
			return fmt.Errorf("none of the hosts has a GPU with partitions of GPU-P")
		}
		if t.vram > most {
			return fmt.Errorf("vram_mib is %d, and no GPU of the hosts has a partition of more than %d MiB; ask for less, or for whole GPUs "+
				"with kind \"gpu\"", t.vram.MiB(), most.MiB())
		}
	case Instances:
		var names []string
		for _, c := range p.classes {
			for _, x := range c.profiles {
				names = append(names, x.Name)
			}
		}
		if len(names) == 0 {
			return fmt.Errorf("none of the hosts has a GPU with MIG")
		}
		if !slices.Contains(names, t.profile) {
			return fmt.Errorf("no GPU of the hosts has the MIG profile %q. %s", t.profile, words.Instead(t.profile, names, ""))
		}
	case Shares:
		most := gpu.Bytes(0)
		for _, c := range p.classes {
			if c.seats > 0 {
				most = max(most, c.memory)
			}
		}
		if most == 0 {
			return fmt.Errorf("none of the hosts has a GPU that shares can be placed on, with a known amount of memory")
		}
		if t.memory > most {
			return fmt.Errorf("memory_mib is %d, and no GPU of the hosts has more than %d MiB", t.memory.MiB(), most.MiB())
		}
	case Whole:
		most := slices.Max(words.Each(p.hosts, func(h host) int { return len(h.gpus) }))
		if t.gpus > most {
			return fmt.Errorf("gpus is %d, and no host has more than %s; the GPUs of one unit are on one host", t.gpus, words.Plural(most, "GPU"))
		}
	}
	return nil
}

// describe works out what the solvers rest on once hosts and demands are known.
func (p *problem) describe() {
	largest := gpu.Bytes(1)
	for _, c := range p.classes {
		largest = max(largest, c.memory)
	}
	for i := range p.types {
		t := &p.types[i]
		switch t.kind {
		case Partitions:
			t.size = float64(t.vram)
		case Instances:
			for _, c := range p.classes {
				for _, x := range c.profiles {
					if x.Name == t.profile {
						t.size = max(t.size, float64(x.Size)+float64(x.Slices)/100)
					}
				}
			}
		case Shares:
			t.size = max(float64(t.memory)/float64(largest), float64(t.threads)/wholeThreads)
		case Whole:
			t.size = float64(t.gpus)
		}
		p.of[t.kind] = append(p.of[t.kind], i)
	}
	for _, list := range p.of {
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(p.types[b].size, p.types[a].size) })
	}
	for i := range p.gpus {
		d := &p.gpus[i]
		if len(d.class.offers) > 0 && d.class.patterns == nil {
			p.listPatterns(d.class)
		}
		d.kept = p.roleOf(d)
		h := p.hosts[d.host]
		parts := []string{fmt.Sprintf("%p", d.class), strconv.Itoa(h.group), strconv.FormatBool(h.vms && h.containers)}
		if d.keep != nil {
			parts = append(parts, string(d.keep.Kind), d.keep.String())
		}
		if h.vms && h.containers && len(p.of[Partitions]) > 0 && len(p.of[Instances])+len(p.of[Shares]) > 0 {
			p.hostsMatter = true // one host is of one platform
		}
		d.like = strings.Join(parts, " ")
	}
}

// listPatterns finds the largest sets of instances of the demanded profiles that the GPUs of a class take, by the solver that places them.
func (p *problem) listPatterns(c *class) {
	most := make([]int, len(p.types))
	var sets [][]int
	var grow func(from int, set []int)
	grow = func(from int, set []int) {
		largest := true
		for i, t := range c.offers {
			if set[t] >= p.types[t].count {
				continue
			}
			set[t]++
			if c.takes(p, set) {
				largest = false
				if i >= from {
					grow(i, set)
				}
			}
			set[t]--
		}
		if largest {
			sets = append(sets, slices.Clone(set))
		}
	}
	grow(0, most)
	c.patterns = sets
}

// takes reports whether an empty GPU of the class has places for so many instances of each type.
func (c *class) takes(p *problem, set []int) bool {
	var key strings.Builder
	want := map[string]int{}
	for _, t := range c.offers {
		if set[t] > 0 {
			want[p.types[t].profile] = set[t]
		}
		fmt.Fprintf(&key, "%d,", set[t])
	}
	fits, known := c.fits[key.String()]
	if !known {
		_, err := placement.PlaceMIG(c.profiles, nil, want)
		fits = err == nil
		c.fits[key.String()] = fits
	}
	return fits
}
