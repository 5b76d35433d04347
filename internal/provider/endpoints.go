package provider

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// simulatedHosts are the hosts of a fleet file, each with an agent inside this
// process. It returns nil when the file cannot be used.
func (p *gpuProvider) simulatedHosts(file string, at path.Path, diags *diag.Diagnostics) map[string]fleet.Endpoint {
	sim, err := simulated.Open(file)
	if err != nil {
		diags.AddAttributeError(at, "Simulated fleet cannot be read", badFile(file, err))
		return nil
	}
	out := map[string]fleet.Endpoint{}
	for _, name := range sim.Hosts() {
		out[name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) {
			h, err := sim.Host(name)
			if err != nil {
				return nil, err
			}
			options := []agent.Option{agent.WithHostName(name), agent.WithVersion(p.version)}
			if p.patience > 0 {
				options = append(options, agent.WithStartPatience(p.patience))
			}
			conn, err := connect.InProcess(agent.NewServer(h, h, options...))
			if err != nil {
				return nil, err
			}
			return p.client(name, conn), nil
		}}
	}
	return out
}

// client speaks with the agent at the other end of a connection.
func (p *gpuProvider) client(name string, conn *connect.Conn) *agent.Client {
	options := []agent.ClientOption{agent.WithClientVersion(p.version), agent.WithHello(conn.Hello)}
	if p.observe == nil {
		return agent.NewClient(conn, name, options...)
	}
	return agent.NewClient(connect.Observed{ClientConnInterface: conn, Call: func(method string) { p.observe(name, method) }}, name,
		options...)
}

// olderAgent is an agent that another version of the provider has brought. A plan makes do
// with it; an apply brings its own.
type olderAgent struct{ *agent.Client }

// ForPlans implements fleet.ForPlans.
func (olderAgent) ForPlans() {}

func badFile(file string, err error) string {
	detail := fmt.Sprintf("File: %s\nFound: %v.", file, words.Capital(err.Error()))
	if errors.Is(err, fs.ErrNotExist) {
		return detail + "\nFix: Correct the path. A relative path starts from the folder in which Terraform runs; " +
			"\"${path.module}/fleet.json\" starts from the module."
	}
	return detail + "\nFix: The guide on simulated fleets describes the file; `gpu_inventory` with include_json writes one."
}
