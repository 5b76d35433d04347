//go:build unix

package fleet_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// sized is how large a fleet is: clusters of so many nodes, of one for hosts without a cluster, and
// VMs that run on each host, with a GPU for so many of them.
type sized struct{ hosts, nodes, vms, share int }

// large is such a fleet, and a run that plans one partition config for all of it, as resources do
// before the assignments that refer to it.
func large(tb testing.TB, size sized) (*fleet.Fleet, []string) {
	tb.Helper()
	endpoints, names := map[string]fleet.Endpoint{}, []string{}
	config := &gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Name: "vdi", Count: 16, GPUs: map[string][]string{}}
	for i := range size.hosts {
		name := fmt.Sprintf("hv%04d", i)
		c := connection(name)
		one := c.host.GPUs[0]
		one.Partitionable = &gpu.Partitionable{
			ValidCounts: []int{4, 8, 16}, Count: 16, VRAM: gpu.Capacity{Min: uint64(gpu.FromMiB(948))}, SupportsIncomingLiveMigration: new(true),
		}
		one.Status = gpu.Partitioned
		c.host.GPUs = nil
		for n := range 1 + size.vms/size.share {
			one.ID = fmt.Sprintf("g%d", n)
			c.host.GPUs = append(c.host.GPUs, one)
			config.GPUs[name] = append(config.GPUs[name], one.ID)
		}
		if size.nodes > 1 {
			c.host.Cluster = &gpu.Cluster{Name: fmt.Sprintf("clu%d", i/size.nodes)}
			for n := range size.nodes {
				c.host.Cluster.Nodes = append(c.host.Cluster.Nodes, gpu.Node{Name: fmt.Sprintf("hv%04d", i/size.nodes*size.nodes+n), State: gpu.NodeUp})
			}
		}
		for n := range size.vms {
			c.host.VMs = append(c.host.VMs, gpu.VM{
				ID: fmt.Sprintf("vm-%d-%d", i, n), Name: fmt.Sprintf("desk-%d-%d", i, n), State: gpu.VMRunning,
				Generation: 2, Clustered: size.nodes > 1,
			})
		}
		endpoints[name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return c, nil }}
		names = append(names, name)
	}
	f := fleet.New(fleet.Options{Owner: "vdi", Hosts: endpoints})
	f.Record(f.Ledger.Instance(""), f.Snapshot(tb.Context(), f.HostNames()),
		change.Change{Subject: "gpu_partition_config vdi", Want: gpu.Want{Config: config}})
	return f, names
}

// planDesk plans an assignment as its resource does.
func planDesk(tb testing.TB, f *fleet.Fleet, hint []string, host, n int) {
	a := gpu.Assignment{
		Kind: gpu.AssignPartition, VM: fmt.Sprintf("desk-%d-%d", host, n), Partition: &gpu.PartitionWant{Config: "vdi"},
		Power: gpu.Power{AllowShutdown: true},
	}
	search := fleet.VMSearch{VM: a.VM, Hint: hint}
	view := f.Snapshot(tb.Context(), nil, fleet.ForVM(search))
	at, err := search.In(view)
	if err != nil {
		tb.Fatal(err)
	}
	around := f.Snapshot(tb.Context(), f.Peers(view, []string{at.Host}))
	a.VMID, a.VMName, a.Host = at.VM.ID, at.VM.Name, at.Host
	p := change.Change{Subject: "gpu_vm_assignment for VM " + a.VM, Want: gpu.Want{Assignment: &a}}
	findings, does := f.Record(f.Ledger.Instance(""), around, p)
	for _, x := range findings {
		if x.Level == rules.Error {
			tb.Fatalf("%s: %s", x.Rule, x.Found)
		}
	}
	if len(does) != 1 || len(does[0].Stops) != 1 {
		tb.Fatalf("nothing is said of %s, which is shut down", a.VM)
	}
}

// planAll plans an assignment for each VM, and tells what that took.
func planAll(tb testing.TB, size sized) (allocations uint64, cpu float64) {
	tb.Helper()
	f, names := large(tb, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := cpuSeconds()
	for host := range size.hosts {
		for n := range size.vms {
			planDesk(tb, f, names, host, n)
		}
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, cpuSeconds() - begun
}

// cpuSeconds is what this process has used.
func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(used.Utime) + seconds(used.Stime)
}

// BenchmarkPlan plans 10,000 assignments on 1,000 hosts: without a cluster, in clusters of 16, and on
// a tenth of them with ten times as many VMs each.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []sized{{1000, 1, 10, 16}, {1000, 16, 10, 16}, {100, 1, 100, 16}, {100, 4, 100, 8}} {
		b.Run(fmt.Sprintf("%d hosts, %d in a cluster, %d VMs each", size.hosts, size.nodes, size.vms), func(b *testing.B) {
			for b.Loop() {
				_, cpu := planAll(b, size)
				b.ReportMetric(cpu, "cpu-s/plan")
			}
		})
	}
}

