package fleet_test

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

var (
	planCases = flag.Int("plan-cases", 0,
		"how many changes TestWhatThePlanSaysIsWhatTheHostDoes plans and applies; 0 means 1,000, or 400 with -short")
	planSeed = flag.Uint64("plan-seed", 1, "the first seed of TestWhatThePlanSaysIsWhatTheHostDoes")
)

// changesPerFleet is how many changes are made to one fleet, so that claims, assignments
// that wait and what others did add up.
const changesPerFleet = 20

// TestWhatThePlanSaysIsWhatTheHostDoes makes random changes to random fleets and compares
// what the plan announced with what the hosts then did. The hosts are watched where the
// agent calls them, and not through the steps that both go by.
func TestWhatThePlanSaysIsWhatTheHostDoes(t *testing.T) {
	t.Parallel()
	cases := *planCases
	if cases == 0 {
		if cases = 1000; testing.Short() {
			cases = 400
		}
	}
	total := play(*planSeed, (cases+changesPerFleet-1)/changesPerFleet, func(seed uint64) *world {
		w := newWorld(t, seed)
		w.forget()
		for range changesPerFleet {
			w.step()
		}
		return w
	})
	t.Logf("cases: %v", total)
	// Of each sort there are enough to prove something, per mille.
	for sort, least := range map[string]int{
		"applied": 300, "refused": 50, "stopped": 20, "reset": 4, "ended": 1, "shares": 15, "waits": 8, "reports": 250,
	} {
		if !t.Failed() && cases >= 400 && total[sort]*1000 < cases*least {
			t.Errorf("there are too few cases of %q: %v", sort, total)
		}
	}
}

// play lets so many worlds live, several at a time, and adds up what they count.
func play(first uint64, n int, live func(seed uint64) *world) map[string]int {
	var (
		mu    sync.Mutex
		total = map[string]int{}
		wg    sync.WaitGroup
		next  = make(chan uint64)
		// Several failures are read at once, and more would be too many.
		failed atomic.Int32
	)
	for range 4 {
		wg.Go(func() {
			for seed := range next {
				w := live(seed)
				w.end()
				if w.failed {
					failed.Add(1)
				}
				mu.Lock()
				for k, n := range w.counts {
					total[k] += n
				}
				mu.Unlock()
			}
		})
	}
	for i := range uint64(n) {
		if failed.Load() >= 5 {
			break
		}
		next <- first + i
	}
	close(next)
	wg.Wait()
	return total
}

// world is a fleet in memory, the resources that Terraform has there, and what its hosts did.
type world struct {
	t         *testing.T
	seed      uint64
	linux     bool
	backed    bool // has MIG-backed vGPU types
	lacks     bool // does not tell some fact: a report foretells what is known
	rng       *rand.Rand
	sim       *others.Fleet
	endpoints map[string]fleet.Endpoint
	closers   []func() error
	seen      *witness
	fuse      *fuse
	hours     int // by which the agents' clock is ahead
	resources []*resource
	drifting  []*resource // those that a plan repairs
	// again is the resource for which a run that died has made a change that its state does not
	// know: nothing else is planned before.
	again *resource
	// cutOff is true when it may be that hosts have unfinished changes.
	cutOff  bool
	due     change.Change
	cluster *cluster // the subject, in TestClustersKeepTheirPromises
	tokens  int
	history []string
	counts  map[string]int
	failed  bool
}

// resource is one of Terraform's, as its state has it.
type resource struct {
	label, token string
	has          gpu.Want
}

// witness notes what hosts did to what runs on them.
type witness struct {
	mu      sync.Mutex
	stopped map[string]bool // VMs by name
	resets  map[string]bool // GPUs by id
	moved   map[string]bool // VMs by name
	// settling is above 0 while what others left is put back, which stops VMs too: settled.
	settling int
	settled  map[string]bool
	// seats is the GPU of which VMs get a partition that may have any, "" for the emptiest.
	seats string
	// shaken are the VMs that it moved.
	shaken map[string]bool
	// hides is what hosts do not tell, nil for nothing.
	hides func(*gpu.Host)
}

// watched is a host whose calls are noted.
type watched struct {
	*simulated.Host
	*witness
	*fuse
	sim *others.Fleet
}

// Inventory is the host without what it does not tell.
func (w watched) Inventory(ctx context.Context) (gpu.Host, error) {
	h, err := w.Host.Inventory(ctx)
	if err != nil || w.hides == nil {
		return h, err
	}
	h = cloned(h)
	w.hides(&h)
	return h, nil
}

// Refresh is the same of what is read again.
func (w watched) Refresh(ctx context.Context, before gpu.Host, of backend.Objects) (gpu.Host, bool, error) {
	h, done, err := w.Host.Refresh(ctx, before, of)
	if err != nil || !done || w.hides == nil {
		return h, done, err
	}
	h = cloned(h)
	w.hides(&h)
	return h, done, nil
}

func (w watched) stop(ctx context.Context, vm string, stop func() error) error {
	before, err := w.Inventory(ctx)
	if err != nil {
		return err
	}
	v, ok := before.VM(vm)
	if err := stop(); err != nil {
		return err
	}
	if ok && v.Runs() {
		w.witness.mu.Lock()
		defer w.witness.mu.Unlock()
		if w.settling > 0 {
			w.settled[v.Name] = true
		} else {
			w.stopped[v.Name] = true
		}
	}
	return nil
}

