//go:build linux && cgo

package nvidia

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// noInstance is what NVML says of a process that runs in no MIG instance.
const noInstance = 0xFFFFFFFF

// drawsInMIGMode tells whether instances of a GPU can draw. NVIDIA's guide of MIG: none can but those
// of profiles for graphics.
func (s *session) drawsInMIGMode(d *device) bool {
	return slices.ContainsFunc(s.profiles[d.ID], func(p profile) bool { return strings.HasSuffix(p.Name, "gfx") })
}

// processes are those that use a GPU, by id. A process that computes and draws is one.
func (b *Backend) processes(s *session, d *device, draws bool) (out []gpu.Process, err error) {
	type list struct {
		call string
		read func() ([]nvml.ProcessInfo, nvml.Return)
	}
	lists := []list{{"nvmlDeviceGetComputeRunningProcesses", d.handle.GetComputeRunningProcesses}}
	if draws {
		lists = append(lists, list{"nvmlDeviceGetGraphicsRunningProcesses", d.handle.GetGraphicsRunningProcesses})
	}
	if s.offers("nvmlDeviceGetMPSComputeRunningProcesses_v3") {
		lists = append(lists, list{"nvmlDeviceGetMPSComputeRunningProcesses", d.handle.GetMPSComputeRunningProcesses})
	}
	byPID := map[string]gpu.Process{}
	for _, list := range lists {
		found, ret := list.read()
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, failed(list.call, ret)
		}
		for _, p := range found {
			is := b.identify(int(p.Pid))
			if p.UsedGpuMemory != ^uint64(0) { // NVML cannot tell everybody's
				is.Memory = gpu.Bytes(p.UsedGpuMemory)
			}
			if is.MemoryLimit, err = b.containerLimit(s, d, is); err != nil {
				return nil, err
			}
			is.GPUInstance, is.ComputeInstance = instanceID(p.GpuInstanceId), instanceID(p.ComputeInstanceId)
			byPID[fmt.Sprint(p.Pid, p.GpuInstanceId, p.ComputeInstanceId)] = is
		}
	}
	for _, p := range byPID {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b gpu.Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(deref(a.GPUInstance), deref(b.GPUInstance)),
			cmp.Compare(deref(a.ComputeInstance), deref(b.ComputeInstance)))
	})
	return out, nil
}

// containerLimit is what the driver holds the container of a share's process to on a GPU. The limit
// is that of a control group, and of those around it.
func (b *Backend) containerLimit(s *session, d *device, p gpu.Process) (*gpu.Bytes, error) {
	if p.Share == "" || !s.offers("nvmlDeviceGetMemoryLimits_v1") {
		return nil, nil
	}
	groups, _ := os.ReadFile(filepath.Join(b.opt.Root, "/proc", strconv.Itoa(p.PID), "cgroup")) // it may have ended
	group, unified := strings.CutPrefix(strings.TrimSpace(string(groups)), "0::")
	if !unified || strings.HasPrefix(group, "/..") {
		return nil, nil // the host has no such limits, or the agent does not see where it is
	}
	root := filepath.Join(b.opt.Root, "/sys/fs/cgroup")
	least := ^uint64(0)
	for at := filepath.Join(root, group); at != root; at = filepath.Dir(at) {
		limits, ret := d.handle.GetMemoryLimits_v1(at)
		switch ret {
		case nvml.SUCCESS:
			least = min(least, limits.HardLimit)
		case nvml.ERROR_NOT_FOUND:
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_OPERATING_SYSTEM: // a GPU in MIG mode; a container that has ended
			return nil, nil
		default:
			return nil, failed("nvmlDeviceGetMemoryLimits_v1", ret)
		}
	}
	if least == ^uint64(0) {
		return new(gpu.Bytes(0)), nil
	}
	return new(gpu.Bytes(least)), nil
}

func instanceID(id uint32) *int {
	if id == noInstance {
		return nil
	}
	return new(int(id))
}

func deref(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

// who names processes for people.
func who(list []gpu.Process) string {
	return strings.Join(words.Each(list, func(p gpu.Process) string {
		switch {
		case p.Name != "" && p.Holder != "":
			return fmt.Sprintf("process %d (%s, %s)", p.PID, p.Name, p.Holder)
		case p.Name+p.Holder != "":
			return fmt.Sprintf("process %d (%s)", p.PID, p.Name+p.Holder)
		}
		return fmt.Sprintf("process %d", p.PID)
	}), ", ")
}

// identify tells who a process is, as far as /proc does. It may have ended meanwhile.
func (b *Backend) identify(pid int) gpu.Process {
	dir := filepath.Join(b.opt.Root, "/proc", strconv.Itoa(pid))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return ""
		}
		return string(text)
	}
	args := strings.Split(read("cmdline"), "\x00")
	name := processName(strings.TrimSpace(read("comm")), args[0])
	return gpu.Process{PID: pid, Name: gpu.Printable(name), Holder: gpu.Printable(holder(read("cgroup"), args)), Share: shareOf(dir)}
}

// processName is the name of a process in full, where it runs under that of its program:
// the kernel keeps the beginning only, in which an MPS server is like an MPS daemon.
func processName(short, program string) string {
	if name := filepath.Base(program); len(short) == comm && strings.HasPrefix(name, short) {
		return name
	}
	return short
}

// mostEnvironment is more than the kernel gives a program with the usual limit of its stack.
const mostEnvironment = 2 << 20

// shareOf is the share that a process was started in, "" for none. Only root and its user
// may read its environment, which says what the process says, and no more.
func shareOf(dir string) string {
	f, err := os.OpenFile(filepath.Join(dir, "environ"), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	environ, err := io.ReadAll(io.LimitReader(f, mostEnvironment))
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if name, ok := strings.CutPrefix(string(entry), cdi.ShareVariable+"="); ok && cdi.ValidateName(name) == nil {
			return name
		}
	}
	return ""
}

var (
	containerID = regexp.MustCompile(`(?:^|[-/])([0-9a-f]{64})(?:\.scope)?$`)
	machine     = regexp.MustCompile(`^machine-qemu\\x2d[0-9]+\\x2d(.+)\.scope$`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)
)

// holder is the VM, the container or the unit that a process belongs to, by its
// arguments and its control groups.
func holder(cgroups string, args []string) string {
	if name := vgpu.VMName(args); name != "" && strings.HasPrefix(filepath.Base(args[0]), "qemu") {
		return "VM " + name
	}
	for line := range strings.Lines(cgroups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		path := fields[2]
		leaf := filepath.Base(path)
		if m := machine.FindStringSubmatch(leaf); m != nil {
			return "VM " + unescapeUnit(m[1])
		}
		if m := containerID.FindStringSubmatch(leaf); m != nil {
			name := "container " + m[1][:12]
			if pod := podUID.FindStringSubmatch(path); pod != nil {
				name += " of pod " + strings.ReplaceAll(pod[1], "_", "-")
			}
			return name
		}
		for part := range strings.SplitSeq(path, "/") {
			if strings.HasSuffix(part, ".service") && !strings.HasPrefix(part, "user@") {
				return "unit " + part
			}
		}
	}
	return ""
}

// unescapeUnit undoes systemd's escapes in a unit's name: \x2d is a dash.
func unescapeUnit(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '\\' && i+3 < len(name) && name[i+1] == 'x' {
			if n, err := strconv.ParseUint(name[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}
