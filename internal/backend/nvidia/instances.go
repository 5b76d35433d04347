//go:build linux && cgo

package nvidia

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// instance is a GPU instance and its handle.
type instance struct {
	gpu.GPUInstance
	handle   nvml.GpuInstance
	computes []nvml.ComputeInstance
	mig      nvml.Device // the MIG device of the first compute instance, nil without one
}

// seat is a place on a GPU.
type placeOnGPU struct {
	gpu string
	gpu.MIGPlacement
}

// instances lists the GPU instances of a GPU in MIG mode, by start.
func (s *session) instances(d *device, profiles []profile) ([]instance, error) {
	var out []instance
	whole, taken := 0, 0
	for _, p := range profiles {
		whole = max(whole, p.Slices)
	}
	for n, p := range profiles {
		if n > 0 && taken >= whole {
			break // nothing is left for instances of another profile
		}
		found, err := d.instancesOf(p)
		if err != nil {
			return nil, err
		}
		for _, handle := range found {
			i, err := s.instance(d, p, handle)
			if err != nil {
				return nil, err
			}
			if i == nil {
				continue // it has gone meanwhile
			}
			if err := i.readComputes(p); err != nil {
				return nil, err
			}
			out = append(out, *i)
			taken += p.Slices
		}
	}
	slices.SortFunc(out, func(a, b instance) int { return cmp.Compare(a.Start, b.Start) })
	return out, nil
}

// instancesOf are the handles of the GPU instances of a profile.
func (d *device) instancesOf(p profile) ([]nvml.GpuInstance, error) {
	found, ret := d.handle.GetGpuInstances(&p.info)
	switch ret {
	case nvml.SUCCESS:
		return found, nil
	case nvml.ERROR_NOT_FOUND:
		return nil, nil
	case nvml.ERROR_NOT_SUPPORTED:
		if current, _, asked := d.handle.GetMigMode(); asked == nvml.SUCCESS && current != nvml.DEVICE_MIG_ENABLE {
			return nil, nil // MIG mode has gone meanwhile
		}
	}
	return nil, failed("nvmlDeviceGetGpuInstances", ret)
}

// instance reads where a GPU instance is, nil for one that has gone or is of another profile.
func (s *session) instance(d *device, p profile, handle nvml.GpuInstance) (*instance, error) {
	info, ret := handle.GetInfo()
	switch {
	case ret == nvml.ERROR_NOT_FOUND:
		return nil, nil
	case ret != nvml.SUCCESS:
		return nil, failed("nvmlGpuInstanceGetInfo", ret)
	case info.ProfileId != p.info.Id:
		return nil, nil
	}
	i := &instance{handle: handle, GPUInstance: gpu.GPUInstance{
		ID: int(info.Id), Profile: p.Name, Start: int(info.Placement.Start), Size: int(info.Placement.Size), Memory: p.Memory,
	}}
	s.places[placeOnGPU{d.ID, i.Placement()}] = i.ID
	return i, nil
}

// find is the GPU instance at a place, nil for none. Of what is in it only the handles are read.
func (s *session) find(d *device, p profile, start int) (*instance, error) {
	var handles []nvml.GpuInstance
	if id, seen := s.places[placeOnGPU{d.ID, gpu.MIGPlacement{Profile: p.Name, Start: start}}]; seen &&
		s.offers("nvmlDeviceGetGpuInstanceById") {
		if last, ret := d.handle.GetGpuInstanceById(id); ret == nvml.SUCCESS {
			handles = append(handles, last) // which may be another one by now
		}
	}
	for again := true; ; again = false {
		for _, handle := range handles {
			i, err := s.instance(d, p, handle)
			if err != nil {
				return nil, err
			}
			if i != nil && i.Start == start {
				return i, i.listComputes(p)
			}
		}
		if !again {
			return nil, nil
		}
		var err error
		if handles, err = d.instancesOf(p); err != nil {
			return nil, err
		}
	}
}

// readComputes reads the compute instances.
func (i *instance) readComputes(p profile) error {
	if err := i.listComputes(p); err != nil {
		return err
	}
	handles, all := i.computes, i.Compute
	i.computes, i.Compute = nil, nil
	for n, handle := range handles {
		info, ret := handle.GetInfo()
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		if ret != nvml.SUCCESS {
			return failed("nvmlComputeInstanceGetInfo", ret)
		}
		c := all[n]
		c.ID = int(info.Id)
		if info.Device != nil {
			if c.UUID, ret = info.Device.GetUUID(); ret != nvml.SUCCESS {
				return failed("nvmlDeviceGetUUID of a MIG device", ret)
			}
			if i.mig == nil {
				i.mig = info.Device
			}
		}
		i.Compute = append(i.Compute, c)
		i.computes = append(i.computes, handle)
	}
	return nil
}

