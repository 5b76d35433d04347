package mps

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// ComputeMode is how many processes may use a GPU, as NVML tells and sets it.
type ComputeMode string

// Compute modes.
const (
	Default          ComputeMode = "default"
	ExclusiveProcess ComputeMode = "exclusive_process" // one: the MPS server
	Prohibited       ComputeMode = "prohibited"
)

// ModeChange is one GPU's compute mode before and after.
type ModeChange struct {
	GPU  string      `json:"gpu"`
	From ComputeMode `json:"from"`
	To   ComputeMode `json:"to"`
}

// BeforeStart are the compute modes to set before [Host.Ensure] starts or restarts a
// daemon, given those of now: its GPUs become exclusive, so that no process goes past
// MPS. GPUs in MIG mode have no compute mode, and so a MIG device's daemon changes none.
// A GPU on which computing is prohibited stays so: somebody wanted that.
//
// Keep what is returned. [AfterRemoval] takes it back. A reboot resets all modes.
func BeforeStart(spec Spec, now map[string]ComputeMode) ([]ModeChange, error) {
	var changes []ModeChange
	for _, id := range spec.Devices {
		if strings.HasPrefix(id, isMIG) {
			continue
		}
		switch mode := now[id]; mode {
		case ExclusiveProcess:
		case Default:
			changes = append(changes, ModeChange{GPU: id, From: mode, To: ExclusiveProcess})
		case Prohibited:
			return nil, refuse(backend.InvalidState, "start it", spec.Name, "GPU %s is in compute mode PROHIBITED, in which nothing can use it: run nvidia-smi -i %s -c DEFAULT first", id, id)
		default:
			return nil, refuse(backend.NotSupported, "start it", spec.Name, "the compute mode of GPU %s is not known", id)
		}
	}
	return changes, nil
}

// AfterRemoval are the compute modes to set once [Host.Remove] has ended a daemon, or its
// first start has failed: the changes of [BeforeStart] backwards, the last one first. A
// GPU whose mode somebody has changed since then is left alone.
func AfterRemoval(made []ModeChange, now map[string]ComputeMode) []ModeChange {
	var changes []ModeChange
	for _, c := range slices.Backward(made) {
		if now[c.GPU] == c.To {
			changes = append(changes, ModeChange{GPU: c.GPU, From: c.To, To: c.From})
		}
	}
	return changes
}
