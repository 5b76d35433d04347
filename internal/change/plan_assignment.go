package change

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const changeGPU = "change the VM's GPU"

// assignment plans what a VM holds. Whatever it moves between (a partition, a pool, a
// device), the VM is stopped at most once.
func (p *planner) assignment() error {
	want, prior := p.change.Want.Assignment, p.change.Prior.Assignment
	shape := want
	if shape == nil {
		shape = prior
	}
	if shape == nil {
		return refuseFor(gpu.BadRequest, "the change neither wants anything nor had anything")
	}
	vm, err := p.findVM(shape)
	if err != nil {
		return err
	}
	id := shape.VMID
	switch {
	case shape.Reserves():
		id = cmp.Or(id, shape.VM) // whatever VM there is by now
	case vm != nil:
		id = vm.ID
	}
	claim, _ := p.host.Claim(gpu.ClaimAssignment, id)
	ours, err := p.owns(gpu.ClaimAssignment, id, claim, prior != nil, want != nil)
	if err != nil || !ours {
		if err == nil && claim == nil && vm != nil && !p.change.ClaimOnly && !shape.Reserves() {
			return p.unrecorded(vm, prior)
		}
		return err
	}
	if shape.Reserves() && !p.change.ClaimOnly {
		return p.reserve(id, claim)
	}
	if want != nil || !p.dropOnly(claim) {
		if err := p.knows(changeGPU, id, nil, gpu.PartVMs, gpu.PartDevices, gpu.PartCluster); err != nil {
			return err
		}
	}
	switch {
	case want == nil && (vm == nil || p.dropOnly(claim)):
		if claim != nil {
			p.drop(*claim)
		}
		return nil
	case want == nil:
		return p.unassign(vm, claim)
	case p.change.ClaimOnly:
		c := p.assignmentClaim(id, claim)
		if claim != nil {
			c.Pending, c.HeldUntilOff = claim.Pending, claim.HeldUntilOff
		}
		p.put(c)
		return nil
	case p.change.Act == ActStart || p.change.Act == ActStop:
		return p.power(vm, claim)
	case vm == nil:
		return refuse(gpu.NotFound, "find the VM", vmText(shape.VM), "the host has no such VM")
	case vm.Transient:
		return refuse(gpu.InvalidState, changeGPU, vmText(vm.Name), "it is transient: it has no stored definition, and is gone when it is off").
			Or("define it, as with `virsh define`").OfRule(VMTransient)
	}
	return p.assign(vm, claim)
}

// findVM finds the VM by the id that it resolved to, else as the user wrote it. It
// returns nil for a VM that is not here.
func (p *planner) findVM(a *gpu.Assignment) (*gpu.VM, error) {
	if a.VMID != "" {
		vm, _ := p.host.VM(a.VMID)
		return vm, nil
	}
	if vm, ok := p.host.VM(a.VM); ok {
		return vm, nil
	}
	var found *gpu.VM
	for i := range p.host.VMs {
		if !gpu.SameID(p.host.VMs[i].Name, a.VM) {
			continue
		}
		if found != nil {
			return nil, refuseFor(gpu.BadRequest, "host %q has more than one VM called %q; name it by its id", p.host.Name, a.VM)
		}
		found = &p.host.VMs[i]
	}
	return found, nil
}

// assignmentClaim is the claim for the VM with what was recorded before.
func (p *planner) assignmentClaim(id string, old *gpu.Claim) gpu.Claim {
	c := p.newClaim(gpu.ClaimAssignment, id, old)
	if vm, ok := p.host.VM(id); ok && p.host.Keeps(vm) {
		c.Cluster = p.host.Cluster.Name
	}
	want := *p.change.Want.Assignment
	want.VMID = id
	c.Want.Assignment = &want
	if old != nil {
		c.SettingsBefore, c.Dismounted, c.Device = old.SettingsBefore, old.Dismounted, old.Device
	}
	if want.Device != nil {
		c.GPUs = want.Device.GPUIDs
	}
	return c
}

// awayFrom tells whether an assignment is of whole GPUs of another host.
func awayFrom(a *gpu.Assignment, host string) bool {
	return a != nil && a.Device != nil && a.Device.Host != host
}

