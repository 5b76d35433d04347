package fleet_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// wanted is one resource of a scenario.
type wanted struct {
	label string
	want  gpu.Want
}

// TestWhatAHostDoesNotTellIsUnknown leaves out each optional field of a fleet, one at a time, of
// each object that has it and of all, and takes each kind of layout and share through its life: what is
// refused is refused by the plan, a clean plan applies, the plan after it is empty, and the destroy gives
// back what was there.
func TestWhatAHostDoesNotTellIsUnknown(t *testing.T) {
	t.Parallel()
	for _, linux := range []bool{false, true} {
		seed := newBareWorld(t, 1, 15)
		seed.linux, seed.backed = linux, true
		fleet := hypervHosts(seed, 1)
		if linux {
			fleet = linuxHosts(seed)
			for i := range fleet.Hosts[0].GPUs { // the newest driver, which has all that is asked for
				fleet.Hosts[0].GPUs[i].Driver.Version = "615.10.01"
			}
		}
		host := fleet.Hosts[0]
		cases := lives(linux, &host)
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				goThrough(t, linux, host, "nothing", cases[name])
				for n, path := range slices.Concat(figures, optionalFields(reflect.TypeOf(host), "")) {
					for of := -1; of < 0 || !testing.Short(); of++ {
						lacks := cloned(host)
						if !leaveOut(&lacks, path, of) {
							break
						}
						what := fmt.Sprintf("%s of number %d", path, of)
						goThrough(t, linux, lacks, what+" in the file", cases[name])
						if of >= 0 || !told(path) || testing.Short() && n%3 != len(name)%3 {
							continue
						}
						hide := func(h *gpu.Host) { leaveOut(h, path, of) }
						goThrough(t, linux, host, what+" of what it shows", cases[name], func(w *world, before bool) {
							if before {
								w.seen.hides = hide
							}
						})
						goThrough(t, linux, host, what+" of what it shows later", cases[name], func(w *world, before bool) {
							if !before {
								w.seen.hides = hide
							}
						})
					}
				}
			})
		}
	}
}

// TestUnifiedMemory takes layouts and shares of GPUs through their lives whose memory is the system's.
func TestUnifiedMemory(t *testing.T) {
	t.Parallel()
	fleet, err := simulated.Spec{Platform: gpu.Linux, Hosts: []string{"lin01"}, Models: []string{"GB10", "Thor"}}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	host := fleet.Hosts[0]
	spark, thor := host.GPUs[0].ID, host.GPUs[1].ID
	config := func(id string, kind gpu.Kind, set func(*gpu.PartitionConfig)) wanted {
		c := &gpu.PartitionConfig{
			ID: "c", Name: "c", Kind: kind, GPUs: map[string][]string{"lin01": {id}}, MaxDisruption: gpu.DisruptGPUReset, Restore: true,
		}
		set(c)
		return wanted{"gpu_partition_config c", gpu.Want{Config: c}}
	}
	share := func(name string, memory gpu.Bytes) wanted {
		return wanted{"gpu_share " + name, gpu.Want{Share: &gpu.Share{Name: name, Host: "lin01", Config: "c", Count: 1, MemoryRequest: memory}}}
	}
	for name, life := range map[string][]wanted{
		"GB10 in turns": {
			config(spark, gpu.KindTimeSlicing, func(c *gpu.PartitionConfig) { c.TimeSlicing = &gpu.TimeSlicing{Replicas: 4} }),
			share("s1", 0), share("s2", 0),
		},
		"GB10 with MPS": {
			config(spark, gpu.KindMPS, func(c *gpu.PartitionConfig) { c.MPS = &gpu.MPSLayout{MultiUser: true} }), share("s1", 0), share("s2", 0),
		},
		"Thor divided": {config(thor, gpu.KindMIG, func(c *gpu.PartitionConfig) {
			c.MIG = &gpu.MIGLayout{Profiles: map[string]int{"2g.0gb": 1, "1g.0gb+gfx": 1}}
		}), share("s1", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goThrough(t, true, host, "nothing", life)
			goThrough(t, true, host, "its memory", append(life[:1:1], share("s1", 4<<30)))
		})
	}
}

