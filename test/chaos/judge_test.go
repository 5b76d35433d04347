//go:build linux

package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// surface is what a layout makes of a GPU.
type surface struct {
	Count      int
	Dismounted bool
	MIG        gpu.MIGState
	VGPU       gpu.VGPUState
	Compute    gpu.ComputeMode
	TimeSlice  gpu.TimeSlice
}

func surfaceOf(g gpu.GPU) surface {
	s := surface{Dismounted: g.Dismounted, Compute: g.ComputeMode, TimeSlice: g.TimeSlice}
	if g.Partitionable != nil {
		s.Count = g.Partitionable.Count
	}
	if g.MIG != nil {
		s.MIG = g.MIG.State()
	}
	if g.VGPU != nil {
		s.VGPU = g.VGPU.State()
	}
	return s
}

// settle ends a phase: the processes end, other hands put right what they did, reconcile
// and the recovery applies run. After that everything has to be as the configurations
// say.
func (h *harness) settle() {
	h.processesEnd()
	h.handsOff()
	h.keep("fleet-at-rest.json")
	for _, host := range h.fleet.Hosts() {
		// What could not be undone on a host that failed stands until the next apply.
		h.reconcile(host, h.model.faulted[host])
	}
	h.powered("after reconcile")
	h.alone()
	if h.failed() {
		return
	}
	quiet := rand.New(rand.NewPCG(0, 0))
	for _, s := range h.model.states {
		h.configure(s, s.hcl())
		h.untaint(s)
		r := h.run(s, "recovery", quiet, nil, apply...)
		h.counted(func(f *figures) { f.recovered++ })
		if r.code != 0 && renameUnderUsers(s) {
			r = h.run(s, "recovery2", quiet, nil, apply...)
		}
		if r.code != 0 {
			h.violated("the recovery apply of %s fails:\n%s", s.name, r.out)
		}
	}
	h.processesEnd()
	for _, host := range h.fleet.Hosts() {
		h.reconcile(host, false)
	}
	h.powered("after the recovery applies")
	if h.failed() {
		return
	}
	h.personPutsRight()
	var wg sync.WaitGroup
	for _, s := range h.model.states {
		wg.Go(func() {
			if r := h.run(s, "second", quiet, nil, "plan", "-detailed-exitcode"); r.code != 0 {
				h.violated("the second plan of %s is not empty:\n%s", s.name, r.out)
			}
		})
	}
	wg.Wait()
	h.processesEnd()
	h.keep("fleet-after.json")
	h.alone()
	h.asDeclared()
}

func (h *harness) failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.violations) > 0
}

