package simulated

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// CreateInstance makes a GPU instance with one compute instance that fills it.
func (h *Host) CreateInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return h.do(ctx, call{op: OpCreateInstance, gpu: gpuID, place: placeText(p)}, func(r *record) error {
		return r.createInstance(gpuID, p)
	})
}

// DestroyInstance removes a GPU instance and the compute instances in it.
func (h *Host) DestroyInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return h.do(ctx, call{op: OpDestroyInstance, gpu: gpuID, place: placeText(p)}, func(r *record) error {
		return r.destroyInstance(gpuID, p)
	})
}

func (r *record) createInstance(gpuID string, want gpu.MIGPlacement) error {
	g, err := r.migGPU(gpuID)
	if err != nil {
		return err
	}
	i := g.instance(want)
	if i == nil {
		if i, err = g.makeInstance(want); err != nil {
			return err
		}
	}
	if i.Filled() {
		return nil
	}
	if inside := g.processesIn(i.ID); len(inside) > 0 {
		return refuse(backend.InUse, "in it runs %s", listProcesses(inside))
	}
	if i.Compute = nil; !r.halfway {
		profile, _ := g.profile(i.Profile)
		i.Compute = []gpu.ComputeInstance{{UUID: newMIGUUID(), Slices: profile.Slices, Minor: g.capability(i.ID, 1)}}
	}
	return nil
}

func (r *record) destroyInstance(gpuID string, p gpu.MIGPlacement) error {
	g, err := r.migGPU(gpuID)
	if err != nil {
		return err
	}
	i := g.instance(p)
	if i == nil {
		return nil
	}
	if inside := g.processesIn(i.ID); len(inside) > 0 {
		return refuse(backend.InUse, "in it runs %s", listProcesses(inside))
	}
	if g.VGPU != nil {
		if inside := (vgpuFace{GPU: g.GPU}).vgpusIn(i.ID); len(inside) > 0 {
			return refuse(backend.InUse, "in it lives %s", listVGPUs(inside))
		}
	}
	if i.Compute = nil; r.halfway {
		return nil
	}
	g.MIG.Instances = slices.DeleteFunc(g.MIG.Instances, func(i gpu.GPUInstance) bool { return i.Placement() == p })
	return nil
}

// instance finds the GPU instance at a place, nil when there is none.
func (g migFace) instance(p gpu.MIGPlacement) *gpu.GPUInstance {
	n := slices.IndexFunc(g.MIG.Instances, func(i gpu.GPUInstance) bool { return i.Placement() == p })
	if n < 0 {
		return nil
	}
	return &g.MIG.Instances[n]
}

func (g migFace) processesIn(instance int) []gpu.Process {
	var inside []gpu.Process
	for _, p := range g.Processes {
		if p.GPUInstance != nil && *p.GPUInstance == instance {
			inside = append(inside, p)
		}
	}
	return inside
}

// makeInstance makes a GPU instance without compute instances.
func (g migFace) makeInstance(want gpu.MIGPlacement) (*gpu.GPUInstance, error) {
	profile, err := g.offered(want)
	if err != nil {
		return nil, err
	}
	if err := g.room(profile, want.Start); err != nil {
		return nil, err
	}
	id := g.newInstanceID(profile.Size)
	g.MIG.Instances = append(g.MIG.Instances, gpu.GPUInstance{
		ID: id, Profile: profile.Name, Start: want.Start, Size: profile.Size, Memory: profile.Memory, Minor: g.capability(id, 0),
	})
	slices.SortFunc(g.MIG.Instances, func(a, b gpu.GPUInstance) int { return cmp.Compare(a.Start, b.Start) })
	return g.instance(want), nil
}