// lives are resources of each kind, in the order in which Terraform makes them.
func lives(linux bool, host *gpu.Host) map[string][]wanted {
	if !linux {
		return livesOnHyperV(host)
	}
	config := func(kind gpu.Kind, set func(*gpu.PartitionConfig), cards ...int) wanted {
		c := &gpu.PartitionConfig{
			ID: "c", Name: "c", Kind: kind, GPUs: map[string][]string{"lin01": {}}, MaxDisruption: gpu.DisruptGPUReset, Restore: true,
		}
		for _, n := range cards {
			c.GPUs["lin01"] = append(c.GPUs["lin01"], randomCard(1, n))
		}
		set(c)
		return wanted{"gpu_partition_config c", gpu.Want{Config: c}}
	}
	share := func(name string, set func(*gpu.Share)) wanted {
		s := &gpu.Share{Name: name, Host: "lin01", Config: "c", Count: 1}
		set(s)
		return wanted{"gpu_share " + name, gpu.Want{Share: s}}
	}
	plain := func(*gpu.Share) {}
	fraction := func(s *gpu.Share) { s.RequestFraction, s.LimitFraction = 0.25, 0.5 }
	amount := func(s *gpu.Share) { s.MemoryRequest, s.MemoryLimit = 4<<30, 8<<30 }
	threads := func(s *gpu.Share) { s.ActiveThreadPercentage = 25 }
	turns := func(c *gpu.PartitionConfig) {
		c.TimeSlicing = &gpu.TimeSlicing{Replicas: 4, Interval: gpu.TimeSliceLong}
	}
	mps := func(c *gpu.PartitionConfig) { c.MPS = &gpu.MPSLayout{MultiUser: true} }
	instances := func(c *gpu.PartitionConfig) {
		c.MIG = &gpu.MIGLayout{Profiles: map[string]int{"3g.40gb": 1, "1g.10gb": 2}}
	}
	pool := wanted{"gpu_pool ml", gpu.Want{Pool: &gpu.PoolConfig{
		ID: "lin01/ml", Name: "ml", Members: map[string][]string{"lin01": {randomCard(1, randomAda)}},
		Quotas: map[string]gpu.PoolQuota{"team-a": {GPUs: new(1.0), Memory: new(gpu.Bytes(64 << 30)), Shares: new(2)}},
	}}}
	pooled := func(s *gpu.Share) { s.Config, s.Pool, s.Label = "", "lin01/ml", "team-a" }
	return map[string][]wanted{
		"mig": {config(gpu.KindMIG, instances, randomAmpere, randomHopper), share("s1", plain), share("s2", amount)},
		"mig with mps": {
			config(gpu.KindMIG, func(c *gpu.PartitionConfig) { instances(c); mps(c) }, randomHopper), share("s1", threads), share("s2", fraction),
		},
		"mig with time slicing": {
			config(gpu.KindMIG, func(c *gpu.PartitionConfig) { instances(c); c.TimeSlicing = &gpu.TimeSlicing{Replicas: 2} }, randomHopper),
			share("s1", plain),
		},
		"mig off":                   {config(gpu.KindMIG, func(c *gpu.PartitionConfig) { c.MIG = &gpu.MIGLayout{Off: true} }, randomAmpere)},
		"time slicing":              {config(gpu.KindTimeSlicing, turns, randomHopper, randomAda), share("s1", plain), share("s2", plain)},
		"time slicing, with memory": {config(gpu.KindTimeSlicing, turns, randomAda), share("s1", amount), share("s2", fraction)},
		"mps":                       {config(gpu.KindMPS, mps, randomHopper, randomAda), share("s1", plain), share("s2", threads)},
		"mps, with memory":          {config(gpu.KindMPS, mps, randomAda), share("s1", amount), share("s2", fraction)},
		"mps, limited": {config(gpu.KindMPS, func(c *gpu.PartitionConfig) {
			c.MPS = &gpu.MPSLayout{User: new(1000), PinnedMemoryLimit: 20 << 30, ActiveThreadPercentage: 50, PerGPU: true}
		}, randomAda, randomAda2), share("s1", plain)},
		"mps, static": {config(gpu.KindMPS, func(c *gpu.PartitionConfig) {
			c.MPS = &gpu.MPSLayout{MultiUser: true, PerGPU: true, StaticPartitions: true}
		}, randomAda), share("s1", threads)},
		"vgpu": {config(gpu.KindVGPU, func(c *gpu.PartitionConfig) { c.VGPU = &gpu.VGPULayout{Type: "L40S-12Q"} }, randomAda)},
		"vgpu, one": {
			config(gpu.KindVGPU, func(c *gpu.PartitionConfig) { c.VGPU = &gpu.VGPULayout{Type: "L40S-24Q", Count: new(1)} }, randomAda),
		},
		"vgpu mixed": {config(gpu.KindVGPU, func(c *gpu.PartitionConfig) {
			c.VGPU = &gpu.VGPULayout{Types: map[string]int{"L40S-24Q": 1, "L40S-12Q": 2}}
		}, randomAda)},
		"vgpu in mig": {config(gpu.KindVGPU, func(c *gpu.PartitionConfig) {
			c.VGPU = &gpu.VGPULayout{Types: map[string]int{"H100-3-40C": 1, "H100-1-10C": 2}}
		}, randomHopper)},
		"pool":                 {pool, share("s1", pooled)},
		"share of a whole gpu": {share("s1", func(s *gpu.Share) { s.Config = "" }), share("s2", func(s *gpu.Share) { s.Config = ""; amount(s) })},
	}
}

