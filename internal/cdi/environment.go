package cdi

import (
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Variables of CUDA.
const (
	visibleVariable = "CUDA_VISIBLE_DEVICES"
	pipeVariable    = "CUDA_MPS_PIPE_DIRECTORY"
	mpsVariables    = "CUDA_MPS_"
)

// Environment is what a process of the host needs to be in a share without a container. It
// sees all of the host: so the share's GPUs are chosen for it, and the daemon's pipes are
// where the host has them.
func Environment(s *Share) map[string]string { return environment(s.edits(nil)) }

// environment is that of the host, by the share's edits for containers.
func environment(e specs.ContainerEdits) map[string]string {
	out := map[string]string{}
	for _, entry := range e.Env {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == ShareVariable:
			out[name] = value
		case name == devicesVariable:
			out[visibleVariable] = value
		case name == pipeVariable:
			out[name] = mountedAt(e, value)
		case strings.HasPrefix(name, mpsVariables):
			out[name] = value
		}
	}
	return out
}

// mountedAt is what of the host a container has at a path.
func mountedAt(e specs.ContainerEdits, path string) string {
	i := slices.IndexFunc(e.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == path })
	if i < 0 {
		return path
	}
	return e.Mounts[i].HostPath
}

// devicesOf are the UUIDs of the GPUs of a share.
func devicesOf(e specs.ContainerEdits) []string {
	for _, entry := range e.Env {
		if value, ok := strings.CutPrefix(entry, devicesVariable+"="); ok {
			return strings.Split(value, ",")
		}
	}
	return nil
}

func (s *Share) uuids() []string {
	return words.Each(s.Devices, func(d Device) string { return d.UUID })
}
