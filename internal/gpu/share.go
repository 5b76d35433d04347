package gpu

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// SharedDevice is a whole GPU, or a GPU instance of it.
type SharedDevice struct {
	GPU string `json:"gpu"`
	// Instance is nil for a whole GPU.
	Instance *MIGPlacement `json:"instance,omitempty"`
}

// Same tells whether two devices are the same GPU or the same instance of it.
func (d SharedDevice) Same(o SharedDevice) bool {
	if !SameID(d.GPU, o.GPU) || (d.Instance == nil) != (o.Instance == nil) {
		return false
	}
	return d.Instance == nil || *d.Instance == *o.Instance
}

// SameDevices compares two lists of devices in their order, in which processes count them.
func SameDevices(a, b []SharedDevice) bool { return slices.EqualFunc(a, b, SharedDevice.Same) }

// MPSLayout wants NVIDIA's Multi-Process Service: on each host one control daemon for all
// GPUs of the config, because a process reaches only one daemon, or one for each GPU, or, in
// MIG mode, for each GPU instance.
type MPSLayout struct {
	// User is the user id whose processes may be clients; nil with MultiUser.
	User      *int `json:"user,omitempty"`
	MultiUser bool `json:"multi_user,omitempty"`
	// ActiveThreadPercentage and PinnedMemoryLimit hold each client process, the latter on
	// each device; 0 is no limit. A share may hold its own to less.
	ActiveThreadPercentage float64 `json:"active_thread_percentage,omitempty"`
	PinnedMemoryLimit      Bytes   `json:"pinned_memory_limit,omitempty"`
	// ComputeMode is that of the GPUs, "" for exclusive_process, in which no process goes
	// past MPS. A GPU in MIG mode has none.
	ComputeMode ComputeMode `json:"compute_mode,omitempty"`
	// Oversubscription is how often the memory limits and the thread percentages of shares
	// may add up to the device; 0 is 1, once.
	Oversubscription float64 `json:"oversubscription,omitempty"`
	// PerGPU gives each GPU a daemon of its own, so that a fault of one client ends none on
	// other GPUs. A GPU instance has one anyway.
	PerGPU bool `json:"per_gpu,omitempty"`
	// StaticPartitions gives each share multiprocessors of its own by its thread percentage.
	// It takes PerGPU.
	StaticPartitions bool `json:"static_partitions,omitempty"`
}

// TimeSlicing wants several workloads to take turns on each GPU or GPU instance. Nothing
// holds one of them to its part.
type TimeSlicing struct {
	// Interval is the length of a time slice, "" for default. GPU instances have none.
	Interval TimeSlice `json:"interval,omitempty"`
	// Replicas is how many shares a device takes, at least 2.
	Replicas int `json:"replicas"`
	// Oversubscription is how often the memory limits of shares may add up to the device; 0
	// is 1, once.
	Oversubscription float64 `json:"oversubscription,omitempty"`
}

// TimeSlice is the length of a process's time slice on a GPU. NVIDIA does not say how long each
// is.
type TimeSlice string

// Time slices.
const (
	TimeSliceDefault TimeSlice = "default"
	TimeSliceShort   TimeSlice = "short"
	TimeSliceMedium  TimeSlice = "medium"
	TimeSliceLong    TimeSlice = "long"
)

// TimeSlices lists them in rising order, after the driver's own choice.
func TimeSlices() []TimeSlice {
	return []TimeSlice{TimeSliceDefault, TimeSliceShort, TimeSliceMedium, TimeSliceLong}
}

// MPSDaemonSpec is a wanted control daemon.
type MPSDaemonSpec struct {
	// Name is the daemon's, once per host: of lower-case letters, digits and hyphens.
	Name string `json:"name"`
	// Devices are what clients see, in the order in which they count them.
	Devices                []SharedDevice `json:"devices"`
	User                   *int           `json:"user,omitempty"`
	MultiUser              bool           `json:"multi_user,omitempty"`
	ActiveThreadPercentage float64        `json:"active_thread_percentage,omitempty"`
	PinnedMemoryLimit      Bytes          `json:"pinned_memory_limit,omitempty"` // on each device
	// StaticPartitions lets a client compute only in a partition that it names.
	StaticPartitions bool `json:"static_partitions,omitempty"`
}

