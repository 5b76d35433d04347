package simulated

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Host is one simulated host, of Hyper-V or of Linux. Every call reads the file anew and holds no
// state of its own.
type Host struct {
	fleet *Fleet
	name  string
	// hand is the document in which the host is in hand, see [Machine].
	hand *document
}

var (
	_ backend.HyperV   = (*Host)(nil)
	_ backend.MIG      = (*Host)(nil)
	_ backend.VGPU     = (*Host)(nil)
	_ backend.Sharing  = (*Host)(nil)
	_ backend.Meter    = (*Host)(nil)
	_ backend.Store    = (*Host)(nil)
	_ backend.Repairer = (*Host)(nil)
)

// Name is the host's name.
func (h *Host) Name() string { return h.name }

// Platform is the platform of the host, Hyper-V while it cannot be read.
func (h *Host) Platform(ctx context.Context) gpu.Platform {
	doc, err := h.fleet.file.read(ctx)
	if err != nil {
		return gpu.HyperV
	}
	if rec, ok := doc.host(h.name); ok {
		return rec.Platform
	}
	return gpu.HyperV
}

// Inventory reads the host.
func (h *Host) Inventory(ctx context.Context) (gpu.Host, error) {
	return h.inventory(ctx, call{op: OpInventory})
}

func (h *Host) inventory(ctx context.Context, c call) (gpu.Host, error) {
	rec, err := h.look(ctx, c)
	if err != nil {
		return gpu.Host{}, err
	}
	host := rec.Host
	host.Claims, host.PendingStarts, host.ForeignSpecs = nil, nil, rec.Simulation.ForeignSpecs
	for i := range host.VMs {
		if vm := &host.VMs[i]; vm.State != gpu.VMRunning {
			vm.Guest = "" // it is the guest that tells
		}
	}
	for i := range host.GPUs {
		if g := &host.GPUs[i]; isInMIG(g) {
			g.TimeSlice = "" // the driver tells those of full GPUs
		}
	}
	if host.Platform == gpu.Linux {
		if host.VMManager == nil && len(host.VMs) > 0 {
			host.VMManager = &gpu.VMManager{Name: gpu.Libvirt, Version: "11.3.0"} // somebody runs them
		}
		host.AttachVGPUs()
	}
	host.NameVGPUs()
	return host, nil
}

// call is one operation on one object.
type call struct {
	op                  Op
	vm, gpu, pool, unit string
	daemon, share       string
	place               string // of an instance or a vGPU on the GPU
}

// names are what a fault may call the object.
func (c call) names(r *record) []string {
	var names []string
	for _, n := range []string{c.gpu, c.place, c.vm, c.pool, c.unit, c.daemon, c.share} {
		if n != "" {
			names = append(names, n)
		}
	}
	if vm, ok := r.VM(c.vm); ok {
		names = append(names, vm.Name)
	}
	return names
}

// object is what an error says that something was tried on.
func (c call) object(r *record) string {
	switch {
	case c.vm != "":
		if vm, ok := r.VM(c.vm); ok {
			return "VM " + vm.Name
		}
		return "VM " + c.vm
	case c.gpu != "" && c.place != "":
		return "GPU " + c.gpu + ", " + c.place
	case c.gpu != "":
		return "GPU " + c.gpu
	case c.unit != "":
		return "unit " + c.unit + " of host " + r.Name
	case c.pool != "":
		return "pool " + c.pool
	case c.daemon != "":
		return "MPS daemon " + c.daemon
	case c.share != "":
		return "share " + c.share
	default:
		return "host " + r.Name
	}
}

// ReadVM reads one VM.
func (h *Host) ReadVM(ctx context.Context, vmID string) (gpu.VM, error) {
	c := call{op: OpInventory, vm: vmID}
	rec, err := h.look(ctx, c)
	if err != nil {
		return gpu.VM{}, err
	}
	if rec.Platform == gpu.Linux {
		rec.AttachVGPUs()
	}
	vm, err := rec.vm(vmID)
	if err != nil {
		return gpu.VM{}, complete(err, c, rec)
	}
	return *vm, nil
}

// look reads the host. It writes only when a fault has to be counted.
func (h *Host) look(ctx context.Context, c call) (*record, error) {
	if err := h.wait(ctx, c); err != nil {
		return nil, err
	}
	rec, err := h.peek(ctx, c)
	if err != nil || !rec.Simulation.awaits(c, c.names(rec)) {
		return rec, err
	}
	if err := h.transact(ctx, c, func(*record) error { return nil }); err != nil {
		return nil, err
	}
	return h.peek(ctx, c)
}

