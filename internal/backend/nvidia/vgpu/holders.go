package vgpu

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// readHolders finds who has the GPU's functions and mediated devices open.
func (h *Host) readHolders(ctx context.Context, g *GPU) error {
	if len(g.Functions) == 0 {
		return nil
	}
	nodes := map[string]bool{}
	for _, f := range g.Functions {
		for _, n := range h.nodes(&f) {
			nodes[n] = true
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	open, hidden, err := h.openers(ctx, nodes)
	if err != nil {
		return err
	}
	g.HoldersHidden = hidden
	for i := range g.Functions {
		f := &g.Functions[i]
		for j := range f.VGPUs {
			f.VGPUs[j].Holders = collect(open, h.vgpuNodes(f, &f.VGPUs[j]))
		}
		f.Holders = collect(open, h.nodes(f))
	}
	return nil
}

// nodes are the device nodes of a function and of its vGPUs.
func (h *Host) nodes(f *Function) []string {
	var all []string
	if f.Index != Itself { // the GPU itself belongs to the host
		all = h.vfioNodes(h.device(f.Address))
	}
	for i := range f.VGPUs {
		all = append(all, h.vgpuNodes(f, &f.VGPUs[i])...)
	}
	return all
}

func (h *Host) vgpuNodes(f *Function, v *VGPU) []string {
	if v.UUID == "" {
		return h.vfioNodes(h.device(f.Address))
	}
	return h.vfioNodes(h.mdev(v.UUID))
}

// vfioNodes are the nodes through which a VM opens a device: the one of its IOMMU group,
// or with IOMMUFD its own. They are as processes see them, wherever sysfs is mounted.
func (h *Host) vfioNodes(device string) []string {
	var nodes []string
	if group, err := os.Readlink(filepath.Join(device, "iommu_group")); err == nil {
		nodes = append(nodes, "/dev/vfio/"+filepath.Base(group))
	}
	entries, err := os.ReadDir(filepath.Join(device, "vfio-dev"))
	if err != nil {
		return nodes // kernels before 6.6 have none
	}
	for _, e := range entries {
		nodes = append(nodes, "/dev/vfio/devices/"+e.Name())
	}
	return nodes
}

// openers finds the processes that have one of the nodes open. Hidden is true when the
// open files of some process cannot be read.
func (h *Host) openers(ctx context.Context, nodes map[string]bool) (open map[string][]Holder, hidden bool, err error) {
	entries, err := os.ReadDir(h.Proc)
	if err != nil {
		return nil, false, err
	}
	open = map[string][]Holder{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		found, err := h.openNodes(e.Name(), nodes)
		if errors.Is(err, fs.ErrPermission) {
			hidden = true
		} else if err != nil && !gone(err) {
			return nil, false, err
		}
		if len(found) == 0 {
			continue
		}
		holder := h.holder(pid)
		for _, n := range found {
			open[n] = append(open[n], holder)
		}
	}
	return open, hidden, nil
}

// openNodes are those of the nodes that a process has open.
func (h *Host) openNodes(pid string, nodes map[string]bool) ([]string, error) {
	dir := filepath.Join(h.Proc, pid, "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if errors.Is(err, fs.ErrPermission) {
			return found, err
		}
		if err == nil && nodes[to] && !slices.Contains(found, to) {
			found = append(found, to)
		}
	}
	return found, nil
}

// gone tells whether a process ended while it was looked at.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

func (h *Host) holder(pid int) Holder {
	dir := filepath.Join(h.Proc, strconv.Itoa(pid))
	who := Holder{PID: pid}
	if comm, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
		who.Command = strings.TrimSpace(string(comm))
	}
	if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
		who.VM = VMName(strings.Split(string(line), "\x00"))
	}
	return who
}

// VMName is what QEMU's -name says: libvirt writes "guest=web-01,debug-threads=on", and
// a comma in a name twice.
func VMName(args []string) string {
	i := slices.Index(args, "-name")
	if i < 0 || i+1 >= len(args) {
		return ""
	}
	const comma = "\x00"
	for n, field := range strings.Split(strings.ReplaceAll(args[i+1], ",,", comma), ",") {
		key, value, ok := strings.Cut(field, "=")
		if !ok && n == 0 {
			value = key
		} else if key != "guest" {
			continue
		}
		return strings.ReplaceAll(value, comma, ",")
	}
	return ""
}

// collect is who has one of the nodes open, each process once.
func collect(open map[string][]Holder, nodes []string) []Holder {
	var all []Holder
	for _, n := range nodes {
		all = append(all, open[n]...)
	}
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(a.PID, b.PID) })
	return slices.CompactFunc(all, func(a, b Holder) bool { return a.PID == b.PID })
}
