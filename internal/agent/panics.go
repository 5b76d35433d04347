package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
)

// recovered makes a panic an error of what was being done: a mistake of the agent must not
// end what else it does, nor keep it from putting back what it has begun.
func recovered(doing string, err *error) {
	if p := recover(); p != nil {
		slog.Error("a mistake of the agent", "doing", doing, "panic", p, "stack", string(debug.Stack()))
		*err = &Error{Code: Internal, Message: fmt.Sprintf(
			"the agent made a mistake: could not %s (%v); please report it, with what the agent wrote to its log", doing, p)}
	}
}

func recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	defer func() { err = toStatusOnce(err) }()
	defer recovered("answer "+info.FullMethod, &err)
	return handle(ctx, req)
}

func recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func() { err = toStatusOnce(err) }()
	defer recovered("answer "+info.FullMethod, &err)
	return handle(srv, stream)
}

// toStatusOnce is toStatus for what may be one already.
func toStatusOnce(err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // as recovered made it
		return toStatus(e)
	}
	return err
}
