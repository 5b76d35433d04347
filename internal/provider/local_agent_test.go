package provider_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// newLocalCLI is a CLI for a provider that starts the real agent of one host of the
// rig's fleet. The provider calls that host lab, which is not what it calls itself.
func newLocalCLI(r *rig.Rig, host, hcl string) *rig.CLI {
	r.T.Helper()
	c := rig.NewProcesses(r.T, hcl)
	if _, err := rig.AgentBinary(); err != nil {
		r.T.Fatal(err)
	}
	c.Env = append(c.Env, "GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET="+r.Fleet.Path(), "GPU_AGENT_HOST="+host)
	return c
}

// lab is a provider block that reaches the host lab in one way.
func lab(way string, more ...string) string {
	return fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  hosts = {\n    lab = { %s }\n  }\n  %s\n}\n",
		way, strings.Join(more, "\n  "))
}

// byLocalAgent starts the agent that lies beside the provider.
const byLocalAgent = "local = {}"

var (
	labConfig4 = rig.ConfigOf(4, []string{"lab"})
	labDesktop = rig.AssignmentOf("desktop", "avd-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop)
)

// wantOneError asserts that an output has one error, with a summary and texts.
func wantOneError(t *testing.T, out, summary string, texts ...string) {
	t.Helper()
	if n := strings.Count(out, "Error: "); n != 1 {
		t.Errorf("it has %d errors, want 1:\n%s", n, out)
	}
	rig.WantSaid(t, out, append([]string{"Error: " + summary}, texts...)...)
}

func TestHostThatCallsItselfOtherwiseIsTheProvidersHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Off(rig.Desktop("avd-02", 2)))))
	reading := `
data "gpu_inventory" "all" {
  depends_on = [gpu_partition_config.vdi, gpu_vm_assignment.desktop, gpu_pool.render]
}
data "gpu_partition_options" "lab" {
  host = "lab"
}
data "gpu_pool" "render" {
  name = gpu_pool.render.name
  host = "lab"
}
data "gpu_change_forecast" "lab" {
  hosts      = ["lab"]
  gpu_p      = { partition_count = 8 }
  depends_on = [gpu_vm_assignment.desktop]
}
output "reading" {
  value = "hosts ${jsonencode(keys(data.gpu_inventory.all.inventory))}, pool of ${length(data.gpu_pool.render.gpus.lab)}, forecast for ` +
		`${join(" ", data.gpu_change_forecast.lab.gpus[*].host)}"
}
`
	config := rig.ConfigOf(4, []string{"lab"}, `selector = { gpu_ids = { lab = ["`+rig.GPU0+`"] } }`)
	pool := rig.RenderPool(`members = { lab = ["` + rig.GPU1 + `"] }`)
	c := newLocalCLI(r, "hv01", lab(byLocalAgent)+config+labDesktop+pool+reading)
	before := r.File()
	c.Ok("plan")
	r.WantUntouched(before)
	rig.WantSaid(t, c.Apply(), "3 added")
	rig.WantSaid(t, c.Output("reading"), `hosts [\"lab\"], pool of 1, forecast for lab`)
	r.WantPool("render", []string{rig.GPU1}, "hv01")
	r.WantHeld(gpu.VMRunning, "avd-01")
	r.WantSettled()
	c.WantNoChanges()
	if got := c.Attributes("gpu_vm_assignment.desktop")["owner_host"]; got != "lab" {
		t.Errorf("owner_host is %v", got)
	}

	for _, x := range []struct{ address, id string }{
		{"gpu_partition_config.vdi", "vdi@lab"},
		{"gpu_pool.render", "lab/render"},
		{"gpu_vm_assignment.desktop", "lab/avd-01"},
	} {
		c.Ok("state", "rm", x.address)
		c.Ok("import", x.address, x.id)
	}
	c.WantNoChanges()

	// Errors of the plan, of the rules on the host and of a step.
	c.Write(lab(byLocalAgent) + rig.ConfigOf(3, []string{"lab"}, `selector = { gpu_ids = { lab = ["`+rig.GPU0+`"] } }`) + labDesktop + pool)
	rig.WantSaid(t, c.Fails("plan"), "Rule: valid-partition-count", "lab")
	r.Fail("hv01", simulated.OpAddPartitionAdapter, "", 0, 0)
	c.Write(lab(byLocalAgent) + config + labDesktop + rig.AssignmentOf("two", "avd-02", rig.AnyPartition) + pool)
	out := c.Fails("apply", "-auto-approve")
	wantOneError(t, out, "Could not assign a GPU", "Host: lab", "Rolled back: lab", "Injected by the test")
	if strings.Contains(rig.Sentence(out), "Host: hv01") {
		t.Errorf("the error names the host as it calls itself:\n%s", out)
	}
	r.ClearFaults("hv01")
	c.Destroy()
	r.WantClaims([]string{"hv01"})
	r.WantFree(gpu.VMRunning, "avd-01")
	r.WantSettled()
}

