package migparted

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Diff tells how a host's GPUs differ from what a label says, one line for each
// difference, GPU after GPU; none when they are as the label says. A file's indices
// refer to the host's GPUs in their order, which is the driver's. As with
// nvidia-mig-parted assert, the last entry that covers a GPU counts, a GPU that none
// covers is a difference, and where instances lie does not matter.
func Diff(h *gpu.Host, c Config, label string) ([]string, error) {
	entries, err := c.Entries(label)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range h.GPUs {
		g := &h.GPUs[i]
		var want *Entry
		for j := range entries {
			if entries[j].covers(i, g.PCI) {
				want = &entries[j]
			}
		}
		for _, line := range differences(g, want, label) {
			out = append(out, fmt.Sprintf("GPU %d (%s, %s): %s", i, g.Model, g.ID, line))
		}
	}
	for j := range entries {
		for _, d := range entries[j].Devices {
			if d >= len(h.GPUs) {
				out = append(out, fmt.Sprintf("GPU %d: label %q names it, but the host has %d", d, label, len(h.GPUs)))
			}
		}
	}
	return out, nil
}

func differences(g *gpu.GPU, want *Entry, label string) []string {
	switch {
	case want == nil:
		return []string{fmt.Sprintf("no entry of label %q covers it", label)}
	case g.MIG == nil && !want.Enabled:
		return nil
	case g.MIG == nil:
		return []string{"MIG must be on, but the GPU has none"}
	case g.MIG.Enabled != want.Enabled:
		line := fmt.Sprintf("MIG must be %s, but is %s", onOff(want.Enabled), onOff(g.MIG.Enabled))
		if g.MIG.Pending == want.Enabled {
			line += " until the GPU is reset"
		}
		return []string{line}
	}
	found := devices(g.MIG)
	names := maps.Clone(found)
	maps.Copy(names, want.Profiles)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if want.Profiles[name] != found[name] {
			out = append(out, fmt.Sprintf("%s: wanted %d, found %d", name, want.Profiles[name], found[name]))
		}
	}
	return out
}

// devices counts the MIG devices, which are the compute instances, by the names that
// mig-parted gives them. A GPU instance without any is none, and said to be so.
func devices(m *gpu.MIG) map[string]int {
	out := map[string]int{}
	for i := range m.Instances {
		in := &m.Instances[i]
		if len(in.Compute) == 0 {
			out[in.Profile+" without a compute instance"]++
		}
		for _, c := range in.Compute {
			out[in.ComputeName(c)]++
		}
	}
	return out
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
