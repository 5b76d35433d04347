package mps

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// Protocol is how a control daemon is spoken to and configured.
type Protocol = gpu.MPSProtocol

// Protocols.
const (
	V2 = gpu.MPSProtocol2
	V3 = gpu.MPSProtocol3
)

// ProtocolOf is the protocol for daemons of a driver, by its version ("550.163.01").
func ProtocolOf(driver string) Protocol { return gpu.Driver{Version: driver}.MPSProtocol() }
