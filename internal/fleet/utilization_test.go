package fleet_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// measured is a host that answers only once all others are being measured as well.
type measured struct {
	connect.Recorded
	together *sync.WaitGroup
	err      error
}

func (m measured) Utilization(ctx context.Context, window time.Duration) (agent.Measurement, error) {
	m.together.Done()
	all := make(chan struct{})
	go func() { m.together.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(time.Minute):
		return agent.Measurement{}, errors.New("the others were not measured meanwhile")
	case <-ctx.Done():
		return agent.Measurement{}, ctx.Err()
	}
	from := time.Unix(0, 0)
	return agent.Measurement{GPUs: []utilization.GPU{{ID: m.Host.Name}}, From: from, To: from.Add(window)}, m.err
}

func TestUtilizationMeasuresAllHostsAtOnce(t *testing.T) {
	var together sync.WaitGroup
	dials := map[string]int{}
	var mu sync.Mutex
	endpoint := func(name string, conn fleet.Conn) fleet.Endpoint {
		return fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dials[name]++
			return conn, nil
		}}
	}
	hosts := map[string]fleet.Endpoint{}
	for _, name := range []string{"a", "b", "c"} {
		m := measured{Recorded: connect.Recorded{Host: gpu.Host{Name: name}}, together: &together}
		if name == "c" {
			m.err = errors.New("the driver is gone")
		}
		together.Add(1)
		hosts[name] = endpoint(name, m)
	}
	hosts["recorded"] = endpoint("recorded", connect.Recorded{})
	f := fleet.New(fleet.Options{Hosts: hosts, MaxParallelHosts: 1}) // which is about inventories
	f.Snapshot(t.Context(), f.HostNames())

	const window = 3 * time.Second
	got := f.Utilization(t.Context(), []string{"a", "b", "c", "recorded", "nowhere"}, window)
	if names := slices.Sorted(maps.Keys(got.Hosts)); !slices.Equal(names, []string{"a", "b"}) {
		t.Fatalf("measured %v, errors %v", names, got.Errors)
	}
	for name, m := range got.Hosts {
		if m.GPUs[0].ID != name || m.Window().Length() != window || dials[name] != 1 {
			t.Errorf("%s: %+v over %d connections", name, m, dials[name])
		}
	}
	var unknown *fleet.UnknownHostError
	if err := got.Errors["c"]; err == nil || err.Error() != "the driver is gone" {
		t.Errorf("c: %v", err)
	}
	if !errors.Is(got.Errors["recorded"], fleet.ErrRecorded) || !errors.As(got.Errors["nowhere"], &unknown) || len(got.Errors) != 3 {
		t.Errorf("errors %v", got.Errors)
	}
}
