package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// hostOptions say which host this is and where it keeps its state.
type hostOptions struct {
	backend, fleet, host, stateDir string
	role                           leastRole
}

// leastRole is a flag that only narrows: given more than once, or on the command line and
// in the environment, the least of the roles counts. Whoever sets one of them, in a forced
// command, a unit or sshd's SetEnv, can rely on it.
type leastRole agent.Role

func (l *leastRole) String() string { return string(*l) }

func (l *leastRole) Set(s string) error {
	role := agent.Role(s)
	if !role.Valid() {
		return fmt.Errorf("it is %q and must be %s or %s", s, agent.Operator, agent.Reader)
	}
	if *l != leastRole(agent.Reader) {
		*l = leastRole(role)
	}
	return nil
}

func (l *leastRole) Type() string { return "string" }

func (o *hostOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.backend, "backend", platform, "the platform: hyperv, nvidia or simulated (GPU_AGENT_BACKEND)")
	flags.StringVar(&o.fleet, "fleet", "", "fleet file of the simulated backend (GPU_AGENT_FLEET)")
	flags.StringVar(&o.host, "host", "", "host of the fleet file (GPU_AGENT_HOST)")
	flags.StringVar(&o.stateDir, "state-dir", "", "directory for claims, lease and journal; "+statedir.DefaultDir()+
		" without it, the fleet file with a simulated host (GPU_AGENT_STATE_DIR)")
	o.role = leastRole(agent.Operator)
	flags.Var(&o.role, "role", "what the caller may do: operator or reader; what else gives a role can only narrow it (GPU_AGENT_ROLE)")
}

func (o *hostOptions) complete(flags *pflag.FlagSet) error {
	if role := os.Getenv("GPU_AGENT_ROLE"); role != "" { // also beside the flag
		if err := o.role.Set(role); err != nil {
			return &codedError{code: exitBadUsage, err: fmt.Errorf("GPU_AGENT_ROLE: %w", err)}
		}
	}
	return fromEnvironment(flags, "backend", "fleet", "host", "state-dir")
}

// open opens the platform and the agent's store.
func (o *hostOptions) open(ctx context.Context) (backend.Backend, backend.Store, error) {
	switch o.backend {
	case "simulated":
		return o.openSimulated()
	case platform:
		dir := cmp.Or(o.stateDir, statedir.DefaultDir())
		store, err := statedir.Open(dir)
		if err != nil {
			return nil, nil, err
		}
		declared, err := declaredControllers(dir)
		if err != nil {
			return nil, nil, err
		}
		host, err := openPlatform(ctx, declared)
		return host, store, err
	}
	known := "simulated"
	if platform != "" {
		known = platform + " and simulated"
	}
	return nil, nil, &codedError{code: exitBadUsage, err: fmt.Errorf("--backend is %q; this build has only: %s", o.backend, known)}
}

func (o *hostOptions) openSimulated() (backend.Backend, backend.Store, error) {
	if o.fleet == "" {
		return nil, nil, &codedError{code: exitBadUsage, err: errors.New("--backend simulated needs --fleet FILE")}
	}
	fleet, err := simulated.Open(o.fleet)
	if err != nil {
		return nil, nil, err
	}
	name := o.host
	if name == "" {
		names := fleet.Hosts()
		if len(names) != 1 {
			return nil, nil, &codedError{
				code: exitBadUsage, err: fmt.Errorf("%s has the hosts %v; --host NAME says which of them this is", o.fleet, names),
			}
		}
		name = names[0]
		o.host = name
	}
	host, err := fleet.Host(name)
	if err != nil {
		return nil, nil, err
	}
	if o.stateDir == "" {
		return host, host, nil
	}
	store, err := statedir.Open(o.stateDir)
	if err != nil {
		return nil, nil, err
	}
	if declared, err := declaredControllers(o.stateDir); err != nil || len(declared) > 0 {
		return nil, nil, cmp.Or(err, fmt.Errorf("%s declares controllers, and a simulated host has no processes to look for: "+
			"write them as `controllers` of host %q in %s, and take the file away", filepath.Join(o.stateDir, controllersName), name, o.fleet))
	}
	return host, store, nil
}

// name is what this host is called, once it was opened.
func (o *hostOptions) name() string {
	if o.backend == "simulated" {
		return o.host
	}
	return hostname()
}

// hostname is what this machine calls itself, "" where it does not say.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// server makes the agent of this host.
func (o *hostOptions) server(ctx context.Context, opts ...agent.Option) (*agent.Server, error) {
	b, store, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	role := func(context.Context) (agent.Role, error) { return agent.Role(o.role), nil }
	return agent.NewServer(b, store,
		append([]agent.Option{agent.WithHostName(hostname()), agent.WithVersion(version), agent.WithRole(role)}, opts...)...), nil
}

// withClient runs a command that speaks with the agent of this host.
func (o *hostOptions) withClient(run func(*cobra.Command, *agent.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := o.client(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }() // in process
		return run(cmd, client, args)
	}
}

// client speaks with the agent in this process, through the same contract as a
// provider.
func (o *hostOptions) client(ctx context.Context) (*agent.Client, error) {
	server, err := o.server(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := connect.InProcess(server)
	if err != nil {
		return nil, err
	}
	return agent.NewClient(conn, "", agent.WithClientVersion(version)), nil
}
