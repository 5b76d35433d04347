package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// layoutFormat marks a wanted layout.
const layoutFormat = "gpu-layout/v1"

// layout is what assert compares: how the GPUs of a host are shared.
type layout struct {
	Format string       `json:"format"`
	GPUs   []gpuLayout  `json:"gpus"`
	Pools  []poolLayout `json:"pools"`
}

type gpuLayout struct {
	ID string `json:"id"`
	// PartitionCount is nil where it does not matter.
	PartitionCount *int  `json:"partition_count,omitempty"`
	Dismounted     *bool `json:"dismounted,omitempty"`
}

type poolLayout struct {
	Name string   `json:"name"`
	GPUs []string `json:"gpus"`
}

func newAssert(o *hostOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "assert FILE",
		Short: "Tell whether the host has a wanted layout",
		Long: `assert compares the host with a wanted layout and changes nothing. Exit code 0: it has
the layout; 2: it has not, and the difference is printed; 1: it could not be found out.

FILE is a layout, of which only what it names is compared:

  {
    "format": "gpu-layout/v1",
    "gpus":  [{ "id": "PCIROOT(16)#PCI(0000)#PCI(0000)", "partition_count": 4 }],
    "pools": [{ "name": "render", "gpus": ["PCIROOT(17)#PCI(0000)#PCI(0000)"] }]
  }

or a snapshot ("gpu-agent inventory --json"), of which this host's partition counts,
dismounted devices and pools are compared.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.client(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }() // in process
			host, err := client.Inventory(cmd.Context())
			if err != nil {
				return err
			}
			want, err := readLayout(args[0], host.Name)
			if err != nil {
				return err
			}
			diff := want.differs(&host)
			if len(diff) == 0 {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "host %s has the layout\n", host.Name)
				return nil
			}
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(diff, "\n"))
			return &codedError{code: exitDiffers}
		},
	}
}

func readLayout(file, host string) (layout, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return layout{}, err
	}
	var l layout
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("%s is not a layout: %w", file, err)
	}
	switch l.Format {
	case layoutFormat:
		return l, l.check(file)
	case gpu.SnapshotFormat:
		s, err := gpu.ParseSnapshot(data)
		if err != nil {
			return l, fmt.Errorf("%s: %w", file, err)
		}
		for i := range s.Hosts {
			if gpu.SameID(s.Hosts[i].Name, host) {
				return layoutOf(&s.Hosts[i]), nil
			}
		}
		return l, fmt.Errorf("the snapshot %s has no host %s", file, host)
	}
	return l, fmt.Errorf("%s has the format %q; it must be %s or %s", file, l.Format, layoutFormat, gpu.SnapshotFormat)
}

func (l layout) check(file string) error {
	for _, g := range l.GPUs {
		if g.ID == "" {
			return fmt.Errorf("%s: a GPU has no id", file)
		}
	}
	for _, p := range l.Pools {
		if p.Name == "" {
			return fmt.Errorf("%s: a pool has no name", file)
		}
	}
	if len(l.GPUs)+len(l.Pools) == 0 {
		return errors.New(file + " names neither a GPU nor a pool, so there is nothing to compare")
	}
	return nil
}

func layoutOf(h *gpu.Host) layout {
	var l layout
	for i := range h.GPUs {
		g := gpuLayout{ID: h.GPUs[i].ID, Dismounted: &h.GPUs[i].Dismounted}
		if p := h.GPUs[i].Partitionable; p != nil {
			g.PartitionCount = &p.Count
		}
		l.GPUs = append(l.GPUs, g)
	}
	for _, p := range h.Pools {
		l.Pools = append(l.Pools, poolLayout{Name: p.Name, GPUs: p.GPUs})
	}
	return l
}

// differs lists what the host has otherwise: "-" is the host, "+" what is wanted.
func (l layout) differs(h *gpu.Host) []string {
	var out []string
	line := func(what string, has, wanted any) {
		out = append(out, fmt.Sprintf("%s\n- %v\n+ %v", what, has, wanted))
	}
	for _, want := range l.GPUs {
		g, ok := h.GPU(want.ID)
		if !ok {
			line("GPU "+want.ID, "not on this host", "there")
			continue
		}
		if want.PartitionCount != nil {
			switch {
			case g.Partitionable == nil:
				line("GPU "+g.ID+": partition_count", "cannot be partitioned now", *want.PartitionCount)
			case g.Partitionable.Count != *want.PartitionCount:
				line("GPU "+g.ID+": partition_count", g.Partitionable.Count, *want.PartitionCount)
			}
		}
		if want.Dismounted != nil && g.Dismounted != *want.Dismounted {
			line("GPU "+g.ID+": dismounted", g.Dismounted, *want.Dismounted)
		}
	}
	for _, want := range l.Pools {
		p, ok := h.Pool(want.Name)
		if !ok {
			line("pool "+want.Name, "no such pool", sorted(want.GPUs))
		} else if has, wanted := sorted(p.GPUs), sorted(want.GPUs); !strings.EqualFold(has, wanted) {
			line("pool "+p.Name, has, wanted)
		}
	}
	slices.Sort(out)
	return out
}

func sorted(ids []string) string {
	return strings.Join(slices.Sorted(slices.Values(ids)), ", ")
}
