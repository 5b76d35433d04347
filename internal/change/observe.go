package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Verify compares what the steps touched with what they should have made of it, and
// says what differs.
func Verify(expected, have *gpu.Host, steps []Step) []string {
	steps = legible(have, steps)
	want, got := Observe(expected, steps), Observe(have, steps)
	var out []string
	for _, f := range want {
		found := got.value(f.Name)
		if f.Value == notKnown || found == notKnown {
			continue // the step itself has succeeded, and the host does not tell
		}
		if found != f.Value {
			out = append(out, fmt.Sprintf("%s is %s, but %s was wanted", f.Name, found, f.Value))
		}
	}
	return out
}

// legible are the steps without settings of VMs that the host does not tell.
func legible(have *gpu.Host, steps []Step) []Step {
	out := slices.Clone(steps)
	for i, s := range out {
		if vm, ok := have.VM(s.VM); ok && s.Settings != nil {
			out[i].Settings = new(s.Settings.Only(vm.Settings))
		}
	}
	return out
}

// Fact is one thing that a host shows, in words.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Facts are what a host shows.
type Facts []Fact

func (fs Facts) value(name string) string {
	for _, f := range fs {
		if f.Name == name {
			return f.Value
		}
	}
	return "missing"
}

// Observe reads from a host what some steps change, in a form that can be compared:
// without ids that the host gives, and without what it decides at each start.
func Observe(host *gpu.Host, steps []Step) Facts {
	var out Facts
	seen := map[string]bool{}
	for _, s := range steps {
		shows := rows[s.Op].shows
		if shows == nil {
			continue
		}
		if f := shows(host, s); !seen[f.Name] {
			seen[f.Name] = true
			out = append(out, f)
		}
	}
	return out
}

func countOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok || g.Partitionable == nil {
		return "missing"
	}
	return fmt.Sprint(g.Partitionable.Count)
}

func mountOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	switch {
	case !ok:
		return "missing"
	case g.Dismounted:
		return "dismounted"
	}
	return "mounted"
}

func membersOf(host *gpu.Host, name string) string {
	pool, ok := host.Pool(name)
	if !ok {
		return "missing"
	}
	return list(pool.GPUs, gpu.FoldID)
}

func holderOf(host *gpu.Host, of *gpu.Claim) string {
	c, _ := host.Claim(of.Kind, of.ID)
	if c == nil {
		return "missing"
	}
	return fmt.Sprintf("that of instance %s (revision %d)", c.Token, c.Revision)
}

// PowerOf says whether a VM runs, in words.
func PowerOf(vm *gpu.VM) string {
	if vm.Runs() {
		return string(gpu.VMRunning)
	}
	return string(vm.State)
}

func settingsOf(s gpu.VMSettings) string {
	var out []string
	if v := s.LowMemoryMappedIOSpace; v != nil {
		out = append(out, fmt.Sprintf("low memory-mapped IO space %s", *v))
	}
	if v := s.HighMemoryMappedIOSpace; v != nil {
		out = append(out, fmt.Sprintf("high memory-mapped IO space %s", *v))
	}
	if v := s.GuestControlledCache; v != nil {
		out = append(out, fmt.Sprintf("guest-controlled cache types %t", *v))
	}
	if v := s.AutomaticStopAction; v != nil {
		out = append(out, fmt.Sprintf("automatic stop action %s", *v))
	}
	if v := s.OfflineAction; v != nil {
		out = append(out, fmt.Sprintf("offline action %s", *v))
	}
	return strings.Join(out, ", ")
}

func adaptersOf(vm *gpu.VM) string {
	return list(vm.PartitionAdapters, func(a gpu.PartitionAdapter) string {
		where := "any GPU"
		if a.PinnedGPU != "" {
			where = "GPU " + gpu.FoldID(a.PinnedGPU)
		}
		return where + quotasOf(a.Quotas)
	})
}

func quotasOf(q gpu.Quotas) string {
	var out []string
	for _, r := range []struct {
		name  string
		quota gpu.Quota
	}{{"VRAM", q.VRAM}, {"encode", q.Encode}, {"decode", q.Decode}, {"compute", q.Compute}} {
		for _, v := range []struct {
			name  string
			value *uint64
		}{{"min", r.quota.Min}, {"max", r.quota.Max}, {"optimal", r.quota.Optimal}} {
			if v.value != nil {
				out = append(out, fmt.Sprintf("%s %s %d", r.name, v.name, *v.value))
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " with " + strings.Join(out, ", ")
}

func devicesOf(vm *gpu.VM) string {
	return list(vm.Devices, func(d gpu.DeviceAssignment) string {
		if d.Pool != "" {
			return "one of pool " + gpu.FoldID(d.Pool)
		}
		if d.VGPU != nil {
			return placeText(*d.VGPU) + " of " + gpu.FoldID(d.GPU)
		}
		return gpu.FoldID(d.GPU)
	})
}

// list names things in an order that does not depend on the host's.
func list[T any](items []T, name func(T) string) string {
	if len(items) == 0 {
		return "none"
	}
	names := words.Each(items, name)
	slices.Sort(names)
	return strings.Join(names, " and ")
}
