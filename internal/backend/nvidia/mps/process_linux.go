package mps

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// processes keeps daemons where no systemd runs. A daemon leaves the agent's session and
// outlives it. Nobody starts it again when it ends: the agent does, when it is asked next.
type processes struct {
	opt Options
}

func (k *processes) start(ctx context.Context, l launch) error {
	ctx, cancel := context.WithTimeout(ctx, k.opt.StartTimeout)
	defer cancel()
	// With -d the program returns once the daemon, its child, listens.
	cmd := exec.CommandContext(ctx, l.program, l.args...)
	cmd.Env = l.env
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // the daemon has kept its parent's output, and runs
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &backend.Error{Code: backend.Timeout, Detail: "the control daemon has not come up for " + k.opt.StartTimeout.String()}
	}
	return &backend.Error{Code: backend.Failed, Detail: sentence(strings.TrimSpace(string(said)), l.program+": "+err.Error())}
}
