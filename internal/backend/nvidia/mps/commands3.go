package mps

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The commands of protocol 3. What a daemon gives its servers is in its configuration.

// answers3 tells whether a daemon of protocol 3 answers.
func (c *Control) answers3(ctx context.Context) error {
	_, err := c.list(ctx, "server")
	return err
}

// clients3 are the process ids of all clients.
func (c *Control) clients3(ctx context.Context) ([]int, error) {
	rows, err := c.list(ctx, "client")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, row := range rows {
		if pid, ok := clientPID(row); ok && !slices.Contains(out, pid) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// clientPID finds the client's process id in a row that may have its server's too.
func clientPID(row map[string]string) (int, bool) {
	for key, value := range row {
		if !strings.Contains(key, "pid") || strings.Contains(key, "server") {
			continue
		}
		if pid, err := strconv.Atoi(value); err == nil {
			return pid, true
		}
	}
	return 0, false
}

// quit3 ends the daemon and its servers.
func (c *Control) quit3(ctx context.Context, timeout time.Duration) error {
	_, err := c.invoke(ctx, timeout, "", "--quit")
	return err
}
