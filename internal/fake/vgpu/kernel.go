// Package fakevgpu is a Linux KVM host for tests: a sysfs and a procfs in a directory,
// whose files answer as NVIDIA's vGPU driver does, a sriov-manage and an NVML. It does
// what the platform does and nothing more; in particular it takes a vGPU away from a
// running virtual machine when told so, and remembers that.
package fakevgpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Card is one GPU.
type Card struct {
	Address string
	// Shape is how vGPUs of it are made: mdev, mdev_vf or vfio.
	Shape vgpu.Shape
	// VFs is how many virtual functions it can have; 0 with mdev.
	VFs   int
	Types []vgpu.Type
	// Memory is the frame buffer that vGPUs can have.
	Memory gpu.Bytes
	// MIG and Heterogeneous are what the card can do.
	MIG, Heterogeneous bool
	// NameFirst writes types as NVIDIA's user guide shows them: "NVIDIA A40-1Q 557".
	NameFirst bool
	// Minor is the number of its device node on the host.
	Minor int
}

// Kernel is the host.
type Kernel struct {
	t    testing.TB
	root string
	pool string // directory of the files that the tree has names for

	mu    sync.Mutex
	cards []*card
	tree  map[string]entry  // what is written of it
	texts map[string]string // the files of the pool by their texts
	// nvmlOpen is true while this process has the GPUs open, locks how many more runs of
	// sriov-manage the driver refuses.
	nvmlOpen bool
	locks    int
	idle     bool // sriov-manage does nothing
	failures map[string]error
	events   []string
	driver   Driver
}

type card struct {
	Card
	uuid          string
	on            bool // virtual functions
	heterogeneous bool
	mig           bool
	instances     []Instance
	functions     []*function
	processes     []gpu.Process
}

type function struct {
	index   int
	address string
	vgpus   []device
	// driver is one that took the function from NVIDIA's; "-" is none.
	driver string
}

type device struct {
	uuid string
	typ  vgpu.Type
	// in is the GPU instance that it lives in, of the other NVML by known there.
	in    *Instance
	known int
}

// New makes a host with its virtual functions off.
func New(t testing.TB, cards ...Card) *Kernel {
	t.Helper()
	k := &Kernel{
		t: t, root: filepath.Join(t.TempDir(), "host"), pool: t.TempDir(), texts: map[string]string{},
		nvmlOpen: true, failures: map[string]error{},
	}
	for i, c := range cards {
		k.cards = append(k.cards, &card{Card: c, uuid: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i+1)})
	}
	k.Reboot()
	return k
}

// Sys and Proc are the roots of the host's sysfs and procfs.
func (k *Kernel) Sys() string { return filepath.Join(k.root, "sys") }

// Proc is described with Sys.
func (k *Kernel) Proc() string { return filepath.Join(k.root, "proc") }

// Device is a path below a PCI device.
func (k *Kernel) Device(address string, more ...string) string {
	return filepath.Join(append([]string{k.Sys(), "bus/pci/devices", address}, more...)...)
}

// Host is the production code on this host, but for what is changed of its options.
func (k *Kernel) Host(change ...func(*vgpu.Options)) *vgpu.Host {
	o := k.Options()
	o.NVML = nvml{k}
	for _, c := range change {
		c(&o)
	}
	return vgpu.New(o)
}

// Options lead production code to this host. NVML is not among them.
func (k *Kernel) Options() vgpu.Options {
	return vgpu.Options{
		Sys: k.Sys(), Proc: k.Proc(), Files: k, Script: "sriov-manage", Run: k.run,
		Pause: time.Millisecond, Patience: 20 * time.Millisecond,
	}
}

// Reboot loses what a reboot loses. MIG mode stays, as on Ampere.
func (k *Kernel) Reboot() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.cards {
		c.on, c.heterogeneous, c.instances, c.processes = false, false, nil, nil
		c.functions = nil
		if c.Shape == vgpu.ShapeMdev {
			c.functions = []*function{{index: vgpu.Itself, address: c.Address}}
		}
	}
	k.must(os.RemoveAll(k.root))
	k.tree = nil
	k.render()
}

// Lock lets the driver refuse the next n runs of sriov-manage.
func (k *Kernel) Lock(n int) { k.locks = n }

// Take binds a function to another driver than NVIDIA's, or with "-" to none, which ends its vGPU.
func (k *Kernel) Take(address, driver string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.cards {
		for _, f := range c.functions {
			if f.address == address {
				for _, v := range f.vgpus {
					k.end(v)
				}
				f.vgpus, f.driver = nil, driver
			}
		}
	}
	k.render()
}

// Idle lets sriov-manage succeed without doing anything, as it does for a GPU that it
// does not know.
func (k *Kernel) Idle() { k.idle = true }

