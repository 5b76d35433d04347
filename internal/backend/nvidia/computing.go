//go:build linux && cgo

package nvidia

import (
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
)

// computing tells who computes through MPS on devices, by the UUIDs that CUDA takes, and
// whether the driver tells.
func (b *Backend) computing(s *session, uuids []string) (clients []mps.Client, known bool) {
	if !s.offers("nvmlDeviceGetMPSComputeRunningProcesses_v3") {
		return nil, false
	}
	devices, err := s.devices()
	if err != nil {
		return nil, false
	}
	seen := map[int]bool{}
	for _, d := range devices {
		if d.handle == nil || elsewhere(d, uuids) {
			continue
		}
		if _, hangs := b.silent.Load(d.ID); hangs {
			return nil, false
		}
		on, err := s.covers(d, uuids)
		if err != nil {
			return nil, false
		}
		found, ret := d.handle.GetMPSComputeRunningProcesses()
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_NOT_FOUND {
			return nil, false
		}
		for _, p := range found {
			if pid := int(p.Pid); on(p) && !seen[pid] {
				seen[pid] = true
				clients = append(clients, mps.Client{PID: pid, Name: b.identify(pid).Name})
			}
		}
	}
	slices.SortFunc(clients, func(a, b mps.Client) int { return a.PID - b.PID })
	return clients, true
}

// elsewhere tells whether devices are whole GPUs, and a GPU none of them.
func elsewhere(d *device, uuids []string) bool {
	whole := func(uuid string) bool { return strings.HasPrefix(uuid, "GPU-") && uuid != d.ID }
	return len(uuids) > 0 && !slices.ContainsFunc(uuids, func(uuid string) bool { return !whole(uuid) })
}

// covers tells which processes of a GPU are on devices that are known by UUIDs: all of them,
// or those in some of its GPU instances.
func (s *session) covers(d *device, uuids []string) (func(nvml.ProcessInfo) bool, error) {
	if len(uuids) == 0 || slices.Contains(uuids, d.ID) {
		return func(nvml.ProcessInfo) bool { return true }, nil
	}
	profiles, err := s.inMIGMode(d)
	if err != nil && !backend.Is(err, backend.InvalidState, backend.NotSupported) {
		return nil, err
	}
	all, err := s.instances(d, profiles)
	if err != nil {
		return nil, err
	}
	ids := map[uint32]bool{}
	for _, i := range all {
		for _, c := range i.Compute {
			if slices.Contains(uuids, c.UUID) {
				ids[uint32(i.ID)] = true
			}
		}
	}
	return func(p nvml.ProcessInfo) bool { return ids[p.GpuInstanceId] }, nil
}