// Equal compares what two daemons are wanted to be. None is equal to none only.
func (s *MPSDaemonSpec) Equal(o *MPSDaemonSpec) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Name == o.Name && s.Differs(o) == MPSDifference{}
}

// MPSDaemon is a control daemon as a host shows it.
type MPSDaemon struct {
	// MPSDaemonSpec is what was declared, its settings as read back where the daemon tells
	// them. A daemon of somebody else has no name. A device that the host no longer has goes
	// by its UUID as its GPU.
	MPSDaemonSpec
	PID     int       `json:"pid,omitempty"` // 0 when it does not run
	PipeDir string    `json:"pipe_dir,omitempty"`
	Clients []Process `json:"clients,omitempty"` // of ours only
	// Problem says why a daemon of ours does not run or answer.
	Problem string `json:"problem,omitempty"`
}

// RoundMPSLimit is the largest limit up to b that a daemon takes and shows
// again: whole MiB below 1 GiB, whole GiB from there on. Of 1536 MiB such a daemon shows
// 1 GiB, and nothing tells which of the two it enforces.
func RoundMPSLimit(b Bytes) Bytes {
	const gib = 1024 * MiB
	if b < gib {
		return b - b%MiB
	}
	return b - b%gib
}

// MPSDifference is in what a daemon that runs is not as wanted.
type MPSDifference struct{ Devices, Users, Partitions, Limits bool }

// Differs compares a daemon with what it shall be.
func (s *MPSDaemonSpec) Differs(want *MPSDaemonSpec) MPSDifference {
	return MPSDifference{
		Devices:    !SameDevices(s.Devices, want.Devices),
		Users:      s.MultiUser != want.MultiUser || (s.User == nil) != (want.User == nil) || s.User != nil && *s.User != *want.User,
		Partitions: s.StaticPartitions != want.StaticPartitions,
		Limits:     s.ActiveThreadPercentage != want.ActiveThreadPercentage || s.PinnedMemoryLimit != want.PinnedMemoryLimit,
	}
}

// WhyRestart is the reason for which a daemon has to start again, which ends its clients; ""
// when it takes the difference as it runs, for processes that come.
func (d MPSDifference) WhyRestart() string {
	switch {
	case d.Devices:
		return "its devices are others"
	case d.Users:
		return "it is for other users"
	case d.Partitions:
		return "it begins or ends to have static partitions"
	}
	return ""
}

// WhyRestart is the same for a daemon as a host shows it, which may not run.
func (d *MPSDaemon) WhyRestart(want *MPSDaemonSpec) string {
	switch {
	case d.PID == 0: // its servers may have outlived it
		return "its control daemon has ended"
	case d.Problem != "":
		return "it does not answer"
	}
	return d.Differs(want).WhyRestart()
}

// MPSHost is what a host has for the Multi-Process Service.
type MPSHost struct {
	// Program is where nvidia-cuda-mps-control is, "" when it is not installed.
	Program string      `json:"program,omitempty"`
	Daemons []MPSDaemon `json:"daemons,omitempty"`
}

// Daemon finds a daemon of ours.
func (h *Host) Daemon(name string) (*MPSDaemon, bool) {
	if h.MPS == nil {
		return nil, false
	}
	for i := range h.MPS.Daemons {
		if d := &h.MPS.Daemons[i]; name != "" && d.Name == name {
			return d, true
		}
	}
	return nil, false
}

// ClientsIn are the processes of a share that are clients of a daemon of ours.
func (h *Host) ClientsIn(share string) []Process {
	if h.MPS == nil || share == "" {
		return nil
	}
	var out []Process
	for _, d := range h.MPS.Daemons {
		for _, c := range d.Clients {
			if SameID(c.Share, share) {
				out = append(out, c)
			}
		}
	}
	return out
}

