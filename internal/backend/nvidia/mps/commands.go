package mps

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// The commands. A default holds for the servers that start after it, a
// value of a server for the clients that come after it.

const (
	opThreads  = "set the active thread percentage"
	opMemory   = "set the pinned memory limit"
	opPriority = "set the client priority"
)

// NextServer stands for the server that starts next, by the daemon's defaults.
const NextServer = 0

// settingOf is a command about a setting of a server, such as "get_active_thread_percentage PID", or
// about its default, "get_default_active_thread_percentage".
func settingOf(server int, verb, setting string, args ...string) []string {
	if server == NextServer {
		return append([]string{verb + "_default_" + setting}, args...)
	}
	return append([]string{verb + "_" + setting, strconv.Itoa(server)}, args...)
}

const (
	threadPercentage = "active_thread_percentage"
	memoryLimit      = "device_pinned_mem_limit"
)

// Threads is the active thread percentage of a server. Reading the default is also
// how one learns whether a daemon answers: its sockets outlive it.
func (c *Control) Threads(ctx context.Context, server int) (float64, error) {
	percentage := func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
	return read(ctx, c, "a percentage", percentage, settingOf(server, "get", threadPercentage)...)
}

// SetThreads sets the active thread percentage of a server's next clients.
func (c *Control) SetThreads(ctx context.Context, server int, want float64) error {
	if !mpsconf.IsPercentage(want) {
		return refuse(backend.InvalidParameter, opThreads, c.Name, "%s is not more than 0, at most 100, with one digit after the point",
			mpsconf.FormatPercentage(want))
	}
	now := func(ctx context.Context) (float64, error) { return c.Threads(ctx, server) }
	return set(ctx, c, opThreads, want, now, settingOf(server, "set", threadPercentage, mpsconf.FormatPercentage(want))...)
}

// MemoryLimit is the pinned memory limit of a server on a device, 0 when there is none.
// Devices count from 0 in the order of the daemon's CUDA_VISIBLE_DEVICES.
func (c *Control) MemoryLimit(ctx context.Context, server, ordinal int) (gpu.Bytes, error) {
	words := settingOf(server, "get", memoryLimit, strconv.Itoa(ordinal))
	a, err := c.command(ctx, words...)
	if err != nil {
		return 0, err
	}
	limit, err := mpsconf.ParseLimit(a.text)
	if err != nil {
		return 0, refuse(backend.Failed, words[0], c.Name, "%v", err)
	}
	return limit, nil
}

// SetMemoryLimit sets the pinned memory limit of a server's next clients on a device, or
// none with 0. A daemon would not say that it cut a limit, and takes a device's UUID for
// device 0: so devices are ordinals, and limits are those of [gpu.RoundMPSLimit].
func (c *Control) SetMemoryLimit(ctx context.Context, server, ordinal int, want gpu.Bytes) error {
	if gpu.RoundMPSLimit(want) != want {
		return refuse(backend.InvalidParameter, opMemory, c.Name, "%d bytes is not whole MiB below 1 GiB or whole GiB from there on", want)
	}
	now := func(ctx context.Context) (gpu.Bytes, error) { return c.MemoryLimit(ctx, server, ordinal) }
	return set(ctx, c, opMemory, want, now, settingOf(server, "set", memoryLimit, strconv.Itoa(ordinal), mpsconf.FormatLimit(want))...)
}

// DefaultPriority is the priority of new clients: 0, normal, or 1, below normal.
func (c *Control) DefaultPriority(ctx context.Context) (int, error) {
	return read(ctx, c, "a priority", strconv.Atoi, "get_default_client_priority")
}

// SetDefaultPriority sets the priority of new clients.
func (c *Control) SetDefaultPriority(ctx context.Context, priority int) error {
	return set(ctx, c, opPriority, priority, c.DefaultPriority, "set_default_client_priority", strconv.Itoa(priority))
}

// read gives a command whose answer is a value.
func read[T any](ctx context.Context, c *Control, what string, parse func(string) (T, error), words ...string) (value T, err error) {
	a, err := c.command(ctx, words...)
	if err != nil {
		return value, err
	}
	if value, err = parse(a.text); err != nil {
		return value, refuse(backend.Failed, words[0], c.Name, "the answer is %q, not %s", a.text, what)
	}
	return value, nil
}

// set gives a command and reads back what came of it, because the command does not tell.
func set[T comparable](ctx context.Context, c *Control, op string, want T, now func(context.Context) (T, error), words ...string) error {
	a, err := c.command(ctx, words...)
	if err != nil {
		return err
	}
	got, err := now(ctx)
	if err != nil {
		return err
	}
	if got != want {
		return refuse(backend.Failed, op, c.Name, "%s", sentence(fmt.Sprintf("%v was wanted, and it stays at %v", want, got), a.reason()))
	}
	return nil
}

// Servers are the process ids of the daemon's servers.
func (c *Control) Servers(ctx context.Context) ([]int, error) {
	return read(ctx, c, "process ids", parsePIDs, "get_server_list")
}

// Clients are the process ids of a server's clients.
func (c *Control) Clients(ctx context.Context, server int) ([]int, error) {
	return read(ctx, c, "process ids", parsePIDs, "get_client_list", strconv.Itoa(server))
}

func parsePIDs(text string) ([]int, error) {
	var out []int
	for _, field := range strings.Fields(text) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		out = append(out, pid)
	}
	return out, nil
}

// TerminateClient ends what a client has begun, without an effect on others.
func (c *Control) TerminateClient(ctx context.Context, server, client int) error {
	_, err := c.command(ctx, "terminate_client", strconv.Itoa(server), strconv.Itoa(client))
	return err
}

const statusFault = "FAULT"

// ServerStatus is INITIALIZING, ACTIVE or FAULT, or "" when this driver does not tell.
func (c *Control) ServerStatus(ctx context.Context, pid int) (string, error) {
	a, err := c.command(ctx, "get_server_status", strconv.Itoa(pid))
	if backend.Is(err, backend.NotSupported) {
		return "", nil
	}
	return a.text, err
}

// ShutdownServer ends a server once it has no clients. Its next client starts another.
func (c *Control) ShutdownServer(ctx context.Context, pid int) error {
	_, err := c.command(ctx, "shutdown_server", strconv.Itoa(pid))
	return err
}

const step = 20 * time.Millisecond

// pause waits a little.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(step):
		return nil
	}
}

// Quit ends the daemon and its servers, with force those that have clients after the
// timeout. It returns when the daemon has ended, whatever became of its servers.
func (c *Control) Quit(ctx context.Context, timeout time.Duration) error {
	const quit = "quit"
	_, err := c.invoke(ctx, timeout+c.timeout(), fmt.Sprintf("%s -t %d\n", quit, max(1, int(timeout.Seconds()))))
	// The exit status is the daemon's, which is 1 when a server ever failed.
	if backend.Is(err, backend.Failed) {
		return nil
	}
	return err
}
