package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The GPUs of a Linux host: two with MIG, of which the mode of one takes a reset, and two
// with vGPUs. All of them can be shared.
const (
	randomAmpere = iota
	randomHopper
	randomAda
	randomAda2
	randomCards
)

const (
	randomUnit  = "nvidia-dcgm.service"
	randomOther = "trainer.service"
)

func randomCard(host, n int) string {
	return fmt.Sprintf("GPU-%d0000000-0000-4000-8000-%012d", host, n)
}

func cardsOf(host string) []string {
	var out []string
	for n := range randomCards {
		out = append(out, randomCard(int(host[len(host)-1]-'0'), n))
	}
	return out
}

// TestWhatThePlanSaysOfMIGBackedVGPUs makes random changes of Linux hosts whose H100 offers vGPUs
// that live in GPU instances, beside MIG layouts, shares and time slices of it.
func TestWhatThePlanSaysOfMIGBackedVGPUs(t *testing.T) {
	t.Parallel()
	cases := *planCases
	if cases == 0 {
		if cases = 400; testing.Short() {
			cases = 100
		}
	}
	total := play(*planSeed, (cases+changesPerFleet-1)/changesPerFleet, func(seed uint64) *world {
		w := newBareWorld(t, seed, 14)
		w.linux, w.backed = true, true
		w.begin(linuxHosts(w))
		for range changesPerFleet {
			w.step()
		}
		return w
	})
	t.Logf("cases: %v", total)
	if !t.Failed() && total["backed"]*20 < cases {
		t.Errorf("there are too few MIG-backed vGPUs: %v", total)
	}
}

// linuxHosts are one or two hosts with a GPU of each sort.
func linuxHosts(w *world) gpu.Snapshot {
	var s gpu.Snapshot
	hosts := 1
	if w.chance(25) {
		hosts = 2
	}
	for i := 1; i <= hosts; i++ {
		h := gpu.Host{
			Name: fmt.Sprintf("lin0%d", i), Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, VMs: []gpu.VM{}, Pools: []gpu.Pool{},
			MPS: &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}, ContainerToolkit: "1.18.0", Units: []string{randomUnit, randomOther},
		}
		driver := pick(w, "580.95.05", "580.95.05", "615.10.01")
		for n, model := range []string{"A100-SXM4-80GB", "H100 80GB HBM3", "L40S", "L40S"} {
			m, ok := catalog.ByName(model)
			if !ok {
				w.fatal("the catalog has no %s", model)
			}
			g := gpu.GPU{
				ID: randomCard(i, n), Model: m.Name, Vendor: m.Vendor, PCI: gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}, VRAM: m.VRAM,
				Driver: gpu.Driver{Version: driver}, Address: fmt.Sprintf("0000:%02x:00.0", 0x1a+n), ComputeMode: gpu.ComputeDefault,
				TimeSlice: gpu.TimeSliceDefault, ComputeCapability: map[int]string{randomAmpere: "8.0", randomHopper: "9.0"}[n],
			}
			if m.MIG != nil {
				g.MIG = &gpu.MIG{NeedsReset: m.MIG.ModeNeedsReset, Profiles: m.MIG.Profiles}
			}
			if n == randomHopper && w.backed {
				g.VGPU = &gpu.VGPU{Functions: 16, Types: []gpu.VGPUType{
					{Name: "H100-40C", FrameBuffer: 40 << 30, Max: 2},
					{Name: "H100-1-10C", FrameBuffer: 10 << 30, Max: 7, MIGProfile: "1g.10gb"},
					{Name: "H100-3-40C", FrameBuffer: 40 << 30, Max: 2, MIGProfile: "3g.40gb"},
				}}
			}
			if m.MIG == nil {
				g.ComputeCapability = "8.9"
				g.VGPU = &gpu.VGPU{Functions: 32, HeterogeneousSupported: true, Types: []gpu.VGPUType{
					{Name: "L40S-12Q", FrameBuffer: 12 << 30, Max: 4, MaxPerVM: 16}, {Name: "L40S-24Q", FrameBuffer: 24 << 30, Max: 2, MaxPerVM: 16},
				}}
			}
			h.GPUs = append(h.GPUs, g)
		}
		s.Hosts = append(s.Hosts, h)
	}
	return s
}

