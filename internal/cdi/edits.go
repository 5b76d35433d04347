package cdi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Where containers look for the pipes of MPS and for shared memory.
const (
	containerPipe = "/tmp/nvidia-mps"
	containerShm  = "/dev/shm"
)

// ShareVariable names the share in its container, and to whoever asks what a process is.
// It is also the marker of our specifications: an annotation would need CDI 0.6, which is
// newer than some runtimes.
const ShareVariable = "GPUFLEET_SHARE"

// devicesVariable are the UUIDs of the share's GPUs. CUDA_VISIBLE_DEVICES would do, but
// some programs in containers only take numbers there.
const devicesVariable = "GPUFLEET_SHARE_DEVICES"

// PartitionVariable names a process's static partition to CUDA. A daemon with such partitions
// takes no client without it, and knows no percentages.
const PartitionVariable = "CUDA_MPS_SM_PARTITION"

// limitVariables begin the names of those that NVIDIA's hook for limits of memory reads.
const limitVariables = "NVIDIA_GPU_MEMORY_"

// edits is what the share itself does to a container.
func (s *Share) edits(nodes []*specs.DeviceNode) specs.ContainerEdits {
	return specs.ContainerEdits{Env: s.environment(), DeviceNodes: nodes, Mounts: s.MPS.mounts()}
}

func (s *Share) environment() []string {
	env := []string{
		ShareVariable + "=" + s.Name,
		devicesVariable + "=" + strings.Join(s.uuids(), ","),
		// The runtime hook of old toolkits would add all GPUs of an image that asks for them.
		"NVIDIA_VISIBLE_DEVICES=void",
	}
	if s.Devices[0].Instance != nil {
		env = append(env, visibleVariable+"="+s.Devices[0].UUID)
	}
	if s.MemoryRequest > 0 {
		env = append(env, fmt.Sprintf(limitVariables+"REQUEST=%d", s.MemoryRequest.MiB()))
	}
	if s.MemoryLimit > 0 {
		env = append(env, fmt.Sprintf(limitVariables+"LIMIT=%d", s.MemoryLimit.MiB()))
	}
	return append(env, s.MPS.environment(len(s.Devices))...)
}

func (m *MPS) environment(gpus int) []string {
	if m == nil {
		return nil
	}
	env := []string{pipeVariable + "=" + containerPipe}
	switch {
	case m.Partition != "":
		env = append(env, PartitionVariable+"="+m.Partition)
	case m.ThreadPercentage > 0:
		env = append(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+strconv.FormatFloat(m.ThreadPercentage, 'f', -1, 64))
	}
	if m.MemoryLimit > 0 {
		env = append(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+pinnedLimits(gpus, m.MemoryLimit))
	}
	if m.Priority != nil {
		env = append(env, "CUDA_MPS_CLIENT_PRIORITY="+strconv.Itoa(*m.Priority))
	}
	return env
}

// pinnedLimits limits each GPU by its ordinal, as old drivers ignore UUIDs. The ordinals
// are those of the daemon's clients, which begin at 0.
func pinnedLimits(gpus int, limit gpu.Bytes) string {
	var out []string
	for i := range gpus {
		out = append(out, fmt.Sprintf("%d=%dM", i, limit.MiB()))
	}
	return strings.Join(out, ",")
}

func (m *MPS) mounts() []*specs.Mount {
	if m == nil {
		return nil
	}
	bind := func(host, container string) *specs.Mount {
		return &specs.Mount{HostPath: host, ContainerPath: container, Options: []string{"rw", "nosuid", "nodev", "bind"}}
	}
	out := []*specs.Mount{bind(m.Pipe, containerPipe)}
	if m.Shm != "" {
		out = append(out, bind(m.Shm, containerShm))
	}
	return out
}

// merge adds the share's edits to those of the host. What a container can have only once
// is the share's, but a device node stays as the host has it.
func merge(host, share specs.ContainerEdits) specs.ContainerEdits {
	out := host
	out.Env = append(slices.DeleteFunc(slices.Clone(host.Env), func(v string) bool {
		return slices.ContainsFunc(share.Env, func(own string) bool { return variable(own) == variable(v) })
	}), share.Env...)
	out.Mounts = append(slices.DeleteFunc(slices.Clone(host.Mounts), func(m *specs.Mount) bool {
		return slices.ContainsFunc(share.Mounts, func(own *specs.Mount) bool { return own.ContainerPath == m.ContainerPath })
	}), share.Mounts...)
	out.DeviceNodes = slices.Clone(host.DeviceNodes)
	for _, node := range share.DeviceNodes {
		if !slices.ContainsFunc(out.DeviceNodes, func(n *specs.DeviceNode) bool { return n.Path == node.Path }) {
			out.DeviceNodes = append(out.DeviceNodes, node)
		}
	}
	return out
}

func variable(of string) string {
	name, _, _ := strings.Cut(of, "=")
	return name
}
