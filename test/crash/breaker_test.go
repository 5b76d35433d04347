//go:build linux || darwin

package crash_test

import (
	"context"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// moment is where at a write a disaster strikes. After a write is the same as before
// the next one, so only the last has an after.
type moment string

const (
	beforeWrite moment = "before"
	duringWrite moment = "during" // such as while a guest shuts down and has not finished
	afterWrite  moment = "after"
)

// Some writes. Shutting down takes a while.
const (
	shutDown = "shut down"
	startUp  = "start"
	record   = "record"
)

// intoShutdown is how long after the request to a guest a disaster strikes.
const intoShutdown = 15 * time.Millisecond

// breaker stands between an agent and its host. It counts the writes, to the host and
// to the agent's own records, and lets a disaster strike at one of them.
type breaker struct {
	backend.HyperV
	backend.MIG
	backend.Sharing
	store    backend.Store
	platform func(context.Context) gpu.Platform
	at       int // counted from 1; 0 for never
	when     moment
	failAt   int // of the writes to the host alone; 0 for never
	// strike is the disaster. Those that the agent survives return.
	strike func()
	// write makes each write, so that a full disk can fail some.
	write func(target, func() error) error

	mu     sync.Mutex
	writes []string
	toHost int // how many of them went to the host
}

// target is what a write goes to.
type target int

const (
	toHost target = iota
	toRecords
)

func (b *breaker) do(name string, to target, write func() error) error {
	b.mu.Lock()
	b.writes = append(b.writes, name)
	hit := len(b.writes) == b.at
	if to == toHost {
		b.toHost++
	}
	if to == toHost && b.toHost == b.failAt {
		write = func() error { return &backend.Error{Code: backend.Failed, Op: name, Detail: "it is to fail here"} }
	}
	b.mu.Unlock()
	if !hit {
		return b.write(to, write)
	}
	switch b.when {
	case beforeWrite:
		b.strike()
	case duringWrite:
		struck := make(chan struct{})
		time.AfterFunc(intoShutdown, func() {
			defer close(struck)
			b.strike()
		})
		defer func() { <-struck }()
	case afterWrite:
		defer b.strike()
	}
	return b.write(to, write)
}

func (b *breaker) made() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes
}

func (b *breaker) Load(ctx context.Context) (backend.State, error) { return b.store.Load(ctx) }

func (b *breaker) Update(ctx context.Context, f func(*backend.State) error) error {
	return b.do(record, toRecords, func() error { return b.store.Update(ctx, f) })
}

func (b *breaker) SetPartitionCount(ctx context.Context, gpuID string, count int) error {
	return b.do("set the count", toHost, func() error { return b.HyperV.SetPartitionCount(ctx, gpuID, count) })
}

func (b *breaker) AddPartitionAdapter(ctx context.Context, vmID string, a gpu.PartitionAdapter) (id string, err error) {
	err = b.do("add an adapter", toHost, func() error {
		id, err = b.HyperV.AddPartitionAdapter(ctx, vmID, a)
		return err
	})
	return id, err
}

func (b *breaker) SetPartitionQuotas(ctx context.Context, vmID, adapterID string, q gpu.Quotas) error {
	return b.do("set quotas", toHost, func() error { return b.HyperV.SetPartitionQuotas(ctx, vmID, adapterID, q) })
}

func (b *breaker) RemovePartitionAdapter(ctx context.Context, vmID, adapterID string) error {
	return b.do("remove an adapter", toHost, func() error { return b.HyperV.RemovePartitionAdapter(ctx, vmID, adapterID) })
}

func (b *breaker) DismountDevice(ctx context.Context, gpuID string, force bool) error {
	return b.do("dismount", toHost, func() error { return b.HyperV.DismountDevice(ctx, gpuID, force) })
}

func (b *breaker) MountDevice(ctx context.Context, gpuID string) error {
	return b.do("mount", toHost, func() error { return b.HyperV.MountDevice(ctx, gpuID) })
}

func (b *breaker) CreatePool(ctx context.Context, name string) error {
	return b.do("create the pool", toHost, func() error { return b.HyperV.CreatePool(ctx, name) })
}

func (b *breaker) SetPoolMembers(ctx context.Context, name string, gpuIDs []string) error {
	return b.do("set the pool's members", toHost, func() error { return b.HyperV.SetPoolMembers(ctx, name, gpuIDs) })
}

func (b *breaker) DeletePool(ctx context.Context, name string) error {
	return b.do("delete the pool", toHost, func() error { return b.HyperV.DeletePool(ctx, name) })
}

func (b *breaker) AddDevice(ctx context.Context, vmID string, d gpu.DeviceAssignment) (id string, err error) {
	err = b.do("add a device", toHost, func() error {
		id, err = b.HyperV.AddDevice(ctx, vmID, d)
		return err
	})
	return id, err
}

func (b *breaker) RemoveDevice(ctx context.Context, vmID, deviceID string) error {
	return b.do("remove a device", toHost, func() error { return b.HyperV.RemoveDevice(ctx, vmID, deviceID) })
}

func (b *breaker) ApplyVMSettings(ctx context.Context, vmID string, s gpu.VMSettings) error {
	return b.do("write settings", toHost, func() error { return b.HyperV.ApplyVMSettings(ctx, vmID, s) })
}

func (b *breaker) ShutDownVM(ctx context.Context, vmID string, force bool) error {
	return b.do(shutDown, toHost, func() error { return b.HyperV.ShutDownVM(ctx, vmID, force) })
}

func (b *breaker) TurnOffVM(ctx context.Context, vmID string) error {
	return b.do("turn off", toHost, func() error { return b.HyperV.TurnOffVM(ctx, vmID) })
}

func (b *breaker) StartVM(ctx context.Context, vmID string) error {
	return b.do(startUp, toHost, func() error { return b.HyperV.StartVM(ctx, vmID) })
}

func (b *breaker) DrainNode(ctx context.Context) error {
	return b.do("drain the node", toHost, func() error { return b.HyperV.DrainNode(ctx) })
}

func (b *breaker) ResumeNode(ctx context.Context) error {
	return b.do("resume the node", toHost, func() error { return b.HyperV.ResumeNode(ctx) })
}