// processesEnd waits until agents and providers have ended by themselves.
func (h *harness) processesEnd() {
	var left []process
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = processes(h.bin); len(left) == 0 {
			return
		}
	}
	for _, p := range left {
		h.violated("process %d (%s) does not end, of its parent %d: %s", p.pid, p.binary, p.parent, strings.Join(p.args, " "))
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// handsOff takes back what others did, but for the power of VMs.
func (h *harness) handsOff() {
	for _, host := range h.fleet.Hosts() {
		h.must(h.fleet.EditSimulation(h.ctx, host, func(s *simulated.Simulation) { s.Faults, s.Unreachable = nil, false }))
	}
	for _, node := range []string{nodeA, nodeB} {
		h.must(h.fleet.Resume(h.ctx, node, true))
	}
	for vm, ids := range h.foreign {
		now, host := h.vm(vm)
		ran := now.Runs()
		x, err := h.fleet.Host(host)
		h.must(err)
		if ran {
			h.must(h.fleet.SetVMState(h.ctx, vm, gpu.VMOff))
		}
		for _, id := range ids {
			h.must(x.RemovePartitionAdapter(h.ctx, now.ID, id))
		}
		if ran {
			h.must(h.fleet.SetVMState(h.ctx, vm, gpu.VMRunning))
		}
	}
	h.foreign = map[string][]string{}
}

// renameUnderUsers is a known exception from what is judged: of a config or pool with
// another address, Terraform may destroy the old resource before it creates the new one. While
// VMs or shares use it that is refused, and the next apply finds it taken over.
func renameUnderUsers(s *state) bool {
	return slices.ContainsFunc(s.objects, func(o *object) bool { return o.renamed })
}

// reconcile runs at rest what runs at boot. It has to succeed, unless what it found may
// stand.
func (h *harness) reconcile(host string, mayStand bool) {
	cmd := h.agent(host, "reconcile", "--timeout", "1m")
	out, err := cmd.CombinedOutput()
	h.counted(func(f *figures) { f.reconciles++ })
	h.note("reconcile of %s: %s", host, oneLine(string(out)))
	if err != nil && !mayStand {
		h.violated("reconcile of %s fails (%v):\n%s", host, err, out)
	}
}

// untaint does what the message of a create says that was left half done.
func (h *harness) untaint(s *state) {
	doc, err := os.ReadFile(filepath.Join(s.folder.Dir, "terraform.tfstate"))
	if err != nil || len(doc) == 0 {
		return // there is none yet
	}
	var st struct {
		Resources []struct {
			Type, Name string
			Instances  []struct {
				Key    any `json:"index_key"`
				Status string
			}
		}
	}
	if err := json.Unmarshal(doc, &st); err != nil {
		h.violated("the state of %s: %v", s.name, err)
		return
	}
	for _, r := range st.Resources {
		for _, i := range r.Instances {
			if i.Status != "tainted" {
				continue
			}
			address := r.Type + "." + r.Name
			if i.Key != nil {
				address += fmt.Sprintf("[%q]", i.Key)
			}
			h.run(s, "recovery", rand.New(rand.NewPCG(0, 0)), nil, "untaint", address)
		}
	}
}

// powered asserts that every VM has the power that its owner wants.
func (h *harness) powered(when string) {
	for _, host := range h.snapshot().Hosts {
		for _, vm := range host.VMs {
			if h.unsure[vm.Name] != "" {
				continue
			}
			switch want := h.model.on[vm.Name]; {
			case want && vm.State != gpu.VMRunning:
				h.violated("%s VM %s is %s on %s, and it was running", when, vm.Name, vm.State, host.Name)
			case !want && vm.State != gpu.VMOff:
				h.violated("%s VM %s is %s on %s, and it was off", when, vm.Name, vm.State, host.Name)
			}
		}
	}
}

// personPutsRight gives VMs the power back that their owner wants.
func (h *harness) personPutsRight() {
	for vm := range h.unsure {
		to := gpu.VMOff
		if h.model.on[vm] {
			to = gpu.VMRunning
		}
		if err := h.fleet.SetVMState(h.ctx, vm, to); err != nil {
			h.violated("a person cannot turn VM %s %s: %v", vm, to, err)
		}
	}
}

// atRest asserts that an agent remembers of a host at rest its claims and its fence, and
// nothing else, whatever else there may be.
func atRest(s backend.State) error {
	s.Claims, s.Fence, s.Agent = nil, 0, ""
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
			continue
		}
		doc, err := json.Marshal(f.Interface())
		if err != nil {
			return err
		}
		return fmt.Errorf("the agent still remembers %s: %s", v.Type().Field(i).Name, doc)
	}
	return nil
}

// alone asserts that nothing is held twice, and that nothing is under way.
func (h *harness) alone() {
	s := h.snapshot()
	for i := range s.Hosts {
		host := &s.Hosts[i]
		records, err := h.records(host.Name)
		if err == nil {
			err = atRest(records)
		}
		if err != nil {
			h.violated("%s: %v", host.Name, err)
		}
		whole := map[string]string{}
		for _, vm := range host.VMs {
			if n := len(vm.PartitionAdapters); n > 1 || n+len(vm.Devices) > 1 {
				h.violated("VM %s has %d partition adapters and %d devices", vm.Name, n, len(vm.Devices))
			}
			for _, d := range vm.Devices {
				if d.GPU == "" {
					continue
				}
				if other := whole[d.GPU]; other != "" {
					h.violated("GPU %s of %s is held whole by %s and by %s", d.GPU, host.Name, other, vm.Name)
				}
				whole[d.GPU] = vm.Name
			}
		}
		for _, g := range host.GPUs {
			h.oneHolder(host, g, whole[g.ID])
		}
	}
}

func (h *harness) oneHolder(host *gpu.Host, g gpu.GPU, whole string) {
	if p := g.Partitionable; p != nil {
		seen := map[string]bool{}
		for _, one := range p.Partitions {
			vm, ok := host.VM(one.VMID)
			if !ok || seen[one.VMID] || len(vm.PartitionAdapters) == 0 || !vm.Runs() {
				h.violated("GPU %s of %s: partition %d is held by %s, which is not there, not running, has no adapter, or has two",
					g.ID, host.Name, one.ID, one.VMID)
			}
			seen[one.VMID] = true
		}
		if len(p.Partitions) > p.Count || len(p.Partitions) > 0 && (whole != "" || g.Dismounted) {
			h.violated("GPU %s of %s has %d partitions in use of %d, and is held whole by %q (dismounted %t)",
				g.ID, host.Name, len(p.Partitions), p.Count, whole, g.Dismounted)
		}
	}
	if g.MIG != nil {
		for _, in := range g.MIG.Instances {
			if len(in.Compute) != 1 {
				h.violated("GPU %s of %s: instance %s@%d has %d compute instances", g.ID, host.Name, in.Profile, in.Start, len(in.Compute))
			}
		}
	}
	pools := 0
	for _, p := range host.Pools {
		if p.Has(g.ID) {
			pools++
		}
	}
	if pools > 1 {
		h.violated("GPU %s of %s is in %d pools", g.ID, host.Name, pools)
	}
}