func (w watched) SetMIGMode(ctx context.Context, id string, on, reset bool) error {
	before, _ := w.Inventory(ctx)
	err := w.Host.SetMIGMode(ctx, id, on, reset)
	if g, ok := before.GPU(id); err == nil && reset && ok && g.MIG.NeedsReset && g.MIG.Enabled != on {
		w.witness.mu.Lock()
		defer w.witness.mu.Unlock()
		if w.settling == 0 {
			w.resets[id] = true
		}
	}
	return err
}

// meddleLinux has others do something to a Linux host.
func (w *world) meddleLinux() {
	ctx, host := w.t.Context(), pick(w, slices.Sorted(maps.Keys(w.endpoints))...)
	h := w.hosts()[host]
	g := &h.GPUs[w.rng.IntN(len(h.GPUs))]
	var at *gpu.MIGPlacement
	if g.MIG != nil && len(g.MIG.Instances) > 0 {
		at = new(g.MIG.Instances[w.rng.IntN(len(g.MIG.Instances))].Placement())
	}
	did := func(what string, err error) {
		if err == nil {
			w.note("others: %s on %s", what, host)
		}
	}
	p := gpu.Process{Name: "python", Holder: "container 3f2a"}
	switch w.rng.IntN(17) {
	case 0, 1:
		_, err := w.sim.StartProcess(ctx, host, g.ID, at, p)
		did(fmt.Sprintf("a process on %s in %v", g.ID, at), err)
	case 2, 3:
		if h.MPS != nil && len(h.MPS.Daemons) > 0 {
			d := h.MPS.Daemons[w.rng.IntN(len(h.MPS.Daemons))].Name
			_, err := w.sim.StartClient(ctx, host, d, p)
			did("a client of "+d, err)
		}
	case 4, 5:
		if len(h.Shares) > 0 {
			s := h.Shares[w.rng.IntN(len(h.Shares))].Name
			_, err := w.sim.StartInShare(ctx, host, s, p)
			did("a process in share "+s, err)
		}
	case 6, 7, 8, 9:
		for _, g := range h.GPUs {
			for _, p := range g.Processes {
				if w.chance(60) {
					did(fmt.Sprintf("process %d ends", p.PID), w.sim.StopProcess(ctx, host, p.PID))
				}
			}
		}
	case 10:
		if w.chance(40) {
			did("a reboot", w.sim.Reboot(ctx, host))
		}
	case 11:
		mode := pick(w, gpu.ComputeDefault, gpu.ComputeDefault, gpu.ComputeExclusiveProcess, gpu.ComputeProhibited)
		did(fmt.Sprintf("%s is in compute mode %s", g.ID, mode), w.sim.SetComputeModeOutside(ctx, host, g.ID, mode))
	case 12:
		did("another time slice of "+g.ID, w.sim.SetTimeSliceOutside(ctx, host, g.ID, pick(w, gpu.TimeSliceDefault, gpu.TimeSliceLong)))
	case 13:
		w.meddleInstances(host, g, at, did)
	case 14:
		if g.VGPU != nil && len(g.VGPU.Instances) > 0 {
			place := g.VGPU.Instances[w.rng.IntN(len(g.VGPU.Instances))].VGPUPlace
			if w.chance(50) {
				did(fmt.Sprintf("web-01 holds %v of %s", place, g.ID), w.sim.HoldVGPU(ctx, host, g.ID, place, "web-01"))
			} else {
				did(fmt.Sprintf("nobody holds %v of %s", place, g.ID), w.sim.ReleaseVGPU(ctx, host, g.ID, place))
			}
		}
	case 15:
		did("the unit "+randomUnit, w.sim.SetUnit(ctx, host, randomUnit, simulated.Unit{HoldsGPUs: w.chance(50)}, w.chance(70)))
	default:
		w.meddleSharing(host, h, did)
	}
}

