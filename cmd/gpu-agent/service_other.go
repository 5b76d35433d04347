//go:build !windows

package main

import (
	"context"

	"github.com/spf13/cobra"
)

// asService is for Windows; elsewhere a service is a process like any other.
func asService(func(context.Context) int) (code int, ran bool) { return 0, false }

func platformCommands() []*cobra.Command { return nil }
