package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What one answer of a host may cost a client, whatever it is, and several at a time.
const (
	mostForAnAnswer = 300 // MiB
	mostForAll      = 600
	longestAnswer   = 20 * time.Second
)

// asksEnv makes this test binary the client of hostile hosts, and answersEnv one of these.
const (
	asksEnv    = "GPU_FLEET_TEST_ASKS"
	answersEnv = "GPU_FLEET_TEST_ANSWERS"
)

// answer is what a hostile host answers to one call.
type answer struct {
	call string                           // the method
	doc  func() string                    // nil where it fails
	fail func() error                     // instead
	own  func(*agentpb.HelloReply)        // of Hello
	flow func(agentpb.Agent_ApplyServer)  // before the answer of Apply
	err  string                           // part of what a person reads; "" for an answer that is accepted
	look func(h *gpu.Host) (wrong string) // looks at an accepted inventory
}

const mib = 1 << 20

// filled repeats an element until a document has a size.
func filled(before, element, after string, bytes int) func() string {
	return func() string {
		n := (bytes - len(before) - len(after)) / (len(element) + 1)
		return before + strings.Repeat(element+",", n-1) + element + after
	}
}

func repeated(before, element, after string, n int) func() string {
	return func() string { return before + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + after }
}

func fixed(doc string) func() string { return func() string { return doc } }

// vmsWith are VMs with something large in each.
func vmsWith(n int, inner string) func() string {
	return func() string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`{"id":"%d",%s}`, i, inner))
		}
		return `{"vms":[` + strings.Join(out, ",") + `]}`
	}
}

