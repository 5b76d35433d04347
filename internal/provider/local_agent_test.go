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
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// newLocalCLI is a CLI for a provider that starts the real agent of one host of the
// rig's fleet. The provider calls that host lab, which is not what it calls itself.
func (r *rig) newLocalCLI(host, hcl string) *cli {
	r.t.Helper()
	if _, err := agentBinary(); err != nil {
		r.t.Fatal(err)
	}
	c := newProcesses(r.t, hcl)
	c.env = append(c.env, "GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET="+r.fleet.Path(), "GPU_AGENT_HOST="+host)
	return c
}

// lab is a provider block that reaches the host lab in one way.
func lab(way string, more ...string) string {
	return fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  hosts = {\n    lab = { %s }\n  }\n  %s\n}\n", way, strings.Join(more, "\n  "))
}

// byLocalAgent starts the agent that lies beside the provider.
const byLocalAgent = "local = {}"

var (
	labConfig4 = configOf(4, []string{"lab"})
	labDesktop = assignmentOf("desktop", "avd-01", "partition = { config = gpu_partition_config.vdi.id }", mayStop)
)

// wantOneError asserts that an output has one error, with a summary and texts.
func wantOneError(t *testing.T, out, summary string, texts ...string) {
	t.Helper()
	if n := strings.Count(out, "Error: "); n != 1 {
		t.Errorf("it has %d errors, want 1:\n%s", n, out)
	}
	wantSaid(t, out, append([]string{"Error: " + summary}, texts...)...)
}

func TestHostThatCallsItselfOtherwiseIsTheProvidersHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01", desktop("avd-01", 1), off(desktop("avd-02", 2)))))
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
  value = "hosts ${jsonencode(keys(data.gpu_inventory.all.inventory))}, pool of ${length(data.gpu_pool.render.gpus.lab)}, forecast for ${join(" ", data.gpu_change_forecast.lab.gpus[*].host)}"
}
`
	config := configOf(4, []string{"lab"}, `selector = { gpu_ids = { lab = ["`+gpu0+`"] } }`)
	pool := renderPool(`members = { lab = ["` + gpu1 + `"] }`)
	c := r.newLocalCLI("hv01", lab(byLocalAgent)+config+labDesktop+pool+reading)
	before := r.file()
	c.ok("plan")
	r.wantUntouched(before)
	wantSaid(t, c.apply(), "3 added", `hosts [\"lab\"], pool of 1, forecast for lab`)
	r.wantPool("render", []string{gpu1}, "hv01")
	r.wantHeld(gpu.VMRunning, "avd-01")
	r.wantSettled()
	c.wantNoChanges()
	wantSaid(t, c.ok("state", "show", "gpu_vm_assignment.desktop"), `owner_host = "lab"`)

	for _, x := range []struct{ address, id string }{
		{"gpu_partition_config.vdi", "vdi@lab"},
		{"gpu_pool.render", "lab/render"},
		{"gpu_vm_assignment.desktop", "lab/avd-01"},
	} {
		c.ok("state", "rm", x.address)
		c.ok("import", x.address, x.id)
	}
	c.wantNoChanges()

	// Errors of the plan, of the rules on the host and of a step.
	c.write(lab(byLocalAgent) + configOf(3, []string{"lab"}, `selector = { gpu_ids = { lab = ["`+gpu0+`"] } }`) + labDesktop + pool)
	wantSaid(t, c.fails("plan"), "Rule: valid-partition-count", "lab")
	r.fail("hv01", simulated.OpAddPartitionAdapter, "", 0, 0)
	c.write(lab(byLocalAgent) + config + labDesktop + assignmentOf("two", "avd-02", anyPartition) + pool)
	out := c.fails("apply", "-auto-approve")
	wantOneError(t, out, "Could not assign a GPU", "Host: lab", "Rolled back: lab", "injected by the test")
	if strings.Contains(sentence(out), "Host: hv01") {
		t.Errorf("the error names the host as it calls itself:\n%s", out)
	}
	r.clearFaults("hv01")
	c.destroy()
	r.wantClaims([]string{"hv01"})
	r.wantFree(gpu.VMRunning, "avd-01")
	r.wantSettled()
}

func TestAgentPathThatIsKnownOnlyAtApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01", desktop("avd-01", 1))))
	c := r.newLocalCLI("hv01", "")
	path, err := agentBinary()
	r.must(err)
	c.write(fmt.Sprintf("resource \"terraform_data\" \"agent\" {\n  input = %q\n}\n", path) +
		lab("local = { agent_path = terraform_data.agent.output }") + labConfig4 + labDesktop)
	wantSaid(t, c.ok("plan"), "Plan: 3 to add")
	c.apply()
	r.wantCounts(4, "hv01")
	r.wantHeld(gpu.VMRunning, "avd-01")
	c.wantNoChanges()
}

// TestHostThatIsLostKeepsItsResources loses a host in every way and gets it back.
func TestHostThatIsLostKeepsItsResources(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01", off(desktop("avd-01", 1)))))
	resources := labConfig4 + labDesktop
	c := r.newLocalCLI("hv01", lab(byLocalAgent)+resources)
	c.apply()
	before, usual := r.file(), c.env
	self, err := os.Executable()
	r.must(err)
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
			way: fmt.Sprintf("local = { agent_path = %q }", cliPath(t)), summary: "Host does not answer", texts: []string{"the agent ended before it had answered", `has no command`},
		},
		"agent of another protocol": {
			way: fmt.Sprintf("local = { agent_path = %q }", self), env: foreignAgent + "=1", summary: "Agent and provider do not match",
			texts: []string{fmt.Sprintf("speaks protocol %d", agent.Protocol), fmt.Sprintf("(version 9.9.9) speaks protocol %d", agent.Protocol+1)},
		},
		"agent without a host": {
			way: byLocalAgent, env: "GPU_AGENT_HOST=hv09", summary: "Host does not answer", texts: []string{`there is no host \"hv09\"`},
		},
		"ssh, refused": {
			way: fmt.Sprintf("ssh = { address = \"127.0.0.1\", port = %d, password = \"p\", host_key = %q }", closedPort(t), fingerprint), summary: "Host does not answer",
			texts: []string{"nothing answers at 127.0.0.1:"},
		},
		"tls, refused": {
			way: tls.way(fmt.Sprintf("127.0.0.1:%d", closedPort(t))), summary: "Host does not answer", texts: []string{"nothing answers at 127.0.0.1:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.env = usual
			if x.env != "" {
				c.env = append(append([]string{}, usual...), x.env)
			}
			c.write(lab(x.way) + resources)
			out := c.fails("plan")
			wantOneError(t, out, x.summary, append([]string{"Host: lab", "the state is kept as it is"}, x.texts...)...)
			wantSaid(t, c.ok("state", "list"), vdi, "gpu_vm_assignment.desktop")
			r.wantUntouched(before)
		})
	}
	c.env = usual
	c.write(lab(byLocalAgent) + resources)
	c.wantNoChanges()
	c.destroy()
	r.wantClaims([]string{"hv01"})
}

// foreignAgent is the environment variable that makes the test binary an agent of
// another protocol version.
const foreignAgent = "GPU_TEST_FOREIGN_AGENT"

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
