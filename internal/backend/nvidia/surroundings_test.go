//go:build linux && cgo

package nvidia_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The cores beside a GPU are counted as Slurm counts them, whatever the kernel calls their threads.
func TestCoresBesideAGPU(t *testing.T) {
	// host makes a thread for each line of "package node core l3".
	host := func(lines ...string) (out []fakenvml.CPU) {
		for _, line := range lines {
			var c fakenvml.CPU
			if _, err := fmt.Sscan(line, &c.Package, &c.Node, &c.Core, &c.L3); err != nil {
				t.Fatal(err)
			}
			out = append(out, c)
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		cpus    []fakenvml.CPU
		threads string
		node    int
		want    string
	}{
		{
			name:    "the second threads of cores have numbers of their own",
			cpus:    slices.Repeat(host("0 0 0,4 0-1,4-5", "0 0 1,5 0-1,4-5", "1 1 2,6 2-3,6-7", "1 1 3,7 2-3,6-7"), 2),
			threads: "2-3,6-7", node: 1, want: "2-3",
		},
		{
			name:    "the kernel counts the packages in turn",
			cpus:    host("0 0 0 0,2", "1 1 1 1,3", "0 0 2 0,2", "1 1 3 1,3"),
			threads: "0,2", node: 0, want: "0-1",
		},
		{
			name:    "cores that share a cache come one after the other",
			cpus:    host("0 0 0 0,2", "0 0 1 1,3", "0 0 2 0,2", "0 0 3 1,3"),
			threads: "1,3", node: 0, want: "2-3",
		},
		{
			name:    "a package has several NUMA nodes",
			cpus:    host("0 0 0 0-3", "0 1 1 0-3", "0 0 2 0-3", "0 1 3 0-3"),
			threads: "1,3", node: 1, want: "2-3",
		},
		{
			name:    "one that is off has no topology",
			cpus:    host("0 0 0 0-1", "0 0 1 0-1"),
			threads: "0-2", node: -1, want: "0-1",
		},
		{name: "nothing is told", threads: "0-3", node: -1, want: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{{ID: "GPU-1", Address: "0000:1b:00.0"}}})
			f.tree.AddCPUs(tt.cpus)
			f.tree.AddDevice("0000:1b:00.0", tt.threads, tt.node)
			g := inventory(t, f.backend).GPUs[0]
			if g.Cores != tt.want {
				t.Errorf("the cores are %q, want %q", g.Cores, tt.want)
			}
			if (g.NUMANode == nil) != (tt.node < 0) || g.NUMANode != nil && *g.NUMANode != tt.node {
				t.Errorf("the NUMA node is %v, want %d", g.NUMANode, tt.node)
			}
		})
	}
}

// What leads to other GPUs is counted for each of them.
func TestNVLinksOfAGPU(t *testing.T) {
	const first, second = "00000000:1A:00.0", "00000000:2A:00.0"
	f := newFixtureOf(t, gpu.Host{}, fakenvml.Options{GPUs: []fakenvml.GPU{
		{UUID: "GPU-1", BusID: first, Links: []string{second, second, "switch"}},
		{UUID: "GPU-2", BusID: second, Links: []string{first, first}},
		{UUID: "GPU-3", Links: []string{"00000000:7F:00.0"}}, // which is no GPU of this host
		{UUID: "GPU-4"},
	}})
	var got [][]gpu.NVLink
	for _, g := range inventory(t, f.backend).GPUs {
		got = append(got, g.NVLinks)
	}
	want := [][]gpu.NVLink{{{GPU: "", Count: 1}, {GPU: "GPU-2", Count: 2}}, {{GPU: "GPU-1", Count: 2}}, nil, nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Numbers of capability devices are those of the driver's list, and unknown without it.
func TestCapabilityDevicesOfInstances(t *testing.T) {
	id := uuid(1)
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
	place := gpu.MIGPlacement{Profile: "1g.10gb", Start: 3}
	if err := f.backend.CreateInstance(t.Context(), id, place); err != nil {
		t.Fatal(err)
	}
	g := inventory(t, f.backend).GPUs[0]
	i := g.MIG.Instances[0]
	want := []int{fakenvml.Capability(0, i.ID, 0), fakenvml.Capability(0, i.ID, 1)}
	if got := i.Capabilities(); !slices.Equal(got, want) || g.DevicePath() != "/dev/nvidia0" {
		t.Errorf("the capability devices are %v, want %v; the GPU's is %s", got, want, g.DevicePath())
	}
	lines, err := os.ReadFile(filepath.Join(f.tree.Root(), "proc/driver/nvidia-caps/mig-minors"))
	if line := fmt.Sprintf("gpu0/gi%d/ci0/access %d\n", i.ID, want[1]); err != nil || !strings.Contains(string(lines), line) {
		t.Errorf("the driver's list has no line %q: %v", line, err)
	}

	// The driver is loaded without its list: the numbers are unknown, and the rest of the GPU is not.
	if err := f.backend.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.tree.Root(), "proc/driver/nvidia-caps/mig-minors")); err != nil {
		t.Fatal(err)
	}
	g = inventory(t, f.backend).GPUs[0]
	if i := g.MIG.Instances[0]; i.Capabilities() != nil || i.Minor != 0 || g.Problem != "" {
		t.Errorf("the instance is %+v, and the GPU's problem %q", i, g.Problem)
	}
}
