package functions

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// hostGPU is a GPU of a host, as attribute gpus of gpu_partition_config and attribute inventory of gpu_inventory tell it.
type hostGPU struct {
	host, id, model string
	// layout is as partition configs tell it, such as "mig:off"; an inventory's GPU has one of kind mig, or "vgpu" with vGPUs.
	layout string
	// mig tells that it is in MIG mode, and noMIG that it has none.
	mig, noMIG bool
	minor      *int // of its device node, nil where it is not known
	cores      string
	instances  []hostInstance
}

// hostInstance is a MIG instance.
type hostInstance struct {
	profile string
	// capabilities are the minors of its capability devices; nil where they are not known.
	capabilities []int
}

const (
	wantedHosts = "GPUs by host are wanted, as attribute gpus of gpu_partition_config or attribute inventory of gpu_inventory has them, " +
		"or a list of these"
	// kindMIG begins the layouts of GPUs that their host does not share but by MIG.
	kindMIG = "mig"
	migOff  = kindMIG + ":off"
)

// isHosts reports whether a value is of GPUs by host, as far as that is known.
func isHosts(v tftypes.Value) bool {
	hosts, err := object(v)
	if err != nil || len(hosts) == 0 {
		return false
	}
	for _, host := range hosts {
		if t := host.Type(); !host.IsKnown() && (t.Is(tftypes.DynamicPseudoType) || t.Is(tftypes.Object{}) || t.Is(tftypes.Map{})) {
			continue
		}
		if on, err := object(host); err != nil || on["gpus"].Type() == nil {
			return false
		}
	}
	return true
}

// hostGPUs reads GPUs by host, or a list of such values. A GPU that is in several is read where it is first.
func hostGPUs(v tftypes.Value) ([]hostGPU, error) {
	var out []hostGPU
	if isList(v) {
		lists, err := elements(v, func(i int, item tftypes.Value) ([]hostGPU, error) {
			gpus, err := gpusByHost(item)
			if err != nil {
				err = fmt.Errorf("entry %d: %w", i+1, err)
			}
			return gpus, err
		})
		if err != nil {
			return nil, err
		}
		out = slices.Concat(lists...)
	} else {
		gpus, err := gpusByHost(v)
		if err != nil {
			return nil, err
		}
		out = gpus
	}
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(out, func(g hostGPU) bool {
		key := [2]string{g.host, strings.ToLower(g.id)}
		before := seen[key]
		seen[key] = true
		return before
	}), nil
}

func gpusByHost(v tftypes.Value) ([]hostGPU, error) {
	hosts, err := object(v)
	if err != nil {
		return nil, errors.New(wantedHosts)
	}
	var out []hostGPU
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if !hosts[host].IsKnown() {
			continue
		}
		on, err := object(hosts[host])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", host, err)
		}
		gpus, err := gpusOfHost(host, on["gpus"])
		if err != nil {
			return nil, fmt.Errorf("%q: gpus: %w", host, err)
		}
		out = append(out, gpus...)
	}
	return out, nil
}

// gpusOfHost reads the GPUs of a host by their ids, in the order of their device nodes.
func gpusOfHost(host string, v tftypes.Value) ([]hostGPU, error) {
	if v.Type() != nil && !v.IsKnown() {
		return nil, nil
	}
	gpus, err := object(v)
	if err != nil {
		return nil, err
	}
	var out []hostGPU
	for _, id := range slices.Sorted(maps.Keys(gpus)) {
		if !gpus[id].IsKnown() {
			continue
		}
		fields, err := object(gpus[id])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", id, err)
		}
		g, err := decodeHostGPU(host, id, fields)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", id, err)
		}
		if gpus[id].IsFullyKnown() {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b hostGPU) int { return cmp.Compare(a.place(), b.place()) })
	return out, nil
}

// place orders the GPUs of a host, those of which it is not known last.
func (g *hostGPU) place() int {
	if g.minor == nil {
		return math.MaxInt
	}
	return *g.minor
}

// isHostGPU reports whether an object is of a GPU as a resource tells it: others have no model.
func isHostGPU(fields map[string]tftypes.Value) bool { return fields["model"].Type() != nil }

// decodeHostGPU reads what functions need; resources tell more.
func decodeHostGPU(host, id string, fields map[string]tftypes.Value) (hostGPU, error) {
	g := hostGPU{host: host, id: id}
	var inMIG *bool
	var virtual []string
	readers := map[string]reader{
		"model":         into(&g.model, text),
		"layout":        into(&g.layout, text),
		"device_minor":  into(&g.minor, optional(whole)),
		"cpu_cores":     into(&g.cores, text),
		"instances":     into(&g.instances, objects(decodeInstance)),
		"mig_enabled":   into(&inMIG, optional(truth)),
		"mig_instances": into(&g.instances, objects(decodeInstance)),
		"vgpus": into(&virtual, objects(func(map[string]tftypes.Value) (string, error) {
			return "vgpu", nil
		})),
	}
	known := map[string]tftypes.Value{}
	for name, v := range fields {
		if readers[name] != nil {
			known[name] = v
		}
	}
	if err := decodeFields(known, readers); err != nil {
		return g, err
	}
	_, fromInventory := fields["mig_enabled"]
	switch kind, layout, _ := strings.Cut(g.layout, ":"); {
	case fromInventory && len(virtual) > 0:
		g.layout = "vgpu"
	case fromInventory:
		g.mig, g.noMIG, g.layout = inMIG != nil && *inMIG, inMIG == nil, migOff
		if g.mig {
			g.layout = kindMIG
		}
	case kind == kindMIG:
		g.mig = layout != "off"
	}
	return g, nil
}

func decodeInstance(fields map[string]tftypes.Value) (hostInstance, error) {
	var out hostInstance
	if v := fields["profile"]; v.Type() == nil || v.IsNull() {
		return out, errors.New("profile: a string is wanted")
	}
	for name, read := range map[string]reader{"profile": into(&out.profile, text), "capabilities": into(&out.capabilities, indices)} {
		if v := fields[name]; v.Type() != nil && v.IsKnown() && !v.IsNull() {
			if err := read(v); err != nil {
				return out, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return out, nil
}

// sharedByHost refuses a GPU that its host shares but by MIG: who is given it too would not know of the others.
func (g *hostGPU) sharedByHost(who string) error {
	if kind, _, _ := strings.Cut(g.layout, ":"); kind == kindMIG || g.layout == "" {
		return nil
	}
	return fmt.Errorf("GPU %s on host %q has the layout %q, by which its host shares it; %s would give it out a second time",
		g.id, g.host, g.layout, who)
}
