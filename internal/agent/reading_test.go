package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// counter counts what an agent asks of WMI.
type counter struct {
	hyperv.WMI

	mu            sync.Mutex
	queries, rows int
	others        int            // calls that are no query
	last          string         // what Get read last
	whole         map[string]int // queries of all of a class
}

func (c *counter) Query(ctx context.Context, namespace, wql string, properties ...string) ([]hyperv.Row, error) {
	rows, err := c.WMI.Query(ctx, namespace, wql, properties...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queries++
	c.rows += len(rows)
	if class, ok := strings.CutPrefix(wql, "SELECT * FROM "); ok && !strings.Contains(class, "Name=") &&
		!strings.Contains(class, "InstanceID LIKE") {
		class, _, _ = strings.Cut(class, " ")
		c.whole[class]++
	}
	return rows, err
}

// since are the figures since the last call.
func (c *counter) since() (queries, rows int, whole map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queries, rows, whole = c.queries, c.rows, c.whole
	c.queries, c.rows, c.others, c.whole = 0, 0, 0, map[string]int{}
	return queries, rows, whole
}

// big is an agent over WMI, on a host with 16 GPUs and some VMs in a cluster with others.
type big struct {
	*agent.Client
	*counter
	t     *testing.T
	fence int64
	clock *atomic.Int64 // since the boot
}

func vmNo(n int) string { return fmt.Sprintf("44444444-DDDD-4DDD-8DDD-%012d", n) }

// numbered is a GPU with partitions that stands beside many.
func numbered(i int) gpu.GPU {
	g := partitionable(fmt.Sprintf("PCIROOT(%X)#PCI(0000)#PCI(0000)", 16+i))
	instance := fmt.Sprintf("4&%08x&0&0000", i)
	g.InstancePath = `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\` + instance
	g.Partitionable.Name = `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#` + instance + "#{064092b3-625e-43bf-9eb5-dc845897dd59}"
	return g
}

func newBig(t *testing.T, vms, elsewhere int) (*big, []string) {
	t.Helper()
	nodes := []gpu.Node{{Name: host, State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}}
	h := gpu.Host{
		Name: host, Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		Cluster: &gpu.Cluster{Name: "cl1", Nodes: nodes},
	}
	other := h
	other.Name = "hv02"
	var ids []string
	for i := range 16 {
		g := numbered(i)
		h.GPUs, ids = append(h.GPUs, g), append(ids, g.ID)
	}
	vm := func(n int) gpu.VM {
		return gpu.VM{
			ID: vmNo(n), Name: fmt.Sprintf("vm-%03d", n), State: gpu.VMOff, Generation: 2, Clustered: true, Checkpoints: gpu.CheckpointsDisabled,
		}
	}
	for i := range vms {
		h.VMs = append(h.VMs, vm(i))
	}
	for i := range elsewhere {
		other.VMs = append(other.VMs, vm(vms+i))
	}
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{h, other}})
	check(t, err)
	store, err := fleet.Host(host)
	check(t, err)
	machine, err := fakewmi.New(fleet, host)
	check(t, err)
	t.Cleanup(machine.Wait)
	c := &counter{WMI: machine.WMI(), whole: map[string]int{}}
	b := &big{counter: c, t: t, clock: &atomic.Int64{}}
	conn, err := connect.InProcess(agent.NewServer(hyperv.New(c), store,
		agent.WithBootClock(func() time.Duration { return time.Duration(b.clock.Load()) })))
	check(t, err)
	b.Client = agent.NewClient(conn, host)
	t.Cleanup(func() { _ = b.Close() })
	b.fence, err = b.AcquireLease(t.Context(), lease("run-1"))
	check(t, err)
	c.since()
	return b, ids
}

func (b *big) apply(ch agent.Change) {
	b.t.Helper()
	p, err := b.Prepare(b.t.Context(), ch)
	check(b.t, err)
	if len(p.Steps) == 0 {
		b.t.Fatalf("%s does nothing: %+v", ch.Subject, p.Findings)
	}
	_, err = b.Client.Apply(b.t.Context(), b.fence, ch, p.Basis, nil)
	check(b.t, err)
	_, err = b.Settle(b.t.Context(), b.fence, ch.ID, false)
	check(b.t, err)
}