// holding is what the resource gave the VM so far, as far as is known.
func (p *planner) holding(claim *gpu.Claim) *gpu.Assignment {
	switch {
	case claim != nil && claim.Pending:
		return claim.HeldUntilOff
	case claim != nil && claim.Incomplete && claim.Want.Assignment != nil:
		// Of what it had and what it was to get it may have either.
		has, had := *claim.Want.Assignment, cmp.Or(claim.HeldUntilOff, p.change.Prior.Assignment, claim.Want.Assignment)
		has.Partition, has.Pool, has.Device = cmp.Or(has.Partition, had.Partition), cmp.Or(has.Pool, had.Pool), cmp.Or(has.Device, had.Device)
		return &has
	case claim != nil:
		return claim.Want.Assignment
	}
	return p.change.Prior.Assignment
}

func (p *planner) assign(vm *gpu.VM, claim *gpu.Claim) error {
	want, holds := p.change.Want.Assignment, p.holding(claim)
	if w := want.Pool; w != nil && w.Count > len(p.host.GPUs) {
		return refuse(gpu.Insufficient, changeGPU, vmText(vm.Name), "%d GPUs of pool %s are wanted, and the host has %d",
			w.Count, words.Name(w.Name), len(p.host.GPUs))
	}
	c := p.assignmentClaim(vm.ID, claim)
	m := move{planner: p, vm: vm, away: awayFrom(holds, p.key)}
	if p.host.Platform == gpu.Linux {
		if r := m.chooseVGPU(&c, claim, holds); r != nil {
			return r
		}
	}
	m.leave(holds, want)
	m.arrive(holds, want)
	if awayFrom(want, p.key) && len(m.devices) > 0 {
		return refuse(gpu.NotFound, changeGPU, vmText(vm.Name), "the wanted GPUs are on host %q", want.Device.Host).
			Or("move the VM back, or name GPUs of the host that it is on")
	}
	m.settings(&c, holds, want.Settings)
	if p.change.Act == ActPending && (claim == nil || !claim.Pending) {
		return nil // nothing waits
	}
	if m.needsOff() && want.Power.NextOff && p.change.Act != ActPending && vm.State != gpu.VMOff {
		c = p.assignmentClaim(vm.ID, claim)
		c.Pending, c.HeldUntilOff = true, holds
		if c.Device == nil {
			c.Device = m.gets // reserved until then
		}
		p.put(c)
		return nil
	}
	c.Dismounted = m.dismount(want, c.Dismounted)
	return m.carryOut(want.Power, func() {
		c.Dismounted = m.mountBack(want, c.Dismounted)
		p.put(c)
	})
}

func (p *planner) unassign(vm *gpu.VM, claim *gpu.Claim) error {
	holds := p.holding(claim)
	power := p.change.Prior.Assignment.Power
	m := move{planner: p, vm: vm, away: awayFrom(holds, p.key)}
	var c gpu.Claim
	if claim != nil {
		c = *claim
	}
	m.has = c.Device
	if p.host.Platform == gpu.Linux && claim == nil {
		m.has = adoptedVGPU(vm, holds)
	}
	m.leave(holds, nil)
	m.settings(&c, holds, gpu.VMSettings{})
	refused := m.carryOut(power, func() {
		m.mountBack(nil, c.Dismounted)
		if claim != nil {
			p.drop(*claim)
		}
	})
	if m.needsOff() && power.NextOff && vm.Runs() {
		return refuse(gpu.InvalidState, "take the GPU from the VM", vmText(vm.Name),
			"it runs, and its assignment waits for the next power-off").Or("shut it down, or set power.when = \"now\" and apply first").
			OfRule(VMMustBeOff)
	}
	return refused
}

// unrecorded refuses to end an assignment of which no record says that it is one, while the VM
// has what it was given: nobody could tell any more whose that is.
func (p *planner) unrecorded(vm *gpu.VM, prior *gpu.Assignment) error {
	m := move{planner: p, vm: vm, has: adoptedVGPU(vm, prior)}
	if m.leave(prior, nil); !m.needsOff() {
		return nil
	}
	if vm.Clustered { // else the record is not the cluster's
		if err := p.knows(changeGPU, vm.ID, nil, gpu.PartCluster); err != nil {
			return err
		}
	}
	return refuse(gpu.NotOwner, "take the GPU from the VM", vmText(vm.Name),
		"it has the GPU that its assignment gave it, and the host has lost the record of that").
		Or("apply the assignment once, which writes the record again, and destroy it then; or remove it from the state with `terraform state " +
			"rm`, and the VM keeps its GPU")
}

