package mps

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Partition is a static partition of a GPU's multiprocessors. Its id is the daemon's, and ends with it.
type Partition struct {
	ID      string // as lspart shows it, without the GPU
	Chunks  int
	Clients bool
}

// Partitions are those of a daemon of one GPU, and how many chunks the GPU has in all. lspart shows
// a line for the GPU and one for each partition, with "-" for what a line has not:
//
//	GPU           Partition  free chunks  used chunks  free SMs  used SMs  clients
//	GPU-74d43ed3  -          6            8            48        64        -
//	GPU-74d43ed3  Dx4AAAAA   -            8            -         64        Yes
//
// Assumption linux-mps-partitions.
func (c *Control) Partitions(ctx context.Context) (all []Partition, chunks int, err error) {
	a, err := c.command(ctx, "lspart")
	if err != nil {
		return nil, 0, err
	}
	for line := range strings.Lines(a.text) {
		const columns, partition, free, used, clients = 7, 1, 2, 3, 6
		words := strings.Fields(line)
		if len(words) != columns || !strings.HasPrefix(words[0], "GPU-") {
			continue
		}
		n, err := strconv.Atoi(words[used])
		if err != nil {
			return nil, 0, refuse(backend.Failed, "lspart", c.Name, "its line %q has no number of used chunks", strings.TrimSpace(line))
		}
		if words[partition] != "-" {
			all = append(all, Partition{ID: words[partition], Chunks: n, Clients: !strings.EqualFold(words[clients], "no")})
			continue
		}
		left, err := strconv.Atoi(words[free])
		if err != nil {
			return nil, 0, refuse(backend.Failed, "lspart", c.Name, "its line %q has no number of free chunks", strings.TrimSpace(line))
		}
		chunks += left + n
	}
	if chunks == 0 {
		return nil, 0, refuse(backend.Failed, "lspart", c.Name, "%s", sentence("it lists no GPU with static partitions", a.text, a.reason()))
	}
	return all, chunks, nil
}

// is tells whether a full id, "GPU-.../Dx4AAAAA", is the partition's, which may be shown cut.
func (p Partition) is(full string) bool {
	_, id, _ := strings.Cut(full, "/")
	return id != "" && strings.HasPrefix(id, p.ID)
}

// partitionID finds the id in what adding one prints: alone, or as "Partition ... created".
var partitionID = regexp.MustCompile(`\bGPU-[0-9A-Za-z-]+/[0-9A-Za-z+/=_-]+`)

func (c *Control) addPartition(ctx context.Context, device string, chunks int) (string, error) {
	a, err := c.command(ctx, "sm_partition", "add", device, strconv.Itoa(chunks))
	if err != nil {
		return "", err
	}
	if id := partitionID.FindString(a.text); id != "" {
		return id, nil
	}
	return "", refuse(backend.Insufficient, "make a static partition of "+device, c.Name, "%s", sentence(a.text, a.reason()))
}

// NoPartition stands for one that is not there.
const NoPartition = "none"

// Partition is the static partition for a percentage of a daemon's GPU, "" for a daemon without any:
// the one that there is, if it still is and has the size, else, with add, a new one. Then those that
// are neither used nor kept make room: nobody is told of them any more.
func (h *Host) Partition(ctx context.Context, name string, percentage float64, have string, kept []string, add bool) (string, error) {
	rec, err := h.load(name)
	if err != nil || rec == nil || !rec.Spec.StaticPartitions {
		return "", err
	}
	c, device := h.control(name), rec.Spec.Devices[0]
	all, chunks, err := c.Partitions(ctx)
	if err != nil {
		return "", err
	}
	const rounding = 1e-6 // 0.29 of 100 is 29
	wanted := int(percentage*float64(chunks)/100 + rounding)
	if wanted == 0 {
		return "", refuse(backend.InvalidParameter, "make a static partition of "+device, name,
			"%g %% is less than a chunk of its multiprocessors, of which it has %d: ask for %g %% at least",
			percentage, chunks, math.Ceil(1000/float64(chunks))/10)
	}
	if slices.ContainsFunc(all, func(p Partition) bool { return p.is(have) && p.Chunks == wanted }) {
		return have, nil
	}
	if !add {
		return NoPartition, nil
	}
	for _, p := range all {
		if p.Clients || slices.ContainsFunc(kept, p.is) {
			continue
		}
		if _, err := c.command(ctx, "sm_partition", "rm", device, p.ID); err != nil {
			return "", err
		}
	}
	id, err := c.addPartition(ctx, device, wanted)
	if err != nil {
		return "", err
	}
	if all, _, err = c.Partitions(ctx); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(all, func(p Partition) bool { return p.is(id) && p.Chunks == wanted }) {
		return "", refuse(backend.Failed, "make a static partition of "+device, name, "it made %s, and does not list it with %d chunks",
			id, wanted)
	}
	return id, nil
}
