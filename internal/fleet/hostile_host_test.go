package fleet_test

import (
	stdcmp "cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// TestAHostSpeaksForItselfOnly has two equal fleets make the same random changes, of which the second
// has one host more that lies: about claims, VMs, ids, clusters, revisions, owners and tokens. No other
// host may end otherwise for it, or stop another VM. A change that the liar keeps from being made names
// it, and leaves the other hosts as they were.
func TestAHostSpeaksForItselfOnly(t *testing.T) {
	t.Parallel()
	total := map[string]int{}
	for i := range *liarCases {
		for k, c := range besideALiar(t, *planSeed+uint64(i)) {
			total[k] += c
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("changes: %v", total)
	// Of each sort there are enough to prove something, per mille of the cases.
	for sort, least := range map[string]int{"same": 3000, "refused": 500, "blocked": 80, "stopped": 150} {
		if total[sort]*1000 < *liarCases*least {
			t.Errorf("there are too few changes of %q: %v", sort, total)
		}
	}
}

var liarCases = flag.Int("liar-cases", 60, "random fleets of TestAHostSpeaksForItselfOnly")

// besideALiar makes the changes of one seed, and counts how they ended.
func besideALiar(t *testing.T, seed uint64) map[string]int {
	counts := map[string]int{}
	name := []string{"aa", "zz", "hv05"}[seed%3]
	alone, beside := newBareWorld(t, seed, 29), newBareWorld(t, seed, 29)
	defer alone.end()
	defer beside.end()
	honest := honestHosts(alone)
	alone.start(honest)
	honest = honestHosts(beside) // of the same random numbers
	own := hypervHosts(beside, 1).Hosts[0]
	own.Name = name
	for i := range own.VMs {
		own.VMs[i].ID, own.VMs[i].Name = fmt.Sprintf("%08X-0000-4000-8000-00000000EEEE", i+1), fmt.Sprintf("own-%d", i+1)
	}
	honest.Hosts = append(honest.Hosts, own)
	beside.start(honest)

	rng := rand.New(rand.NewPCG(seed, 31))
	tells := &tells{}
	dial := beside.endpoints[name].Dial
	beside.endpoints[name] = fleet.Endpoint{Dial: func(ctx context.Context, may bool) (fleet.Conn, error) {
		conn, err := dial(ctx, may)
		return lying{conn, tells}, err
	}}
	takesPart := rng.IntN(3) == 0
	var has []*resource
	for step := range 7 {
		if step > 2 {
			tells.host = lie(rng, alone.hosts(), own)
		}
		r, want := someChange(rng, alone.hosts(), has, step)
		if r == nil {
			continue
		}
		before, beforeBeside := alone.hosts(), withoutHost(beside, name)
		stopped, err := alone.makes(r, want, nil)
		part := want
		if c := want.Config; c != nil && takesPart {
			also := *c
			also.GPUs = maps.Clone(c.GPUs)
			also.GPUs[name] = randomGPUs
			part.Config = &also
		}
		stoppedBeside, errBeside := beside.makes(r, part, r.has.Config)
		now, nowBeside := alone.hosts(), withoutHost(beside, name)
		switch {
		case errBeside != nil && err == nil:
			counts["blocked"]++
			if !strings.Contains(errBeside.Error(), name) {
				t.Errorf("seed %d, step %d: a change is refused for what %s says, which is not named: %v", seed, step, name, errBeside)
			}
			if diff := diffHosts(beforeBeside, nowBeside); diff != "" {
				t.Errorf("seed %d, step %d: a change that is refused (%v) touched other hosts:\n%s", seed, step, errBeside, diff)
			}
			return counts // the two differ from here on
		case errBeside == nil && err != nil:
			t.Errorf("seed %d, step %d: %s is refused (%v), and not beside %s", seed, step, r.label, err, name)
			return counts
		case err != nil:
			counts["refused"]++
		default:
			counts["same"]++
		}
		delete(stoppedBeside, name)
		if len(stopped) > 0 {
			counts["stopped"]++
		}
		if !maps.Equal(stopped, stoppedBeside) {
			t.Errorf("seed %d, step %d: %s stops %v, and beside %s %v", seed, step, r.label, stopped, name, stoppedBeside)
		}
		if diff := diffHosts(now, nowBeside); diff != "" {
			t.Errorf("seed %d, step %d: %s, before %d hosts: the hosts end otherwise beside %s (-alone +beside):\n%s",
				seed, step, r.label, len(before), name, diff)
		}
		if t.Failed() {
			return counts
		}
		if err == nil {
			if r.has.Empty() {
				has = append(has, r)
			}
			if r.has = want; want.Empty() {
				has = slices.DeleteFunc(has, func(o *resource) bool { return o == r })
			}
		}
		for _, h := range now { // what runs is a matter of who uses the VMs
			for _, vm := range h.VMs {
				if to := []gpu.VMState{gpu.VMRunning, gpu.VMRunning, gpu.VMOff, ""}[rng.IntN(4)]; to != "" &&
					to != vm.State && len(vm.PartitionAdapters) > 0 {
					alone.turn(vm.Name, to)
					beside.turn(vm.Name, to)
				}
			}
		}
	}
	return counts
}

// honestHosts are one host or a cluster, and one that stands alone.
func honestHosts(w *world) gpu.Snapshot {
	s := hypervHosts(w, pick(w, 1, 2, 3))
	solo := hypervHosts(w, 1).Hosts[0]
	solo.Name = "hv09"
	for i := range solo.VMs {
		solo.VMs[i].ID, solo.VMs[i].Name = fmt.Sprintf("%08X-0000-4000-8000-000000009999", i+1), fmt.Sprintf("solo-%d", i+1)
	}
	s.Hosts = append(s.Hosts, solo)
	return s
}

// tells is what a liar answers instead of what is so; nil before it begins.
type tells struct{ host *gpu.Host }

type lying struct {
	fleet.Conn
	*tells
}

func (l lying) Inventory(ctx context.Context) (gpu.Host, error) {
	if l.host == nil {
		return l.Conn.Inventory(ctx)
	}
	return *l.host, nil
}

// withoutHost are the hosts of a world without the liar.
func withoutHost(w *world, name string) map[string]*gpu.Host {
	out := w.hosts()
	delete(out, name)
	return out
}

func diffHosts(a, b map[string]*gpu.Host) string {
	for _, hosts := range []map[string]*gpu.Host{a, b} {
		for _, h := range hosts {
			slices.SortFunc(h.Claims, func(a, b gpu.Claim) int { return strings.Compare(string(a.Kind)+a.ID, string(b.Kind)+b.ID) })
		}
	}
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(gpu.PartitionAdapter{}, "ID"),
		cmpopts.IgnoreFields(gpu.DeviceAssignment{}, "ID"),
		cmpopts.IgnoreFields(gpu.Partition{}, "ID", "VFLUID"), cmpopts.SortSlices(func(a, b gpu.Partition) bool { return a.VMID < b.VMID }),
		// Another host of a config is named in the claims of all.
		cmpopts.IgnoreFields(gpu.PartitionConfig{}, "GPUs"), cmpopts.IgnoreFields(gpu.Boot{}, "At"))
}

// someChange is a random change of the honest hosts: first a config, then assignments, then anything.
func someChange(rng *rand.Rand, hosts map[string]*gpu.Host, has []*resource, step int) (*resource, gpu.Want) {
	find := func(label string) *resource {
		for _, r := range has {
			if r.label == label {
				return r
			}
		}
		return &resource{label: label, token: "token of " + label}
	}
	if step == 0 || step > 2 && rng.IntN(2) == 0 {
		r := find("gpu_partition_config vdi")
		c := &gpu.PartitionConfig{
			ID: "vdi", Kind: gpu.KindGPUP, Name: "vdi", Count: []int{2, 4, 8}[rng.IntN(3)], GPUs: map[string][]string{},
			MaxDisruption: gpu.DisruptVMRestart,
		}
		for name := range hosts {
			c.GPUs[name] = randomGPUs
		}
		if !r.has.Empty() && r.has.Config.Count == c.Count {
			return nil, gpu.Want{}
		}
		return r, gpu.Want{Config: c}
	}
	var vms []foundOn
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		for _, vm := range hosts[name].VMs {
			vms = append(vms, foundOn{name, vm})
		}
	}
	at := vms[rng.IntN(len(vms))]
	r := find("gpu_vm_assignment " + at.vm.ID)
	if !r.has.Empty() && rng.IntN(3) == 0 {
		return r, gpu.Want{}
	}
	a := &gpu.Assignment{
		Kind: gpu.AssignPartition, VM: at.vm.ID, VMID: at.vm.ID, VMName: at.vm.Name, Host: at.host, Partition: &gpu.PartitionWant{},
		Power: gpu.Power{AllowShutdown: rng.IntN(3) == 0, ShutdownTimeout: gpu.DefaultShutdownTimeout},
	}
	if rng.IntN(2) == 0 {
		a.Settings.GuestControlledCache = new(rng.IntN(2) == 0)
	}
	return r, gpu.Want{Assignment: a}
}

type foundOn struct {
	host string
	vm   gpu.VM
}

// makes has one run plan a change as the provider does, and another one make it. It returns the VMs
// that were stopped.
func (w *world) makes(r *resource, want gpu.Want, prior *gpu.PartitionConfig) (stopped map[string]bool, err error) {
	ctx := w.t.Context()
	p := change.Change{Subject: r.label, Token: r.token, Want: want, Prior: r.has}
	if prior != nil && want.Config != nil { // which may have had more hosts
		had := *prior
		had.GPUs = want.Config.GPUs
		p.Prior.Config = &had
	}
	f := w.run(nil)
	var view fleet.View
	if a := stdcmp.Or(want.Assignment, r.has.Assignment); a != nil {
		var hint []string
		if r.has.Assignment != nil {
			hint = []string{r.has.Assignment.Host}
		}
		var at fleet.FoundVM
		search := fleet.VMSearch{VM: a.VMID, Hint: hint}
		view = f.Snapshot(ctx, nil, fleet.ForVM(search))
		if at, err = search.In(view); err != nil {
			return nil, err
		}
		if want.Assignment != nil {
			is := *want.Assignment
			is.Host, is.Among = at.Host, slices.AppendSeq(slices.Collect(maps.Keys(view.Hosts)), maps.Keys(view.Errors))
			p.Want.Assignment = &is
		}
		view = f.Snapshot(ctx, f.Peers(view, []string{at.Host}))
	} else {
		view = f.Snapshot(ctx, slices.Collect(maps.Keys(stdcmp.Or(want.Config, r.has.Config).GPUs)), fleet.WithClusterPeers)
	}
	var findings []rules.Finding
	if p.Want.Empty() {
		d := f.PlanDestroy(context.Background(), view, p, true)
		findings, p.Approved = d.Findings, &d.Approved
	} else {
		findings, _ = f.Record(f.Ledger.Instance(""), view, p)
		if !p.Prior.Empty() {
			seen := view.Disturbable(slices.Collect(maps.Keys(view.Hosts)))
			if a := p.Want.Assignment; a != nil {
				if vm, ok := view.Hosts[a.Host].VM(a.VMID); ok {
					seen.Approve(change.Stoppable(view.Hosts[a.Host], vm)...)
				}
			}
			p.Approved = &seen
		}
	}
	for _, x := range findings {
		if x.Level == rules.Error {
			return nil, fmt.Errorf("%s (%s): %s", x.Title, x.Host, x.Found)
		}
	}
	w.seen.begin()
	_, err = w.run(nil).Apply(ctx, fleet.Request{Change: p, MaxUnavailable: 2})
	return maps.Clone(w.seen.stopped), err
}

// lie is what a hostile host makes up of itself, of what it has seen of others.
func lie(rng *rand.Rand, honest map[string]*gpu.Host, own gpu.Host) *gpu.Host {
	may := func() bool { return rng.IntN(2) == 0 }
	h := own
	h.VMs, h.Claims = slices.Clone(own.VMs), nil
	names := slices.Sorted(maps.Keys(honest))
	victim := honest[names[rng.IntN(len(names))]]
	power := gpu.Power{AllowShutdown: may(), ForceShutdown: may(), AllowTurnOff: may(), StayOff: may(), NextOff: rng.IntN(4) == 0}
	all := []string{"00000000-DEAD-4000-8000-000000000000"}
	for _, name := range names {
		for i := range honest[name].VMs {
			all = append(all, honest[name].VMs[i].ID)
		}
	}
	for _, name := range names {
		for _, c := range honest[name].Claims {
			if may() {
				continue
			}
			c.Revision = []int64{0, 1, c.Revision, 999}[rng.IntN(4)]
			c.Owner = []string{c.Owner, c.Owner, "evil", ""}[rng.IntN(4)]
			c.Token = []string{c.Token, c.Token, "made up", ""}[rng.IntN(4)]
			c.Cluster = []string{c.Cluster, "", "clu"}[rng.IntN(3)]
			c.Incomplete, c.Pending = rng.IntN(4) == 0, rng.IntN(4) == 0
			if a := c.Want.Assignment; a != nil {
				is := *a
				is.Power = power
				c.SettingsBefore.GuestControlledCache = new(may())
				if may() {
					is.VMID = all[rng.IntN(len(all))]
				}
				if rng.IntN(4) == 0 {
					c.ID = all[rng.IntN(len(all))]
				}
				c.Want.Assignment = &is
			}
			if f := c.Want.Config; f != nil && may() {
				is := *f
				is.Count = 16
				c.Want.Config = &is
			}
			h.Claims = append(h.Claims, c)
		}
	}
	if may() { // VMs of others, as they are or not
		for _, vm := range victim.VMs {
			if may() {
				vm.State = []gpu.VMState{vm.State, gpu.VMOff, gpu.VMRunning}[rng.IntN(3)]
				vm.Clustered = may()
				vm.Replica = rng.IntN(4) == 0
				if may() {
					vm.PartitionAdapters = nil
				}
				h.VMs = append(h.VMs, vm)
			}
		}
	}
	switch c := victim.Cluster; {
	case rng.IntN(3) > 0: // it stands alone
	case c == nil || may():
		h.Cluster = &gpu.Cluster{Name: "clu", Nodes: []gpu.Node{{Name: h.Name, State: gpu.NodeUp}}, Records: may()}
	default:
		is := *c
		is.Nodes, is.Records = slices.Clone(c.Nodes), may()
		for i := range is.Nodes {
			is.Nodes[i].State = []gpu.NodeState{gpu.NodeUp, gpu.NodeDown, gpu.NodePaused, gpu.NodeDraining}[rng.IntN(4)]
		}
		if may() {
			is.Nodes = append(is.Nodes, gpu.Node{Name: h.Name, State: gpu.NodeUp})
		} else {
			h.Name = victim.Name
		}
		h.Cluster = &is
	}
	if may() {
		h.Returning = []string{all[rng.IntN(len(all))]}
		h.Moving = []string{victim.VMs[0].Name}
		h.Unfinished = []string{"gpu_partition_config vdi"}
		h.PendingStarts = []gpu.PendingStart{{VM: all[rng.IntN(len(all))], Name: victim.VMs[0].Name}}
		h.HeldBy = &gpu.Holder{Of: "cluster clu", Run: "made up"}
	}
	return &h
}
