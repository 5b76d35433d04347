//go:build linux && cgo

package nvidia_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	fakelibvirt "github.com/gpufleet/terraform-provider-gpu/internal/fake/libvirt"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	fakevgpu "github.com/gpufleet/terraform-provider-gpu/internal/fake/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/libvirtd"
)

// TestVGPUConformance drives go-nvml with a libnvidia-ml, and a sysfs that answers as
// NVIDIA's vGPU driver does. Both are of one host.
func TestVGPUConformance(t *testing.T) {
	conformance.RunVGPU(t, func(t *testing.T, initial gpu.Host, mediated []string) conformance.VGPUFixture {
		t.Helper()
		return newVGPUFixture(t, initial, mediated)
	})
}

// TestRealVGPUDefinitions has libvirt's own daemon say which vGPUs VMs name.
func TestRealVGPUDefinitions(t *testing.T) {
	daemon := libvirtd.Start(t)
	conformance.RunVGPU(t, func(t *testing.T, initial gpu.Host, mediated []string) conformance.VGPUFixture {
		t.Helper()
		f := newVGPUFixture(t, initial, mediated)
		f.libvirt, f.real = filepath.Join(daemon.Root(), "run/libvirt/libvirt-sock"), daemon
		f.open()
		t.Cleanup(func() {
			for _, vm := range f.domains {
				daemon.Undefine(vm.Name)
			}
		})
		return f
	}, "definitions")
}

// vgpuFixture is a Linux KVM host: a machine behind NVML, and a kernel.
type vgpuFixture struct {
	*fixture
	kernel *fakevgpu.Kernel
	cards  []fakevgpu.Card // by GPU; without an address for one without vGPUs
	vms    map[gpu.VGPUPlace]int
	// libvirt is where a daemon may be, which is started for the first VM that is off.
	libvirt string
	daemon  *fakelibvirt.Daemon
	real    *libvirtd.Daemon // in its place
	domains []fakelibvirt.Domain
}

