// Package rig is what the tests of the provider stand on: simulated fleets, a provider
// that counts what it asks of them, and ways to run configurations against it, in this
// process on the in-process core or with a real CLI where TF_ACC is set.
package rig

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// Patience is how long changes wait for others of their run in tests: these run in this
// process, where the next one comes soon.
const Patience = 200 * time.Millisecond

// Rig is a simulated fleet of one test and the provider that talks to it.
type Rig struct {
	T     *testing.T
	Fleet *others.Fleet
	Calls Calls
	// Options are of the provider that factories serves.
	Options []provider.Option
}

// Calls counts what the provider asks of hosts: host → method → times.
type Calls struct {
	Mu sync.Mutex
	N  map[string]map[string]int
}

// Hear counts a call.
func (c *Calls) Hear(host, method string) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.N == nil {
		c.N = map[string]map[string]int{}
	}
	if c.N[host] == nil {
		c.N[host] = map[string]int{}
	}
	c.N[host][method]++
}

// Heard tells whether a host has been called so since the last take.
func (c *Calls) Heard(host, method string) bool {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.N[host][method] > 0
}

// Take returns the counts since the last take.
func (c *Calls) Take() map[string]map[string]int {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	n := c.N
	c.N = nil
	return n
}

// New makes a fleet and a rig on it.
func New(t *testing.T, s gpu.Snapshot) *Rig {
	t.Helper()
	f, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
	if err != nil {
		t.Fatal(err)
	}
	return &Rig{T: t, Fleet: f}
}

// Factories serve the provider inside the test process, counting calls to hosts.
func (r *Rig) Factories() map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"gpu": func() (tfprotov6.ProviderServer, error) {
			server, err := provider.Server("test", r.Calls.Hear, append([]provider.Option{provider.WithPatience(Patience)}, r.Options...)...)
			if err != nil {
				return nil, err
			}
			s := server()
			if c, ok := s.(io.Closer); ok { // a CLI tells no provider in this process that it is over
				r.T.Cleanup(func() { _ = c.Close() })
			}
			return s, nil
		},
	}
}

// Snapshot reads the fleet file.
func (r *Rig) Snapshot() gpu.Snapshot {
	r.T.Helper()
	s, err := r.Fleet.Snapshot(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	return s
}

// Host is one host as the fleet file has it now.
func (r *Rig) Host(name string) *gpu.Host {
	r.T.Helper()
	s := r.Snapshot()
	for i := range s.Hosts {
		if s.Hosts[i].Name == name {
			return &s.Hosts[i]
		}
	}
	r.T.Fatalf("the fleet has no host %q", name)
	return nil
}

// VM is one VM, by name, and the host that owns it.
func (r *Rig) VM(name string) (gpu.VM, string) {
	r.T.Helper()
	for _, h := range r.Snapshot().Hosts {
		for _, v := range h.VMs {
			if v.Name == name {
				return v, h.Name
			}
		}
	}
	r.T.Fatalf("the fleet has no VM %q", name)
	return gpu.VM{}, ""
}

// Counts are the partition counts of a host's GPUs, by GPU id.
func (r *Rig) Counts(host string) map[string]int {
	out := map[string]int{}
	for _, g := range r.Host(host).GPUs {
		if g.Partitionable != nil {
			out[g.ID] = g.Partitionable.Count
		}
	}
	return out
}

// WantCounts asserts that every partitionable GPU of the hosts has a count.
func (r *Rig) WantCounts(count int, hosts ...string) {
	r.T.Helper()
	for _, h := range hosts {
		for id, n := range r.Counts(h) {
			if n != count {
				r.T.Errorf("host %s, GPU %s has %d partitions, want %d", h, id, n, count)
			}
		}
	}
}

// WantVM asserts a VM's state and its number of partition adapters.
func (r *Rig) WantVM(name string, state gpu.VMState, adapters int) {
	r.T.Helper()
	v, host := r.VM(name)
	if v.State != state || len(v.PartitionAdapters) != adapters {
		r.T.Errorf("VM %s on %s is %s with %d partition adapters, want %s with %d", name, host, v.State,
			len(v.PartitionAdapters), state, adapters)
	}
}

// Claims lists the claims of a host as "kind id".
func (r *Rig) Claims(host string) []string {
	out := []string{}
	for _, c := range r.Host(host).Claims {
		out = append(out, string(c.Kind)+" "+c.ID)
	}
	slices.Sort(out)
	return out
}

// Must fails the test when arranging it fails.
func (r *Rig) Must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// WithCLI tells whether a test that can run in this process has a real CLI now: where TF_ACC
// is set. Of these, GPU_TEST_CLI_EVERY=n keeps one in n, always the same, and n/k others for each k;
// the others are skipped, since they are for those who have run them without a CLI.
func WithCLI(t *testing.T) bool {
	t.Helper()
	if os.Getenv("TF_ACC") == "" {
		return false
	}
	sample := os.Getenv("GPU_TEST_CLI_EVERY")
	if sample == "" {
		return true
	}
	n, k, of := strings.Cut(sample, "/")
	every, err := strconv.ParseUint(n, 10, 32)
	part := uint64(0)
	if err == nil && of {
		part, err = strconv.ParseUint(k, 10, 32)
	}
	if err != nil || every == 0 || part >= every {
		t.Fatalf("GPU_TEST_CLI_EVERY is %q, and neither a number from 1 on nor one with a part of it, as 5/0 to 5/4", sample)
	}
	name := fnv.New32a()
	_, _ = name.Write([]byte(t.Name()))
	if uint64(name.Sum32())%every != part {
		t.Skipf("one test in %d has a CLI here: this one has run without it in `make test`, and has it in `make testacc`", every)
	}
	return true
}

// Steps runs a test: in this process, or with a CLI where TF_ACC is set. After each step
// that applies, a second plan must be empty; after the last one all is destroyed.
func (r *Rig) Steps(steps ...resource.TestStep) {
	r.T.Helper()
	if !WithCLI(r.T) {
		core.Steps(r.T, r.Factories(), steps...)
		return
	}
	resource.UnitTest(r.T, resource.TestCase{ProtoV6ProviderFactories: r.Factories(), Steps: steps})
}

// Identities runs a test whose steps import by identity, which a CLI can from 1.12 on.
func (r *Rig) Identities(steps ...resource.TestStep) {
	r.T.Helper()
	if !WithCLI(r.T) {
		core.Steps(r.T, r.Factories(), steps...)
		return
	}
	resource.UnitTest(r.T, resource.TestCase{
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_12_0)},
		ProtoV6ProviderFactories: r.Factories(), Steps: steps,
	})
}

