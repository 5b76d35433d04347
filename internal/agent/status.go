package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
)

// grpc is the nearest gRPC code, for tools that know only those. Our own ends read
// the detail.
func (c Code) grpc() codes.Code {
	switch c {
	case RuleViolation, Refused, Unannounced, VersionMismatch, Unreadable:
		return codes.FailedPrecondition
	case LeaseHeld, StaleFence, HostChanged, StepFailed:
		return codes.Aborted
	case NotOwner, Denied:
		return codes.PermissionDenied
	case Cancelled:
		return codes.Canceled
	case Unavailable:
		return codes.Unavailable
	case BadRequest:
		return codes.InvalidArgument
	case Internal, BadReply:
		return codes.Internal
	}
	return codes.Unknown
}

// toStatus makes an error of the server a gRPC status with the error as its detail.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		e = failure("answer", err)
	}
	st := status.New(e.Code.grpc(), e.Error())
	detailed, err := st.WithDetails(&agentpb.ErrorDetail{Error: document.Encode(e)})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}

// fromStatus makes a gRPC status the server's error again. What has no detail of
// ours comes from the connection, or from something that is no agent.
func fromStatus(host string, err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		detail, ok := d.(*agentpb.ErrorDetail)
		if !ok {
			continue
		}
		e := &Error{}
		if over := largestReply.exceeded(detail.GetError()); over != "" {
			return &Error{Code: BadReply, Host: host, Message: "the error of the host is larger than any: it has " + over, transport: err}
		}
		if json.Unmarshal(detail.GetError(), e) == nil {
			if host != "" {
				e.Host = host
			}
			e.say()
			return e
		}
	}
	text := said(st.Message())
	e := &Error{
		Code: BadReply, Host: host, Message: fmt.Sprintf("the host answers with an error that no agent gives, %s: %q", st.Code(), text),
		transport: err,
	}
	switch st.Code() {
	case codes.Unavailable:
		e.Code, e.Message = Unavailable, "the connection to the host failed: "+text
	case codes.Canceled:
		e.Code, e.Message, e.transport = Cancelled, "the call was cancelled", context.Canceled
	case codes.DeadlineExceeded:
		e.Code, e.Message, e.transport = Unavailable, "the host did not answer in time", context.DeadlineExceeded
	case codes.Unimplemented:
		e.Code, e.Message = VersionMismatch, "the agent on the host is too old for this call: "+text
	case codes.ResourceExhausted:
		e.Message = "the answer is larger than any host's: " + text
	default:
	}
	return e
}
