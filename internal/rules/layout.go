package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

func checkValidPartitionCount(r *run) {
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	// GPUs of one model and driver accept the same counts: one finding for them all.
	refused := map[string][]member{}
	offers := map[string]string{}
	var unable, silent []member
	for host, h := range r.HostsAtHand(c.GPUs) {
		for g := range whatif.Selected(h, c.GPUs[host]) {
			m := member{host: host, gpu: g}
			switch p := g.Partitionable; {
			case h.Platform == gpu.Linux: // kind-on-platform says that it is of no use there
			case g.Dismounted || (p != nil && p.Paravirtual):
				// dda-xor-partition and gpu-not-paravirtual say it better.
			case p == nil:
				unable = append(unable, m)
			case len(p.ValidCounts) == 0:
				if p.Count != c.Count {
					silent = append(silent, m)
				}
			case !slices.Contains(p.ValidCounts, c.Count):
				k := g.Model + "\x00" + fmt.Sprint(p.ValidCounts)
				refused[k] = append(refused[k], m)
				offers[k] = validCounts(g)
			}
		}
	}
	wanted := fmt.Sprintf("%s wants %s on each GPU.", r.label(), plural(c.Count, "partition"))
	for _, k := range whatif.SortedKeys(refused) {
		r.reportGPUs(Finding{
			Path:  "gpu_p.partition_count",
			Title: "The GPU does not accept this partition count",
			Found: fmt.Sprintf("%s %s these partition counts only: %s.", capital(r.gpuList(refused[k])), verb(len(refused[k]), "accepts", "accept"),
				offers[k]),
			Wanted: wanted,
			Fix: "Write one of these counts, as in `gpu_p = { partition_count = " +
				strconv.Itoa(nearest(refused[k][0].gpu.Partitionable.ValidCounts, c.Count)) + " }`.",
		}, "count "+strconv.Itoa(c.Count), refused[k])
	}
	r.reportGPUs(Finding{
		Path:  "gpu_p.partition_count",
		Title: "The partition counts of the GPU are not known",
		Found: fmt.Sprintf("The host does not tell which partition counts %s %s.", r.gpuList(silent),
			verb(len(silent), "accepts", "accept")),
		Wanted: wanted,
		Fix: "Look for the reason on the host with `gpu-agent selftest`, write the count that the GPU has, or leave the GPU out of " +
			"`selector`.",
	}, "counts unknown", silent)
	r.reportGPUs(Finding{
		Path:   "selector",
		Title:  "The GPU cannot be partitioned",
		Found:  fmt.Sprintf("The driver of %s offers no partitions.", r.gpuList(unable)),
		Wanted: wanted,
		Fix: "Install the vendor's driver for virtualization hosts (NVIDIA vGPU host driver) and enable SR-IOV in the firmware, or leave " +
			"the GPU out of `selector`.",
	}, "unable", unable)
}

// validCounts lists the counts that a GPU accepts with the memory that each gives
// to a partition.
func validCounts(g *gpu.GPU) string {
	p := g.Partitionable
	out := make([]string, len(p.ValidCounts))
	for i, n := range slices.Sorted(slices.Values(p.ValidCounts)) {
		out[i] = strconv.Itoa(n)
		if size := p.EstimatedPartitionVRAM(n); size > 0 {
			about := "about "
			if n == p.Count {
				about = ""
			}
			out[i] += " (" + about + size.String() + " each)"
		}
	}
	return strings.Join(out, ", ")
}

// nearest is the valid count that is closest to the wanted one.
func nearest(counts []int, want int) int {
	return slices.MinFunc(counts, func(a, b int) int {
		return cmp.Or(cmp.Compare(abs(a-want), abs(b-want)), cmp.Compare(a, b))
	})
}

func abs(n int) int { return max(n, -n) }

func checkNotParavirtual(r *run) {
	switch w := r.Plan.Want; {
	case w.Config != nil:
		for host, h := range r.HostsAtHand(w.Config.GPUs) {
			for g := range whatif.Selected(h, w.Config.GPUs[host]) {
				reportParavirtual(r, host, g, "selector")
			}
		}
	case w.Assignment != nil && w.Assignment.Partition != nil && w.Assignment.Partition.PinnedGPU != "":
		if at, ok := r.Locate(w.Assignment); ok {
			if g, has := at.Host.GPU(w.Assignment.Partition.PinnedGPU); has {
				reportParavirtual(r, at.Key, g, "partition.gpu_id")
			}
		}
	}
}

func reportParavirtual(r *run, host string, g *gpu.GPU, path string) {
	if g.Partitionable == nil || !g.Partitionable.Paravirtual {
		return
	}
	r.report(Finding{
		Path:  path,
		Title: "The GPU supports paravirtualization only",
		Host:  host,
		GPU:   g.ID,
		Found: fmt.Sprintf("%s is shared by paravirtualization (GPU-PV): its driver can partition, but SR-IOV is not enabled on the server.",
			capital(gpuOn(host, g))),
		Wanted: fmt.Sprintf("%s needs real partitions (GPU-P).", r.label()),
		Fix: "Enable SR-IOV and the IOMMU in the server's firmware and install the vendor's driver for virtualization hosts, or leave this " +
			"GPU out.",
	})
}

