package change

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// vgpuSearch looks for the vGPU of an assignment on a Linux host. There the VM manager chooses nothing: a
// definition names one vGPU for good.
type vgpuSearch struct {
	host *gpu.Host
	of   *gpu.Assignment
	want *gpu.PartitionWant
	// own is the record of the assignment, nil for none.
	own *gpu.Claim
}

func searchVGPU(host *gpu.Host, a *gpu.Assignment) *vgpuSearch {
	s := &vgpuSearch{host: host, of: a, want: a.Partition}
	s.own, _ = host.Claim(gpu.ClaimAssignment, a.VMID)
	return s
}

// vgpuOn is a vGPU and its GPU.
type vgpuOn struct {
	gpu *gpu.GPU
	in  *gpu.VGPUInstance
}

func (v vgpuOn) device() gpu.DeviceAssignment {
	place := v.in.VGPUPlace
	return gpu.DeviceAssignment{GPU: v.gpu.ID, VGPU: &place}
}

// String names it as a definition does where the host tells that: "L40S-12Q at 0000:41:00.4".
func (v vgpuOn) String() string {
	switch {
	case v.in.UUID != "":
		return v.in.Type + " with UUID " + v.in.UUID
	case v.in.Address != "":
		return v.in.Type + " at " + v.in.Address
	}
	return placeText(v.in.VGPUPlace) + " of GPU " + v.gpu.ID
}

// all are the vGPUs of the host.
func (s *vgpuSearch) all() []vgpuOn {
	var out []vgpuOn
	for i := range s.host.GPUs {
		g := &s.host.GPUs[i]
		if g.VGPU == nil || g.Dismounted {
			continue
		}
		for j := range g.VGPU.Instances {
			out = append(out, vgpuOn{g, &g.VGPU.Instances[j]})
		}
	}
	return out
}

// ofConfig reports whether a GPU is of a config that the assignment names, if it names any.
func (s *vgpuSearch) ofConfig(g *gpu.GPU) bool {
	ids := s.want.ConfigIDs()
	return len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool {
		c, claimed := s.host.Claim(gpu.ClaimConfig, id)
		return claimed && c.Want.Config != nil && c.Want.Config.Kind == gpu.KindVGPU && c.Covers(g.ID)
	})
}

// fits reports whether a vGPU is what is wanted, whoever has it.
func (s *vgpuSearch) fits(v vgpuOn) bool {
	t, offered := v.gpu.VGPU.Offers(v.in.Type)
	switch w := s.want; {
	case !s.ofConfig(v.gpu), w.PinnedGPU != "" && !gpu.SameID(w.PinnedGPU, v.gpu.ID):
		return false
	case w.Type != "" && !sameVGPUType(v, w.Type):
		return false
	case w.VRAM != nil && (!offered || t.FrameBuffer.MiB() != w.VRAM.MiB()):
		return false
	}
	return true
}

func sameVGPUType(v vgpuOn, name string) bool {
	t, offered := v.gpu.VGPU.Offers(name)
	return gpu.SameID(v.in.Type, name) || offered && gpu.SameID(v.in.Type, t.Name)
}

// isOwn reports whether a device is in the definition of the assignment's VM.
func (s *vgpuSearch) isOwn(d *gpu.HostDevice) bool {
	return d.IsOf(s.of.VMID) || d.IsOf(s.of.VMName) || d.IsOf(s.of.VM)
}

// named reports whether the definition of the assignment's VM names a vGPU.
func (s *vgpuSearch) named(v vgpuOn) bool {
	return slices.ContainsFunc(s.host.HostDevices, func(d gpu.HostDevice) bool { return s.isOwn(&d) && d.Names(v.in) })
}

// recorded reports whether the record of the assignment has a vGPU.
func (s *vgpuSearch) recorded(v vgpuOn) bool {
	return s.own != nil && s.own.Device.IsVGPU(v.gpu.ID, v.in.VGPUPlace)
}

