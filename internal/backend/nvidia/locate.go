//go:build linux && cgo

package nvidia

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// located is a GPU or a GPU instance as the driver knows it now.
type located struct {
	// uuid is what CUDA takes: "GPU-...", or "MIG-...", which is new each time that an
	// instance is made.
	uuid     string
	device   *device
	instance *instance // nil for a whole GPU
}

// locate finds a device.
func (s *session) locate(at gpu.SharedDevice) (located, error) {
	d, err := s.byUUID(at.GPU)
	if err != nil {
		return located{}, refuseOn(at, err)
	}
	if at.Instance == nil {
		return located{uuid: d.ID, device: d}, refuseOn(at, d.isWhole())
	}
	i, err := s.instanceAt(d, *at.Instance)
	if err != nil {
		return located{}, refuseOn(at, err)
	}
	return located{uuid: i.Compute[0].UUID, device: d, instance: i}, nil
}

// instanceAt finds a GPU instance that one compute instance fills.
func (s *session) instanceAt(d *device, p gpu.MIGPlacement) (*instance, error) {
	none := refuse(backend.NotFound, "it has no GPU instance %s at %d", p.Profile, p.Start)
	profiles, err := s.inMIGMode(d)
	if backend.Is(err, backend.InvalidState, backend.NotSupported) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	of := slices.IndexFunc(profiles, func(o profile) bool { return o.Name == p.Profile })
	if of < 0 {
		return nil, none
	}
	have, err := s.instances(d, profiles[of:of+1])
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(have, func(i instance) bool { return i.Placement() == p })
	switch {
	case at < 0:
		return nil, none
	case len(have[at].Compute) == 0:
		return nil, refuse(backend.NotFound, "its GPU instance %s at %d has no compute instance", p.Profile, p.Start)
	case !have[at].Filled():
		return nil, refuse(backend.InvalidState, "its GPU instance %s at %d %s; have one compute instance that fills it",
			p.Profile, p.Start, have[at].ComputeText())
	}
	return &have[at], nil
}

// refuseOn says in a refusal which device it is about.
func refuseOn(at gpu.SharedDevice, err error) error {
	if e, ok := errors.AsType[*backend.Error](err); ok {
		return refuse(e.Code, "GPU %s: %s", at.GPU, e.Detail)
	}
	return err
}

// minor is the number in the device node of a GPU.
func (s *session) minor(d *device) (int, error) {
	if err := s.needs("nvmlDeviceGetMinorNumber"); err != nil {
		return 0, err
	}
	minor, ret := d.handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return 0, failed("nvmlDeviceGetMinorNumber", ret)
	}
	return minor, nil
}

// sharedDevices are what CUDA_VISIBLE_DEVICES names, which may be the beginning of a UUID. What the
// host has not goes by what it is called there.
func sharedDevices(gpus []gpu.GPU, names []string) []gpu.SharedDevice {
	return words.Each(names, func(name string) gpu.SharedDevice { return sharedDevice(gpus, name) })
}

// everyGPU is what CUDA shows to whom nothing chooses for.
func everyGPU(gpus []gpu.GPU) []gpu.SharedDevice {
	var out []gpu.SharedDevice
	for i := range gpus {
		if !isInMIGMode(&gpus[i]) {
			out = append(out, gpu.SharedDevice{GPU: gpus[i].ID})
		}
	}
	return out
}

func isInMIGMode(g *gpu.GPU) bool { return g.MIG != nil && g.MIG.Enabled }

// byNumber is the GPU that CUDA gives a number. It counts the fastest first: on a host with
// several models it is not known here which those are.
func byNumber(gpus []gpu.GPU, name string) (string, bool) {
	n, err := strconv.ParseUint(name, 10, 16)
	other := func(g gpu.GPU) bool { return g.Model != gpus[0].Model || isInMIGMode(&g) }
	if err != nil || int(n) >= len(gpus) || slices.ContainsFunc(gpus, other) {
		return "", false
	}
	return gpus[n].ID, true
}

func sharedDevice(gpus []gpu.GPU, name string) gpu.SharedDevice {
	is := func(uuid string) bool {
		return len(name) > len("GPU-") && len(uuid) >= len(name) && strings.EqualFold(uuid[:len(name)], name)
	}
	for i := range gpus {
		if is(gpus[i].ID) {
			return gpu.SharedDevice{GPU: gpus[i].ID}
		}
		if gpus[i].MIG == nil {
			continue
		}
		for _, in := range gpus[i].MIG.Instances {
			if slices.ContainsFunc(in.Compute, func(c gpu.ComputeInstance) bool { return is(c.UUID) }) {
				return gpu.SharedDevice{GPU: gpus[i].ID, Instance: new(in.Placement())}
			}
		}
	}
	if id, ok := byNumber(gpus, name); ok {
		return gpu.SharedDevice{GPU: id}
	}
	return gpu.SharedDevice{GPU: gpu.Printable(name)}
}
