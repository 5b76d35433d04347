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

// DefaultThreads is the active thread percentage of the next server. Reading it is also
// how one learns whether a daemon answers: its sockets outlive it.
func (c *Control) DefaultThreads(ctx context.Context) (float64, error) {
	return c.threads(ctx, "get_default_active_thread_percentage")
}

// SetDefaultThreads sets the active thread percentage of the next server.
func (c *Control) SetDefaultThreads(ctx context.Context, percentage float64) error {
	return c.setThreads(ctx, percentage, c.DefaultThreads, "set_default_active_thread_percentage")
}

// Threads is the active thread percentage of a server.
func (c *Control) Threads(ctx context.Context, pid int) (float64, error) {
	return c.threads(ctx, "get_active_thread_percentage", strconv.Itoa(pid))
}

// SetThreads sets the active thread percentage of a server's next clients.
func (c *Control) SetThreads(ctx context.Context, pid int, percentage float64) error {
	read := func(ctx context.Context) (float64, error) { return c.Threads(ctx, pid) }
	return c.setThreads(ctx, percentage, read, "set_active_thread_percentage", strconv.Itoa(pid))
}

func (c *Control) threads(ctx context.Context, words ...string) (float64, error) {
	a, err := c.command(ctx, words...)
	if err != nil {
		return 0, err
	}
	p, err := strconv.ParseFloat(a.text, 64)
	if err != nil {
		return 0, refuse(backend.Failed, words[0], c.Name, "the answer is %q, not a percentage", a.text)
	}
	return p, nil
}

func (c *Control) setThreads(ctx context.Context, want float64, read func(context.Context) (float64, error), words ...string) error {
	if !mpsconf.IsPercentage(want) {
		return refuse(backend.InvalidParameter, opThreads, c.Name, "%s is not more than 0, at most 100, with one digit after the point", mpsconf.FormatPercentage(want))
	}
	return set(ctx, c, opThreads, want, read, append(words, mpsconf.FormatPercentage(want))...)
}

// DefaultMemoryLimit is the pinned memory limit of the next server on a device, 0 when
// there is none. Devices count from 0 in the order of the daemon's CUDA_VISIBLE_DEVICES.
func (c *Control) DefaultMemoryLimit(ctx context.Context, ordinal int) (gpu.Bytes, error) {
	return c.memoryLimit(ctx, "get_default_device_pinned_mem_limit", strconv.Itoa(ordinal))
}

// SetDefaultMemoryLimit sets the pinned memory limit of the next server on a device, or
// none with 0. A daemon would not say that it cut a limit, and takes a device's UUID for
// device 0: so devices are ordinals, and limits are those of [gpu.RoundMPSLimit].
func (c *Control) SetDefaultMemoryLimit(ctx context.Context, ordinal int, limit gpu.Bytes) error {
	read := func(ctx context.Context) (gpu.Bytes, error) { return c.DefaultMemoryLimit(ctx, ordinal) }
	return c.setMemoryLimit(ctx, limit, read, "set_default_device_pinned_mem_limit", strconv.Itoa(ordinal))
}

// MemoryLimit is the pinned memory limit of a server on a device.
func (c *Control) MemoryLimit(ctx context.Context, pid, ordinal int) (gpu.Bytes, error) {
	return c.memoryLimit(ctx, "get_device_pinned_mem_limit", strconv.Itoa(pid), strconv.Itoa(ordinal))
}

// SetMemoryLimit sets the pinned memory limit of a server's next clients on a device.
func (c *Control) SetMemoryLimit(ctx context.Context, pid, ordinal int, limit gpu.Bytes) error {
	read := func(ctx context.Context) (gpu.Bytes, error) { return c.MemoryLimit(ctx, pid, ordinal) }
	return c.setMemoryLimit(ctx, limit, read, "set_device_pinned_mem_limit", strconv.Itoa(pid), strconv.Itoa(ordinal))
}

func (c *Control) memoryLimit(ctx context.Context, words ...string) (gpu.Bytes, error) {
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

func (c *Control) setMemoryLimit(ctx context.Context, want gpu.Bytes, read func(context.Context) (gpu.Bytes, error), words ...string) error {
	if gpu.RoundMPSLimit(want) != want {
		return refuse(backend.InvalidParameter, opMemory, c.Name, "%d bytes is not whole MiB below 1 GiB or whole GiB from there on", want)
	}
	return set(ctx, c, opMemory, want, read, append(words, mpsconf.FormatLimit(want))...)
}

// DefaultPriority is the priority of new clients: 0, normal, or 1, below normal.
func (c *Control) DefaultPriority(ctx context.Context) (int, error) {
	const get = "get_default_client_priority"
	a, err := c.command(ctx, get)
	if err != nil {
		return 0, err
	}
	priority, err := strconv.Atoi(a.text)
	if err != nil {
		return 0, refuse(backend.Failed, get, c.Name, "the answer is %q, not a priority", a.text)
	}
	return priority, nil
}

// SetDefaultPriority sets the priority of new clients.
func (c *Control) SetDefaultPriority(ctx context.Context, priority int) error {
	return set(ctx, c, opPriority, priority, c.DefaultPriority, "set_default_client_priority", strconv.Itoa(priority))
}

// set gives a command and reads back what came of it, because the command does not tell.
func set[T comparable](ctx context.Context, c *Control, op string, want T, read func(context.Context) (T, error), words ...string) error {
	a, err := c.command(ctx, words...)
	if err != nil {
		return err
	}
	got, err := read(ctx)
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
	return c.pids(ctx, "get_server_list")
}

// Clients are the process ids of a server's clients.
func (c *Control) Clients(ctx context.Context, server int) ([]int, error) {
	return c.pids(ctx, "get_client_list", strconv.Itoa(server))
}

func (c *Control) pids(ctx context.Context, words ...string) ([]int, error) {
	a, err := c.command(ctx, words...)
	if err != nil {
		return nil, err
	}
	out, err := parsePIDs(a.text)
	if err != nil {
		return nil, refuse(backend.Failed, words[0], c.Name, "the answer is %q, not process ids", a.text)
	}
	return out, nil
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
	if has(err, backend.NotSupported) {
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
	if has(err, backend.Failed) {
		return nil
	}
	return err
}
