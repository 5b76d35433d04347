package cdi

import (
	"errors"
	"fmt"
	"path"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Share is what a container gets.
type Share struct {
	Name    string
	Devices []Device
	// MPS is the control daemon that serves the share, or nil.
	MPS *MPS
	// MemoryRequest and MemoryLimit are for each GPU and the whole container; 0 is none. The
	// container toolkit's hook has the driver enforce them. Of a driver without such limits, or
	// where cgroups are of version 1, the hook fails, and with it the start of the container: for
	// such a driver both are 0, and Write leaves them out for such cgroups.
	MemoryRequest gpu.Bytes
	MemoryLimit   gpu.Bytes
}

// Device is a GPU, or a MIG device of it.
type Device struct {
	UUID string // "GPU-..." or "MIG-..."
	// Minor is the number in the GPU's device node: 3 is /dev/nvidia3.
	Minor int
	// Instance is where the MIG device is, nil for a whole GPU.
	Instance *Instance
}

// Instance is a MIG device by the driver's ids.
type Instance struct {
	GPU     int
	Compute int
}

// MPS is a control daemon, and how it holds the processes of the share.
type MPS struct {
	// Pipe and Shm are directories of the host: the daemon's pipes, and the memory that its
	// clients have in common. Without Shm the container keeps its own /dev/shm.
	Pipe string
	Shm  string
	// ThreadPercentage is a process's part of the GPU's threads; 0 is the daemon's default.
	ThreadPercentage float64
	// Partition is the static partition of multiprocessors in which they compute, in place of a
	// percentage; "" where the daemon has none.
	Partition string
	// MemoryLimit is what one process may hold on each GPU; 0 is the daemon's default.
	MemoryLimit gpu.Bytes
	// Priority is 0 (normal) or 1 (below normal), nil the daemon's default.
	Priority *int
}

// Validate finds what no container could use.
func (s *Share) Validate() error {
	if err := ValidateName(s.Name); err != nil {
		return err
	}
	if err := s.validate(); err != nil {
		return fmt.Errorf("share %q: %w", s.Name, err)
	}
	return nil
}

func (s *Share) validate() error {
	if len(s.Devices) == 0 {
		return errors.New("it has no GPU, but at least one is wanted")
	}
	seen := map[string]bool{}
	mig := 0
	for _, d := range s.Devices {
		switch {
		case d.UUID == "":
			return fmt.Errorf("the GPU of /dev/nvidia%d has no UUID", d.Minor)
		case seen[d.UUID]:
			return fmt.Errorf("GPU %s is in it twice", d.UUID)
		case d.Minor < 0:
			return fmt.Errorf("GPU %s: the minor number %d is below zero", d.UUID, d.Minor)
		}
		seen[d.UUID] = true
		if d.Instance != nil {
			mig++
		}
	}
	switch {
	case mig > 1 || mig == 1 && len(s.Devices) > 1:
		return fmt.Errorf("it has %d MIG devices among %d GPUs, but a CUDA process reaches one MIG device and nothing beside it",
			mig, len(s.Devices))
	case s.MemoryLimit > 0 && s.MemoryRequest > s.MemoryLimit:
		return fmt.Errorf("it requests %s of memory, but its limit is %s", s.MemoryRequest, s.MemoryLimit)
	case s.MemoryLimit%gpu.MiB != 0 || s.MemoryRequest%gpu.MiB != 0:
		return errors.New("its memory is not in whole MiB, which is what the driver takes")
	case s.MPS == nil:
		return nil
	}
	return s.MPS.validate()
}

func (m *MPS) validate() error {
	switch {
	case !path.IsAbs(m.Pipe):
		return fmt.Errorf("the pipe directory %q of the MPS daemon is not an absolute path", m.Pipe)
	case m.Shm != "" && !path.IsAbs(m.Shm):
		return fmt.Errorf("the shared memory %q of the MPS daemon is not an absolute path", m.Shm)
	case !(m.ThreadPercentage >= 0 && m.ThreadPercentage <= 100): // written so that NaN is found
		return fmt.Errorf("the active thread percentage is %v, but above 0 and at most 100 is wanted", m.ThreadPercentage)
	case m.MemoryLimit%gpu.MiB != 0:
		return errors.New("the pinned memory limit is not in whole MiB")
	case m.Priority != nil && *m.Priority != 0 && *m.Priority != 1:
		return fmt.Errorf("the client priority is %d, but 0 or 1 is wanted", *m.Priority)
	}
	return nil
}
