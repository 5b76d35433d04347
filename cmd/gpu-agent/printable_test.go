package main_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestNamesCannotForgeTables: whatever VMs, pools and GPUs are called and a host says, no command prints a
// character that steers a terminal, or a row of somebody else's. In JSON and in HCL the names are what they are.
func TestNamesCannotForgeTables(t *testing.T) {
	t.Parallel()
	names := others.HostileNames()
	h := host()
	h.OS.Name, h.GPUs[0].Model, h.Stale = names[0], "NVIDIA A2"+names[4], []string{names[5]}
	h.Unknown = []gpu.Unknown{{Part: gpu.PartPolicies, Why: names[1]}}
	h.VMs, h.Claims = nil, nil
	for i, name := range names {
		vm := gpu.VM{
			ID: fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012d", i), Name: name, State: gpu.VMRunning, Generation: 2,
			PartitionAdapters: []gpu.PartitionAdapter{{ID: fmt.Sprint(i)}},
		}
		if i > 3 {
			vm.State = gpu.VMOff
		}
		h.VMs = append(h.VMs, vm)
		h.Claims = append(h.Claims,
			gpu.Claim{Kind: gpu.ClaimAssignment, ID: h.VMs[i].ID, Token: "t", Owner: name, Want: gpu.Want{Assignment: &gpu.Assignment{
				Kind: gpu.AssignPartition, VM: name, VMID: h.VMs[i].ID, VMName: name, Host: "hv01", Partition: &gpu.PartitionWant{},
				Power: gpu.Power{AllowShutdown: true},
			}}})
	}
	h.Pools = []gpu.Pool{{Name: names[0], GPUs: []string{h.GPUs[1].ID}}}
	h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimPool, ID: names[0], Owner: names[1], Token: "t", GPUs: h.Pools[0].GPUs})
	h.VMs = append(h.VMs, gpu.VM{
		ID: "ours", Name: names[4] + "2", State: gpu.VMOff, Generation: 2, Devices: []gpu.DeviceAssignment{{ID: "d", Pool: names[0]}},
	})
	r := newRig(t, h)
	run := func(code int, args ...string) string {
		t.Helper()
		out, said := r.run(code, args...)
		for _, fault := range others.Faults(out+said, false) {
			t.Errorf("%q: %s", args, fault)
		}
		return out
	}
	table := run(0, "inventory")
	if rows := strings.Count(table, "partition"); rows < len(names) {
		t.Errorf("%d rows for %d VMs:\n%s", rows, len(names), table)
	}
	run(0, "claims")
	for i := range names {
		if i > 5 && i%4 != 0 { // the table has all of them
			continue
		}
		run(0, "vm", "stop", h.VMs[i].ID)
		if !strings.Contains(names[i], "\x00") { // which no argument has
			run(1, "vm", "stop", names[i]+"?")
		}
	}
	run(0, "vm", "stop", h.VMs[2].ID, "--yes")
	run(0, "vm", "start", h.VMs[2].ID, "--yes")
	run(0, "adopt")
	run(0, "records")
	run(0, "reconcile")
	run(1, "claims", "forget", "pool", names[0]+"?", "--yes")

	called := func(doc string, of func(gpu.Snapshot) []string) {
		t.Helper()
		var s gpu.Snapshot
		if err := json.Unmarshal([]byte(doc), &s); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !slices.Contains(of(s), name) {
				t.Errorf("the JSON has no %q", name)
			}
		}
	}
	called(run(0, "inventory", "--json"), func(s gpu.Snapshot) (out []string) {
		for _, vm := range s.Hosts[0].VMs {
			out = append(out, vm.Name)
		}
		return out
	})
	called(`{"hosts":[{"claims":`+run(0, "claims", "--json")+`}]}`, func(s gpu.Snapshot) (out []string) {
		for _, c := range s.Hosts[0].Claims {
			out = append(out, c.Owner)
		}
		return out
	})
	var doc any
	if err := json.Unmarshal([]byte(run(0, "adopt", "--json")), &doc); err != nil {
		t.Error(err)
	}
}