// Share is a fraction of a GPU, or of several, for containers: what one resource wants,
// and where it was placed.
type Share struct {
	Name string `json:"name"` // once per host
	// Host is as the provider names it; "" for a share of a pool that was not placed yet.
	Host   string `json:"host,omitempty"`
	Pool   string `json:"pool,omitempty"`   // id of a pool
	Config string `json:"config,omitempty"` // id of a partition config
	// Count is how many GPUs or GPU instances it has part in, at least 1.
	Count int `json:"count"`
	// GPUIDs pin it to GPUs of its host; empty lets the host choose.
	GPUIDs []string `json:"gpu_ids,omitempty"`
	// Profile is the MIG profile of its GPU instances, "" for any.
	Profile string `json:"profile,omitempty"`
	// Label says whose quota of the pool it counts against.
	Label string `json:"label,omitempty"`
	// MemoryRequest is kept free for it on each device, and MemoryLimit the most that it may
	// use there; 0 is none.
	MemoryRequest Bytes `json:"memory_request,omitempty"`
	MemoryLimit   Bytes `json:"memory_limit,omitempty"`
	// RequestFraction and LimitFraction are the same as parts of each device's memory, above 0
	// and at most 1, in place of amounts.
	RequestFraction float64 `json:"request_fraction,omitempty"`
	LimitFraction   float64 `json:"limit_fraction,omitempty"`
	// ActiveThreadPercentage is the part of a device's multiprocessors for each of its
	// processes, with MPS only; 0 is what the daemon gives.
	ActiveThreadPercentage float64 `json:"active_thread_percentage,omitempty"`
	// ClientPriority is that of its processes with MPS: 0, normal, or 1, below normal.
	ClientPriority *int `json:"client_priority,omitempty"`
	// MaxDisruption is the most that taking the share back may do to its processes: those that
	// are clients of MPS can be terminated, and no others.
	MaxDisruption Disruption `json:"max_disruption,omitempty"`

	// Devices are where it was placed. It is never moved.
	Devices []SharedDevice `json:"devices,omitempty"`
}

// MemoryOn is what a share requests and its limit on a device of some memory, a fraction in
// whole MiB, rounded down.
func (s *Share) MemoryOn(device Bytes) (request, limit Bytes) {
	of := func(fraction float64, amount Bytes) Bytes {
		const rounding = 1e-6 // 0.29 of 100 MiB is 29 MiB
		if fraction > 0 {
			return max(FromMiB(int64(fraction*float64(device.MiB())+rounding)), MiB)
		}
		return amount
	}
	return of(s.RequestFraction, s.MemoryRequest), of(s.LimitFraction, s.MemoryLimit)
}

// LimitsMemory reports whether the share has a limit of memory.
func (s *Share) LimitsMemory() bool { return s.MemoryLimit > 0 || s.LimitFraction > 0 }

// SameAmounts reports whether two shares want as much of a device.
func (s *Share) SameAmounts(o *Share) bool {
	return s.MemoryRequest == o.MemoryRequest && s.MemoryLimit == o.MemoryLimit && s.RequestFraction == o.RequestFraction &&
		s.LimitFraction == o.LimitFraction && s.ActiveThreadPercentage == o.ActiveThreadPercentage
}

// ShareMode is how a device is shared, which follows from its layout.
type ShareMode string

// Share modes. In the first two nobody else is on the device.
const (
	ShareWholeGPU    ShareMode = "whole_gpu"
	ShareMIG         ShareMode = "mig"
	ShareMPS         ShareMode = "mps"          // of a GPU or of a GPU instance
	ShareTimeSlicing ShareMode = "time_slicing" // of a GPU or of a GPU instance
)

// ShareSpec is a share as it is handed to containers on its host.
type ShareSpec struct {
	Name    string         `json:"name"`
	Devices []SharedDevice `json:"devices"`
	// Daemon is the name of the MPS daemon that serves it, "" without MPS.
	Daemon string `json:"daemon,omitempty"`
	// The next three hold each process, through the environment of the container; 0 and nil
	// are what the daemon gives.
	ActiveThreadPercentage float64 `json:"active_thread_percentage,omitempty"`
	PinnedMemoryLimit      Bytes   `json:"pinned_memory_limit,omitempty"` // on each device
	ClientPriority         *int    `json:"client_priority,omitempty"`
	// MemoryRequest and MemoryLimit are for the container as a whole, on each device.
	MemoryRequest Bytes `json:"memory_request,omitempty"`
	MemoryLimit   Bytes `json:"memory_limit,omitempty"`
}

