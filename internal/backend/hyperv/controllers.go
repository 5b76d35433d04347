package hyperv

import (
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// service is one of Windows that manages VMs or GPUs, and whose it is.
type service struct {
	name, of string
	role     gpu.ControllerRole
}

// services are those that are known (assumption hyperv-other-services). Azure Local has its own on every node: nothing there tells
// whether Azure sets partition counts too, which people declare.
var services = []service{
	{"SCVMMAgent", "Virtual Machine Manager", gpu.BrokerController},
	{"wssdagent", "Azure Local VMs", gpu.BrokerController},
}

// controllers finds the services that run, of those that are known and those that people declared,
// which count first.
func (r *reader) controllers(ctx context.Context) error {
	var known []service
	for name, role := range r.declared {
		known = append(known, service{name: name, role: role})
	}
	known = append(known, services...)
	var where []string
	for _, s := range known {
		where = append(where, "Name="+literal(s.name))
	}
	rows, err := r.wmi.Query(ctx, CIMv2, "SELECT * FROM Win32_Service WHERE "+strings.Join(where, " OR "), "Name", "State")
	if err != nil {
		return err
	}
	for _, row := range rows {
		i := slices.IndexFunc(known, func(s service) bool { return strings.EqualFold(s.name, row.String("Name")) })
		if i < 0 || row.String("State") != serviceRunning {
			continue
		}
		c := gpu.Controller{Name: known[i].name, Role: known[i].role}
		if of := known[i].of; of != "" {
			c.Name += " (" + of + ")"
		}
		r.host.Controllers = append(r.host.Controllers, c)
	}
	slices.SortFunc(r.host.Controllers, func(a, b gpu.Controller) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// serviceRunning is Win32_Service.State of a service that runs.
const serviceRunning = "Running"
