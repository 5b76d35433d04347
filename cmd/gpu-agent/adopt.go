package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/adopt"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func newAdopt(o *hostOptions) *cobra.Command {
	var asHCL, asJSON bool
	var recorded, name string
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Write the configuration that imports what others made",
		Long: `adopt reads this host, or a fleet recorded with --inventory, and prints an import block and a
resource block for each layout, pool and VM with a GPU that no Terraform state has a record of.
It changes nothing. The plan that follows writes claims and touches no GPU and no VM. What is
claimed already, or is as no configuration can declare it, is in comments.

This is what "terraform query -generate-config-out" of Terraform 1.14 writes, for other versions
and for OpenTofu. The name of this host is as the machine calls itself; --as gives the one that
the provider has for it.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asHCL && asJSON || recorded != "" && name != "" {
				return &codedError{code: exitBadUsage, err: errors.New("--hcl and --json exclude each other, and so do --inventory and --as")}
			}
			hosts, err := o.adoptable(cmd, recorded, name)
			if err != nil {
				return err
			}
			objects, left := adopt.Objects(hosts)
			out := adopt.HCL(objects, left)
			if asJSON {
				if out, err = adopt.JSON(objects, left); err != nil {
					return err
				}
				out = append(out, '\n')
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	cmd.Flags().BoolVar(&asHCL, "hcl", false, "print HCL (the default)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print Terraform's JSON syntax")
	cmd.Flags().StringVar(&recorded, "inventory", "", "a recorded inventory (inventory --json, or inventory_snapshot) instead of this host")
	cmd.Flags().StringVar(&name, "as", "", "the name that the provider has for this host")
	return cmd
}

// adoptable are the hosts to write a configuration for.
func (o *hostOptions) adoptable(cmd *cobra.Command, recorded, name string) (map[string]*gpu.Host, error) {
	var s gpu.Snapshot
	if recorded != "" {
		raw, err := os.ReadFile(recorded)
		if err != nil {
			return nil, err
		}
		if s, err = gpu.ParseSnapshot(raw); err != nil {
			return nil, fmt.Errorf("%s: %w", recorded, err)
		}
	} else {
		client, err := o.client(cmd.Context())
		if err != nil {
			return nil, err
		}
		defer func() { _ = client.Close() }() // in process
		host, err := client.Inventory(cmd.Context())
		if err != nil {
			return nil, err
		}
		if name != "" {
			host.Name = name
		}
		s.Hosts = []gpu.Host{host}
	}
	out := map[string]*gpu.Host{}
	for i := range s.Hosts {
		out[s.Hosts[i].Name] = &s.Hosts[i]
	}
	return out, nil
}
