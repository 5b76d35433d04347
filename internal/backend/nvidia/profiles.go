//go:build linux && cgo

package nvidia

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// profile is a GPU instance profile with NVML's own description of it. NVML asks for
// some things by the number of the profile in its list, and answers with the hardware's id.
type profile struct {
	gpu.MIGProfile
	info     nvml.GpuInstanceProfileInfo
	computes *computeProfiles
}

// suffixes are the kinds of profiles that have the slices of another one, by their
// numbers in NVML's list.
var suffixes = map[int]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me", nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx", nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx",
	nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX: "+gfx", nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "-me", nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "-me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all", nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}

// profilesOf are the profiles that a GPU offers. Each is asked for its own: of two boards of one
// model the same profile may have another id. They do not change while the session lasts; a driver
// that tells none outside of MIG mode is asked again.
func (s *session) profilesOf(d *device) ([]profile, error) {
	if known := s.profiles[d.ID]; len(known) > 0 {
		return known, nil
	}
	memory, ret := d.handle.GetMemoryInfo()
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
		return nil, failed("nvmlDeviceGetMemoryInfo", ret)
	}
	var out []profile
	for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := d.handle.GetGpuInstanceProfileInfo(i)
		switch ret {
		case nvml.SUCCESS:
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND:
			continue // the GPU or the driver does not have it
		default:
			return nil, failed("nvmlDeviceGetGpuInstanceProfileInfo", ret)
		}
		p := profile{info: info, computes: &computeProfiles{}, MIGProfile: gpu.MIGProfile{
			ID: int(info.Id), Slices: int(info.SliceCount), Memory: gpu.FromMiB(int64(info.MemorySizeMB)),
			Max: int(info.InstanceCount),
		}}
		p.Name = s.profileName(d, i, info, memory.Total)
		places, ret := d.handle.GetGpuInstancePossiblePlacements(&info)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, failed("nvmlDeviceGetGpuInstancePossiblePlacements", ret)
		}
		for _, place := range places {
			p.Size = int(place.Size)
			p.Starts = append(p.Starts, int(place.Start))
		}
		slices.Sort(p.Starts)
		// Where NVML counts too few instances, as on the A30, they could not be listed.
		p.info.InstanceCount = max(p.info.InstanceCount, uint32(len(p.Starts)))
		if t, ok := catalogTable(d); ok && d.PCI.Device == a30 {
			if documented, ok := t.Profile(p.Name); ok {
				p.Max = documented.Max
			}
		}
		if !slices.ContainsFunc(out, func(o profile) bool { return o.Name == p.Name }) {
			out = append(out, p)
		}
	}
	s.profiles[d.ID] = out
	return out, nil
}

// a30 is the device id of the A30, whose driver tells wrong numbers of instances.
const a30 = "20B7"

func catalogTable(d *device) (*catalog.MIGTable, bool) {
	m, ok := catalog.Of(d.PCI, d.Model)
	return m.MIG, ok && m.MIG != nil
}

// profileName is the driver's name of a profile, or the same made from its figures.
func (s *session) profileName(d *device, i int, info nvml.GpuInstanceProfileInfo, total uint64) string {
	if s.offers("nvmlDeviceGetGpuInstanceProfileInfoV") {
		if v, ret := d.handle.GetGpuInstanceProfileInfoV(i).V2(); ret == nvml.SUCCESS {
			if name := strings.TrimPrefix(text(v.Name[:]), "MIG "); name != "" {
				return name
			}
		}
	}
	return fmt.Sprintf("%dg.%dgb%s", info.SliceCount, gigabytes(total, info.MemorySizeMB), suffixes[i])
}

// gigabytes are what the name of a profile says of its memory: its share of the GPU's, in
// whole eighths, of as many gigabytes as the GPU is sold with.
func gigabytes(total, mib uint64) int {
	if total == 0 {
		return 0 // as the driver's own names say where the memory is the system's
	}
	const gib = 1 << 30
	eighths := math.Ceil(float64(mib<<20) / float64(total) * 8)
	sold := (total + gib - 1) / gib
	return int(math.Round(eighths / 8 * float64(sold)))
}
