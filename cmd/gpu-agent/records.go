package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func newRecords(o *hostOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "records",
		Short: "Show records that this agent cannot read, or give one up",
		Long: `The agent records claims, its lease and changes that are not settled. One that is damaged,
or that a newer agent wrote, is kept as it is, and until it can be read or is given up
nothing on this host is changed. records lists such records; it exits with 1 if there are any.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.server(cmd.Context())
			if err != nil {
				return err
			}
			unreadable, err := server.UnreadableRecords(cmd.Context())
			if err != nil {
				return err
			}
			if len(unreadable) == 0 {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), "all records can be read")
				return nil
			}
			showUnreadable(cmd.OutOrStdout(), words.Each(unreadable, func(r backend.Unreadable) gpu.UnreadableRecord { return r.UnreadableRecord }))
			return &codedError{code: exitFailed}
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "show ID",
		Short: "Print a record that cannot be read as it is",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.server(cmd.Context())
			if err != nil {
				return err
			}
			unreadable, err := server.UnreadableRecords(cmd.Context())
			if err != nil {
				return err
			}
			for _, r := range unreadable {
				if r.ID == args[0] {
					return printRecord(cmd.OutOrStdout(), r)
				}
			}
			return fmt.Errorf("there is no record %s that cannot be read", args[0])
		},
	}, newDropRecord(o))
	return cmd
}

func newDropRecord(o *hostOptions) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop ID",
		Short: "Give up a record that cannot be read",
		Long: `drop gives up one record that cannot be read, and prints it. What it stood for stays as it
is: after a claim, import the object again; after a change that was cut off, look at the VMs
that it concerned, since nothing will start those that it had stopped. The state file as it
was is kept beside the new one.

Rather than that, install the agent that wrote the record, or restore the state file from a
backup.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.mayWrite("records drop"); err != nil {
				return err
			}
			if !yes {
				return &codedError{
					code: exitBadUsage, err: errors.New("what a record stood for is not known any more without it; --yes says that you mean it"),
				}
			}
			server, err := o.server(cmd.Context())
			if err != nil {
				return err
			}
			dropped, err := server.DropRecord(cmd.Context(), args[0], leaseWait)
			if err != nil {
				return err
			}
			return printRecord(cmd.OutOrStdout(), dropped)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func printRecord(out io.Writer, r backend.Unreadable) error {
	_, err := out.Write(append(r.Raw, '\n'))
	return err
}

// showUnreadable lists what the agent cannot read.
func showUnreadable(out io.Writer, records []gpu.UnreadableRecord) {
	list(out, "\nRecords that cannot be read", table.Row{"Id", "Record", "File", "Found", "Written by"},
		records, func(r gpu.UnreadableRecord) table.Row {
			return table.Row{r.ID, r.Record, r.File, r.Found, r.Agent}
		})
}

// incomplete is the error of a list that lacks what the agent cannot read.
func incomplete(records []gpu.UnreadableRecord) error {
	if len(records) == 0 {
		return nil
	}
	unreadable := func(r gpu.UnreadableRecord) backend.Unreadable { return backend.Unreadable{UnreadableRecord: r} }
	return &backend.UnreadableError{Records: words.Each(records, unreadable)}
}