// mostForAPlan is a tenth more than what was measured: 209.
const mostForAPlan = 230

// What a plan costs grows with what it plans and not with its square, whichever way the fleet is
// larger. Allocations are counted: they are the same on a busy machine. What an assignment does is
// worked out once, and so is what its config does to a host: twice would be a third more.
func TestPlansCostInProportion(t *testing.T) {
	for _, c := range []struct {
		what string
		size func(n int) sized // n is 1, 2 and 4
		most float64           // the exponent
	}{
		{"hosts", func(n int) sized { return sized{25 * n, 1, 10, 16} }, 1.05},
		{"hosts, in clusters of 2", func(n int) sized { return sized{24 * n, 2, 10, 8} }, 1.05},
		{"hosts, in clusters of 16", func(n int) sized { return sized{16 * n, 16, 10, 8} }, 1.05},
		{"hosts with 100 VMs", func(n int) sized { return sized{2 * n, 1, 100, 16} }, 1.05},
		{"hosts with 100 VMs, in clusters of 4", func(n int) sized { return sized{4 * n, 4, 100, 8} }, 1.05},
		{"VMs on each host", func(n int) sized { return sized{4, 1, 25 * n, 16} }, 1.1},
		{"VMs on each host, in clusters of 4", func(n int) sized { return sized{4, 4, 25 * n, 8} }, 1.2},
		{"VMs on each host, in clusters of 4 without room for a failover", func(n int) sized { return sized{4, 4, 25 * n, 16} }, 1.3},
		{"nodes of a cluster", func(n int) sized { return sized{4 * n, 4 * n, 10, 8} }, 1.4},
	} {
		var counts []uint64
		for _, n := range []int{1, 2, 4} {
			count, _ := planAll(t, c.size(n))
			counts = append(counts, count)
		}
		exponent := math.Log2(float64(counts[2])/float64(counts[0])) / 2
		t.Logf("allocations with 1, 2 and 4 times as many %s: %d, the power of %.2f", c.what, counts, exponent)
		if exponent > c.most {
			t.Errorf("with the number of %s allocations grow to the power of %.2f, more than %.2f", c.what, exponent, c.most)
		}
		if each := counts[2] / 1000; c.what == "hosts" && each > mostForAPlan {
			t.Errorf("the plan of one assignment makes %d allocations, more than %d", each, mostForAPlan)
		}
	}
}