func (w watched) ShutDownVM(ctx context.Context, vm string, force bool) error {
	return w.stop(ctx, vm, func() error { return w.Host.ShutDownVM(ctx, vm, force) })
}

func (w watched) TurnOffVM(ctx context.Context, vm string) error {
	return w.stop(ctx, vm, func() error { return w.Host.TurnOffVM(ctx, vm) })
}

// StartVM has a VM sit where the host is to choose, as far as there is room. Which GPU that is, is
// the host's affair.
func (w watched) StartVM(ctx context.Context, vm string) error {
	if w.seats == "" {
		return w.Host.StartVM(ctx, vm)
	}
	var loose []string
	pin := func(to string, of func(a *gpu.PartitionAdapter) bool) error {
		return w.sim.Edit(ctx, func(s *gpu.Snapshot) error {
			for i := range s.Hosts {
				v, ok := s.Hosts[i].VM(vm)
				for k := 0; ok && k < len(v.PartitionAdapters); k++ {
					if a := &v.PartitionAdapters[k]; of(a) {
						a.PinnedGPU = to
					}
				}
			}
			return nil
		})
	}
	h, err := w.Inventory(ctx)
	if err != nil {
		return err
	}
	room := 0
	if g, ok := h.GPU(w.seats); ok && g.Partitionable != nil {
		room = g.Partitionable.Free()
	}
	err = pin(w.seats, func(a *gpu.PartitionAdapter) bool {
		yes := a.PinnedGPU == "" && len(loose) < room
		if yes {
			loose = append(loose, a.ID)
		}
		return yes
	})
	if err != nil {
		return err
	}
	err = w.Host.StartVM(ctx, vm)
	if back := pin("", func(a *gpu.PartitionAdapter) bool { return slices.Contains(loose, a.ID) }); back != nil {
		return back
	}
	if err != nil { // its quotas are larger than a partition there
		return w.Host.StartVM(ctx, vm)
	}
	return nil
}

func (w watched) DrainNode(ctx context.Context) error {
	before, err := w.Inventory(ctx)
	if err != nil {
		return err
	}
	for _, vm := range before.VMs {
		if vm.Clustered && vm.Runs() {
			w.witness.mu.Lock()
			if w.settling > 0 {
				w.shaken[vm.Name] = true
			} else {
				w.moved[vm.Name] = true
			}
			w.witness.mu.Unlock()
		}
	}
	return w.Host.DrainNode(ctx)
}

// kept is a connection that outlives the runs of a world.
type kept struct {
	*agent.Client
	seen *witness
	up   *atomic.Int64 // the boot clock of all hosts
}

func (kept) Close() error { return nil }

const randomOwner = "vdi"

var (
	randomGPUs = []string{"PCIROOT(10)#PCI(0000)", "PCIROOT(11)#PCI(0000)"} // divided
	randomDDA  = []string{"PCIROOT(20)#PCI(0000)", "PCIROOT(21)#PCI(0000)", "PCIROOT(22)#PCI(0000)"}
	// givenByHand begins the ids of devices that people gave to VMs.
	givenByHand = "by-hand-"
)

func newWorld(t *testing.T, seed uint64) *world {
	w := newBareWorld(t, seed, 13)
	if w.linux = seed%2 == 0; w.linux {
		w.begin(linuxHosts(w))
	} else {
		w.begin(hypervHosts(w, pick(w, 1, 1, 1, 2, 3)))
	}
	return w
}

func newBareWorld(t *testing.T, seed, stream uint64) *world {
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, stream)), endpoints: map[string]fleet.Endpoint{},
		seen: &witness{}, counts: map[string]int{},
	}
	w.seen.begin()
	return w
}

// begin starts the agents of a fleet, and some of its VMs.
func (w *world) begin(snapshot gpu.Snapshot) {
	w.start(snapshot)
	for _, h := range snapshot.Hosts {
		for _, vm := range h.VMs {
			w.power(vm.Name)
		}
	}
}

func (w *world) start(of gpu.Snapshot) {
	var err error
	if w.sim, err = others.InMemory(of); err != nil {
		w.fatal("the fleet: %v", err)
	}
	w.serve()
}

// hypervHosts are a standalone host, or a cluster.
func hypervHosts(w *world, n int) gpu.Snapshot {
	var names []string
	var nodes []gpu.Node
	for i := range n {
		names = append(names, fmt.Sprintf("hv%02d", i+1))
		nodes = append(nodes, gpu.Node{Name: names[i], State: gpu.NodeUp})
	}
	var snapshot gpu.Snapshot
	mobile, all := w.chance(60), w.chance(50) // partitions migrate live; all VMs are the cluster's
	for i, name := range names {
		h := gpu.Host{Name: name, Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100}}
		for k, id := range slices.Concat(randomGPUs, randomDDA) {
			g := randomGPU(id, k < len(randomGPUs))
			if g.Partitionable != nil {
				g.Partitionable.SupportsIncomingLiveMigration = &mobile
			}
			h.GPUs = append(h.GPUs, g)
		}
		if len(names) > 1 {
			h.Cluster = &gpu.Cluster{Name: "clu", Nodes: slices.Clone(nodes)}
		}
		for k := range max(2, 4-n/4) { // a large cluster has fewer on each node
			h.VMs = append(h.VMs, gpu.VM{
				ID: fmt.Sprintf("%08X-0000-4000-8000-000000000000", 16*(i+1)+k), Name: fmt.Sprintf("vm-%d%d", i+1, k+1), State: gpu.VMOff,
				Generation: 2, Checkpoints: gpu.CheckpointsDisabled, Clustered: len(names) > 1 && (all || k%2 == 0),
				Settings: gpu.VMSettings{
					LowMemoryMappedIOSpace: new(gpu.Bytes(3 << 30)), HighMemoryMappedIOSpace: new(gpu.Bytes(128 << 30)),
					GuestControlledCache: new(false), AutomaticStopAction: new(gpu.StopTurnOff),
				},
			})
		}
		snapshot.Hosts = append(snapshot.Hosts, h)
	}
	return snapshot
}