// Fail lets the next write of a file, given by the end of its path, fail; with nil it
// seems to succeed, but changes nothing. The path of heterogeneous mode is
// "heterogeneous".
func (k *Kernel) Fail(path string, err error) { k.failures[path] = err }

// fault is the failure that waits for a path.
func (k *Kernel) fault(path string) (bool, error) {
	for end, err := range k.failures {
		if strings.HasSuffix(path, end) {
			delete(k.failures, end)
			return true, err
		}
	}
	return false, nil
}

// Use lets a process of the host use a GPU.
func (k *Kernel) Use(address string, p gpu.Process) {
	c := k.card(address)
	c.processes = append(c.processes, p)
}

// Events are the changes in their order, such as "enable 0000:41:00.0" and, for a vGPU
// that was taken from a running virtual machine, "torn 0000:41:00.4".
func (k *Kernel) Events() []string { return slices.Clone(k.events) }

// SetMIGMode is nvidia-smi -mig, which refuses while the virtual functions are on.
func (k *Kernel) SetMIGMode(address string, on bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.card(address)
	switch {
	case !c.MIG:
		return errors.New("not supported")
	case c.on:
		return errors.New("in use by the virtual functions")
	case !on && len(c.instances) > 0:
		return errors.New("in use by GPU instances")
	}
	c.mig = on
	k.log("mig %s %t", address, on)
	return nil
}

// SetInstances gives a GPU the instances of these profiles, as the MIG backend does.
func (k *Kernel) SetInstances(address string, wanted map[string]int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.card(address)
	if !c.mig {
		return errors.New("MIG mode is off")
	}
	var next []Instance
	var names []string
	for _, profile := range slices.Sorted(maps.Keys(wanted)) {
		for range wanted[profile] {
			next, names = append(next, Instance{ID: len(next) + 1, Profile: profile}), append(names, profile)
		}
	}
	for _, t := range c.Types {
		if t.Instance != "" && wanted[t.Instance] < c.used(t.Instance) {
			return fmt.Errorf("a vGPU uses an instance %s", t.Instance)
		}
	}
	c.instances = next
	k.log("instances %s %s", address, strings.Join(names, ","))
	k.render()
	return nil
}

func (k *Kernel) must(err error) {
	if err != nil {
		k.t.Helper()
		k.t.Fatal(err)
	}
}

func (k *Kernel) log(format string, args ...any) {
	k.events = append(k.events, fmt.Sprintf(format, args...))
}

func (k *Kernel) card(address string) *card {
	i := slices.IndexFunc(k.cards, func(c *card) bool { return c.Address == address })
	if i < 0 {
		k.t.Fatalf("the host has no GPU %s", address)
	}
	return k.cards[i]
}

// used is how many instances of a profile vGPUs are in.
func (c *card) used(profile string) int {
	n := 0
	for _, f := range c.functions {
		for _, v := range f.vgpus {
			if v.typ.Instance == profile {
				n++
			}
		}
	}
	return n
}

// creatable are the types that a function takes now.
func (c *card) creatable(f *function) []vgpu.Type {
	if f.index != vgpu.Itself && len(f.vgpus) > 0 {
		return nil
	}
	var all []vgpu.Type
	for _, t := range c.Types {
		if c.fits(t) {
			all = append(all, t)
		}
	}
	return all
}

func (c *card) fits(t vgpu.Type) bool {
	if t.Instance != "" || c.mig {
		return c.free(t) != nil
	}
	memory, count := t.FrameBuffer, 1
	for _, f := range c.functions {
		for _, v := range f.vgpus {
			memory += v.typ.FrameBuffer
			switch {
			case v.typ.FrameBuffer == t.FrameBuffer:
				count++
			case !c.heterogeneous:
				return false
			}
		}
	}
	return memory <= c.Memory && count <= t.Max
}

// free is the GPU instance that a vGPU gets: the first of its profile without one.
func (c *card) free(t vgpu.Type) *Instance {
	i := slices.IndexFunc(c.instances, func(in Instance) bool {
		return in.Profile == t.Instance && !slices.ContainsFunc(c.functions, func(f *function) bool {
			return slices.ContainsFunc(f.vgpus, func(v device) bool { return v.in != nil && v.in.ID == in.ID })
		})
	})
	if i < 0 || !c.mig {
		return nil
	}
	in := c.instances[i]
	return &in
}

// begin is a vGPU on a function, and end none any more.
func (k *Kernel) begin(c *card, f *function, v device) {
	if v.in = c.free(v.typ); v.in != nil && k.driver != nil {
		v.known = k.driver.Begin(c.Address, v.typ.ID, v.in.ID)
	}
	f.vgpus = append(f.vgpus, v)
}

