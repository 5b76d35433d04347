package provider_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// rig is a simulated fleet of one test and the provider that talks to it.
type rig struct {
	t     *testing.T
	fleet *simulated.Fleet
	calls calls
	// options are of the provider that factories serves.
	options []provider.Option
}

// calls counts what the provider asks of hosts: host → method → times.
type calls struct {
	mu sync.Mutex
	n  map[string]map[string]int
}

func (c *calls) hear(host, method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]map[string]int{}
	}
	if c.n[host] == nil {
		c.n[host] = map[string]int{}
	}
	c.n[host][method]++
}

// heard tells whether a host has been called so since the last take.
func (c *calls) heard(host, method string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[host][method] > 0
}

// take returns the counts since the last take.
func (c *calls) take() map[string]map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = nil
	return n
}

func newRig(t *testing.T, s gpu.Snapshot) *rig {
	t.Helper()
	f, err := simulated.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, fleet: f}
}

// factories serve the provider inside the test process, counting calls to hosts.
func (r *rig) factories() map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"gpu": func() (tfprotov6.ProviderServer, error) {
			server, err := provider.Server("test", r.calls.hear, r.options...)
			if err != nil {
				return nil, err
			}
			return server(), nil
		},
	}
}

// snapshot reads the fleet file.
func (r *rig) snapshot() gpu.Snapshot {
	r.t.Helper()
	s, err := r.fleet.Snapshot(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// host is one host as the fleet file has it now.
func (r *rig) host(name string) *gpu.Host {
	r.t.Helper()
	s := r.snapshot()
	for i := range s.Hosts {
		if s.Hosts[i].Name == name {
			return &s.Hosts[i]
		}
	}
	r.t.Fatalf("the fleet has no host %q", name)
	return nil
}

// vm is one VM, by name, and the host that owns it.
func (r *rig) vm(name string) (gpu.VM, string) {
	r.t.Helper()
	for _, h := range r.snapshot().Hosts {
		for _, v := range h.VMs {
			if v.Name == name {
				return v, h.Name
			}
		}
	}
	r.t.Fatalf("the fleet has no VM %q", name)
	return gpu.VM{}, ""
}

// counts are the partition counts of a host's GPUs, by GPU id.
func (r *rig) counts(host string) map[string]int {
	out := map[string]int{}
	for _, g := range r.host(host).GPUs {
		if g.Partitionable != nil {
			out[g.ID] = g.Partitionable.Count
		}
	}
	return out
}

// wantCounts asserts that every partitionable GPU of the hosts has a count.
func (r *rig) wantCounts(count int, hosts ...string) {
	r.t.Helper()
	for _, h := range hosts {
		for id, n := range r.counts(h) {
			if n != count {
				r.t.Errorf("host %s, GPU %s has %d partitions, want %d", h, id, n, count)
			}
		}
	}
}

// wantVM asserts a VM's state and its number of partition adapters.
func (r *rig) wantVM(name string, state gpu.VMState, adapters int) {
	r.t.Helper()
	v, host := r.vm(name)
	if v.State != state || len(v.PartitionAdapters) != adapters {
		r.t.Errorf("VM %s on %s is %s with %d partition adapters, want %s with %d", name, host, v.State, len(v.PartitionAdapters), state, adapters)
	}
}

// claims lists the claims of a host as "kind id".
func (r *rig) claims(host string) []string {
	out := []string{}
	for _, c := range r.host(host).Claims {
		out = append(out, string(c.Kind)+" "+c.ID)
	}
	slices.Sort(out)
	return out
}

// must fails the test when arranging it fails.
func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// steps runs a test: in this process, or with a CLI where TF_ACC is set. After each step
// that applies, a second plan must be empty; after the last one all is destroyed.
func (r *rig) steps(steps ...resource.TestStep) {
	r.t.Helper()
	if os.Getenv("TF_ACC") == "" {
		core.Steps(r.t, r.factories(), steps...)
		return
	}
	resource.UnitTest(r.t, resource.TestCase{ProtoV6ProviderFactories: r.factories(), Steps: steps})
}

// identities runs a test whose steps import by identity, which a CLI can from 1.12 on.
func (r *rig) identities(steps ...resource.TestStep) {
	r.t.Helper()
	if os.Getenv("TF_ACC") == "" {
		core.Steps(r.t, r.factories(), steps...)
		return
	}
	resource.UnitTest(r.t, resource.TestCase{
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_12_0)},
		ProtoV6ProviderFactories: r.factories(), Steps: steps,
	})
}

// rejects is a step whose plan fails with texts, in this order.
func (r *rig) rejects(config string, texts ...string) resource.TestStep {
	return resource.TestStep{Config: config, PlanOnly: true, ExpectError: says(texts...)}
}

// says matches texts in an error, in this order, wherever Terraform breaks lines.
func says(texts ...string) *regexp.Regexp {
	parts := make([]string, len(texts))
	for i, text := range texts {
		words := strings.Fields(text)
		for j := range words {
			words[j] = regexp.QuoteMeta(words[j])
		}
		parts[i] = strings.Join(words, `[\s│]+`)
	}
	return regexp.MustCompile(`(?s)` + strings.Join(parts, ".*"))
}

