package mps

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// units keeps daemons as units of systemd, which starts them again when they end.
type units struct {
	opt Options
}

//go:embed gpu-mps@.service
var template []byte

const (
	templateName = "gpu-mps@.service"
	dropIn       = "50-gpu-agent.conf"
)

// Unit is the name of a daemon's unit.
func Unit(name string) string { return "gpu-mps@" + name + ".service" }

func (k *units) dropInDir(name string) string {
	return filepath.Join(k.opt.UnitDir, Unit(name)+".d")
}

func (k *units) start(ctx context.Context, l launch) error {
	dir := k.dropInDir(l.name)
	if err := ownDir(dir); err != nil {
		return err
	}
	if err := replace(filepath.Join(k.opt.UnitDir, templateName), template); err != nil {
		return err
	}
	if err := replace(filepath.Join(dir, dropIn), k.render(l)); err != nil {
		return err
	}
	if err := k.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	// A unit that failed too often is not started until that is forgotten. One that never
	// failed is not known to have, which is no error of ours.
	_ = k.systemctl(ctx, "reset-failed", Unit(l.name))
	return k.systemctl(ctx, "start", Unit(l.name))
}

// render is the drop-in of a daemon's unit. The shell's scripts are constant: what varies
// are their arguments.
func (k *units) render(l launch) []byte {
	var out bytes.Buffer
	out.WriteString("# Written by gpu-agent. Changes are lost.\n[Service]\n")
	for _, v := range l.env {
		fmt.Fprintf(&out, "Environment=%s\n", quote(v))
	}
	command := words.Each(append([]string{l.program}, l.args...), quote)
	fmt.Fprintf(&out, "ExecStart=%s\n", strings.Join(command, " "))
	fmt.Fprintf(&out, "ExecStartPost=/bin/sh -c 'exec \"$$0\" <\"$$1\"' %s %s\n", quote(l.program), quote(l.commands))
	seconds := max(1, int(k.opt.StopTimeout.Seconds()))
	fmt.Fprintf(&out, "ExecStop=/bin/sh -c 'echo \"quit -t $$1\" | \"$$0\"' %s %d\n", quote(l.program), seconds)
	fmt.Fprintf(&out, "TimeoutStopSec=%d\n", seconds+20)
	return out.Bytes()
}

// quote writes a word for a unit file, where % and $ have a meaning.
func quote(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(word) + `"`
}

func (k *units) stop(ctx context.Context, name string) error {
	if _, err := os.Lstat(k.dropInDir(name)); errors.Is(err, fs.ErrNotExist) {
		return nil // it was never started, or what is here was removed already
	}
	return k.systemctl(ctx, "stop", Unit(name))
}

func (k *units) forget(ctx context.Context, name string) error {
	dir := k.dropInDir(name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	others, err := filepath.Glob(filepath.Join(k.opt.UnitDir, "gpu-mps@*.service.d"))
	if err != nil {
		return err
	}
	if len(others) == 0 {
		if err := os.Remove(filepath.Join(k.opt.UnitDir, templateName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_ = k.systemctl(ctx, "reset-failed", Unit(name)) // only so that it is not listed as failed
	return k.systemctl(ctx, "daemon-reload")
}

func (k *units) systemctl(ctx context.Context, args ...string) error {
	asked := "systemctl " + strings.Join(args, " ")
	ctx, cancel := context.WithTimeoutCause(ctx, k.opt.SystemctlTimeout,
		&backend.Error{Code: backend.Timeout, Detail: fmt.Sprintf("%s has not ended within %s", asked, k.opt.SystemctlTimeout)})
	defer cancel()
	cmd := exec.CommandContext(ctx, k.opt.Systemctl, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SYSTEMD_PAGER=")
	cmd.WaitDelay = time.Second // what it started may keep its output open
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &backend.Error{Code: backend.Failed, Detail: sentence(asked+": "+err.Error(), strings.TrimSpace(string(out)))}
}