// listComputes lists the handles of the compute instances, and how large these are. One that fills
// the GPU instance has none beside it.
func (i *instance) listComputes(p profile) error {
	i.Compute, i.computes = nil, nil
	full, err := i.filling(p)
	if err != nil {
		return err
	}
	if full != nil {
		if err := i.listOf(full); err != nil || len(i.computes) > 0 {
			return err
		}
	}
	others, err := i.computeProfiles(p)
	if err != nil {
		return err
	}
	for n := range others {
		if full != nil && others[n].Id == full.Id {
			continue
		}
		if err := i.listOf(&others[n]); err != nil {
			return err
		}
	}
	return nil
}

// listOf adds the compute instances of a profile.
func (i *instance) listOf(profile *nvml.ComputeInstanceProfileInfo) error {
	found, ret := i.handle.GetComputeInstances(profile)
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_NOT_SUPPORTED:
		return nil
	default:
		return failed("nvmlGpuInstanceGetComputeInstances", ret)
	}
	for _, handle := range found {
		i.Compute = append(i.Compute, gpu.ComputeInstance{Slices: int(profile.SliceCount)})
		i.computes = append(i.computes, handle)
	}
	return nil
}

// computeProfiles are the compute instance profiles of a GPU instance profile. They are asked of
// an instance, and kept.
type computeProfiles struct {
	full *nvml.ComputeInstanceProfileInfo // of all slices, nil until it was asked for
	all  []nvml.ComputeInstanceProfileInfo
}

// wholes are the numbers in NVML's list by the slices that a compute instance has.
var wholes = map[int]int{
	1: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 2: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, 3: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE,
	4: nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, 6: nvml.COMPUTE_INSTANCE_PROFILE_6_SLICE, 7: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE,
	8: nvml.COMPUTE_INSTANCE_PROFILE_8_SLICE,
}

// filling is the profile of the compute instance that fills an instance, nil where there is none
// of that name.
func (i *instance) filling(p profile) (*nvml.ComputeInstanceProfileInfo, error) {
	n, ok := wholes[p.Slices]
	if p.computes.full != nil || !ok {
		return p.computes.full, nil
	}
	info, err := i.computeProfile(n)
	if err == nil && info != nil && info.InstanceCount > 0 {
		p.computes.full = info
	}
	return p.computes.full, err
}

// computeProfile asks for a profile by its number in NVML's list, nil for none.
func (i *instance) computeProfile(n int) (*nvml.ComputeInstanceProfileInfo, error) {
	info, ret := i.handle.GetComputeInstanceProfileInfo(n, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	switch ret {
	case nvml.SUCCESS:
		return &info, nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND:
		return nil, nil // the GPU instance has no such profile
	}
	return nil, failed("nvmlGpuInstanceGetComputeInstanceProfileInfo", ret)
}

// computeProfiles are what an instance of a profile can be divided into, ascending. Some
// have two numbers in NVML's list and one id.
func (i *instance) computeProfiles(p profile) ([]nvml.ComputeInstanceProfileInfo, error) {
	if len(p.computes.all) > 0 {
		return p.computes.all, nil
	}
	var out []nvml.ComputeInstanceProfileInfo
	for n := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, err := i.computeProfile(n)
		if err != nil {
			return nil, err
		}
		known := func(o nvml.ComputeInstanceProfileInfo) bool { return o.Id == info.Id }
		if info != nil && info.InstanceCount > 0 && !slices.ContainsFunc(out, known) {
			out = append(out, *info)
		}
	}
	slices.SortFunc(out, func(a, b nvml.ComputeInstanceProfileInfo) int { return cmp.Compare(a.SliceCount, b.SliceCount) })
	p.computes.all = out
	return out, nil
}

