package vgpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

const (
	opEnable  = "enable the virtual functions"
	opDisable = "disable the virtual functions"
)

// unbindLock is what sriov-manage says while another process has the GPU open. The lock
// is the driver's, and the reason why writing sriov_numvfs by hand is refused.
const unbindLock = "Cannot obtain unbindLock"

// scriptLimit bounds one run of sriov-manage, and attempts is how often it is tried.
const (
	scriptLimit = 5 * time.Minute
	attempts    = 5
)

// EnableVFs turns a GPU's virtual functions on, all of them, which is the only number
// that NVIDIA supports. It destroys the GPU's MIG instances and ends heterogeneous mode.
func (h *Host) EnableVFs(ctx context.Context, g *GPU) error {
	if g.SRIOV == nil {
		return refuse(g.Address, opEnable, backend.NotSupported, "it has no SR-IOV (%s): its vGPUs are made on the GPU itself",
			h.device(g.Address, "sriov_totalvfs"))
	}
	if !g.VFsOn() {
		if err := h.manage(ctx, g.Address, opEnable, "-e"); err != nil {
			return err
		}
	}
	var found GPU
	shown, err := h.until(ctx, func() (bool, error) {
		var err error
		found, err = h.readFunctions(g.Address)
		return found.VFsOn() && found.Shape != ShapeNone && len(found.Functions) == found.SRIOV.Enabled, err
	})
	switch {
	case err != nil:
		return err
	case shown:
		return nil
	case !found.VFsOn():
		return refuse(g.Address, opEnable, backend.Failed, "%s reported no error, but %s reads %d, wanted %d; does sriov-manage know this GPU?",
			h.Script, h.device(g.Address, "sriov_numvfs"), found.SRIOV.Enabled, found.SRIOV.Total)
	}
	return refuse(g.Address, opEnable, backend.Unavailable,
		"found %d of %d virtual functions, but they offer no vGPUs after %s (neither nvidia/creatable_vgpu_types nor mdev_supported_types); "+
			"is the vGPU Manager's driver loaded and nvidia-vgpu-mgr running?", len(found.Functions), found.SRIOV.Enabled, h.Patience)
}

// DisableVFs turns a GPU's virtual functions off. It refuses while one has a vGPU or is
// held: sriov-manage itself would take them away.
func (h *Host) DisableVFs(ctx context.Context, g *GPU) error {
	if !g.VFsOn() {
		return nil
	}
	for _, f := range g.Functions {
		if len(f.Holders) > 0 {
			return refuse(g.Address, opDisable, backend.InUse, "virtual function %s is held by %s; shut it down first",
				f.Address, holders(f.Holders))
		}
		if len(f.VGPUs) > 0 {
			return refuse(g.Address, opDisable, backend.InUse, "virtual function %s has a vGPU %s; remove it first",
				f.Address, f.VGPUs[0].Type.ShortName())
		}
	}
	if g.HoldersHidden {
		return h.blind(g.Address, opDisable)
	}
	if err := h.manage(ctx, g.Address, opDisable, "-d"); err != nil {
		return err
	}
	var found GPU
	shown, err := h.until(ctx, func() (bool, error) {
		var err error
		found, err = h.readFunctions(g.Address)
		return !found.VFsOn() && len(found.Functions) == 0, err
	})
	if err == nil && !shown {
		err = refuse(g.Address, opDisable, backend.Failed, "%s reported no error, but %s reads %d, wanted 0",
			h.Script, h.device(g.Address, "sriov_numvfs"), found.SRIOV.Enabled)
	}
	return err
}

// manage runs sriov-manage with NVML closed. Once begun it is not interrupted: between
// its unbinding and its binding the GPU has no driver.
func (h *Host) manage(ctx context.Context, address, op, flag string) (err error) {
	if h.NVML != nil {
		resume, err := h.NVML.Suspend(ctx)
		if err != nil {
			return failed(address, op, err, "could not close NVML, which holds the GPU")
		}
		defer func() {
			if again := resume(context.WithoutCancel(ctx)); again != nil {
				err = errors.Join(err, failed(address, op, again, "could not open NVML again"))
			}
		}()
	}
	for attempt := 1; ; attempt++ {
		output, err := h.once(ctx, flag, address)
		text := strings.TrimSpace(string(output))
		locked := strings.Contains(text, unbindLock)
		switch {
		case err == nil && !locked:
			return nil
		case errors.Is(err, os.ErrNotExist):
			return failed(address, op, err, "sriov-manage comes with the driver of the vGPU Manager, which is not installed here")
		case !locked:
			return failed(address, op, err, "%s %s %s said %q", h.Script, flag, address, text)
		case attempt == attempts:
			return refuse(address, op, backend.InUse, "the driver does not let go of the GPU (%q, tried %d times): %s",
				text, attempt, h.clients(ctx, address))
		}
		if err := sleep(ctx, h.Pause); err != nil {
			return failed(address, op, err, "waited for the GPU to be let go")
		}
	}
}

func (h *Host) once(ctx context.Context, flag, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scriptLimit)
	defer cancel()
	return h.Run(ctx, h.Script, flag, address)
}

// clients says who has the GPU open on the host.
func (h *Host) clients(ctx context.Context, address string) string {
	const hint = "stop what watches the GPUs (nvidia-persistenced, dcgm, nvsm) and try again"
	path := h.Proc + "/driver/nvidia/gpus/" + address + "/information"
	text, err := h.Files.ReadFile(path)
	if err != nil {
		return hint
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) != "Device Minor" {
			continue
		}
		node := "/dev/nvidia" + strings.TrimSpace(value)
		if open, _, err := h.openers(ctx, map[string]bool{node: true}); err == nil && len(open[node]) > 0 {
			return fmt.Sprintf("%s is open in %s; stop that and try again", node, holders(open[node]))
		}
	}
	return hint
}

// blind refuses to take away what somebody may hold unseen.
func (h *Host) blind(address, op string) error {
	return refuse(address, op, backend.AccessDenied,
		"cannot see who holds it: the open files of some processes under %s are not readable; run as root", h.Proc)
}

const poll = 100 * time.Millisecond

// until polls until something shows; it is false when it does not within the host's
// patience.
func (h *Host) until(ctx context.Context, shown func() (bool, error)) (bool, error) {
	deadline := time.Now().Add(h.Patience)
	for {
		ok, err := shown()
		if err != nil || ok {
			return ok, err
		}
		if !time.Now().Before(deadline) {
			return false, nil
		}
		if err := sleep(ctx, min(poll, h.Patience)); err != nil {
			return false, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
