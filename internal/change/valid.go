package change

import (
	"fmt"
	"slices"
)

// needs are the fields that each op needs. An op that is not in it does not exist.
var needs = map[Op][]string{
	OpSetPartitionCount: {"gpu"},
	OpAddAdapter:        {"vm", "adapter"},
	OpSetQuotas:         {"vm", "adapter"},
	OpRemoveAdapters:    {"vm"},
	OpDismount:          {"gpu"},
	OpMount:             {"gpu"},
	OpCreatePool:        {"pool"},
	OpDeletePool:        {"pool"},
	OpSetPoolMembers:    {"pool"},
	OpAddDevice:         {"vm", "device"},
	OpRemoveDevices:     {"vm"},
	OpVMSettings:        {"vm", "settings"},
	OpDrainNode:         {},
	OpResumeNode:        {},
	OpStopVM:            {"vm"},
	OpStartVM:           {"vm"},
	OpSetMIGMode:        {"gpu"},
	OpCreateInstance:    {"gpu", "instance"},
	OpDestroyInstance:   {"gpu", "instance"},
	OpSetFunctions:      {"gpu"},
	OpSetHeterogeneous:  {"gpu"},
	OpCreateVGPU:        {"gpu", "vgpu"},
	OpRemoveVGPU:        {"gpu", "vgpu"},
	OpRefreshDevices:    {},
	OpSetComputeMode:    {"gpu", "compute_mode"},
	OpSetTimeSlice:      {"gpu", "time_slice"},
	OpEnsureDaemon:      {"mps_daemon"},
	OpRemoveDaemon:      {"mps_daemon"},
	OpWriteShare:        {"share"},
	OpRemoveShare:       {"share"},
	OpStopUnit:          {"unit"},
	OpStartUnit:         {"unit"},
	OpPutClaim:          {"claim"},
	OpDropClaim:         {"claim"},
}

// fields are those that a step has, by their names in a document.
func (s Step) fields() []string {
	var out []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"gpu", s.GPU != ""},
		{"vm", s.VM != ""},
		{"pool", s.Pool != ""},
		{"unit", s.Unit != ""},
		{"compute_mode", s.ComputeMode != ""},
		{"time_slice", s.TimeSlice != ""},
		{"instance", s.Instance != nil},
		{"vgpu", s.VGPU != nil},
		{"mps_daemon", s.Daemon != nil && s.Daemon.Name != ""},
		{"share", s.Share != nil && s.Share.Name != ""},
		{"adapter", s.Adapter != nil},
		{"device", s.Device != nil},
		{"settings", s.Settings != nil},
		{"claim", s.Claim != nil && s.Claim.Validate() == nil},
	} {
		if f.has {
			out = append(out, f.name)
		}
	}
	return out
}

// UnknownOpError is a step with an op that this version does not know. A newer one may.
type UnknownOpError struct{ Op Op }

func (e *UnknownOpError) Error() string {
	return fmt.Sprintf("op is %q, which this agent does not know", e.Op)
}

// Validate checks a step that was written down: that there is such an op, and that it has
// all that the op needs. The error begins with the field.
func (s Step) Validate() error {
	needed, ok := needs[s.Op]
	if !ok {
		return &UnknownOpError{Op: s.Op}
	}
	has := s.fields()
	for _, name := range needed {
		if !slices.Contains(has, name) {
			return fmt.Errorf("%s is missing, which %s needs", name, s.Op)
		}
	}
	if s.Count < 0 {
		return fmt.Errorf("count is %d", s.Count)
	}
	return nil
}