// offered finds the profile of a place that the GPU has in its present mode.
func (g migFace) offered(want gpu.MIGPlacement) (gpu.MIGProfile, error) {
	m := g.MIG
	switch profile, ok := g.profile(want.Profile); {
	case !m.Enabled && m.Pending:
		return profile, refuse(backend.InvalidState, "the GPU is not in MIG mode until it is reset")
	case !m.Enabled:
		return profile, refuse(backend.InvalidState, "the GPU is not in MIG mode")
	case !ok:
		return profile, refuse(backend.InvalidParameter, "the GPU offers no profile %s, only %s", want.Profile, listProfiles(g.profiles()))
	case !slices.Contains(profile.Starts, want.Start):
		return profile, refuse(backend.InvalidParameter, "%s cannot start at %d, only at %s", want.Profile,
			want.Start, listCounts(profile.Starts))
	default:
		return profile, nil
	}
}

// room refuses when the place is taken, or the engines are that an instance there would
// need.
func (g migFace) room(profile gpu.MIGProfile, start int) error {
	var inTheWay, same []gpu.GPUInstance
	for _, i := range g.MIG.Instances {
		if start < i.Start+i.Size && i.Start < start+profile.Size {
			inTheWay = append(inTheWay, i)
		}
		if i.Profile == profile.Name {
			same = append(same, i)
		}
	}
	if len(inTheWay) > 0 {
		return refuse(backend.Insufficient, "the place is taken by %s", listInstances(inTheWay))
	}
	if len(same) >= profile.Max {
		return refuse(backend.Insufficient, "the GPU takes %d of %s, and has %s", profile.Max, profile.Name, listInstances(same))
	}
	for _, i := range g.MIG.Instances {
		if mediaOf(profile.Name).excludes(mediaOf(i.Profile)) {
			return refuse(backend.Insufficient, "the media engines are taken by %s", placeText(i.Placement()))
		}
	}
	return nil
}

// newInstanceID is the lowest free one of the ids that the hardware has for a size: 0
// for the whole GPU, 1 and 2 for halves, 3 to 6 for quarters, from 7 on for eighths.
func (g migFace) newInstanceID(size int) int {
	whole := 0
	for _, p := range g.profiles() {
		whole = max(whole, p.Size)
	}
	id := whole/max(size, 1) - 1
	for slices.ContainsFunc(g.MIG.Instances, func(i gpu.GPUInstance) bool { return i.ID == id }) {
		id++
	}
	return id
}

// capability is the number of a capability device of a GPU instance: 0 is its own, and its compute instances follow. The driver
// numbers 15 instances of each GPU, each with 8 compute instances, after two devices that are of no GPU
// (https://docs.nvidia.com/datacenter/tesla/mig-user-guide, "Device Nodes and Capabilities").
func (g migFace) capability(instance, n int) int {
	if g.Minor == nil {
		return 0
	}
	return 3 + (*g.Minor*15+instance)*9 + n
}

// newMIGUUID never comes again.
func newMIGUUID() string { return "MIG-" + strings.ToLower(newGUID()) }

func listProfiles(profiles []gpu.MIGProfile) string {
	words := make([]string, len(profiles))
	for i, p := range profiles {
		words[i] = p.Name
	}
	return strings.Join(words, ", ")
}

// media is what an instance has of its GPU's media engines. The suffix of its profile's
// name says so.
type media int

const (
	mediaShare media = iota
	mediaNone        // -me
	mediaExtra       // +me: engines that are there once
	mediaAll         // +me.all
)

func mediaOf(profile string) media {
	switch {
	case strings.HasSuffix(profile, "+me.all"):
		return mediaAll
	case strings.HasSuffix(profile, "+me"):
		return mediaExtra
	case strings.HasSuffix(profile, "-me"):
		return mediaNone
	default:
		return mediaShare
	}
}

// excludes tells whether two instances cannot be on one GPU.
func (m media) excludes(other media) bool {
	if m == mediaAll || other == mediaAll {
		return m != mediaNone && other != mediaNone
	}
	return m == mediaExtra && other == mediaExtra
}
