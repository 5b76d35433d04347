package gpuutilization

import (
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// add writes what was found out about a host into the model. record is the long view by
// GPU, nil without one.
func (m *model) add(r reading, record map[string]utilization.History) {
	out := hostModel{
		WindowSeconds: object.Round(r.measured.Window().Length().Seconds()),
		MeasuredAt:    r.measured.To.UTC().Format(time.RFC3339),
		GPUs:          map[string]gpuModel{},
	}
	for i := range r.gpus {
		g := &r.gpus[i]
		x := gpuModel{
			useModel: use(&g.figures.Use, r.shares(onGPU(g.gpu.ID))), Model: g.gpu.Model, Used: rounded(g.figures.Used()),
			Advice: []adviceModel{},
		}
		if g.figures.MIG != nil {
			x.MIG = describeMIG(&r, g)
			// Limits are those of instances, so that they cannot be added up.
			x.Oversubscription = nil
		}
		var history *utilization.History
		if h, ok := record[g.figures.ID]; ok {
			history, x.History = &h, describeHistory(&h)
		}
		for _, a := range g.figures.Advice(history) {
			x.Advice = append(x.Advice, adviceModel{Kind: string(a.Code), Text: a.Text})
			m.Advice = append(m.Advice, hostAdviceModel{Host: r.name, GPUID: g.gpu.ID, Kind: string(a.Code), Text: a.Text})
		}
		out.GPUs[g.gpu.ID] = x
	}
	m.Utilization[r.name] = out
}

func use(u *utilization.Use, shares []placed) useModel {
	out := useModel{
		Allocated: object.Round(u.Allocated), Busy: rounded(u.Busy), MemoryBusy: rounded(u.MemoryBusy), SMActivity: rounded(u.SMActivity),
		Idle:             u.Idle,
		Oversubscription: rounded(oversubscription(shares, u.MemoryTotal)), Processes: []processModel{}, Shares: []shareModel{},
	}
	if u.MemoryTotal > 0 {
		out.MemoryUsedMiB, out.MemoryTotalMiB = new(u.MemoryUsed.MiB()), new(u.MemoryTotal.MiB())
	}
	for i := range u.Processes {
		p := &u.Processes[i]
		out.Processes = append(out.Processes, processModel{
			PID: int64(p.PID), Name: object.NilIfEmpty(p.Name),
			Holder: object.NilIfEmpty(p.Holder), Share: object.NilIfEmpty(p.Share), MemoryMiB: p.Memory.MiB(),
		})
	}
	for _, p := range shares {
		out.Shares = append(out.Shares, shareModel{
			Name: p.share.Name, Owner: object.NilIfEmpty(p.claim.Owner), Mode: string(p.facts.Mode),
			Fraction: object.Round(p.facts.Fraction),
		})
	}
	return out
}

func describeMIG(r *reading, g *gpuReading) *migModel {
	f := g.figures.MIG
	out := &migModel{
		Slices: int64(f.Slices), Allocated: int64(f.AllocatedSlices), Used: int64(f.UsedSlices),
		MemorySlices: int64(f.MemorySlices), FreeMemory: int64(f.FreeMemory), Unallocatable: int64(f.Unallocatable), Instances: []instanceModel{},
	}
	for i := range f.Instances {
		in := &f.Instances[i]
		shares := r.shares(onInstance(g.gpu.ID, gpu.MIGPlacement{Profile: in.Profile, Start: in.Start}))
		out.Instances = append(out.Instances, instanceModel{useModel: use(&in.Use, shares), Profile: in.Profile, Start: int64(in.Start)})
	}
	return out
}

func describeHistory(h *utilization.History) *historyModel {
	out := &historyModel{
		From: h.From.Format(time.RFC3339), To: h.To.Format(time.RFC3339), RecordedHours: object.Round(h.Recorded.Hours()),
		Idle: rounded(h.Idle), Nights: rounded(h.Nights), Weekends: rounded(h.Weekends), WorkingDays: rounded(h.Days),
	}
	if h.Idle != nil {
		out.Peak, out.Mean = rounded(&h.Peak), rounded(&h.Mean)
	}
	return out
}

func rounded(f *float64) *float64 {
	if f == nil {
		return nil
	}
	r := object.Round(*f)
	return &r
}
