package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// newRoot is the command line.
func newRoot() *cobra.Command {
	o := &hostOptions{}
	root := &cobra.Command{
		Use:   "gpu-agent",
		Short: "Works on the GPUs of this host for the Terraform provider gpu",
		Long: `gpu-agent reads and changes the GPU partitions, pools and assignments of one host.

Terraform starts it through SSH when it needs it (serve --stdio), or it runs as a
service (serve --listen). The other commands are for people.

Exit codes: 0 success, 1 failure, 2 the host differs (assert) or something was found
(check), 64 wrong use.`,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          onlyCommands,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			var flags []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name) })
			err = fmt.Errorf("%w%s", err, orNearest(unknown.GetSpecifiedName(), flags))
		}
		return &codedError{code: exitBadUsage, err: err}
	})
	o.register(root.PersistentFlags())
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return o.complete(root.PersistentFlags()) }
	root.AddCommand(newServe(o), newInventory(o), newAdopt(o), newUtilization(o), newAssert(o), newClaims(o),
		newRecords(o), newStatus(o), newWatch(o), newReconcile(o), newVM(o), newHost(o), newMPS(o), newSelftest(o),
		newRecord(), newMap(), newExplain(), newFleet(), newInit(), newCheck(), newFit(), newVersion())
	root.AddCommand(platformCommands()...)
	refuseUnknown(root)
	return root
}

// refuseUnknown makes a word that is no command wrong use everywhere; cobra prints the help
// of what is above it, and succeeds.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch {
		case c.Name() == "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				above, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = onlyCommands(above, rest)
				}
				return err
			}
		case !c.Runnable():
			c.Args, c.RunE = cobra.ArbitraryArgs, onlyCommands
		}
	}
}

// onlyCommands runs a command that only has others below it.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	known := words.Each(cmd.Commands(), func(c *cobra.Command) string { return c.Name() })
	return &codedError{code: exitBadUsage, err: fmt.Errorf("there is no command %q%s", args[0], orNearest(args[0], known))}
}

// orNearest ends an error about a command line with what may have been meant.
func orNearest(name string, among []string) string {
	near := words.Nearest(name, among)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near[:min(len(near), words.Offered)], " or ") + "?"
}

// usage checks the arguments of a command and says wrong use by its exit code.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if f.Value.Type() == "stringSlice" {
					err = fmt.Errorf("%w; several values of --%s are separated by commas", err, f.Name)
				}
			})
			return &codedError{code: exitBadUsage, err: err}
		}
		return nil
	}
}

// versionText is what the agent says of itself.
func versionText() string {
	return fmt.Sprintf("%s, protocol %d, %s/%s, %s", version, agent.Protocol, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the protocol and the platform",
		Args:  usage(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), "gpu-agent", versionText())
		},
	}
}

// fromEnvironment gives flags that were not set their value from GPU_AGENT_<NAME>.
func fromEnvironment(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		key := "GPU_AGENT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		value := os.Getenv(key)
		if value == "" || flags.Changed(name) {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return &codedError{code: exitBadUsage, err: fmt.Errorf("%s: %w", key, err)}
		}
	}
	return nil
}
