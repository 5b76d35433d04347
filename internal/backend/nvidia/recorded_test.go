//go:build linux && cgo

package nvidia_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// setMemoryLimits is what a driver has from R615 on. NVIDIA's hook ends with 127 without it, and no
// container of a share with a limit started on the H100 that these files are of.
const setMemoryLimits = "nvmlDeviceSetMemoryLimits_v1"

// recorded is what a machine with one H100, driver 580.159.04 and container toolkit 1.20.2 had in
// November 2026, as `make test-gpu` keeps it.
func recorded(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "h100-r580", file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func recordedHost(t *testing.T) gpu.Host {
	t.Helper()
	var s gpu.Snapshot
	if err := json.Unmarshal(recorded(t, "inventory.json"), &s); err != nil {
		t.Fatal(err)
	}
	return s.Hosts[0]
}

// The library that stands in for NVML has the agent find the GPU that it found on the real machine,
// and the catalog has the MIG profiles that the real driver lists.
func TestWhatStandsInForAnH100IsAsTheRealOne(t *testing.T) {
	want := recordedHost(t).GPUs[0]
	c := card(&want)
	c.ECC, c.Persistence = true, true
	f := newFixtureOf(t, gpu.Host{}, fakenvml.Options{
		Driver: want.Driver.Version, Missing: []string{setMemoryLimits}, GPUs: []fakenvml.GPU{c},
	})
	byName := cmpopts.SortSlices(func(a, b gpu.MIGProfile) bool { return a.Name < b.Name })
	later := cmpopts.IgnoreFields(gpu.GPU{}, "Minor") // it was not recorded then
	if diff := cmp.Diff(want, inventory(t, f.backend).GPUs[0], byName, later); diff != "" {
		t.Errorf("the GPU (-real +stand-in):\n%s", diff)
	}
	m, ok := catalog.Of(want.PCI, want.Model)
	if !ok {
		t.Fatal("the catalog has no such GPU")
	}
	if diff := cmp.Diff(want.MIG.Profiles, m.MIG.Profiles, byName); diff != "" {
		t.Errorf("the MIG profiles (-driver +catalog):\n%s", diff)
	}
}

// A container of a share starts whatever driver and cgroups the host has: where these know no limit
// of memory, the hook of the real toolkit is not told of one, and with the driver that does, it is.
func TestTheHookIsToldOfLimitsThatTheDriverHas(t *testing.T) {
	for _, tt := range []struct {
		name    string
		missing []string
		cgroup2 bool
		limits  bool
	}{
		{"R580", []string{setMemoryLimits}, true, false},
		{"R615, version 1 of cgroups", nil, false, false},
		{"R615", nil, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := recordedHost(t)
			id := host.GPUs[0].ID
			f := newShareFixtureOf(t, gpu.Host{GPUs: host.GPUs, ContainerToolkit: "1.20.2"}, fakenvml.Options{Missing: tt.missing})
			f.write(f.at(hostSpecification), string(recorded(t, "nvidia.yaml")), 0o600)
			if tt.cgroup2 {
				f.put("sys/fs/cgroup", "cgroup.controllers")
			}
			share := gpu.ShareSpec{Name: "notebook", Devices: []gpu.SharedDevice{{GPU: id}}, MemoryRequest: 8 * gib, MemoryLimit: 8 * gib}
			if err := f.backend.WriteShare(t.Context(), share); err != nil {
				t.Fatal(err)
			}
			now := inventory(t, f.backend)
			handed, ok := now.HandedShare("notebook")
			if !ok || handed.Note != "" || handed.LimitsContainers != tt.limits {
				t.Errorf("the share is handed over as %+v", handed)
			}
			file := f.at("var/run/cdi/gpufleet.com-share_notebook.json")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "apply-cuda-memory-limits") {
				t.Errorf("the hook is gone:\n%s", text)
			}
			if told := strings.Contains(string(text), "NVIDIA_GPU_MEMORY_LIMIT=8192"); told != tt.limits ||
				told != strings.Contains(string(text), "NVIDIA_GPU_MEMORY_") {
				t.Errorf("the hook is told of a limit: %t:\n%s", told, text)
			}
			if outdated, err := f.backend.OutdatedShares(t.Context(), []gpu.ShareSpec{share}); err != nil || len(outdated) > 0 {
				t.Errorf("at once it is outdated by %v (%v)", outdated, err)
			}
			// A specification that an agent wrote before this was known is written again.
			if !tt.limits {
				f.write(file, strings.Replace(string(text), `"GPUFLEET_SHARE=notebook"`, `"GPUFLEET_SHARE=notebook", "NVIDIA_GPU_MEMORY_LIMIT=8192"`,
					1), 0o600)
				outdated, err := f.backend.OutdatedShares(t.Context(), []gpu.ShareSpec{share})
				if err != nil || outdated["notebook"] != "still has variable NVIDIA_GPU_MEMORY_LIMIT" {
					t.Errorf("an old specification is outdated by %v (%v)", outdated, err)
				}
			}
		})
	}
}