func detailed(doc string) error {
	s, err := status.New(codes.Internal, "no").WithDetails(&agentpb.ErrorDetail{Error: []byte(doc)})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// answers is the table. Every kind of answer, as large as is accepted, and larger.
func answers() map[string]answer {
	inventory := func(doc func() string, err string) answer { return answer{call: "Inventory", doc: doc, err: err} }
	all := map[string]answer{
		"200 MiB of GPUs":     inventory(filled(`{"gpus":[`, `{}`, `]}`, 200*mib), "larger than"),
		"60 MiB of GPUs":      inventory(filled(`{"gpus":[`, `{}`, `]}`, 60*mib), "larger than"),
		"15 MiB of GPUs":      inventory(filled(`{"gpus":[`, `{}`, `]}`, 15*mib), "more than 20000 elements"),
		"15 MiB of adapters":  inventory(vmsWith(200, `"partition_adapters":`+repeated("[", "{}", "]", 19_900)()), "more than 600000 values"),
		"1 MiB of GPUs":       inventory(filled(`{"gpus":[`, `{}`, `]}`, mib), "more than 20000 elements"),
		"null GPUs":           inventory(repeated(`{"gpus":[`, `null`, `]}`, 20_000), `GPU id "" is empty or used twice`),
		"two GPUs of one id":  inventory(fixed(`{"gpus":[{"id":"a"},{"id":"A"}]}`), `GPU id "A" is empty or used twice`),
		"two VMs of one id":   inventory(fixed(`{"vms":[{"id":"a"},{"id":"A"}]}`), `VM id "A" is empty or used twice`),
		"a VM without an id":  inventory(fixed(`{"vms":[{"name":"a"}]}`), `VM id "" is empty or used twice`),
		"an id that is no id": inventory(fixed(`{"gpus":[{"id":"a\u001b[2J\nError: fake"}]}`), "others than printable ones"),
		"a long id":           inventory(filled(`{"vms":[{"id":"`, `a`, `"}]}`, 10*mib), "longer than 1000 characters"),
		"2000000000 partitions": inventory(fixed(`{"gpus":[{"id":"a","partitionable":{"partition_count":2000000000}}]}`),
			"2000000000 partitions"),
		"minus 5 partitions":    inventory(fixed(`{"gpus":[{"id":"a","partitionable":{"valid_partition_counts":[-5]}}]}`), "-5 partitions"),
		"2000000000 MIG slices": inventory(fixed(`{"gpus":[{"id":"a","mig":{"profiles":[{"starts":[2000000000]}]}}]}`), "2000000000 slices"),
		"2000000000 vGPUs":      inventory(fixed(`{"gpus":[{"id":"a","vgpu":{"types":[{"max":2000000000}]}}]}`), "2000000000 vGPUs"),
		"60 MiB deep":           inventory(func() string { return strings.Repeat("[", 60*mib) }, "larger than"),
		"1 MiB deep":            inventory(func() string { return strings.Repeat("[", mib) }, "more than 32 deep"),
		"no JSON":               inventory(func() string { return strings.Repeat("\x1b\n", 5*mib) }, "cannot be read"),
		"a number of 10 MiB": inventory(func() string { return `{"gpus":[{"id":"a","vram":` + strings.Repeat("9", 10*mib) + `}]}` },
			"(cut)"),
		"a time of 10 MiB": inventory(filled(`{"boot":{"id":"a","at":"`, `x`, `"}}`, 10*mib), "(cut)"),
		"an error of 60 MiB": {
			call: "Inventory", fail: func() error { return status.Error(codes.Internal, strings.Repeat("x\nError: fake", 5*mib)) }, err: "bad",
		},
		"an error of 10 MiB": {
			call: "Inventory", fail: func() error { return status.Error(codes.Internal, strings.Repeat("x\nError: fake", mib)) }, err: "(cut)",
		},
		"findings of 9 MiB": {
			call: "Inventory", fail: func() error { return detailed(filled(`{"findings":[`, `{}`, `]}`, 9*mib)()) }, err: "more than 20000 elements",
		},
		"a message of 9 MiB": {
			call: "Inventory", fail: func() error { return detailed(filled(`{"message":"`, `x\n`, `"}`, 9*mib)()) }, err: "(cut)",
		},
		"60 MiB of capabilities": {
			call: "Hello", own: func(h *agentpb.HelloReply) { h.Capabilities = make([]string, 30*mib) }, err: "larger than",
		},
		"256 KiB of capabilities": {call: "Hello", own: func(h *agentpb.HelloReply) { h.Capabilities = make([]string, 120<<10) }},
		"a version of 100 KiB":    {call: "Hello", own: func(h *agentpb.HelloReply) { h.AgentVersion = strings.Repeat("v\n", 50<<10) }},
		"1 MiB of strange claims": inventory(filled(`{"claims":[`, `{"x":0}`, `]}`, mib), "more than 20000 elements"),

		// What is accepted: as much as it can become.
		"strange claims": {call: "Inventory", doc: repeated(`{"claims":[`, `{"x":0}`, `]}`, 20_000), look: func(h *gpu.Host) string {
			if len(h.Claims) > 0 || len(h.Unreadable) != 20_000 || !strings.Contains(h.Unreadable[19_999].Found, "does not know its x") {
				return "the claims are not counted as unreadable records"
			}
			return ""
		}},
		"a strange claim with a long name": {call: "Inventory", doc: func() string {
			return `{"claims":[{"before":{"` + strings.Repeat("k", 10*mib) + `":{` + fields(9_000) + `}}}]}`
		}},
		"claims of no kind": {
			call: "Inventory",
			doc: fixed(
				`{"claims":[{"kind":"x","id":"a"},{"kind":"vm_assignment","id":"b","want":{"partition_config":{"kind":"gpu_p",` +
					`"partition_count":2000000000}}},{"kind":"vm_assignment","id":"c"}]}`),
			look: func(h *gpu.Host) string {
				if len(h.Claims) != 1 || len(h.Unreadable) != 2 {
					return fmt.Sprintf("%d claims and %d records that cannot be read", len(h.Claims), len(h.Unreadable))
				}
				return ""
			},
		},
		"adapters":      {call: "Inventory", doc: vmsWith(30, `"partition_adapters":`+repeated("[", "{}", "]", 9_900)())},
		"null adapters": {call: "Inventory", doc: vmsWith(30, `"partition_adapters":`+repeated("[", "null", "]", 19_900)())},
		"layouts in claims": {call: "Inventory", doc: func() string {
			var out []string
			for i := range 29 {
				out = append(out, fmt.Sprintf(`{"kind":"pool","id":"%d","before":{%s},"given":{%s}}`, i, strings.ReplaceAll(fields(5_000), ":1", ":{}"),
					strings.ReplaceAll(fields(5_000), ":1", ":{}")))
			}
			return `{"claims":[` + strings.Join(out, ",") + `]}`
		}},
		"15 MiB of text": {
			call: "Inventory", doc: filled(`{"gpus":[{"id":"a","model":"`, `\u001b`, `"}]}`, 15*mib),
			look: func(h *gpu.Host) string {
				if n := len(h.GPUs[0].Model); n > 3*2_000 {
					return fmt.Sprintf("the model has %d bytes", n)
				}
				return ""
			},
		},
	}
	for _, call := range []string{"Prepare", "Claims", "Journal", "Utilization", "Settle", "Apply"} {
		list := map[string]string{
			"Prepare": `{"findings":[`, "Claims": `[`, "Journal": `{"changes":[`, "Utilization": `{"gpus":[`,
			"Settle": `{"done":[`, "Apply": `{"done":[`,
		}[call]
		after := "]}"
		if call == "Claims" {
			after = "]"
		}
		all["60 MiB for "+call] = answer{call: call, doc: filled(list, `{}`, after, 60*mib), err: "larger than"}
		all["1 MiB for "+call] = answer{call: call, doc: filled(list, `{}`, after, mib), err: "more than 20000 elements"}
		all["deep for "+call] = answer{call: call, doc: func() string { return strings.Repeat(`[`, 1000) }, err: "more than 32 deep"}
		all["as much as is accepted for "+call] = answer{call: call, doc: repeated(list, `{}`, after, 20_000)}
	}
	all["15 MiB of each step for Apply"] = answer{call: "Apply", doc: fixed("{}"), flow: func(s agentpb.Agent_ApplyServer) {
		for range 20 {
			if s.Send(&agentpb.ApplyEvent{Event: &agentpb.ApplyEvent_Step{Step: &agentpb.StepEvent{Text: strings.Repeat("x\n", 15*mib/2)}}}) != nil {
				return
			}
		}
	}}
	return all
}

// fields are so many of an object.
func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%x":1,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// hostile is an agent that answers one call as its table says.
type hostile struct {
	agentpb.UnimplementedAgentServer
	answer
}

func (h hostile) says(call string) ([]byte, error) {
	switch {
	case h.call != call:
		return []byte(`{}`), nil
	case h.fail != nil:
		return nil, h.fail()
	}
	return []byte(h.doc()), nil
}

func (h hostile) Hello(context.Context, *agentpb.HelloRequest) (*agentpb.HelloReply, error) {
	r := &agentpb.HelloReply{Protocol: agent.Protocol, AgentVersion: "9.9.9", Role: string(agent.Operator)}
	if h.own != nil {
		h.own(r)
	}
	return r, nil
}

func (h hostile) Inventory(context.Context, *agentpb.InventoryRequest) (*agentpb.InventoryReply, error) {
	doc, err := h.says("Inventory")
	return &agentpb.InventoryReply{Host: doc}, err
}

func (h hostile) Prepare(context.Context, *agentpb.PrepareRequest) (*agentpb.PrepareReply, error) {
	doc, err := h.says("Prepare")
	return &agentpb.PrepareReply{Prepared: doc}, err
}

func (h hostile) Claims(context.Context, *agentpb.ClaimsRequest) (*agentpb.ClaimsReply, error) {
	doc, err := h.says("Claims")
	return &agentpb.ClaimsReply{Claims: doc}, err
}

func (h hostile) Journal(context.Context, *agentpb.JournalRequest) (*agentpb.JournalReply, error) {
	doc, err := h.says("Journal")
	return &agentpb.JournalReply{Journal: doc}, err
}

func (h hostile) Utilization(context.Context, *agentpb.UtilizationRequest) (*agentpb.UtilizationReply, error) {
	doc, err := h.says("Utilization")
	return &agentpb.UtilizationReply{Measurement: doc}, err
}

func (h hostile) Settle(context.Context, *agentpb.SettleRequest) (*agentpb.SettleReply, error) {
	doc, err := h.says("Settle")
	return &agentpb.SettleReply{Outcome: doc}, err
}

func (h hostile) Apply(_ *agentpb.ApplyRequest, s agentpb.Agent_ApplyServer) error {
	if h.flow != nil {
		h.flow(s)
	}
	doc, err := h.says("Apply")
	if err != nil {
		return err
	}
	return s.Send(&agentpb.ApplyEvent{Event: &agentpb.ApplyEvent_Outcome{Outcome: doc}})
}

// TestHostileAgent is the agent, in a process of its own.
func TestHostileAgent(t *testing.T) {
	name := os.Getenv(answersEnv)
	if name == "" {
		t.Skip("it is what TestWhatAHostAnswersCostsLittle starts")
	}
	g := grpc.NewServer(append(connect.ServerOptions(connect.DefaultDeadAfter), grpc.MaxSendMsgSize(math.MaxInt32))...)
	agentpb.RegisterAgentServer(g, hostile{answer: answers()[name]})
	_ = connect.ServeStdio(context.Background(), os.Stdin, os.Stdout, g)
	os.Exit(0)
}

// asked is what came of asking hostile hosts.
type asked struct {
	Errors []string
	Wrong  string // "" where the honest host's answer, and what was made of the others', is right
	Peak   int    // MiB
	Took   time.Duration
}

// TestHostileClient is the client, in a process of its own.
func TestHostileClient(t *testing.T) {
	name, many, _ := strings.Cut(os.Getenv(asksEnv), "|")
	if name == "" {
		t.Skip("it is what TestWhatAHostAnswersCostsLittle starts")
	}
	of := answers()[name]
	n, err := strconv.Atoi(many)
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]fleet.Endpoint{"good": {Dial: func(context.Context, bool) (fleet.Conn, error) { return honest{}, nil }}}
	names := []string{"good"}
	var clients []*agent.Client
	for i := range n {
		host := "bad"
		if n > 1 {
			host += strconv.Itoa(i)
		}
		names = append(names, host)
		hosts[host] = fleet.Endpoint{Dial: func(ctx context.Context, _ bool) (fleet.Conn, error) {
			conn, err := connect.Process(ctx, host, connect.Command{
				Path: os.Args[0], Args: []string{"-test.run=^TestHostileAgent$"}, Env: []string{answersEnv + "=" + name, asksEnv + "="},
			}, connect.Options{})
			if err != nil {
				return nil, err
			}
			c := agent.NewClient(conn, host, agent.WithHello(conn.Hello))
			clients = append(clients, c)
			return c, nil
		}}
	}
	f := fleet.New(fleet.Options{Hosts: hosts, MaxParallelHosts: 32})
	view := f.Snapshot(t.Context(), names)
	var out asked
	if h := view.Hosts["good"]; h == nil || len(h.GPUs) != 1 {
		out.Wrong = fmt.Sprintf("the honest host: %v", view.Errors["good"])
	}
	for _, host := range names[1:] {
		err := view.Errors[host]
		if of.call != "Inventory" && of.call != "Hello" && err == nil {
			err = askOnce(t.Context(), clients[0], of.call)
		}
		if ae, ok := errors.AsType[*agent.Error](err); ok && ae.Host != host {
			out.Wrong = fmt.Sprintf("the error names host %q", ae.Host)
		}
		if err != nil {
			out.Errors = append(out.Errors, host+": "+err.Error())
		} else if of.look != nil {
			out.Wrong += of.look(view.Hosts[host])
		}
	}
	out.Took, out.Peak = worked(t), peakOf(t)
	fmt.Println("asked", string(document.Encode(out)))
	os.Exit(0)
}

