package rules_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// An index that was changed host by host answers like one that was made at once.
func TestFleetPutAndDelete(t *testing.T) {
	before := host("hv01", vm("a", gpu.VMOff), vm("gone", gpu.VMOff))
	claimVM(before, "platform", "a", gpu.Assignment{})
	after := host("hv01", vm("a", gpu.VMOff))
	holds(after, "a", 0)
	after.Cluster = &gpu.Cluster{Name: "clu", Nodes: []gpu.Node{{Name: "hv01", State: gpu.NodePaused}}}

	fleet := whatif.NewFleet(map[string]*gpu.Host{"hv01": before, "hv02": host("hv02", vm("b", gpu.VMOff))})
	w := rules.World{World: whatif.World{Fleet: fleet, Owner: "vdi"}}
	p := create("t", partition("a", "hv01"))
	if found := rules.Check(w, p, nil); len(of("not-our-claim", found)) != 1 {
		t.Errorf("before: got %+v", found)
	}

	fleet.Put("hv01", after)
	want := rules.Check(rules.World{World: whatif.World{Hosts: map[string]*gpu.Host{"hv01": after}, Owner: "vdi"}}, p, nil)
	if len(of("single-partition-per-vm", want)) != 1 || len(of("not-our-claim", want)) != 0 {
		t.Fatalf("after: got %+v", want)
	}
	if diff := cmp.Diff(want, rules.Check(w, p, nil)); diff != "" {
		t.Errorf("the changed index differs (-want +got):\n%s", diff)
	}

	fleet.Delete("hv01")
	if found := rules.Check(w, p, nil); len(found) != 0 {
		t.Errorf("without the host: got %+v", found)
	}
}

func TestBookReplacesAndForgets(t *testing.T) {
	w := world(host("hv01", vm("a", gpu.VMOff)))
	p := create("t", partition("a", "hv01"))
	conflicts := func() int { return len(of("single-partition-per-vm", rules.Check(w, p, nil))) }

	w.Others.Put("o", create("", partition("a", "hv01")))
	if got := conflicts(); got != 1 {
		t.Errorf("with another plan: %d conflicts, want 1", got)
	}
	w.Others.Put("o", create("", partition("b", "hv01")))
	if got := conflicts(); got != 0 {
		t.Errorf("after it changed: %d conflicts, want 0", got)
	}
	w.Others.Put("o", create("", partition("a", "hv01")))
	w.Others.Delete("o")
	w.Others.Put("t", p)
	if got := conflicts(); got != 0 {
		t.Errorf("a plan is in conflict with itself: %d", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	w := world(host("hv01", vm("a", gpu.VMOff)))
	w.Fleet = whatif.NewFleet(w.Hosts)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				p := create(fmt.Sprintf("t%d", i), partition("a", "hv01"))
				w.Others.Put(p.Token, p)
				rules.Check(w, p, nil)
				w.Fleet.Put("hv01", host("hv01", vm("a", gpu.VMOff)))
				if j%2 == 1 {
					w.Others.Delete(p.Token)
				}
			}
		})
	}
	wg.Wait()
	if found := of("single-partition-per-vm", rules.Check(w, create("t", partition("a", "hv01")), nil)); len(found) != 0 {
		t.Errorf("the book should be empty, got %+v", found)
	}
}

// bigFleet is nodes in clusters of ten, with 16 GPUs and some VMs each.
func bigFleet(nodes, vms int) (map[string]*gpu.Host, []change.Change) {
	hosts := map[string]*gpu.Host{}
	var plans []change.Change
	all := map[string][]string{}
	for n := range nodes {
		name := fmt.Sprintf("hv%04d", n)
		h := &gpu.Host{Name: name, Platform: gpu.HyperV, OS: gpu.OS{Build: 26100}, Cluster: &gpu.Cluster{Name: fmt.Sprintf("clu%03d", n/10)}}
		for i := range 10 {
			h.Cluster.Nodes = append(h.Cluster.Nodes, gpu.Node{Name: fmt.Sprintf("hv%04d", n/10*10+i), State: gpu.NodeUp})
		}
		for i := range vms {
			v := vm(fmt.Sprintf("%s-%d", name, i), gpu.VMRunning)
			v.Clustered = true
			h.VMs = append(h.VMs, v)
			p := partition(v.Name, name)
			p.Assignment.Partition.Config = "vdi"
			plans = append(plans, create("t-"+v.Name, p))
		}
		for i := range 16 {
			h.GPUs = append(h.GPUs, a2(fmt.Sprintf("PCIROOT(%d)", i)))
			all[name] = append(all[name], fmt.Sprintf("PCIROOT(%d)", i))
		}
		hosts[name] = h
	}
	cfg := gpu.Want{Config: &gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 8, GPUs: all}}
	return hosts, append([]change.Change{create("t-config", cfg)}, plans...)
}

// BenchmarkPlanOfWholeFleet plans one config and the assignments of all VMs. What it costs grows with
// hosts as their number to the power that it prints, 1 for in proportion.
func BenchmarkPlanOfWholeFleet(b *testing.B) {
	first := 0.0
	for _, nodes := range []int{100, 1000} {
		b.Run(fmt.Sprintf("%d VMs on %d hosts", 10*nodes, nodes), func(b *testing.B) {
			planWholeFleet(b, nodes, 10)
			took := b.Elapsed().Seconds() / float64(b.N)
			if first == 0 {
				first = took
			} else {
				b.ReportMetric(math.Log10(took/first), "exponent")
			}
		})
	}
}

func planWholeFleet(b *testing.B, nodes, vms int) {
	b.Helper()
	hosts, plans := bigFleet(nodes, vms)
	for b.Loop() {
		w := rules.World{World: whatif.World{Fleet: whatif.NewFleet(hosts), Others: whatif.NewBook(), Owner: "vdi"}, Complete: true}
		failed := 0
		for _, p := range plans {
			w.Others.Put(p.Token, p)
			for _, f := range rules.Check(w, p, nil) {
				if f.Level == rules.Error {
					failed++
				}
			}
		}
		if failed > 0 {
			b.Fatalf("%d errors in a fleet without fault", failed)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(plans)), "µs/check")
}

// BenchmarkCheckInFullBook is one check when everything else is planned already.
func BenchmarkCheckInFullBook(b *testing.B) {
	hosts, plans := bigFleet(1000, 10)
	w := rules.World{World: whatif.World{Fleet: whatif.NewFleet(hosts), Others: whatif.NewBook(plans...), Owner: "vdi"}, Complete: true}
	for b.Loop() {
		rules.Check(w, plans[len(plans)/2], nil)
	}
}