// then makes a check of a step out of a function that reads the fleet.
func then(check func()) resource.TestCheckFunc {
	return func(*terraform.State) error {
		check()
		return nil
	}
}

// planned asserts what the plan means to do with a resource.
func planned(address string, a plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, a)}}
}

// wantClaims asserts the claims of each host, as claims lists them.
func (r *rig) wantClaims(hosts []string, want ...string) {
	r.t.Helper()
	for _, h := range hosts {
		if got := r.claims(h); !slices.Equal(got, want) {
			r.t.Errorf("host %s has the claims %q, want %q", h, got, want)
		}
	}
}

// wantUnchanged asserts that the hosts are as they were.
func (r *rig) wantUnchanged(before gpu.Snapshot) {
	r.t.Helper()
	if diff := cmp.Diff(before, r.snapshot()); diff != "" {
		r.t.Errorf("the fleet has changed (-before +after):\n%s", diff)
	}
}

// staysUnchanged asserts at the end of a test that the hosts are as they are now.
func (r *rig) staysUnchanged() {
	r.t.Helper()
	before := r.snapshot()
	r.t.Cleanup(func() { r.wantUnchanged(before) })
}

// file is the fleet file as it lies on the disk.
func (r *rig) file() []byte {
	r.t.Helper()
	raw, err := os.ReadFile(r.fleet.Path())
	r.must(err)
	return raw
}

// wantUntouched asserts that nothing was written to the fleet file, no lease either.
func (r *rig) wantUntouched(before []byte) {
	r.t.Helper()
	if !bytes.Equal(before, r.file()) {
		r.t.Error("the fleet file has changed")
	}
}

// fail lets an operation on a host fail, so many times (0: always) after some that
// succeed.
func (r *rig) fail(host string, op simulated.Op, object string, after, times int) {
	r.t.Helper()
	r.must(r.fleet.InjectFault(context.Background(), host, simulated.Fault{Op: op, Object: object, After: after, Times: times, Detail: "injected by the test"}))
}

// neverStops makes every stop of a VM fail, or of all VMs of the hosts if it is "".
func (r *rig) neverStops(vm string, hosts ...string) {
	r.t.Helper()
	for _, h := range hosts {
		r.fail(h, simulated.OpShutDownVM, vm, 0, 0)
		r.fail(h, simulated.OpTurnOffVM, vm, 0, 0)
	}
}

// stopsOnce lets a VM shut down once; a second time fails, and so does cutting its
// power.
func (r *rig) stopsOnce(host, vm string) {
	r.t.Helper()
	r.fail(host, simulated.OpShutDownVM, vm, 1, 0)
	r.fail(host, simulated.OpTurnOffVM, vm, 0, 0)
}

// clearFaults takes the faults of a host back and returns those that were left.
func (r *rig) clearFaults(host string) (left []simulated.Fault) {
	r.t.Helper()
	r.must(r.fleet.EditSimulation(context.Background(), host, func(s *simulated.Simulation) { left, s.Faults = s.Faults, nil }))
	return left
}

// addForeignAdapter gives a VM a partition as somebody else would.
func (r *rig) addForeignAdapter(vm string) {
	r.t.Helper()
	_, err := r.fleet.AddForeignAdapter(context.Background(), vm)
	r.must(err)
}

// silent cuts hosts off, or connects them again.
func (r *rig) silent(yes bool, hosts ...string) {
	r.t.Helper()
	for _, h := range hosts {
		r.must(r.fleet.SetUnreachable(context.Background(), h, yes))
	}
}

// editHost changes a host as somebody else would.
func (r *rig) editHost(name string, change func(*gpu.Host)) {
	r.t.Helper()
	r.must(r.fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			if s.Hosts[i].Name == name {
				change(&s.Hosts[i])
				return nil
			}
		}
		return fmt.Errorf("no host %q", name)
	}))
}

// editVM changes a VM behind the provider's back.
func (r *rig) editVM(name string, change func(*gpu.VM)) {
	r.t.Helper()
	r.must(r.fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			for j := range s.Hosts[i].VMs {
				if s.Hosts[i].VMs[j].Name == name {
					change(&s.Hosts[i].VMs[j])
				}
			}
		}
		return nil
	}))
}

// setPool makes a pool on a host as somebody else would, and dismounts its GPUs.
func (r *rig) setPool(host, name string, gpus ...string) {
	r.t.Helper()
	h, err := r.fleet.Host(host)
	r.must(err)
	ctx := context.Background()
	for _, g := range gpus {
		r.must(h.DismountDevice(ctx, g, true))
	}
	r.must(h.CreatePool(ctx, name))
	r.must(h.SetPoolMembers(ctx, name, gpus))
}

// draw gives a VM that is off a GPU of a pool as somebody else would.
func (r *rig) draw(vm, pool string) {
	r.t.Helper()
	v, host := r.vm(vm)
	h, err := r.fleet.Host(host)
	r.must(err)
	_, err = h.AddDevice(context.Background(), v.ID, gpu.DeviceAssignment{Pool: pool})
	r.must(err)
}

