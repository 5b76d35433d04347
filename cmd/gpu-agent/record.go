package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// recordedAtOnce is how many hosts are asked at the same time.
const recordedAtOnce = 16

// recorder asks agents on other hosts what these have, through OpenSSH's client: its
// configuration, keys and known hosts are those of whoever records.
type recorder struct {
	ssh       string
	options   []string
	agentPath string
}

func newRecord() *cobra.Command {
	r, list, out := recorder{}, "", ""
	cmd := &cobra.Command{
		Use:   "record NAME=DESTINATION...",
		Short: "Record the inventories of a fleet's hosts, to plan against",
		Long: `record asks the agent of each host for its inventory, as a reader, and writes all of them to one
file for the provider's inventory_snapshot. NAME is what the provider calls the host, and
DESTINATION is for ssh: a host, user@host, or an alias of its configuration. A key that is
limited to "gpu-agent serve --stdio --role reader" suffices. Nothing is written unless every
host answers: a fleet that lacks a host is another fleet.

  gpu-agent record --out recorded.json hv01=hv01.example.com hv02=hv02.example.com
  gpu-agent record --out recorded.json --hosts hosts.txt -o IdentityFile=~/.ssh/reader`,
		Args: usage(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			hosts, err := destinations(list, args)
			if err != nil {
				return &codedError{code: exitBadUsage, err: err}
			}
			if !connect.ValidAgentPath(r.agentPath) {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--agent-path is %q, which a remote shell would not take for one file", r.agentPath)}
			}
			s, err := r.record(cmd.Context(), hosts)
			if err != nil {
				return err
			}
			if out == "" {
				return writeJSON(cmd.OutOrStdout(), s)
			}
			var text bytes.Buffer
			if err := writeJSON(&text, s); err != nil {
				return err
			}
			if err := os.WriteFile(out, text.Bytes(), 0o600); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d hosts\n", out, len(s.Hosts))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&list, "hosts", "", "a file with a line NAME DESTINATION for each host; lines with # are comments")
	flags.StringVar(&out, "out", "", "the file to write; standard output without it")
	flags.StringArrayVarP(&r.options, "option", "o", nil, "an option for ssh, as in its configuration; may be repeated")
	flags.StringVar(&r.ssh, "ssh", "ssh", "OpenSSH's client")
	flags.StringVar(&r.agentPath, "agent-path", "gpu-agent", "where the agent is on the hosts")
	return cmd
}

// destination is how a host is reached.
type destination struct{ name, address string }

// destinations are the hosts of a file and of the command line.
func destinations(file string, args []string) ([]destination, error) {
	var out []destination
	add := func(name, address string, ok bool, text string) error {
		name, address = strings.TrimSpace(name), strings.TrimSpace(address)
		switch {
		case !ok || name == "" || address == "" || strings.ContainsAny(address, " \t") || address[0] == '-':
			return fmt.Errorf("%q is no host; NAME=DESTINATION is wanted, and NAME DESTINATION in a file", text)
		case slices.ContainsFunc(out, func(d destination) bool { return gpu.SameID(d.name, name) }):
			return fmt.Errorf("host %s is named twice", name)
		}
		out = append(out, destination{name, address})
		return nil
	}
	if file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			text, _, _ := strings.Cut(line, "#")
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			name, address, ok := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
			if err := add(name, address, ok, text); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	for _, arg := range args {
		name, address, ok := strings.Cut(arg, "=")
		if err := add(name, address, ok, arg); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no host is named; see gpu-agent help record")
	}
	return out, nil
}

// record asks every host. Its error names each that does not answer.
func (r recorder) record(ctx context.Context, hosts []destination) (gpu.Snapshot, error) {
	s := gpu.Snapshot{Format: gpu.SnapshotFormat}
	errs := make([]error, len(hosts))
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(recordedAtOnce)
	for i, d := range hosts {
		g.Go(func() error {
			host, by, err := r.ask(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				err = s.Record(host, time.Now(), by)
			}
			errs[i] = err
			return nil
		})
	}
	_ = g.Wait() // errs has them
	slices.SortFunc(s.Hosts, func(a, b gpu.Host) int { return strings.Compare(a.Name, b.Name) })
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	return s, s.Validate()
}

// ask asks one host, and tells which version of the agent answered.
func (r recorder) ask(ctx context.Context, d destination) (gpu.Host, string, error) {
	args := []string{"-T"}
	for _, o := range append(slices.Clone(r.options), "BatchMode=yes") { // the first of two counts
		args = append(args, "-o", o)
	}
	args = append(args, "--", d.address, r.agentPath+" serve --stdio --role reader")
	conn, err := connect.Process(ctx, d.name, connect.Command{Path: r.ssh, Args: args}, connect.Options{Version: version})
	if err != nil {
		return gpu.Host{}, "", err
	}
	defer func() { _ = conn.Close() }() // it was only read from
	client := agent.NewClient(conn, d.name, agent.WithClientVersion(version), agent.WithHello(conn.Hello))
	host, err := client.Inventory(ctx)
	if err != nil {
		return gpu.Host{}, "", fmt.Errorf("%s: %w", d.name, err)
	}
	host.Name = d.name
	return host, client.Agent().AgentVersion, nil
}
