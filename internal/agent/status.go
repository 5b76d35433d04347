package agent

import (
	"context"
	"encoding/json"
	"errors"

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
	case Internal:
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
// ours comes from the connection.
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
		if json.Unmarshal(detail.GetError(), e) == nil {
			if host != "" {
				e.Host = host
			}
			return e
		}
	}
	e := &Error{Code: Unavailable, Host: host, Message: "the connection to the host failed: " + st.Message(), transport: err}
	switch st.Code() {
	case codes.Canceled:
		e.Code, e.Message, e.transport = Cancelled, "the call was cancelled", context.Canceled
	case codes.DeadlineExceeded:
		e.Message, e.transport = "the host did not answer in time", context.DeadlineExceeded
	case codes.Unimplemented:
		e.Code, e.Message = VersionMismatch, "the agent on the host is too old for this call: "+st.Message()
	case codes.ResourceExhausted:
		e.Code, e.Message = Internal, "an answer is too large: "+st.Message()
	}
	return e
}