func livesOnHyperV(host *gpu.Host) map[string][]wanted {
	config := wanted{"gpu_partition_config c", gpu.Want{Config: &gpu.PartitionConfig{
		ID: "c", Name: "c", Kind: gpu.KindGPUP, Count: 8, GPUs: map[string][]string{"hv01": randomGPUs},
		MaxDisruption: gpu.DisruptVMRestart, Restore: true,
	}}}
	assignment := func(n int, set func(*gpu.Assignment)) wanted {
		vm := host.VMs[n]
		a := &gpu.Assignment{VM: vm.Name, VMName: vm.Name, VMID: vm.ID, Host: "hv01", Power: gpu.Power{AllowShutdown: true}}
		set(a)
		return wanted{"gpu_vm_assignment for VM " + vm.Name, gpu.Want{Assignment: a}}
	}
	partition := func(p gpu.PartitionWant) func(*gpu.Assignment) {
		return func(a *gpu.Assignment) { a.Kind, a.Partition = gpu.AssignPartition, &p }
	}
	pool := wanted{
		"gpu_pool dda", gpu.Want{
			Pool: &gpu.PoolConfig{ID: "hv01/dda", Name: "dda", Members: map[string][]string{"hv01": randomDDA[:2]}, MountBack: true},
		},
	}
	return map[string][]wanted{
		"partitions": {
			config, assignment(0, partition(gpu.PartitionWant{Config: "c"})),
			assignment(1, partition(gpu.PartitionWant{Config: "c", PinnedGPU: randomGPUs[0]})),
		},
		"sized partitions": {config, assignment(0, partition(gpu.PartitionWant{Config: "c", VRAM: new(gpu.Bytes(2 << 30))}))},
		"quotas": {config, assignment(0, partition(gpu.PartitionWant{Quotas: gpu.Quotas{
			VRAM:    gpu.Quota{Min: new(uint64(1 << 30)), Max: new(uint64(2 << 30)), Optimal: new(uint64(2 << 30))},
			Compute: gpu.Quota{Min: new(uint64(100))},
		}}))},
		"pool of gpus": {pool, assignment(0, func(a *gpu.Assignment) {
			a.Kind, a.Pool = gpu.AssignPool, &gpu.PoolWant{ID: "hv01/dda", Name: "dda", Count: 1}
		})},
		"whole gpu": {assignment(0, func(a *gpu.Assignment) {
			a.Kind, a.Device = gpu.AssignDevice, &gpu.DeviceWant{Host: "hv01", GPUIDs: randomDDA[:1]}
			a.Settings = gpu.VMSettings{AutomaticStopAction: new(gpu.StopTurnOff), GuestControlledCache: new(true)}
		})},
	}
}

