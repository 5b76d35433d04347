package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
)

// Protocol is the newest version of the contract that this build speaks, OldestProtocol the
// oldest. A field that is new and is left out when it is not used needs no new version: an
// agent that does not know it refuses the changes that use it, and no others.
const (
	Protocol       = 1
	OldestProtocol = 1
)

// Hello says who answers at the other end.
type Hello struct {
	// Protocol is the newest that both ends speak; 0 when nobody asked, since both ends are
	// this build.
	Protocol     int
	AgentVersion string
	Platform     string
	HostName     string
	// Role is what the host lets this caller do.
	Role Role
	// Capabilities are what the agent knows of a Change: its fields, and their values.
	Capabilities []string
}

// Lacks lists what this build can ask for in a Change and the agent does not know: changes
// that use it, it refuses.
func (h Hello) Lacks() []string {
	if h.Protocol == 0 {
		return nil
	}
	knows := make(map[string]bool, len(h.Capabilities))
	for _, c := range h.Capabilities {
		knows[c] = true
	}
	var out []string
	for _, c := range knownChange().All() {
		if !knows[c] && !slices.ContainsFunc(out, func(o string) bool { return document.Inside(c, o) }) {
			out = append(out, c)
		}
	}
	return out
}

// Asks lists what a change uses, in the words of capabilities.
func Asks(ch Change) []string {
	used, _ := knownChange().Used(ch) // a change can be written
	return used
}

// knownChange is what this build knows of a change.
var knownChange = sync.OnceValue(document.Of[Change])

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
		grpc.MaxSendMsgSize(largestReply.bytes),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(recoverUnary, strictUnary),
		grpc.ChainStreamInterceptor(recoverStream, strictStream))
}

// DialOptions are the gRPC options that a client of this contract needs.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestReply.bytes)),
		grpc.WithMaxHeaderListSize(maxReplyHeader),
	}
}

// protocols is a range of versions of the contract.
type protocols struct{ oldest, newest int }

func (p protocols) String() string {
	if p.oldest == p.newest {
		return fmt.Sprintf("protocol %d", p.newest)
	}
	return fmt.Sprintf("protocols %d to %d", p.oldest, p.newest)
}

// spoken is the range of this build.
var spoken = protocols{oldest: OldestProtocol, newest: Protocol}

// agree finds the newest version that two ends speak.
func agree(client protocols, clientVersion string, agent protocols, agentVersion string) (int, error) {
	common := min(client.newest, agent.newest)
	if common >= client.oldest && common >= agent.oldest {
		return common, nil
	}
	older, version := "the agent", clientVersion
	if client.newest < agent.newest {
		older, version = "the client", agentVersion
	}
	return 0, &Error{Code: VersionMismatch, Message: fmt.Sprintf(
		"the client (version %s) speaks %s, but the agent on the host (version %s) speaks %s; upgrade %s to version %s",
		clientVersion, client, agentVersion, agent, older, version)}
}

// readStrictly reads a document of a request.
func (s *Server) readStrictly(what string, doc []byte, into any) error {
	err := document.Read(doc, into)
	if unknown, ok := errors.AsType[*document.UnknownError](err); ok {
		return s.unknown(what, unknown.Names())
	}
	if err != nil {
		return &Error{Code: BadRequest, Message: fmt.Sprintf("the %s cannot be read: %v", what, err)}
	}
	return nil
}

// unknown is the error of a request that asks for more than this agent knows of. To leave it
// out could be to leave out what protects somebody.
func (s *Server) unknown(what, fields string) error {
	return &Error{Code: VersionMismatch, Message: fmt.Sprintf(
		"this agent (version %s) does not know %s of the %s; upgrade it", s.version, fields, what)}
}

// checkFields refuses a request with fields that this agent does not know.
func checkFields(server, req any) error {
	m, isProto := req.(proto.Message)
	if _, hello := req.(*agentpb.HelloRequest); !isProto || hello {
		return nil
	}
	rest := m.ProtoReflect().GetUnknown()
	s, ok := server.(*service)
	if len(rest) == 0 || !ok {
		return nil
	}
	var fields []string
	for len(rest) > 0 {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			break
		}
		fields, rest = append(fields, fmt.Sprintf("field %d", number)), rest[n:]
	}
	return toStatus(s.server.unknown(string(m.ProtoReflect().Descriptor().Name()), strings.Join(fields, ", ")))
}

func strictUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := checkFields(info.Server, req); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

func strictStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, strictRequests{ServerStream: stream, server: server})
}

// strictRequests is a call whose requests are checked as they come.
type strictRequests struct {
	grpc.ServerStream
	server any
}

// RecvMsg implements grpc.ServerStream.
func (s strictRequests) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return checkFields(s.server, m)
}