func (w *world) end() {
	for _, c := range w.closers {
		_ = c()
	}
}

func randomGPU(id string, divided bool) gpu.GPU {
	g := gpu.GPU{
		ID: id, InstancePath: fmt.Sprintf(`PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\%s`, id[8:10]),
		Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
		VRAM: 16 << 30, Driver: gpu.Driver{Version: "573.39"}, Status: gpu.ReadyForDDA, MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16 << 30},
	}
	if divided {
		each := func(total uint64) gpu.Capacity {
			return gpu.Capacity{Total: total, Available: total, Min: total / 4, Max: total / 4, Optimal: total / 4}
		}
		g.Status = gpu.Partitioned
		g.Partitionable = &gpu.Partitionable{
			Name: `\\?\PCI#VEN_10DE&DEV_25B6#` + id[8:10], ValidCounts: []int{1, 2, 4, 8, 16}, Count: 4,
			VRAM: each(16 << 30), Encode: each(32), Decode: each(64), Compute: each(4096),
		}
	}
	return g
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](w *world, of ...T) T { return of[w.rng.IntN(len(of))] }

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	w.failed = true
	w.t.Errorf("seed %d: %s\nbefore it:\n  %s", w.seed, fmt.Sprintf(format, args...), strings.Join(w.history, "\n  "))
	panic(errDiffers)
}

var errDiffers = errors.New("the plan and the host differ")

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

// hosts are the hosts as they are.
func (w *world) hosts() map[string]*gpu.Host {
	s, err := w.sim.Snapshot(w.t.Context())
	if err != nil {
		w.fatal("read the fleet: %v", err)
	}
	out := map[string]*gpu.Host{}
	for i := range s.Hosts {
		out[s.Hosts[i].Name] = &s.Hosts[i]
	}
	return out
}

func (w *world) vms() []string {
	var out []string
	for _, h := range w.hosts() {
		for _, vm := range h.VMs {
			out = append(out, vm.Name)
		}
	}
	slices.Sort(out)
	return out
}

// power brings a VM into a random state. One that finds no room stays as it is.
func (w *world) power(vm string) {
	state := pick(w, gpu.VMRunning, gpu.VMRunning, gpu.VMRunning, gpu.VMOff, gpu.VMOff, gpu.VMPaused, gpu.VMSaved)
	for _, s := range map[bool][]gpu.VMState{true: {gpu.VMRunning, state}, false: {state}}[state == gpu.VMPaused] {
		if err := w.sim.SetVMState(w.t.Context(), vm, s); err != nil {
			w.note("%s does not become %s: %v", vm, s, err)
			return
		}
	}
	w.note("%s is %s", vm, state)
}

// meddle has others do something to the fleet.
func (w *world) meddle() {
	ctx, vm := w.t.Context(), pick(w, w.vms()...)
	switch w.rng.IntN(8) {
	case 0:
		if _, err := w.sim.AddForeignAdapter(ctx, vm); err == nil {
			w.note("%s gets a partition by hand", vm)
		}
	case 1:
		id := pick(w, randomDDA...)
		err := w.sim.Edit(ctx, func(s *gpu.Snapshot) error {
			for i := range s.Hosts {
				h := &s.Hosts[i]
				g, _ := h.GPU(id)
				for k := range h.VMs {
					if v := &h.VMs[k]; v.Name == vm && v.State == gpu.VMOff && !slices.ContainsFunc(h.Pools, func(p gpu.Pool) bool { return p.Has(id) }) &&
						!slices.ContainsFunc(h.VMs, func(o gpu.VM) bool {
							return slices.ContainsFunc(o.Devices, func(d gpu.DeviceAssignment) bool { return d.GPU == id })
						}) {
						g.Dismounted, g.Status = true, gpu.Assigned
						v.Devices = append(v.Devices, gpu.DeviceAssignment{ID: givenByHand + id[8:10], GPU: id})
						w.note("%s gets GPU %s by hand", vm, id)
					}
				}
			}
			return nil
		})
		if err != nil {
			w.note("GPU %s cannot be given by hand: %v", id, err)
		}
	case 2:
		if len(w.endpoints) > 1 {
			to := pick(w, slices.Sorted(maps.Keys(w.endpoints))...)
			for _, h := range w.hosts() {
				for _, v := range h.VMs {
					if v.Name == vm && v.Clustered && h.Name != to && w.hosts()[to].Cluster != nil {
						w.note("%s moves to %s: %v", vm, to, w.sim.MoveVM(ctx, vm, to))
					}
				}
			}
		}
	default:
		w.power(vm)
	}
}