// goThrough takes resources through their lives on a host that lacks something.
func goThrough(t *testing.T, linux bool, host gpu.Host, lacks string, life []wanted, hides ...func(w *world, before bool)) {
	t.Helper()
	w := newBareWorld(t, 1, 15)
	w.linux, w.backed, w.lacks = linux, true, lacks != "nothing"
	defer w.end()
	defer func() {
		if r := recover(); r != nil && r != any(errDiffers) {
			panic(r)
		}
	}()
	w.note("left out: %s", lacks)
	w.start(gpu.Snapshot{Hosts: []gpu.Host{host}})
	before := w.hosts()
	for _, hide := range hides {
		hide(w, true)
	}
	told := w.shown()
	for _, one := range life {
		r := w.resource(one.label)
		w.note("%s: %s", one.label, wantText(one.want))
		w.compare(r, change.Change{Subject: r.label, Token: r.token, Want: one.want})
		if r.has.Empty() {
			if lacks == "nothing" {
				w.fatal("it is refused")
			}
			t.Logf("%s: %s", lacks, w.history[len(w.history)-1])
			continue // the plan refused it
		}
	}
	for _, hide := range hides {
		hide(w, false)
	}
	hosts := w.shown()
	for _, r := range w.resources {
		if drifted(r, hosts) {
			steps, err := change.Plan(*hosts[host.Name], host.Name, change.Change{
				Subject: r.label, Owner: randomOwner, Token: r.token, Want: r.has, Prior: r.has,
			})
			w.fatal("the second plan changes %s: %v %v", r.label, steps, err)
		}
		if says := w.plan(change.Change{Subject: r.label, Token: r.token, Want: r.has, Prior: r.has}); len(says.errors) > 0 {
			w.fatal("the second plan refuses %s: %+v", r.label, says.errors)
		}
	}
	for _, r := range slices.Backward(slices.Clone(w.resources)) {
		w.note("destroy %s", r.label)
		w.compare(r, change.Change{Subject: r.label, Token: r.token, Prior: r.has})
		if slices.Contains(w.resources, r) {
			w.fatal("%s cannot be destroyed", r.label)
		}
	}
	w.givesBack(before, told)
}

// givesBack compares the GPUs and the VMs with those of before. What was not told then and is told now is
// no difference, and a setting of a VM that was not told nobody can put back.
func (w *world) givesBack(before, told map[string]*gpu.Host) {
	for name, now := range w.hosts() {
		was := before[name]
		if len(now.Claims) > 0 || len(now.Shares) > 0 {
			w.fatal("left are claims %+v and shares %+v", now.Claims, now.Shares)
		}
		for i := range was.GPUs {
			g, _ := now.GPU(was.GPUs[i].ID)
			a, b := layoutOf(was, &was.GPUs[i]), layoutOf(now, g)
			if a.Compute == "" {
				a.Compute = b.Compute
			}
			if was.GPUs[i].TimeSlice == "" {
				a.Slice = b.Slice
			}
			if diff := cmp.Diff(a, b, sameLayout...); diff != "" {
				w.fatal("GPU %s is not given back (-before +after):\n%s", g.ID, diff)
			}
			if p := was.GPUs[i].Partitionable; p != nil && g.Partitionable.Count != p.Count {
				w.fatal("GPU %s has %d partitions, and had %d", g.ID, g.Partitionable.Count, p.Count)
			}
			if was.GPUs[i].Dismounted != g.Dismounted {
				w.fatal("GPU %s is dismounted: %t", g.ID, g.Dismounted)
			}
		}
		for i := range was.VMs {
			vm, _ := now.VM(was.VMs[i].ID)
			vmTold, _ := told[name].VM(was.VMs[i].ID)
			if vmTold.Settings.AutomaticStopAction == nil {
				was.VMs[i].Settings.AutomaticStopAction = vm.Settings.AutomaticStopAction
			}
			if vmTold.Settings.GuestControlledCache == nil {
				was.VMs[i].Settings.GuestControlledCache = vm.Settings.GuestControlledCache
			}
			if diff := cmp.Diff(was.VMs[i], *vm); diff != "" {
				w.fatal("VM %s is not given back (-before +after):\n%s", vm.Name, diff)
			}
		}
	}
}