func (w *world) meddleInstances(host string, g *gpu.GPU, at *gpu.MIGPlacement, did func(string, error)) {
	ctx := w.t.Context()
	switch {
	case g.MIG == nil:
	case at != nil && w.chance(50):
		did(fmt.Sprintf("%v of %s is removed by hand", *at, g.ID), w.sim.DestroyInstanceOutside(ctx, host, g.ID, *at))
	case g.MIG.Enabled:
		p := gpu.MIGPlacement{Profile: "1g.10gb", Start: w.rng.IntN(7)}
		did(fmt.Sprintf("%v of %s is made by hand", p, g.ID), w.sim.CreateInstanceOutside(ctx, host, g.ID, p))
	default:
		did("MIG mode of "+g.ID+" by hand", w.sim.SetMIGModeOutside(ctx, host, g.ID, true))
	}
}

func (w *world) meddleSharing(host string, h *gpu.Host, did func(string, error)) {
	ctx := w.t.Context()
	if len(h.Shares) > 0 && w.chance(50) {
		s := h.Shares[w.rng.IntN(len(h.Shares))].Name
		did("share "+s+" is gone", w.sim.RemoveShareOutside(ctx, host, s))
	} else if h.MPS != nil && len(h.MPS.Daemons) > 0 {
		d := h.MPS.Daemons[w.rng.IntN(len(h.MPS.Daemons))].Name
		if w.chance(50) {
			did("daemon "+d+" is killed", w.sim.KillDaemon(ctx, host, d))
		} else {
			did("the control of "+d+" is killed", w.sim.KillControl(ctx, host, d))
		}
	}
}

// chooseLinux picks a resource of Linux hosts and what it shall have next.
func (w *world) chooseLinux() (*resource, gpu.Want) {
	if w.backed && w.chance(40) {
		return w.change("gpu_partition_config backed", 20, func(gpu.Want) gpu.Want {
			c := w.linuxConfig("backed", gpu.KindVGPU, randomHopper)
			c.VGPU = pick(w, &gpu.VGPULayout{Type: "H100-1-10C"}, &gpu.VGPULayout{Type: "H100-40C"},
				&gpu.VGPULayout{Types: map[string]int{"H100-3-40C": 1, "H100-1-10C": 2}}, &gpu.VGPULayout{})
			return gpu.Want{Config: c}
		})
	}
	switch n := w.rng.IntN(20); {
	case n < 4:
		return w.change("gpu_partition_config mig", 20, func(gpu.Want) gpu.Want { return gpu.Want{Config: w.mig()} })
	case n < 8:
		return w.change("gpu_partition_config mps", 20, func(gpu.Want) gpu.Want { return gpu.Want{Config: w.mps()} })
	case n < 10:
		return w.change("gpu_partition_config turns", 20, func(gpu.Want) gpu.Want {
			c := w.linuxConfig("turns", gpu.KindTimeSlicing, randomAmpere, randomHopper, randomAda, randomAda2)
			c.TimeSlicing = &gpu.TimeSlicing{Replicas: pick(w, 2, 4), Interval: pick(w, gpu.TimeSlice(""), gpu.TimeSliceLong)}
			return gpu.Want{Config: c}
		})
	case n < 12:
		return w.change("gpu_partition_config vgpu", 20, func(gpu.Want) gpu.Want {
			c := w.linuxConfig("vgpu", gpu.KindVGPU, randomAda, randomAda2)
			c.VGPU = pick(w, &gpu.VGPULayout{Type: "L40S-12Q"}, &gpu.VGPULayout{Type: "L40S-24Q", Count: new(1)},
				&gpu.VGPULayout{Types: map[string]int{"L40S-24Q": 1, "L40S-12Q": 2}})
			return gpu.Want{Config: c}
		})
	case n < 14:
		return w.change("gpu_pool ml", 15, func(gpu.Want) gpu.Want {
			c := &gpu.PoolConfig{ID: "lin01/ml", Name: "ml", Members: map[string][]string{}}
			for host := range w.endpoints {
				c.Members[host] = w.some(cardsOf(host))
			}
			if w.chance(30) {
				c.Quotas = map[string]gpu.PoolQuota{"team-a": {Shares: new(pick(w, 1, 2))}}
			}
			return gpu.Want{Pool: c}
		})
	default:
		name := fmt.Sprintf("s%d", w.rng.IntN(4))
		return w.change("gpu_share "+name, 30, func(had gpu.Want) gpu.Want { return gpu.Want{Share: w.share(name, had.Share)} })
	}
}

