package provider_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// serveOlderAgent serves a host of the rig's fleet, by an agent of version 0.9.0 that does not
// know some fields of a change, and returns where. asked counts the changes that had one all
// the same.
func serveOlderAgent(r *rig.Rig, c certificates, host string, unknown ...string) (address string, asked func() int) {
	r.T.Helper()
	pem := func(file string) []byte {
		data, err := os.ReadFile(file)
		r.Must(err)
		return data
	}
	own, err := tls.X509KeyPair(pem(c.cert), pem(c.key))
	r.Must(err)
	sim, err := r.Fleet.Host(host)
	r.Must(err)
	n := 0
	server := grpc.NewServer(append(agent.ServerOptions(),
		grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13})),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if p, ok := req.(*agentpb.PrepareRequest); ok && slices.ContainsFunc(unknown, func(u string) bool {
				return bytes.Contains(p.GetChange(), []byte(`"`+u[strings.LastIndex(u, ".")+1:]+`":`))
			}) {
				n++
			}
			reply, err := handle(ctx, req)
			if hello, ok := reply.(*agentpb.HelloReply); ok {
				hello.Capabilities = slices.DeleteFunc(slices.Clone(hello.GetCapabilities()),
					func(c string) bool { return slices.Contains(unknown, c) })
			}
			return reply, err
		}))...)
	agent.NewServer(sim, sim, agent.WithHostName(host), agent.WithVersion("0.9.0")).Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens at once
	r.Must(err)
	go func() { _ = server.Serve(listener) }()
	r.T.Cleanup(server.Stop)
	return listener.Addr().String(), func() int { return n }
}

// TestFleetIsUpgradedHostByHost: a plan that asks an older agent for what it does not know is an
// error that names host and agent, before anything is sent; all else goes on, on that host too.
func TestFleetIsUpgradedHostByHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01"), rig.Node("hv02")))
	certs := newCertificates(t)
	older, asked := serveOlderAgent(r, certs, "hv01", "want.partition_config.restore")
	newer, _ := serveOlderAgent(r, certs, "hv02")
	block := fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  hosts = {\n    hv01 = { %s }\n    hv02 = { %s }\n  }\n}\n",
		certs.way(older), certs.way(newer))
	config := func(host, more string) string {
		return strings.ReplaceAll(rig.ConfigOf(4, []string{host}, more), "vdi", "vdi-"+host)
	}
	restore := `on_destroy = "restore"`
	both := rig.ConfigOf(4, rig.Both, restore)
	before := r.File()
	wrong := []string{
		"The agent of a host is too old for this change", `The gpu-agent of host "hv01" (version 0.9.0) does not know "partition_config.restore"`,
		"Upgrade gpu-agent",
	}
	r.Steps(
		r.Rejects(block+both, wrong...),
		resource.TestStep{
			PreConfig: func() { r.WantUntouched(before) },
			Config:    block + config("hv01", "") + config("hv02", restore),
			Check:     rig.Then(func() { r.WantCounts(4, "hv01", "hv02") }),
		},
		r.Rejects(block+strings.Replace(config("hv01", restore), "partition_count = 4", "partition_count = 2", 1)+config("hv02", restore),
			wrong...),
		// What only counts at the end contacts no host, and is refused at the end.
		resource.TestStep{Config: block + config("hv01", restore) + config("hv02", restore)},
		resource.TestStep{Config: block + config("hv02", restore), ExpectError: rig.Says(wrong...)},
		resource.TestStep{Config: block + config("hv01", "") + config("hv02", restore)},
		resource.TestStep{
			Config: block + strings.Replace(config("hv01", ""), "partition_count = 4", "partition_count = 2", 1) + config("hv02", restore),
			Check:  rig.Then(func() { r.WantCounts(2, "hv01"); r.WantCounts(4, "hv02") }),
		},
	)
	r.WantClaims([]string{"hv01", "hv02"})
	if n := asked(); n > 0 {
		t.Errorf("the older agent was asked %d times for what it does not know", n)
	}
}
