package gpu

// The values that a text of a document may have (document.Enum). Others are of a later
// version. VM states, statuses and the like, which only come from hosts, have no such list.

// Values lists the classes.
func (Disruption) Values() []string { return texts(Disruptions()...) }

// Values lists the kinds.
func (Kind) Values() []string { return texts(Kinds()...) }

// Values lists the kinds.
func (ClaimKind) Values() []string {
	return texts(ClaimConfig, ClaimPool, ClaimAssignment, ClaimShare)
}

// Values lists the kinds.
func (AssignmentKind) Values() []string { return texts(AssignPartition, AssignPool, AssignDevice) }

// Values lists the modes.
func (ComputeMode) Values() []string {
	return texts(ComputeDefault, ComputeExclusiveProcess, ComputeProhibited)
}

// Values lists the lengths.
func (TimeSlice) Values() []string { return texts(TimeSlices()...) }

// Values lists the types.
func (CheckpointType) Values() []string {
	return texts(CheckpointsDisabled, CheckpointsProduction, CheckpointsProductionOnly, CheckpointsStandard)
}

// Values lists the actions.
func (StopAction) Values() []string { return texts(StopTurnOff, StopSave, StopShutDown) }

// Values lists the actions.
func (OfflineAction) Values() []string {
	return texts(OfflineTurnOff, OfflineSave, OfflineShutDown, OfflineForcedShutdown)
}

func texts[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