// cloned is a host that shares nothing with another one.
func cloned(h gpu.Host) gpu.Host {
	text, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	var out gpu.Host
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// figures are those that a document always has, and a platform may not offer: 0 is not known then.
var figures = []string{
	"GPUs.Partitionable.VRAM", "GPUs.Partitionable.Encode", "GPUs.Partitionable.Compute",
	"GPUs.Partitionable.VRAM.Min", "GPUs.Partitionable.VRAM.Max", "GPUs.Partitionable.VRAM.Total", "GPUs.Partitionable.ValidCounts",
	"GPUs.VGPU.Types.FrameBuffer", "GPUs.MMIO", "GPUs.Model", "GPUs.PCI", "GPUs.Driver", "GPUs.Status",
}

// told reports whether a field is a figure or a property that a host tells, and not what it has, by
// which a world without it would be another one.
func told(path string) bool {
	objects := []string{
		"Cluster", "Units", "MPS", "Controllers", "Stale", "Unknown", "Claims", "Unfinished", "Returning",
		"Moving", "HeldBy", "Unreadable", "Owed", "Shares",
		"ForeignSpecs", "Pools", "GPUs.MIG", "GPUs.VGPU", "GPUs.Partitionable", "GPUs.Partitionable.Partitions",
		"GPUs.MIG.Instances", "GPUs.VGPU.Instances",
		"GPUs.Processes", "GPUs.Problem", "GPUs.VGPU.Functions", "GPUs.VGPU.FunctionsOn", "GPUs.VGPU.Heterogeneous",
		"GPUs.VGPU.HeterogeneousSupported", "GPUs.VGPU.Types", "GPUs.VGPU.Types.MIGProfile", "GPUs.Dismounted",
		"VMs.PartitionAdapters", "VMs.Devices", "VMs.Clustered", "GPUs.MIG.NeedsReset",
	}
	return !slices.ContainsFunc(objects, func(o string) bool {
		return path == o || strings.HasPrefix(path, o+".") && !strings.HasPrefix(o, "GPUs.") && !strings.HasPrefix(o, "VMs.")
	})
}

// forget has hosts not tell some facts, in some worlds. A compute mode is always told: others may set one
// that keeps the driver from doing what a plan could not see.
func (w *world) forget() {
	rng := rand.New(rand.NewPCG(w.seed, 17)) // its own, so that what is changed does not hang on it
	if rng.IntN(100) >= 40 {
		return
	}
	facts := []string{
		"GPUs.VRAM", "GPUs.TimeSlice", "GPUs.ComputeCapability", "GPUs.Driver", "GPUs.Model", "GPUs.PCI",
		"GPUs.ECC", "GPUs.Address", "GPUs.MIG.Profiles.Memory",
		"GPUs.MIG.Instances.Memory", "GPUs.VGPU.Types.MaxPerVM", "GPUs.Partitionable.VRAM", "GPUs.Partitionable.Compute",
		"GPUs.Partitionable.Partitions.VRAM",
		"GPUs.InstancePath", "GPUs.Processes.Memory", "ContainerToolkit", "OS.Version",
	}
	rng.Shuffle(len(facts), func(i, k int) { facts[i], facts[k] = facts[k], facts[i] })
	facts = facts[:1+rng.IntN(4)]
	w.note("not told: %v", facts)
	w.seen.hides = func(h *gpu.Host) {
		for _, path := range facts {
			leaveOut(h, path, -1)
		}
	}
}

// optionalFields are the paths of the fields of a type that a document may leave out.
func optionalFields(t reflect.Type, under string) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return optionalFields(t.Elem(), under)
	case reflect.Struct:
	default:
		return nil
	}
	var out []string
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if tag == "" && f.Anonymous {
			out = append(out, optionalFields(f.Type, under)...)
		}
		if tag == "" || f.Type.PkgPath() == "time" {
			continue
		}
		if strings.Contains(tag, ",omit") {
			out = append(out, under+f.Name)
		}
		out = append(out, optionalFields(f.Type, under+f.Name+".")...)
	}
	return out
}

// leaveOut empties a field of one of the objects that have it, by number, or of all for -1, and reports
// whether there was one.
func leaveOut(h *gpu.Host, path string, of int) bool {
	n := 0
	var walk func(v reflect.Value, path []string)
	walk = func(v reflect.Value, path []string) {
		switch {
		case v.Kind() == reflect.Slice && len(path) > 0:
			for i := range v.Len() {
				walk(v.Index(i), path)
			}
		case v.Kind() == reflect.Pointer && len(path) > 0:
			if !v.IsNil() {
				walk(v.Elem(), path)
			}
		case len(path) > 0:
			walk(v.FieldByName(path[0]), path[1:])
		case !v.IsZero():
			if of < 0 || n == of {
				v.SetZero()
			}
			n++
		}
	}
	walk(reflect.ValueOf(h).Elem(), strings.Split(path, "."))
	return n > max(of, 0)
}
