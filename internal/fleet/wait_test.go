package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// roomy is a host that takes a change once others have given up what it wants.
type roomy struct {
	*conn
	room *atomic.Int64
	rule string
}

func (c roomy) Prepare(_ context.Context, ch agent.Change) (agent.Prepared, error) {
	if strings.HasPrefix(ch.Token, "take") && c.room.Load() <= 0 {
		return agent.Prepared{Findings: []rules.Finding{{Rule: c.rule, Level: rules.Error, Title: "No room"}}}, nil
	}
	return agent.Prepared{Steps: []change.Step{{Op: change.OpWriteShare}}}, nil
}

func (c roomy) Apply(ctx context.Context, fence int64, ch agent.Change, basis string, p func(agent.StepProgress)) (agent.Outcome, error) {
	time.Sleep(time.Second)
	if strings.HasPrefix(ch.Token, "take") {
		c.room.Add(-1)
	} else {
		c.room.Add(1)
	}
	return c.conn.Apply(ctx, fence, ch, basis, p)
}

// What takes room waits for what gives it up, in whatever order and however many at a time
// Terraform begins them; where nothing can give it up any more, one after the other fails.
func TestAChangeWaitsForTheRoomThatItsRunFrees(t *testing.T) {
	t.Parallel()
	const patience = 5 * time.Second
	for name, test := range map[string]struct {
		rule     string
		parallel int
		begins   []string
		fail     int
		atMost   time.Duration
	}{
		"taken first":   {parallel: 10, begins: []string{"take 1", "take 2", "free 1", "free 2"}, atMost: 10 * time.Second},
		"freed first":   {parallel: 1, begins: []string{"free 1", "take 1"}, atMost: 3 * time.Second},
		"one at a time": {parallel: 1, begins: []string{"take 1", "free 1"}, fail: 1, atMost: patience + 2*time.Second},
		"all places taken": {
			parallel: 2, begins: []string{"take 1", "take 2", "free 1", "free 2"}, fail: 1, atMost: 2*patience + 5*time.Second,
		},
		"nothing is freed":            {parallel: 10, begins: []string{"take 1", "take 2"}, fail: 2, atMost: 2*patience + time.Second},
		"too little is freed":         {parallel: 10, begins: []string{"take 1", "take 2", "free 1"}, fail: 1, atMost: patience + 5*time.Second},
		"a rule that is not of room":  {rule: "gpu-exists", parallel: 10, begins: []string{"take 1", "free 1"}, fail: 1, atMost: 2 * time.Second},
		"many at a time, in a queue":  {parallel: 30, begins: append(named("take", 12), named("free", 12)...), atMost: 40 * time.Second},
		"many at a time, freed first": {parallel: 30, begins: append(named("free", 12), named("take", 12)...), atMost: 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if test.rule == "" {
					test.rule = "share-placement"
				}
				c := roomy{connection("a"), &atomic.Int64{}, test.rule}
				f := fleet.New(fleet.Options{
					Owner: "test", Patience: patience,
					Hosts: map[string]fleet.Endpoint{"a": {Dial: func(context.Context, bool) (fleet.Conn, error) { return c, nil }}},
				})
				slots, began := make(chan struct{}, test.parallel), time.Now()
				var wait sync.WaitGroup
				var failed atomic.Int64
				for _, token := range test.begins {
					slots <- struct{}{}
					wait.Go(func() {
						defer func() { <-slots }()
						_, err := f.Apply(t.Context(), fleet.Request{Change: change.Change{Subject: token, Token: token, Want: configWant(token)}})
						if err != nil {
							failed.Add(1)
						}
					})
					synctest.Wait()
				}
				wait.Wait()
				if took := time.Since(began); int(failed.Load()) != test.fail || took > test.atMost {
					t.Errorf("%d changes failed in %s, want %d in %s", failed.Load(), took, test.fail, test.atMost)
				}
			})
		})
	}
}

// A run that is cancelled waits no longer.
func TestACancelledRunDoesNotWaitForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := roomy{connection("a"), &atomic.Int64{}, "share-placement"}
		f := fleet.New(fleet.Options{
			Owner: "test", Patience: time.Hour,
			Hosts: map[string]fleet.Endpoint{"a": {Dial: func(context.Context, bool) (fleet.Conn, error) { return c, nil }}},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := f.Apply(ctx, fleet.Request{Change: change.Change{Subject: "take", Token: "take", Want: configWant("take")}})
		if err == nil || time.Since(began) > time.Minute {
			t.Errorf("it ended with %v after %s", err, time.Since(began))
		}
	})
}

func named(what string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s %d", what, i)
	}
	return out
}

func configWant(id string) gpu.Want {
	want := configFor("a")
	want.Config.ID = id
	return want
}
