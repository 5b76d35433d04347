//go:build linux && cgo

package nvidia

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// roles are the programs that manage or use GPUs, by the name of their unit or of their
// process, of which the kernel keeps 15 bytes.
var roles = []struct {
	name string
	role gpu.ControllerRole
}{
	{"nvidia-mig-manager", gpu.LayoutController},
	{"mig-parted", gpu.LayoutController},
	{"nvidia-mig-parted", gpu.LayoutController},
	{"nvidia-vgpu-dm", gpu.LayoutController},
	{draDriver, gpu.ConsumerController}, // makes instances only where it is told to; with dynamic MIG see dynamicMIG
	{"nvidia-device-plugin", gpu.ConsumerController},
	{"slurmd", gpu.ConsumerController},
	{"kubelet", gpu.ConsumerController},
	{"k3s-server", gpu.ConsumerController}, // which have the kubelet in their own process
	{"k3s-agent", gpu.ConsumerController},
	{"k3s", gpu.ConsumerController},
	{"rke2-server", gpu.ConsumerController},
	{"rke2-agent", gpu.ConsumerController},
	{"rke2", gpu.ConsumerController},
	{"nomad", gpu.ConsumerController},
}

// draDriver is the program of NVIDIA's DRA driver on a node.
const draDriver = "gpu-kubelet-plugin"

const unitSuffix = ".service"

// controllers are the services that run, any of which may hold GPUs open, and what
// manages or uses GPUs.
func (b *Backend) controllers(ctx context.Context) ([]string, []gpu.Controller) {
	var out []gpu.Controller
	see := func(name string) {
		for _, r := range roles {
			if r.name != name && !(len(name) == comm && strings.HasPrefix(r.name, name)) {
				continue
			}
			if !slices.ContainsFunc(out, func(c gpu.Controller) bool { return c.Name == r.name }) {
				out = append(out, gpu.Controller{Name: r.name, Role: r.role})
			}
		}
	}
	units := b.runningUnits(ctx)
	for _, unit := range units {
		see(strings.TrimSuffix(unit, unitSuffix))
	}
	running := b.running()
	for _, name := range slices.Compact(slices.Sorted(maps.Values(running))) {
		see(name)
	}
	if i := slices.IndexFunc(out, func(c gpu.Controller) bool { return c.Name == draDriver }); i >= 0 && dynamicMIG(running) {
		out[i].Role = gpu.LayoutController
	}
	slices.Sort(units)
	slices.SortFunc(out, func(a, b gpu.Controller) int { return strings.Compare(a.Name, b.Name) })
	return units, out
}

// comm is how many bytes of a process's name the kernel keeps.
const comm = 15

// running are the names of the host's processes, by their directories. Those in containers
// are among them.
func (b *Backend) running() map[string]string {
	proc := filepath.Join(b.opt.Root, "/proc")
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue // it tells of the kernel
		}
		dir := filepath.Join(proc, d.Name())
		if name, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil { // it may have ended
			out[dir] = strings.TrimSpace(string(name))
		}
	}
	return out
}

// dynamicMIG reports whether a DRA driver that runs divides GPUs by itself: at each start it
// removes the MIG instances that are not in its own record.
func dynamicMIG(running map[string]string) bool {
	for dir, name := range running {
		if !strings.HasPrefix(draDriver, name) || len(name) < comm {
			continue
		}
		for _, from := range []string{"environ", "cmdline"} {
			text, err := os.ReadFile(filepath.Join(dir, from))
			if err == nil && featureGate.Match(text) {
				return true
			}
		}
	}
	return false
}

// featureGate is dynamic MIG switched on in FEATURE_GATES or --feature-gates.
var featureGate = regexp.MustCompile(`(?i)FEATURE[_-]GATES[=\x00][^\x00]*\bDynamicMIG=(true|1|t)\b`)

// runningUnits are the services that run. A host without systemd has none.
func (b *Backend) runningUnits(ctx context.Context) []string {
	out, err := run(ctx, askTime, b.opt.Systemctl, "list-units", "--type=service", "--state=running", "--plain", "--no-legend", "--no-pager")
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