func (b *big) assign(n int) {
	b.t.Helper()
	name := fmt.Sprint("a", n)
	b.apply(assign(name, name, nil, partitionOf(vmNo(n), func(a *gpu.Assignment) { a.Settings.OfflineAction = new(gpu.OfflineTurnOff) })))
}

// perVM are the classes with a row for each VM of the host or of the cluster.
var perVM = []string{
	"Msvm_ComputerSystem", "Msvm_VirtualSystemSettingData", "Msvm_MemorySettingData", "Msvm_GpuPartitionSettingData",
	"Msvm_PciExpressSettingData", "MSCluster_Resource", "MSCluster_ResourceToPossibleOwner",
}

// What a run reads of a host does not grow with the VMs there times the changes: all of them
// are read once under the lease, and then those that a change is about.
func TestARunReadsAHostOnce(t *testing.T) {
	t.Parallel()
	few, many, changes := 12, 90, 30
	if testing.Short() { // the stand-in lists all VMs for each query
		few, many, changes = 4, 24, 8
	}
	one := map[int][2]int{}
	for _, vms := range []int{few, many} {
		b, ids := newBig(t, vms, 2*vms/3)
		b.assign(0) // reads all
		b.since()
		b.assign(1)
		queries, rows, whole := b.since()
		one[vms] = [2]int{queries, rows}
		for _, class := range perVM {
			if whole[class] > 0 {
				t.Errorf("an assignment reads all of %s, with %d VMs", class, vms)
			}
		}
		if vms == few {
			continue
		}
		for i := 2; i < changes; i++ {
			b.assign(i)
		}
		_, _, whole = b.since()
		for _, class := range perVM {
			if whole[class] > 0 {
				t.Errorf("%d assignments read all of %s %d times after the first", changes, class, whole[class])
			}
		}
		b.apply(layout("c1", "t1", nil, config("c1", 8, ids...)))
		queries, rows, whole = b.since()
		t.Logf("the counts of 16 GPUs: %d queries, %d rows", queries, rows)
		for _, class := range perVM {
			if whole[class] > 2 {
				t.Errorf("the counts of 16 GPUs read all of %s %d times", class, whole[class])
			}
		}
	}
	for vms, of := range one {
		if of[0] > 30 {
			t.Errorf("an assignment on a host with %d VMs takes %d queries", vms, of[0])
		}
	}
	t.Logf("an assignment: %v queries and rows with %d VMs, %v with %d", one[many], many, one[few], few)
	if one[many][1] > one[few][1]+4 { // polls
		t.Errorf("an assignment reads %d rows with %d VMs, and %d with %d", one[few][1], few, one[many][1], many)
	}
}

// What was prepared is applied on the reading that it was prepared on only while that is one of now:
// not a second later, not after a step, and not for another VM.
func TestAReadingIsOfNow(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(b *big){
		"at once":          func(*big) {},
		"a second later":   func(b *big) { b.clock.Add(int64(time.Second)) },
		"another VM since": func(b *big) { b.assign(3) },
		"its VM since": func(b *big) {
			b.apply(assign("b", "a2", nil, partitionOf(vmNo(2), func(a *gpu.Assignment) { a.Settings.OfflineAction = new(gpu.OfflineSave) })))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := newBig(t, 6, 0)
			b.assign(1)
			ch := assign("a2", "a2", nil, partitionOf(vmNo(2), func(*gpu.Assignment) {}))
			p, err := b.Prepare(t.Context(), ch)
			check(t, err)
			between(b)
			b.since()
			_, err = b.Client.Apply(t.Context(), b.fence, ch, p.Basis, nil)
			if name == "its VM since" {
				if err == nil {
					t.Error("it was applied to a VM that has changed")
				}
				return
			}
			check(t, err)
			if _, _, whole := b.since(); (whole["Msvm_PartitionableGpu"] == 1) != (name == "at once") {
				t.Errorf("the GPUs were read %d times", whole["Msvm_PartitionableGpu"])
			}
		})
	}
}
