package conformance

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// saneMIG is what holds for every host at every moment.
func saneMIG(t *testing.T, h gpu.Host) {
	t.Helper()
	if err := (gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{h}}).Validate(); err != nil {
		t.Errorf("the inventory is not valid: %v", err)
	}
	if h.Platform != gpu.Linux {
		t.Errorf("the platform is %s", h.Platform)
	}
	uuids, capabilities := map[string]bool{}, map[int]bool{}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		saneProcesses(t, g)
		if g.MIG == nil {
			continue
		}
		saneModes(t, g)
		saneInstances(t, g)
		for _, i := range g.MIG.Instances {
			for _, minor := range i.Capabilities() {
				if capabilities[minor] {
					t.Errorf("GPU %s: the capability device %d of %+v is another's, too", g.ID, minor, i)
				}
				capabilities[minor] = true
			}
			for _, c := range i.Compute {
				if uuids[c.UUID] || len(c.UUID) < 5 || c.UUID[:4] != "MIG-" {
					t.Errorf("GPU %s: the UUID %q of a MIG device is used twice, or is none", g.ID, c.UUID)
				}
				uuids[c.UUID] = true
			}
		}
	}
}

func saneModes(t *testing.T, g *gpu.GPU) {
	t.Helper()
	m := g.MIG
	if !m.NeedsReset && m.Enabled != m.Pending {
		t.Errorf("GPU %s has a mode pending, for which it needs no reset", g.ID)
	}
	if !m.Enabled && len(m.Instances) > 0 {
		t.Errorf("GPU %s has instances without MIG mode: %+v", g.ID, m.Instances)
	}
}

func saneInstances(t *testing.T, g *gpu.GPU) {
	t.Helper()
	ids, slots, counts := map[int]bool{}, map[int]bool{}, map[string]int{}
	for _, i := range g.MIG.Instances {
		p, ok := g.MIG.Profile(i.Profile)
		if !ok || !slices.Contains(p.Starts, i.Start) || i.Size != p.Size || i.Memory != p.Memory {
			t.Errorf("GPU %s offers no instance like %+v: %+v", g.ID, i, p)
		}
		if ids[i.ID] {
			t.Errorf("GPU %s has two instances of id %d", g.ID, i.ID)
		}
		ids[i.ID] = true
		if counts[i.Profile]++; counts[i.Profile] > p.Max {
			t.Errorf("GPU %s has %d instances of %s, of which there can be %d", g.ID, counts[i.Profile], i.Profile, p.Max)
		}
		for slot := i.Start; slot < i.Start+i.Size; slot++ {
			if slots[slot] {
				t.Errorf("GPU %s: memory slice %d belongs to two instances", g.ID, slot)
			}
			slots[slot] = true
		}
		compute := 0
		for _, c := range i.Compute {
			compute += c.Slices
		}
		if compute > p.Slices {
			t.Errorf("GPU %s: the compute instances of %+v have %d slices together, of %d", g.ID, i, compute, p.Slices)
		}
	}
}

// saneProcesses checks that processes are where they say.
func saneProcesses(t *testing.T, g *gpu.GPU) {
	t.Helper()
	for _, p := range g.Processes {
		if p.PID <= 0 {
			t.Errorf("GPU %s: a process has the id %d", g.ID, p.PID)
		}
		if g.MIG == nil || !g.MIG.Enabled {
			if p.GPUInstance != nil || p.ComputeInstance != nil {
				t.Errorf("GPU %s is not in MIG mode, but a process is in an instance: %+v", g.ID, p)
			}
			continue
		}
		inside := p.GPUInstance != nil && p.ComputeInstance != nil &&
			slices.ContainsFunc(g.MIG.Instances, func(i gpu.GPUInstance) bool {
				return i.ID == *p.GPUInstance && slices.ContainsFunc(i.Compute, func(c gpu.ComputeInstance) bool { return c.ID == *p.ComputeInstance })
			})
		if !inside {
			t.Errorf("GPU %s is in MIG mode, but a process is in no instance of it: %+v", g.ID, p)
		}
	}
}
