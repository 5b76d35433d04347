package connect

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// Registrar is a service that can be put on a gRPC server, such as *agent.Server.
type Registrar interface {
	Register(r grpc.ServiceRegistrar)
}

// pipeSize is how much one end may write before the other has read. A connection keeps two of
// them, and a simulated fleet has a connection for each host: with pipes of 64 KiB and gRPC's own
// buffers they were two thirds of what 10,000 assignments on 1,000 hosts held.
const pipeSize = 4 << 10

// InProcess serves in this process and connects to it through memory. Closing the
// connection waits until the server has ended what it was doing: a change in flight is
// put back.
func InProcess(services ...Registrar) (*Conn, error) {
	listener := bufconn.Listen(pipeSize)
	server := grpc.NewServer(append(agent.ServerOptions(), grpc.ReadBufferSize(0))...)
	for _, s := range services {
		s.Register(server)
	}
	go func() { _ = server.Serve(listener) }() // ends with Close; a failure shows at the client

	stop := func() error { server.Stop(); return nil }
	raw, err := listener.Dial()
	if err == nil {
		var conn *Conn
		if conn, err = newConn(newLink(raw), stop, grpc.WithReadBufferSize(0)); err == nil {
			return conn, nil
		}
	}
	server.Stop()
	return nil, fmt.Errorf("could not connect in process: %w", err)
}
