package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
)

// whatReadersMay lists the calls that change nothing. Every other call of the service,
// one that is added later too, must be refused.
var whatReadersMay = []string{"Hello", "Inventory", "Prepare", "Claims", "Utilization", "Journal"}

func TestReadersOnlyRead(t *testing.T) {
	r := newRig(t, nil)
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	conn := connectAs(t, r, func(context.Context) (agent.Role, error) { return agent.Reader, nil })
	before, state := r.look(), r.state()

	for _, method := range rpcs(t) {
		err := call(t, conn, method)
		denied := denied(err)
		if may := slices.Contains(whatReadersMay, string(method.Name())); denied == may {
			t.Errorf("%s as a reader: %v", method.Name(), err)
		}
	}
	wantSame(t, before, r.look())
	if now := r.state(); now.Fence != state.Fence || now.Lease == nil || now.Lease.Run != state.Lease.Run {
		t.Errorf("the lease was %+v and is %+v", state.Lease, now.Lease)
	}

	hello, err := agent.NewClient(conn, host).Hello(t.Context())
	if err != nil || hello.Role != agent.Reader {
		t.Errorf("Hello tells role %q, %v", hello.Role, err)
	}
}

func TestRoleIsAskedForEachCall(t *testing.T) {
	for name, role := range map[string]func(context.Context) (agent.Role, error){
		"none can be told": func(context.Context) (agent.Role, error) {
			return agent.Operator, errors.New("the certificate names no role")
		},
		"none that exists": func(context.Context) (agent.Role, error) { return "admin", nil },
		"none":             func(context.Context) (agent.Role, error) { return "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			conn := connectAs(t, r, role)
			for _, method := range rpcs(t) {
				if err := call(t, conn, method); !denied(err) {
					t.Errorf("%s: %v", method.Name(), err)
				}
			}
		})
	}
}

// connectAs connects to another agent process of the rig's host.
func connectAs(t *testing.T, r *rig, role func(context.Context) (agent.Role, error)) grpc.ClientConnInterface {
	t.Helper()
	conn, err := connect.InProcess(agent.NewServer(r.sim, r.sim, append(r.options(), agent.WithRole(role))...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rpcs are all calls of the service.
func rpcs(t *testing.T) []protoreflect.MethodDescriptor {
	t.Helper()
	var out []protoreflect.MethodDescriptor
	service := agentpb.File_agent_proto.Services().ByName("Agent")
	for i := range service.Methods().Len() {
		out = append(out, service.Methods().Get(i))
	}
	if len(out) <= len(whatReadersMay) {
		t.Fatalf("the service has only the calls %v", out)
	}
	return out
}

// call makes a call with an empty request.
func call(t *testing.T, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor) error {
	t.Helper()
	return callWith(t, conn, method, func(proto.Message) {})
}

// callWith makes a call with a request that begins empty.
func callWith(t *testing.T, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor, fill func(proto.Message)) error {
	t.Helper()
	in, out := message(t, method.Input()), message(t, method.Output())
	fill(in)
	path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	if !method.IsStreamingServer() {
		return conn.Invoke(t.Context(), path, in, out)
	}
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(in), stream.CloseSend()); err != nil {
		return err
	}
	return stream.RecvMsg(out)
}

// denied tells whether a call was refused because of the caller's role.
func denied(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if detail, ok := d.(*agentpb.ErrorDetail); ok {
			var e agent.Error
			return json.Unmarshal(detail.GetError(), &e) == nil && e.Code == agent.Denied
		}
	}
	return false
}

func message(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}
