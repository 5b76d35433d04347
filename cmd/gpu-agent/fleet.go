package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func newFleet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Write a simulated fleet, to try configurations on",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	spec, platform, force := simulated.Spec{}, "", false
	var models, vms []string
	create := &cobra.Command{
		Use:   "new FILE",
		Short: "Write a fleet file with hosts, GPUs and VMs",
		Long: `new writes a fleet file for the provider's simulated_fleet. The GPUs are models that vendors
document (an unknown name lists them all), with their partition counts and MIG profiles; units,
drivers and addresses are made up. VMs are as Windows makes them, with production checkpoints and
saved when their host stops: a plan says what of that does not go with a GPU.

"8x NAME" is eight: of a model, or of hosts and VMs with a number after the name. --gpus and --vms
are of all hosts; HOST=LIST gives one host a list of its own, and may be repeated.

  gpu-agent fleet new fleet.json --hosts lab01 --gpus A2 --vms desk-01,desk-02:off
  gpu-agent fleet new fleet.json --hosts "4x hv" --gpus "2x A16" --vms "12x avd-" --cluster azl-vdi
  gpu-agent fleet new fleet.json --hosts hv01,hv02 --gpus A2 --gpus hv02=A2,A16 --vms hv01=db-01 --vms "hv02=6x avd-"
  gpu-agent fleet new fleet.json --platform linux --hosts hgx01 --gpus "8x H100 80GB HBM3"`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Platform = gpu.Platform(platform)
			if spec.Platform != gpu.HyperV && spec.Platform != gpu.Linux {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--platform is %q; it must be %s or %s", platform, gpu.HyperV, gpu.Linux)}
			}
			spec.Models, spec.HostModels = byHost(models)
			spec.VMs, spec.HostVMs = byHost(vms)
			fleet, err := spec.Snapshot()
			if err != nil {
				return &codedError{code: exitBadUsage, err: err}
			}
			if _, err := os.Lstat(args[0]); err == nil && !force {
				return fmt.Errorf("%s is there already; --force writes it anew", args[0])
			}
			if _, err := simulated.Create(args[0], fleet); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], sizeText(fleet))
			return nil
		},
	}
	flags := create.Flags()
	flags.StringSliceVar(&spec.Hosts, "hosts", nil, "the hosts' names")
	flags.StringArrayVar(&models, "gpus", nil,
		"the GPUs of each host, a model for each or 8x MODEL; HOST=MODELS is for one host; may be repeated")
	flags.StringArrayVar(&vms, "vms", nil,
		"VMs, dealt out to the hosts in turn, or 8x NAME; NAME:off does not run; HOST=NAMES is for one host; may be repeated")
	flags.BoolVar(&force, "force", false, "write a file that is there already anew")
	flags.StringVar(&spec.Cluster, "cluster", "", "the failover cluster that the hosts are nodes of")
	flags.StringVar(&platform, "platform", string(gpu.HyperV), "hyperv or linux")
	cmd.AddCommand(create)
	return cmd
}

// byHost are the lists of a flag: for all hosts, and for those that a list names.
func byHost(lists []string) (all []string, own map[string][]string) {
	own = map[string][]string{}
	for _, list := range lists {
		host, of, ok := strings.Cut(list, "=")
		if !ok {
			host, of = "", list
		}
		for item := range strings.SplitSeq(of, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			if host = strings.TrimSpace(host); ok {
				own[host] = append(own[host], item)
			} else {
				all = append(all, item)
			}
		}
	}
	return all, own
}

// sizeText is how large a fleet is.
func sizeText(fleet gpu.Snapshot) string {
	least, most, vms := len(fleet.Hosts[0].GPUs), 0, 0
	for i := range fleet.Hosts {
		h := &fleet.Hosts[i]
		least, most, vms = min(least, len(h.GPUs)), max(most, len(h.GPUs)), vms+len(h.VMs)
	}
	each := words.Plural(most, "GPU") + " each"
	if least != most {
		each = fmt.Sprintf("%d to %d GPUs each", least, most)
	}
	return fmt.Sprintf("%s with %s, %s", words.Plural(len(fleet.Hosts), "host"), each, words.Plural(vms, "VM"))
}
