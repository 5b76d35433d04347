package simulated_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Every model of the catalog makes a fleet on each platform that shares it, and its GPUs take
// every documented partition count, or MIG mode.
func TestFleetsOfEveryModel(t *testing.T) {
	made := 0
	for _, m := range catalog.All() {
		for _, p := range []gpu.Platform{gpu.HyperV, gpu.Linux} {
			s, err := simulated.Spec{Platform: p, Hosts: []string{"a", "b"}, Models: []string{m.Name, m.Name}}.Snapshot()
			if shared := p == gpu.HyperV && m.HyperV() || p == gpu.Linux && m.Vendor == "NVIDIA"; shared != (err == nil) {
				t.Errorf("%s on %s: %v", m.Name, p, err)
			}
			if err != nil {
				continue
			}
			made++
			f, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
			if err != nil {
				t.Fatalf("%s on %s: %v", m.Name, p, err)
			}
			h := hostOf(t, f, "b")
			for _, g := range inventory(t, f, "b").GPUs {
				if found, ok := catalog.ByPCI(g.PCI); ok && found.Name != m.Name {
					t.Errorf("%s has the PCI id of %s", m.Name, found.Name)
				}
				if p == gpu.HyperV && len(m.PartitionCounts) > 0 && m.GPUP {
					for _, n := range m.PartitionCounts {
						run(t, h.SetPartitionCount(t.Context(), g.ID, n))
					}
				}
				if g.MIG != nil {
					run(t, h.SetMIGMode(t.Context(), g.ID, true, true))
				}
			}
		}
	}
	if made < 20 {
		t.Errorf("%d fleets", made)
	}
	for _, s := range []simulated.Spec{
		{Platform: gpu.HyperV, Hosts: []string{"a"}},
		{Platform: gpu.HyperV, Models: []string{"A2"}},
		{Platform: gpu.HyperV, Hosts: []string{"a", "A"}, Models: []string{"A2"}},
		{Platform: gpu.HyperV, Hosts: []string{"a"}, Models: []string{"Voodoo"}},
		{Platform: gpu.Linux, Hosts: []string{"a"}, Models: []string{"A2"}, VMs: []string{"v"}},
		{Platform: gpu.Linux, Hosts: []string{"a"}, Models: []string{"A2"}, Cluster: "c"},
	} {
		if _, err := s.Snapshot(); err == nil {
			t.Errorf("%+v is a fleet", s)
		}
	}
}

// "8x" is eight, a host may have models and VMs of its own, and VMs are as Windows makes them.
func TestSpecOfMany(t *testing.T) {
	t.Parallel()
	fleet, err := simulated.Spec{
		Platform: gpu.HyperV, Hosts: []string{"2x hv", "edge"}, Cluster: "c", Models: []string{"4x A2", "A16"},
		HostModels: map[string][]string{"edge": {"2xA16"}}, VMs: []string{"3x avd-", "db"},
		HostVMs: map[string][]string{"edge": {"12x pos-:off"}},
	}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, h := range fleet.Hosts {
		for _, g := range h.GPUs {
			got[h.Name+" GPUs"] = append(got[h.Name+" GPUs"], g.Model)
		}
		for _, vm := range h.VMs {
			got[h.Name] = append(got[h.Name], vm.Name+" "+string(vm.State))
			stop, offline := vm.Settings.AutomaticStopAction, vm.Settings.OfflineAction
			if vm.Checkpoints != gpu.CheckpointsProduction || stop == nil || *stop != gpu.StopSave || offline == nil || *offline != gpu.OfflineSave {
				t.Errorf("VM %s is not as Windows makes one: %+v", vm.Name, vm)
			}
		}
	}
	five := []string{"NVIDIA A2", "NVIDIA A2", "NVIDIA A2", "NVIDIA A2", "NVIDIA A16"}
	edge := []string{"avd-03 running"}
	for i := range 12 {
		edge = append(edge, fmt.Sprintf("pos-%02d off", i+1))
	}
	want := map[string][]string{
		"hv01 GPUs": five, "hv02 GPUs": five, "edge GPUs": {"NVIDIA A16", "NVIDIA A16"},
		"hv01": {"avd-01 running", "db running"}, "hv02": {"avd-02 running"}, "edge": edge,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the fleet (-want +got):\n%s", diff)
	}
	for says, s := range map[string]simulated.Spec{
		`no host "edgy"`: {Platform: gpu.HyperV, Hosts: []string{"edge"}, HostModels: map[string][]string{"edgy": {"A2"}}},
		`"0x A2"`:        {Platform: gpu.HyperV, Hosts: []string{"edge"}, Models: []string{"0x A2"}},
		`"99999x v"`:     {Platform: gpu.HyperV, Hosts: []string{"edge"}, Models: []string{"A2"}, VMs: []string{"99999x v"}},
	} {
		if _, err := s.Snapshot(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, want an error that says %s", s, err, says)
		}
	}
}

// Models whose compute capability is not that of their architecture's other data centre GPUs.
func TestSpecHasTheComputeCapabilitiesOfModels(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"A100-SXM4-40GB": "8.0", "A800-SXM4-80GB": "8.0", "A30": "8.0", "A10": "8.6", "A40": "8.6", "L4": "8.9", "H200": "9.0", "B200": "10.0",
		"GB300": "10.3", "Thor": "11.0", "RTX PRO 4500 Blackwell": "12.0", "RTX 6000D": "12.0", "GB10": "12.1",
	} {
		fleet, err := simulated.Spec{Platform: gpu.Linux, Hosts: []string{"h"}, Models: []string{model}}.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if got := fleet.Hosts[0].GPUs[0].ComputeCapability; got != want {
			t.Errorf("%s: got compute capability %s, want %s", model, got, want)
		}
	}
}
