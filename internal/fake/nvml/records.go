//go:build linux

package fakenvml

// A state is a machine as its file has it: see lib/records.h, which says what each
// field means and has the same kinds and fields in the same order.
type state struct {
	Machine    []machineRecord  `state:"machine"`
	GPUs       []gpuRecord      `state:"gpu"`
	Profiles   []profileRecord  `state:"profile"`
	Instances  []instanceRecord `state:"instance"`
	Computes   []computeRecord  `state:"compute"`
	Processes  []processRecord  `state:"process"`
	Clients    []clientRecord   `state:"client"`
	Links      []linkRecord     `state:"nvlink"`
	VGPUTypes  []vgpuTypeRecord `state:"vgputype"`
	VGPUs      []vgpuRecord     `state:"vgpu"`
	Limits     []limitRecord    `state:"limit"`
	Activities []activityRecord `state:"activity"`
	Faults     []faultRecord    `state:"fault"`
	Delays     []delayRecord    `state:"delay"`
}

type machineRecord struct {
	Driver          string `state:"driver"`
	NVML            string `state:"nvml"`
	CUDA            int    `state:"cuda"`
	InitError       int    `state:"init_error"`
	Root            bool   `state:"root"`
	ProfilesNeedMIG bool   `state:"profiles_need_mig"`
	Boot            int    `state:"boot"`
	Next            int    `state:"next"`
}

type gpuRecord struct {
	Index          int    `state:"index"`
	UUID           string `state:"uuid"`
	Name           string `state:"name"`
	Bus            string `state:"bus"`
	DeviceID       int    `state:"device_id"`
	SubsystemID    int    `state:"subsystem_id"`
	Arch           int    `state:"arch"`
	Major          int    `state:"cc_major"`
	MinorVersion   int    `state:"cc_minor"`
	Minor          int    `state:"minor"`
	Serial         string `state:"serial"`
	Board          string `state:"board"`
	VBIOS          string `state:"vbios"`
	NUMA           int    `state:"numa"`
	Memory         int    `state:"memory"`
	Reserved       int    `state:"reserved"`
	MIGCapable     bool   `state:"mig_capable"`
	ModePersists   bool   `state:"mode_persists"`
	ModeNeedsReset int    `state:"mode_needs_reset"`
	MIG            bool   `state:"mig"`
	MIGPending     bool   `state:"mig_pending"`
	ComputeMode    int    `state:"compute_mode"`
	ECC            int    `state:"ecc"`
	ECCPending     int    `state:"ecc_pending"`
	Persistence    bool   `state:"persistence"`
	Busy           int    `state:"busy"`
	MemoryBusy     int    `state:"memory_busy"`
	Timeslice      int    `state:"timeslice"`
	VGPUHost       bool   `state:"vgpu_host"`
	VGPUMixable    bool   `state:"vgpu_mixable"`
	VGPUMixed      bool   `state:"vgpu_mixed"`
	VGPUMIGSlices  bool   `state:"vgpu_mig_slices"`
	VGPUMIGSliced  bool   `state:"vgpu_mig_sliced"`
	GPM            bool   `state:"gpm"`
	Generation     int    `state:"generation"`
	Lost           bool   `state:"lost"`
	Sick           int    `state:"sick"`
	Hang           int    `state:"hang"`
}

type profileRecord struct {
	GPU      int    `state:"gpu"`
	Number   int    `state:"number"`
	ID       int    `state:"id"`
	Name     string `state:"name"`
	Slices   int    `state:"slices"`
	Memory   int    `state:"memory"`
	SMs      int    `state:"sms"`
	Copies   int    `state:"copies"`
	Decoders int    `state:"decoders"`
	Encoders int    `state:"encoders"`
	JPEGs    int    `state:"jpegs"`
	OFAs     int    `state:"ofas"`
	Media    int    `state:"media"`
	Graphics bool   `state:"graphics"`
	Max      int    `state:"max"`
	Size     int    `state:"size"`
	Starts   []int  `state:"starts"`
}

type instanceRecord struct {
	GPU     int `state:"gpu"`
	ID      int `state:"id"`
	Profile int `state:"profile"`
	Start   int `state:"start"`
	Serial  int `state:"serial"`
}

type computeRecord struct {
	GPU      int    `state:"gpu"`
	Instance int    `state:"instance"`
	ID       int    `state:"id"`
	Profile  int    `state:"profile"`
	Slices   int    `state:"slices"`
	Start    int    `state:"start"`
	Index    int    `state:"index"`
	UUID     string `state:"uuid"`
}

type processRecord struct {
	GPU      int    `state:"gpu"`
	PID      int    `state:"pid"`
	Name     string `state:"name"`
	Kind     string `state:"kind"`
	Memory   int    `state:"memory"`
	Instance int    `state:"instance"`
	Compute  int    `state:"compute"`
	Busy     int    `state:"busy"`
}

type clientRecord struct {
	PID   int `state:"pid"`
	Inits int `state:"inits"`
}

type linkRecord struct {
	GPU    int    `state:"gpu"`
	Number int    `state:"number"`
	Peer   string `state:"peer"`
}

type vgpuTypeRecord struct {
	GPU             int    `state:"gpu"`
	ID              int    `state:"id"`
	Name            string `state:"name"`
	Class           string `state:"class"`
	License         string `state:"license"`
	Framebuffer     int    `state:"framebuffer"`
	Max             int    `state:"max"`
	MaxPerVM        int    `state:"max_per_vm"`
	Heads           int    `state:"heads"`
	InstanceProfile int    `state:"instance_profile"`
}

type vgpuRecord struct {
	GPU      int    `state:"gpu"`
	ID       int    `state:"id"`
	Type     int    `state:"type"`
	Instance int    `state:"instance"`
	UUID     string `state:"uuid"`
	VM       string `state:"vm"`
}

type limitRecord struct {
	GPU    int    `state:"gpu"`
	Cgroup string `state:"cgroup"`
	Soft   int    `state:"soft"`
	Hard   int    `state:"hard"`
}

type activityRecord struct {
	GPU       int `state:"gpu"`
	Instance  int `state:"instance"`
	Graphics  int `state:"graphics"`
	SM        int `state:"sm"`
	Occupancy int `state:"occupancy"`
	DRAM      int `state:"dram"`
}

type faultRecord struct {
	Function string `state:"function"`
	Skip     int    `state:"skip"`
	Times    int    `state:"times"`
	Code     int    `state:"code"`
	Effect   bool   `state:"effect"`
	Kill     bool   `state:"kill"`
}

type delayRecord struct {
	Function     string `state:"function"`
	Microseconds int    `state:"microseconds"`
}