// CDIDevice is how containers ask for a share, whatever host it is on.
func CDIDevice(share string) string { return "gpufleet.com/share=" + share }

// HandedShare is a share that containers of a host can ask for.
type HandedShare struct {
	Name      string `json:"name"`
	CDIDevice string `json:"cdi_device"` // "gpufleet.com/share=team-a"
	// Environment is what a process of the host needs to be in the share without a container.
	Environment map[string]string `json:"environment,omitempty"`
	// LimitsContainers reports whether its specification has the hook that holds a container
	// to its memory limit, and the host the version of cgroups that the hook needs.
	LimitsContainers bool `json:"limits_containers,omitempty"`
	// Outdated is how its specification differs from what would be written now, as the end of
	// "its CDI specification …"; "" for not, or where that cannot be told.
	Outdated string `json:"outdated,omitempty"`
	// Note says what containers lack, in a sentence or two, "" for nothing.
	Note string `json:"note,omitempty"`
}

// staticPartitionsBranch is the first driver branch whose MPS has static partitions, that of CUDA
// 13.1.
var staticPartitionsBranch = []int{590}

// StaticPartitions reports whether MPS on the GPU can have static partitions: from Ampere on.
func (g *GPU) StaticPartitions() bool {
	return atLeast(g.Driver.Branch(), staticPartitionsBranch) && atLeast(g.ComputeCapability, []int{8})
}

// guardedMPS is the first driver that was seen to let nobody but root change what an MPS daemon holds its
// clients to: whoever reaches the socket of 535.261.03 changes its defaults, and 550.163.01 refuses that.
var guardedMPS = []int{550, 163}

// GuardsMPS reports whether MPS daemons on the GPU keep their settings from their clients.
func (g *GPU) GuardsMPS() bool { return atLeast(g.Driver.Version, guardedMPS) }

// The first driver branch and container toolkit that hold a container to a memory limit.
var (
	limitingBranch  = []int{615}
	limitingToolkit = []int{1, 20, 1}
)

// LimitsContainers reports whether the GPU's driver and the host's container toolkit can hold
// a container as a whole to a limit of memory.
func (h *Host) LimitsContainers(g *GPU) bool {
	return atLeast(g.Driver.Branch(), limitingBranch) && atLeast(h.ContainerToolkit, limitingToolkit)
}

// atLeast compares a version by its numbers, "1.20.1" or "v1.20.1-rc.1". One that is not
// known is too old.
func atLeast(version string, least []int) bool {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "-")
	parts := strings.Split(version, ".")
	have := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return false
		}
		have[i] = n
	}
	return slices.Compare(have, least) >= 0
}

// HandedShare finds a share that was handed over.
func (h *Host) HandedShare(name string) (*HandedShare, bool) {
	for i := range h.Shares {
		if SameID(h.Shares[i].Name, name) {
			return &h.Shares[i], true
		}
	}
	return nil, false
}

// PoolQuota is how much of a pool the shares of one label may take together; nil is no
// limit.
type PoolQuota struct {
	// GPUs counts whole GPUs: a share counts for the larger of its parts of memory and of
	// multiprocessors, on each device.
	GPUs   *float64 `json:"gpus,omitempty"`
	Memory *Bytes   `json:"memory,omitempty"` // requested
	Shares *int     `json:"shares,omitempty"`
}

// SameLimits reports whether two shares ask for the same, wherever they are and whatever may be
// done to take them back.
func (s Share) SameLimits(o Share) bool {
	for _, of := range []*Share{&s, &o} {
		of.Host, of.GPUIDs, of.Count, of.Devices, of.MaxDisruption = "", nil, 0, nil, ""
	}
	return reflect.DeepEqual(s, o)
}