// OnlyLiveSettings reports whether an update of an assignment only writes settings that a
// running VM takes, by what was applied and what is wanted alone: the VM is taken to be as it
// was left.
func OnlyLiveSettings(prior, want gpu.Assignment) bool {
	write := want.Settings.Differs(prior.Settings).Overlay(prior.Settings.Differs(want.Settings))
	return !write.Empty() && !write.NeedOff() && givesTheSame(prior, want)
}

// givesTheSame reports whether two assignments give a VM the same. Which GPU a config's partition is of is the host's affair. GPUs
// of a pool are counted and not listed: how many is what a user wrote, and no host has said yet that there are so many.
func givesTheSame(prior, want gpu.Assignment) bool {
	switch {
	case prior.Partition != nil && want.Partition != nil:
		had, gets := prior.Partition, want.Partition
		return sameIDs(had.ConfigIDs(), gets.ConfigIDs()) && gpu.SameID(had.PinnedGPU, gets.PinnedGPU) && had.Quotas.Equal(gets.Quotas) &&
			gpu.SameID(had.Type, gets.Type) && had.Attach == gets.Attach
	case prior.Pool != nil && want.Pool != nil:
		return gpu.SameID(prior.Pool.Name, want.Pool.Name) && poolCount(prior.Pool) == poolCount(want.Pool)
	case prior.Device != nil && want.Device != nil:
		return prior.Device.Host == want.Device.Host && sameIDs(prior.Device.GPUIDs, want.Device.GPUIDs)
	}
	return false
}

// move is how one VM gets from what it holds to what it shall hold.
type move struct {
	*planner
	vm *gpu.VM
	// away is true when the VM has left the host whose GPUs it was given.
	away bool

	keepAdapters, keepDevices []string // ids that stay
	dropAdapters, dropDevices bool
	quotas                    *gpu.PartitionAdapter // new quotas for an adapter that stays
	adapter                   *gpu.PartitionAdapter // to add
	devices                   []gpu.DeviceAssignment
	write                     gpu.VMSettings
	// has and gets are the vGPU that the VM of a Linux host has from us, and the one that it shall have.
	has, gets *gpu.DeviceAssignment
}

// leave finds what the VM has from us and does not keep. What somebody else gave it
// stays.
func (m *move) leave(holds, want *gpu.Assignment) {
	leaving := map[string]bool{}
	if holds != nil && holds.Partition != nil && m.host.Platform != gpu.Linux {
		if a := adapterFor(&m.host, m.vm, holds.Partition); a != nil &&
			(want == nil || want.Partition == nil || !serves(&m.host, m.vm, a, want.Partition)) {
			leaving[gpu.FoldID(a.ID)] = true
			m.dropAdapters = true
		}
	}
	for _, d := range m.ourDevices(holds) {
		if !m.keepsDevice(d, want) {
			leaving[gpu.FoldID(d.ID)] = true
			m.dropDevices = true
		}
	}
	for _, a := range m.vm.PartitionAdapters {
		if !leaving[gpu.FoldID(a.ID)] {
			m.keepAdapters = append(m.keepAdapters, a.ID)
		}
	}
	for _, d := range m.vm.Devices {
		if !leaving[gpu.FoldID(d.ID)] {
			m.keepDevices = append(m.keepDevices, d.ID)
		}
	}
}

// ourDevices are the VM's device settings that an assignment made.
func (m *move) ourDevices(holds *gpu.Assignment) []gpu.DeviceAssignment {
	if holds == nil {
		return nil
	}
	var out []gpu.DeviceAssignment
	for _, d := range m.vm.Devices {
		switch {
		case m.has != nil && d.Pool == "" && gpu.SameID(d.ID, m.has.ID),
			holds.Pool != nil && gpu.SameID(d.Pool, holds.Pool.Name) && len(out) < poolCount(holds.Pool),
			holds.Device != nil && d.Pool == "" && gpu.HasID(holds.Device.GPUIDs, d.GPU):
			out = append(out, d)
		}
	}
	return out
}

func (m *move) keepsDevice(d gpu.DeviceAssignment, want *gpu.Assignment) bool {
	switch {
	case want == nil:
		return false
	case m.gets != nil:
		return m.isThere(d)
	case want.Pool != nil && gpu.SameID(d.Pool, want.Pool.Name):
		// Of a pool's GPUs one is as good as another: the first ones stay.
		var before int
		for _, o := range m.vm.Devices {
			if gpu.SameID(o.ID, d.ID) {
				break
			}
			if gpu.SameID(o.Pool, d.Pool) {
				before++
			}
		}
		return before < poolCount(want.Pool)
	case want.Device != nil && d.Pool == "":
		return gpu.HasID(want.Device.GPUIDs, d.GPU)
	}
	return false
}

