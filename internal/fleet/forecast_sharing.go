package fleet

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// sharingText says what becomes of a GPU's modes and of the MPS daemons that serve it.
func sharingText(c *rules.SharingChange) string {
	var parts []string
	if c.ComputeTo != "" {
		parts = append(parts, "compute mode "+string(c.ComputeFrom)+" → "+string(c.ComputeTo))
	}
	if c.SliceTo != "" {
		parts = append(parts, "time slice "+string(c.SliceFrom)+" → "+string(c.SliceTo))
	}
	verbs := map[rules.DaemonAction]string{
		rules.DaemonStarts: "is started", rules.DaemonRestarts: "is started again", rules.DaemonEnds: "ends",
	}
	for _, d := range c.Daemons {
		text := "MPS daemon " + d.Name + " " + verbs[d.Action]
		if len(d.Clients) > 0 {
			text += ", which ends its clients: " + strings.Join(d.Clients, ", ")
		}
		parts = append(parts, text)
	}
	if len(c.InTheWay) > 0 {
		parts = append(parts, "in the way: "+strings.Join(c.InTheWay, ", "))
	}
	return strings.Join(parts, "; ")
}
