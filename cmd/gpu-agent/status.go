package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

var statusColumns = columns{
	title: "Hosts",
	names: []string{"Host", "Platform", "Agent", "Cluster", "Node", "GPUs", "Free", "VMs", "Claims", "State", "System", "Driver"},
	wide:  []string{"Cluster", "System", "Driver"},
}

func newStatus(o *hostOptions) *cobra.Command {
	r := &reading{host: o}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how this host is, or all hosts of a configuration: who changes it, what is left undone, what cannot be read",
		Long: `status reads the host once, changes nothing, and prints one row for each host: what it is, what
it has, and its state. The state is "ok", or who changes the host now, which changes have not
ended, which VMs a change left off, which records and parts cannot be read, and which files are
out of date. A GPU-P partition that no running VM holds counts as free.

A host that does not answer has a row that says so, and the exit code is 1 then. What a host says
of itself, "ok" or not, is no failure.

  gpu-agent status --config .
  gpu-agent status --config . --filter 'state!=ok'`,
		Args:    usage(cobra.NoArgs),
		PreRunE: func(*cobra.Command, []string) error { return r.check(statusColumns) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			answers, err := readHosts(cmd, r, readInventory)
			if err != nil {
				return err
			}
			silent := unansweredOf(answers)
			document := statusDocument{Format: "gpu-agent-status/v1", Hosts: []hostStatus{}}
			for i := range answers {
				document.Hosts = append(document.Hosts, statusOf(&answers[i]))
			}
			if r.document() {
				err = r.writeDocument(cmd.OutOrStdout(), document)
			} else {
				r.print(cmd.OutOrStdout(), nil, sheet{columns: statusColumns, rows: words.Each(document.Hosts, hostStatus.row)})
			}
			return cmp.Or(err, outcome(silent, len(answers)))
		},
	}
	r.register(cmd.Flags())
	return cmd
}

// statusDocument is what -o json prints.
type statusDocument struct {
	Format string       `json:"format"`
	Hosts  []hostStatus `json:"hosts"`
}

// hostStatus is how one host is.
type hostStatus struct {
	Host     string       `json:"host"`
	Answers  bool         `json:"answers"`
	Platform gpu.Platform `json:"platform,omitempty"`
	System   string       `json:"system,omitempty"`
	Agent    string       `json:"agent_version,omitempty"`
	Drivers  []string     `json:"drivers,omitempty"`
	Cluster  string       `json:"cluster,omitempty"`
	Node     string       `json:"node_state,omitempty"`
	GPUs     int          `json:"gpus"`
	// Free is of partitions, and nil where there are none.
	Free   *int `json:"free_partitions,omitempty"`
	VMs    int  `json:"vms"`
	Claims int  `json:"claims"`
	// State is empty for a host that is as it should be.
	State []string `json:"state"`
}

// statusOf is how a host is that answered, or did not.
func statusOf(a *answer[gpu.Host]) hostStatus {
	h := &a.value
	s := hostStatus{Host: cmp.Or(a.host, h.Name), State: []string{}}
	if a.err != nil {
		s.State = append(s.State, "does not answer: "+a.why())
		return s
	}
	s.Answers, s.Platform, s.System, s.Agent = true, h.Platform, strings.TrimSpace(h.OS.Name+" "+h.OS.Version), a.agent
	s.Drivers, s.Cluster, s.Node = driversOf(h), h.ClusterName(), string(h.NodeState())
	s.GPUs, s.VMs, s.Claims = len(h.GPUs), len(h.VMs), len(h.Claims)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if p := g.Partitionable; p != nil && g.Status == gpu.Partitioned {
			if s.Free == nil {
				s.Free = new(0)
			}
			*s.Free += p.Free()
		}
		if g.Problem != "" {
			s.State = append(s.State, fmt.Sprintf("GPU %s: %s", g.ID, g.Problem))
		}
	}
	s.State = append(s.State, openOf(h)...)
	return s
}

// openOf is what is under way on a host, or was left undone.
func openOf(h *gpu.Host) []string {
	var out []string
	if h.HeldBy != nil {
		out = append(out, h.HeldBy.String())
	}
	for _, subject := range h.Unfinished {
		out = append(out, "a change for "+subject+" was begun and has not ended")
	}
	for _, d := range h.PendingStarts {
		out = append(out, isOffText(d))
	}
	if state := h.NodeState(); state != "" && state != gpu.NodeUp {
		out = append(out, "the node is "+string(state))
	}
	if n := len(h.Unreadable); n > 0 {
		out = append(out, words.Plural(n, "record")+" of the agent cannot be read")
	}
	for _, u := range h.Unknown {
		out = append(out, fmt.Sprintf("%s cannot be read: %s", u.What(), u.Why))
	}
	for _, note := range h.Stale {
		out = append(out, "out of date: "+note)
	}
	return words.Each(out, gpu.Printable)
}

// isOffText says that a change left a VM off.
func isOffText(d gpu.PendingStart) string {
	return fmt.Sprintf("VM %s is off since %s, stopped for %s", named(cmp.Or(d.Name, d.VM)), d.Since.UTC().Format(time.RFC3339), d.Subject)
}

// row is the host's row in the table.
func (s hostStatus) row() []string {
	if !s.Answers {
		return []string{named(s.Host), "", "", "", "", "", "", "", "", strings.Join(s.State, "\n"), "", ""}
	}
	free := ""
	if s.Free != nil {
		free = strconv.Itoa(*s.Free)
	}
	state := "ok"
	if len(s.State) > 0 {
		state = strings.Join(s.State, "\n")
	}
	return []string{
		named(s.Host), string(s.Platform), s.Agent, named(s.Cluster), s.Node, strconv.Itoa(s.GPUs), free, strconv.Itoa(s.VMs),
		strconv.Itoa(s.Claims), state, gpu.Printable(s.System), strings.Join(s.Drivers, ", "),
	}
}