func checkVRAMMatchesPartition(r *run) {
	a := r.Plan.Want.Assignment
	if a == nil || a.Partition == nil {
		return
	}
	checkQuotaOrder(r, a.Partition.Quotas)
	at, ok := r.Locate(a)
	if !ok || at.Host.Platform == gpu.Linux { // where capacity is of vGPUs of that size
		return
	}
	for _, host := range r.chosenOn(at) {
		slots := r.Future().Choices(at, a.Partition, host)
		if want := a.Partition.VRAM; want != nil && checkAssertedVRAM(r, at, host, slots, *want) {
			break
		}
	}
	checkQuotaVRAM(r, at, r.Future().Choices(at, a.Partition, at.Key), a.Partition.Quotas.VRAM)
}

// checkAssertedVRAM asks it of every GPU that Hyper-V may choose, and tells whether it found
// another size.
func checkAssertedVRAM(r *run, at whatif.Located, host string, slots []whatif.Slot, want gpu.Bytes) bool {
	for _, s := range slots {
		size, exact := s.Size()
		switch {
		case size == 0:
			r.report(Finding{
				Path: "partition.vram_mib", Title: "The partition's size is not known", Host: host, GPU: s.GPU.ID, VM: at.VM.Name,
				Found:  fmt.Sprintf("The host does not tell how much memory a partition of %s has.", gpuOn(host, s.GPU)),
				Wanted: fmt.Sprintf("%s asserts partitions of %d MiB.", r.label(), want.MiB()),
				Fix:    "Leave `vram_mib` out, or name a config or a GPU whose partitions have a known size.",
			})
			return true
		case exact && size.MiB() == want.MiB():
			continue
		case !exact && whatif.Within(size, want, whatif.EstimateTolerance):
			continue
		}
		fix := fmt.Sprintf("Write `vram_mib = %d`, leave it out, or choose another `partition_count` in the config.", size.MiB())
		if slices.ContainsFunc(slots, func(o whatif.Slot) bool { return !o.Likeness(s) }) {
			fix += " Of GPUs of several sizes, name the config that has the wanted ones in `config`."
		}
		r.report(Finding{
			Path:   "partition.vram_mib",
			Title:  "The partition has another size",
			Host:   host,
			GPU:    s.GPU.ID,
			VM:     at.VM.Name,
			Found:  fmt.Sprintf("%s with %s gives each %s.", gpuOn(host, s.GPU), plural(s.Count, "partition"), sizeText(size, exact)),
			Wanted: fmt.Sprintf("%s asserts partitions of %d MiB.", r.label(), want.MiB()),
			Fix:    fix,
		})
		return true
	}
	return false
}

func sizeText(size gpu.Bytes, exact bool) string {
	if exact {
		return fmt.Sprintf("%d MiB", size.MiB())
	}
	return fmt.Sprintf("about %d MiB (an estimate, since hosts report the present count only)", size.MiB())
}

func checkQuotaVRAM(r *run, at whatif.Located, slots []whatif.Slot, q gpu.Quota) {
	var most uint64
	for _, v := range []*uint64{q.Min, q.Optimal, q.Max} {
		if v != nil {
			most = max(most, *v)
		}
	}
	for _, s := range slots {
		size, exact := s.Size()
		limit := size
		if !exact {
			limit += size / 100 * whatif.EstimateTolerance
		}
		if most == 0 || size == 0 || gpu.Bytes(most) <= limit {
			continue
		}
		r.reportVM(at, Finding{
			Path:   "partition",
			Title:  "The memory quota exceeds the partition's size",
			GPU:    s.GPU.ID,
			Found:  fmt.Sprintf("%s with %s gives each %s.", gpuOn(at.Key, s.GPU), plural(s.Count, "partition"), sizeText(size, exact)),
			Wanted: fmt.Sprintf("%s asks for a quota of %d MiB; the VM would not start.", r.label(), gpu.Bytes(most).MiB()),
			Fix:    fmt.Sprintf("Leave the VRAM quotas out, which gives the whole partition, or write at most %d MiB.", size.MiB()),
		}, key("quota vram", at.Key, s.GPU.ID))
		return
	}
}

func checkQuotaOrder(r *run, q gpu.Quotas) {
	for _, of := range []struct {
		name  string
		quota gpu.Quota
	}{{"VRAM", q.VRAM}, {"encode", q.Encode}, {"decode", q.Decode}, {"compute", q.Compute}} {
		if above(of.quota.Min, of.quota.Optimal) || above(of.quota.Optimal, of.quota.Max) || above(of.quota.Min, of.quota.Max) {
			text := number
			if of.name == "VRAM" {
				text = mebibytes
			}
			r.report(Finding{
				Path:  "partition",
				Title: "Quotas out of order",
				VM:    whatif.VMWritten(r.Plan.Want.Assignment),
				Found: fmt.Sprintf("The %s quotas are minimum %s, optimal %s, maximum %s.", of.name, text(of.quota.Min),
					text(of.quota.Optimal), text(of.quota.Max)),
				Wanted: "The minimum must be at most the optimal, and the optimal at most the maximum.",
				Fix:    "Put the three values in this order, or leave some of them out.",
			}, key("quota order", of.name))
		}
	}
}

func above(a, b *uint64) bool { return a != nil && b != nil && *a > *b }

func mebibytes(n *uint64) string {
	if n == nil {
		return "unset"
	}
	return strconv.FormatInt(gpu.Bytes(*n).MiB(), 10) + " MiB"
}

func number(n *uint64) string {
	if n == nil {
		return "unset"
	}
	return strconv.FormatUint(*n, 10)
}
