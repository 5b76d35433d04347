package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// The least and the default time between two looks at the hosts.
const (
	minInterval     = 100 * time.Millisecond
	defaultInterval = time.Second
)

func newWatch(o *hostOptions) *cobra.Command {
	w := watch{}
	config, once := configHosts{}, false
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow the changes that are being made on this host, or on all hosts of a configuration",
		Long: `watch prints what the journals of hosts say, and then each change of that, until it is
interrupted: which run changes the host, at which step a change is and what comes next, which VM
is off since when, and what ended. It reads only, and asks for no lease. Start it beside an apply.

With --once it prints what is under way now, and ends; the exit code is 1 if a host did not answer.

  gpu-agent watch --config .`,
		Args: usage(cobra.NoArgs),
		PreRunE: func(*cobra.Command, []string) error {
			if w.interval < minInterval {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--interval is %s; it must be at least %s", w.interval, minInterval)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			hosts, err := watchedHosts(cmd.Context(), o, &config)
			if err != nil {
				return err
			}
			w.out = cmd.OutOrStdout()
			for _, t := range hosts {
				w.hosts = append(w.hosts, &watchedHost{target: t})
			}
			defer w.close()
			return w.run(cmd.Context(), once)
		},
	}
	cmd.Flags().DurationVar(&w.interval, "interval", defaultInterval, fmt.Sprintf("the time between two looks, at least %s", minInterval))
	cmd.Flags().BoolVar(&once, "once", false, "print what is under way now, and end")
	config.register(cmd.Flags())
	return cmd
}

// watchedHosts are this host, or those of a configuration.
func watchedHosts(ctx context.Context, o *hostOptions, config *configHosts) ([]target, error) {
	if config.dir != "" {
		hosts, err := config.targets()
		if err != nil {
			err = &codedError{code: exitBadUsage, err: err}
		}
		return hosts, err
	}
	server, err := o.server(ctx)
	if err != nil {
		return nil, err
	}
	return []target{{cmp.Or(o.name(), "this host"), func(context.Context) (*connect.Conn, error) { return connect.InProcess(server) }}}, nil
}

// watch follows the journals of hosts.
type watch struct {
	out      io.Writer
	interval time.Duration
	hosts    []*watchedHost
}

func (w *watch) close() {
	for _, h := range w.hosts {
		h.hangUp()
	}
}

// run looks until the context ends.
func (w *watch) run(ctx context.Context, once bool) error {
	for first := true; ; first = false {
		var g errgroup.Group
		g.SetLimit(askedAtOnce)
		for _, h := range w.hosts {
			g.Go(func() error {
				h.look(ctx)
				return nil
			})
		}
		_ = g.Wait()          // each host has its error
		if ctx.Err() != nil { // it was interrupted, which is how it ends
			return nil //nolint:nilerr // as said
		}
		idle := 0
		for _, h := range w.hosts {
			for _, line := range h.news() {
				if _, err := fmt.Fprintf(w.out, "%s %s: %s\n", time.Now().Format(time.TimeOnly), named(h.name), gpu.Printable(line)); err != nil {
					return err
				}
			}
			if len(h.now) == 0 {
				idle++
			}
		}
		if first && idle > 0 {
			if _, err := fmt.Fprintf(w.out, "%s nothing is under way on %d of %s\n", time.Now().Format(time.TimeOnly),
				idle, words.Plural(len(w.hosts), "host")); err != nil {
				return err
			}
		}
		if once {
			return w.silent()
		}
		if !wait(ctx, w.interval) {
			return nil
		}
	}
}

// silent is the error of hosts that did not answer.
func (w *watch) silent() error {
	var silent []unanswered
	for _, h := range w.hosts {
		if h.err != nil {
			silent = append(silent, unanswered{Host: h.name})
		}
	}
	return outcome(silent, len(w.hosts))
}

// watchedHost is what was seen of one host.
type watchedHost struct {
	target
	conn   *connect.Conn
	client *agent.Client
	err    error
	// before and now are what was told and is to be told, by what it is about.
	before, now map[string]told
	begun       map[string]int // how far changes had come, by id
}

