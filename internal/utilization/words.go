package utilization

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// span prints a time as people say it: "2 s", "90 min", "14 days".
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Minute:
		return strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + " s"
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 2*day:
		return fmt.Sprintf("%.0f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/day.Hours())
}

// percent prints a part, and never rounds something to all or to nothing.
func percent(part float64) string {
	switch n := math.Round(part * 100); {
	case part > 0 && n == 0:
		return "less than 1 %"
	case part < 1 && n == 100:
		return "99 %"
	default:
		return fmt.Sprintf("%.0f %%", n)
	}
}

// named is how many processes are named before the rest is counted.
const named = 3

func names(processes []gpu.Process) string {
	var out []string
	for i := range processes {
		if i == named {
			out = append(out, fmt.Sprintf("%d more", len(processes)-named))
			break
		}
		p := &processes[i]
		text := fmt.Sprintf("%s (PID %d", cmp.Or(p.Name, "a process"), p.PID)
		if p.Holder != "" {
			text += ", " + p.Holder
		}
		out = append(out, text+")")
	}
	return words.JoinAll(out)
}

// hold says that processes have memory.
func hold(u *Use) string {
	return fmt.Sprintf("%s %s of its %s of memory", words.Verb(len(u.Processes), "holds", "hold"), u.MemoryUsed, u.MemoryTotal)
}

// MemoryText is how much of the memory is used, "not known" where the driver does not tell it, as of a GPU
// that shares the system's.
func (u *Use) MemoryText() string {
	if u.MemoryTotal == 0 {
		return "not known"
	}
	return fmt.Sprintf("%s of %s", u.MemoryUsed, u.MemoryTotal)
}