// Rejects is a step whose plan fails with texts, in this order.
func (r *Rig) Rejects(config string, texts ...string) resource.TestStep {
	return resource.TestStep{Config: config, PlanOnly: true, ExpectError: Says(texts...)}
}

// SaysAt matches texts in an error at an argument, of which core tells the name and a CLI prints the line.
func SaysAt(argument, summary string, texts ...string) *regexp.Regexp {
	return regexp.MustCompile(Says(summary).String() + `.*(?:, ` + argument + `\n|` + argument + `\s+=).*` + Says(texts...).String())
}

// Says matches texts in an error, in this order, wherever Terraform breaks lines.
func Says(texts ...string) *regexp.Regexp {
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

// Then makes a check of a step out of a function that reads the fleet.
func Then(check func()) resource.TestCheckFunc {
	return func(*terraform.State) error {
		check()
		return nil
	}
}

// Planned asserts what the plan means to do with a resource.
func Planned(address string, a plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, a)}}
}

// WantClaims asserts the claims of each host, as claims lists them.
func (r *Rig) WantClaims(hosts []string, want ...string) {
	r.T.Helper()
	for _, h := range hosts {
		if got := r.Claims(h); !slices.Equal(got, want) {
			r.T.Errorf("host %s has the claims %q, want %q", h, got, want)
		}
	}
}

// WantUnchanged asserts that the hosts are as they were.
func (r *Rig) WantUnchanged(before gpu.Snapshot) {
	r.T.Helper()
	if diff := cmp.Diff(before, r.Snapshot()); diff != "" {
		r.T.Errorf("the fleet has changed (-before +after):\n%s", diff)
	}
}

// StaysUnchanged asserts at the end of a test that the hosts are as they are now.
func (r *Rig) StaysUnchanged() {
	r.T.Helper()
	before := r.Snapshot()
	r.T.Cleanup(func() { r.WantUnchanged(before) })
}

// File is the fleet file as it lies on the disk.
func (r *Rig) File() []byte {
	r.T.Helper()
	raw, err := os.ReadFile(r.Fleet.Path())
	r.Must(err)
	return raw
}

