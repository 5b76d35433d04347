//go:build linux && cgo

package nvidia

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// monitoring are the functions of GPU performance monitoring, which drivers from R520 and
// GPUs from Hopper on have. It is the only measure of MIG instances.
var monitoring = []string{
	"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet",
}

// monitors tells whether a GPU has performance monitoring.
func (s *session) monitors(d *device) bool {
	if !s.offers(monitoring...) {
		return false
	}
	support, ret := d.handle.GpmQueryDeviceSupport()
	return ret == nvml.SUCCESS && support.IsSupportedDevice != 0
}

// sample takes a sample, nil where there is none.
func (s *session) sample(take func(nvml.GpmSample) nvml.Return) nvml.GpmSample {
	into, ret := s.lib.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		return nil
	}
	if take(into) != nvml.SUCCESS {
		_ = into.Free() // it is of no use
		return nil
	}
	return into
}

// activity is the percentage of multiprocessors that worked between two samples.
func (s *session) activity(a, b nvml.GpmSample) *float64 {
	if a == nil || b == nil {
		return nil
	}
	get := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a, Sample2: b}
	get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	if s.lib.GpmMetricsGet(&get) != nvml.SUCCESS || nvml.Return(get.Metrics[0].NvmlReturn) != nvml.SUCCESS {
		return nil
	}
	if v := get.Metrics[0].Value; v >= 0 { // it is not a number where counters did not move
		return &v
	}
	return nil
}

// release gives samples back. Those of another session are gone with it.
func (b *Backend) release(of *session, all []*measured) {
	ctx, cancel := context.WithTimeout(context.Background(), b.opt.Patience)
	defer cancel()
	if b.take(ctx, "release samples") != nil {
		return
	}
	defer b.leave()
	if of == nil || b.session != of {
		return
	}
	for _, m := range all {
		m.free()
	}
}

func (m *measured) free() {
	samples := []nvml.GpmSample{m.sample}
	for _, i := range m.instances {
		samples = append(samples, i.sample)
	}
	for _, sample := range samples {
		if sample != nil {
			_ = sample.Free() // there is nothing to do about it
		}
	}
}
