package hyperv

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// trialShutdown is how long a guest may take to shut down.
const trialShutdown = 5 * time.Minute

// trialPool is the pool that a trial makes and deletes.
const trialPool = "gpu-agent-selftest"

// trial is a self-test that changes a VM and a GPU.
type trial struct {
	*Backend
	backend.Trial
	vm  gpu.VM
	gpu gpu.GPU
}

// SelfTestChange implements backend.ChangeTester: another partition count, the VM's settings,
// a partition with quotas for it, a start with it, and a pool with the GPU that the VM draws
// from.
func (b *Backend) SelfTestChange(ctx context.Context, vm, gpuID string) []backend.Answer {
	t := &trial{Backend: b}
	var before gpu.Host
	if !t.Step("choose the VM and the GPU", func() (string, error) {
		var err error
		if before, err = b.Inventory(ctx); err != nil {
			return "", err
		}
		return "both are free", t.choose(before, vm, gpuID)
	}) {
		return t.Answers
	}
	t.count(ctx)
	if t.stop(ctx) {
		t.settings(ctx)
		t.partition(ctx)
		t.whole(ctx)
	}
	t.Back(ctx, 0)
	t.Step("compare with before", func() (string, error) {
		after, err := b.Inventory(context.WithoutCancel(ctx))
		if err != nil {
			return "", err
		}
		now, _ := after.VM(t.vm.ID)
		g, _ := after.GPU(t.gpu.ID)
		if now != nil {
			now.Guest = t.vm.Guest // which a guest tells some time after its start
		}
		if now == nil || g == nil || !reflect.DeepEqual(*now, t.vm) || !reflect.DeepEqual(*g, t.gpu) ||
			!reflect.DeepEqual(before.Pools, after.Pools) {
			return "", fmt.Errorf("not all is as before: the VM was %+v and is %+v; the GPU was %+v and is %+v; the pools were %v and are %v",
				t.vm, now, t.gpu, g, before.Pools, after.Pools)
		}
		return "the VM, the GPU and the pools are as before", nil
	})
	return t.Answers
}

// choose finds the VM and the GPU, and refuses those that are in use.
func (t *trial) choose(host gpu.Host, vm, gpuID string) error {
	if len(host.Unknown) > 0 {
		return refuse(backend.Unavailable, "not all of the host can be read, so that nobody could tell whether all was put back: %s",
			host.Unknown[0])
	}
	var found []gpu.VM
	for _, v := range host.VMs {
		if gpu.SameID(v.ID, vm) || strings.EqualFold(v.Name, vm) {
			found = append(found, v)
		}
	}
	g, ok := host.GPU(gpuID)
	switch {
	case len(found) != 1:
		return refuse(backend.NotFound, "%d VMs of the host are called %q: name one by its id", len(found), vm)
	case !ok:
		return refuse(backend.NotFound, "the host has no GPU %s", gpuID)
	case found[0].State != gpu.VMOff && found[0].State != gpu.VMRunning:
		return refuse(backend.InvalidState, "VM %s is %s, and must run or be off", found[0].Name, found[0].State)
	case len(found[0].PartitionAdapters)+len(found[0].Devices) > 0:
		return refuse(backend.InUse, "VM %s has a GPU already", found[0].Name)
	case g.HostDisplay, g.Status == gpu.Assigned, g.Partitionable != nil && len(g.Partitionable.Partitions) > 0,
		slices.ContainsFunc(host.Pools, func(p gpu.Pool) bool { return p.Has(g.ID) || p.Name == trialPool }):
		return refuse(backend.InUse, "GPU %s is in use, or pool %s is there", g.ID, trialPool)
	}
	t.vm, t.gpu = found[0], *g
	return nil
}