// takenBy is who else has a vGPU, needs it at its next start, or has it reserved; "" is nobody.
func (s *vgpuSearch) takenBy(v vgpuOn) string {
	for c := range s.host.ClaimsOf(gpu.ClaimAssignment) {
		if c != s.own && c.Device.IsVGPU(v.gpu.ID, v.in.VGPUPlace) {
			return "the assignment of VM " + words.Name(claimedVM(c))
		}
	}
	for i := range s.host.HostDevices {
		if d := &s.host.HostDevices[i]; d.Names(v.in) && !s.isOwn(d) {
			return "VM " + words.Name(d.VM)
		}
	}
	if v.in.Holder != "" && !slices.Contains([]string{"VM " + s.of.VM, "VM " + s.of.VMName}, v.in.Holder) {
		return v.in.Holder
	}
	return ""
}

// ChooseVGPU is the vGPU that an assignment gets on a Linux host which carries the claims for its VMs: the one that its VM names
// already, else the one on record, else one of the GPU that has the fewest left.
func ChooseVGPU(host *gpu.Host, a *gpu.Assignment) (gpu.DeviceAssignment, *gpu.Refusal) {
	s := searchVGPU(host, a)
	var fit, free []vgpuOn
	var types, takers []string
	left := map[string]int{}
	for _, v := range s.all() {
		if !s.fits(v) {
			continue
		}
		fit = append(fit, v)
		types = append(types, v.in.Type)
		if who := s.takenBy(v); who != "" {
			takers = append(takers, who)
			continue
		}
		free = append(free, v)
		left[v.gpu.ID]++
	}
	slices.Sort(types)
	types = slices.Compact(types)
	switch {
	case len(fit) == 0:
		return gpu.DeviceAssignment{}, s.noneFits()
	case len(types) > 1 && s.want.Type == "":
		return gpu.DeviceAssignment{}, s.refuse(gpu.BadRequest, "there are vGPUs of several types: %s", words.JoinAll(types)).
			Or("write the one that is meant as partition.type")
	case len(free) == 0:
		slices.Sort(takers)
		return gpu.DeviceAssignment{}, s.refuse(gpu.Insufficient, "%s%s there %s taken, by %s", words.Plural(len(fit), "vGPU"),
			s.kind(), words.Verb(len(fit), "is", "are"), words.Join(slices.Compact(takers))).
			Or("have the config make more, take one from another VM in an apply of its own, or choose another type")
	}
	for _, first := range []func(vgpuOn) bool{s.named, s.recorded} {
		if i := slices.IndexFunc(free, first); i >= 0 {
			return free[i].device(), nil
		}
	}
	return slices.MinFunc(free, func(x, y vgpuOn) int { return left[x.gpu.ID] - left[y.gpu.ID] }).device(), nil
}

// VMFor is the VM for which an assignment reserves a vGPU, as its host shows it, or as one that is off while the host has none. Its id
// is that of the record, under which the reservation was made.
func VMFor(host *gpu.Host, a *gpu.Assignment) *gpu.VM {
	id, is := cmp.Or(a.VMID, a.VM), gpu.VM{Name: a.VM, State: gpu.VMOff}
	for i := range host.VMs {
		if vm := &host.VMs[i]; gpu.SameID(vm.ID, id) || gpu.SameID(vm.ID, a.VM) || gpu.SameID(vm.Name, a.VM) {
			is = *vm
			break
		}
	}
	is.ID = id
	return &is
}

// claimedVM is what people call the VM of an assignment.
func claimedVM(c *gpu.Claim) string {
	if a := c.Want.Assignment; a != nil {
		return cmp.Or(a.VMName, a.VM, c.ID)
	}
	return c.ID
}

func (s *vgpuSearch) refuse(code gpu.Code, format string, args ...any) *gpu.Refusal {
	return refuse(code, changeGPU, vmText(cmp.Or(s.of.VMName, s.of.VM)), format, args...).OfRule(Capacity)
}

// kind is which vGPUs are looked for: " of type L40S-12Q of partition config vdi".
func (s *vgpuSearch) kind() string {
	what := ""
	if s.want.Type != "" {
		what += " of type " + s.want.Type
	}
	if len(s.want.ConfigIDs()) > 0 {
		what += " of " + configsOf(s.want)
	}
	if s.want.PinnedGPU != "" {
		what += " on GPU " + s.want.PinnedGPU
	}
	if s.want.VRAM != nil {
		what += fmt.Sprintf(" of %d MiB", s.want.VRAM.MiB())
	}
	return what
}