// goOn plans an assignment for each VM of so many hosts as it is, in no order of hosts, and tells
// what that took. Each VM has a claim.
func goOn(tb testing.TB, hosts, gpus, vms int) (bytes uint64, cpu float64) {
	tb.Helper()
	endpoints := map[string]fleet.Endpoint{}
	var plans []change.Change
	for i := range hosts {
		c := connection(fmt.Sprintf("hv%04d", i))
		c.host.GPUs[0].Status = gpu.Partitioned
		c.host.GPUs[0].Partitionable = &gpu.Partitionable{
			ValidCounts: []int{4, 8, 16}, Count: 16, VRAM: gpu.Capacity{Min: uint64(gpu.FromMiB(948))},
		}
		for n := range gpus - 1 {
			one := c.host.GPUs[0]
			one.ID = fmt.Sprintf("g%d", n)
			c.host.GPUs = append(c.host.GPUs, one)
		}
		endpoints[c.host.Name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return c, nil }}
		for n := range vms {
			id := fmt.Sprintf("vm-%d-%d", i, n)
			w := gpu.Want{
				Assignment: &gpu.Assignment{
					Kind: gpu.AssignPartition, VM: id, VMName: id, VMID: id, Host: c.host.Name, Partition: &gpu.PartitionWant{},
				},
			}
			c.host.VMs = append(c.host.VMs, gpu.VM{
				ID: id, Name: id, State: gpu.VMOff, Generation: 2, PartitionAdapters: []gpu.PartitionAdapter{{ID: "a"}},
			})
			c.host.Claims = append(c.host.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: id, Token: id, Owner: "vdi", Want: w})
			plans = append(plans, change.Change{Subject: "gpu_vm_assignment for VM " + id, Token: id, Want: w, Prior: w, Unchanged: true})
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(plans), func(a, b int) { plans[a], plans[b] = plans[b], plans[a] })
	f := fleet.New(fleet.Options{Owner: "vdi", Hosts: endpoints, Patience: time.Microsecond})
	f.Snapshot(tb.Context(), f.HostNames())
	for _, p := range plans {
		f.Ledger.MarkSeen(p.Token)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := cpuSeconds()
	for _, p := range plans {
		at, err := fleet.FindVM(f.Snapshot(tb.Context(), nil, fleet.Cached), p.Want.Assignment.VMID)
		if err != nil || at.Host != p.Want.Assignment.Host {
			tb.Fatalf("%s is on %q: %v", p.Subject, at.Host, err)
		}
		findings, _ := f.Record(f.Ledger.Instance(""), f.Snapshot(tb.Context(), nil, fleet.Cached), p)
		if more := f.CrossRunFindings(tb.Context(), f.Snapshot(tb.Context(), nil, fleet.Cached), p); len(findings)+len(more) > 0 {
			tb.Fatalf("%s: %+v %+v", p.Subject, findings, more)
		}
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, cpuSeconds() - begun
}

// What goes on as it is is found where it is, and not by going through all that the run has seen.
func TestUnchangedPlansCostInProportion(t *testing.T) {
	for _, c := range []struct{ hosts, gpus, vms int }{{10, 1, 10}, {5, 16, 100}} {
		small, _ := goOn(t, c.hosts, c.gpus, c.vms)
		large, _ := goOn(t, 8*c.hosts, c.gpus, c.vms)
		exponent := math.Log2(float64(large)/float64(small)) / 3
		plans := c.hosts * c.vms
		t.Logf("memory that %d and %d plans use, on hosts with %d GPUs and %d claims: %d and %d KiB, the power of %.2f",
			plans, 8*plans, c.gpus, c.vms, small>>10, large>>10, exponent)
		if exponent > 1.05 {
			t.Errorf("what plans use grows to the power of %.2f", exponent)
		}
	}
}

// BenchmarkUnchanged plans 10,000 assignments on 1,000 hosts as they are, and 100,000 on hosts with 16 GPUs.
// It prints with which power of the hosts the CPU grows.
func BenchmarkUnchanged(b *testing.B) {
	for _, c := range []struct{ gpus, vms int }{{1, 10}, {16, 100}} {
		first := 0.0
		for _, hosts := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%d hosts with %d GPUs and %d claims", hosts, c.gpus, c.vms), func(b *testing.B) {
				cpu := 0.0
				for b.Loop() {
					_, took := goOn(b, hosts, c.gpus, c.vms)
					cpu += took
				}
				cpu /= float64(b.N)
				b.ReportMetric(cpu, "cpu-s/plan")
				if first > 0 {
					b.ReportMetric(math.Log10(cpu/first), "exponent")
				}
				first = cpu
			})
		}
	}
}

