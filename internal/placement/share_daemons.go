package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Daemons are the MPS control daemons that a config wants on a host for those of its GPUs
// that are there: one for all of them in the order of their ids, since a process reaches
// only one daemon, or one for each, or, with MIG, for each GPU instance that is there.
func Daemons(h *gpu.Host, c *gpu.PartitionConfig, gpuIDs []string) []gpu.MPSDaemonSpec {
	if c.MPS == nil {
		return nil
	}
	gpus := slices.SortedFunc(slices.Values(withIDs(h, gpuIDs)), func(a, b *gpu.GPU) int {
		return cmp.Compare(gpu.FoldID(a.ID), gpu.FoldID(b.ID))
	})
	gpus = slices.CompactFunc(gpus, func(a, b *gpu.GPU) bool { return a == b })
	var out []gpu.MPSDaemonSpec
	for _, g := range gpus {
		switch {
		case c.MIG == nil && g.MIGEnabled(): // by other means: a daemon serves only instances of it
		case c.MIG == nil && len(out) > 0 && !c.MPS.PerGPU:
			out[0].Devices = append(out[0].Devices, gpu.SharedDevice{GPU: g.ID})
		case c.MIG == nil:
			out = append(out, newDaemon(c, gpu.SharedDevice{GPU: g.ID}))
		case g.MIGEnabled():
			for _, at := range g.MIG.State().Placements {
				out = append(out, newDaemon(c, gpu.SharedDevice{GPU: g.ID, Instance: &at}))
			}
		}
	}
	return out
}

func newDaemon(c *gpu.PartitionConfig, first gpu.SharedDevice) gpu.MPSDaemonSpec {
	return gpu.MPSDaemonSpec{
		Name: daemonName(c, first), Devices: []gpu.SharedDevice{first}, User: c.MPS.User, MultiUser: c.MPS.MultiUser,
		ActiveThreadPercentage: c.MPS.ActiveThreadPercentage, PinnedMemoryLimit: c.MPS.PinnedMemoryLimit,
		StaticPartitions: c.MPS.StaticPartitions,
	}
}

// Names of daemons are names of systemd units and of directories with sockets in them,
// whose paths are short.
const (
	daemonNameMax  = 63
	daemonHashSize = 8
)

// daemonName makes a config's id fit for the name of the daemon of a device. What does not fit,
// and a device that has its own, is told apart by a hash.
func daemonName(c *gpu.PartitionConfig, device gpu.SharedDevice) string {
	id, shared := gpu.FoldID(c.ID), device.Instance == nil && !c.MPS.PerGPU
	fit := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, id)
	fit = strings.TrimLeft(fit, "-_")
	if shared && fit == id && fit != "" && len(fit) <= daemonNameMax {
		return fit
	}
	of := id
	if !shared {
		of += "\x00" + gpu.FoldID(device.GPU)
	}
	if device.Instance != nil {
		of += "\x00" + gpu.PlacementsText([]gpu.MIGPlacement{*device.Instance})
	}
	sum := sha256.Sum256([]byte(of))
	fit = fit[:min(len(fit), daemonNameMax-1-daemonHashSize)]
	return strings.TrimLeft(fit+"-"+hex.EncodeToString(sum[:])[:daemonHashSize], "-")
}

// Serves tells whether a daemon runs as wanted.
func Serves(h *gpu.Host, want *gpu.MPSDaemonSpec) bool {
	d, ok := h.Daemon(want.Name)
	return ok && d.PID != 0 && d.Problem == "" && d.Equal(want)
}

// WantedModes are the compute mode and the time slice of the GPUs of a config, "" where it
// wants none: GPUs in MIG mode have neither.
func WantedModes(c *gpu.PartitionConfig) (gpu.ComputeMode, gpu.TimeSlice) {
	switch {
	case c.MIG != nil:
	case c.MPS != nil:
		return cmp.Or(c.MPS.ComputeMode, gpu.ComputeExclusiveProcess), ""
	case c.TimeSlicing != nil:
		return gpu.ComputeDefault, cmp.Or(c.TimeSlicing.Interval, gpu.TimeSliceDefault)
	}
	return "", ""
}

// withIDs are the GPUs that a list of ids names and that the host has.
func withIDs(h *gpu.Host, ids []string) []*gpu.GPU {
	var out []*gpu.GPU
	for _, id := range ids {
		if g, ok := h.GPU(id); ok {
			out = append(out, g)
		}
	}
	return out
}
