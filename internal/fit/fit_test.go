package fit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// hostsOf are equal hosts h01, h02 and so on, with GPUs g0, g1 and so on.
func hostsOf(cluster string, n, gpus int, model string) []fit.HostSpec {
	var out []fit.HostSpec
	for i := range n {
		h := fit.HostSpec{Name: fmt.Sprintf("h%02d", i+1), Cluster: cluster}
		for g := range gpus {
			h.GPUs = append(h.GPUs, fit.GPUSpec{ID: fmt.Sprintf("g%d", g), Model: model})
		}
		out = append(out, h)
	}
	return out
}

func solve(t *testing.T, specs []fit.HostSpec, o fit.Options, demands ...fit.Demand) fit.Result {
	t.Helper()
	hosts, err := fit.Hosts(specs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := fit.Solve(hosts, demands, o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// What a person reads of a fleet with what is missing, or with more than is needed.
func TestReasons(t *testing.T) {
	t.Parallel()
	h100 := "H100 80GB HBM3"
	for _, x := range []struct {
		name    string
		hosts   []fit.HostSpec
		options fit.Options
		demands []fit.Demand
		fits    bool
		gpus    int
		reason  string
	}{
		{
			name: "desktops with a node to spare", hosts: hostsOf("c", 3, 2, "A2"), options: fit.Options{SpareHosts: 1},
			demands: []fit.Demand{{Name: "a", Count: 8, Kind: fit.Partitions, VRAMMiB: 3500}}, fits: true, gpus: 3,
		},
		{
			name: "instances", hosts: hostsOf("", 1, 2, h100),
			demands: []fit.Demand{{Name: "a", Count: 8, Kind: fit.Instances, Profile: "3g.40gb"}}, gpus: 2,
			reason: "Missing: 4 more 3g.40gb, or 2 more NVIDIA H100 80GB HBM3. What binds: memory slices of GPUs with 3g.40gb.",
		},
		{
			name: "shares", hosts: hostsOf("", 1, 1, h100),
			demands: []fit.Demand{{Name: "a", Count: 7, Kind: fit.Shares, MemoryMiB: 4000, Threads: 20}}, gpus: 1,
			reason: "Missing: 2 more shares of 4000 MiB and 20 % of the threads, or one more NVIDIA H100 80GB HBM3. What binds: threads of GPUs " +
				"for shares.",
		},
		{
			name: "slices that do not lie together", hosts: hostsOf("", 1, 1, h100),
			demands: []fit.Demand{
				{Name: "a", Count: 1, Kind: fit.Instances, Profile: "4g.40gb"}, {Name: "b", Count: 3, Kind: fit.Instances, Profile: "2g.20gb"},
			}, gpus: 1,
			reason: "Missing: 2 more 2g.20gb, or one more NVIDIA H100 80GB HBM3. What binds: where 2g.20gb may begin on a GPU beside the others: " +
				"2 memory slices are free, but not together.",
		},
		{
			name: "one partition count in a cluster", hosts: hostsOf("c", 1, 2, "A2"),
			demands: []fit.Demand{
				{Name: "a", Count: 1, Kind: fit.Partitions, VRAMMiB: 14000}, {Name: "b", Count: 9, Kind: fit.Partitions, VRAMMiB: 800},
			}, gpus: 2,
			reason: "Missing: 8 more partitions of 800 MiB. What binds: the number of partitions of 800 MiB or more that GPUs have at most, " +
				"where all of a cluster have one count.",
		},
		{
			name: "whole GPUs", hosts: hostsOf("", 2, 3, h100),
			demands: []fit.Demand{{Name: "a", Count: 3, Kind: fit.Whole, GPUs: 2}}, gpus: 4,
			reason: "Missing: 1 more set of 2 whole GPUs on one host, or 2 more NVIDIA H100 80GB HBM3. What binds: hosts with 2 GPUs free.",
		},
	} {
		got := solve(t, x.hosts, x.options, x.demands...)
		if got.Fits == nil || *got.Fits != x.fits || got.GPUs != x.gpus || got.Reason != x.reason {
			t.Errorf("%s: fits %v on %d GPUs, missing %v:\n%s\nwanted:\n%s", x.name, got.Fits, got.GPUs, got.Missing, got.Reason, x.reason)
		}
	}
}

// Nothing that is asked wrongly takes longer than a moment, and each error says what to write.
func TestWrongDemands(t *testing.T) {
	t.Parallel()
	hosts, err := fit.Hosts(hostsOf("", 2, 2, "A100-SXM4-40GB"))
	if err != nil {
		t.Fatal(err)
	}
	for want, d := range map[string]fit.Demand{
		`demand "d": count is 0; it must be from 1 to 100000`:                              {Count: 0, Kind: fit.Whole},
		`demand "d": count is -3; it must be from 1 to 100000`:                             {Count: -3, Kind: fit.Whole},
		`demand "d": count is 1000000; it must be from 1 to 100000`:                        {Count: 1_000_000, Kind: fit.Whole},
		`demand "d": kind is "gpup". Did you mean "gpu_p"?`:                                {Count: 1, Kind: "gpup"},
		`demand "d": no GPU of the hosts has the MIG profile "3g.40gb". Did you mean`:      {Count: 1, Kind: fit.Instances, Profile: "3g.40gb"},
		`demand "d": gpus is 3, and no host has more than 2 GPUs`:                          {Count: 1, Kind: fit.Whole, GPUs: 3},
		`demand "d": memory_mib is 0; it must be from 1 to`:                                {Count: 1, Kind: fit.Shares},
		`demand "d": memory_mib is 50000, and no GPU of the hosts has more than 40960 MiB`: {Count: 1, Kind: fit.Shares, MemoryMiB: 50_000},
		`demand "d": threads is 101; it must be more than 0`:                               {Count: 1, Kind: "share", MemoryMiB: 1, Threads: 101},
		`demand "d": threads is 3.33; a share's percentage`: {
			Count: 1, Kind: "share", MemoryMiB: 1, Threads: 3.33,
		},
		`demand "d": vram_mib is -1; it must be from 1 to`:                       {Count: 1, Kind: fit.Partitions, VRAMMiB: -1},
		`demand "d": none of the hosts has a GPU with partitions of GPU-P`:       {Count: 1, Kind: fit.Partitions},
		`demand "d": profile is missing; write the MIG profile of its instances`: {Count: 1, Kind: fit.Instances},
		`demand "d": profile is not for kind "gpu", which has gpus`:              {Count: 1, Kind: fit.Whole, Profile: "1g.5gb"},
		`demand "d": gpus is -1; it must be 1 or more`:                           {Count: 1, Kind: fit.Whole, GPUs: -1},
	} {
		d.Name = "d"
		began := time.Now()
		_, err := fit.Solve(hosts, []fit.Demand{d}, fit.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v\nwanted: %s", d, err, want)
		}
		if time.Since(began) > time.Second {
			t.Errorf("%+v took %s", d, time.Since(began))
		}
	}
	_, err = fit.Hosts([]fit.HostSpec{{Name: "a", GPUs: []fit.GPUSpec{{ID: "g", Model: "H10"}}}})
	if err == nil || !strings.Contains(err.Error(), `host "a": the catalog has no GPU model "H10". Did you mean "A10"`) {
		t.Error(err)
	}
	some := fit.Demand{Name: "d", Count: 1, Kind: fit.Whole}
	for want, o := range map[string]fit.Options{
		"spare_hosts is -1": {SpareHosts: -1},
		"spare_hosts is 2, and 2 hosts would be none left": {SpareHosts: 2},
		`keep: host "h01" has no GPU "g7". Did you mean`:   {Keep: fit.Layouts{"h01": {"g7": {Kind: gpu.KindMPS}}}},
		`keep: GPU "g1" of host "h01": 9 instances of 3g.20gb, but the GPU takes 2 at most`: {
			Keep: fit.Layouts{"h01": {"g1": {Kind: gpu.KindMIG, MIG: &fit.MIG{Profiles: map[string]int{"3g.20gb": 9}}}}},
		},
		`keep: GPU "g1" of host "h01": partition_count is 5, which the GPU does not take`: {
			Keep: fit.Layouts{"h01": {"g1": {Kind: gpu.KindGPUP, GPUP: &fit.GPUP{PartitionCount: 5}}}},
		},
		`keep: there is no host "h1"`: {Keep: fit.Layouts{"h1": {"g7": {Kind: gpu.KindMPS}}}},
	} {
		if _, err := fit.Solve(hosts, []fit.Demand{some}, o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// What a fleet has is kept where it will do, and the same question has the same answer.
func TestKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	specs := hostsOf("", 2, 2, "A100-SXM4-40GB")
	demand := fit.Demand{Name: "a", Count: 2, Kind: fit.Instances, Profile: "3g.20gb"}
	keep := fit.Layouts{"h02": {"g1": {Kind: gpu.KindMIG, MIG: &fit.MIG{Profiles: map[string]int{"3g.20gb": 2}}}}}
	got := solve(t, specs, fit.Options{Keep: keep}, demand)
	if got.Changes != 0 || len(got.Layouts["h02"]) != 1 || got.Placements["a"][1].Unit != "3g.20gb@4" {
		t.Errorf("the layouts are %v with %d changes, the places %v", got.Layouts, got.Changes, got.Placements)
	}
	again := solve(t, specs, fit.Options{Keep: got.Layouts}, demand)
	if again.Changes != 0 || again.Layouts["h02"]["g1"].String() != got.Layouts["h02"]["g1"].String() {
		t.Errorf("then the layouts are %v with %d changes", again.Layouts, again.Changes)
	}
	// Of a profile more there is room for what the layout leaves.
	more := solve(t, specs, fit.Options{}, fit.Demand{Name: "a", Count: 1, Kind: fit.Instances, Profile: "4g.20gb"})
	if more.Remaining["3g.20gb"] != 1 || more.Remaining["1g.5gb"] != 3 || more.Remaining["gpu"] != 3 || more.Remaining["7g.40gb"] != 0 {
		t.Errorf("what is left is %v", more.Remaining)
	}
}
