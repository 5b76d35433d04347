package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func exampleFleet(t *testing.T) gpu.Snapshot {
	t.Helper()
	data, err := os.ReadFile("../../examples/azure-local-vdi/fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := gpu.ParseSnapshot(data)
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

func TestReportShowsWhatChanged(t *testing.T) {
	before, after := exampleFleet(t), exampleFleet(t)
	if left := diff(before, after); len(left) > 0 {
		t.Fatalf("two equal fleets differ: %v", left)
	}
	h := &after.Hosts[0]
	h.GPUs[0].Partitionable.Count = 4
	h.GPUs[0].Partitionable.VRAM.Min = uint64(gpu.FromMiB(3792))
	h.GPUs[0].Partitionable.Partitions = []gpu.Partition{{ID: 3, VMID: h.VMs[0].ID, VRAM: gpu.FromMiB(3792)}}
	h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "4C9E"}}
	h.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "vdi"}}

	var out bytes.Buffer
	report(&out, before, after)
	for _, want := range []string{
		"16 → 4", "948 MiB → 3792 MiB", "0 → 1", "shut down and started again",
		"partition 3 of " + h.GPUs[0].ID + ", 3792 MiB", "claims on the hosts: 0 → 1",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, out.String())
		}
	}
	if len(diff(before, after)) == 0 {
		t.Error("two different fleets do not differ")
	}
}
