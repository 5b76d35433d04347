package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Get, Text, Put and Invoke are calls as a query is.
func (c *counter) Get(ctx context.Context, namespace, path string, properties ...string) (hyperv.Row, error) {
	if c.last != path || !strings.Contains(path, "Msvm_ConcreteJob") { // how often a job is looked at hangs on the clock
		c.other()
	}
	c.last = path
	return c.WMI.Get(ctx, namespace, path, properties...)
}

func (c *counter) Text(ctx context.Context, namespace, path string) (string, error) {
	c.other()
	return c.WMI.Text(ctx, namespace, path)
}

func (c *counter) Put(ctx context.Context, namespace, path string, set map[string]any) error {
	c.other()
	return c.WMI.Put(ctx, namespace, path, set)
}

func (c *counter) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (hyperv.Result, error) {
	c.other()
	return c.WMI.Invoke(ctx, namespace, path, method, in)
}

func (c *counter) other() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others++
}

// alone is a host with so many GPUs and six VMs that are off, in no cluster, and what its agent asks of WMI.
func alone(t *testing.T, gpus int) (*agent.Client, *counter) {
	t.Helper()
	h := gpu.Host{
		Name: host, Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
	}
	for i := range gpus {
		h.GPUs = append(h.GPUs, numbered(i))
	}
	for n := range 6 {
		h.VMs = append(h.VMs, gpu.VM{
			ID: vmNo(n), Name: fmt.Sprintf("vm-%03d", n), State: gpu.VMOff, Generation: 2, Checkpoints: gpu.CheckpointsDisabled,
		})
	}
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{h}})
	check(t, err)
	store, err := fleet.Host(host)
	check(t, err)
	machine, err := fakewmi.New(fleet, host)
	check(t, err)
	t.Cleanup(machine.Wait)
	c := &counter{WMI: machine.WMI(), whole: map[string]int{}}
	conn, err := connect.InProcess(agent.NewServer(hyperv.New(c), store))
	check(t, err)
	client := agent.NewClient(conn, host)
	t.Cleanup(func() { _ = client.Close() })
	return client, c
}

// What an assignment asks of WMI does not hang on the GPUs of the host, nor on whether the run has given the lease back since the
// one before.
func TestCallsOfAnAssignment(t *testing.T) {
	t.Parallel()
	const most = 20 // it was 34 with one GPU, 47 with 8 and 63 with 16, and 53, 74 and 98 after the lease was given back
	for _, gpus := range []int{1, 8, 16} {
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			t.Parallel()
			c, calls := alone(t, gpus)
			for n, what := range []string{"first of all", "under the same lease", "after a release"} {
				fence, err := c.AcquireLease(t.Context(), lease("run-1"))
				check(t, err)
				ch := assign(what, what, nil, partitionOf(vmNo(n), nil))
				ch.Keep = true
				calls.since()
				p, err := c.Prepare(t.Context(), ch)
				check(t, err)
				_, err = c.Apply(t.Context(), fence, ch, p.Basis, nil)
				check(t, err)
				calls.mu.Lock()
				others := calls.others
				calls.others = 0
				calls.mu.Unlock()
				queries, _, _ := calls.since()
				t.Logf("%d GPUs, %s: %d queries and %d other calls", gpus, what, queries, others)
				if n > 0 && queries+others > most {
					t.Errorf("an assignment %s takes %d calls, over %d", what, queries+others, most)
				}
				if n > 0 {
					check(t, c.ReleaseLease(t.Context(), fence))
				}
			}
		})
	}
}

// A change of a claim alone has nothing on the host to read back.
func TestAChangeOfAClaimReadsNothingBack(t *testing.T) {
	t.Parallel()
	c, calls := alone(t, 2)
	fence, err := c.AcquireLease(t.Context(), lease("run-1"))
	check(t, err)
	was := partitionOf(vmNo(1), nil)
	now := partitionOf(vmNo(1), func(a *gpu.Assignment) { a.Power.ForceShutdown = !a.Power.ForceShutdown })
	for n, ch := range []agent.Change{assign("made", "a", nil, was), assign("claimed", "a", was, now)} {
		ch.Keep = true
		p, err := c.Prepare(t.Context(), ch)
		check(t, err)
		calls.since()
		out, err := c.Apply(t.Context(), fence, ch, p.Basis, nil)
		check(t, err)
		if queries, _, _ := calls.since(); (queries == 0) != (n == 1) {
			t.Errorf("%d queries for %v", queries, p.Steps)
		}
		claim, ok := out.Host.Claim(gpu.ClaimAssignment, vmNo(1))
		if !ok || claim.Want.Assignment.Power.ForceShutdown != ch.Want.Assignment.Power.ForceShutdown {
			t.Errorf("the host has the claim %+v", claim)
		}
	}
}