// noneFits says that no vGPU is what is wanted, and what there is in its place.
func (s *vgpuSearch) noneFits() *gpu.Refusal {
	var has []string
	for _, v := range s.all() {
		if s.ofConfig(v.gpu) {
			has = append(has, v.in.Type)
		}
	}
	slices.Sort(has)
	if has = slices.Compact(has); len(has) == 0 {
		return s.refuse(gpu.NotFound, "host %q has no vGPU%s", s.host.Name, s.kind()).
			Or("have a gpu_partition_config with vgpu make some there, and name it in partition.config")
	}
	return s.refuse(gpu.NotFound, "host %q has no vGPU%s; it has %s", s.host.Name, s.kind(), words.JoinAll(has)).
		Or("write a type that there is, or have the config make this one")
}

// reserve plans the record of a vGPU that the VM's own resource gives it. Nothing is done to the VM.
func (p *planner) reserve(id string, claim *gpu.Claim) error {
	want := p.change.Want.Assignment
	if want == nil {
		if claim != nil {
			p.drop(*claim)
		}
		return nil
	}
	if p.change.Act != "" {
		return refuseFor(gpu.BadRequest, "%s is done with a VM that has its GPU from its assignment, and this one only reserves a vGPU",
			p.change.Act)
	}
	if err := p.knows(changeGPU, "", nil, gpu.PartVGPUs, gpu.PartGPUs); err != nil {
		return err
	}
	of := *want
	of.VMID = id
	device, refused := ChooseVGPU(&p.host, &of)
	if refused != nil {
		return refused
	}
	c := p.assignmentClaim(id, claim)
	c.Device = &device
	p.putOver(claim, c)
	return nil
}

// strayedVGPU is why a VM does not have the vGPU that is on record of its assignment, and how that came; "" where it has.
func strayedVGPU(host *gpu.Host, a *gpu.Assignment, claim *gpu.Claim) (found string, cause Cause) {
	if claim == nil || claim.Device == nil {
		return "", ""
	}
	s := searchVGPU(host, a)
	s.own = claim
	if _, unknown := host.Concerning("", []string{claim.Device.GPU}, gpu.PartVGPUs); unknown {
		return "", ""
	}
	in, there := host.VGPUOf(claim.Device)
	if !there {
		return "has no vGPU any more: " + placeText(*claim.Device.VGPU) + " of GPU " + claim.Device.GPU + " is gone", CauseReboot
	}
	g, _ := host.GPU(claim.Device.GPU)
	is := vgpuOn{g, in}
	if !s.fits(is) {
		return "has a vGPU that is not as declared any more: it is " + is.String(), CauseOtherTool
	}
	if s.named(is) {
		return "", ""
	}
	if !a.Reserves() {
		return "does not have the vGPU of its assignment in its definition any more, " + is.String(), CauseOtherTool
	}
	for _, v := range s.all() {
		if s.named(v) && s.fits(v) && s.takenBy(v) == "" {
			return "has another vGPU in its definition, " + v.String() + ", and " + is.String() + " is the one of its assignment", CauseOtherTool
		}
	}
	return "", ""
}

// linuxLacks are the arguments of an assignment that VMs of Linux hosts have no use for.
func linuxLacks(a *gpu.Assignment) []string {
	var out []string
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"pool", a.Pool != nil},
		{"device", a.Device != nil},
		{"quotas of the partition", a.Partition != nil && !a.Partition.Quotas.Empty()},
		{"low_memory_mapped_io_space_mib", a.Settings.LowMemoryMappedIOSpace != nil},
		{"high_memory_mapped_io_space_mib", a.Settings.HighMemoryMappedIOSpace != nil},
		{"guest_controlled_cache_types", a.Settings.GuestControlledCache != nil},
		{"automatic_stop_action", a.Settings.AutomaticStopAction != nil},
		{"offline_action", a.Settings.OfflineAction != nil},
	} {
		if x.set {
			out = append(out, x.name)
		}
	}
	return out
}