// CreateInstance makes a GPU instance at its start with one compute instance that fills it.
func (b *Backend) CreateInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return b.change(ctx, fmt.Sprintf("create the GPU instance %s at %d", p.Profile, p.Start), gpuID, func(s *session, d *device) error {
		profiles, err := s.inMIGMode(d)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(profiles, func(o profile) bool { return o.Name == p.Profile })
		if at < 0 {
			return refuse(backend.InvalidParameter, "the GPU offers no profile %s; it offers %s", p.Profile, profileNames(profiles))
		}
		want := profiles[at]
		if !slices.Contains(want.Starts, p.Start) {
			return refuse(backend.InvalidParameter, "an instance of %s cannot begin at memory slice %d; it can at %s",
				p.Profile, p.Start, strings.Join(words.Each(want.Starts, strconv.Itoa), ", "))
		}
		i, err := s.find(d, want, p.Start)
		if err != nil {
			return err
		}
		if i != nil {
			if !i.Filled() && len(i.Compute) > 0 {
				if err := b.clear(s, d, *i); err != nil {
					return err
				}
				i.Compute = nil
			}
			if err := i.fill(want); err != nil {
				return err
			}
			return s.wantInstance(d, want, p)
		}
		b.behind(instancesChange)
		handle, ret := d.handle.CreateGpuInstanceWithPlacement(&want.info, &nvml.GpuInstancePlacement{
			Start: uint32(p.Start), Size: uint32(want.Size),
		})
		if ret == nvml.ERROR_INSUFFICIENT_RESOURCES {
			return s.noRoom(d, profiles, want, p)
		}
		if ret != nvml.SUCCESS {
			return failed("nvmlDeviceCreateGpuInstanceWithPlacement", ret)
		}
		made := instance{handle: handle}
		if err := made.fill(want); err != nil {
			_ = handle.Destroy() // the first error counts; a half-made instance is completed the next time
			return err
		}
		return s.wantInstance(d, want, p)
	})
}

// instancesChange is why derived files are behind until they are refreshed.
const instancesChange = "instances have changed since"

// noRoom says what the driver does not: who is in the way.
func (s *session) noRoom(d *device, profiles []profile, want profile, p gpu.MIGPlacement) error {
	have, err := s.instances(d, profiles)
	if err != nil {
		return err
	}
	for _, i := range have {
		if i.Start < p.Start+want.Size && p.Start < i.Start+i.Size {
			return refuse(backend.Insufficient, "the place is taken by the instance %s at %d", i.Profile, i.Start)
		}
	}
	return refuse(backend.Insufficient,
		"the driver has no room for it although no instance is in its place: the GPU takes at most %d of %s, and some profiles exclude each "+
			"other", want.Max, p.Profile)
}

// inMIGMode are the profiles of a GPU in MIG mode.
func (s *session) inMIGMode(d *device) ([]profile, error) {
	current, pending, ret := d.handle.GetMigMode()
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED:
		return nil, refuse(backend.NotSupported, "the GPU has no Multi-Instance GPU")
	case ret != nvml.SUCCESS:
		return nil, failed("nvmlDeviceGetMigMode", ret)
	case current != nvml.DEVICE_MIG_ENABLE && pending == nvml.DEVICE_MIG_ENABLE:
		return nil, refuse(backend.InvalidState, "MIG mode waits for a reset of the GPU")
	case current != nvml.DEVICE_MIG_ENABLE:
		return nil, refuse(backend.InvalidState, "the GPU is not in MIG mode")
	}
	return s.profilesOf(d)
}

func profileNames(profiles []profile) string {
	return strings.Join(words.Each(profiles, func(p profile) string { return p.Name }), ", ")
}

// clear removes the compute instances of a GPU instance that nobody uses.
func (b *Backend) clear(s *session, d *device, i instance) error {
	users, err := b.processes(s, d, s.drawsInMIGMode(d))
	if err != nil {
		return err
	}
	if who := in(users, i.ID); who != "" {
		return refuse(backend.InUse, "it is in use by %s", who)
	}
	b.behind(instancesChange)
	for _, c := range i.computes {
		if ret := c.Destroy(); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
			return b.whoHolds(s, d, i, failed("nvmlComputeInstanceDestroy", ret))
		}
	}
	return nil
}

// fill makes the compute instance that fills a GPU instance, unless it has some.
func (i *instance) fill(p profile) error {
	if len(i.Compute) > 0 {
		return nil
	}
	full, err := i.filling(p)
	if err != nil {
		return err
	}
	if full == nil {
		profiles, err := i.computeProfiles(p)
		if err != nil {
			return err
		}
		if len(profiles) == 0 {
			return refuse(backend.Failed, "the GPU instance offers no compute instance")
		}
		full = &profiles[len(profiles)-1]
	}
	if _, ret := i.handle.CreateComputeInstance(full); ret != nvml.SUCCESS {
		return failed("nvmlGpuInstanceCreateComputeInstance", ret)
	}
	return nil
}