// peek returns a copy of the host as it stands at this moment, if it can be reached.
func (h *Host) peek(ctx context.Context, c call) (*record, error) {
	if h.hand != nil {
		return clone(Machine{h}.record()), nil
	}
	doc, err := h.fleet.file.read(ctx)
	if err != nil {
		return nil, h.lost(ctx, c, err)
	}
	shared, ok := doc.host(h.name)
	if !ok {
		return nil, h.gone(c)
	}
	if shared.Simulation.Unreachable {
		return nil, h.unreachable(c, shared.Platform)
	}
	is := *shared
	if c.op == OpLoadState { // before and after every call: the rest would be copied for nothing
		is.Host = gpu.Host{Name: shared.Name, Platform: shared.Platform, Claims: shared.Claims}
	}
	rec := clone(&is)
	rec.catchUp(time.Now())
	return rec, nil
}

// do runs one operation: the host's latency, its faults, and then act on the host.
// What act did is written, unless it fails.
func (h *Host) do(ctx context.Context, c call, act func(*record) error) error {
	if err := h.wait(ctx, c); err != nil {
		return err
	}
	return h.transact(ctx, c, act)
}

// transact is do without the latency.
func (h *Host) transact(ctx context.Context, c call, act func(*record) error) error {
	return h.transactAll(ctx, c, func(_ *document, r *record) error { return act(r) })
}

// transactAll is transact for what concerns other hosts of the fleet as well. When act
// fails it has to have left those as they were.
func (h *Host) transactAll(ctx context.Context, c call, act func(*document, *record) error) error {
	if h.hand != nil {
		rec, _ := h.hand.open(h.name, c.op, time.Now())
		defer func() { rec.stands = false }()
		return h.act(rec, c, func(r *record) error { return act(h.hand, r) })
	}
	// A refusal is not an error of the update: the faults that it used up are kept.
	var refusal error
	err := h.fleet.file.update(ctx, func(d *document) error {
		now := time.Now()
		rec, ok := d.open(h.name, c.op, now)
		if !ok {
			refusal = h.gone(c)
			return nil
		}
		if rec.Simulation.Unreachable {
			refusal = h.unreachable(c, rec.Platform)
			return nil
		}
		fault := rec.Simulation.takeFault(c, c.names(rec))
		if fault != nil && fault.Moment != AfterEffect && fault.Moment != HalfWay {
			refusal = complete(fault.err(), c, rec)
			return nil
		}
		rec.halfway = fault != nil && fault.Moment == HalfWay
		refusal = h.act(rec, c, func(r *record) error { return act(d, r) })
		if refusal != nil && !rec.stands {
			before := d.undo(h.name, now)
			before.Simulation.takeFault(c, c.names(before)) // it was used up all the same
		} else {
			rec.halfway, rec.stands = false, false
			if c.op != OpUpdateState {
				rec.refreshStatuses()
			}
		}
		if fault != nil {
			refusal = complete(fault.err(), c, rec)
		}
		return nil
	})
	if err != nil {
		return h.lost(ctx, c, err)
	}
	return refusal
}

func (h *Host) act(rec *record, c call, act func(*record) error) error {
	if err := c.op.offeredBy(rec.Platform); err != nil {
		return complete(err, c, rec)
	}
	if rec.Platform == gpu.Linux && c.vm != "" && len(rec.VMs) == 0 {
		return complete(refuse(backend.NotSupported, "the host runs no VMs"), c, rec)
	}
	return complete(act(rec), c, rec)
}

// wait lets the operation's latency pass.
func (h *Host) wait(ctx context.Context, c call) error {
	if h.hand != nil {
		return nil
	}
	doc, err := h.fleet.file.read(ctx)
	if err != nil {
		return h.lost(ctx, c, err)
	}
	rec, ok := doc.host(h.name)
	if !ok {
		return h.gone(c)
	}
	if err := sleep(ctx, rec.Simulation.latency(c.op)); err != nil {
		return complete(refuse(backend.Timeout, "the host had not answered when time ran out: %v", err), c, rec)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lost is a fleet file that cannot be used: to the caller, a host that does not answer.
func (h *Host) lost(ctx context.Context, c call, err error) error {
	code := backend.Unavailable
	if ctx.Err() != nil {
		code = backend.Timeout
	}
	return &backend.Error{Code: code, Op: phrases[c.op], Object: "host " + h.name, Detail: err.Error()}
}

func (h *Host) gone(c call) error {
	return h.lost(context.Background(), c, h.fleet.file.fail(fmt.Errorf("there is no host %q in it any more", h.name)))
}

func (h *Host) unreachable(c call, platform gpu.Platform) error {
	why := "the RPC server is unavailable (0x800706BA)"
	if platform == gpu.Linux {
		why = "no route to host"
	}
	return h.lost(context.Background(), c, errors.New(why))
}

// refuse is a refusal that does not say yet what was tried on what.
func refuse(code backend.Code, format string, args ...any) error {
	return &backend.Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// complete says in a refusal what was tried on what.
func complete(err error, c call, r *record) error {
	refusal, ok := errors.AsType[*backend.Error](err)
	if !ok || refusal.Op != "" {
		return err
	}
	out := *refusal
	out.Op, out.Object = phrases[c.op], c.object(r)
	return &out
}
