package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// MaxWindow bounds how long a host is watched for one measurement: the call lasts as long.
const MaxWindow = time.Minute

// Measurement is how busy the GPUs of a host were between two readings.
type Measurement struct {
	From time.Time         `json:"from"`
	To   time.Time         `json:"to"`
	GPUs []utilization.GPU `json:"gpus"`
}

// Window is the time between the two readings.
func (m Measurement) Window() utilization.Window { return utilization.Window{From: m.From, To: m.To} }

// measure watches the GPUs of the host. It changes nothing and takes no lease.
func (s *Server) measure(ctx context.Context, window time.Duration) (Measurement, error) {
	const op = "measure the utilization"
	if window <= 0 || window > MaxWindow {
		return Measurement{}, &Error{Code: BadRequest, Message: fmt.Sprintf(
			"the window of a measurement is %s; it has to be longer than nothing and at most %s", window, MaxWindow)}
	}
	meter, ok := s.backend.(backend.Meter)
	if !ok {
		return Measurement{}, &Error{Code: Refused, Cause: &backend.Error{
			Code: backend.NotSupported, Op: op, Object: "host " + s.name,
			Detail: "a host of its platform does not tell how busy its GPUs are; Linux hosts with NVIDIA GPUs do",
		}}
	}
	gpus, w, err := meter.Measure(ctx, window)
	if err != nil {
		e := failure(op, err)
		if e.Cause != nil && e.Cause.Code == backend.NotSupported {
			e.Code = Refused
		}
		return Measurement{}, e
	}
	host, err := s.inventory(ctx)
	if err != nil {
		return Measurement{}, err
	}
	for i := range gpus {
		allocate(&host, &gpus[i])
	}
	return Measurement{From: w.From, To: w.To, GPUs: gpus}, nil
}

// allocate tells what of a GPU is given out, by the claims of the host.
func allocate(host *gpu.Host, g *utilization.GPU) {
	if g.MIG == nil {
		g.Allocated = placement.Allocated(host, gpu.SharedDevice{GPU: g.ID})
		return
	}
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		in.Allocated = placement.Allocated(host, gpu.SharedDevice{GPU: g.ID, Instance: &gpu.MIGPlacement{Profile: in.Profile, Start: in.Start}})
	}
}

func (g *service) Utilization(ctx context.Context, r *agentpb.UtilizationRequest) (*agentpb.UtilizationReply, error) {
	return answer(ctx, g, reads, g.server.gates.measure, func() (*agentpb.UtilizationReply, error) {
		m, err := g.server.measure(ctx, time.Duration(r.GetWindowMs())*time.Millisecond)
		return &agentpb.UtilizationReply{Measurement: document.Encode(m)}, err
	})
}

// Utilization measures how busy the GPUs of the host are: it reads them twice, a window
// apart. NotSupported on a host that cannot tell.
func (c *Client) Utilization(ctx context.Context, window time.Duration) (m Measurement, err error) {
	err = ask(ctx, c, c.rpc.Utilization, &agentpb.UtilizationRequest{WindowMs: window.Milliseconds()},
		func(r *agentpb.UtilizationReply) error {
			return c.read("measurement", r.GetMeasurement(), &m)
		})
	gpu.SayPlainly(&m)
	return m, err
}
