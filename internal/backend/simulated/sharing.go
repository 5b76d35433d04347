package simulated

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SetComputeMode says how many processes may use a GPU.
func (h *Host) SetComputeMode(ctx context.Context, gpuID string, mode gpu.ComputeMode) error {
	return h.do(ctx, call{op: OpSetComputeMode, gpu: gpuID}, func(r *record) error {
		return r.setComputeMode(gpuID, mode)
	})
}

// SetTimeSlice sets the length of a process's turn on a GPU.
func (h *Host) SetTimeSlice(ctx context.Context, gpuID string, t gpu.TimeSlice) error {
	return h.do(ctx, call{op: OpSetTimeSlice, gpu: gpuID}, func(r *record) error {
		return r.setTimeSlice(gpuID, t)
	})
}

// setComputeMode sets a mode for processes that come. Those that are there go on.
func (r *record) setComputeMode(gpuID string, mode gpu.ComputeMode) error {
	modes := []gpu.ComputeMode{gpu.ComputeDefault, gpu.ComputeExclusiveProcess, gpu.ComputeProhibited}
	g, err := r.fullGPU(gpuID)
	switch {
	case err != nil:
		return err
	case !slices.Contains(modes, mode):
		return refuse(backend.InvalidParameter, "%q is no compute mode, only one of %q", mode, modes)
	}
	g.ComputeMode = mode
	return nil
}

func (r *record) setTimeSlice(gpuID string, t gpu.TimeSlice) error {
	g, err := r.fullGPU(gpuID)
	switch {
	case err != nil:
		return err
	case !slices.Contains(gpu.TimeSlices(), t):
		return refuse(backend.InvalidParameter, "%q is no time slice, only one of %q", t, gpu.TimeSlices())
	case !isVolta(g):
		return refuse(backend.NotSupported, "a %s, of compute capability %s, has one time slice only", g.Model, g.ComputeCapability)
	}
	g.TimeSlice = t
	return nil
}

// fullGPU finds a GPU that is not used by its instances.
func (r *record) fullGPU(gpuID string) (*gpu.GPU, error) {
	g, ok := r.GPU(gpuID)
	switch {
	case !ok:
		return nil, refuse(backend.NotFound, "the host has no GPU %s", gpuID)
	case isInMIG(g):
		return nil, refuse(backend.NotSupported, "GPU %s is in MIG mode", g.ID)
	}
	return g, nil
}

// isVolta tells whether a GPU is one of Volta or later, which one that does not tell its
// compute capability is taken for, and isHopper whether it is one of Hopper or later.
// Assumption linux-time-slice-volta.
func isVolta(g *gpu.GPU) bool { return g.ComputeCapability == "" || major(g) >= 7 }

func isHopper(g *gpu.GPU) bool { return major(g) >= 9 }

func major(g *gpu.GPU) int {
	text, _, _ := strings.Cut(g.ComputeCapability, ".")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// located is a device as the driver knows it now.
type located struct {
	gpu.SharedDevice
	// uuid is what CUDA takes: "GPU-...", or "MIG-...", which is new each time that an
	// instance is made.
	uuid     string
	minor    int
	instance *cdi.Instance
}

// locate finds devices, and says of them how the host writes them.
func (r *record) locate(devices []gpu.SharedDevice) ([]located, error) {
	var out []located
	for _, d := range devices {
		at, err := r.locateOne(d)
		if err != nil {
			return nil, err
		}
		out = append(out, at)
	}
	return out, nil
}

func (r *record) locateOne(d gpu.SharedDevice) (located, error) {
	if d.Instance == nil {
		g, err := r.fullGPU(d.GPU)
		if err != nil {
			return located{}, err
		}
		return located{SharedDevice: gpu.SharedDevice{GPU: g.ID}, uuid: g.ID, minor: r.minor(g)}, nil
	}
	none := refuse(backend.NotFound, "GPU %s has no GPU instance %s that a process could run in", d.GPU, placeText(*d.Instance))
	g, ok := r.GPU(d.GPU)
	if !ok || !isInMIG(g) {
		return located{}, none
	}
	i := migFace{g}.instance(*d.Instance)
	switch {
	case i == nil || len(i.Compute) == 0:
		return located{}, none
	case !i.Filled():
		return located{}, refuse(backend.InvalidState, "GPU %s: %s %s; have one compute instance that fills it",
			g.ID, placeText(*d.Instance), i.ComputeText())
	}
	place := i.Placement()
	return located{
		SharedDevice: gpu.SharedDevice{GPU: g.ID, Instance: &place}, uuid: i.Compute[0].UUID, minor: r.minor(g),
		instance: &cdi.Instance{GPU: i.ID, Compute: i.Compute[0].ID},
	}, nil
}

// minor is the number in the name of a GPU's device node.
func (r *record) minor(g *gpu.GPU) int {
	return slices.IndexFunc(r.GPUs, func(o gpu.GPU) bool { return gpu.SameID(o.ID, g.ID) })
}

// byUUID is the device that CUDA has under a UUID. One that the host has not goes by that.
func (r *record) byUUID(uuid string) gpu.SharedDevice {
	for i := range r.GPUs {
		g := &r.GPUs[i]
		if g.MIG == nil {
			continue
		}
		for _, in := range g.MIG.Instances {
			if slices.ContainsFunc(in.Compute, func(c gpu.ComputeInstance) bool { return c.UUID == uuid }) {
				place := in.Placement()
				return gpu.SharedDevice{GPU: g.ID, Instance: &place}
			}
		}
	}
	return gpu.SharedDevice{GPU: uuid}
}

func uuidsOf(devices []located) []string {
	var out []string
	for _, d := range devices {
		out = append(out, d.uuid)
	}
	return out
}

func sharedDevices(devices []located) []gpu.SharedDevice {
	var out []gpu.SharedDevice
	for _, d := range devices {
		out = append(out, d.SharedDevice)
	}
	return out
}
