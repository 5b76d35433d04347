package agent_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// crowded is a host with 16 GPUs as an agent sends it, of which so many VMs have a partition and a claim.
func crowded(vms int) gpu.Host {
	h := gpu.Host{Name: "hv01", Platform: gpu.HyperV}
	for i := range 16 {
		h.GPUs = append(h.GPUs, gpu.GPU{
			ID: fmt.Sprintf("PCIROOT(%d)#PCI(0000)", i), Model: "NVIDIA A2", Vendor: "NVIDIA", Status: gpu.Partitioned,
			Partitionable: &gpu.Partitionable{ValidCounts: []int{1, 2, 4, 8, 16}, Count: 16, VRAM: gpu.Capacity{Min: uint64(gpu.FromMiB(948))}},
		})
	}
	for i := range vms {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		g := &h.GPUs[i%len(h.GPUs)]
		g.Partitionable.Partitions = append(g.Partitionable.Partitions, gpu.Partition{ID: i / len(h.GPUs), VMID: id})
		h.VMs = append(h.VMs, gpu.VM{
			ID: id, Name: fmt.Sprintf("avd-%05d", i), State: gpu.VMRunning, Generation: 2, PartitionAdapters: []gpu.PartitionAdapter{{ID: "a"}},
		})
		h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: id, Token: id, Owner: "vdi", Want: gpu.Want{
			Assignment: &gpu.Assignment{Kind: gpu.AssignPartition, VM: id, VMID: id, Host: "hv01", Partition: &gpu.PartitionWant{Config: "vdi"}},
		}})
	}
	return h
}

// read is a snapshot as the provider gets it.
func read(tb testing.TB, doc []byte) *gpu.Host {
	tb.Helper()
	var h gpu.Host
	if err := document.ReadKnown(doc, &h, func(path string) { tb.Error(path) }); err != nil {
		tb.Fatal(err)
	}
	return &h
}

// TestSnapshotsCostInProportion: what it takes to read a host grows with its VMs and claims.
func TestSnapshotsCostInProportion(t *testing.T) {
	var counts []float64
	for _, vms := range []int{100, 200, 400} {
		doc := document.Encode(crowded(vms))
		counts = append(counts, testing.AllocsPerRun(3, func() { read(t, doc) }))
	}
	exponent := math.Log2(counts[2]/counts[0]) / 2
	t.Logf("allocations with 100, 200 and 400 VMs: %.0f, the power of %.2f", counts, exponent)
	if exponent > 1.05 {
		t.Errorf("what a snapshot takes grows to the power of %.2f of its VMs", exponent)
	}
	if each := counts[2] / 400; each > mostForAVM {
		t.Errorf("a VM with its claim takes %.0f allocations, over %d", each, mostForAVM)
	}
}

// mostForAVM is a tenth more than what was measured: 17.
const mostForAVM = 19

// BenchmarkSnapshot reads a host with 16 GPUs and 100 VMs, and prints what is kept of it.
func BenchmarkSnapshot(b *testing.B) {
	doc := document.Encode(crowded(100))
	b.ReportAllocs()
	for b.Loop() {
		read(b, doc)
	}
	const many = 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []*gpu.Host
	for range many {
		all = append(all, read(b, doc))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(all)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many/1024, "KiB-kept/host")
	b.ReportMetric(float64(len(doc))/1024, "KiB/document")
}