func askOnce(ctx context.Context, c *agent.Client, call string) (err error) {
	switch call {
	case "Prepare":
		_, err = c.Prepare(ctx, agent.Change{ID: "c"})
	case "Claims":
		_, err = c.Claims(ctx)
	case "Journal":
		_, err = c.Journal(ctx)
	case "Utilization":
		_, err = c.Utilization(ctx, time.Second)
	case "Settle":
		_, err = c.Settle(ctx, 1, "c", true)
	case "Apply":
		_, err = c.Apply(ctx, 1, agent.Change{ID: "c"}, "", func(p agent.StepProgress) {
			if len(p.Text) > 3*2_000 {
				panic("a step's text is not cut")
			}
		})
	}
	return err
}

// worked is the time that this process has computed, which goes by no other process of the machine.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func peakOf(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.Atoi(string(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(data)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// honest is a host beside hostile ones.
type honest struct{ fleet.Conn }

func (honest) Inventory(context.Context) (gpu.Host, error) {
	return gpu.Host{Name: "good", Platform: gpu.HyperV, GPUs: []gpu.GPU{{ID: "g"}}}, nil
}

// askHostile asks so many hosts that answer alike in a process of its own.
func askHostile(t *testing.T, name string, hosts int) asked {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHostileClient$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d", asksEnv, name, hosts))
	said, err := cmd.CombinedOutput()
	_, text, ok := strings.Cut(string(said), "asked ")
	var out asked
	if err != nil || !ok || json.Unmarshal([]byte(text), &out) != nil {
		t.Fatalf("%v: %.2000s", err, said)
	}
	return out
}