// Unfit is why no host of a platform does what an assignment wants, and what to do about it; "" where it does.
func Unfit(platform gpu.Platform, a *gpu.Assignment) (why, fix string) {
	linux := a.Partition != nil && (a.Partition.Type != "" || a.Partition.Attach != "")
	switch lacks := linuxLacks(a); {
	case platform == gpu.HyperV && linux:
		return "partition.type and partition.attach are for vGPUs of Linux hosts", "Leave both out for VMs of Hyper-V hosts."
	case platform != gpu.Linux:
		return "", ""
	case a.Device != nil || a.Pool != nil:
		return "VMs of Linux hosts get vGPUs; whole GPUs are not passed through to them",
			"Write `partition` in place of `pool` and `device`, with a gpu_partition_config of kind `vgpu`."
	case len(lacks) > 0:
		return "VMs of Linux hosts have no " + words.JoinAll(lacks), "Leave that out."
	}
	return "", ""
}

// chooseVGPU finds the vGPU that the VM shall have, and the one that it has from us. One that the VM has already stays the device that
// it is; the claim keeps by which alias it is told from what others give the VM.
func (m *move) chooseVGPU(c, claim *gpu.Claim, holds *gpu.Assignment) *gpu.Refusal {
	if u, is := m.host.Concerning(m.vm.ID, nil, gpu.PartVGPUs, gpu.PartVMs); is {
		return unreadable(changeGPU, u)
	}
	of := *m.change.Want.Assignment
	of.VMID, of.VMName = m.vm.ID, m.vm.Name
	chosen, refused := ChooseVGPU(&m.host, &of)
	if refused != nil {
		return refused
	}
	if r := m.startsWith(&chosen); r != nil {
		return r
	}
	m.gets = &chosen
	if claim != nil {
		m.has = claim.Device
	} else {
		m.has = adoptedVGPU(m.vm, holds)
	}
	chosen.ID = aliasOf(m.change.Token)
	if i := slices.IndexFunc(m.vm.Devices, m.isThere); i >= 0 {
		chosen.ID = m.vm.Devices[i].ID
	}
	c.Device = m.gets
	return nil
}

// isThere reports whether a device of the VM is the vGPU that it shall have.
func (m *move) isThere(d gpu.DeviceAssignment) bool {
	return m.gets != nil && d.IsVGPU(m.gets.GPU, *m.gets.VGPU)
}

// adoptedVGPU is the vGPU that a VM has which an assignment without a record is about; nil for none.
func adoptedVGPU(vm *gpu.VM, holds *gpu.Assignment) *gpu.DeviceAssignment {
	if holds == nil || holds.Partition == nil {
		return nil
	}
	if i := slices.IndexFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return d.VGPU != nil }); i >= 0 {
		return &vm.Devices[i]
	}
	return nil
}

// aliasOf is the alias of what the assignment of a token writes, in letters that libvirt takes.
func aliasOf(token string) string {
	const length = 12
	text := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(token))
	return gpu.AliasPrefix + text[:min(length, len(text))]
}

// nameDevices has the definition of a VM of a Linux host name the vGPUs that the VM has, and these be held or named by it.
func nameDevices(h *gpu.Host, vm *gpu.VM) {
	if h.Platform != gpu.Linux {
		return
	}
	devices := slices.DeleteFunc(slices.Clone(h.HostDevices), func(d gpu.HostDevice) bool {
		return d.IsOf(vm.ID) && !slices.ContainsFunc(vm.Devices, func(x gpu.DeviceAssignment) bool { return gpu.SameID(x.ID, d.ID()) })
	})
	for i := range devices {
		if devices[i].IsOf(vm.ID) {
			devices[i].State = vm.State
		}
	}
	for _, x := range vm.Devices {
		in, there := h.VGPUOf(&x)
		if !there || slices.ContainsFunc(devices, func(d gpu.HostDevice) bool { return d.IsOf(vm.ID) && gpu.SameID(d.ID(), x.ID) }) {
			continue
		}
		d := gpu.HostDevice{VM: vm.Name, VMID: vm.ID, State: vm.State, UUID: in.UUID, Alias: x.ID}
		if in.UUID == "" {
			d.Address = in.Address
		}
		devices = append(devices, d)
	}
	h.HostDevices, h.GPUs = devices, slices.Clone(h.GPUs)
	holdDevices(h, vm)
	h.NameVGPUs()
}

