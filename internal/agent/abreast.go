package agent

import (
	"context"
	"slices"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// together is how many of the steps that come next are made at the same time: stops or starts of VMs. The journal has all of
// them before the first, and each puts back what it may have done whether or not the others have run. A VM that is pinned to a
// GPU is not started beside one that could take its partition. The host is as it is to be after the change.
func together(steps []change.Step, host *gpu.Host, atOnce int) int {
	first := steps[0]
	if first.Op != change.OpStopVM && first.Op != change.OpStartVM {
		return 1
	}
	pinned := func(s change.Step) bool {
		vm, ok := host.VM(s.VM)
		return ok && slices.ContainsFunc(vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return a.PinnedGPU != "" })
	}
	n := 1
	for n < min(len(steps), atOnce) && steps[n].Op == first.Op && pinned(steps[n]) == pinned(first) {
		n++
	}
	return n
}

// runAbreast makes steps at the same time, and returns when all have ended. Of several that fail it tells the first.
func (w *work) runAbreast(ctx context.Context, steps []change.Step) (failed change.Step, err error) {
	if len(steps) == 1 {
		return steps[0], w.runner.run(ctx, steps[0])
	}
	w.last, w.abreast = nil, true
	defer func() { w.abreast = false }()
	errs := make([]error, len(steps))
	var all sync.WaitGroup
	for i, step := range steps {
		all.Go(func() { errs[i] = w.runner.run(ctx, step) })
	}
	all.Wait()
	for i, err := range errs {
		if lost := staleFence(err); lost != nil { // whoever has the lease now puts all of it back
			return steps[i], err
		}
	}
	for i, err := range errs {
		if err != nil {
			return steps[i], err
		}
	}
	return change.Step{}, nil
}

// passed notes that a step went through the gate.
func (w *work) passed(step change.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.abreast {
		w.last = nil
	}
	if !slices.ContainsFunc(w.last, func(s change.Step) bool { return gpu.SameID(s.VM, step.VM) }) {
		w.last = append(w.last, step)
	}
}
