//go:build linux && cgo

package nvidia

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// runningUnits are the services that run. A host without systemd has none.
func (b *Backend) runningUnits(ctx context.Context) []string {
	return b.listUnits(ctx, "list-units", "--state=running")
}

func (b *Backend) listUnits(ctx context.Context, args ...string) []string {
	out, err := run(ctx, askTime, b.opt.Systemctl, append(args, "--type=service", "--plain", "--no-legend", "--no-pager")...)
	if err != nil {
		return nil
	}
	var units []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 {
			units = append(units, fields[0])
		}
	}
	return units
}

const (
	askTime  = 10 * time.Second // for what systemd knows
	unitTime = 2 * time.Minute  // for a unit to start or stop, for which systemd itself gives it 90 seconds
)

// StopUnit stops a systemd unit.
func (b *Backend) StopUnit(ctx context.Context, name string) error {
	return b.unit(ctx, "stop", name)
}

// StartUnit starts a systemd unit.
func (b *Backend) StartUnit(ctx context.Context, name string) error {
	return b.unit(ctx, "start", name)
}

var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.@\\-]{1,255}$`)

func (b *Backend) unit(ctx context.Context, verb, name string) error {
	return complete(ctx, b.tellUnit(ctx, verb, name), verb+" the unit", "unit "+name)
}

func (b *Backend) tellUnit(ctx context.Context, verb, name string) error {
	if !unitName.MatchString(name) || strings.HasPrefix(name, "-") {
		return refuse(backend.InvalidParameter, "this is no name of a unit")
	}
	loaded, err := run(ctx, askTime, b.opt.Systemctl, "show", "--property=LoadState", "--value", "--", name)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return refuse(backend.NotSupported, "the host has no systemd that answers: %v", err)
	case loaded == "not-found":
		return refuse(backend.NotFound, "the host has no such unit")
	}
	if _, err := run(ctx, unitTime, b.opt.Systemctl, verb, "--", name); err != nil {
		return refuse(backend.Failed, "%v", err)
	}
	return nil
}

// boot is when the kernel started, nil where it does not tell.
func (b *Backend) boot() *gpu.Boot {
	id, err := os.ReadFile(filepath.Join(b.opt.Root, "/proc/sys/kernel/random/boot_id"))
	if err != nil {
		return nil
	}
	stat, _ := os.ReadFile(filepath.Join(b.opt.Root, "/proc/stat"))
	for line := range strings.Lines(string(stat)) {
		if seconds, ok := strings.CutPrefix(strings.TrimSpace(line), "btime "); ok {
			if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
				return &gpu.Boot{ID: strings.TrimSpace(string(id)), At: time.Unix(n, 0).UTC()}
			}
		}
	}
	return nil
}

// os names the operating system.
func (b *Backend) os() gpu.OS {
	text, err := os.ReadFile(filepath.Join(b.opt.Root, "/etc/os-release"))
	if err != nil {
		return gpu.OS{Name: "Linux"}
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[k] = strings.Trim(v, `"'`)
		}
	}
	return gpu.OS{Name: cmp.Or(values["NAME"], "Linux"), Version: values["VERSION_ID"]}
}
