package vgpu

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Op is what a step does.
type Op string

// Ops. MIG's two are the caller's: this package knows when, not how.
const (
	OpVFs           Op = "vgpu_virtual_functions"
	OpHeterogeneous Op = "vgpu_heterogeneous"
	OpCreate        Op = "vgpu_create"
	OpRemove        Op = "vgpu_remove"
	OpMIGMode       Op = "mig_mode"
	OpMIGInstances  Op = "mig_instances"
)

// Step is one change of one GPU. Each sets a state and may be repeated.
type Step struct {
	Op  Op     `json:"op"`
	GPU string `json:"gpu"` // PCI address
	// On is what [OpVFs], [OpHeterogeneous] and [OpMIGMode] set.
	On bool `json:"on,omitempty"`
	// VGPU is what [OpCreate] makes and [OpRemove] removes; Name is its type's.
	VGPU *Spec  `json:"vgpu,omitempty"`
	Name string `json:"name,omitempty"`
	// Instances are all the GPU instances, by profile, that [OpMIGInstances] leaves.
	Instances map[string]int `json:"instances,omitempty"`
	// Inverse puts back what the step changes. Steps are put back last first.
	Inverse *Step `json:"inverse,omitempty"`
}

// String says what the step does, for people.
func (s Step) String() string {
	switch s.Op {
	case OpVFs:
		return fmt.Sprintf("turn the virtual functions of GPU %s %s", s.GPU, onOff(s.On))
	case OpHeterogeneous:
		return fmt.Sprintf("turn heterogeneous vGPU mode of GPU %s %s", s.GPU, onOff(s.On))
	case OpMIGMode:
		return fmt.Sprintf("turn MIG mode of GPU %s %s", s.GPU, onOff(s.On))
	case OpMIGInstances:
		if len(s.Instances) == 0 {
			return fmt.Sprintf("destroy the MIG instances of GPU %s", s.GPU)
		}
		return fmt.Sprintf("make %s the MIG instances of GPU %s", counts(s.Instances), s.GPU)
	case OpCreate:
		return fmt.Sprintf("make vGPU %s on %s of GPU %s", s.Name, place(s.VGPU), s.GPU)
	case OpRemove:
		return fmt.Sprintf("remove vGPU %s from %s of GPU %s", s.Name, place(s.VGPU), s.GPU)
	}
	return string(s.Op)
}

func place(s *Spec) string {
	if s.Function == Itself {
		return "device " + s.UUID
	}
	return fmt.Sprintf("virtual function %d", s.Function)
}

// counts prints numbers by name as "2 1g.18gb, 1 3g.71gb".
func counts(n map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%d %s", n[name], name))
	}
	return strings.Join(all, ", ")
}

// Run makes a step. Those of MIG it refuses.
func (h *Host) Run(ctx context.Context, s Step) error {
	switch {
	case s.Op == OpVFs && s.On:
		return h.EnableVFs(ctx, s.GPU)
	case s.Op == OpVFs:
		return h.DisableVFs(ctx, s.GPU)
	case s.Op == OpHeterogeneous:
		return h.SetHeterogeneous(ctx, s.GPU, s.On)
	case s.Op == OpCreate && s.VGPU != nil:
		return h.Create(ctx, s.GPU, *s.VGPU)
	case s.Op == OpRemove && s.VGPU != nil:
		return h.Remove(ctx, s.GPU, *s.VGPU)
	}
	return refuse(s.GPU, "run a step", backend.NotSupported, "%q is not a step of vGPUs", s.Op)
}