// claimed is a claim as the model knows it.
type claimed struct{ Host, Kind, ID, Owner string }

// asDeclared asserts that the fleet is as the configurations say, and else as at the
// beginning.
func (h *harness) asDeclared() {
	s := h.snapshot()
	var want []claimed
	daemons, shares := map[string]int{}, map[string][]string{}
	declared := map[*site]*object{}
	assigned := map[string]*object{}
	for _, st := range h.model.states {
		for _, o := range st.objects {
			switch o.typ {
			case typeConfig, typePool:
				declared[o.site] = o
				kind := gpu.ClaimConfig
				if o.typ == typePool {
					kind = gpu.ClaimPool
				}
				for _, host := range o.site.hosts {
					want = append(want, claimed{host, string(kind), o.name, st.owner})
				}
				if o.kind == "mps" {
					daemons[o.site.hosts[0]]++
				}
			case typeShare:
				want = append(want, claimed{o.site.hosts[0], string(gpu.ClaimShare), o.name, st.owner})
				shares[o.site.hosts[0]] = append(shares[o.site.hosts[0]], o.name)
			case typeVM:
				vm, host := h.vm(o.name)
				want = append(want, claimed{host, string(gpu.ClaimAssignment), vm.ID, st.owner})
				assigned[o.name] = o
				if o.kind == "device" {
					declared[o.site] = o
				}
			}
		}
	}
	h.claimsAre(want)
	for i := range s.Hosts {
		host := &s.Hosts[i]
		var handed []string
		for _, x := range host.Shares {
			handed = append(handed, x.Name)
		}
		if diff := cmp.Diff(shares[host.Name], handed, cmpopts.SortSlices(strings.Compare), cmpopts.EquateEmpty()); diff != "" {
			h.violated("%s hands over other shares than are declared (-declared +handed):\n%s", host.Name, diff)
		}
		running := 0
		if host.MPS != nil {
			running = len(host.MPS.Daemons)
		}
		if running != daemons[host.Name] {
			h.violated("%s has %d MPS daemons, and %d configs with MPS", host.Name, running, daemons[host.Name])
		}
		for _, vm := range host.VMs {
			h.vmIs(vm, assigned[vm.Name])
		}
		for _, p := range host.Pools {
			if !slices.ContainsFunc(h.model.sites, func(x *site) bool {
				return declared[x] != nil && declared[x].typ == typePool && declared[x].name == p.Name
			}) {
				h.violated("%s has the pool %s, which nobody declares", host.Name, p.Name)
			}
		}
	}
	for _, x := range h.model.sites {
		for _, name := range x.hosts {
			i := slices.IndexFunc(s.Hosts, func(host gpu.Host) bool { return host.Name == name })
			for _, id := range x.gpus {
				if g, ok := s.Hosts[i].GPU(id); ok {
					h.gpuIs(x, &s.Hosts[i], *g, declared[x])
				}
			}
		}
	}
}

// claimsAre asserts that there is one claim for each object, of its owner. That of a
// clustered VM may be on either node, and on both after the VM has moved.
func (h *harness) claimsAre(want []claimed) {
	var got []claimed
	var clustered []string
	for _, host := range []string{nodeA, nodeB} {
		if x, ok := h.host(host); ok {
			for _, vm := range x.VMs {
				clustered = append(clustered, vm.ID)
			}
		}
	}
	place := func(c claimed) claimed {
		if slices.Contains(clustered, c.ID) {
			c.Host = clusterName
		}
		return c
	}
	for _, name := range h.fleet.Hosts() {
		records, err := h.records(name)
		if err != nil {
			h.violated("%s: %v", name, err)
		}
		claims := records.Claims
		if x, err := h.fleet.Host(name); err == nil && name == nodeA {
			c, err := x.Cluster(h.ctx)
			if err == nil {
				records, err = c.Store.Load(h.ctx)
			}
			// That of a cluster is cleared by the next that takes it, when its agent was killed.
			if l := records.Lease; l != nil && l.Expires.Before(time.Now()) {
				records.Lease = nil
			}
			if err == nil {
				err = atRest(records)
			}
			if err != nil {
				h.violated("cluster: %v", err)
			}
			claims = append(slices.Clone(claims), records.Claims...)
		}
		for _, c := range claims {
			if c.Incomplete || c.Pending {
				h.violated("%s: claim %s %s is incomplete (%t) or pending (%t)", name, c.Kind, c.ID, c.Incomplete, c.Pending)
			}
			one := place(claimed{name, string(c.Kind), c.ID, c.Owner})
			if one.Host != clusterName || !slices.Contains(got, one) {
				got = append(got, one)
			}
		}
	}
	for i := range want {
		want[i] = place(want[i])
	}
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b claimed) bool { return fmt.Sprint(a) < fmt.Sprint(b) }),
		cmpopts.EquateEmpty()); diff != "" {
		h.violated("the claims are not those of what is declared (-declared +claimed):\n%s", diff)
	}
}

