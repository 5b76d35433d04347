//go:build linux && cgo

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// refreshUnit writes the CDI specification again, where the container toolkit is new
// enough to bring it.
const refreshUnit = "nvidia-cdi-refresh.service"

// specifications are where nvidia-ctk is told to write, by custom.
var specifications = []string{"/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml"}

// refreshTime bounds each tool that is run for derived files.
const refreshTime = time.Minute

// RefreshDevices has device nodes and CDI specifications follow the instances. Tools and
// specifications that the host does not have are none of ours to make. Both are tried
// whatever becomes of the other, and what could not follow is remembered on the host.
func (b *Backend) RefreshDevices(ctx context.Context) error {
	b.derived.Lock()
	defer b.derived.Unlock()
	err := errors.Join(b.deviceNodes(ctx), b.specification(ctx))
	if err != nil && b.emptyInMIGMode(ctx) {
		// The toolkit fails for as long as a GPU in MIG mode has no instance, and there is
		// nothing on it to hand over (nvidia-container-toolkit#1611).
		err = nil
	}
	if err == nil {
		b.upToDate()
		return nil
	}
	b.behind(err.Error())
	return complete(ctx, refuse(backend.Failed, "%s", oneLine([]byte(err.Error()))), "refresh the device nodes and the CDI specification",
		"the host")
}

// emptyInMIGMode tells whether a GPU is in MIG mode without an instance.
func (b *Backend) emptyInMIGMode(ctx context.Context) bool {
	empty := false
	err := b.ask(ctx, "", "", func(s *session) error {
		devices, err := s.devices()
		for _, d := range devices {
			if _, hangs := b.silent.Load(d.ID); hangs || d.handle == nil {
				continue
			}
			mig, err := s.readMIG(d)
			empty = empty || err == nil && mig != nil && mig.Enabled && len(mig.Instances) == 0
		}
		return err
	})
	return err == nil && empty
}

// staleFile says, from when instances change until derived files have followed, that they
// have not. It is in a directory that a boot empties, which writes the files anew.
func (b *Backend) staleFile() string {
	return filepath.Join("/", b.opt.Root, "run/gpu-agent/devices-behind")
}

// behind remembers on the host that derived files do not follow. An agent that dies before
// it has refreshed them leaves that to the next one.
func (b *Backend) behind(why string) {
	file := b.staleFile()
	if os.MkdirAll(filepath.Dir(file), 0o755) == nil {
		_ = os.WriteFile(file, []byte(oneLine([]byte(why))), 0o600) // it is a note
	}
}

func (b *Backend) upToDate() { _ = os.Remove(b.staleFile()) } // it is a note

// stale is what of the host is behind its instances.
func (b *Backend) stale() []string {
	why, err := os.ReadFile(b.staleFile())
	if err != nil {
		return nil
	}
	return []string{"the device nodes and CDI specifications of MIG instances: " + gpu.Printable(string(why))}
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
	var failed error
	for _, file := range append(files, more...) {
		_, err := run(ctx, refreshTime, modprobe, "-f", file)
		failed = errors.Join(failed, err)
	}
	return failed
}

func (b *Backend) specification(ctx context.Context) error {
	loaded, err := run(ctx, refreshTime, b.opt.Systemctl, "show", "--property=LoadState", "--value", refreshUnit)
	if err == nil && loaded == "loaded" {
		// A unit that was restarted for each of several changes has met systemd's limit.
		_, _ = run(ctx, refreshTime, b.opt.Systemctl, "reset-failed", refreshUnit) // one that has not failed is no error
		_, err := run(ctx, refreshTime, b.opt.Systemctl, "restart", refreshUnit)
		return err
	}
	if _, err := exec.LookPath(b.opt.CTK); err != nil {
		return nil //nolint:nilerr // no container toolkit, no specification
	}
	var failed error
	for _, spec := range specifications {
		file := filepath.Join("/", b.opt.Root, spec)
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		_, err := run(ctx, refreshTime, b.opt.CTK, append([]string{"cdi", "generate", "--output=" + file}, cdi.GeneratedWith(file)...)...)
		failed = errors.Join(failed, err)
	}
	return failed
}

// run runs a program to its end, or to its time's, and returns what it said.
func run(ctx context.Context, limit time.Duration, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not ended within %s", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // what it started may keep its output open
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, oneLine(out))
	}
	return strings.TrimSpace(string(out)), nil
}
