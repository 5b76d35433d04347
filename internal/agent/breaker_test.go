package agent_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// breaker stands between an agent and its host. It counts the writes, to the host and
// to the store, and lets one of them fail, or lets the agent die at it.
type breaker struct {
	backend.HyperV
	backend.MIG
	backend.VGPU
	backend.Sharing
	backend.Meter
	store    backend.Store
	platform func(context.Context) gpu.Platform

	mu     sync.Mutex
	writes int
	at     int // the write that goes wrong, from 1; 0 for none
	mode   mode
	dead   bool
	struck string             // the write that went wrong
	hook   func(write string) // called before each write to the host
	// everyWrite is called before each write, with its number.
	everyWrite func(n int)
	// afterWrite is called after the next write, once.
	afterWrite func()
	refuse     []string // the writes that always fail
	// The store refuses writes, or reads.
	noWrites, noReads bool
}

type mode int

const (
	failBefore mode = iota // the write does not happen and fails
	failAfter              // the write happens and is reported as failed
	dieBefore              // the agent dies before the write
	dieAfter               // the agent dies after the write
)

func (m mode) String() string {
	return [...]string{"fails", "fails although done", "dies before", "dies after"}[m]
}

// arm lets a write go wrong, counted from now.
func (b *breaker) arm(at int, m mode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes, b.at, b.mode = 0, at, m
}

func (b *breaker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes
}

var (
	errInjected = &backend.Error{Code: backend.Failed, Op: "write", Object: "the host", Detail: "injected failure"}
	errDead     = &backend.Error{Code: backend.Unavailable, Op: "write", Object: "the host", Detail: "the agent is dead"}
)

func (b *breaker) write(name string, do func() error) error {
	defer func() {
		b.mu.Lock()
		then := b.afterWrite
		b.afterWrite = nil
		b.mu.Unlock()
		if then != nil {
			then()
		}
	}()
	b.mu.Lock()
	if b.dead {
		b.mu.Unlock()
		return errDead
	}
	b.writes++
	n, hit, hook, everyWrite := b.writes, b.writes == b.at, b.hook, b.everyWrite
	if hit {
		b.struck = name
	}
	if hit && b.mode >= dieBefore {
		b.dead = true
	}
	b.mu.Unlock()
	if hook != nil {
		hook(name)
	}
	if everyWrite != nil {
		everyWrite(n)
	}
	if slices.Contains(b.refuse, name) {
		return errInjected
	}
	if !hit {
		return do()
	}
	switch b.mode {
	case failAfter:
		if err := do(); err != nil {
			return err
		}
		return errInjected
	case dieAfter:
		_ = do()
		return errDead
	case dieBefore:
		return errDead
	}
	return errInjected
}

func (b *breaker) alive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return errDead
	}
	return nil
}

// Platform tells which of the interfaces are meant.
func (b *breaker) Platform(ctx context.Context) gpu.Platform { return b.platform(ctx) }

func (b *breaker) Inventory(ctx context.Context) (gpu.Host, error) {
	if err := b.alive(); err != nil {
		return gpu.Host{}, err
	}
	return b.HyperV.Inventory(ctx)
}

// breakStore lets the store refuse writes, or reads, from now on.
func (b *breaker) breakStore(writes, reads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noWrites, b.noReads = writes, reads
}

// refused is the error of a store that is broken.
func (b *breaker) refused(broken *bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *broken {
		return errors.New("read-only file system")
	}
	return nil
}

func (b *breaker) Load(ctx context.Context) (backend.State, error) {
	if err := cmp.Or(b.alive(), b.refused(&b.noReads)); err != nil {
		return backend.State{}, err
	}
	return b.store.Load(ctx)
}

func (b *breaker) Update(ctx context.Context, f func(*backend.State) error) error {
	return b.write("update", func() error {
		if err := b.refused(&b.noWrites); err != nil {
			return err
		}
		return b.store.Update(ctx, f)
	})
}

// Cluster is the host's cluster; what goes to its store is counted too.
func (b *breaker) Cluster(ctx context.Context) (*backend.Cluster, error) {
	clustered, ok := b.HyperV.(backend.Clustered)
	if !ok {
		return nil, nil
	}
	c, err := clustered.Cluster(ctx)
	if err != nil || c == nil {
		return nil, err
	}
	known := *c // the host keeps its own
	known.Store = &brokenStore{Store: c.Store, breaker: b}
	return &known, nil
}

// brokenStore is the store of the cluster behind a breaker.
type brokenStore struct {
	backend.Store
	breaker *breaker
}

func (s *brokenStore) Update(ctx context.Context, f func(*backend.State) error) error {
	return s.breaker.write("update cluster", func() error { return s.Store.Update(ctx, f) })
}

func (b *breaker) SetPartitionCount(ctx context.Context, gpuID string, count int) error {
	return b.write("count", func() error { return b.HyperV.SetPartitionCount(ctx, gpuID, count) })
}

func (b *breaker) AddPartitionAdapter(ctx context.Context, vmID string, a gpu.PartitionAdapter) (id string, err error) {
	err = b.write("add adapter", func() error {
		id, err = b.HyperV.AddPartitionAdapter(ctx, vmID, a)
		return err
	})
	return id, err
}

func (b *breaker) SetPartitionQuotas(ctx context.Context, vmID, adapterID string, q gpu.Quotas) error {
	return b.write("quotas", func() error { return b.HyperV.SetPartitionQuotas(ctx, vmID, adapterID, q) })
}

func (b *breaker) RemovePartitionAdapter(ctx context.Context, vmID, adapterID string) error {
	return b.write("remove adapter", func() error { return b.HyperV.RemovePartitionAdapter(ctx, vmID, adapterID) })
}

