package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func newFleet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Write a simulated fleet, to try configurations on",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	spec, platform := simulated.Spec{}, ""
	create := &cobra.Command{
		Use:   "new FILE",
		Short: "Write a fleet file with hosts, GPUs and VMs",
		Long: `new writes a fleet file for the provider's simulated_fleet: equal hosts, each with the same
GPUs. The GPUs are models that vendors document (an unknown name lists them all), with their
partition counts and MIG profiles; units, drivers and addresses are made up.

  gpu-agent fleet new fleet.json --hosts lab01 --gpus A2 --vms desk-01,desk-02:off
  gpu-agent fleet new fleet.json --hosts hv01,hv02 --gpus A2,A2 --vms avd-01,avd-02 --cluster azl-vdi
  gpu-agent fleet new fleet.json --platform linux --hosts hgx01 --gpus "H100 80GB HBM3"`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Platform = gpu.Platform(platform)
			if spec.Platform != gpu.HyperV && spec.Platform != gpu.Linux {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--platform is %q; it must be %s or %s", platform, gpu.HyperV, gpu.Linux)}
			}
			fleet, err := spec.Snapshot()
			if err != nil {
				return &codedError{code: exitBadUsage, err: err}
			}
			if _, err := os.Lstat(args[0]); err == nil {
				return fmt.Errorf("%s is there already", args[0])
			}
			if _, err := simulated.Create(args[0], fleet); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d hosts with %d GPUs each, %d VMs\n", args[0], len(spec.Hosts),
				len(spec.Models), len(spec.VMs))
			return nil
		},
	}
	flags := create.Flags()
	flags.StringSliceVar(&spec.Hosts, "hosts", nil, "the hosts' names")
	flags.StringSliceVar(&spec.Models, "gpus", nil, "the GPUs of each host, a model for each")
	flags.StringSliceVar(&spec.VMs, "vms", nil, "VMs, dealt out to the hosts in turn; NAME:off does not run")
	flags.StringVar(&spec.Cluster, "cluster", "", "the failover cluster that the hosts are nodes of")
	flags.StringVar(&platform, "platform", string(gpu.HyperV), "hyperv or linux")
	cmd.AddCommand(create)
	return cmd
}
