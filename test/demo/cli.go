package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// cli runs terraform or tofu in one directory, with no provider but ours.
type cli struct {
	path, dir string
	env       []string
}

// newCLI lays the provider out as a local mirror, from which `init` installs it as
// it would from a registry.
func newCLI(path, dir, tmp, provider string) (*cli, error) {
	binary, err := os.ReadFile(provider)
	if err != nil {
		return nil, err
	}
	mirror := filepath.Join(tmp, "mirror")
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		target := filepath.Join(mirror, registry, "gpufleet", "gpu", "0.1.0", runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(target, "terraform-provider-gpu_v0.1.0"), binary, 0o755); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(tmp, "cli.tfrc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return &cli{path: path, dir: dir, env: append(os.Environ(),
		"TF_CLI_CONFIG_FILE="+config, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
	)}, nil
}

// run executes a command and returns what it printed. It is shown on out as it
// comes, or, when out is nil, only if the command fails.
func (c *cli) run(ctx context.Context, out io.Writer, args ...string) (string, error) {
	if !colours() {
		args = append([]string{args[0], "-no-color"}, args[1:]...)
	}
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	var text bytes.Buffer
	cmd.Stdout = &text
	if out != nil {
		cmd.Stdout = io.MultiWriter(&text, out)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		if out == nil {
			fmt.Fprintln(os.Stderr, text.String())
		}
		return text.String(), fmt.Errorf("%s %s: %w", filepath.Base(c.path), strings.Join(args, " "), err)
	}
	return text.String(), nil
}

// colours tells whether people are watching.
func colours() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}