// change picks what a resource shall have next: nothing any more, or something else.
func (w *world) change(label string, gone int, want func(had gpu.Want) gpu.Want) (*resource, gpu.Want) {
	r := w.resource(label)
	if !r.has.Empty() && w.chance(gone) {
		return r, gpu.Want{}
	}
	return r, want(r.has)
}

func (w *world) linuxConfig(id string, kind gpu.Kind, cards ...int) *gpu.PartitionConfig {
	c := &gpu.PartitionConfig{
		ID: id, Kind: kind, Name: id, GPUs: map[string][]string{}, Restore: w.chance(60),
		MaxDisruption: pick(w, gpu.DisruptNone, gpu.DisruptProcessRestart, gpu.DisruptGPUReset, gpu.DisruptGPUReset),
	}
	if w.chance(60) {
		c.QuiesceUnits = []string{"nvidia-dcgm"}
	}
	for _, host := range w.someHosts() {
		var ids []string
		for _, n := range cards {
			ids = append(ids, cardsOf(host)[n])
		}
		c.GPUs[host] = w.some(ids)
	}
	return c
}

// someHosts is one of the hosts, or all.
func (w *world) someHosts() []string {
	hosts := slices.Sorted(maps.Keys(w.endpoints))
	if len(hosts) > 1 && w.chance(30) {
		return []string{pick(w, hosts...)}
	}
	return hosts
}

func (w *world) mig() *gpu.PartitionConfig {
	c := w.linuxConfig("mig", gpu.KindMIG, randomAmpere, randomHopper)
	c.MIG = &gpu.MIGLayout{
		Profiles: pick(w, map[string]int{"3g.40gb": 2}, map[string]int{"1g.10gb": 7}, map[string]int{"3g.40gb": 1, "1g.10gb": 2},
			map[string]int{"2g.20gb": 1}),
	}
	if w.chance(20) {
		c.MIG = &gpu.MIGLayout{Placements: []gpu.MIGPlacement{{Profile: "3g.40gb", Start: 4}, {Profile: "1g.10gb", Start: 0}}}
	}
	switch w.rng.IntN(5) {
	case 0:
		c.MPS = &gpu.MPSLayout{MultiUser: true}
	case 4:
		c.MIG = &gpu.MIGLayout{Off: true}
	case 1:
		c.TimeSlicing = &gpu.TimeSlicing{Replicas: 2}
	}
	return c
}

func (w *world) mps() *gpu.PartitionConfig {
	c := w.linuxConfig("mps", gpu.KindMPS, randomHopper, randomAda, randomAda2)
	c.MPS = &gpu.MPSLayout{MultiUser: w.chance(70)}
	if !c.MPS.MultiUser {
		c.MPS.User = new(pick(w, 1000, 1001))
	}
	if w.chance(40) {
		c.MPS.ActiveThreadPercentage = pick(w, 50.0, 25.0)
	}
	if w.chance(20) {
		c.MPS.PinnedMemoryLimit = 20 << 30
	}
	if w.chance(15) {
		c.MPS.ComputeMode = gpu.ComputeDefault
	}
	return c
}