func (b *breaker) DismountDevice(ctx context.Context, gpuID string, force bool) error {
	return b.write("dismount", func() error { return b.HyperV.DismountDevice(ctx, gpuID, force) })
}

func (b *breaker) MountDevice(ctx context.Context, gpuID string) error {
	return b.write("mount", func() error { return b.HyperV.MountDevice(ctx, gpuID) })
}

func (b *breaker) CreatePool(ctx context.Context, name string) error {
	return b.write("create pool", func() error { return b.HyperV.CreatePool(ctx, name) })
}

func (b *breaker) SetPoolMembers(ctx context.Context, name string, gpuIDs []string) error {
	return b.write("members", func() error { return b.HyperV.SetPoolMembers(ctx, name, gpuIDs) })
}

func (b *breaker) DeletePool(ctx context.Context, name string) error {
	return b.write("delete pool", func() error { return b.HyperV.DeletePool(ctx, name) })
}

func (b *breaker) AddDevice(ctx context.Context, vmID string, d gpu.DeviceAssignment) (id string, err error) {
	err = b.write("add device", func() error {
		id, err = b.HyperV.AddDevice(ctx, vmID, d)
		return err
	})
	return id, err
}

func (b *breaker) RemoveDevice(ctx context.Context, vmID, deviceID string) error {
	return b.write("remove device", func() error { return b.HyperV.RemoveDevice(ctx, vmID, deviceID) })
}

func (b *breaker) ApplyVMSettings(ctx context.Context, vmID string, s gpu.VMSettings) error {
	return b.write("settings", func() error { return b.HyperV.ApplyVMSettings(ctx, vmID, s) })
}

func (b *breaker) ShutDownVM(ctx context.Context, vmID string, force bool) error {
	return b.write("shut down", func() error { return b.HyperV.ShutDownVM(ctx, vmID, force) })
}

func (b *breaker) TurnOffVM(ctx context.Context, vmID string) error {
	return b.write("turn off", func() error { return b.HyperV.TurnOffVM(ctx, vmID) })
}

func (b *breaker) StartVM(ctx context.Context, vmID string) error {
	return b.write("start", func() error { return b.HyperV.StartVM(ctx, vmID) })
}

func (b *breaker) DrainNode(ctx context.Context) error {
	return b.write("drain", func() error { return b.HyperV.DrainNode(ctx) })
}

func (b *breaker) SetMIGMode(ctx context.Context, gpuID string, on, reset bool) error {
	return b.write("mode", func() error { return b.MIG.SetMIGMode(ctx, gpuID, on, reset) })
}

func (b *breaker) CreateInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return b.write("create instance", func() error { return b.MIG.CreateInstance(ctx, gpuID, p) })
}

func (b *breaker) DestroyInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return b.write("destroy instance", func() error { return b.MIG.DestroyInstance(ctx, gpuID, p) })
}

func (b *breaker) RefreshDevices(ctx context.Context) error {
	return b.write("refresh", func() error { return b.MIG.RefreshDevices(ctx) })
}

func (b *breaker) StopUnit(ctx context.Context, name string) error {
	return b.write("stop unit", func() error { return b.MIG.StopUnit(ctx, name) })
}

func (b *breaker) StartUnit(ctx context.Context, name string) error {
	return b.write("start unit", func() error { return b.MIG.StartUnit(ctx, name) })
}

func (b *breaker) SetVirtualFunctions(ctx context.Context, gpuID string, on bool) error {
	return b.write("functions", func() error { return b.VGPU.SetVirtualFunctions(ctx, gpuID, on) })
}

func (b *breaker) SetHeterogeneous(ctx context.Context, gpuID string, on bool) error {
	return b.write("heterogeneous", func() error { return b.VGPU.SetHeterogeneous(ctx, gpuID, on) })
}

func (b *breaker) CreateVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error {
	return b.write("create vGPU", func() error { return b.VGPU.CreateVGPU(ctx, gpuID, p) })
}

func (b *breaker) RemoveVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error {
	return b.write("remove vGPU", func() error { return b.VGPU.RemoveVGPU(ctx, gpuID, p) })
}

func (b *breaker) ResumeNode(ctx context.Context) error {
	return b.write("resume", func() error { return b.HyperV.ResumeNode(ctx) })
}

func (b *breaker) SetComputeMode(ctx context.Context, gpuID string, mode gpu.ComputeMode) error {
	return b.write("compute mode", func() error { return b.Sharing.SetComputeMode(ctx, gpuID, mode) })
}

func (b *breaker) SetTimeSlice(ctx context.Context, gpuID string, t gpu.TimeSlice) error {
	return b.write("time slice", func() error { return b.Sharing.SetTimeSlice(ctx, gpuID, t) })
}

func (b *breaker) EnsureDaemon(ctx context.Context, d gpu.MPSDaemonSpec, endClients bool) error {
	return b.write("ensure daemon", func() error { return b.Sharing.EnsureDaemon(ctx, d, endClients) })
}

func (b *breaker) RemoveDaemon(ctx context.Context, name string, endClients bool) error {
	return b.write("remove daemon", func() error { return b.Sharing.RemoveDaemon(ctx, name, endClients) })
}

func (b *breaker) WriteShare(ctx context.Context, s gpu.ShareSpec) error {
	return b.write("write share", func() error { return b.Sharing.WriteShare(ctx, s) })
}

func (b *breaker) RemoveShare(ctx context.Context, name string, endClients bool) error {
	return b.write("remove share", func() error { return b.Sharing.RemoveShare(ctx, name, endClients) })
}
