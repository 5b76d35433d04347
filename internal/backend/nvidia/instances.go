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
)

// instance is a GPU instance and its handle.
type instance struct {
	gpu.GPUInstance
	handle   nvml.GpuInstance
	computes []nvml.ComputeInstance
	mig      nvml.Device // the MIG device of the first compute instance, nil without one
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
		found, ret := d.handle.GetGpuInstances(&p.info)
		switch ret {
		case nvml.SUCCESS:
		case nvml.ERROR_NOT_FOUND, nvml.ERROR_NOT_SUPPORTED: // none, or MIG mode has gone meanwhile
			continue
		default:
			return nil, failed("nvmlDeviceGetGpuInstances", ret)
		}
		for _, handle := range found {
			info, ret := handle.GetInfo()
			if ret == nvml.ERROR_NOT_FOUND {
				continue // it has gone meanwhile
			}
			if ret != nvml.SUCCESS {
				return nil, failed("nvmlGpuInstanceGetInfo", ret)
			}
			i := instance{handle: handle, GPUInstance: gpu.GPUInstance{
				ID: int(info.Id), Profile: p.Name, Start: int(info.Placement.Start), Size: int(info.Placement.Size), Memory: p.Memory,
			}}
			if err := i.readComputes(p); err != nil {
				return nil, err
			}
			out = append(out, i)
			taken += p.Slices
		}
	}
	slices.SortFunc(out, func(a, b instance) int { return cmp.Compare(a.Start, b.Start) })
	return out, nil
}

// readComputes lists the compute instances.
func (i *instance) readComputes(p profile) error {
	profiles, err := i.computeProfiles(p)
	if err != nil {
		return err
	}
	for _, profile := range profiles {
		found, ret := i.handle.GetComputeInstances(&profile)
		switch ret {
		case nvml.SUCCESS:
		case nvml.ERROR_NOT_FOUND, nvml.ERROR_NOT_SUPPORTED:
			continue
		default:
			return failed("nvmlGpuInstanceGetComputeInstances", ret)
		}
		for _, handle := range found {
			info, ret := handle.GetInfo()
			if ret == nvml.ERROR_NOT_FOUND {
				continue
			}
			if ret != nvml.SUCCESS {
				return failed("nvmlComputeInstanceGetInfo", ret)
			}
			c := gpu.ComputeInstance{ID: int(info.Id), Slices: int(profile.SliceCount)}
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
	}
	return nil
}

// computeProfiles are what an instance of a profile can be divided into, ascending. Some
// have two numbers in NVML's list and one id.
func (i *instance) computeProfiles(p profile) ([]nvml.ComputeInstanceProfileInfo, error) {
	if len(*p.computes) > 0 {
		return *p.computes, nil
	}
	var out []nvml.ComputeInstanceProfileInfo
	for n := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := i.handle.GetComputeInstanceProfileInfo(n, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		switch {
		case ret == nvml.ERROR_NOT_SUPPORTED, ret == nvml.ERROR_INVALID_ARGUMENT, ret == nvml.ERROR_NOT_FOUND:
			continue // the GPU instance has no such profile
		case ret != nvml.SUCCESS:
			return nil, failed("nvmlGpuInstanceGetComputeInstanceProfileInfo", ret)
		}
		known := slices.ContainsFunc(out, func(o nvml.ComputeInstanceProfileInfo) bool { return o.Id == info.Id })
		if info.InstanceCount > 0 && !known {
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b nvml.ComputeInstanceProfileInfo) int { return cmp.Compare(a.SliceCount, b.SliceCount) })
	*p.computes = out
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
			return refuse(backend.InvalidParameter, "the GPU offers no profile %s; it offers %s", p.Profile, offered(profiles))
		}
		want := profiles[at]
		if !slices.Contains(want.Starts, p.Start) {
			return refuse(backend.InvalidParameter, "an instance of %s cannot begin at memory slice %d; it can at %s", p.Profile, p.Start, numbers(want.Starts))
		}
		have, err := s.instances(d, profiles[at:at+1])
		if err != nil {
			return err
		}
		for _, i := range have {
			if i.Placement() != p {
				continue
			}
			if !i.Filled() && len(i.Compute) > 0 {
				if err := b.clear(s, d, i); err != nil {
					return err
				}
				i.Compute = nil
			}
			if err := i.fill(want); err != nil {
				return err
			}
			return s.wantInstance(d, want, p, true)
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
		return s.wantInstance(d, want, p, true)
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
	return refuse(backend.Insufficient, "the driver has no room for it although no instance is in its place: the GPU takes at most %d of %s, and some profiles exclude each other", want.Max, p.Profile)
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

func offered(profiles []profile) string {
	var names []string
	for _, p := range profiles {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func numbers(list []int) string {
	var out []string
	for _, n := range list {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ", ")
}

// clear removes the compute instances of a GPU instance that nobody uses.
func (b *Backend) clear(s *session, d *device, i instance) error {
	users, err := b.processes(s, d)
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
	profiles, err := i.computeProfiles(p)
	if err != nil {
		return err
	}
	if len(profiles) == 0 {
		return refuse(backend.Failed, "the GPU instance offers no compute instance")
	}
	if _, ret := i.handle.CreateComputeInstance(&profiles[len(profiles)-1]); ret != nvml.SUCCESS {
		return failed("nvmlGpuInstanceCreateComputeInstance", ret)
	}
	return nil
}

// wantInstance reads back whether an instance is there.
func (s *session) wantInstance(d *device, of profile, p gpu.MIGPlacement, there bool) error {
	have, err := s.instances(d, []profile{of})
	if err != nil {
		return err
	}
	is := slices.ContainsFunc(have, func(i instance) bool { return i.Placement() == p && (i.Filled() || !there) })
	switch {
	case is == there:
		return nil
	case there:
		return refuse(backend.Failed, "the driver took the call, but does not list the instance with a compute instance that fills it")
	default:
		return refuse(backend.Failed, "the driver took the call, but still lists the instance")
	}
}

// DestroyInstance removes a GPU instance and the compute instances in it.
func (b *Backend) DestroyInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return b.change(ctx, fmt.Sprintf("destroy the GPU instance %s at %d", p.Profile, p.Start), gpuID, func(s *session, d *device) error {
		profiles, err := s.inMIGMode(d)
		if isCode(err, backend.InvalidState) {
			return nil // without MIG mode there is none
		}
		if err != nil {
			return err
		}
		of := slices.IndexFunc(profiles, func(o profile) bool { return o.Name == p.Profile })
		if of < 0 {
			return nil
		}
		have, err := s.instances(d, profiles[of:of+1])
		if err != nil {
			return err
		}
		at := slices.IndexFunc(have, func(i instance) bool { return i.Placement() == p })
		if at < 0 {
			return nil
		}
		gone := have[at]
		if err := b.clear(s, d, gone); err != nil {
			return err
		}
		if ret := gone.handle.Destroy(); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
			return b.whoHolds(s, d, gone, failed("nvmlGpuInstanceDestroy", ret))
		}
		return s.wantInstance(d, profiles[of], p, false)
	})
}

// whoHolds adds to a refusal who came into an instance since it was looked at.
func (b *Backend) whoHolds(s *session, d *device, i instance, err error) error {
	if !isReturn(err, nvml.ERROR_IN_USE) {
		return err
	}
	users, readErr := b.processes(s, d)
	if who := in(users, i.ID); readErr == nil && who != "" {
		return refuse(backend.InUse, "it is in use by %s", who)
	}
	return refuse(backend.InUse, "the driver says that it is in use (%v), and lists no process in it: something holds it open, such as a monitoring agent", err)
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