// WantUntouched asserts that nothing was written to the fleet file, no lease either.
func (r *Rig) WantUntouched(before []byte) {
	r.T.Helper()
	if !bytes.Equal(before, r.File()) {
		r.T.Error("the fleet file has changed")
	}
}

// Fail lets an operation on a host fail, so many times (0: always) after some that
// succeed.
func (r *Rig) Fail(host string, op simulated.Op, object string, after, times int) {
	r.T.Helper()
	r.Must(r.Fleet.InjectFault(context.Background(), host, simulated.Fault{
		Op: op, Object: object, After: after, Times: times, Detail: "injected by the test",
	}))
}

// NeverStops makes every stop of a VM fail, or of all VMs of the hosts if it is "".
func (r *Rig) NeverStops(vm string, hosts ...string) {
	r.T.Helper()
	for _, h := range hosts {
		r.Fail(h, simulated.OpShutDownVM, vm, 0, 0)
		r.Fail(h, simulated.OpTurnOffVM, vm, 0, 0)
	}
}

// StopsOnce lets a VM shut down once; a second time fails, and so does cutting its
// power.
func (r *Rig) StopsOnce(host, vm string) {
	r.T.Helper()
	r.Fail(host, simulated.OpShutDownVM, vm, 1, 0)
	r.Fail(host, simulated.OpTurnOffVM, vm, 0, 0)
}

// ClearFaults takes the faults of a host back and returns those that were left.
func (r *Rig) ClearFaults(host string) (left []simulated.Fault) {
	r.T.Helper()
	r.Must(r.Fleet.EditSimulation(context.Background(), host, func(s *simulated.Simulation) { left, s.Faults = s.Faults, nil }))
	return left
}

// AddForeignAdapter gives a VM a partition as somebody else would.
func (r *Rig) AddForeignAdapter(vm string) {
	r.T.Helper()
	_, err := r.Fleet.AddForeignAdapter(context.Background(), vm)
	r.Must(err)
}

// Silent cuts hosts off, or connects them again.
func (r *Rig) Silent(yes bool, hosts ...string) {
	r.T.Helper()
	for _, h := range hosts {
		r.Must(r.Fleet.SetUnreachable(context.Background(), h, yes))
	}
}

// EditHost changes a host as somebody else would.
func (r *Rig) EditHost(name string, change func(*gpu.Host)) {
	r.T.Helper()
	r.Must(r.Fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			if s.Hosts[i].Name == name {
				change(&s.Hosts[i])
				return nil
			}
		}
		return fmt.Errorf("no host %q", name)
	}))
}

