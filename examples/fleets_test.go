// Package examples_test checks that the fleets of the examples are what their
// READMEs say, and that their configurations apply.
package examples_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func fleets(t *testing.T) map[string]gpu.Snapshot {
	t.Helper()
	files, err := filepath.Glob("*/fleet.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fleets found: %v", err)
	}
	out := map[string]gpu.Snapshot{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var strict gpu.Snapshot
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&strict); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		fleet, err := gpu.ParseSnapshot(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Dir(file)] = fleet
	}
	return out
}

func TestGPUsAgreeWithTheCatalog(t *testing.T) {
	for name, fleet := range fleets(t) {
		for _, h := range fleet.Hosts {
			for _, g := range h.GPUs {
				m, known := catalog.ByPCI(g.PCI)
				if !known {
					if g.Status != gpu.NotAssignable {
						t.Errorf("%s, %s: GPU %s is in no catalog, but its status is %s", name, h.Name, g.ID, g.Status)
					}
					continue
				}
				if g.Model != m.Name || g.Vendor != m.Vendor || g.VRAM != m.VRAM {
					t.Errorf("%s, %s: GPU %s is a %s of %s, but the catalog says %s of %s",
						name, h.Name, g.ID, g.Model, g.VRAM, m.Name, m.VRAM)
				}
				if p := g.Partitionable; p != nil {
					if diff := cmp.Diff(m.PartitionCounts, p.ValidCounts); diff != "" {
						t.Errorf("%s, %s: valid counts of GPU %s (-catalog +fleet):\n%s", name, h.Name, g.ID, diff)
					}
				} else if g.Status == gpu.Partitioned {
					t.Errorf("%s, %s: GPU %s is partitioned, but not partitionable", name, h.Name, g.ID)
				}
			}
		}
	}
}

func TestMIGAgreesWithTheCatalog(t *testing.T) {
	for name, fleet := range fleets(t) {
		for _, h := range fleet.Hosts {
			for _, g := range h.GPUs {
				m, _ := catalog.ByPCI(g.PCI)
				if (m.MIG != nil && h.Platform == gpu.Linux) != (g.MIG != nil) {
					t.Errorf("%s, %s: GPU %s has MIG: %t, but the catalog says otherwise of a %s", name, h.Name, g.ID, g.MIG != nil, m.Name)
					continue
				}
				if g.MIG == nil {
					continue
				}
				if g.MIG.NeedsReset != m.MIG.ModeNeedsReset {
					t.Errorf("%s, %s: GPU %s changes its mode by reset: %t", name, h.Name, g.ID, g.MIG.NeedsReset)
				}
				if diff := cmp.Diff(m.MIG.Profiles, g.MIG.Profiles); diff != "" {
					t.Errorf("%s, %s: profiles of GPU %s (-catalog +fleet):\n%s", name, h.Name, g.ID, diff)
				}
				for _, i := range g.MIG.Instances {
					p, _ := g.MIG.Profile(i.Profile)
					whole := len(i.Compute) == 1 && i.Compute[0].Slices == p.Slices
					if !g.MIG.Enabled || !slices.Contains(p.Starts, i.Start) || i.Size != p.Size || i.Memory != p.Memory || !whole {
						t.Errorf("%s, %s: GPU %s cannot have the instance %+v", name, h.Name, g.ID, i)
					}
				}
			}
		}
	}
}