func TestAgentPathThatIsKnownOnlyAtApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	c := newLocalCLI(r, "hv01", "")
	path, err := rig.AgentBinary()
	r.Must(err)
	c.Write(fmt.Sprintf("resource \"terraform_data\" \"agent\" {\n  input = %q\n}\n", path) +
		lab("local = { agent_path = terraform_data.agent.output }") + labConfig4 + labDesktop)
	rig.WantSaid(t, c.Ok("plan"), "Plan: 3 to add")
	c.Apply()
	r.WantCounts(4, "hv01")
	r.WantHeld(gpu.VMRunning, "avd-01")
	c.WantNoChanges()
}

// TestHostThatIsLostKeepsItsResources loses a host in every way and gets it back.
func TestHostThatIsLostKeepsItsResources(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Off(rig.Desktop("avd-01", 1)))))
	resources := labConfig4 + labDesktop
	c := newLocalCLI(r, "hv01", lab(byLocalAgent)+resources)
	c.Apply()
	before, usual := r.File(), c.Env
	self, err := os.Executable()
	r.Must(err)
	tls := newCertificates(t)
	for name, x := range map[string]struct {
		way     string
		env     string
		summary string
		texts   []string
	}{
		"no agent": {
			way: `local = { agent_path = "/nowhere/gpu-agent" }`, summary: "Host has no agent", texts: []string{"/nowhere/gpu-agent", "agent_path"},
		},
		"not an agent": {
			way: fmt.Sprintf("local = { agent_path = %q }", rig.CLIPath(t)), summary: "Host does not answer",
			texts: []string{"The agent ended before it had answered", `has no command`},
		},
		"agent of another protocol": {
			way: fmt.Sprintf("local = { agent_path = %q }", self), env: foreignAgent + "=1", summary: "Agent and provider do not match",
			texts: []string{fmt.Sprintf("speaks protocol %d", agent.Protocol), fmt.Sprintf("(version 9.9.9) speaks protocol %d", agent.Protocol+1)},
		},
		"agent without a host": {
			way: byLocalAgent, env: "GPU_AGENT_HOST=hv09", summary: "Host does not answer", texts: []string{`there is no host \"hv09\"`},
		},
		"ssh, refused": {
			way:     fmt.Sprintf("ssh = { address = \"127.0.0.1\", port = %d, password = \"p\", host_key = %q }", closedPort(t), fingerprint),
			summary: "Host does not answer",
			texts:   []string{"Nothing answers at 127.0.0.1:"},
		},
		"tls, refused": {
			way: tls.way(fmt.Sprintf("127.0.0.1:%d", closedPort(t))), summary: "Host does not answer",
			texts: []string{"Nothing answers at 127.0.0.1:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.Env = usual
			if x.env != "" {
				c.Env = append(append([]string{}, usual...), x.env)
			}
			c.Write(lab(x.way) + resources)
			out := c.Fails("plan")
			wantOneError(t, out, x.summary, append([]string{"Host: lab", "the state is kept as it is"}, x.texts...)...)
			rig.WantSaid(t, c.Ok("state", "list"), rig.VDI, "gpu_vm_assignment.desktop")
			r.WantUntouched(before)
		})
	}
	c.Env = usual
	c.Write(lab(byLocalAgent) + resources)
	c.WantNoChanges()
	c.Destroy()
	r.WantClaims([]string{"hv01"})
}

// foreignAgent is the environment variable that makes the test binary an agent of
// another protocol version. An agent gets no others than its own.
const foreignAgent = "GPU_AGENT_TEST_FOREIGN"

type newerAgent struct {
	agentpb.UnimplementedAgentServer
}

func (newerAgent) Hello(context.Context, *agentpb.HelloRequest) (*agentpb.HelloReply, error) {
	return &agentpb.HelloReply{Protocol: agent.Protocol + 1, AgentVersion: "9.9.9", Role: string(agent.Operator)}, nil
}

func serveForeignAgent() {
	server := grpc.NewServer()
	agentpb.RegisterAgentServer(server, newerAgent{})
	if err := connect.ServeStdio(context.Background(), os.Stdin, os.Stdout, server); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
