package mps

import (
	"strconv"
	"strings"
)

// Protocol is how a control daemon is spoken to and configured.
type Protocol int

// Protocols.
const (
	// V2 takes commands on standard input.
	V2 Protocol = 2
	// V3 takes a configuration file at its start and commands as arguments.
	V3 Protocol = 3
)

// firstV3 is the driver branch whose daemon knows protocol 3.
const firstV3 = 615

// ProtocolOf is the protocol for daemons of a driver, by its version ("550.163.01").
func ProtocolOf(driver string) Protocol {
	branch, _, _ := strings.Cut(driver, ".")
	if n, err := strconv.Atoi(branch); err == nil && n >= firstV3 {
		return V3
	}
	return V2
}
