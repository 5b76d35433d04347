package hyperv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Codes of Windows that Hyper-V and the cluster put into the text of an error. The
// text itself is in the host's language, the number is not.
const (
	noSystemResources Code = 0x800705AA // ERROR_NO_SYSTEM_RESOURCES
	sharingPaused     Code = 0x80070046 // ERROR_SHARING_PAUSED: the node is paused
)

func codeInText(text string) (backend.Code, bool) {
	upper := strings.ToUpper(text)
	for _, c := range []Code{noSystemResources, sharingPaused} {
		if strings.Contains(upper, fmt.Sprintf("0X%08X", uint32(c))) {
			return c.backend(), true
		}
	}
	return "", false
}

// States of a job (CIM_ConcreteJob.JobState).
const (
	jobCompleted = 7
	jobException = 10
	// From here on the vendor's: completed, with warnings.
	jobVendor = 32768
)

var endedJobs = map[uint64]string{8: "terminated", 9: "killed", jobException: "failed"}

// jobPolls are the waits between two looks at a job: quick at first, because most
// jobs are.
var jobPolls = []time.Duration{
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
}

// errJobGone is a job that is not there any more: hosts drop jobs some minutes after
// their end. Whether it did what it should is to be seen by the result.
var errJobGone = errors.New("the job is gone, and with it how it ended")

// invoke calls a method of Hyper-V and awaits its job. What it made has to be looked
// up: a job has no out parameters. Callers that look at the result in any case ignore
// errJobGone with looked.
func (b *Backend) invoke(ctx context.Context, path, method string, in map[string]any) error {
	res, err := b.wmi.Invoke(ctx, Virtualization, path, method, in)
	if err != nil {
		return err
	}
	switch res.ReturnValue {
	case completed:
		return nil
	case jobStarted:
		job, _ := res.Out["Job"].(string)
		return b.await(ctx, method, job)
	default:
		return refused(method, res.ReturnValue, "")
	}
}

// call is invoke on a service of Hyper-V.
func (b *Backend) call(ctx context.Context, class, method string, in map[string]any) error {
	service, err := b.once(class, func() (string, error) { return b.service(ctx, class) })
	if err != nil {
		return err
	}
	return b.invoke(ctx, service, method, in)
}

// looked is an error of invoke to a caller that looks at the result itself.
func looked(err error) error {
	if errors.Is(err, errJobGone) {
		return nil
	}
	return err
}

// passing are the refusals that may be over in a moment, in return values and in jobs
// alike: a VM that was just turned off, backed up or moved keeps its settings locked a
// little longer than it shows. Public tools that run in production try all of them again.
var passing = map[uint32]bool{rvState: true, rvIncompatible: true, rvInvalidParameter: true, rvInUse: true, rvInvalidState: true}

// retryWaits are the waits before a call is made again.
var retryWaits = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second}

// manage calls a method that changes the settings of a VM, again and again while the
// refusal may pass, until the caller's deadline, or as long as its patience lasts. What a fresh look shows to
// stand in the way for longer ends it at once.
func (b *Backend) manage(ctx context.Context, method string, in map[string]any, obstacle func(context.Context) error) error {
	service, err := b.once(managementService, func() (string, error) { return b.service(ctx, managementService) })
	if err != nil {
		return err
	}
	began := time.Now()
	for tries := 1; ; tries++ {
		err := b.invoke(ctx, service, method, in)
		r, ok := errors.AsType[*refusal](err)
		if !ok || !passing[r.value] {
			return err
		}
		if found := obstacle(ctx); found != nil {
			return undone(ctx, err, reason(found))
		}
		wait := retryWaits[min(tries, len(retryWaits))-1]
		if time.Since(began)+wait > b.patience || sleep(ctx, wait) != nil {
			return undone(ctx, err, fmt.Sprintf("tried %d times in %s", tries, time.Since(began).Round(time.Second)))
		}
	}
}

// unlessOff is the obstacle of a change that a VM must be off for: it has left the host, or
// runs.
func (b *Backend) unlessOff(vmID string) func(context.Context) error {
	return func(ctx context.Context) error {
		now, err := b.vm(ctx, vmID)
		if backend.Is(err, backend.NotFound) {
			return err
		}
		if err != nil {
			return nil //nolint:nilerr // what cannot be looked at is no reason to give up
		}
		return mustBeOff(&gpu.VM{State: now.state})
	}
}

// await waits for a job. A job goes on when ctx ends or the host does not answer any
// more, which the error says.
func (b *Backend) await(ctx context.Context, method, path string) error {
	if path == "" {
		return fmt.Errorf("%s: the host says that a job has begun, but not which", method)
	}
	for i := 0; ; i++ {
		job, err := b.wmi.Get(ctx, Virtualization, path, "JobState", "ErrorCode", "ErrorDescription", "ErrorSummaryDescription")
		switch {
		case errors.Is(err, NotFound):
			return fmt.Errorf("%s: %w", method, errJobGone)
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("%s: its job has begun and may still end: %w", method, err)
		case err == nil:
			if done, failure := ended(method, job); done {
				return failure
			}
		}
		if err := sleep(ctx, jobPolls[min(i, len(jobPolls)-1)]); err != nil {
			return &cutOff{method: method, job: path}
		}
	}
}

// cutOff is a job that had not ended when time ran out.
type cutOff struct{ method, job string }

func (e *cutOff) Error() string {
	return e.method + ": the job had not ended when time ran out, and may still end"
}

// outlast waits for the end of a job that was cut off, under a budget of its own. It is
// for calls in the middle of others, which can be neither left so nor taken back while
// it is open how the call ends.
func (b *Backend) outlast(ctx context.Context, err error) error {
	cut, ok := errors.AsType[*cutOff](err)
	if !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	return b.await(ctx, cut.method, cut.job)
}

func ended(method string, job Row) (done bool, failure error) {
	state := job.Uint("JobState")
	if state == jobCompleted || state >= jobVendor {
		return true, nil
	}
	how, ok := endedJobs[state]
	if !ok {
		return false, nil
	}
	text := job.String("ErrorDescription")
	if text == "" {
		text = job.String("ErrorSummaryDescription")
	}
	code := uint32(job.Uint("ErrorCode"))
	if code == completed {
		return true, refuse(backend.Failed, "%s: the job was %s: %s", method, how, strings.TrimSpace(text))
	}
	return true, refused(method, code, strings.TrimSpace(text))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
