package connect

import (
	"context"
	"io"
	"path"

	"google.golang.org/grpc"
)

// Observed is a connection that tells of each call.
type Observed struct {
	grpc.ClientConnInterface
	// Call hears the method's name, such as "Inventory".
	Call func(method string)
}

// Invoke implements grpc.ClientConnInterface.
func (o Observed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	o.Call(path.Base(method))
	return o.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (o Observed) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	o.Call(path.Base(method))
	return o.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// Close closes the connection underneath.
func (o Observed) Close() error {
	if c, ok := o.ClientConnInterface.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
