// Command gpu-agent works on one GPU host: it serves the provider, and shows people
// what the host has.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// version is set by the release build.
var version = "dev"

// Exit codes.
const (
	exitFailed   = 1
	exitDiffers  = 2 // assert: the host does not have the layout
	exitBadUsage = 64
)

// Where messages go; a Windows service has its own place.
var (
	logHandler slog.Handler = slog.NewTextHandler(os.Stderr, nil)
	complain                = func(text string) { fmt.Fprintln(os.Stderr, "gpu-agent:", gpu.Lines(text)) }
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run runs a command line and returns its exit code.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetOut(plainly{os.Stdout})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := exitFailed
	var coded *codedError
	if errors.As(err, &coded) {
		code = coded.code
	}
	if text := err.Error(); text != "" {
		complain(text)
	}
	return code
}

// codedError is a failure with an exit code of its own.
type codedError struct {
	code int
	err  error // nil when everything is said
}

func (e *codedError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }
