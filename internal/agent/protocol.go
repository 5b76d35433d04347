package agent

import (
	"fmt"

	"google.golang.org/grpc"
)

// Protocol is the version of the contract that this build speaks.
const Protocol = 1

// Hello says who answers at the other end.
type Hello struct {
	Protocol     int
	AgentVersion string
	Platform     string
	HostName     string
	// Role is what the host lets this caller do.
	Role Role
}

// StepProgress tells that a step begins.
type StepProgress struct {
	Index int // from 1
	Total int
	Text  string // "shut down VM avd-01"
	Undo  bool   // the step puts something back
}

// ServerOptions are the gRPC options that a server of this contract needs. A server
// that stops waits for its changes: they finish or undo what they began.
func ServerOptions() []grpc.ServerOption {
	return append(requestLimits(),
		grpc.MaxSendMsgSize(maxReplySize),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(recoverUnary),
		grpc.ChainStreamInterceptor(recoverStream))
}

// DialOptions are the gRPC options that a client of this contract needs.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReplySize)),
		grpc.WithMaxHeaderListSize(maxReplyHeader),
	}
}

func mismatch(client int, clientVersion string, server int, serverVersion string) *Error {
	return &Error{Kind: VersionMismatch, Message: fmt.Sprintf(
		"the client (version %s) speaks protocol %d, but the agent on the host (version %s) speaks protocol %d; install matching versions",
		clientVersion, client, serverVersion, server)}
}