func newVGPUFixture(t *testing.T, initial gpu.Host, mediated []string) *vgpuFixture {
	t.Helper()
	f := &vgpuFixture{
		fixture: &fixture{t: t, tree: fakenvml.NewProcTree(t), units: t.TempDir(), pid: 4700},
		vms:     map[gpu.VGPUPlace]int{},
	}
	dir, err := os.MkdirTemp("", "libvirt") //nolint:usetesting // sockets have short paths, and t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f.libvirt = filepath.Join(dir, "libvirt-sock")
	var (
		o     fakenvml.Options
		cards []fakevgpu.Card
	)
	for i := range initial.GPUs {
		g := &initial.GPUs[i]
		f.ids = append(f.ids, g.ID)
		c, k := card(g), fakevgpu.Card{}
		if g.VGPU != nil {
			k = kernelCard(i, g, slices.Contains(mediated, g.ID))
			c.VGPU = nvmlTypes(g, k.Types)
			cards = append(cards, k)
		}
		f.cards = append(f.cards, k)
		o.GPUs = append(o.GPUs, c)
	}
	f.machine = fakenvml.New(t, o)
	f.kernel = fakevgpu.New(t, cards...)
	f.kernel.Follow(driver{f})
	f.open()
	t.Cleanup(func() {
		if err := f.backend.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

// kernelCard is a GPU of the suite as the kernel knows it.
func kernelCard(index int, g *gpu.GPU, mediated bool) fakevgpu.Card {
	c := fakevgpu.Card{
		Address: g.Address, Shape: vgpu.ShapeVFIO, VFs: g.VGPU.Functions,
		MIG: g.MIG != nil, Heterogeneous: g.VGPU.HeterogeneousSupported, Minor: index,
	}
	switch {
	case g.VGPU.Functions == 0:
		c.Shape = vgpu.ShapeMdev
	case mediated:
		c.Shape = vgpu.ShapeMdevVF
	}
	for n, t := range g.VGPU.Types {
		c.Memory = max(c.Memory, gpu.Bytes(t.Max)*t.FrameBuffer)
		c.Types = append(c.Types, vgpu.Type{
			ID: (index+1)*100 + n, Name: "NVIDIA " + t.Name, FrameBuffer: t.FrameBuffer, Max: t.Max, Instance: t.MIGProfile,
		})
	}
	return c
}

// nvmlTypes are the same types as NVML knows them.
func nvmlTypes(g *gpu.GPU, types []vgpu.Type) *fakenvml.VGPU {
	v := &fakenvml.VGPU{Mixable: g.VGPU.HeterogeneousSupported}
	for n, t := range types {
		profile := -1
		if g.MIG != nil {
			if p, ok := g.MIG.Profile(t.Instance); ok {
				profile = p.ID
			}
		}
		v.Types = append(v.Types, fakenvml.VGPUType{
			ID: t.ID, Name: t.Name, Framebuffer: t.FrameBuffer, Max: t.Max, MaxPerVM: g.VGPU.Types[n].MaxPerVM, InstanceProfile: profile,
		})
	}
	return v
}

func (f *vgpuFixture) open() {
	f.t.Helper()
	f.backend = nvidia.New(nvidia.Options{
		Library: f.machine.Library(), Root: f.tree.Root(), SMI: f.machine.SMI(),
		Systemctl: filepath.Join(f.units, "systemctl"), VGPU: f.kernel.Options(),
		Libvirt: libvirt.Options{Sockets: []string{f.libvirt}, Patience: time.Minute},
		MPS:     mps.Options{Program: filepath.Join(f.units, "nvidia-cuda-mps-control")}, // it has none
	})
}

func (f *vgpuFixture) VGPU() backend.VGPU { return f.backend }

func (f *vgpuFixture) StartProcess(t *testing.T, gpuID, name string) int {
	t.Helper()
	return f.fixture.StartProcess(t, gpuID, nil, name)
}

// device is what a VM is given of a vGPU.
func (f *vgpuFixture) device(gpuID string, p gpu.VGPUPlace) string {
	if p.UUID != "" {
		return p.UUID
	}
	return fakevgpu.VF(f.cards[f.index(gpuID)].Address, p.Function)
}

func (f *vgpuFixture) Hold(t *testing.T, gpuID string, p gpu.VGPUPlace, vm string) {
	t.Helper()
	f.pid++
	f.vms[p] = f.pid
	f.kernel.HoldVM(f.pid, f.device(gpuID, p), vm)
}

func (f *vgpuFixture) Release(t *testing.T, _ string, p gpu.VGPUPlace) {
	t.Helper()
	f.kernel.End(f.vms[p])
}

func (f *vgpuFixture) Define(t *testing.T, gpuID string, p gpu.VGPUPlace, vm string, state gpu.VMState) {
	t.Helper()
	device := fmt.Sprintf("<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='%s'/></source></hostdev>", p.UUID)
	if p.UUID == "" {
		var at [4]int
		if _, err := fmt.Sscanf(f.device(gpuID, p), "%x:%x:%x.%x", &at[0], &at[1], &at[2], &at[3]); err != nil {
			t.Fatal(err)
		}
		device = fmt.Sprintf("<hostdev mode='subsystem' type='pci' managed='no'><source>"+
			"<address domain='0x%04x' bus='0x%02x' slot='0x%02x' function='0x%x'/></source></hostdev>", at[0], at[1], at[2], at[3])
	}
	f.domains = append(f.domains, fakelibvirt.Domain{
		Name: vm, UUID: [16]byte{15: byte(len(f.domains) + 1)}, State: fakelibvirt.ShutOff, Saved: state == gpu.VMSaved,
		XML: "<domain type='kvm'><devices>" + device + "</devices></domain>",
	})
	if f.real != nil {
		f.defineReal(vm, device, state)
		return
	}
	if f.daemon == nil {
		f.daemon = fakelibvirt.Listen(t, f.libvirt)
	}
	f.daemon.Define(f.domains...)
}

func (f *vgpuFixture) Take(t *testing.T, gpuID string, p gpu.VGPUPlace, driver string) {
	t.Helper()
	f.kernel.Take(f.device(gpuID, p), cmp.Or(driver, "-"))
}

// defineReal gives a VM that is saved its device when it is: none is there to run with.
func (f *vgpuFixture) defineReal(vm, device string, state gpu.VMState) {
	f.t.Helper()
	if state != gpu.VMSaved {
		f.real.Define(vm, device)
		return
	}
	f.real.Define(vm, "")
	f.real.Run(vm)
	f.real.Save(vm)
	f.real.Attach(vm, device)
}

func (f *vgpuFixture) Undefine(t *testing.T, vm string) {
	t.Helper()
	f.domains = slices.DeleteFunc(f.domains, func(d fakelibvirt.Domain) bool { return d.Name == vm })
	if f.real != nil {
		f.real.Undefine(vm)
		return
	}
	f.daemon.Define(f.domains...)
}

func (f *vgpuFixture) CreateOutside(t *testing.T, gpuID string, p gpu.VGPUPlace) {
	t.Helper()
	f.outside(t, gpuID, p, func(h *vgpu.Host, g *vgpu.GPU, s vgpu.Spec) error { return h.Create(g, s) })
}

func (f *vgpuFixture) RemoveOutside(t *testing.T, gpuID string, p gpu.VGPUPlace) {
	t.Helper()
	f.outside(t, gpuID, p, func(h *vgpu.Host, g *vgpu.GPU, s vgpu.Spec) error { return h.Remove(t.Context(), g, s) })
}

func (f *vgpuFixture) outside(t *testing.T, gpuID string, p gpu.VGPUPlace, change func(*vgpu.Host, *vgpu.GPU, vgpu.Spec) error) {
	t.Helper()
	address, spec := f.spec(t, gpuID, p)
	h := vgpu.New(f.kernel.Options())
	g, err := h.Read(t.Context(), address)
	if err == nil {
		err = change(h, &g, spec)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f *vgpuFixture) spec(t *testing.T, gpuID string, p gpu.VGPUPlace) (string, vgpu.Spec) {
	t.Helper()
	c := f.cards[f.index(gpuID)]
	i := slices.IndexFunc(c.Types, func(typ vgpu.Type) bool { return typ.ShortName() == p.Type })
	if i < 0 {
		t.Fatalf("GPU %s has no vGPU type %s", gpuID, p.Type)
	}
	return c.Address, vgpu.Spec{Function: p.Function, UUID: p.UUID, Type: c.Types[i].ID}
}

func (f *vgpuFixture) Reboot(t *testing.T) {
	t.Helper()
	if err := f.backend.Close(); err != nil {
		t.Error(err)
	}
	f.machine.Reboot()
	f.kernel.Reboot()
	f.open()
}

// driver is the machine behind NVML, to the kernel.
type driver struct{ f *vgpuFixture }

func (d driver) index(address string) int {
	d.f.t.Helper()
	i := slices.IndexFunc(d.f.cards, func(c fakevgpu.Card) bool { return c.Address == address })
	if i < 0 {
		d.f.t.Fatalf("there is no GPU at %s", address)
	}
	return i
}

func (d driver) Open() bool { return len(d.f.machine.Clients()) > 0 }

func (d driver) GPU(address string) fakevgpu.DriverGPU {
	g := d.f.machine.GPU(d.index(address))
	out := fakevgpu.DriverGPU{Heterogeneous: g.VGPUMixed, MIG: g.MIG, Processes: g.Processes}
	for _, in := range g.Instances {
		out.Instances = append(out.Instances, fakevgpu.Instance{ID: in.ID, Profile: in.Profile})
	}
	return out
}

func (d driver) Begin(address string, typ, instance int) int {
	return d.f.machine.StartVGPU(d.index(address), typ, instance, "")
}

func (d driver) End(number int) { d.f.machine.StopVGPU(number) }

func (d driver) Unbind(address string) { d.f.machine.UnbindGPU(d.index(address)) }