func (k *Kernel) end(v device) {
	if v.in != nil && k.driver != nil {
		k.driver.End(v.known)
	}
}

// ReadFile reads a file of sysfs.
func (k *Kernel) ReadFile(path string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch filepath.Base(path) {
	case "creatable_vgpu_types", "available_instances":
		k.follow()
	}
	text, err := os.ReadFile(path)
	switch filepath.Base(path) {
	case "placement_id", "gpu_instance_id":
		if err == nil && len(text) == 0 {
			return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.ENXIO}
		}
	}
	return text, err
}

// WriteFile writes a file of sysfs.
func (k *Kernel) WriteFile(path string, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.follow()
	err := k.write(path, strings.TrimSpace(string(data)))
	k.render()
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func (k *Kernel) write(path, value string) error {
	if faulty, err := k.fault(path); faulty {
		return err
	}
	for _, c := range k.cards {
		for _, f := range c.functions {
			switch {
			case path == k.Device(f.address, "nvidia", "current_vgpu_type"):
				return k.assign(c, f, value)
			case strings.HasPrefix(path, k.mdevTypes(f.address)) && filepath.Base(path) == "create":
				return k.create(c, f, filepath.Base(filepath.Dir(path)), value)
			}
			for i, v := range f.vgpus {
				if v.uuid != "" && path == filepath.Join(k.Sys(), "bus/mdev/devices", v.uuid, "remove") {
					k.tear(f, v.uuid)
					k.end(v)
					f.vgpus = slices.Delete(f.vgpus, i, i+1)
					k.log("remove %s", v.uuid)
					return nil
				}
			}
		}
	}
	if _, err := os.Stat(path); err != nil {
		return syscall.ENOENT
	}
	return syscall.EPERM // sriov_numvfs among others
}

// assign is a write to current_vgpu_type. After an id that it does not take, the driver
// has no type there.
func (k *Kernel) assign(c *card, f *function, value string) error {
	id, err := strconv.Atoi(value)
	if err != nil {
		return syscall.EINVAL
	}
	offered := c.creatable(f)
	k.tear(f, "")
	for _, v := range f.vgpus {
		k.end(v)
	}
	f.vgpus = nil
	if id == 0 {
		k.log("clear %s", f.address)
		return nil
	}
	i := slices.IndexFunc(c.Types, func(t vgpu.Type) bool { return t.ID == id })
	switch {
	case i < 0:
		return syscall.EINVAL
	case !slices.ContainsFunc(offered, func(t vgpu.Type) bool { return t.ID == id }):
		return syscall.EIO
	}
	k.begin(c, f, device{typ: c.Types[i]})
	k.log("set %s %s", f.address, c.Types[i].ShortName())
	return nil
}

func (k *Kernel) create(c *card, f *function, dir, id string) error {
	for _, other := range c.functions {
		if slices.ContainsFunc(other.vgpus, func(v device) bool { return v.uuid == id }) {
			return syscall.EEXIST
		}
	}
	if len(id) != 36 {
		return syscall.EINVAL
	}
	for _, t := range c.creatable(f) {
		if dir == fmt.Sprintf("nvidia-%d", t.ID) {
			k.begin(c, f, device{uuid: id, typ: t})
			k.log("create %s %s", f.address, t.ShortName())
			return nil
		}
	}
	return syscall.EINVAL
}

// run is sriov-manage.
func (k *Kernel) run(_ context.Context, program string, args ...string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if program != "sriov-manage" || len(args) != 2 {
		return nil, fmt.Errorf("%s %v: %w", program, args, fs.ErrNotExist)
	}
	c := k.card(args[1])
	k.log("sriov-manage %s %s", args[0], args[1])
	if k.idle {
		return nil, nil
	}
	k.follow()
	if k.nvmlOpen || k.locks > 0 || len(c.processes) > 0 {
		k.locks = max(k.locks-1, 0)
		return []byte("Cannot obtain unbindLock for " + c.Address + "\n"), errors.New("exit status 1")
	}
	for _, f := range c.functions {
		k.tear(f, "")
		for _, v := range f.vgpus {
			k.end(v)
		}
	}
	c.on, c.functions, c.instances, c.heterogeneous = args[0] == "-e", nil, nil, false
	if k.driver != nil {
		k.driver.Unbind(c.Address)
	}
	for i := range c.VFs {
		if c.on {
			c.functions = append(c.functions, &function{index: i, address: VF(c.Address, i)})
		}
	}
	k.render()
	return nil, nil
}

// VF is the address of a GPU's virtual function.
func VF(address string, index int) string {
	return fmt.Sprintf("%s%02x.%d", address[:len("0000:41:")], (index+4)/8, (index+4)%8)
}
