//go:build linux && cgo

package nvidia

import (
	"context"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// shortest is the time that the driver wants between two samples of performance monitoring.
const shortest = 100 * time.Millisecond

// Measure reads every GPU and GPU instance twice, a window apart, which is at least a tenth
// of a second. Others may use the driver meanwhile.
func (b *Backend) Measure(ctx context.Context, window time.Duration) ([]utilization.GPU, utilization.Window, error) {
	const op, object = "measure", "the GPUs"
	var (
		first, second []*measured
		at            *session
		took          utilization.Window
	)
	err := b.ask(ctx, op, object, func(s *session) error {
		var err error
		at, took.From = s, time.Now()
		first, err = b.measure(s)
		return err
	})
	if err != nil {
		return nil, took, err // a call that was given up may still write to what it read
	}
	defer func() {
		if ctx.Err() == nil {
			b.release(at, slices.Concat(first, second))
		}
	}()
	select {
	case <-time.After(max(window, shortest)):
	case <-ctx.Done():
		return nil, took, complete(ctx, ctx.Err(), op, object)
	}
	var out []utilization.GPU
	err = b.ask(ctx, op, object, func(s *session) error {
		if s != at { // the samples were of a driver that has gone
			return refuse(backend.Unavailable, "the driver was loaded again, or a GPU reset, while it was measured: measure again")
		}
		var err error
		took.To = time.Now()
		if second, err = b.measure(s); err != nil {
			return err
		}
		out = s.compare(first, second)
		return nil
	})
	return out, took, err
}

// measured is a GPU at one time.
type measured struct {
	id        string
	mig       bool
	profiles  []gpu.MIGProfile
	instances []measuredInstance
	utilization.Reading
	sample nvml.GpmSample // nil where there is no performance monitoring
}

// measuredInstance is a GPU instance at one time.
type measuredInstance struct {
	instance
	utilization.Reading
	sample nvml.GpmSample
}

// is tells whether two measurements are of one instance. Ids are used again, for an
// instance that was made again; the UUIDs of its MIG devices are not.
func (m measuredInstance) is(o measuredInstance) bool {
	same := func(a, b gpu.ComputeInstance) bool { return a.UUID == b.UUID }
	return m.ID == o.ID && m.Placement() == o.Placement() && slices.EqualFunc(m.Compute, o.Compute, same)
}

// measure reads all GPUs. One that does not work hides what it does, and not the others.
func (b *Backend) measure(s *session) ([]*measured, error) {
	devices, err := s.devices()
	if err != nil {
		return nil, err
	}
	var out []*measured
	for _, d := range devices {
		m := &measured{id: d.ID, Reading: utilization.Reading{Hidden: true}}
		out = append(out, m)
		if d.handle == nil {
			continue
		}
		err := b.measureGPU(s, d, m)
		if isStale(err) {
			return nil, err
		}
		if err != nil { // half of it would look like all of it
			m.free()
			*m = measured{id: d.ID, Reading: utilization.Reading{Hidden: true}}
		}
	}
	return out, nil
}

func (b *Backend) measureGPU(s *session, d *device, m *measured) error {
	monitored := s.monitors(d)
	m.MemoryUsed, m.MemoryTotal = s.memory(d.handle)
	if s.offers("nvmlDeviceGetUtilizationRates") {
		if rates, ret := d.handle.GetUtilizationRates(); ret == nvml.SUCCESS {
			m.Busy, m.MemoryBusy = new(float64(rates.Gpu)), new(float64(rates.Memory))
		}
	}
	users, err := b.processes(s, d, true)
	if err != nil && !isReturn(err, nvml.ERROR_NO_PERMISSION) {
		return err
	}
	m.Processes, m.Hidden = users, err != nil
	current, _, ret := d.handle.GetMigMode()
	m.mig = ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE
	if !m.mig {
		if monitored {
			m.sample = s.sample(func(into nvml.GpmSample) nvml.Return { return into.Get(d.handle) })
		}
		return nil
	}
	profiles, err := s.profilesOf(d)
	if err != nil {
		return err
	}
	for _, p := range profiles {
		m.profiles = append(m.profiles, p.MIGProfile)
	}
	there, err := s.instances(d, profiles)
	if err != nil {
		return err
	}
	for _, i := range there {
		in := measuredInstance{instance: i, Reading: utilization.Reading{MemoryTotal: i.Memory, Hidden: m.Hidden}}
		if i.mig != nil {
			if used, total := s.memory(i.mig); total > 0 {
				in.MemoryUsed, in.MemoryTotal = used, total
			}
		}
		in.Processes = slices.DeleteFunc(slices.Clone(users), func(p gpu.Process) bool { return p.GPUInstance == nil || *p.GPUInstance != i.ID })
		if monitored {
			in.sample = s.sample(func(into nvml.GpmSample) nvml.Return { return into.MigGet(d.handle, i.ID) })
		}
		m.instances = append(m.instances, in)
	}
	return nil
}

// memory is what of the memory of a GPU or MIG device is used, without what the driver
// keeps for itself where it tells that, and all of it.
func (s *session) memory(h nvml.Device) (used, total gpu.Bytes) {
	if s.offers("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := h.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			return gpu.Bytes(m.Used), gpu.Bytes(m.Total)
		}
	}
	m, ret := h.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return 0, 0
	}
	return gpu.Bytes(m.Used), gpu.Bytes(m.Total)
}

// compare makes of two measurements what they tell together: what is there at the second.
// Performance monitoring tells of the time in between, which is of both.
func (s *session) compare(first, second []*measured) []utilization.GPU {
	var out []utilization.GPU
	for _, b := range second {
		a := &measured{Reading: utilization.Reading{Hidden: true}}
		if i := slices.IndexFunc(first, func(m *measured) bool { return m.id == b.id && m.mig == b.mig }); i >= 0 {
			a = first[i]
		}
		a.SMActivity = s.activity(a.sample, b.sample)
		b.SMActivity = a.SMActivity
		g := utilization.GPU{ID: b.id, First: a.Reading, Second: b.Reading}
		if b.mig {
			g.MIG = &utilization.MIG{Profiles: b.profiles, Instances: s.compareInstances(a.instances, b.instances)}
		}
		out = append(out, g)
	}
	return out
}

func (s *session) compareInstances(first, second []measuredInstance) []utilization.Instance {
	var out []utilization.Instance
	for _, b := range second {
		a := measuredInstance{Reading: utilization.Reading{Hidden: true}}
		if i := slices.IndexFunc(first, b.is); i >= 0 {
			a = first[i]
		}
		a.SMActivity = s.activity(a.sample, b.sample)
		b.SMActivity = a.SMActivity
		out = append(out, utilization.Instance{Profile: b.Profile, Start: b.Start, Size: b.Size, First: a.Reading, Second: b.Reading})
	}
	return out
}