// resource is that of a label, which may be new.
func (w *world) resource(label string) *resource {
	if i := slices.IndexFunc(w.resources, func(r *resource) bool { return r.label == label }); i >= 0 {
		return w.resources[i]
	}
	w.tokens++
	return &resource{label: label, token: fmt.Sprintf("token-%d", w.tokens)}
}

// step makes one random change, and compares.
func (w *world) step() {
	defer func() {
		if r := recover(); r != nil && r != any(errDiffers) {
			panic(r)
		}
	}()
	if w.failed {
		return
	}
	meddle, choose := w.meddle, w.choose
	if w.linux {
		meddle, choose = w.meddleLinux, w.chooseLinux
	}
	w.cutOff = w.cutOff && slices.ContainsFunc(slices.Collect(maps.Values(w.shown())), func(h *gpu.Host) bool { return len(h.Unfinished) > 0 })
	for !w.cutOff && w.chance(50) { // what is half made is for the next run alone
		meddle()
	}
	r, want := choose()
	if w.linux {
		w.drifting = nil
		hosts := w.hosts()
		for _, o := range w.resources {
			if drifted(o, hosts) {
				w.drifting = append(w.drifting, o)
			}
		}
		if len(w.drifting) > 0 && w.chance(70) {
			r = pick(w, w.drifting...)
			want = r.has
		}
	}
	if r == nil || reflect.DeepEqual(r.has, want) && !slices.Contains(w.drifting, r) {
		return
	}
	p := change.Change{Subject: r.label, Token: r.token, Want: want, Prior: r.has}
	switch {
	case w.again != nil:
		r, p = w.again, w.due
	case w.chance(12):
		if !w.cut(r, p) {
			return
		}
		w.again, w.due = r, p
	}
	all := []changed{{r, p}}
	if w.again == nil && w.chance(35) {
		if o, wants := choose(); o != nil && o.label != r.label && !slices.Contains(w.drifting, o) && !reflect.DeepEqual(o.has, wants) {
			all = append(all, changed{o, change.Change{Subject: o.label, Token: o.token, Want: wants, Prior: o.has}})
		}
	}
	for _, o := range w.drifting {
		if o != r {
			all = append(all, changed{o, change.Change{Subject: o.label, Token: o.token, Want: o.has, Prior: o.has}})
		}
	}
	if len(all) > 1 && w.together(all...) || len(w.drifting) > 0 && len(all) > 1 {
		return
	}
	w.note("%s: %s -> %s", r.label, wantText(p.Prior), wantText(p.Want))
	w.compare(r, p)
}

// choose picks a resource and what it shall have next.
func (w *world) choose() (*resource, gpu.Want) {
	of := w.resource
	switch n := w.rng.IntN(10); {
	case n < 6:
		vm := pick(w, w.vms()...)
		r := of("gpu_vm_assignment for VM " + vm)
		if r.has.Assignment != nil && w.chance(30) {
			return r, gpu.Want{}
		}
		return r, gpu.Want{Assignment: w.assignment(vm)}
	case n < 9:
		id := "vdi" // two counts in one cluster are refused by a rule, and not by hosts
		r := of("gpu_partition_config " + id)
		if r.has.Config != nil && w.chance(20) {
			return r, gpu.Want{}
		}
		return r, gpu.Want{Config: w.config(id)}
	default:
		r := of("gpu_pool dda")
		if slices.ContainsFunc(w.resources, func(o *resource) bool { return o.has.Assignment != nil && o.has.Assignment.Pool != nil }) {
			return nil, gpu.Want{} // a run would change or destroy these first
		}
		if r.has.Pool != nil && w.chance(25) {
			return r, gpu.Want{}
		}
		return r, gpu.Want{Pool: w.pool()}
	}
}

func (w *world) some(of []string) []string {
	var out []string
	for _, x := range of {
		if w.chance(60) {
			out = append(out, x)
		}
	}
	if len(out) == 0 {
		out = append(out, pick(w, of...))
	}
	return out
}

// config is one of two that do not share a GPU, and have one count in a cluster.
func (w *world) config(id string) *gpu.PartitionConfig {
	gpus, count := slices.Clone(randomGPUs), pick(w, 1, 2, 4, 8)
	for _, r := range w.resources {
		if o := r.has.Config; o != nil && o.ID != id {
			gpus = slices.DeleteFunc(gpus, func(of string) bool { return slices.Contains(o.GPUs["hv01"], of) })
			if len(w.endpoints) > 1 {
				count = o.Count
			}
		}
	}
	if len(gpus) == 0 || id == "b" {
		gpus = randomGPUs[1:] // the other one may have it, and the plan is refused
	}
	c := &gpu.PartitionConfig{
		ID: id, Kind: gpu.KindGPUP, Name: id, Count: count, GPUs: map[string][]string{},
		MaxDisruption: pick(w, gpu.DisruptNone, gpu.DisruptVMRestart, gpu.DisruptVMRestart), Restore: w.chance(50),
	}
	for name := range w.endpoints {
		c.GPUs[name] = gpus
	}
	if len(w.endpoints) == 1 {
		c.GPUs["hv01"] = w.some(gpus)
	} else {
		c.Drain = w.chance(40)
	}
	return c
}

