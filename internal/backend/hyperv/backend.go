package hyperv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Backend is one Hyper-V host.
type Backend struct {
	wmi WMI
	// busy is held by the call that changes settings. Hyper-V takes calls at the same
	// time, but two that replace the members of one pool would lose one, and which of
	// two new adapters is whose could not be told. Starting and stopping VMs takes
	// minutes and waits for nobody.
	busy    chan struct{}
	cluster clusterStore
	// patience bounds the wait for the host to show what it was told to do.
	patience time.Duration
	// declared are services that people declared to manage or use GPUs or VMs here.
	declared map[string]gpu.ControllerRole
	// lasting is what once has read.
	lasting sync.Map
}

var (
	_ backend.HyperV     = (*Backend)(nil)
	_ backend.Refresher  = (*Backend)(nil)
	_ backend.Clustered  = (*Backend)(nil)
	_ backend.SelfTester = (*Backend)(nil)

	_ backend.ChangeTester = (*Backend)(nil)
)

// defaultPatience is how long a driver may take to show a new partition count, and Plug and
// Play a device that moved.
const defaultPatience = time.Minute

// undoTime is the budget of what takes a change back that failed. It is apart from the
// caller's, whose time may have run out.
const undoTime = time.Minute

// New is a backend over an open connection, which stays the caller's to close.
func New(wmi WMI) *Backend {
	return &Backend{wmi: placed{wmi}, busy: make(chan struct{}, 1), patience: defaultPatience}
}

// WithControllers adds services that people declared to manage or use GPUs or VMs here.
func (b *Backend) WithControllers(declared map[string]gpu.ControllerRole) *Backend {
	b.declared = declared
	return b
}

// Inventory reads the host.
func (b *Backend) Inventory(ctx context.Context) (gpu.Host, error) {
	v, err := b.read(ctx)
	if err != nil {
		return gpu.Host{}, complete(ctx, err, "read the inventory", "the host")
	}
	return v.host, nil
}

// change runs a call that changes settings, one at a time, on a fresh view of what it
// needs.
func (b *Backend) change(ctx context.Context, op, object string, n need, act func(*view) error) error {
	select {
	case b.busy <- struct{}{}:
		defer func() { <-b.busy }()
	case <-ctx.Done():
		return complete(ctx, ctx.Err(), op, object)
	}
	v, err := b.readOnly(ctx, n)
	if err == nil {
		err = act(v)
	}
	return complete(ctx, err, op, object)
}

// changeVM is change on a VM, which errors name as people do.
func (b *Backend) changeVM(ctx context.Context, op, vmID string, n need, act func(*view, *gpu.VM) error) error {
	name := "VM " + vmID
	n.of |= ofVMs
	err := b.change(ctx, "", "", n, func(v *view) error {
		if err := v.knows(vmID, nil, gpu.PartVMs); err != nil {
			return err
		}
		vm, ok := v.host.VM(vmID)
		if !ok {
			return refuse(backend.NotFound, "the host has no such VM")
		}
		name = "VM " + vm.Name
		if v.machine(vm).settings == "" {
			return refuse(backend.Unavailable, "the host does not show the VM's settings yet")
		}
		return act(v, vm)
	})
	return complete(ctx, err, op, name)
}

// mustBeOff refuses a VM whose hardware cannot be changed now. One that is saved or
// paused is not off: its memory still knows the old hardware.
func mustBeOff(vm *gpu.VM) error {
	if vm.State == gpu.VMOff {
		return nil
	}
	return refuse(backend.InvalidState, "the VM is %s and must be off", vm.State)
}

// until polls until the host shows what it was told to do.
func (b *Backend) until(ctx context.Context, what string, shown func() (bool, error)) error {
	deadline := time.Now().Add(b.patience)
	for i := 0; ; i++ {
		done, err := shown()
		if err != nil || done {
			return err
		}
		if time.Now().After(deadline) {
			return refuse(backend.Timeout, "the host took the call, but %s after %s", what, b.patience)
		}
		if err := sleep(ctx, jobPolls[min(i, len(jobPolls)-1)]); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// gone tells whether an instance does not exist any more.
func (b *Backend) gone(ctx context.Context, path string) (bool, error) {
	_, err := b.wmi.Get(ctx, Virtualization, path)
	if errors.Is(err, NotFound) {
		return true, nil
	}
	return false, err
}

// service is the path of a service of Hyper-V, of which each host has one.
func (b *Backend) service(ctx context.Context, class string) (string, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM "+class, "Name")
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "", refuse(backend.Unavailable, "the host has no %s: Hyper-V does not run properly", class)
	}
	return rows[0].Path, nil
}

// template is the settings that a new device of a VM begins with: the row that Hyper-V
// calls the default. Rows of VMs are in the same class.
func (b *Backend) template(ctx context.Context, class string) (*embedded, error) {
	text, err := b.once("template of "+class, func() (string, error) {
		rows, err := b.wmi.Query(ctx, Virtualization,
			"SELECT * FROM "+class+" WHERE InstanceID LIKE "+literal("%"+defaultSuffix), "InstanceID", "ResourceSubType")
		if err != nil {
			return "", err
		}
		for _, row := range rows {
			if hasPrefixFold(row.String("InstanceID"), definitionPrefix) {
				return b.wmi.Text(ctx, Virtualization, row.Path)
			}
		}
		return "", refuse(backend.NotSupported, "the host has no template for %s: it has no such devices to give", class)
	})
	if err != nil {
		return nil, err
	}
	return parseEmbedded(text)
}

// once reads what a host keeps for as long as it runs.
func (b *Backend) once(what string, read func() (string, error)) (string, error) {
	if known, ok := b.lasting.Load(what); ok {
		return known.(string), nil //nolint:forcetypeassert // nothing else is stored
	}
	text, err := read()
	if err == nil {
		b.lasting.Store(what, text)
	}
	return text, err
}

// embedded reads an instance to be patched.
func (b *Backend) embedded(ctx context.Context, path string) (*embedded, error) {
	text, err := b.wmi.Text(ctx, Virtualization, path)
	if err != nil {
		return nil, err
	}
	return parseEmbedded(text)
}

// rowsOf is a query of a class that Windows may be too old for, which then has no rows.
func (b *Backend) rowsOf(ctx context.Context, wql string, properties ...string) ([]Row, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, wql, properties...)
	if errors.Is(err, InvalidClass) {
		return nil, nil
	}
	return rows, err
}