func (t *trial) count(ctx context.Context) {
	p := t.gpu.Partitionable
	if p == nil || p.Paravirtual || t.gpu.Dismounted {
		return
	}
	i := slices.IndexFunc(p.ValidCounts, func(n int) bool { return n != p.Count })
	if i < 0 {
		return
	}
	set := func(n int) func(context.Context) error {
		return func(ctx context.Context) error { return t.SetPartitionCount(ctx, t.gpu.ID, n) }
	}
	ok := t.Change(ctx, fmt.Sprintf("set %d partitions instead of %d", p.ValidCounts[i], p.Count),
		set(p.ValidCounts[i]), "put the count back", set(p.Count))
	t.Answer("hyperv-count-waits", t.Last(), ok)
	t.Back(ctx, t.Changed()-1)
}

// stop shuts the VM down, and starts it at the end.
func (t *trial) stop(ctx context.Context) bool {
	if t.vm.State == gpu.VMOff {
		return true
	}
	return t.Change(ctx, "shut the VM down", t.shutDown, "start the VM", func(ctx context.Context) error {
		err := t.StartVM(ctx, t.vm.ID)
		if t.vm.Clustered {
			t.Answer("hyperv-cluster-state", fmt.Sprintf("the start ended with %v", err), err == nil)
		}
		return err
	})
}

func (t *trial) shutDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trialShutdown)
	defer cancel()
	return t.ShutDownVM(ctx, t.vm.ID, false)
}

func (t *trial) settings(ctx context.Context) {
	now := t.vm.Settings
	cache := now.GuestControlledCache == nil || !*now.GuestControlledCache
	high := 1024 * gpu.MiB
	if now.HighMemoryMappedIOSpace != nil {
		high += *now.HighMemoryMappedIOSpace
	}
	apply := func(s gpu.VMSettings) func(context.Context) error {
		return func(ctx context.Context) error { return t.ApplyVMSettings(ctx, t.vm.ID, s) }
	}
	other := gpu.VMSettings{GuestControlledCache: &cache, HighMemoryMappedIOSpace: &high}
	t.Change(ctx, "write settings of the VM", apply(other), "put the VM's settings back", apply(now.Only(other)))
	if t.vm.Clustered && now.OfflineAction != nil {
		action := gpu.OfflineForcedShutdown
		if *now.OfflineAction == action {
			action = gpu.OfflineShutDown
		}
		other := gpu.VMSettings{OfflineAction: &action}
		ok := t.Change(ctx, "write the offline action", apply(other), "put the offline action back", apply(now.Only(other)))
		t.Answer("hyperv-offline-action-write", t.Last(), ok)
	}
}

// partition gives the VM a partition of the GPU, with quotas and without, and starts it.
func (t *trial) partition(ctx context.Context) {
	p := t.gpu.Partitionable
	if p == nil || t.gpu.Dismounted || t.vm.Generation == 1 {
		return
	}
	begun := t.Changed()
	defer func() { t.Back(ctx, begun) }()
	quotas := gpu.Quotas{VRAM: gpu.Quota{Min: &p.VRAM.Min, Optimal: &p.VRAM.Optimal, Max: &p.VRAM.Max}}
	t.Later("take the partition from the VM", t.emptyVM)
	t.quotasAtAdd(ctx, p.VRAM.Min)
	var id string
	if !t.Change(ctx, "add a partition with quotas", func(ctx context.Context) (err error) {
		id, err = t.AddPartitionAdapter(ctx, t.vm.ID, gpu.PartitionAdapter{PinnedGPU: t.gpu.ID, Quotas: quotas})
		return err
	}, "take the partition from the VM", t.emptyVM) {
		return
	}
	t.Step("take its quotas away", func() (string, error) { return "done", t.SetPartitionQuotas(ctx, t.vm.ID, id, gpu.Quotas{}) })
	if !t.Change(ctx, "start the VM with it", func(ctx context.Context) error { return t.StartVM(ctx, t.vm.ID) },
		"shut the VM down again", func(ctx context.Context) error {
			err := t.shutDown(ctx)
			if err != nil && t.vm.State == gpu.VMOff { // nobody worked in it
				return t.TurnOffVM(ctx, t.vm.ID)
			}
			return err
		}) {
		return
	}
	for id, ask := range map[string]func(context.Context) (string, *bool, error){
		"hyperv-partition-path": t.askPartitionPaths, "hyperv-partition-rows": t.askPartitionRows,
	} {
		found, holds, err := ask(ctx)
		t.Answers = append(t.Answers, backend.Answer{Assumption: id, Found: found, Holds: holds, Err: err})
	}
}

