package simulated

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// WriteShare hands a share to containers.
func (h *Host) WriteShare(ctx context.Context, s gpu.ShareSpec) error {
	return h.do(ctx, call{op: OpWriteShare, share: s.Name}, func(r *record) error { return r.writeShare(s) })
}

// RemoveShare takes a share back.
func (h *Host) RemoveShare(ctx context.Context, name string, endClients bool) error {
	return h.do(ctx, call{op: OpRemoveShare, share: name}, func(r *record) error {
		if err := r.ownsSpec(name); err != nil {
			return err
		}
		r.dropShare(name)
		if endClients {
			clients := r.ClientsIn(name)
			r.EndProcesses(func(p gpu.Process) bool {
				return slices.ContainsFunc(clients, func(c gpu.Process) bool { return c.PID == p.PID })
			})
		}
		return nil
	})
}

func (r *record) writeShare(want gpu.ShareSpec) error {
	share, err := r.share(want)
	if err != nil {
		return err
	}
	if err := share.Validate(); err != nil {
		return refuse(backend.InvalidParameter, "%v", err)
	}
	if err := r.ownsSpec(want.Name); err != nil {
		return err
	}
	handed := gpu.HandedShare{
		Name: want.Name, CDIDevice: gpu.CDIDevice(want.Name), Environment: cdi.Environment(share), LimitsContainers: r.limitsContainers(want),
	}
	if r.ContainerToolkit == "" {
		handed.Note = "The host has no NVIDIA container toolkit, so containers get the share without the driver's libraries: install it and " +
			"apply again, or include the libraries in the image."
	}
	r.dropShare(want.Name)
	r.Shares = append(r.Shares, handed)
	slices.SortFunc(r.Shares, func(a, b gpu.HandedShare) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// OutdatedShares compares what is handed over with what would be written now.
func (h *Host) OutdatedShares(ctx context.Context, shares []gpu.ShareSpec) (map[string]string, error) {
	doc, err := h.fleet.file.read(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	r, ok := doc.host(h.name)
	for _, want := range shares {
		if !ok {
			break
		}
		have, handed := r.HandedShare(want.Name)
		share, err := r.share(want)
		switch {
		case !handed, err != nil:
		case len(have.Environment) > 0 && !maps.Equal(have.Environment, cdi.Environment(share)):
			out[want.Name] = "leads elsewhere"
		case r.ContainerToolkit != "" && have.LimitsContainers != r.limitsContainers(want):
			out[want.Name] = "was written for another driver or container toolkit"
		}
	}
	return out, nil
}

// limitsContainers reports whether the toolkit's specification has a hook for limits of memory, and
// the share has a limit for it.
func (r *record) limitsContainers(want gpu.ShareSpec) bool {
	return want.MemoryRequest+want.MemoryLimit > 0 && !slices.ContainsFunc(want.Devices, func(d gpu.SharedDevice) bool {
		g, ok := r.GPU(d.GPU)
		return !ok || d.Instance != nil || !r.Host.LimitsContainers(g)
	})
}

// share is a share with its devices as the driver numbers them now.
func (r *record) share(want gpu.ShareSpec) (*cdi.Share, error) {
	devices, err := r.locate(want.Devices)
	if err != nil {
		return nil, err
	}
	share := &cdi.Share{Name: want.Name, MemoryRequest: want.MemoryRequest, MemoryLimit: want.MemoryLimit}
	for _, d := range devices {
		share.Devices = append(share.Devices, cdi.Device{UUID: d.uuid, Minor: d.minor, Instance: d.instance})
	}
	if want.Daemon == "" {
		return share, nil
	}
	d, ok := r.Daemon(want.Daemon)
	if !ok {
		return nil, refuse(backend.NotFound, "the host has no MPS daemon %s", want.Daemon)
	}
	partition := ""
	if d.StaticPartitions { // its id ends with the daemon's process
		partition = fmt.Sprintf("%s/%s-%d-%g", devices[0].uuid, want.Name, d.PID, want.ActiveThreadPercentage)
	}
	share.MPS = &cdi.MPS{
		Pipe: d.PipeDir, Partition: partition, ThreadPercentage: want.ActiveThreadPercentage, MemoryLimit: want.PinnedMemoryLimit,
		Priority: want.ClientPriority,
	}
	return share, nil
}

// ownsSpec refuses a specification that somebody else wrote.
func (r *record) ownsSpec(name string) error {
	if slices.Contains(r.Simulation.ForeignSpecs, name) {
		return refuse(backend.InUse,
			"its CDI specification was not written by this provider, and stays as it is; move it away, or give the share another name")
	}
	return nil
}

func (r *record) dropShare(name string) {
	r.Shares = slices.DeleteFunc(r.Shares, func(s gpu.HandedShare) bool { return s.Name == name })
}
