package fleet_test

import (
	"errors"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// ofTheRun are the refusals that no host would make, with the reason why the plan does. Whatever else
// is refused, the hosts have to refuse too, once nobody asks the rules any more.
var ofTheRun = map[string]string{
	"capacity: A GPU is both in a pool and assigned by itself": "Hyper-V takes it into the pool, and out again only when the VM " +
		"is off",
	"capacity: The GPU belongs to a VM": "as above; the VM is another state's, or nobody's",
	"capacity: The GPU belongs to another VM": "VMs that are off may all name one GPU, and the first that " +
		"starts has it",
	"capacity: The GPU is in a pool": "Hyper-V lets a VM name a GPU of a pool, and the pool is short " +
		"of it then",
	"fraction-not-in-mode: The memory of the device is not known":                       "the host knows it, and does not tell",
	"gpu-vm-xor-share: The GPU is for VMs":                                              "a driver with vGPUs serves the host's processes too",
	"gpu-vm-xor-share: The GPU is for containers":                                       "as above",
	"known-config: Unknown partition config":                                            "a name, which no host knows",
	"known-config: The partition config is destroyed":                                   "as above",
	"known-config: A resource that stays uses it":                                       "as above",
	"partition-of-config: The GPU is not in the partition config":                       "hosts know GPUs, and configs by name only",
	"partition-of-config: The partition config has no GPU where the VM may run":         "Hyper-V gives a partition of any GPU",
	"partition-of-config: None of the partition configs has a GPU where the VM may run": "as above",
	"partition-of-config: The clustered VM may get a partition of another size":         "as above",
	"shutdown-permitted: The power policy of a VM changes in the same run":              "a permission of people, which no level lifts",
	"known-pool: A resource that stays uses it":                                         "a name",
	"known-pool: Unknown pool":                                                          "as above; shares draw from any GPU without it",
	"known-pool: The pool is destroyed":                                                 "as above",
	"node-in-service: A cluster node is not in service": "Hyper-V on a paused node does what it is told, while its " +
		"cluster moves VMs away",
	"one-config-per-gpu: Two configurations for one GPU": "the last one wins, and the next plan of the other takes it back",
	"pool-quota: The quota of the pool is used up": "it is of all hosts of the pool, of which each knows its own " +
		"shares",
	"pool-one-mode: The GPUs of a pool have different modes": "a pool of a Linux host is ours, and what its shares have in " +
		"common too",
	"share-placement: The share may be made before the GPU's layout":       "either may come first, and the shares differ",
	"vram-matches-partition: The partition's size is not known":            "no host knows the assertion",
	"mps-supported: It is not known whether the GPU has static partitions": "the simulator knows, and does not tell",
	"single-partition-per-vm: The VM already has a partition":              "Hyper-V gives a VM as many adapters as it is asked for",
	"single-partition-per-vm: The VM has several partitions":               "as above",
}

// atStart are those that a host makes of a VM that starts, and of none that is off or waits for that.
var atStart = []string{"The pool has too few GPUs", "The pool would have fewer GPUs than its VMs use", "No free partition"}

// heldToHosts makes a change that the plan refuses on a copy of the fleet, without the rules, and by
// hand without the planner too: the hosts refuse what is not of the run.
func (w *world) heldToHosts(c changed, says announced) {
	levels := rules.Levels{}
	seats, own := true, false
	for _, x := range says.errors {
		levels[x.Rule] = rules.Off
		_, ofRun := ofTheRun[x.Rule+": "+x.Title]
		own = own || !ofRun
		seats = seats && !ofRun && slices.Contains([]string{"capacity", "vm-must-be-off", "partition-in-use", rules.Feasible}, x.Rule)
	}
	if !own || w.seen.hides != nil { // of what a host does not tell only itself knows better
		return
	}
	w.counts["refusals held to hosts"]++
	w.elsewhere([]changed{c}, func(o *world, of []changed) {
		p := of[0].p
		p.Adopt, p.Approved = p.Token == "", says.approved[p.Token]
		err := o.applyLinux(o.run(levels), fleet.Request{Change: p, MaxUnavailable: 2})
		a := p.Want.Assignment
		for _, x := range says.errors {
			_, ofRun := ofTheRun[x.Rule+": "+x.Title]
			later := slices.Contains(atStart, x.Title) || x.Rule == "capacity" && a != nil && a.Power.NextOff
			if err == nil && !ofRun && !later {
				o.fatal("the plan refuses what the hosts do: %s: %s %s", x.Rule, x.Title, x.Found)
			}
		}
	})
	if !seats || w.linux {
		return
	}
	w.elsewhere([]changed{c}, func(o *world, of []changed) {
		switch err := o.byHand(of[0].p); {
		case err == nil:
			x := says.errors[0]
			o.fatal("the plan refuses what the hosts do by hand: %s: %s %s", x.Rule, x.Title, x.Found)
		case !errors.Is(err, errUnsure):
			w.counts["refusals held to hands"]++
		}
	})
}

var errUnsure = errors.New("it takes more than this")

// byHand makes a change as people would who know neither rules nor steps: those VMs are shut down
// that may be, what was there is taken away, what is wanted is added, and all that ran starts again.
func (w *world) byHand(p change.Change) error {
	shown := fleet.View{Hosts: w.shown()}
	for _, h := range shown.Hosts {
		if len(h.PendingStarts)+len(h.Unfinished) > 0 {
			return errUnsure // what dead runs have left is put right first
		}
	}
	if a := p.Want.Assignment; a != nil {
		if c, ok := shown.Claim(gpu.ClaimAssignment, a.VMID); ok && c.Pending {
			p.Prior.Assignment = c.HeldUntilOff
		}
	}
	switch {
	case p.Want.Assignment != nil:
		return w.assignByHand(p.Want.Assignment, p.Prior.Assignment)
	case p.Want.Config != nil && !p.Want.Config.Drain && !p.Want.Config.Restore:
		return w.divideByHand(p.Want.Config)
	case p.Want.Pool != nil:
		return w.poolByHand(p.Want.Pool)
	}
	return errUnsure
}

func (w *world) host(name string) *simulated.Host {
	h, err := w.sim.Host(name)
	if err != nil {
		w.fatal("host %s: %v", name, err)
	}
	return h
}

func (w *world) assignByHand(a, had *gpu.Assignment) error {
	ctx := w.t.Context()
	for name, h := range w.hosts() {
		vm, ok := h.VM(a.VMID)
		if !ok {
			continue
		}
		host := w.host(name)
		if vm.Runs() {
			if a.Power.NextOff || !a.Power.AllowShutdown {
				return errUnsure // which is a matter of when, or of permission
			}
			if err := host.ShutDownVM(ctx, vm.ID, false); err != nil {
				return err
			}
		}
		for _, x := range vm.PartitionAdapters {
			if had != nil && had.Partition != nil {
				if len(vm.PartitionAdapters) > 1 {
					return errUnsure // which of them are others'
				}
				if err := host.RemovePartitionAdapter(ctx, vm.ID, x.ID); err != nil {
					return err
				}
			}
		}
		for _, d := range vm.Devices {
			if had != nil && (had.Pool != nil && gpu.SameID(d.Pool, had.Pool.Name) || had.Device != nil &&
				d.Pool == "" && gpu.SameID(d.GPU, had.Device.GPUIDs[0])) {
				if err := host.RemoveDevice(ctx, vm.ID, d.ID); err != nil {
					return err
				}
			}
		}
		switch {
		case a.Partition != nil:
			if _, err := host.AddPartitionAdapter(ctx, vm.ID,
				gpu.PartitionAdapter{PinnedGPU: a.Partition.PinnedGPU, Quotas: a.Partition.Quotas}); err != nil {
				return err
			}
		case a.Device != nil:
			if err := host.DismountDevice(ctx, a.Device.GPUIDs[0], false); err != nil {
				return err
			}
			if _, err := host.AddDevice(ctx, vm.ID, gpu.DeviceAssignment{GPU: a.Device.GPUIDs[0]}); err != nil {
				return err
			}
		default:
			for range max(a.Pool.Count, 1) {
				if _, err := host.AddDevice(ctx, vm.ID, gpu.DeviceAssignment{Pool: a.Pool.Name}); err != nil {
					return err
				}
			}
		}
		return host.StartVM(ctx, vm.ID) // off or not: what never starts has no room
	}
	return errUnsure
}

func (w *world) divideByHand(c *gpu.PartitionConfig) error {
	ctx := w.t.Context()
	for name, h := range w.hosts() {
		host := w.host(name)
		var stopped []string
		for _, id := range c.GPUs[name] {
			g, ok := h.GPU(id)
			if !ok || g.Partitionable == nil {
				return errUnsure
			}
			if g.Partitionable.Count == c.Count {
				continue
			}
			for _, part := range g.Partitionable.Partitions {
				vm, ok := h.VM(part.VMID)
				if !ok || slices.Contains(stopped, vm.ID) {
					continue
				}
				if !w.mayStop(vm.ID, c) {
					continue // its partition is in the way
				}
				if err := host.ShutDownVM(ctx, vm.ID, false); err != nil {
					return err
				}
				stopped = append(stopped, vm.ID)
			}
		}
		for _, id := range c.GPUs[name] {
			if err := host.SetPartitionCount(ctx, id, c.Count); err != nil {
				return err
			}
		}
		for _, id := range stopped {
			if err := host.StartVM(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayStop tells whether a config may stop a VM: both it and the VM's own assignment have to say so.
func (w *world) mayStop(vm string, c *gpu.PartitionConfig) bool {
	return c.MaxDisruption != gpu.DisruptNone && slices.ContainsFunc(w.resources, func(r *resource) bool {
		a := r.has.Assignment
		return a != nil && gpu.SameID(a.VMID, vm) && a.Power.AllowShutdown
	})
}

func (w *world) poolByHand(c *gpu.PoolConfig) error {
	ctx := w.t.Context()
	for name, h := range w.hosts() {
		host := w.host(name)
		for _, id := range c.Members[name] {
			if err := host.DismountDevice(ctx, id, false); err != nil {
				return err
			}
		}
		if err := host.CreatePool(ctx, c.Name); err != nil {
			return err
		}
		if err := host.SetPoolMembers(ctx, c.Name, c.Members[name]); err != nil {
			return err
		}
		for _, vm := range h.VMs { // those that are off or saved have to be able to start, each alone
			if (vm.State == gpu.VMOff || vm.State == gpu.VMSaved) &&
				slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.Pool, c.Name) }) {
				if err := host.StartVM(ctx, vm.ID); err != nil {
					return err
				}
				if err := host.TurnOffVM(ctx, vm.ID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
