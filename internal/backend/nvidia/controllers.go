//go:build linux && cgo

package nvidia

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// program is one that manages or uses GPUs, known by the name of its unit or of its process.
type program struct {
	name string
	role gpu.ControllerRole
	// of is whose program it is, where its name does not say so.
	of string
	// where tells a program, or what it is told to do, from its process's directory in /proc. A
	// unit has none: whatever has a where is known by its process only.
	where func(dir string) bool
}

// programs are those that are known, the special before the general (assumption linux-other-programs).
var programs = []program{
	{name: "nvidia-mig-manager", role: gpu.LayoutController},
	{name: "mig-parted", role: gpu.LayoutController},
	{name: "nvidia-mig-parted", role: gpu.LayoutController},
	{name: "nvidia-vgpu-dm", role: gpu.LayoutController},
	{name: "nvidia-k8s-vgpu-dm", role: gpu.LayoutController}, // the GPU Operator's, which stays and watches the node's label
	{name: "nvidia-migmanager", role: gpu.LayoutController},  // Bottlerocket's, at each boot
	{name: partitioner, role: gpu.LayoutController},          // GKE's, at each boot
	{name: "mpsd", of: "KAI", role: gpu.LayoutController},
	{name: "fractiond", of: "KAI", role: gpu.LayoutController},
	{name: draDriver, role: gpu.LayoutController, where: dynamicMIG},
	{name: draDriver, role: gpu.ConsumerController}, // makes instances only where it is told to
	{name: devicePlugin, of: hami, role: gpu.LayoutController, where: hamiMIG},
	{name: devicePlugin, of: hami, role: gpu.ConsumerController, where: isHAMi},
	{name: devicePlugin, role: gpu.ConsumerController},
	{name: "slurmd", role: gpu.ConsumerController},
	{name: "kubelet", role: gpu.ConsumerController},
	{name: "k3s-server", role: gpu.ConsumerController}, // which have the kubelet in their own process
	{name: "k3s-agent", role: gpu.ConsumerController},
	{name: "k3s", role: gpu.ConsumerController},
	{name: "rke2-server", role: gpu.ConsumerController},
	{name: "rke2-agent", role: gpu.ConsumerController},
	{name: "rke2", role: gpu.ConsumerController},
	{name: "nomad", role: gpu.ConsumerController},
}

const (
	draDriver    = "gpu-kubelet-plugin" // the program of NVIDIA's DRA driver on a node
	devicePlugin = "nvidia-device-plugin"
	hami         = "HAMi"
	partitioner  = "partition_gpu"
)

const unitSuffix = ".service"

// comm is how many bytes of a process's name the kernel keeps.
const comm = 15

// controllers are the services that run, any of which may hold GPUs open, and what
// manages or uses GPUs.
func (b *Backend) controllers(ctx context.Context) ([]string, []gpu.Controller) {
	known := b.known()
	var out []gpu.Controller
	see := func(name, dir string) {
		for _, p := range known {
			if p.is(name, dir) {
				out = seen(out, p)
				return
			}
		}
	}
	units := b.runningUnits(ctx)
	for _, unit := range units {
		see(strings.TrimSuffix(unit, unitSuffix), "")
	}
	for _, unit := range b.unitsAtBoot(ctx, known) {
		see(strings.TrimSuffix(unit, unitSuffix), "")
	}
	for dir, name := range b.running() {
		see(name, dir)
	}
	if b.partitionedByGKE() {
		see(partitioner, "")
	}
	slices.Sort(units)
	slices.SortFunc(out, func(a, b gpu.Controller) int { return strings.Compare(a.Name, b.Name) })
	return units, out
}

// is tells a program by its name, and by its process's directory where the name does not do.
func (p program) is(name, dir string) bool {
	if name != p.name && (len(name) != comm || !strings.HasPrefix(p.name, name)) {
		return false
	}
	return p.where == nil || dir != "" && p.where(dir)
}

