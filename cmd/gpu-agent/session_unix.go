//go:build !windows

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
)

// leaveSession lets this process outlive the session that started it. It never starts
// another one.
func leaveSession() (done bool, err error) {
	// A hang-up must not end a change. A client that is gone shows as an error of a
	// write; its signal would end the process when the write is to standard output.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	// It fails for the leader of a process group: sshd makes each session's first
	// process one, and that already has a session without a terminal.
	_, _ = syscall.Setsid()
	return false, nil
}

// stdio are standard input and output as files that can be closed while they are read
// or written.
func stdio() (in io.ReadCloser, out io.WriteCloser) {
	return pollable(os.Stdin), pollable(os.Stdout)
}

func pollable(f *os.File) *os.File {
	fd := int(f.Fd())
	if syscall.SetNonblock(fd, true) != nil {
		return f
	}
	return os.NewFile(uintptr(fd), f.Name())
}