// poolCount is how many GPUs an assignment draws from its pool.
func poolCount(w *gpu.PoolWant) int { return max(w.Count, 1) }

// arrive finds what the VM has to be given.
func (m *move) arrive(holds, want *gpu.Assignment) {
	switch {
	case m.gets != nil:
		if !slices.ContainsFunc(m.vm.Devices, m.isThere) {
			m.devices = append(m.devices, *m.gets)
		}
	case want.Partition != nil:
		m.arrivePartition(holds, want.Partition)
	case want.Pool != nil:
		have := 0
		for _, d := range m.ourDevices(holds) {
			if m.keepsDevice(d, want) {
				have++
			}
		}
		for range poolCount(want.Pool) - have {
			m.devices = append(m.devices, gpu.DeviceAssignment{Pool: want.Pool.Name})
		}
	case want.Device != nil:
		for _, g := range want.Device.GPUIDs {
			has := slices.ContainsFunc(m.vm.Devices, func(d gpu.DeviceAssignment) bool { return d.Pool == "" && gpu.SameID(d.GPU, g) })
			if !has {
				m.devices = append(m.devices, gpu.DeviceAssignment{GPU: g})
			}
		}
	}
}

func (m *move) arrivePartition(holds *gpu.Assignment, w *gpu.PartitionWant) {
	var before gpu.Quotas
	if holds != nil && holds.Partition != nil {
		before = holds.Partition.Quotas
		if a := adapterFor(&m.host, m.vm, holds.Partition); a != nil && serves(&m.host, m.vm, a, w) {
			switch q := newQuotas(a.Quotas, w.Quotas, before); {
			case q.Equal(a.Quotas):
			case q.Lacks(a.Quotas):
				// Hyper-V leaves a figure without a value as it is: only a new adapter has none.
				if !m.dropAdapters {
					m.dropAdapters, m.keepAdapters = true, adapterIDs(m.vm.PartitionAdapters)
				}
				m.keepAdapters = slices.DeleteFunc(slices.Clone(m.keepAdapters), func(id string) bool { return gpu.SameID(id, a.ID) })
				m.adapter = &gpu.PartitionAdapter{PinnedGPU: a.PinnedGPU, Quotas: q}
			default:
				m.quotas = &gpu.PartitionAdapter{ID: a.ID, PinnedGPU: a.PinnedGPU, Quotas: q}
			}
			return
		}
	}
	m.adapter = &gpu.PartitionAdapter{PinnedGPU: cmp.Or(w.PinnedGPU, bound(&m.host, m.vm, w).pin()), Quotas: w.Quotas}
}

// newQuotas are the quotas of an adapter that stays: those that are wanted, without
// those that were wanted and no longer are. What nobody of ours wrote stays.
func newQuotas(have, want, before gpu.Quotas) gpu.Quotas {
	pick := func(have, want, before *uint64) *uint64 {
		switch {
		case want != nil:
			return want
		case before != nil:
			return nil
		}
		return have
	}
	one := func(have, want, before gpu.Quota) gpu.Quota {
		return gpu.Quota{
			Min:     pick(have.Min, want.Min, before.Min),
			Max:     pick(have.Max, want.Max, before.Max),
			Optimal: pick(have.Optimal, want.Optimal, before.Optimal),
		}
	}
	return gpu.Quotas{
		VRAM:    one(have.VRAM, want.VRAM.Declared(have.VRAM), before.VRAM), // bytes that are as declared stay
		Encode:  one(have.Encode, want.Encode, before.Encode),
		Decode:  one(have.Decode, want.Decode, before.Decode),
		Compute: one(have.Compute, want.Compute, before.Compute),
	}
}

// settings finds the settings to write: what is wanted, and what was written before
// and is no longer wanted goes back to what it was. The claim remembers the former. What this
// resource wrote itself is never what was before, also when the claim is lost that knew; an
// assignment that waits has written nothing yet.
func (m *move) settings(c *gpu.Claim, holds *gpu.Assignment, want gpu.VMSettings) {
	have := m.vm.Settings
	if holds != nil { // what the host does not tell is as it was written
		written := holds.Settings
		written.OfflineAction = nil // of which nil is none
		have = written.Overlay(have)
	}
	m.write = have.Differs(c.SettingsBefore.Overlay(want))
	now := m.vm.Settings.Only(want)
	if holds != nil && !m.change.Adopt {
		now = now.Without(holds.Settings)
	}
	c.SettingsBefore = now.Overlay(c.SettingsBefore.Only(want))
}

