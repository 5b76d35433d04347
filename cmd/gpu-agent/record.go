package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// recorder asks agents on other hosts what these have, through OpenSSH's client: its
// configuration, keys and known hosts are those of whoever records.
type recorder struct {
	ssh       string
	options   []string
	agentPath string
}

func newRecord() *cobra.Command {
	r, list, out := recorder{}, "", ""
	config := configHosts{}
	cmd := &cobra.Command{
		Use:   "record NAME=DESTINATION...",
		Short: "Record the inventories of a fleet's hosts, to plan against",
		Long: `record asks the agent of each host for its inventory, as a reader, and writes all of them to one
file for the provider's inventory_snapshot. NAME is what the provider calls the host, and
DESTINATION is for ssh: a host, user@host, or an alias of its configuration. A key that is
limited to "gpu-agent serve --stdio --role reader" suffices. Nothing is written unless every
host answers: a fleet that lacks a host is another fleet.

With --config, the hosts are those of the block provider "gpu" of a folder with configuration,
each reached as the provider reaches it, but by the reader of --user, --key and --cert. Variables
have their defaults, or the values of terraform.tfvars, *.auto.tfvars, TF_VAR_ and --var-file. What
comes from resources or data sources, only Terraform knows.

  gpu-agent record --out recorded.json hv01=hv01.example.com hv02=hv02.example.com
  gpu-agent record --out recorded.json --hosts hosts.txt -o IdentityFile=~/.ssh/reader
  gpu-agent record --out recorded.json --config . --key ~/.ssh/reader`,
		Args: usage(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			var hosts []target
			var err error
			switch {
			case config.dir == "":
				hosts, err = r.destinations(list, args)
			case list != "" || len(args) > 0:
				err = errors.New("--config names the hosts: leave out --hosts and NAME=DESTINATION")
			default:
				hosts, err = config.targets()
			}
			if err != nil {
				return &codedError{code: exitBadUsage, err: err}
			}
			s, err := record(cmd.Context(), hosts)
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
	config.register(flags)
	return cmd
}

// destinations are the hosts of a file and of the command line.
func (r recorder) destinations(file string, args []string) ([]target, error) {
	if !connect.ValidAgentPath(r.agentPath) {
		return nil, fmt.Errorf("--agent-path is %q, which a remote shell would not take for one file", r.agentPath)
	}
	var out []target
	add := func(name, address string, ok bool, text string) error {
		name, address = strings.TrimSpace(name), strings.TrimSpace(address)
		switch {
		case !ok || name == "" || address == "" || strings.ContainsAny(address, " \t") || address[0] == '-':
			return fmt.Errorf("%q is no host; NAME=DESTINATION is wanted, and NAME DESTINATION in a file", text)
		case slices.ContainsFunc(out, func(t target) bool { return gpu.SameID(t.name, name) }):
			return fmt.Errorf("host %s is named twice", name)
		}
		out = append(out, r.overSSH(name, address))
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

// overSSH asks through OpenSSH's client.
func (r recorder) overSSH(name, address string) target {
	args := []string{"-T"}
	for _, o := range append(slices.Clone(r.options), "BatchMode=yes") { // the first of two counts
		args = append(args, "-o", o)
	}
	args = append(args, "--", address, r.agentPath+" serve --stdio --role reader")
	return target{name, func(ctx context.Context) (*connect.Conn, error) {
		return connect.Process(ctx, name, connect.Command{Path: r.ssh, Args: args}, connect.Options{Version: version})
	}}
}

// record asks every host. Its error names each that does not answer.
func record(ctx context.Context, hosts []target) (gpu.Snapshot, error) {
	s := gpu.Snapshot{Format: gpu.SnapshotFormat}
	var errs []error
	for _, a := range askAll(ctx, hosts, readInventory) {
		if a.err == nil {
			a.value.Name = a.host
			a.err = s.Record(a.value, time.Now(), a.agent)
		}
		errs = append(errs, a.err)
	}
	slices.SortFunc(s.Hosts, func(a, b gpu.Host) int { return strings.Compare(a.Name, b.Name) })
	if err := errors.Join(errs...); err != nil {
		if _, wrong := errors.AsType[*misconfiguredError](err); wrong {
			err = &codedError{code: exitBadUsage, err: err}
		}
		return s, err
	}
	return s, s.Validate()
}