func (w *world) pool() *gpu.PoolConfig {
	c := &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{}, MountBack: w.chance(50)}
	members := w.some(randomDDA)
	for name := range w.endpoints {
		c.Members[name] = members
	}
	return c
}

func (w *world) assignment(vm string) *gpu.Assignment {
	a := &gpu.Assignment{VM: vm, VMName: vm, Power: gpu.Power{AllowShutdown: w.chance(70), NextOff: w.chance(25), StayOff: w.chance(10)}}
	clustered := false
	for name, h := range w.hosts() {
		for _, v := range h.VMs {
			if v.Name == vm {
				a.VMID, a.Host, clustered = v.ID, name, v.Clustered
			}
		}
	}
	switch n := w.rng.IntN(10); {
	case n < 6:
		a.Kind, a.Partition = gpu.AssignPartition, &gpu.PartitionWant{}
		if w.chance(30) && !clustered {
			a.Partition.PinnedGPU = pick(w, randomGPUs...)
		}
		if ids := w.configs(); len(ids) > 1 && w.chance(50) {
			a.Partition.Configs = ids
		} else if len(ids) > 0 && w.chance(20) {
			a.Partition.Config = pick(w, ids...)
		}
		if w.chance(30) {
			a.Partition.Quotas.Compute.Min = new(pick(w, uint64(100), uint64(200)))
		}
	case n < 8:
		a.Kind, a.Pool = gpu.AssignPool, &gpu.PoolWant{ID: "hv01/dda", Name: "dda", Count: pick(w, 1, 1, 2)}
	default:
		a.Kind, a.Device = gpu.AssignDevice, &gpu.DeviceWant{Host: a.Host, GPUIDs: []string{pick(w, randomDDA...)}}
	}
	if w.chance(30) {
		a.Settings.AutomaticStopAction = new(pick(w, gpu.StopTurnOff, gpu.StopShutDown))
	}
	if w.chance(20) {
		a.Settings.GuestControlledCache = new(w.chance(50))
	}
	return a
}

