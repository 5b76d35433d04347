package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/migparted"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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
	// MIG is the mode and the instances with their places, and VGPU the same of vGPUs; nil where
	// they do not matter.
	MIG         *gpu.MIGState   `json:"mig,omitempty"`
	VGPU        *gpu.VGPUState  `json:"vgpu,omitempty"`
	ComputeMode gpu.ComputeMode `json:"compute_mode,omitempty"`
	TimeSlice   gpu.TimeSlice   `json:"time_slice,omitempty"`
}

type poolLayout struct {
	Name string   `json:"name"`
	GPUs []string `json:"gpus"`
}

func newAssert(o *hostOptions) *cobra.Command {
	var label string
	cmd := &cobra.Command{
		Use:   "assert FILE",
		Short: "Tell whether the host has a wanted layout",
		Long: `assert compares the host with a wanted layout and changes nothing. Exit code 0: it has
the layout; 2: it has not, and the difference is printed; 1: it could not be found out.

FILE is a layout, of which all that it names is compared, and nothing else; what was
compared is printed, and a field that assert does not know is an error:

  {
    "format": "gpu-layout/v1",
    "gpus":  [{ "id": "PCIROOT(16)#PCI(0000)#PCI(0000)", "partition_count": 4 }],
    "pools": [{ "name": "render", "gpus": ["PCIROOT(17)#PCI(0000)#PCI(0000)"] }]
  }

or, of a GPU with MIG, "mig": { "enabled": true, "placements": [{ "profile": "3g.40gb",
"start": 0 }] }; "vgpu", "compute_mode" and "time_slice" are as in a snapshot. FILE may also
be a snapshot ("gpu-agent inventory --json"), of which this host's partition counts, MIG
instances, vGPUs, compute modes, time slices, dismounted devices and pools are compared, or
a configuration of nvidia-mig-parted, of which --label says what is wanted.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: o.withClient(func(cmd *cobra.Command, client *agent.Client, args []string) error {
			host, err := client.Inventory(cmd.Context())
			if err != nil {
				return err
			}
			diff, compared, err := compare(args[0], label, &host)
			if err != nil {
				return err
			}
			if len(diff) == 0 {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "host %s has the layout; compared: %s\n", host.Name, compared)
				return nil
			}
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(diff, "\n"))
			return &codedError{code: exitDiffers}
		}),
	}
	cmd.Flags().StringVar(&label, "label", "", "which label of a mig-parted configuration is wanted")
	return cmd
}

// compare lists what a host has otherwise than a file says, and says what it compared.
func compare(file, label string, host *gpu.Host) (diff []string, compared string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	if label != "" {
		config, err := migparted.Parse(data)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
		if len(host.GPUs) == 0 {
			return nil, "", fmt.Errorf("host %s has no GPU, so there is nothing to compare", host.Name)
		}
		diff, err := migparted.Diff(host, config, label)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
		return diff, "MIG of " + words.Plural(len(host.GPUs), "GPU"), nil
	}
	want, err := readLayout(file, data, host.Name)
	if err != nil {
		if _, isMIGParted := migparted.Parse(data); isMIGParted == nil {
			return nil, "", &codedError{
				code: exitBadUsage, err: fmt.Errorf("%s is a configuration of mig-parted: say with --label which of its labels is wanted", file),
			}
		}
		return nil, "", err
	}
	diff, compared = want.differs(host)
	return diff, compared, nil
}

func readLayout(file string, data []byte, host string) (layout, error) {
	var l layout
	if err := document.ReadKnown(data, &l, nil); err != nil {
		return l, fmt.Errorf("%s is not a layout: %w", file, err)
	}
	switch l.Format {
	case layoutFormat:
		if err := document.Read(data, &l); err != nil {
			return l, fmt.Errorf("%s: %w; see gpu-agent help assert", file, err)
		}
		return l, l.check(file)
	case gpu.SnapshotFormat:
		s, err := gpu.ParseSnapshot(data)
		if err != nil {
			return l, fmt.Errorf("%s: %w", file, err)
		}
		for i := range s.Hosts {
			if gpu.SameID(s.Hosts[i].Name, host) {
				l := layoutOf(&s.Hosts[i])
				return l, l.check(file)
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
		if g == (gpuLayout{ID: g.ID}) {
			return fmt.Errorf("%s: of GPU %s nothing is named, so there is nothing to compare", file, g.ID)
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
		is := h.GPUs[i].Layout()
		g.MIG, g.VGPU, g.ComputeMode, g.TimeSlice = is.MIG, is.VGPU, is.ComputeMode, is.TimeSlice
		l.GPUs = append(l.GPUs, g)
	}
	for _, p := range h.Pools {
		l.Pools = append(l.Pools, poolLayout{Name: p.Name, GPUs: p.GPUs})
	}
	return l
}

// differs lists what the host has otherwise ("-" is the host, "+" what is wanted), and what was
// compared.
func (l layout) differs(h *gpu.Host) (out []string, compared string) {
	counts, kinds := map[string]int{}, []string{}
	count := func(what string) {
		if counts[what]++; counts[what] == 1 {
			kinds = append(kinds, what)
		}
	}
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
			count("partition count")
			switch {
			case g.Partitionable == nil:
				line("GPU "+g.ID+": partition_count", "cannot be partitioned now", *want.PartitionCount)
			case g.Partitionable.Count != *want.PartitionCount:
				line("GPU "+g.ID+": partition_count", g.Partitionable.Count, *want.PartitionCount)
			}
		}
		is := g.Layout()
		text := func(what, has, wanted string) {
			if count(what); has != wanted {
				line("GPU "+g.ID+": "+what, has, wanted)
			}
		}
		if want.MIG != nil {
			text("mig", hostMIGText(g), migText(want.MIG, nil))
		}
		if want.VGPU != nil {
			text("vgpu", vgpuText(is.VGPU), vgpuText(want.VGPU))
		}
		if want.ComputeMode != "" {
			text("compute_mode", string(is.ComputeMode), string(want.ComputeMode))
		}
		if want.TimeSlice != "" {
			text("time_slice", string(is.TimeSlice), string(want.TimeSlice))
		}
		if want.Dismounted != nil {
			count("dismounted")
		}
		if want.Dismounted != nil && g.Dismounted != *want.Dismounted {
			line("GPU "+g.ID+": dismounted", g.Dismounted, *want.Dismounted)
		}
	}
	for _, want := range l.Pools {
		count("pool")
		p, ok := h.Pool(want.Name)
		if !ok {
			line("pool "+want.Name, "no such pool", sorted(want.GPUs))
		} else if has, wanted := sorted(p.GPUs), sorted(want.GPUs); !strings.EqualFold(has, wanted) {
			line("pool "+p.Name, has, wanted)
		}
	}
	slices.Sort(out)
	for i, what := range kinds {
		kinds[i] = fmt.Sprintf("%s (%d)", what, counts[what])
	}
	return out, words.JoinAll(kinds)
}

// migText is the mode and the instances of a GPU, by start, where each may have a note.
func migText(s *gpu.MIGState, notes map[gpu.MIGPlacement]string) string {
	switch {
	case s == nil:
		return "no MIG"
	case !s.Enabled:
		return "off"
	}
	var out []string
	for _, p := range slices.SortedFunc(slices.Values(s.Placements), func(a, b gpu.MIGPlacement) int { return a.Start - b.Start }) {
		out = append(out, fmt.Sprintf("%s at %d%s", p.Profile, p.Start, notes[p]))
	}
	if len(out) == 0 {
		return "on, without instances"
	}
	return strings.Join(out, ", ")
}

// hostMIGText is migText of a host's GPU, and why an instance is not whole. What is inside of
// those that vGPUs live in is their guests'.
func hostMIGText(g *gpu.GPU) string {
	if g.MIG == nil {
		return migText(nil, nil)
	}
	notes := map[gpu.MIGPlacement]string{}
	for i := range g.MIG.Instances {
		if in := &g.MIG.Instances[i]; !in.Filled() && (g.VGPU == nil || len(g.VGPU.Instances) == 0) {
			notes[in.Placement()] = " (" + in.ComputeText() + ")"
		}
	}
	return migText(new(g.MIG.State()), notes)
}

// vgpuText is the modes and the vGPUs of a GPU.
func vgpuText(s *gpu.VGPUState) string {
	if s == nil {
		return "no vGPUs"
	}
	var out []string
	counts := gpu.VGPUCounts(s.Places)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d x %s", counts[name], name))
	}
	if s.FunctionsOn {
		out = append(out, "virtual functions on")
	}
	if s.Heterogeneous {
		out = append(out, "heterogeneous")
	}
	return strings.Join(out, ", ")
}

func sorted(ids []string) string {
	return strings.Join(slices.Sorted(slices.Values(ids)), ", ")
}