func (w *world) share(name string, had *gpu.Share) *gpu.Share {
	s := &gpu.Share{Name: name, Host: pick(w, slices.Sorted(maps.Keys(w.endpoints))...), Count: 1}
	if had != nil { // the rest makes another share
		*s = *had
	} else {
		if w.chance(40) {
			s.Pool = "lin01/ml"
		}
		if w.chance(60) {
			s.Config = pick(w, "mig", "mps", "mps", "turns")
		}
		if w.chance(15) {
			s.Count = 2
		}
	}
	s.MemoryLimit = pick(w, gpu.Bytes(0), 4<<30, 9<<30, 20<<30)
	s.MemoryRequest = s.MemoryLimit
	s.ActiveThreadPercentage = 0
	if w.chance(20) {
		s.ActiveThreadPercentage = 25
	}
	if s.Label = ""; s.Pool != "" && w.chance(30) {
		s.Label = "team-a"
	}
	return s
}

// drifted tells whether a resource is not as its state has it, so that each plan repairs it.
func drifted(r *resource, hosts map[string]*gpu.Host) bool {
	for name, h := range hosts {
		steps, err := change.Plan(*h, name, change.Change{Subject: r.label, Owner: randomOwner, Token: r.token, Want: r.has, Prior: r.has})
		if err != nil || slices.ContainsFunc(steps, func(s change.Step) bool { return s.Claim == nil }) {
			return true
		}
	}
	return false
}

// ofLinux is what a plan announces about Linux hosts.
type ofLinux struct {
	// gpus are the layouts of GPUs that change, by host and id.
	gpus   map[string]cardLayout
	resets []string // ids
	ends   []string // process ids
}

// cardLayout is all that a config can change about a GPU.
type cardLayout struct {
	MIG     gpu.MIGState
	VGPU    gpu.VGPUState
	Compute gpu.ComputeMode
	Slice   gpu.TimeSlice
	Daemons []string
}

func layoutOf(h *gpu.Host, g *gpu.GPU) cardLayout {
	l := cardLayout{Compute: g.ComputeMode, Slice: g.TimeSlice}
	if l.Slice == "" { // told once MIG mode is off
		l.Slice = gpu.TimeSliceDefault
	}
	if g.MIG != nil {
		l.MIG = g.MIG.State()
	}
	if g.VGPU != nil {
		l.VGPU = g.VGPU.State()
	}
	if h.MPS == nil {
		return l
	}
	for _, d := range h.MPS.Daemons {
		if slices.ContainsFunc(d.Devices, func(x gpu.SharedDevice) bool { return gpu.SameID(x.GPU, g.ID) }) {
			l.Daemons = append(l.Daemons, d.Name)
		}
	}
	slices.Sort(l.Daemons)
	return l
}

// sameLayout compares layouts in whatever order. The ids of vGPUs are the host's to choose,
// and daemons are compared by what becomes of their clients.
var sameLayout = []cmp.Option{
	cmpopts.EquateEmpty(), cmpopts.IgnoreFields(cardLayout{}, "Daemons"), cmpopts.IgnoreFields(gpu.VGPUPlace{}, "UUID"),
	cmpopts.SortSlices(func(a, b gpu.MIGPlacement) bool { return a.Start < b.Start }),
	cmpopts.SortSlices(func(a, b gpu.VGPUPlace) bool { return a.Function < b.Function }),
}

var processID = regexp.MustCompile(`process (\d+)`)

// sayLinux reads what the forecasts of a plan say about Linux hosts. A GPU that another config takes
// is in the end as that one says, whichever of the two comes first.
func (w *world) sayLinux(out *ofLinux, x change.Forecast, h *gpu.Host, beside []change.Change) {
	for _, c := range x.GPUs {
		g, ok := h.GPU(c.GPU)
		if !ok {
			w.fatal("the plan names GPU %s, which %s has not", c.GPU, x.Host)
		}
		l, said := out.gpus[x.Host+" "+g.ID] // by another plan of the run
		if !said {
			l = layoutOf(h, g)
		}
		if c.MIG != nil {
			if l.MIG = c.MIG.To; c.MIG.Resets {
				out.resets = append(out.resets, g.ID)
			}
		}
		if c.VGPU != nil {
			l.VGPU = c.VGPU.To
		}
		if s := c.Sharing; s != nil {
			if s.ComputeTo != "" {
				l.Compute = s.ComputeTo
			}
			if s.SliceTo != "" {
				l.Slice = s.SliceTo
			}
			for _, text := range s.Ends() {
				for _, pid := range processID.FindAllStringSubmatch(text, -1) {
					out.ends = append(out.ends, pid[1])
				}
			}
		}
		if !slices.ContainsFunc(beside, func(o change.Change) bool {
			return o.Want.Config != nil && slices.Contains(o.Want.Config.GPUs[x.Host], g.ID)
		}) {
			out.gpus[x.Host+" "+g.ID] = l
		}
	}
}

