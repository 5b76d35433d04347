package fakewmi

import (
	"context"
	"slices"
	"sync"
	"time"
)

// States of a job.
const (
	jobRunning   = 4
	jobCompleted = 7
	jobException = 10
)

// Types of jobs (Msvm_ConcreteJob.JobType).
const (
	jobStart           = 12
	jobPowerOff        = 13
	jobSave            = 14
	jobPause           = 15
	jobAddResources    = 30
	jobModifyResources = 31
	jobRemoveResources = 32
	jobModifySystem    = 21
	jobCreatePool      = 150
	jobModifyPool      = 151
	jobPoolSettings    = 152
	jobDeletePool      = 153
	jobMountDevice     = 260
)

// job is one Msvm_ConcreteJob.
type job struct {
	id, name string
	kind     uint64
	state    uint64
	started  time.Time
	refusal  *refusal
}

// jobs are those of one machine. As on a real host they outlive the connection that
// began them, but not the process that the machine is in.
type jobs struct {
	running sync.WaitGroup

	mu   sync.Mutex
	list []*job
}

func (j *jobs) snapshot() []job {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]job, len(j.list))
	for i := range j.list {
		out[i] = *j.list[i]
	}
	return out
}

// keptJobs is how many ended jobs are remembered. A host drops them after a while.
const keptJobs = 200

// begin runs effect after a while and returns the job's id.
func (j *jobs) begin(name string, kind uint64, delay time.Duration, effect func(context.Context) error) string {
	started := &job{id: newGUID(), name: name, kind: kind, state: jobRunning, started: time.Now()}
	j.mu.Lock()
	if len(j.list) >= keptJobs {
		j.list = slices.Delete(j.list, 0, len(j.list)-keptJobs+1)
	}
	j.list = append(j.list, started)
	j.mu.Unlock()
	j.running.Go(func() {
		time.Sleep(delay)
		err := effect(context.Background())
		j.mu.Lock()
		defer j.mu.Unlock()
		started.state = jobCompleted
		if err != nil {
			started.state, started.refusal = jobException, refusalOf(err)
		}
	})
	return started.id
}

// forget drops a job, which goes on.
func (j *jobs) forget(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = slices.DeleteFunc(j.list, func(one *job) bool { return one.id == id })
}
