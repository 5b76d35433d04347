package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Disrupted is one row of the table of what changes disturb.
type Disrupted struct {
	Change string
	Idle   string // while nobody holds the GPU, or the VM is off
	Held   string // while running VMs hold it, or the VM runs
}

// refused stands where a change is never made, whatever is allowed.
const refused = "refused"

// DisruptionTable lists what each kind of change disturbs, by whether the object is
// in use.
func DisruptionTable() []Disrupted {
	none, restart := string(gpu.DisruptNone), string(gpu.DisruptVMRestart)
	return []Disrupted{
		{"Change a GPU's partition count", none, restart},
		{"Change it with `rollout.drain`, where every VM in the way can migrate live", none, none},
		{"Add a GPU with the right count to a config", none, none},
		{"Remove a GPU from a config, `on_destroy = \"keep\"`", none, none},
		{"Remove a GPU from a config, `on_destroy = \"restore\"`", none, refused},
		{"Give a VM a partition, or take it away", none, restart},
		{"Change a partition's quotas or pinned GPU", none, restart},
		{"Give a VM whole GPUs, or take them away", none, restart},
		{"Create a pool, or add a GPU to it (dismount)", none, refused},
		{"Remove a GPU from a pool (mount back)", none, refused},
		{"Create MIG instances, or remove them", none, refused},
		{"Switch MIG mode, Hopper and later", none, refused},
		{"Switch MIG mode with a reset of the GPU (Ampere)", string(gpu.DisruptGPUReset), refused},
		{"Start an MPS daemon, or set compute mode `exclusive_process` for it", none, refused},
		{"Restart or remove an MPS daemon (held: by its clients, which end)", none, string(gpu.DisruptProcessRestart)},
		{"Set a time slice, or another compute mode", none, none},
		{"Create a share, or change its limits (they hold for new processes)", none, none},
		{"Destroy a share on MPS (held: by its clients, which end)", none, string(gpu.DisruptProcessRestart)},
		{"Destroy another share (held: processes of it run)", none, refused},
		{"Create vGPUs, or remove them", none, refused},
		{"Switch virtual functions or heterogeneous vGPU mode", none, refused},
		{"Change memory-mapped IO space or cache types", none, restart},
		{"Change the automatic stop action or the offline action", none, none},
		{"Change `power`, `rollout`, `timeouts` or `on_destroy`", none, none},
	}
}