// compareLinux compares what a plan announced with what Linux hosts did.
func (w *world) compareLinux(says ofLinux, before, after map[string]*gpu.Host) {
	var ended []string
	for name, h := range before {
		there := after[name]
		for i := range h.GPUs {
			g := &h.GPUs[i]
			now, ok := there.GPU(g.ID)
			if !ok {
				w.fatal("GPU %s of %s is gone", g.ID, name)
			}
			want, changes := says.gpus[name+" "+g.ID]
			if !changes {
				want = layoutOf(h, g)
			}
			have := layoutOf(there, now)
			if have.MIG.Enabled || h.GPUs[i].MIG != nil && h.GPUs[i].MIG.Enabled {
				want.Slice, have.Slice = "", "" // which instances do not have
			}
			if have.MIG.Enabled || w.seen.resets[g.ID] {
				want.Compute, have.Compute = "", "" // goes with MIG mode and with a reset
			}
			if have.Compute == "" {
				want.Compute = "" // which the host does not tell
			}
			if now.TimeSlice == "" {
				want.Slice = have.Slice
			}
			if diff := cmp.Diff(want, have, sameLayout...); diff != "" {
				w.fatal("GPU %s on %s is not as the plan says (-plan +host):\n%s", g.ID, name, diff)
			}
		}
		lives := pids(there)
		for pid := range pids(h) {
			if !lives[pid] {
				ended = append(ended, pid)
			}
		}
		if diff := cmp.Diff(h.Units, there.Units, cmpopts.SortSlices(strings.Compare)); diff != "" {
			w.fatal("the units of %s are not as before:\n%s", name, diff)
		}
	}
	for what, pair := range map[string][2][]string{
		"ended": {says.ends, ended}, "reset": {says.resets, slices.Collect(maps.Keys(w.seen.resets))},
	} {
		for i := range pair {
			pair[i] = slices.Sorted(slices.Values(pair[i]))
			pair[i] = slices.Compact(pair[i])
		}
		if !slices.Equal(pair[0], pair[1]) {
			w.fatal("the plan says that %v are %s, and these were: %v", pair[0], what, pair[1])
		}
		if len(pair[1]) > 0 {
			w.counts[what]++
		}
	}
}

// pids are the processes on a host, without those that serve others.
func pids(h *gpu.Host) map[string]bool {
	out := map[string]bool{}
	add := func(of []gpu.Process) {
		for _, p := range of {
			if p.Name != "nvidia-cuda-mps-server" {
				out[fmt.Sprint(p.PID)] = true
			}
		}
	}
	for i := range h.GPUs {
		add(h.GPUs[i].Processes)
	}
	if h.MPS != nil {
		for _, d := range h.MPS.Daemons {
			add(d.Clients)
		}
	}
	return out
}

// applyLinux makes a change as its resource does: a share is pinned as it was placed.
func (w *world) applyLinux(f *fleet.Fleet, req fleet.Request) error {
	if req.Want.Share == nil {
		_, err := f.Apply(w.t.Context(), req)
		return err
	}
	_, _, err := f.ApplyShare(w.t.Context(), req)
	return err
}

// handed looks at a share that was made: containers can ask for it.
func (w *world) handed(want gpu.Want, after map[string]*gpu.Host) {
	s := want.Share
	if s == nil {
		return
	}
	if _, ok := after[s.Host].HandedShare(s.Name); !ok {
		w.fatal("%s does not hand over share %s", s.Host, s.Name)
	}
	w.counts["shares"]++
}