func TestPathsAndIDsAgree(t *testing.T) {
	for name, fleet := range fleets(t) {
		for _, h := range fleet.Hosts {
			if h.Platform == gpu.Linux {
				continue // its GPUs are known by UUID and PCI address
			}
			for _, g := range h.GPUs {
				want := `PCI\VEN_` + g.PCI.Vendor + "&DEV_" + g.PCI.Device + "&SUBSYS_" + g.PCI.Subsystem + "&"
				if !strings.HasPrefix(g.InstancePath, want) {
					t.Errorf("%s, %s: instance path %s does not begin with %s", name, h.Name, g.InstancePath, want)
				}
				if g.Partitionable == nil {
					continue
				}
				device, _, _ := strings.Cut(strings.TrimPrefix(g.Partitionable.Name, `\\?\`), "#{")
				if got := strings.ReplaceAll(device, "#", `\`); !gpu.SameID(got, g.InstancePath) {
					t.Errorf("%s, %s: partitionable GPU %s is not the device %s", name, h.Name, got, g.InstancePath)
				}
			}
			for _, v := range h.VMs {
				if v.ID != strings.ToUpper(v.ID) {
					t.Errorf("%s, %s: id %s of VM %s is not upper case", name, h.Name, v.ID, v.Name)
				}
				s := v.Settings
				if s.LowMemoryMappedIOSpace == nil || s.HighMemoryMappedIOSpace == nil || s.GuestControlledCache == nil ||
					s.AutomaticStopAction == nil || (s.OfflineAction != nil) != v.Clustered {
					t.Errorf("%s, %s: the settings of VM %s are not complete: %+v", name, h.Name, v.Name, s)
				}
			}
		}
	}
}

// Microsoft documents 1.85 GB for one of eight partitions of an A2.
func TestPartitionsOfAnA2(t *testing.T) {
	want := map[int]int64{16: 948, 8: 1896, 4: 3792, 2: 7584, 1: 15168}
	for _, h := range fleets(t)["azure-local-vdi"].Hosts {
		for _, g := range h.GPUs {
			p := g.Partitionable
			if p == nil {
				continue
			}
			for count, mib := range want {
				if got := p.EstimatedPartitionVRAM(count).MiB(); got != mib {
					t.Errorf("%s, GPU %s: %d partitions have %d MiB each, want %d", h.Name, g.ID, count, got, mib)
				}
			}
			for _, c := range []gpu.Capacity{p.VRAM, p.Encode, p.Decode, p.Compute} {
				if c.Min*uint64(p.Count) != c.Total || c.Available != c.Total || c.Max != c.Min || c.Optimal != c.Min {
					t.Errorf("%s, GPU %s: the capacity is not shared evenly: %+v", h.Name, g.ID, c)
				}
			}
		}
	}
}

func TestAzureLocalVDI(t *testing.T) {
	hosts := fleets(t)["azure-local-vdi"].Hosts
	var names []string
	ids := map[string]bool{}
	for _, h := range hosts {
		names = append(names, h.Name)
		if h.ClusterName() != "azl-vdi" || h.NodeState() != gpu.NodeUp || h.OS.Build != 26100 {
			t.Errorf("%s: cluster %q, node %q, build %d", h.Name, h.ClusterName(), h.NodeState(), h.OS.Build)
		}
		if len(h.Pools) != 0 || len(h.Claims) != 0 || len(h.VMs) != 6 {
			t.Errorf("%s: %d pools, %d claims, %d VMs", h.Name, len(h.Pools), len(h.Claims), len(h.VMs))
		}
		for _, v := range h.VMs {
			if ids[v.ID] || v.Generation != 2 || v.DynamicMemory || !v.Clustered {
				t.Errorf("%s: VM %s is not like the others: %+v", h.Name, v.Name, v)
			}
			ids[v.ID] = true
		}
		if !slices.ContainsFunc(h.GPUs, func(g gpu.GPU) bool { return g.HostDisplay }) {
			t.Errorf("%s has no display adapter of its management controller", h.Name)
		}
	}
	if diff := cmp.Diff([]string{"hv01", "hv02"}, names); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(hosts[0].GPUs, hosts[1].GPUs); diff != "" {
		t.Errorf("the nodes are not identical (-hv01 +hv02):\n%s", diff)
	}
}

func TestLinuxHGX(t *testing.T) {
	layouts := map[string][]int{} // instances of each GPU
	ids := map[string]bool{}
	for _, h := range fleets(t)["linux-hgx"].Hosts {
		for _, g := range h.GPUs {
			if ids[g.ID] || !strings.HasPrefix(g.ID, "GPU-") || g.Address == "" || g.Driver.Version == "" {
				t.Errorf("%s: GPU %s is not like the others: %s, %+v", h.Name, g.ID, g.Address, g.Driver)
			}
			ids[g.ID] = true
			for _, i := range g.MIG.Instances {
				if ids[i.Compute[0].UUID] {
					t.Errorf("%s: the MIG device %s is there twice", h.Name, i.Compute[0].UUID)
				}
				ids[i.Compute[0].UUID] = true
			}
			layouts[h.Name] = append(layouts[h.Name], len(g.MIG.Instances))
		}
	}
	want := map[string][]int{"hgx01": {0, 0, 0, 0, 0, 0, 0, 0}, "hgx02": {7, 2, 0, 0, 0, 0, 0, 0}}
	if diff := cmp.Diff(want, layouts); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
}

func TestLinuxShares(t *testing.T) {
	ids := map[string]bool{}
	for _, h := range fleets(t)["linux-shares"].Hosts {
		if len(h.GPUs) != 2 || h.MPS == nil || h.MPS.Program == "" || len(h.MPS.Daemons) > 0 || len(h.Shares) > 0 || h.ContainerToolkit == "" {
			t.Errorf("%s has %d GPUs, MPS %+v, shares %v, container toolkit %q", h.Name, len(h.GPUs), h.MPS, h.Shares, h.ContainerToolkit)
		}
		for _, g := range h.GPUs {
			if ids[g.ID] || g.Model != "NVIDIA L40S" || g.ComputeCapability != "8.9" || g.ComputeMode != gpu.ComputeDefault || len(g.Processes) > 0 {
				t.Errorf("%s: GPU %s is not like the others: %+v", h.Name, g.ID, g)
			}
			ids[g.ID] = true
		}
	}
	if len(ids) != 4 {
		t.Errorf("the example has %d GPUs, want 4", len(ids))
	}
}