// EditVM changes a VM behind the provider's back.
func (r *Rig) EditVM(name string, change func(*gpu.VM)) {
	r.T.Helper()
	r.Must(r.Fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
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

// SetPool makes a pool on a host as somebody else would, and dismounts its GPUs.
func (r *Rig) SetPool(host, name string, gpus ...string) {
	r.T.Helper()
	h, err := r.Fleet.Host(host)
	r.Must(err)
	ctx := context.Background()
	for _, g := range gpus {
		r.Must(h.DismountDevice(ctx, g, true))
	}
	r.Must(h.CreatePool(ctx, name))
	r.Must(h.SetPoolMembers(ctx, name, gpus))
}

// Draw gives a VM that is off a GPU of a pool as somebody else would.
func (r *Rig) Draw(vm, pool string) {
	r.T.Helper()
	v, host := r.VM(vm)
	h, err := r.Fleet.Host(host)
	r.Must(err)
	_, err = h.AddDevice(context.Background(), v.ID, gpu.DeviceAssignment{Pool: pool})
	r.Must(err)
}

// Machine is what of a VM must be as it was when a change is undone: all but the ids
// that a host gives anew.
func (r *Rig) Machine(name string) gpu.VM {
	r.T.Helper()
	v, _ := r.VM(name)
	for i := range v.PartitionAdapters {
		v.PartitionAdapters[i].ID = ""
	}
	for i := range v.Devices {
		v.Devices[i].ID = ""
	}
	return v
}

// PartitionOf is the partition that a VM holds on a host, and its GPU.
func (r *Rig) PartitionOf(name string) (gpuID string, p gpu.Partition) {
	r.T.Helper()
	v, host := r.VM(name)
	for _, g := range r.Host(host).GPUs {
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

// Token is the token of a VM's claim.
func (r *Rig) Token(vm string) string {
	r.T.Helper()
	v, host := r.VM(vm)
	for _, c := range r.Host(host).Claims {
		if c.Is(gpu.ClaimAssignment, v.ID) {
			return c.Token
		}
	}
	return ""
}

// WantHeld asserts that each VM has one partition and one claim, on its own host, and
// is in the state that it should be in.
func (r *Rig) WantHeld(state gpu.VMState, vms ...string) {
	r.T.Helper()
	for _, name := range vms {
		r.WantVM(name, state, 1)
		v, host := r.VM(name)
		for _, h := range r.Snapshot().Hosts {
			n := 0
			for _, c := range h.Claims {
				if c.Is(gpu.ClaimAssignment, v.ID) {
					n++
				}
			}
			if want := map[bool]int{true: 1}[h.Name == host]; n != want {
				r.T.Errorf("host %s has %d claims for %s, want %d", h.Name, n, name, want)
			}
		}
	}
}

// WantFree asserts that VMs have no partition and no claim, and run.
func (r *Rig) WantFree(state gpu.VMState, vms ...string) {
	r.T.Helper()
	for _, name := range vms {
		r.WantVM(name, state, 0)
		v, _ := r.VM(name)
		for _, h := range r.Snapshot().Hosts {
			for _, c := range h.Claims {
				if c.Is(gpu.ClaimAssignment, v.ID) {
					r.T.Errorf("host %s has a claim for %s", h.Name, name)
				}
			}
		}
	}
}

// WantPool asserts that hosts have a pool with exactly these GPUs, all dismounted.
func (r *Rig) WantPool(name string, gpus []string, hosts ...string) {
	r.T.Helper()
	for _, n := range hosts {
		h := r.Host(n)
		p, ok := h.Pool(name)
		if !ok {
			r.T.Errorf("host %s has no pool %q", n, name)
			continue
		}
		if got := slices.Sorted(slices.Values(p.GPUs)); !slices.Equal(got, slices.Sorted(slices.Values(gpus))) {
			r.T.Errorf("host %s: pool %q has %v, want %v", n, name, got, gpus)
		}
		for _, id := range gpus {
			if g, ok := h.GPU(id); !ok || !g.Dismounted || !strings.HasPrefix(g.InstancePath, `PCIP\`) {
				r.T.Errorf("host %s: GPU %s is not dismounted", n, id)
			}
		}
	}
}

// WantNoPool asserts that hosts do not have a pool.
func (r *Rig) WantNoPool(name string, hosts ...string) {
	r.T.Helper()
	for _, n := range hosts {
		if p, ok := r.Host(n).Pool(name); ok {
			r.T.Errorf("host %s still has the pool %q with %v", n, name, p.GPUs)
		}
	}
}

// WantDismounted asserts which GPUs of a host are dismounted.
func (r *Rig) WantDismounted(host string, gpus ...string) {
	r.T.Helper()
	got := []string{}
	for _, g := range r.Host(host).GPUs {
		if g.Dismounted {
			got = append(got, g.ID)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(gpus))) {
		r.T.Errorf("host %s has %v dismounted, want %v", host, got, gpus)
	}
}

// WantSettled asserts that no host keeps a lease or an unfinished change.
func (r *Rig) WantSettled() {
	r.T.Helper()
	for _, name := range r.Fleet.Hosts() {
		h, err := r.Fleet.Host(name)
		r.Must(err)
		st, err := h.Load(context.Background())
		r.Must(err)
		if st.Lease != nil || len(st.Journal) > 0 {
			r.T.Errorf("host %s keeps the lease %+v and %d changes in its journal", name, st.Lease, len(st.Journal))
		}
	}
}

// Write writes a file.
func Write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Keys are the keys of a map, sorted.
func Keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Jsonpath finds a value below an attribute: strings are names, numbers positions.
func Jsonpath(root string, steps ...any) tfjsonpath.Path {
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

// OnPlan is a plan check that calls a function between the plan and its apply.
type OnPlan func()

// CheckPlan calls the function.
func (f OnPlan) CheckPlan(context.Context, plancheck.CheckPlanRequest, *plancheck.CheckPlanResponse) {
	f()
}

// Imported is an object of each kind, how it is declared and the ids by which it can
// be imported.
type Imported struct {
	Address string
	HCL     string
	Ids     []string
	// Arrange makes the object as others would, outside Terraform.
	Arrange func(*Rig)
}