// needsOff tells whether anything has to be done that a running VM does not allow.
func (m *move) needsOff() bool {
	return m.dropAdapters || m.dropDevices || m.adapter != nil || m.quotas != nil || len(m.devices) > 0 || m.write.NeedOff()
}

// dismount plans to take whole GPUs from the host for the VM, before the VM is
// stopped: if the host does not let go, nobody was disturbed. It returns the GPUs
// that the assignment has dismounted.
func (m *move) dismount(want *gpu.Assignment, dismounted []string) []string {
	if want.Device == nil {
		return dismounted
	}
	dismounted = slices.Clone(dismounted)
	for _, id := range want.Device.GPUIDs {
		if g, ok := m.host.GPU(id); ok && !g.Dismounted {
			m.add(Step{Op: OpDismount, GPU: g.ID, Force: want.Device.Force})
			if !gpu.HasID(dismounted, g.ID) {
				dismounted = append(dismounted, g.ID)
			}
		}
	}
	return dismounted
}

// mountBack gives GPUs that the assignment dismounted and that leave it back to the
// host. It returns those that stay.
func (m *move) mountBack(want *gpu.Assignment, dismounted []string) []string {
	var stay, leaving []string
	for _, g := range dismounted {
		if want != nil && want.Device != nil && gpu.HasID(want.Device.GPUIDs, g) {
			stay = append(stay, g)
		} else {
			leaving = append(leaving, g)
		}
	}
	if m.away {
		return stay // they are GPUs of another host, whatever has their ids here
	}
	forced := func(a *gpu.Assignment) bool { return a != nil && a.Device != nil && a.Device.Force }
	m.planner.mountBack(leaving, "", m.vm.ID, forced(want) || forced(m.change.Prior.Assignment))
	return stay
}

// carryOut plans the steps, with the VM off if they need it. The claim comes before
// the start, so that a failure after it does not cost the VM another stop.
func (m *move) carryOut(power gpu.Power, finish func()) error {
	off := m.needsOff()
	_, restart := m.host.Owes(m.vm.ID)
	var refused error
	if off && m.vm.State != gpu.VMOff {
		switch {
		case m.vm.State == gpu.VMSaved && m.host.Platform == gpu.Linux:
			refused = refuse(gpu.InvalidState, changeGPU, vmText(m.vm.Name), "it is saved, and would be restored with the devices that it had").
				Or("start it and shut it down, or discard the save with `virsh managedsave-remove`").OfRule(VMSaved)
		case !m.vm.Runs():
			refused = refuse(gpu.InvalidState, changeGPU, vmText(m.vm.Name), "it is %s", m.vm.State).
				Or("it must be running or off").OfRule(VMMustBeOff)
		case !power.AllowShutdown:
			refused = refuse(gpu.InvalidState, changeGPU, vmText(m.vm.Name),
				"it runs, and its assignment does not allow a shutdown").Or("set power.allow_shutdown = true, or shut the VM down first").
				OfRule(VMMustBeOff)
		}
		restart = true
		m.stop(m.vm, power)
	}
	vm := Step{VM: m.vm.ID, Name: m.vm.Name}
	step := func(op Op, edit func(*Step)) {
		s := vm
		s.Op = op
		edit(&s)
		m.add(s)
	}
	if m.dropAdapters {
		step(OpRemoveAdapters, func(s *Step) { s.Keep = m.keepAdapters })
	}
	if m.dropDevices {
		step(OpRemoveDevices, func(s *Step) { s.Keep = m.keepDevices })
	}
	if !m.write.Empty() {
		step(OpVMSettings, func(s *Step) { s.Settings = &m.write })
	}
	if m.quotas != nil {
		step(OpSetQuotas, func(s *Step) { s.Adapter = m.quotas })
	}
	if m.adapter != nil {
		step(OpAddAdapter, func(s *Step) { s.Adapter = m.adapter })
	}
	for _, d := range m.devices {
		step(OpAddDevice, func(s *Step) { s.Device = &d })
	}
	finish()
	if restart {
		m.start(m.vm, power)
	}
	return refused
}