// configs are the ids of the configs that stand.
func (w *world) configs() []string {
	var ids []string
	for _, r := range w.resources {
		if c := r.has.Config; c != nil && c.Kind == gpu.KindGPUP {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func wantText(want gpu.Want) string {
	text, err := json.Marshal(want)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// run is a fleet as one run of Terraform has it.
func (w *world) run(levels rules.Levels) *fleet.Fleet {
	return fleet.New(fleet.Options{
		Owner: randomOwner, Hosts: w.endpoints, Levels: levels, KeepUnreachable: w.cluster != nil, LeaseWait: time.Minute,
		Patience: time.Millisecond, Report: true,
	})
}

// announced is what a plan says.
type announced struct {
	saw    map[string]*gpu.Host // the hosts as they were shown to it
	errors []rules.Finding
	stops  []string
	starts map[string]bool // those of them that are started again
	moves  []string
	// mayMove are those that move in one of the orders in which Terraform may make the changes.
	mayMove []string
	counts  map[string]int // by host and GPU
	ofLinux
	// approved is what each apply is held to, by token.
	approved map[string]*change.Approved
	// unable are repairs that the host would refuse, by subject: the plan warns of them.
	unable map[string]rules.Finding
	// watched are hosts of which the plan warns that a service may keep a GPU from being reset.
	watched []string
	// report is what the run would write.
	report planreport.Report
}

// plan is what one run says that makes some changes, of one resource or of several.
func (w *world) plan(changes ...change.Change) announced {
	f := w.run(nil)
	view := f.Snapshot(w.t.Context(), f.HostNames())
	out := announced{
		saw: view.Hosts, starts: map[string]bool{}, counts: map[string]int{}, ofLinux: ofLinux{gpus: map[string]cardLayout{}},
		approved: map[string]*change.Approved{}, unable: map[string]rules.Finding{},
	}
	// The rest of the state is planned as well, before these or after them.
	plans := slices.Clone(changes)
	changing := func(token string) bool {
		return slices.ContainsFunc(changes, func(p change.Change) bool { return p.Token == token })
	}
	for _, r := range w.resources {
		if !changing(r.token) {
			plans = append(plans, change.Change{
				Subject: r.label, Token: r.token, Want: r.has, Prior: r.has, Unchanged: !slices.Contains(w.drifting, r),
			})
		}
	}
	plans = shuffled(w, plans, func(a, b change.Change) bool { // Terraform plans first what another plan names
		return !a.Want.Empty() && !b.Want.Empty() && a.Token != b.Token && refers(b.Want, a)
	})
	does := map[string][]change.Forecast{} // by subject
	for _, one := range plans {
		findings := w.declare(f, view, one)
		var forecasts []change.Forecast
		if one.Want.Empty() {
			d := f.PlanDestroy(context.Background(), view, one, true)
			forecasts, out.approved[one.Token] = d.Forecasts, &d.Approved
			findings = append(findings, d.Findings...)
		} else {
			var of []rules.Finding
			of, forecasts = f.Record(f.Ledger.Instance(""), view, one)
			findings = append(findings, of...)
			if changing(one.Token) && !one.Prior.Empty() {
				seen := view.Disturbable(slices.Collect(maps.Keys(view.Hosts)))
				if a := one.Prior.Assignment; a != nil { // its VM may have no GPU yet
					if at, err := fleet.FindVM(view, a.VMID); err == nil {
						seen.Approve(change.Stoppable(view.Hosts[at.Host], at.VM)...)
					}
				}
				out.approved[one.Token] = &seen
			}
		}
		if changing(one.Token) {
			does[one.Subject] = forecasts
		}
		for _, x := range findings {
			if x.Title == "A service may keep GPUs from being reset" {
				out.watched = append(out.watched, x.Host)
			}
			switch {
			case x.Level == rules.Error:
				out.errors = append(out.errors, x)
			case x.Title == "A node may be drained":
				for _, vm := range w.vms() {
					if strings.Contains(x.Found, strconv.Quote(vm)) {
						out.mayMove = append(out.mayMove, vm)
					}
				}
			case x.Rule == rules.Feasible:
				out.unable[stdcmp.Or(x.Other, one.Subject)] = x
			}
		}
	}
	f.Refreshing()
	out.report, _ = f.Report()
	goes := func(p change.Change) int {
		if p.Want.Empty() {
			return 0 // before what takes its place
		}
		return 1
	}
	slices.SortStableFunc(changes, func(a, b change.Change) int { return goes(a) - goes(b) })
	for _, p := range changes {
		if _, unable := out.unable[p.Subject]; !unable {
			for _, x := range does[p.Subject] {
				beside := slices.DeleteFunc(slices.Clone(changes), func(o change.Change) bool { return o.Token == p.Token })
				w.announce(&out, x, view, beside...)
			}
		}
	}
	slices.Sort(out.stops)
	out.stops = slices.Compact(out.stops)
	slices.Sort(out.moves)
	out.moves = slices.Compact(out.moves)
	return out
}

// declare tells the run what may be done to the VM of an assignment now, as its plan does.
func (w *world) declare(f *fleet.Fleet, view fleet.View, p change.Change) []rules.Finding {
	a := stdcmp.Or(p.Want.Assignment, p.Prior.Assignment)
	if a == nil || p.Want.Empty() && p.Prior.Empty() {
		return nil
	}
	policy := whatif.Policy{Label: p.Subject, VMID: a.VMID, Power: a.Power}
	return f.Ledger.Declare(p.Token, policy, func() []rules.Finding { return f.CheckPolicy(view, policy) })
}

// announce adds what a plan says of a host, to be made with others.
func (w *world) announce(out *announced, x change.Forecast, view fleet.View, beside ...change.Change) {
	for _, s := range x.Stops {
		out.stops = append(out.stops, s.Name)
		starts, said := out.starts[s.Name]
		out.starts[s.Name] = s.Starts && (!said || starts) // one of two that leaves it off does so whichever comes first
	}
	out.moves = append(out.moves, x.Moves...)
	if w.linux {
		w.sayLinux(&out.ofLinux, x, view.Hosts[x.Host], beside)
		return
	}
	for _, g := range x.GPUs {
		out.counts[x.Host+" "+g.GPU] = g.Partitions.To
	}
}

func (w *world) compare(r *resource, p change.Change) {
	says := w.plan(p)
	before := says.saw
	if x, unable := says.unable[p.Subject]; unable {
		says.errors = append(says.errors, x)
	}
	w.seen.begin()
	levels := rules.Levels{}
	if len(says.errors) > 0 {
		w.counts["refused"]++
		// Of what only the steps can tell the host has to be of one mind with the plan, whether
		// or not the rules are asked there.
		for _, x := range says.errors {
			if x.Rule != "vm-must-be-off" && x.Rule != "partition-in-use" && x.Rule != rules.Feasible {
				w.note("  refused: %s: %s", x.Rule, x.Found)
				w.heldToHosts(changed{r, p}, says)
				return
			}
			levels[x.Rule] = rules.Off
		}
	}
	err := w.applyLinux(w.run(levels), fleet.Request{
		Change: change.Change{
			Subject: p.Subject, Token: p.Token, Adopt: p.Token == "", Want: p.Want, Prior: p.Prior, Approved: says.approved[p.Token],
		}, MaxUnavailable: 2,
	})
	after := w.shown()
	stopped := slices.Sorted(maps.Keys(w.seen.stopped))
	switch {
	case len(says.errors) > 0 && err == nil:
		w.fatal("the plan refuses what the hosts do: %s %s", says.errors[0].Rule, says.errors[0].Found)
	case len(says.errors) > 0:
		w.note("  refused: %s: %s", says.errors[0].Rule, says.errors[0].Found)
		w.untouched(before, after)
		if len(stopped) > 0 {
			w.fatal("%v were stopped for a change that is refused", stopped)
		}
		return
	case err != nil && w.tolerates(err, p, says):
		return
	case err != nil:
		w.fatal("the plan is clean, and the hosts refuse: %v", err)
	}
	w.counts["applied"]++
	if c := p.Want.Config; c != nil && c.ID == "backed" {
		w.counts["backed"]++
	}
	w.made(r, p)
	w.compareRun(says, after, p)
}

// tolerates tells whether it cannot be known at plan why the apply of a change fails.
func (w *world) tolerates(err error, p change.Change, says announced) bool {
	w.note("  %v", err)
	switch {
	case strings.Contains(err.Error(), "while it is kept open by unit"):
		// An inventory lists the units that run, and not which of them have GPUs open: the driver
		// tells that of a reset that it refuses. A config that stops the unit meets no such refusal,
		// and nobody is stopped, and no GPU of that host is reset, for a reset that does not come. Of
		// several hosts one may have gone before, as announced, and is put back.
		w.counts["kept open"]++
		if c := stdcmp.Or(p.Want.Config, p.Prior.Config); c == nil || slices.Contains(c.QuiesceUnits, "nvidia-dcgm") {
			w.fatal("the config stops that unit")
		}
		failure, ok := errors.AsType[*fleet.Failure](err)
		if ok && !slices.Contains(says.watched, failure.Host) {
			w.fatal("the plan does not warn of the unit: %v", err)
		}
		if !ok || len(failure.Stands) > 0 || len(w.seen.stopped) > 0 {
			w.fatal("not all was put back")
		}
		for _, g := range says.saw[failure.Host].GPUs {
			if w.seen.resets[g.ID] {
				w.fatal("GPU %s was reset on host %s, which refused", g.ID, failure.Host)
			}
		}
	default:
		return false
	}
	return true
}

// compareRun compares what a run announced with what the hosts did.
func (w *world) compareRun(says announced, after map[string]*gpu.Host, changes ...change.Change) {
	before := says.saw
	stopped := slices.Sorted(maps.Keys(w.seen.stopped))
	moved := slices.Sorted(maps.Keys(w.seen.moved))
	if len(changes) > 1 && slices.ContainsFunc(changes, func(p change.Change) bool { return p.Want.Config != nil && p.Want.Config.Drain }) {
		// Whether a node can be drained hangs on what the run has done before, in an order that
		// Terraform chooses. Every VM that may move is named, and one that moves is not stopped.
		for _, vm := range moved {
			if slices.Contains(says.mayMove, vm) && !slices.Contains(says.moves, vm) {
				w.counts["drains by the order"]++
				says.moves = append(slices.Clone(says.moves), vm)
			}
		}
		says.moves = slices.DeleteFunc(slices.Clone(says.moves), func(vm string) bool { return !slices.Contains(moved, vm) })
		says.stops = slices.DeleteFunc(slices.Clone(says.stops), func(vm string) bool {
			return !slices.Contains(stopped, vm) && slices.Contains(moved, vm)
		})
		slices.Sort(says.moves)
	}
	if len(stopped) > 0 {
		w.counts["stopped"]++
	}
	if !slices.Equal(says.stops, stopped) {
		w.fatal("the plan says that %v are stopped, and stopped were %v", says.stops, stopped)
	}
	if !slices.Equal(says.moves, moved) {
		w.fatal("the plan says that %v move, and moved have %v", says.moves, moved)
	} else if len(moved) > 0 {
		w.counts["moved"]++
	}
	for vm := range w.seen.shaken {
		if w.counts["moved once more"]++; !saysItMoves(before, vm) {
			w.fatal("%s was moved to put back what a dead run left, and no host says that it will be", vm)
		}
	}
	w.cameBack(before, after)
	w.layout(says, before, after)
	w.powers(says, before, after)
	if w.linux {
		w.compareLinux(says.ofLinux, before, after)
	}
	// An action is no plan, and has no report.
	if w.cluster == nil && !says.owing() && says.report.Format != "" && !w.lacks {
		w.compareReport(says.report, before, after, changes)
	}
	for _, p := range changes {
		w.gives(p, after)
		w.handed(p.Want, after)
	}
}

// saysItMoves tells whether a host says that a VM moves when what was cut off is put back.
func saysItMoves(shown map[string]*gpu.Host, vm string) bool {
	for _, h := range shown {
		if slices.Contains(h.Moving, vm) {
			return true
		}
	}
	return false
}

// made writes a change that was made into the state.
func (w *world) made(r *resource, p change.Change) {
	w.again = nil
	if r.has = p.Want; p.Want.Share != nil {
		c, _ := w.hosts()[p.Want.Share.Host].Claim(gpu.ClaimShare, p.Want.Share.Name)
		r.has = c.Want
	}
	if p.Prior.Empty() {
		w.resources = append(w.resources, r)
	}
	if p.Want.Empty() {
		w.resources = slices.DeleteFunc(w.resources, func(o *resource) bool { return o == r })
	}
}

// begin forgets what was seen.
func (s *witness) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped, s.resets, s.moved, s.settled, s.shaken = map[string]bool{}, map[string]bool{}, map[string]bool{},
		map[string]bool{}, map[string]bool{}
}

func (w *world) untouched(before, after map[string]*gpu.Host) {
	for _, of := range []map[string]*gpu.Host{before, after} {
		for _, h := range of {
			h.Unfinished, h.Returning, h.Moving, h.PendingStarts = nil, nil, nil, nil
			slices.Sort(h.Units)
			slices.SortFunc(h.Claims, func(a, b gpu.Claim) int { return strings.Compare(string(a.Kind)+a.ID, string(b.Kind)+b.ID) })
		}
	}
	if reflect.DeepEqual(before, after) { // which is quick to see
		return
	}
	// What a recovery gives back has other ids and addresses, and is listed last. In MIG mode a GPU tells no time slice.
	ids := []cmp.Option{
		cmpopts.EquateEmpty(), cmp.Comparer(func(a, b gpu.TimeSlice) bool {
			return stdcmp.Or(a, gpu.TimeSliceDefault) == stdcmp.Or(b, gpu.TimeSliceDefault)
		}), cmpopts.SortSlices(func(a, b gpu.Partition) bool { return a.VMID < b.VMID }), cmpopts.IgnoreFields(gpu.PartitionAdapter{}, "ID"),
		cmpopts.IgnoreFields(gpu.DeviceAssignment{}, "ID"), cmpopts.IgnoreFields(gpu.Partition{}, "ID", "VFLUID"),
		cmpopts.IgnoreFields(gpu.VGPUInstance{}, "Address", "GPUInstance"),
		cmpopts.SortSlices(func(a, b gpu.GPUInstance) bool { return a.Start < b.Start }), cmpopts.IgnoreFields(gpu.GPUInstance{}, "ID"),
		cmpopts.IgnoreFields(gpu.ComputeInstance{}, "UUID"),
	}
	if diff := cmp.Diff(before, after, ids...); diff != "" {
		w.fatal("a change that is refused touched the hosts (-before +after):\n%s", diff)
	}
}

// layout compares the partition counts with those announced: a GPU that no plan names has
// its own still.
func (w *world) layout(says announced, before, after map[string]*gpu.Host) {
	for name, h := range before {
		for i := range h.GPUs {
			g := &h.GPUs[i]
			now, ok := after[name].GPU(g.ID)
			if !ok || g.Partitionable == nil {
				continue
			}
			want, changes := says.counts[name+" "+g.ID]
			if !changes {
				want = g.Partitionable.Count
			}
			if now.Partitionable.Count != want {
				w.fatal("GPU %s on %s has %d partitions, and the plan says %d", g.ID, name, now.Partitionable.Count, want)
			}
		}
	}
}

// powers compares which VMs run with what was announced: one that no plan names is as it was.
func (w *world) powers(says announced, before, after map[string]*gpu.Host) {
	now := map[string]gpu.VMState{}
	for _, h := range after {
		for _, vm := range h.VMs {
			now[vm.Name] = vm.State
		}
	}
	begun := map[string]bool{} // what dead runs have begun, on any node: they may owe the VM a start
	for _, h := range before {
		for _, subject := range h.Unfinished {
			begun[subject] = true
		}
		for _, d := range h.PendingStarts {
			begun["gpu_vm_assignment for VM "+d.Name] = true
		}
	}
	for _, h := range before {
		for _, vm := range h.VMs {
			want := vm.State
			if now[vm.Name] == gpu.VMRunning && begun["gpu_vm_assignment for VM "+vm.Name] {
				continue
			}
			if starts, stops := says.starts[vm.Name]; stops && !starts {
				want = gpu.VMOff
			}
			if now[vm.Name] != want {
				w.fatal("%s is %s, and is to be %s", vm.Name, now[vm.Name], want)
			}
		}
	}
}

// ofConfigs tells whether a GPU is of one of the configs that a partition may be of, or has as many partitions as one that is.
func ofConfigs(h *gpu.Host, p *gpu.PartitionWant, id string) bool {
	on, _ := h.GPU(id)
	return slices.ContainsFunc(p.ConfigIDs(), func(config string) bool {
		c, ok := h.Claim(gpu.ClaimConfig, config)
		return ok && (c.Covers(id) || slices.ContainsFunc(c.GPUs, func(of string) bool {
			g, there := h.GPU(of)
			return there && on != nil && g.Partitionable != nil && on.Partitionable != nil && g.Partitionable.Count == on.Partitionable.Count
		}))
	})
}

// gives looks at the VM of an assignment: it has what is wanted, unless that waits.
func (w *world) gives(p change.Change, after map[string]*gpu.Host) {
	a := p.Want.Assignment
	if a == nil {
		return
	}
	for _, h := range after {
		vm, ok := h.VM(a.VMID)
		if !ok {
			continue
		}
		if c, ok := (fleet.View{Hosts: after}).Claim(gpu.ClaimAssignment, a.VMID); ok && c.Pending {
			if vm.State == gpu.VMOff {
				w.fatal("%s is off, and its assignment waits", a.VM)
			}
			w.counts["waits"]++
			return
		}
		switch {
		case a.Partition != nil && !slices.ContainsFunc(vm.PartitionAdapters, func(x gpu.PartitionAdapter) bool {
			return gpu.SameID(x.PinnedGPU, a.Partition.PinnedGPU) || a.Partition.PinnedGPU == "" && ofConfigs(h, a.Partition, x.PinnedGPU)
		}):
			w.fatal("%s has no such partition: %+v", a.VM, vm.PartitionAdapters)
		case a.Device != nil && !slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool {
			return d.Pool == "" && d.GPU == a.Device.GPUIDs[0]
		}):
			w.fatal("%s has not the GPU: %+v", a.VM, vm.Devices)
		case a.Pool != nil:
			n := 0
			for _, d := range vm.Devices {
				if gpu.SameID(d.Pool, a.Pool.Name) {
					n++
				}
			}
			if n != max(a.Pool.Count, 1) {
				w.fatal("%s has %d GPUs of the pool, want %d", a.VM, n, a.Pool.Count)
			}
		}
	}
}