// TestWhatAHostAnswersCostsLittle: whatever one host answers, the client stays small and goes on, and the
// error names the host in a few printable words.
func TestWhatAHostAnswersCostsLittle(t *testing.T) {
	t.Parallel()
	for name, of := range answers() {
		t.Run(name, func(t *testing.T) {
			out := askHostile(t, name, 1)
			t.Logf("%d MiB, %s: %.300q", out.Peak, out.Took.Round(time.Millisecond), out.Errors)
			if out.Peak > mostForAnAnswer || out.Took > longestAnswer {
				t.Errorf("it took %d MiB and %s, and may take %d MiB and %s", out.Peak, out.Took, mostForAnAnswer, longestAnswer)
			}
			if out.Wrong != "" {
				t.Error(out.Wrong)
			}
			said := strings.Join(out.Errors, "\n")
			if (of.err == "") != (said == "") || !strings.Contains(said, of.err) {
				t.Errorf("it says %.500q, and %q was wanted", said, of.err)
			}
			if len(said) > 5_000 || gpu.Printable(said) != said {
				t.Errorf("what it says is too long, or cannot be shown: %.5000q", said)
			}
		})
	}
}

// TestManyHostsThatAnswerMuch: large answers come in their turn.
func TestManyHostsThatAnswerMuch(t *testing.T) {
	t.Parallel()
	out := askHostile(t, "15 MiB of text", 16)
	t.Logf("%d MiB, %s: %.300q", out.Peak, out.Took.Round(time.Millisecond), out.Errors)
	if out.Peak > mostForAll || out.Wrong != "" || len(out.Errors) > 0 {
		t.Errorf("it took %d MiB of at most %d: %s %q", out.Peak, mostForAll, out.Wrong, out.Errors)
	}
}
