//go:build linux && cgo

package nvidia_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestLimitsOfContainersAreReadBack from the driver, whatever the share's files say.
func TestLimitsOfContainersAreReadBack(t *testing.T) {
	container := fakenvml.DockerCgroup(strings.Repeat("ab", 32))
	limited := func(cgroup string, b gpu.Bytes) map[string]gpu.Bytes { return map[string]gpu.Bytes{cgroup: b} }
	for name, tt := range map[string]struct {
		proc   fakenvml.Proc
		limits map[string]gpu.Bytes
		code   int // that NVML answers
		want   *gpu.Bytes
	}{
		"as the hook set it":          {proc: fakenvml.Proc{Cgroup: container}, limits: limited(container, 8*gib), want: new(8 * gib)},
		"of a group in the container": {proc: fakenvml.Proc{Cgroup: container + "/init"}, limits: limited(container, 8*gib), want: new(8 * gib)},
		"the least of all around it": {
			proc: fakenvml.Proc{Cgroup: container}, limits: map[string]gpu.Bytes{container: 8 * gib, "/system.slice": 6 * gib}, want: new(6 * gib),
		},
		"of a container beside it":     {proc: fakenvml.Proc{Cgroup: container}, limits: limited(container+"x", 8*gib), want: new(gpu.Bytes(0))},
		"begun before the hook":        {proc: fakenvml.Proc{Cgroup: container}, want: new(gpu.Bytes(0))},
		"in no container":              {proc: fakenvml.Proc{Cgroup: "/"}, want: new(gpu.Bytes(0))},
		"version 1 of cgroups":         {proc: fakenvml.Proc{Cgroup: container, V1: true}},
		"out of the agent's namespace": {proc: fakenvml.Proc{Cgroup: "/../../docker"}},
		"it ends meanwhile":            {proc: fakenvml.Proc{Cgroup: container}, limits: limited(container, 8*gib), code: 17},
		"the GPU has no such limits":   {proc: fakenvml.Proc{Cgroup: container}, limits: limited(container, 8*gib), code: 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
			for cgroup, limit := range tt.limits {
				f.machine.LimitMemory(0, filepath.Join(f.tree.Cgroups(), cgroup), limit)
			}
			if tt.code != 0 {
				f.machine.Fail(fakenvml.Fault{Function: "nvmlDeviceGetMemoryLimits_v1", Code: tt.code})
			}
			for _, pid := range []int{4242, 4243} {
				p := tt.proc
				p.PID, p.Args = pid, []string{"python3"}
				if pid == 4242 {
					p.Env = []string{"GPUFLEET_SHARE=team-a"}
				}
				f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: pid})
				f.tree.Add(p)
			}
			got := inventory(t, f.backend).GPUs[0]
			if diff := cmp.Diff(tt.want, got.Processes[0].MemoryLimit); diff != "" || got.Problem != "" {
				t.Errorf("its limit (-want +got):\n%s%s", diff, got.Problem)
			}
			if got.Processes[1].MemoryLimit != nil {
				t.Error("a process in no share was asked for its limit")
			}
		})
	}
	t.Run("the GPU does not tell", func(t *testing.T) {
		f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1), l40s(2)}})
		f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4242})
		f.tree.Add(fakenvml.Proc{PID: 4242, Args: []string{"python3"}, Env: []string{"GPUFLEET_SHARE=team-a"}, Cgroup: container})
		f.machine.Fail(fakenvml.Fault{Function: "nvmlDeviceGetMemoryLimits_v1", Code: 999})
		host := inventory(t, f.backend)
		if p := host.GPUs[0].Problem; !strings.Contains(p, "nvmlDeviceGetMemoryLimits_v1: unknown error (999)") || host.GPUs[1].Problem != "" {
			t.Errorf("the problems are %q and %q", p, host.GPUs[1].Problem)
		}
	})
}