// holdDevices has a VM that runs hold the vGPUs that it has, and one that is off none.
func holdDevices(h *gpu.Host, vm *gpu.VM) {
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.VGPU == nil {
			continue
		}
		v := *g.VGPU
		v.Instances = slices.Clone(v.Instances)
		for j := range v.Instances {
			in := &v.Instances[j]
			has := vm.Runs() && slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return d.IsVGPU(g.ID, in.VGPUPlace) })
			switch {
			case has:
				in.Holder = "VM " + vm.Name
			case in.Holder == "VM "+vm.Name:
				in.Holder = ""
			}
		}
		g.VGPU = &v
	}
}

// takesVGPU refuses a vGPU that is not there, or that another VM has.
func takesVGPU(host *gpu.Host, s Step) *gpu.Refusal {
	in, there := host.VGPUOf(s.Device)
	vm, here := host.VM(s.VM)
	switch {
	case !here:
		return nil
	case !there:
		return refuse(gpu.NotFound, changeGPU, vmText(s.VMName()), "there is no vGPU %s of GPU %s", placeText(*s.Device.VGPU), s.Device.GPU).
			Or("apply the partition config of its GPU")
	case in.Holder != "" && in.Holder != "VM "+vm.Name:
		return refuse(gpu.InUse, changeGPU, vmText(s.VMName()), "%s has it", in.Holder).
			Or("take it from that VM first").OfRule(Capacity)
	}
	return nil
}

// isManaged refuses to write definitions of VMs on a Linux host where they are not libvirt's to change.
func isManaged(host *gpu.Host, a *gpu.Assignment) *gpu.Refusal {
	const reserved = "reserve the vGPU with partition.attach = \"none\" and let the VM's own resource or manager give it to the VM"
	if host.Platform != gpu.Linux || a.Reserves() {
		return nil
	}
	if _, unknown := host.UnknownPart(gpu.PartVGPUs); unknown && host.VMManager == nil {
		return nil // it is there, and cannot be read
	}
	r := func(format string, args ...any) *gpu.Refusal {
		return refuse(gpu.NotSupported, "give a VM a GPU", "host "+host.Name, format, args...).OfRule(VMManager)
	}
	switch is := host.VMManager; {
	case is == nil:
		return r("it runs Linux and nothing that is known to manage VMs, and this requires Hyper-V, or libvirt").
			Or("start libvirt there, or %s", reserved)
	case is.Name != gpu.Libvirt:
		return r("%s manages its VMs, and writes their definitions itself", is.Name).Or("%s", reserved)
	}
	return nil
}

// The first version of libvirt that gives a function to a VM which the vendor's driver keeps (libvirt's news of 9.7.0).
const unmanagedMajor, unmanagedMinor = 9, 7

// startsWith refuses a vGPU with which the VM would not start, or which it would lose by that.
func (m *move) startsWith(d *gpu.DeviceAssignment) *gpu.Refusal {
	in, _ := m.host.VGPUOf(d)
	if in.UUID != "" {
		return nil // libvirt leaves a mediated device as it is
	}
	var major, minor int
	version := m.host.VMManager.Version
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n > 1 &&
		(major < unmanagedMajor || major == unmanagedMajor && minor < unmanagedMinor) {
		return refuse(gpu.NotSupported, changeGPU, vmText(m.vm.Name),
			"host %q has libvirt %s, which starts no VM with a function that NVIDIA's driver has", m.host.Name, version).
			Or("install libvirt 9.7.0 or later").OfRule(LibvirtVersion)
	}
	for i := range m.host.HostDevices {
		if x := &m.host.HostDevices[i]; x.Managed && x.IsOf(m.vm.ID) && x.Names(in) {
			return refuse(gpu.InvalidState, changeGPU, vmText(m.vm.Name),
				"its definition names %s with managed='yes', by which libvirt takes it from NVIDIA's driver: the vGPU is lost at the start",
				vgpuOn{in: in}).Or("write managed='no' there, as with `virsh edit`").OfRule(HostdevManaged)
		}
	}
	return nil
}
