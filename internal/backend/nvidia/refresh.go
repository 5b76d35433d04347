//go:build linux && cgo

package nvidia

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// refreshUnit writes the CDI specification again, where the container toolkit is new
// enough to bring it.
const refreshUnit = "nvidia-cdi-refresh.service"

// specifications are where nvidia-ctk is told to write, by custom.
var specifications = []string{"/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml"}

// RefreshDevices has device nodes and CDI specifications follow the instances. Tools and
// specifications that the host does not have are none of ours to make.
func (b *Backend) RefreshDevices(ctx context.Context) error {
	if err := b.deviceNodes(ctx); err != nil {
		return complete(ctx, err, "refresh the device nodes", "the host")
	}
	return complete(ctx, b.specification(ctx), "refresh the CDI specification", "the host")
}

// deviceNodes makes the capability devices of MIG instances, which containers need.
func (b *Backend) deviceNodes(ctx context.Context) error {
	modprobe, err := exec.LookPath(b.opt.Modprobe)
	if err != nil {
		return nil //nolint:nilerr // without the tool udev or the toolkit does it
	}
	files, err := filepath.Glob(filepath.Join(b.opt.Root, "/proc/driver/nvidia/capabilities/gpu*/mig/gi*/access"))
	if err != nil {
		return err
	}
	more, err := filepath.Glob(filepath.Join(b.opt.Root, "/proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*/access"))
	if err != nil {
		return err
	}
	for _, file := range append(files, more...) {
		if out, err := exec.CommandContext(ctx, modprobe, "-f", file).CombinedOutput(); err != nil { //nolint:gosec // a file of the driver's
			return refuse(backend.Failed, "%s -f %s: %v: %s", b.opt.Modprobe, file, err, oneLine(out))
		}
	}
	return nil
}

func (b *Backend) specification(ctx context.Context) error {
	loaded, err := exec.CommandContext(ctx, b.opt.Systemctl, "show", "--property=LoadState", "--value", refreshUnit).Output() //nolint:gosec // fixed arguments
	if err == nil && string(loaded) == "loaded\n" {
		if out, err := exec.CommandContext(ctx, b.opt.Systemctl, "restart", refreshUnit).CombinedOutput(); err != nil { //nolint:gosec // fixed arguments
			return fmt.Errorf("systemctl restart %s: %w: %s", refreshUnit, err, oneLine(out))
		}
		return nil
	}
	ctk, err := exec.LookPath(b.opt.CTK)
	if err != nil {
		return nil //nolint:nilerr // no container toolkit, no specification
	}
	for _, spec := range specifications {
		file := filepath.Join(b.opt.Root, spec)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if out, err := exec.CommandContext(ctx, ctk, "cdi", "generate", "--output="+file).CombinedOutput(); err != nil { //nolint:gosec // fixed arguments
			return fmt.Errorf("%s cdi generate: %w: %s", b.opt.CTK, err, oneLine(out))
		}
	}
	return nil
}
