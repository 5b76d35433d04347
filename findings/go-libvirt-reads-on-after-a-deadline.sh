#!/usr/bin/env bash
# go-libvirt v0.0.0-20261013170128-efbbdf578ac8 (github.com/digitalocean/go-libvirt).
#
# Behaviour: the library has no contexts, so that one sets a deadline on the net.Conn that its dialer gives it. When that
# passes, the call does not return: the reader takes the error for one that passes, since net.OpError.Temporary is true of a
# timeout, and reads again at once. The call hangs for good, and the process keeps a core busy until somebody closes the
# connection. Closed instead of given a deadline, the call returns: "procedure interrupted while awaiting response".
#
# Why it matters: a daemon that accepts and does not answer, as systemd's socket does at boot, stops whoever asks it.
#
# It needs Go and the module proxy, and no libvirt. It installs nothing.
set -euo pipefail
version=v0.0.0-20261013170128-efbbdf578ac8
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
cd "$at"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
)

// returns tells whether a call to a silent daemon returns within 3 seconds when end is done after 200 ms.
func returns(end func(net.Conn)) bool {
	here, daemon, err := pair()
	if err != nil {
		panic(err)
	}
	defer here.Close()
	defer daemon.Close()
	end(here)
	done := make(chan error, 1)
	go func() { done <- libvirt.NewWithDialer(dialers.NewAlreadyConnected(here)).Connect() }()
	select {
	case err := <-done:
		fmt.Println("  the call returned:", err)
		return true
	case <-time.After(3 * time.Second):
		return false
	}
}

func pair() (net.Conn, net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	daemon, err := l.Accept()
	return here, daemon, err
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func main() {
	const after = 200 * time.Millisecond
	before := cpu()
	hangs := !returns(func(c net.Conn) { c.SetDeadline(time.Now().Add(after)) })
	spent := cpu() - before
	fmt.Printf("with a deadline: hangs %t, CPU in 3 s: %s\n", hangs, spent)
	closed := returns(func(c net.Conn) { time.AfterFunc(after, func() { c.Close() }) })
	if !hangs || spent < 300*time.Millisecond || !closed {
		os.Exit(1)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get "github.com/digitalocean/go-libvirt@$version" >/dev/null 2>&1 || { echo "the module cannot be fetched"; exit 2; }
go mod tidy >/dev/null 2>&1
if go run . ; then
  echo 'as found: a deadline does not end a call, and a close does'
else
  echo 'a deadline ends a call now, or a close does not'
  exit 1
fi
