package gpuutilization

import (
	"fmt"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// total sums up all GPUs.
func total(read []reading) totalsModel {
	out := totalsModel{Hosts: int64(len(read))}
	var used, all gpu.Bytes
	unknown := 0
	for i := range read {
		for j := range read[i].gpus {
			f := &read[i].gpus[j].figures
			out.GPUs++
			out.Allocated += f.Allocated
			used += f.MemoryUsed
			all += f.MemoryTotal
			if f.Idle != nil && *f.Idle {
				out.Idle++
			}
			if part := f.Used(); part != nil {
				out.Used += *part
			} else {
				unknown++
			}
			if f.MIG != nil {
				out.Unallocatable += int64(f.MIG.Unallocatable)
			}
		}
	}
	out.Allocated, out.Used = object.Round(out.Allocated), object.Round(out.Used)
	out.MemoryUsedMiB, out.MemoryTotalMiB = used.MiB(), all.MiB()
	memory := ""
	if all > 0 { // else no driver tells it
		memory = fmt.Sprintf(", with %s of %s of memory", used, all)
	}
	out.Summary = fmt.Sprintf("Of %d GPUs on %d hosts %s are allocated and %s were used%s; %d were idle.",
		out.GPUs, out.Hosts, tenths(out.Allocated), tenths(out.Used), memory, out.Idle)
	if unknown > 0 {
		out.Summary += fmt.Sprintf(" What was used of %d of them was not measured.", unknown)
	}
	if out.Unallocatable > 0 {
		out.Summary += fmt.Sprintf(" %d free memory slices are of no use to any MIG profile.", out.Unallocatable)
	}
	return out
}

func tenths(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }
