//go:build !windows

package main

import "github.com/spf13/cobra"

// platformCommands are for Windows; elsewhere a service is a process like any other.
func platformCommands() []*cobra.Command { return nil }
