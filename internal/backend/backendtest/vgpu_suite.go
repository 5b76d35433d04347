package backendtest

import (
	"context"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// VGPUFixture is a Linux KVM host with NVIDIA's vGPU driver that stands as a scenario
// wants it. Its methods beside VGPU are what others do on the host; they end the test
// when they fail.
type VGPUFixture interface {
	// VGPU is the backend. It is asked for anew for every call, so that a fixture may open
	// it again after a reboot.
	VGPU() backend.VGPU

	// StartProcess has a process of the host compute on a GPU. It returns the process id.
	StartProcess(t *testing.T, gpuID, name string) int

	// Hold has a VM of a name run with a vGPU that is there, and Release shuts it down.
	Hold(t *testing.T, gpuID string, p gpu.VGPUPlace, vm string)
	Release(t *testing.T, gpuID string, p gpu.VGPUPlace)

	// CreateOutside is somebody else who makes a vGPU, and RemoveOutside one who removes it.
	CreateOutside(t *testing.T, gpuID string, p gpu.VGPUPlace)
	RemoveOutside(t *testing.T, gpuID string, p gpu.VGPUPlace)

	// Reboot starts the host again.
	Reboot(t *testing.T)
}

// VGPUFactory makes a fixture of a host. Every scenario has its own. The host has no
// vGPUs and no processes yet, its virtual functions are off. Those of the GPUs that are
// mediated have mediated devices on them, those of others vendor-specific VFIO.
type VGPUFactory func(t *testing.T, initial gpu.Host, mediated []string) VGPUFixture

// RunVGPU runs all scenarios of vGPUs on the fixtures of a backend.
func RunVGPU(t *testing.T, factory VGPUFactory) {
	t.Helper()
	count := 0
	for _, subject := range vgpuSubjects() {
		t.Run(subject.name, func(t *testing.T) {
			for _, s := range subject.scenarios {
				count++
				t.Run(s.name, func(t *testing.T) { s.run(t, factory) })
			}
		})
	}
	t.Logf("conformance: %d scenarios", count)
}

type vgpuSubject struct {
	name      string
	scenarios []vgpuScenario
}

func vgpuSubjects() []vgpuSubject {
	return []vgpuSubject{
		{"inventory", vgpuInventoryScenarios()},
		{"functions", vgpuFunctionScenarios()},
		{"mode", vgpuModeScenarios()},
		{"create", vgpuCreateScenarios()},
		{"remove", vgpuRemoveScenarios()},
		{"reboot", vgpuRebootScenarios()},
		{"errors", vgpuErrorScenarios()},
		{"concurrency", vgpuConcurrencyScenarios()},
	}
}

// vgpuScenario is one sentence about a backend, see scenario.
type vgpuScenario struct {
	name string
	// given changes the standard host before it exists.
	given []given
	// first must succeed; it is the history.
	first []vgpuAction
	// do is what is tried.
	do vgpuAction
	// again is true when the same call once more must succeed and change nothing.
	again bool
	// fails is how it is refused; empty when it must succeed. A refusal leaves the host
	// as it was.
	fails backend.Code
	// saying are words that a refusal must contain.
	saying []string
	// then is what the host looks like.
	then []vgpuCheck
}

type (
	vgpuAction func(context.Context, *vgpuBench) error
	vgpuCheck  func(*testing.T, *vgpuBench)
)

// vgpuBench is a scenario that runs.
type vgpuBench struct {
	VGPUFixture
	t             *testing.T
	before, after gpu.Host
}

func (s vgpuScenario) run(t *testing.T, factory VGPUFactory) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	host := standardVGPUHost()
	for _, g := range s.given {
		g(&host)
	}
	b := &vgpuBench{VGPUFixture: factory(t, host, []string{a40}), t: t}
	for i, step := range s.first {
		if err := step(ctx, b); err != nil {
			t.Fatalf("history, step %d: %v", i+1, err)
		}
	}
	b.before = b.look(ctx)
	err := s.do(ctx, b)
	b.after = b.look(ctx)
	s.judge(t, b, err)

	if s.again {
		if err := s.do(ctx, b); err != nil {
			t.Errorf("the second time: %v", err)
		}
		sameHost(t, "the second time changed the host", b.after, b.look(ctx))
	}
	for _, then := range s.then {
		then(t, b)
	}
	saneVGPU(t, b.after)
}

func (s vgpuScenario) judge(t *testing.T, b *vgpuBench, err error) {
	t.Helper()
	if s.fails == "" {
		if err != nil {
			t.Fatalf("must succeed: %v", err)
		}
		return
	}
	wantRefusal(t, err, s.fails, s.saying)
	sameHost(t, "a refused call changed the host", b.before, b.after)
}

// look reads the host, which must work in every scenario.
func (b *vgpuBench) look(ctx context.Context) gpu.Host {
	b.t.Helper()
	host, err := b.VGPU().Inventory(ctx)
	if err != nil {
		b.t.Fatalf("inventory: %v", err)
	}
	return host
}
