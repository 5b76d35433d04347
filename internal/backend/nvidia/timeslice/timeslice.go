package timeslice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SMI is nvidia-smi.
type SMI struct {
	// Program is its path or name, "nvidia-smi" when empty.
	Program string
	// Limit bounds one run, 20 seconds when zero. With a GPU that has fallen off the bus, nvidia-smi may not return.
	Limit time.Duration
}

const (
	opRead = "read the time slice"
	opSet  = "set the time slice"
)

// nvidia-smi's list has a line like "|   0     Timeslice      Default      |" for each GPU.
var listed = regexp.MustCompile(`(?im)^\W*(\d+)\W+time-?slice\b\W+(default|short|medium|long)\b`)

// Read is the time slice of a GPU, by its UUID.
func (s SMI) Read(ctx context.Context, id string) (gpu.TimeSlice, error) {
	out, err := s.run(ctx, opRead, "GPU "+id, "-i", id, "-l")
	if err != nil {
		return "", err
	}
	found := listed.FindStringSubmatch(out)
	if found == nil {
		return "", refuse(backend.NotSupported, opRead, "GPU "+id, "nvidia-smi does not list it: %q", out)
	}
	return gpu.TimeSlice(strings.ToLower(found[2])), nil
}

// ReadAll are the time slices of all GPUs, by NVML's index of them, in one run of nvidia-smi.
// A driver that cannot be asked lists none.
func (s SMI) ReadAll(ctx context.Context) (map[int]gpu.TimeSlice, error) {
	out, err := s.run(ctx, opRead, "all GPUs", "-l")
	if err != nil {
		return nil, err
	}
	return parseList(out), nil
}

func parseList(out string) map[int]gpu.TimeSlice {
	all := map[int]gpu.TimeSlice{}
	for _, found := range listed.FindAllStringSubmatch(out, -1) {
		if index, err := strconv.Atoi(found[1]); err == nil {
			all[index] = gpu.TimeSlice(strings.ToLower(found[2]))
		}
	}
	return all
}

// Set brings a GPU to a time slice and tells whether it had to change it. The time slice that
// Read gave before is its inverse.
func (s SMI) Set(ctx context.Context, id string, want gpu.TimeSlice) (bool, error) {
	number := slices.Index(gpu.TimeSlices(), want)
	if number < 0 {
		return false, refuse(backend.InvalidParameter, opSet, "GPU "+id, "%q is none of %v", want, gpu.TimeSlices())
	}
	have, unread := s.Read(ctx, id)
	if unread != nil && !backend.Is(unread, backend.NotSupported) {
		return false, unread
	}
	if have == want {
		return false, nil
	}
	out, err := s.run(ctx, opSet, "GPU "+id, "-i", id, "--set-timeslice", strconv.Itoa(number))
	if err != nil {
		return false, err
	}
	if unread != nil {
		// This driver cannot be asked: what nvidia-smi said is all there is.
		if strings.Contains(out, "Failed to set") {
			return false, refuse(backend.Failed, opSet, "GPU "+id, "%s", out)
		}
		return true, nil
	}
	if have, err = s.Read(ctx, id); err != nil {
		return true, err
	}
	if have != want {
		return false, refuse(backend.Failed, opSet, "GPU "+id, "%s was wanted, and it stays at %s: %s", want, have, out)
	}
	return true, nil
}

func (s SMI) run(ctx context.Context, op, object string, args ...string) (string, error) {
	program := cmp.Or(s.Program, "nvidia-smi")
	limit := cmp.Or(s.Limit, 20*time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s has not ended within %s: the driver may hang", program, limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"compute-policy"}, args...)...)
	cmd.WaitDelay = time.Second // what it started may keep its output open
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	switch exit, isExit := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return said, nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", refuse(backend.Unavailable, op, object, "%s is not installed: it comes with the driver", program)
	case isExit:
		return "", refuse(codeOf(exit.ExitCode(), said), op, object, "%s", said)
	default:
		return "", refuse(backend.Failed, op, object, "%v", err)
	}
}

// codeOf reads nvidia-smi's exit status, which is documented in nvidia-smi(1).
func codeOf(status int, said string) backend.Code {
	const invalidArgument, notSupported, noPermission, notFound, notLoaded = 2, 3, 4, 6, 9
	switch status {
	case invalidArgument:
		return backend.InvalidParameter
	case notSupported:
		return backend.NotSupported
	case noPermission:
		return backend.AccessDenied
	case notFound:
		return backend.NotFound
	case notLoaded:
		return backend.Unavailable
	}
	if strings.Contains(strings.ToLower(said), "not supported") {
		return backend.NotSupported
	}
	return backend.Failed
}

func refuse(code backend.Code, op, object, format string, args ...any) error {
	return &backend.Error{Code: code, Op: op, Object: object, Detail: fmt.Sprintf(format, args...)}
}