// told is one thing about a host: what is said of it, and what is said when it is over.
type told struct{ is, over string }

func (h *watchedHost) hangUp() {
	if h.conn != nil {
		_ = h.conn.Close() // it was only read from
	}
	h.conn, h.client = nil, nil
}

// look reads the journal. A connection is kept for the next time.
func (h *watchedHost) look(ctx context.Context) {
	journal, err := func() (agent.Journal, error) {
		if h.conn == nil {
			conn, err := h.dial(ctx)
			if err != nil {
				return agent.Journal{}, err
			}
			h.conn, h.client = conn, agent.NewClient(conn, h.name, agent.WithClientVersion(version), agent.WithHello(conn.Hello))
		}
		return h.client.Journal(ctx)
	}()
	h.before = h.now
	if h.err = err; err != nil {
		h.hangUp()
		a := answer[struct{}]{host: h.name, err: err}
		h.now = maps.Clone(h.before) // what was under way may be so still
		if h.now == nil {
			h.now = map[string]told{}
		}
		h.now["answer"] = told{"does not answer: " + a.why(), "answers again"}
		return
	}
	h.now, h.begun = underWay(&journal, h.begun)
}

// underWay is what a journal tells, by what it is about, and how far its changes have come.
func underWay(j *agent.Journal, before map[string]int) (now map[string]told, begun map[string]int) {
	now, begun = map[string]told{}, map[string]int{}
	if l := j.Lease; l != nil {
		who := cmp.Or(l.Holder, l.Run)
		if l.Owner != "" {
			who += fmt.Sprintf(" (owner %q)", l.Owner)
		}
		now["a lease "+l.Run] = told{"changed by " + who + " since " + clock(l.Since), "the run of " + who + " has ended"}
	}
	for _, c := range j.Changes {
		begun[c.ID] = c.Begun
		now["b change "+c.ID] = told{c.Subject + ": " + stepText(&c, before[c.ID]), c.Subject + ": over"}
	}
	for _, d := range j.PendingStarts {
		vm := "VM " + named(cmp.Or(d.Name, d.VM))
		is := fmt.Sprintf("%s is off since %s, stopped for %s", vm, clock(d.Since), d.Subject)
		if d.Why != "" {
			is += "; it could not be started: " + d.Why
		}
		now["c vm "+d.VM] = told{is, vm + " is on again, or to stay off"}
	}
	if n := len(j.Unreadable); n > 0 {
		now["d records"] = told{words.Plural(n, "record") + " cannot be read", "all records can be read"}
	}
	return now, begun
}

// stepText is at which step a change is. One whose count of begun steps falls is being put back.
func stepText(c *agent.Unsettled, before int) string {
	steps := len(c.Steps)
	switch {
	case c.Status == "applied":
		return fmt.Sprintf("all %s made; it waits for the run to keep it", words.Plural(steps, "step"))
	case c.Begun == 0 || c.Begun > steps:
		return fmt.Sprintf("begins; %s in all", words.Plural(steps, "step"))
	case c.Begun < before:
		return fmt.Sprintf("is being put back, at step %d of %d: %s", c.Begun, steps, c.Steps[c.Begun-1])
	case c.Begun == steps:
		return fmt.Sprintf("step %d of %d: %s; it is the last", c.Begun, steps, c.Steps[c.Begun-1])
	}
	return fmt.Sprintf("step %d of %d: %s; next: %s", c.Begun, steps, c.Steps[c.Begun-1], c.Steps[c.Begun])
}

// clock is a time of today, or a date and time.
func clock(t time.Time) string {
	t = t.Local()
	if y, d := t.Year(), t.YearDay(); y == time.Now().Year() && d == time.Now().YearDay() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// news is what is new or over since the last look, in the order of what it is about.
func (h *watchedHost) news() []string {
	var out []string
	for _, about := range slices.Sorted(maps.Keys(h.before)) {
		if _, still := h.now[about]; !still {
			out = append(out, h.before[about].over)
		}
	}
	for _, about := range slices.Sorted(maps.Keys(h.now)) {
		if h.now[about].is != h.before[about].is {
			out = append(out, h.now[about].is)
		}
	}
	return out
}