// known are the programs that people declared for this host, and the others.
func (b *Backend) known() []program {
	var declared []program
	for _, name := range slices.Sorted(maps.Keys(b.opt.Controllers)) {
		declared = append(declared, program{name: strings.TrimSuffix(name, unitSuffix), role: b.opt.Controllers[name]})
	}
	return append(declared, programs...)
}

// seen adds what was seen, once. Of two that run under one name the one that changes layouts counts.
func seen(out []gpu.Controller, p program) []gpu.Controller {
	c := gpu.Controller{Name: p.name, Role: p.role}
	if p.of != "" {
		c.Name += " (" + p.of + ")"
	}
	i := slices.IndexFunc(out, func(o gpu.Controller) bool { return o.Name == c.Name })
	switch {
	case i < 0:
		return append(out, c)
	case c.Role == gpu.LayoutController:
		out[i].Role = c.Role
	}
	return out
}

// unitsAtBoot are those units that change layouts at each boot, and run no longer than that takes: they are
// enabled, or have run where the distribution starts them.
func (b *Backend) unitsAtBoot(ctx context.Context, known []program) []string {
	var names []string
	for _, p := range known {
		if p.role == gpu.LayoutController && p.where == nil {
			names = append(names, p.name+unitSuffix)
		}
	}
	enabled := b.listUnits(ctx, append([]string{"list-unit-files", "--state=enabled,enabled-runtime"}, names...)...)
	return append(enabled, b.listUnits(ctx, append([]string{"list-units", "--state=exited"}, names...)...)...)
}

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
func dynamicMIG(dir string) bool { return toldTo(dir, featureGate) }

// featureGate is dynamic MIG switched on in FEATURE_GATES or --feature-gates.
var featureGate = regexp.MustCompile(`(?i)FEATURE[_-]GATES[=\x00][^\x00]*\bDynamicMIG=(true|1|t)\b`)

// toldTo reports whether a process's environment or arguments say something.
func toldTo(dir string, what *regexp.Regexp) bool {
	for _, from := range []string{"environ", "cmdline"} {
		text, err := os.ReadFile(filepath.Join(dir, from))
		if err == nil && what.Match(text) {
			return true
		}
	}
	return false
}

// isHAMi tells HAMi's device plugin from NVIDIA's, whose name it has.
func isHAMi(dir string) bool { return toldTo(dir, hamiOptions) }

var hamiOptions = regexp.MustCompile(`(^|\x00)(--disable-core-limit|HOOK_PATH=)`)

// hamiMIG reports whether HAMi makes and removes MIG instances by itself: the operating mode is
// that of the node in its configuration. One that cannot be read may say so.
func hamiMIG(dir string) bool {
	if !isHAMi(dir) {
		return false
	}
	const defaultMode, migMode = "hami-core", "mig"
	text, err := os.ReadFile(filepath.Join(dir, "root/config/config.json"))
	environ, errEnviron := os.ReadFile(filepath.Join(dir, "environ"))
	var config struct {
		Nodes []struct {
			Name string `json:"name"`
			Mode string `json:"operatingmode"`
		} `json:"nodeconfig"`
	}
	if err != nil || errEnviron != nil || json.Unmarshal(text, &config) != nil {
		return true
	}
	mode := defaultMode
	variables := strings.Split(string(environ), "\x00")
	for _, n := range config.Nodes {
		if n.Mode != "" && slices.Contains(variables, "NODE_NAME="+n.Name) {
			mode = n.Mode
		}
	}
	return mode == migMode
}

// partitionedByGKE reports whether GKE divides the GPUs of this node at each boot: its program is
// gone by the time that anybody looks, and what it goes by stays.
func (b *Backend) partitionedByGKE() bool {
	text, err := os.ReadFile(filepath.Join(b.opt.Root, "/etc/nvidia/gpu_config.json"))
	var config struct{ GPUPartitionSize string }
	return err == nil && json.Unmarshal(text, &config) == nil && config.GPUPartitionSize != ""
}