// quotasAtAdd adds an adapter with a quota in one call, which not every host takes.
func (t *trial) quotasAtAdd(ctx context.Context, vram uint64) {
	v, err := t.readOnly(ctx, need{of: ofVMs | ofAdapters, vms: []string{t.vm.ID}})
	if err != nil {
		return
	}
	settings, err := t.template(ctx, "Msvm_GpuPartitionSettingData")
	if err != nil {
		return
	}
	service, err := t.service(ctx, managementService)
	if err != nil {
		return
	}
	settings.set("MinPartitionVRAM", vram)
	err = looked(t.invoke(ctx, service, "AddResourceSettings", map[string]any{
		"AffectedConfiguration": v.machine(&v.host.VMs[0]).settings, "ResourceSettings": []string{settings.String()},
	}))
	t.Answer("hyperv-quotas-at-add", fmt.Sprintf("adding an adapter with a quota ended with: %v", err), err != nil)
	t.Step("take that adapter away", func() (string, error) { return "done", t.emptyVM(ctx) })
}

// emptyVM takes all adapters and devices from the VM, which had none.
func (t *trial) emptyVM(ctx context.Context) error {
	v, err := t.readOnly(ctx, need{of: ofVMs | ofAdapters | ofDevices, vms: []string{t.vm.ID}})
	if err != nil {
		return err
	}
	if vm, ok := v.host.VM(t.vm.ID); ok {
		for _, a := range vm.PartitionAdapters {
			if err := t.RemovePartitionAdapter(ctx, t.vm.ID, a.ID); err != nil {
				return err
			}
		}
		for id := range v.machine(vm).devices {
			if err := t.RemoveDevice(ctx, t.vm.ID, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole dismounts the GPU, puts it into a pool, and lets the VM, which stays off, draw from
// it. The platform's checks are not skipped: who wants that uses a pool.
func (t *trial) whole(ctx context.Context) {
	begun := t.Changed()
	defer func() { t.Back(ctx, begun) }()
	if !t.gpu.Dismounted {
		if t.gpu.Status == gpu.NotAssignable || !t.Change(ctx, "dismount the GPU", func(ctx context.Context) error {
			return t.DismountDevice(ctx, t.gpu.ID, false)
		}, "mount the GPU", func(ctx context.Context) error { return t.MountDevice(ctx, t.gpu.ID) }) {
			return
		}
	}
	found, holds, err := t.askDismounted(ctx)
	t.Answers = append(t.Answers, backend.Answer{Assumption: "hyperv-dismounted-memory", Found: found, Holds: holds, Err: err})
	ok := t.Change(ctx, "create a pool", func(ctx context.Context) error { return t.CreatePool(ctx, trialPool) },
		"delete the pool", func(ctx context.Context) error { return t.DeletePool(ctx, trialPool) })
	t.Answer("hyperv-pool-allocation", t.Last(), ok)
	if !ok || !t.Step("put the GPU into it", func() (string, error) { return "done", t.SetPoolMembers(ctx, trialPool, []string{t.gpu.ID}) }) {
		return
	}
	if !t.Change(ctx, "let the VM draw from it", func(ctx context.Context) error {
		_, err := t.AddDevice(ctx, t.vm.ID, gpu.DeviceAssignment{Pool: trialPool})
		return err
	}, "take the device from the VM", t.emptyVM) {
		return
	}
	if path, err := t.poolPath(ctx, trialPool); err == nil && path != "" {
		err := t.deletePool(ctx, path)
		t.Answer("hyperv-pool-of-off-vm", fmt.Sprintf("deleting a pool that the VM, which is off, draws from ended with: %v", err), err != nil)
	}
}
