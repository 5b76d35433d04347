//go:build linux && cgo

// Package mig_test measures a change to one GPU of a large host, through the agent and
// go-nvml, on a libnvidia-ml that behaves as a driver does.
package mig_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	gpus    = 8
	changed = 3
	latency = time.Millisecond // of each call to NVML
	most    = 400              // calls to NVML
	host    = "gpu01"
)

func uuid(n int) string { return fmt.Sprintf("GPU-5eed0000-0000-4000-8000-%012x", n) }

// TestDayTwo has eight GPUs with seven instances each, of which one is divided anew
// while processes run on the others, and on two instances that may stay. As in an apply, the
// host was looked at before; under the lease all of it is read once, and then the GPU that changes.
func TestDayTwo(t *testing.T) {
	m := machine(t)
	client := serve(t, m)
	if _, err := client.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := len(m.Calls())
	fence, err := client.AcquireLease(t.Context(), agent.LeaseRequest{Run: "bench", Owner: "bench", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	before := uuids(m)
	m.ForgetCalls()
	m.Delay("*", latency)
	ch := anew()
	began := time.Now()
	prepared, err := client.Prepare(t.Context(), ch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Apply(t.Context(), fence, ch, prepared.Basis, nil); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	calls := m.Calls()
	m.Heal()

	destroyed, created := calls.Count("nvmlGpuInstanceDestroy"), calls.Count("nvmlDeviceCreateGpuInstanceWithPlacement")
	fmt.Printf("one of %d GPUs from 7x1g to 3g+2g+2x1g: %d instances destroyed, %d created; %d calls to NVML, %.2f s with %s for each call; "+
		"%d for the first inventory\n",
		gpus, destroyed, created, len(calls), took.Seconds(), latency, look)
	if len(calls) > most {
		t.Errorf("the change made %d calls to NVML; %d are enough", len(calls), most)
	}
	if calls.Inits() != 0 {
		t.Errorf("NVML was initialised %d times again", calls.Inits())
	}
	if destroyed != 5 || created != 2 {
		t.Errorf("%d instances were destroyed and %d created; five and two are enough", destroyed, created)
	}
	after := uuids(m)
	for i := range gpus {
		if i != changed && !slices.Equal(before[i], after[i]) {
			t.Errorf("GPU %d is a bystander and had the instances %v, and has %v", i, before[i], after[i])
		}
	}
	kept := 0
	for _, id := range after[changed] {
		if slices.Contains(before[changed], id) {
			kept++
		}
	}
	if kept != 2 || len(after[changed]) != 4 {
		t.Errorf("of the changed GPU's instances %d were kept, and it has %d", kept, len(after[changed]))
	}
}

// What others do to the GPU between a plan of its change and the change is seen, although no more is
// read then than that GPU: nothing is touched.
func TestWhatOthersDoMeanwhileIsSeen(t *testing.T) {
	m := machine(t)
	client := serve(t, m)
	fence, err := client.AcquireLease(t.Context(), agent.LeaseRequest{Run: "bench", Owner: "bench", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ch := anew()
	prepared, err := client.Prepare(t.Context(), ch)
	if err != nil {
		t.Fatal(err)
	}
	m.DestroyInstance(changed, 6)
	m.ForgetCalls()
	_, err = client.Apply(t.Context(), fence, ch, prepared.Basis, nil)
	if ae, ok := errors.AsType[*agent.Error](err); !ok || ae.Code != agent.HostChanged {
		t.Errorf("the change ends with %v", err)
	}
	if calls := m.Calls(); calls.Count("nvmlGpuInstanceDestroy") > 0 || len(calls) > 40 {
		t.Errorf("%d calls to NVML, %d of them destroy an instance", len(calls), calls.Count("nvmlGpuInstanceDestroy"))
	}
}

// anew divides one GPU anew.
func anew() agent.Change {
	return agent.Change{
		ID: "day-2", Host: host,
		Change: change.Change{
			Subject: "gpu_partition_config.day2", Owner: "bench", Token: "bench",
			Want: gpu.Want{Config: &gpu.PartitionConfig{
				ID: "day2", Kind: gpu.KindMIG, Name: "day2", MIG: &gpu.MIGLayout{Profiles: map[string]int{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}},
				GPUs: map[string][]string{host: {uuid(changed)}},
			}},
		},
	}
}

// machine is the host before the change.
func machine(t *testing.T) *fakenvml.Machine {
	t.Helper()
	model, ok := catalog.ByPCI(gpu.PCIID{Vendor: "10DE", Device: "2330"})
	if !ok || model.MIG == nil {
		t.Fatal("the catalog has no H100")
	}
	var o fakenvml.Options
	for i := range gpus {
		o.GPUs = append(o.GPUs, fakenvml.GPU{
			Model: "NVIDIA H100 80GB HBM3", UUID: uuid(i), DeviceID: 0x233010de, Memory: 80 * 1024 * gpu.MiB,
			Arch: fakenvml.Hopper, MIG: true, Profiles: model.MIG.Profiles,
		})
	}
	m := fakenvml.New(t, o)
	for i := range gpus {
		for start := range 7 {
			m.CreateInstance(i, "1g.10gb", start)
		}
		held := m.GPU(i).Instances
		if i == changed {
			held = nil // it is idle
		}
		for j, in := range held {
			m.StartProcess(i, fakenvml.Compute, gpu.Process{
				PID: 1000*(i+1) + j, Name: "train", GPUInstance: new(in.ID), ComputeInstance: new(in.Compute[0].ID),
			})
		}
	}
	return m
}

// serve runs the agent in this process.
func serve(t *testing.T, m *fakenvml.Machine) *agent.Client {
	t.Helper()
	store, err := statedir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	backend := nvidia.New(nvidia.Options{
		Library: m.Library(), SMI: m.SMI(), Root: fakenvml.NewProcTree(t).Root(), Systemctl: "/nowhere/systemctl",
	})
	conn, err := connect.InProcess(agent.NewServer(backend, store, agent.WithHostName(host)))
	if err != nil {
		t.Fatal(err)
	}
	client := agent.NewClient(conn, host)
	t.Cleanup(func() {
		for _, end := range []func() error{client.Close, conn.Close, backend.Close} {
			if err := end(); err != nil && context.Cause(t.Context()) == nil {
				t.Error(err)
			}
		}
	})
	return client
}

// uuids are the MIG devices of each GPU.
func uuids(m *fakenvml.Machine) [][]string {
	out := make([][]string, gpus)
	for i := range gpus {
		for _, in := range m.GPU(i).Instances {
			for _, c := range in.Compute {
				out[i] = append(out[i], c.UUID)
			}
		}
	}
	return out
}
