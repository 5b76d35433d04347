package hyperv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
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

// jobPolls are the waits between two looks at a job: quick at first, because most
// jobs are.
var jobPolls = []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond}

// invoke calls a method of Hyper-V and awaits its job. What it made has to be looked
// up: a job has no out parameters.
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

// await waits for a job. A job goes on when ctx ends, which the error says.
func (b *Backend) await(ctx context.Context, method, path string) error {
	if path == "" {
		return fmt.Errorf("%s: the host says that a job has begun, but not which", method)
	}
	for i := 0; ; i++ {
		job, err := b.wmi.Get(ctx, Virtualization, path, "JobState", "ErrorCode", "ErrorDescription", "ErrorSummaryDescription")
		switch {
		case errors.Is(err, NotFound):
			// Jobs are dropped some minutes after their end. Callers look at the result.
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil:
			if done, failure := ended(method, job); done {
				return failure
			}
		}
		if err := sleep(ctx, jobPolls[min(i, len(jobPolls)-1)]); err != nil {
			return refuse(backend.Timeout, "%s: the job had not ended when time ran out, and may still end", method)
		}
	}
}

func ended(method string, job Row) (done bool, failure error) {
	switch state := job.Uint("JobState"); {
	case state == jobCompleted, state >= jobVendor:
		return true, nil
	case state > jobCompleted && state <= jobException:
		text := job.String("ErrorDescription")
		if text == "" {
			text = job.String("ErrorSummaryDescription")
		}
		return true, refused(method, uint32(job.Uint("ErrorCode")), strings.TrimSpace(text)) //nolint:gosec // a uint16
	default:
		return false, nil
	}
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
