package mps_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// static is a declared daemon whose clients compute in static partitions, on a GPU of 16 chunks.
func static() mpsconf.Spec {
	return mpsconf.Spec{Name: "static", Devices: []string{gpu1}, User: new(0), StaticPartitions: true}
}

func (h *host) partition(percentage float64, have string, kept ...string) string {
	h.t.Helper()
	id, err := h.Partition(h.t.Context(), "static", percentage, have, kept, true)
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// sizes are the chunks of the daemon's partitions.
func (h *host) sizes() (out []int) {
	h.t.Helper()
	all, _, err := h.control("static").Partitions(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, p := range all {
		out = append(out, p.Chunks)
	}
	return out
}

func wantSizes(t *testing.T, h *host, want ...int) {
	t.Helper()
	if got := h.sizes(); !slices.Equal(got, want) {
		t.Errorf("the partitions have the sizes %v, want %v", got, want)
	}
}

// TestPartitions are of whole chunks, kept while they are as wanted, and make room for others when
// nobody has them or computes in them.
func TestPartitions(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{Driver: 590, GPU: true}, nil)
	h.ensure(static())
	h.settled(static())
	half, third := h.partition(50, ""), ""
	if again := h.partition(50, half); again != half {
		t.Errorf("a partition that was there is %s, and was %s", again, half)
	}
	third = h.partition(33, "", half)
	wantSizes(t, h, 8, 5) // 33 % of 16 chunks
	if !strings.HasPrefix(half, gpu1+"/") || half == third {
		t.Fatalf("they are %s and %s", half, third)
	}
	// To ask makes nothing.
	for want, have := range map[string]string{mps.NoPartition: "", half: half} {
		if id, err := h.Partition(t.Context(), "static", 50, have, []string{third}, false); err != nil || id != want {
			t.Errorf("of %q it says %q, %v", have, id, err)
		}
	}
	// One that a process computes in stays when its share gets another, which then needs room.
	client := h.programs.StartProcess("trainer", 0, "CUDA_MPS_PIPE_DIRECTORY="+h.PipeDir("static"), "CUDA_MPS_SM_PARTITION="+half).Computes(t)
	small := h.partition(12.5, half, third)
	wantSizes(t, h, 8, 5, 2)
	_, err := h.Partition(t.Context(), "static", 25, small, []string{third}, true)
	refused(t, err, backend.Insufficient, "static partition of "+gpu1, "Failed to fulfill the requested SM partition of 4 chunks")
	client.Stop()
	eventually(t, func() bool { return len(h.daemon("static").Clients) == 0 })
	h.partition(25, small, third)
	wantSizes(t, h, 5, 4)
	_, err = h.Partition(t.Context(), "static", 6, "", nil, true)
	refused(t, err, backend.InvalidParameter, "6 % is less than a chunk", "it has 16", "ask for 6.3 % at least")
}

// TestPartitionsEndWithTheirDaemon, which is started anew to have any, or none.
func TestPartitionsEndWithTheirDaemon(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{Driver: 590, GPU: true}, nil)
	h.ensure(static())
	before := h.partition(50, "")
	h.kill("static")
	h.ensure(static())
	if now := h.partition(50, before); now == before {
		t.Errorf("the next daemon has the partition %s", now)
	}
	plain := static()
	plain.StaticPartitions = false
	if why := h.planned(plain, mps.Restart).Why; !strings.Contains(why, "static partitions") {
		t.Errorf("it is started again, because %s", why)
	}
	h.ensure(plain)
	if id, err := h.Partition(t.Context(), "static", 50, before, nil, true); err != nil || id != "" {
		t.Errorf("a daemon without partitions has %q, %v", id, err)
	}
	h.settled(plain)
}

// TestPartitionsOfAnOldDriver fail where the daemon is started, with nothing left.
func TestPartitionsOfAnOldDriver(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{Driver: 580, GPU: true}, nil)
	_, err := h.Ensure(t.Context(), static(), mps.KeepClients)
	refused(t, err, backend.Failed, "perhaps this driver's MPS has no static partitions")
	h.nothingLeft("static")
}
