package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// ErrRecorded is why a host of a recorded inventory cannot be measured.
var ErrRecorded = errors.New("this host is a recorded inventory, which has no utilization data")

// meter is a connection to a host that is there to be measured.
type meter interface {
	Utilization(ctx context.Context, window time.Duration) (agent.Measurement, error)
}

// Measurements are how busy the GPUs of some hosts are.
type Measurements struct {
	// Hosts that answered, by the provider's name.
	Hosts map[string]agent.Measurement
	// Errors of those that did not.
	Errors map[string]error
}

// Utilization measures hosts for the same window, each over the connection that this run
// has to it. All do so at once, however many may be asked for their inventory: they only
// wait.
func (f *Fleet) Utilization(ctx context.Context, names []string, window time.Duration) Measurements {
	out := Measurements{Hosts: map[string]agent.Measurement{}, Errors: map[string]error{}}
	var mu sync.Mutex
	var g errgroup.Group
	for _, name := range names {
		g.Go(func() error {
			m, err := f.measure(ctx, name, window)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Errors[name] = err
			} else {
				out.Hosts[name] = m
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in the result
	return out
}

func (f *Fleet) measure(ctx context.Context, name string, window time.Duration) (m agent.Measurement, err error) {
	h, ok := f.hosts[name]
	if !ok {
		return m, &UnknownHostError{Host: name, Known: f.HostNames()}
	}
	ctx, cancel := context.WithTimeout(ctx, window+inventoryTimeout)
	defer cancel()
	_, err = h.ask(ctx, func(conn Conn) (err error) {
		measured, ok := conn.(meter)
		if !ok {
			return ErrRecorded
		}
		m, err = measured.Utilization(ctx, window)
		return err
	})
	return m, err
}