// wantInstance reads back whether an instance is there.
func (s *session) wantInstance(d *device, of profile, p gpu.MIGPlacement) error {
	i, err := s.find(d, of, p.Start)
	if err == nil && (i == nil || !i.Filled()) {
		err = refuse(backend.Failed, "the driver took the call, but does not list the instance with a compute instance that fills it")
	}
	return err
}

// wantGone reads back whether an instance has gone.
func (s *session) wantGone(d *device, of profile, gone *instance) error {
	if s.offers("nvmlDeviceGetGpuInstanceById") {
		if _, ret := d.handle.GetGpuInstanceById(gone.ID); ret == nvml.ERROR_NOT_FOUND {
			return nil
		}
	}
	i, err := s.find(d, of, gone.Start)
	if err == nil && i != nil {
		err = refuse(backend.Failed, "the driver took the call, but still lists the instance")
	}
	return err
}

// DestroyInstance removes a GPU instance and the compute instances in it.
func (b *Backend) DestroyInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return b.change(ctx, fmt.Sprintf("destroy the GPU instance %s at %d", p.Profile, p.Start), gpuID, func(s *session, d *device) error {
		profiles, err := s.profilesOf(d)
		if err != nil {
			return err
		}
		of := slices.IndexFunc(profiles, func(o profile) bool { return o.Name == p.Profile })
		if of < 0 {
			if _, err := s.inMIGMode(d); !backend.Is(err, backend.InvalidState) {
				return err
			}
			return nil // without MIG mode there is none
		}
		gone, err := s.find(d, profiles[of], p.Start)
		if gone == nil || err != nil {
			return err
		}
		if err := b.livesNobody(ctx, s, d, *gone); err != nil {
			return err
		}
		if err := b.clear(s, d, *gone); err != nil {
			return err
		}
		if ret := gone.handle.Destroy(); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
			return b.whoHolds(s, d, *gone, failed("nvmlGpuInstanceDestroy", ret))
		}
		return s.wantGone(d, profiles[of], gone)
	})
}

// livesNobody refuses an instance that a vGPU lives in, or may live in where the driver does not
// tell: the driver itself refuses only once the compute instance is gone.
func (b *Backend) livesNobody(ctx context.Context, s *session, d *device, i instance) error {
	s.identify(d)
	v, err := b.readVGPU(ctx, s, d)
	if err != nil || v == nil {
		return err
	}
	for _, in := range v.Instances {
		t, _ := v.Offers(in.Type)
		if in.GPUInstance == nil && t.MIGProfile == i.Profile || in.GPUInstance != nil && *in.GPUInstance == i.ID {
			return refuse(backend.InUse, "in it lives the vGPU %s on %s", in.Type, in.Address)
		}
	}
	return nil
}

// whoHolds adds to a refusal who came into an instance since it was looked at.
func (b *Backend) whoHolds(s *session, d *device, i instance, err error) error {
	if !isReturn(err, nvml.ERROR_IN_USE) {
		return err
	}
	users, readErr := b.processes(s, d, s.drawsInMIGMode(d))
	if who := in(users, i.ID); readErr == nil && who != "" {
		return refuse(backend.InUse, "it is in use by %s", who)
	}
	return refuse(backend.InUse, "the driver says that it is in use (%v), and lists no process in it: something holds it open, %s",
		err, b.watchHint())
}

// watchHint names what may hold a GPU or an instance open that no list of processes shows.
func (b *Backend) watchHint() string {
	ctx, cancel := context.WithTimeout(context.Background(), b.opt.Patience)
	defer cancel()
	units, _ := b.controllers(ctx)
	running := slices.DeleteFunc(slices.Clone(gpu.Watchers), func(unit string) bool { return !slices.Contains(units, unit) })
	if len(running) == 0 {
		return "such as a monitoring agent"
	}
	return fmt.Sprintf("such as a monitoring agent, and of these %s runs: name it in quiesce_units, so that it is stopped meanwhile",
		words.Join(running))
}

// drmHint names the kernel module that keeps GPUs open on hosts that draw with them, and whose
// user no list of processes shows.
func (b *Backend) drmHint() string {
	if _, err := os.Stat(filepath.Join(b.opt.Root, "/sys/module/nvidia_drm")); err != nil {
		return ""
	}
	return "; the kernel module nvidia_drm is loaded, which keeps GPUs open: \"rmmod nvidia_drm\" unloads it where nothing draws"
}

// in names the processes in a GPU instance.
func in(users []gpu.Process, id int) string {
	return who(slices.DeleteFunc(slices.Clone(users), func(p gpu.Process) bool { return p.GPUInstance == nil || *p.GPUInstance != id }))
}
