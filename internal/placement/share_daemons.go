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
// only one daemon, or, with MIG, one for each GPU instance that is there.
func Daemons(h *gpu.Host, c *gpu.PartitionConfig, gpuIDs []string) []gpu.MPSDaemonSpec {
	if c.MPS == nil {
		return nil
	}
	gpus := slices.SortedFunc(slices.Values(withIDs(h, gpuIDs)), func(a, b *gpu.GPU) int { return cmp.Compare(gpu.FoldID(a.ID), gpu.FoldID(b.ID)) })
	gpus = slices.CompactFunc(gpus, func(a, b *gpu.GPU) bool { return a == b })
	if c.MIG == nil {
		if len(gpus) == 0 {
			return nil
		}
		one := newDaemon(c, daemonName(c.ID, nil))
		for _, g := range gpus {
			one.Devices = append(one.Devices, gpu.SharedDevice{GPU: g.ID})
		}
		return []gpu.MPSDaemonSpec{one}
	}
	var out []gpu.MPSDaemonSpec
	for _, g := range gpus {
		if g.MIG == nil || !g.MIG.Enabled {
			continue
		}
		for _, at := range g.MIG.State().Placements {
			device := gpu.SharedDevice{GPU: g.ID, Instance: &at}
			d := newDaemon(c, daemonName(c.ID, &device))
			d.Devices = []gpu.SharedDevice{device}
			out = append(out, d)
		}
	}
	return out
}

func newDaemon(c *gpu.PartitionConfig, name string) gpu.MPSDaemonSpec {
	return gpu.MPSDaemonSpec{
		Name: name, User: c.MPS.User, MultiUser: c.MPS.MultiUser,
		ActiveThreadPercentage: c.MPS.ActiveThreadPercentage, PinnedMemoryLimit: c.MPS.PinnedMemoryLimit,
	}
}

// Names of daemons are names of systemd units and of directories with sockets in them,
// whose paths are short.
const (
	daemonNameMax  = 63
	daemonHashSize = 8
)

// daemonName makes a config's id fit for the name of a daemon. What does not fit, and a
// GPU instance, is told apart by a hash.
func daemonName(configID string, instance *gpu.SharedDevice) string {
	id := gpu.FoldID(configID)
	fit := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, id)
	fit = strings.TrimLeft(fit, "-_")
	if instance == nil && fit == id && fit != "" && len(fit) <= daemonNameMax {
		return fit
	}
	of := id
	if instance != nil {
		of += "\x00" + gpu.FoldID(instance.GPU) + "\x00" + gpu.PlacementsText([]gpu.MIGPlacement{*instance.Instance})
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
