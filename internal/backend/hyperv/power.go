package hyperv

import (
	"context"
	"errors"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// States that a VM can be asked to go to (RequestStateChange).
const (
	requestRunning int32 = 2
	requestOff     int32 = 3
)

// powerPoll is how often a VM is looked at that starts or shuts down.
const powerPoll = 100 * time.Millisecond

// vm is what power operations need to know of a VM.
type vm struct {
	path, id, name string
	state          gpu.VMState
}

// onVM runs an operation on a VM, which errors name as people do.
func (b *Backend) onVM(ctx context.Context, op, vmID string, act func(vm) error) error {
	name := "VM " + vmID
	found, err := b.vm(ctx, vmID)
	if err == nil {
		name = "VM " + found.name
		err = act(found)
	}
	return complete(ctx, err, op, name)
}

// vm looks at one VM.
func (b *Backend) vm(ctx context.Context, id string) (vm, error) {
	if !guid.MatchString(id) {
		return vm{}, refuse(backend.NotFound, "the host has no such VM")
	}
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name="+literal(id),
		"Name", "ElementName", "EnabledState")
	if err != nil {
		return vm{}, err
	}
	if len(rows) == 0 {
		// Hyper-V shows nothing to an account without rights, and no VM is then no answer.
		if _, err := b.nodeName(ctx); err != nil {
			return vm{}, err
		}
		return vm{}, refuse(backend.NotFound, "the host has no such VM")
	}
	return vm{path: rows[0].Path, id: id, name: rows[0].String("ElementName"), state: vmState(rows[0].Uint("EnabledState"))}, nil
}

// ShutDownVM asks the guest and waits until the VM is off. The guest goes on when ctx
// ends: a request cannot be taken back.
func (b *Backend) ShutDownVM(ctx context.Context, vmID string, force bool) error {
	return b.onVM(ctx, "shut the VM down", vmID, func(v vm) error {
		asked, goes := false, false
		for {
			switch v.state {
			case gpu.VMOff:
				return nil
			case gpu.VMRunning:
				if goes {
					return refuse(backend.InUse, "it runs again: somebody started it as soon as it was off")
				}
				if !asked {
					var err error
					if asked, err = b.ask(ctx, v, force); err != nil {
						return err
					}
				}
			case gpu.VMStopping:
				asked, goes = true, true
			default:
				if !asked {
					return refuse(backend.InvalidState, "the VM is %s, so its guest cannot be asked (%d)", v.state, rvInvalidState)
				}
			}
			if err := sleep(ctx, powerPoll); err != nil {
				if !asked {
					return refuse(backend.Timeout, "the guest runs no shutdown service, or it was not ready when time ran out; the VM is %s", v.state)
				}
				return refuse(backend.Timeout, "the guest had not shut down when time ran out; the VM is %s", v.state)
			}
			next, err := b.vm(ctx, vmID)
			if err != nil && ctx.Err() == nil {
				return err
			}
			if err == nil {
				v = next
			}
		}
	})
}

// ask asks the guest's shutdown service. A guest that boots has none yet.
func (b *Backend) ask(ctx context.Context, v vm, force bool) (asked bool, err error) {
	// Assumption hyperv-shutdown-component.
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_ShutdownComponent WHERE SystemName="+literal(v.id), "SystemName")
	if err != nil || len(rows) == 0 {
		return false, err
	}
	res, err := b.wmi.Invoke(ctx, Virtualization, rows[0].Path, "InitiateShutdown", map[string]any{
		"Force": force, "Reason": "the GPU of this virtual machine is being changed",
	})
	if errors.Is(err, NotFound) {
		return false, nil // the guest has gone down since
	}
	if err != nil {
		return false, err
	}
	switch res.ReturnValue {
	case completed, rvShuttingDown:
		return true, nil
	case jobStarted:
		job, _ := res.Out["Job"].(string)
		return true, looked(b.await(ctx, "InitiateShutdown", job))
	case rvNotReady:
		return false, nil
	case rvInvalidState:
		if now, err := b.vm(ctx, v.id); err == nil && now.state != gpu.VMRunning {
			return false, nil // it has left the state in which it can be asked
		}
		return false, refused("InitiateShutdown", res.ReturnValue, "")
	case rvLocked:
		return false, refuse(backend.Locked, "the machine is locked and cannot be shut down without the force option (%d)", rvLocked)
	default:
		return false, refused("InitiateShutdown", res.ReturnValue, "")
	}
}