// destroyAll plans the destroy of a config that puts its GPUs back on so many hosts, and then those
// of the ten assignments on each that hold its partitions, and tells what that took.
func destroyAll(tb testing.TB, hosts int) (allocations uint64) {
	tb.Helper()
	endpoints := map[string]fleet.Endpoint{}
	config := &gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Name: "vdi", Count: 16, Restore: true, GPUs: map[string][]string{}}
	plans := []change.Change{{Subject: "gpu_partition_config vdi", Token: "config", Prior: gpu.Want{Config: config}}}
	for i := range hosts {
		name := fmt.Sprintf("hv%04d", i)
		config.GPUs[name] = []string{"g"}
		c := connection(name)
		g := &c.host.GPUs[0]
		g.Status, g.Partitionable = gpu.Partitioned, &gpu.Partitionable{
			ValidCounts: []int{4, 8, 16}, Count: 16, VRAM: gpu.Capacity{Min: uint64(gpu.FromMiB(948))},
		}
		c.host.Claims = []gpu.Claim{
			{
				Kind: gpu.ClaimConfig, ID: "vdi", Token: "config", Owner: "vdi", GPUs: []string{"g"}, Want: plans[0].Prior,
				OriginalLayouts: gpu.Layouts{"g": {Partitions: 4}},
			},
		}
		for n := range 10 {
			id := fmt.Sprintf("vm-%d-%d", i, n)
			a := &gpu.Assignment{
				Kind: gpu.AssignPartition, VM: id, VMName: id, VMID: id, Host: name, Partition: &gpu.PartitionWant{},
				Power: gpu.Power{AllowShutdown: true},
			}
			c.host.VMs = append(c.host.VMs, gpu.VM{
				ID: id, Name: id, State: gpu.VMRunning, Generation: 2, PartitionAdapters: []gpu.PartitionAdapter{{ID: "a"}},
			})
			c.host.Claims = append(c.host.Claims, gpu.Claim{
				Kind: gpu.ClaimAssignment, ID: id, Token: id, Owner: "vdi", Want: gpu.Want{Assignment: a},
			})
			g.Partitionable.Partitions = append(g.Partitionable.Partitions, gpu.Partition{VMID: id})
			plans = append(plans, change.Change{Subject: "gpu_vm_assignment for VM " + id, Token: id, Prior: gpu.Want{Assignment: a}})
		}
		endpoints[name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return c, nil }}
	}
	f := fleet.New(fleet.Options{Owner: "vdi", Hosts: endpoints, Patience: time.Microsecond})
	all := f.Snapshot(tb.Context(), f.HostNames())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, p := range plans {
		if d := f.PlanDestroy(tb.Context(), all, p, true); rules.HasErrors(d.Findings) {
			tb.Fatalf("%s: %+v", p.Subject, d.Findings)
		}
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// The destroy of a config waits for the plans of those that hold its GPUs, and is not worked out
// again for each of them.
func TestDestroysCostInProportion(t *testing.T) {
	small, large := destroyAll(t, 10), destroyAll(t, 80)
	if factor := float64(large) / float64(small); factor > 8*1.25 {
		t.Errorf("eight times as many assignments and hosts cost %.1f times as many allocations (%d, %d)", factor, small, large)
	}
}

// drainAll plans a config that drains the nodes of clusters of four, and ten assignments for each
// that do not name it, and tells what that took.
func drainAll(tb testing.TB, hosts int, configLast bool) (allocations uint64) {
	tb.Helper()
	endpoints := map[string]fleet.Endpoint{}
	config := &gpu.PartitionConfig{
		ID: "vdi", Kind: gpu.KindGPUP, Name: "vdi", Count: 16, Drain: true, MaxDisruption: gpu.DisruptVMRestart, GPUs: map[string][]string{},
	}
	plans := []change.Change{{Subject: "gpu_partition_config vdi", Token: "config", Want: gpu.Want{Config: config}}}
	for i := range hosts {
		c, cluster := connection(fmt.Sprintf("hv%04d", i)), &gpu.Cluster{Name: fmt.Sprintf("clu%d", i/4)}
		for n := range 4 {
			cluster.Nodes = append(cluster.Nodes, gpu.Node{Name: fmt.Sprintf("hv%04d", i/4*4+n), State: gpu.NodeUp})
		}
		c.host.Cluster, c.host.GPUs[0].Status = cluster, gpu.Partitioned
		c.host.GPUs[0].Partitionable = &gpu.Partitionable{
			ValidCounts: []int{4, 8, 16}, Count: 8, VRAM: gpu.Capacity{Min: uint64(gpu.FromMiB(948))}, SupportsIncomingLiveMigration: new(true),
		}
		config.GPUs[c.host.Name] = []string{"g"}
		for n := range 10 {
			id := fmt.Sprintf("vm-%d-%d", i, n)
			c.host.VMs = append(c.host.VMs, gpu.VM{ID: id, Name: id, State: gpu.VMOff, Generation: 2})
			plans = append(plans, change.Change{Subject: "gpu_vm_assignment for VM " + id, Token: id, Want: gpu.Want{Assignment: &gpu.Assignment{
				Kind: gpu.AssignPartition, VM: id, VMName: id, VMID: id, Host: c.host.Name, Partition: &gpu.PartitionWant{},
				Power: gpu.Power{AllowShutdown: true},
			}}})
		}
		endpoints[c.host.Name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return c, nil }}
	}
	if configLast {
		plans = append(plans[1:], plans[0])
	}
	f := fleet.New(fleet.Options{Owner: "vdi", Hosts: endpoints})
	all := f.Snapshot(tb.Context(), f.HostNames())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, p := range plans {
		if findings, _ := f.Record(f.Ledger.Instance(""), all, p); rules.HasErrors(findings) {
			tb.Fatalf("%s: %+v", p.Subject, findings)
		}
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// A config that drains nodes is compared with the other plans of a cluster one after the other, and
// not with all of them for each.
func TestDrainsCostInProportion(t *testing.T) {
	for _, configLast := range []bool{false, true} {
		small, large := drainAll(t, 8, configLast), drainAll(t, 64, configLast)
		if factor := float64(large) / float64(small); factor > 8*1.25 {
			t.Errorf("eight times as many assignments and clusters cost %.1f times as many allocations (%d, %d), config last: %v",
				factor, small, large, configLast)
		}
	}
}

// BenchmarkDrain plans a config that drains 200 nodes, and 2,000 assignments that do not name it.
func BenchmarkDrain(b *testing.B) {
	for b.Loop() {
		begun := cpuSeconds()
		drainAll(b, 200, false)
		b.ReportMetric(cpuSeconds()-begun, "cpu-s/plan")
	}
}