// vmIs asserts that a VM has what its assignment says, or else what it had.
func (h *harness) vmIs(vm gpu.VM, o *object) {
	adapters, devices := 0, 0
	settings := h.initial[vm.Name].Settings
	if o != nil {
		switch o.kind {
		case "partition":
			adapters = 1
		default:
			devices = 1
		}
		settings = settings.Overlay(settingsOf(o))
	}
	if len(vm.PartitionAdapters) != adapters || len(vm.Devices) != devices {
		h.violated("VM %s has %d partition adapters and %d devices, want %d and %d", vm.Name, len(vm.PartitionAdapters),
			len(vm.Devices), adapters, devices)
	}
	if held := h.model.vms[vm.Name]; o == nil && held.loose && held.by != nil {
		h.initial[vm.Name].Settings = vm.Settings
		return
	}
	if diff := cmp.Diff(settings, vm.Settings); diff != "" && !h.model.vms[vm.Name].loose {
		h.violated("VM %s has other settings than it should (-should +has):\n%s", vm.Name, diff)
	}
}

// settingsOf are the settings that an assignment declares.
func settingsOf(o *object) gpu.VMSettings {
	var s gpu.VMSettings
	mib := func(name string) *gpu.Bytes {
		var n int64
		if _, err := fmt.Sscan(o.args[name], &n); err != nil {
			return nil
		}
		b := gpu.FromMiB(n)
		return &b
	}
	s.LowMemoryMappedIOSpace, s.HighMemoryMappedIOSpace = mib("low_memory_mapped_io_space_mib"), mib("high_memory_mapped_io_space_mib")
	if o.args["guest_controlled_cache_types"] != "" {
		yes := true
		s.GuestControlledCache = &yes
	}
	if a := o.args["automatic_stop_action"]; a != "" {
		action := gpu.StopAction(strings.Trim(a, `"`))
		s.AutomaticStopAction = &action
	}
	return s
}

// gpuIs asserts that a GPU has the layout that is declared, or else what it had.
func (h *harness) gpuIs(x *site, host *gpu.Host, g gpu.GPU, o *object) {
	key, now := host.Name+" "+g.ID, surfaceOf(g)
	held := h.model.held[x]
	switch {
	case o == nil && (held.loose && held.by != nil || held.shaken):
		if now.Dismounted { // a pool that keeps; its GPU is mounted by hand
			fleetHost, err := h.fleet.Host(host.Name)
			h.must(err)
			h.must(fleetHost.MountDevice(h.ctx, g.ID))
			now.Dismounted = false
			if again, ok := h.host(host.Name); ok {
				if mounted, ok := again.GPU(g.ID); ok {
					now = surfaceOf(*mounted)
				}
			}
		}
		h.base[key] = now
	case o == nil:
		if diff := cmp.Diff(h.base[key], now, cmpopts.EquateEmpty()); diff != "" {
			h.violated("GPU %s, which no state has, is not as at the beginning (-was +is):\n%s", key, diff)
		}
	case o.kind == "gpu_p" && fmt.Sprintf("partition_count = %d", now.Count) != o.layout:
		h.violated("GPU %s has %d partitions, and %s declares %s", key, now.Count, o.address(), o.layout)
	case (o.typ == typePool || o.kind == "device") && !now.Dismounted:
		h.violated("GPU %s is not dismounted, and %s takes it", key, o.address())
	case o.typ == typePool:
		if p, ok := host.Pool(o.name); !ok || !p.Has(g.ID) {
			h.violated("GPU %s is not in pool %s", key, o.name)
		}
	}
}

// endPhase has the model forget what counted for the phase.
func (m *model) endPhase() {
	for _, x := range m.sites {
		if m.held[x].freed || m.held[x].by == nil {
			m.held[x] = &holding{}
		}
		m.held[x].shaken = false
	}
	for vm, h := range m.vms {
		if h.freed || h.by == nil {
			m.vms[vm] = &holding{}
		}
	}
	m.unsure, m.faulted = map[string]string{}, map[string]bool{}
	for _, s := range m.states {
		for _, o := range s.objects {
			o.touched, o.imported, o.renamed = false, false, false
			if o.typ == typeVM && o.args["power.start_after"] != "" {
				m.unsure[o.name] = `its assignment has start_after = "never"`
			}
		}
	}
}