// TurnOffVM cuts the power.
func (b *Backend) TurnOffVM(ctx context.Context, vmID string) error {
	return b.onVM(ctx, "turn the VM off", vmID, func(v vm) error {
		switch v.state {
		case gpu.VMOff:
			return nil
		case gpu.VMSaved:
			return refuse(backend.InvalidState, "the VM is saved: there is no power to cut (%d)", rvInvalidState)
		}
		if err := b.request(ctx, v, requestOff, gpu.VMOff); err != nil {
			return err
		}
		return b.reaches(ctx, v, gpu.VMOff)
	})
}

// StartVM starts, resumes or restores a VM. A clustered one is brought online by the
// cluster, which knows whether its node may run it.
func (b *Backend) StartVM(ctx context.Context, vmID string) error {
	return b.onVM(ctx, "start the VM", vmID, func(v vm) error {
		switch v.state {
		case gpu.VMRunning:
			return nil
		case gpu.VMOff, gpu.VMSaved, gpu.VMPaused:
		case gpu.VMStarting:
			return b.reaches(ctx, v, gpu.VMRunning)
		default:
			return refuse(backend.InvalidState, "the VM is %s and cannot be started (%d)", v.state, rvInvalidState)
		}
		if v.state != gpu.VMPaused {
			resource, err := b.clustered(ctx, v.id, v.name)
			if err != nil {
				return err
			}
			if resource.Path != "" {
				return b.bringOnline(ctx, v, resource)
			}
		}
		if err := b.request(ctx, v, requestRunning, gpu.VMRunning); err != nil {
			return err
		}
		return b.reaches(ctx, v, gpu.VMRunning)
	})
}

// request asks Hyper-V for a VM's next state. That the VM is on its way there already,
// because somebody else asked, is no failure.
func (b *Backend) request(ctx context.Context, v vm, state int32, wanted gpu.VMState) error {
	err := looked(b.invoke(ctx, v.path, "RequestStateChange", map[string]any{"RequestedState": state}))
	if !backend.Is(err, backend.InvalidState) {
		return err
	}
	now, lookErr := b.vm(ctx, v.id)
	if lookErr == nil && (now.state == wanted || (wanted == gpu.VMRunning && now.state == gpu.VMStarting)) {
		return nil
	}
	return err
}

// reaches waits until the VM is as wanted. The host took the call, so a VM that stays
// as it was for long, or falls back, will not come there any more.
func (b *Backend) reaches(ctx context.Context, v vm, wanted gpu.VMState) error {
	began := time.Now()
	last := v.state
	for {
		now, err := b.vm(ctx, v.id)
		switch {
		case err == nil:
			last = now.state
		case ctx.Err() == nil:
			return movedAway(err)
		}
		if last == wanted {
			return nil
		}
		if wanted == gpu.VMRunning && last == gpu.VMOff && v.state != gpu.VMOff {
			return refuse(backend.Failed, "the VM went off while it started")
		}
		if last == v.state && v.state != gpu.VMStarting && time.Since(began) > b.patience {
			return refuse(backend.Failed, "the host took the call, but the VM is still %s after %s", last, b.patience)
		}
		if err := sleep(ctx, powerPoll); err != nil {
			return refuse(backend.Timeout, "the VM was %s when time ran out, not %s", last, wanted)
		}
	}
}

// movedAway is an error of a look at a VM that was there.
func movedAway(err error) error {
	if backend.Is(err, backend.NotFound) {
		return refuse(backend.NotFound, "the host does not have the VM any more: it was deleted, or its cluster runs it on another node")
	}
	return err
}