// machine is what of a VM must be as it was when a change is undone: all but the ids
// that a host gives anew.
func (r *rig) machine(name string) gpu.VM {
	r.t.Helper()
	v, _ := r.vm(name)
	for i := range v.PartitionAdapters {
		v.PartitionAdapters[i].ID = ""
	}
	for i := range v.Devices {
		v.Devices[i].ID = ""
	}
	return v
}

// partitionOf is the partition that a VM holds on a host, and its GPU.
func (r *rig) partitionOf(name string) (gpuID string, p gpu.Partition) {
	r.t.Helper()
	v, host := r.vm(name)
	for _, g := range r.host(host).GPUs {
		if g.Partitionable == nil {
			continue
		}
		for _, p := range g.Partitionable.Partitions {
			if gpu.SameID(p.VMID, v.ID) {
				return g.ID, p
			}
		}
	}
	return "", gpu.Partition{}
}

// token is the token of a VM's claim.
func (r *rig) token(vm string) string {
	r.t.Helper()
	v, host := r.vm(vm)
	for _, c := range r.host(host).Claims {
		if c.Is(gpu.ClaimAssignment, v.ID) {
			return c.Token
		}
	}
	return ""
}

// wantHeld asserts that each VM has one partition and one claim, on its own host, and
// is in the state that it should be in.
func (r *rig) wantHeld(state gpu.VMState, vms ...string) {
	r.t.Helper()
	for _, name := range vms {
		r.wantVM(name, state, 1)
		v, host := r.vm(name)
		for _, h := range r.snapshot().Hosts {
			n := 0
			for _, c := range h.Claims {
				if c.Is(gpu.ClaimAssignment, v.ID) {
					n++
				}
			}
			if want := map[bool]int{true: 1}[h.Name == host]; n != want {
				r.t.Errorf("host %s has %d claims for %s, want %d", h.Name, n, name, want)
			}
		}
	}
}

// wantFree asserts that VMs have no partition and no claim, and run.
func (r *rig) wantFree(state gpu.VMState, vms ...string) {
	r.t.Helper()
	for _, name := range vms {
		r.wantVM(name, state, 0)
		v, _ := r.vm(name)
		for _, h := range r.snapshot().Hosts {
			for _, c := range h.Claims {
				if c.Is(gpu.ClaimAssignment, v.ID) {
					r.t.Errorf("host %s has a claim for %s", h.Name, name)
				}
			}
		}
	}
}

// wantPool asserts that hosts have a pool with exactly these GPUs, all dismounted.
func (r *rig) wantPool(name string, gpus []string, hosts ...string) {
	r.t.Helper()
	for _, n := range hosts {
		h := r.host(n)
		p, ok := h.Pool(name)
		if !ok {
			r.t.Errorf("host %s has no pool %q", n, name)
			continue
		}
		if got := slices.Sorted(slices.Values(p.GPUs)); !slices.Equal(got, slices.Sorted(slices.Values(gpus))) {
			r.t.Errorf("host %s: pool %q has %v, want %v", n, name, got, gpus)
		}
		for _, id := range gpus {
			if g, ok := h.GPU(id); !ok || !g.Dismounted || !strings.HasPrefix(g.InstancePath, `PCIP\`) {
				r.t.Errorf("host %s: GPU %s is not dismounted", n, id)
			}
		}
	}
}

// wantNoPool asserts that hosts do not have a pool.
func (r *rig) wantNoPool(name string, hosts ...string) {
	r.t.Helper()
	for _, n := range hosts {
		if p, ok := r.host(n).Pool(name); ok {
			r.t.Errorf("host %s still has the pool %q with %v", n, name, p.GPUs)
		}
	}
}

// wantDismounted asserts which GPUs of a host are dismounted.
func (r *rig) wantDismounted(host string, gpus ...string) {
	r.t.Helper()
	got := []string{}
	for _, g := range r.host(host).GPUs {
		if g.Dismounted {
			got = append(got, g.ID)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(gpus))) {
		r.t.Errorf("host %s has %v dismounted, want %v", host, got, gpus)
	}
}

// wantSettled asserts that no host keeps a lease or an unfinished change.
func (r *rig) wantSettled() {
	r.t.Helper()
	for _, name := range r.fleet.Hosts() {
		h, err := r.fleet.Host(name)
		r.must(err)
		st, err := h.Load(context.Background())
		r.must(err)
		if st.Lease != nil || len(st.Journal) > 0 {
			r.t.Errorf("host %s keeps the lease %+v and %d changes in its journal", name, st.Lease, len(st.Journal))
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// jsonpath finds a value below an attribute: strings are names, numbers positions.
func jsonpath(root string, steps ...any) tfjsonpath.Path {
	p := tfjsonpath.New(root)
	for _, s := range steps {
		switch s := s.(type) {
		case string:
			p = p.AtMapKey(s)
		case int:
			p = p.AtSliceIndex(s)
		}
	}
	return p
}

// onPlan is a plan check that calls a function between the plan and its apply.
type onPlan func()

func (f onPlan) CheckPlan(context.Context, plancheck.CheckPlanRequest, *plancheck.CheckPlanResponse) {
	f()
}
