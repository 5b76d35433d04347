package gpuutilization_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const utilizationAll = "data.gpu_utilization.all"

// utilizationOf is the data source with a short window and more arguments.
func utilizationOf(more ...string) string {
	return fmt.Sprintf("data \"gpu_utilization\" \"all\" {\n  window = \"100ms\"\n  %s\n}\n", strings.Join(more, "\n  "))
}

// onUtilization checks a value of a GPU of hgx01.
func onUtilization(want knownvalue.Check, n int, steps ...any) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("utilization", append([]any{"hgx01", "gpus", rig.MIGGPU(n)}, steps...)...),
		want)
}

// round keeps four digits, as the data source does.
func round(f float64) float64 { return math.Round(f*1e4) / 1e4 }

// loads says how busy a GPU of hgx01 is, beside its processes.
func loads(r *rig.Rig, n int, busy float64, memory gpu.Bytes) {
	r.T.Helper()
	r.Must(r.Fleet.SetLoad(r.T.Context(), "hgx01", simulated.Load{GPU: rig.MIGGPU(n), Busy: busy, SMActivity: busy, MemoryUsed: memory}))
}

// shared claims shares of hgx01, and a config of kind MPS for its first GPU.
func shared(r *rig.Rig, shares ...gpu.Share) {
	r.T.Helper()
	user := 1000
	r.EditHost("hgx01", func(h *gpu.Host) {
		h.Claims = append(h.Claims, gpu.Claim{
			Kind: gpu.ClaimConfig, ID: "inference", Token: "t", Owner: "test", GPUs: []string{rig.MIGGPU(0)},
			Want: gpu.Want{
				Config: &gpu.PartitionConfig{
					ID: "inference", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{User: &user, Oversubscription: 2},
					GPUs: map[string][]string{"hgx01": {rig.MIGGPU(0)}},
				},
			},
		})
		for _, s := range shares {
			h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimShare, ID: s.Name, Token: "t " + s.Name, Owner: "test", Want: gpu.Want{Share: &s}})
		}
	})
}

func TestAccUtilization_Utilization(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 3))
	r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(1), true))
	// Six small instances at places that leave the last slice to nobody.
	for _, start := range []int{0, 1, 2, 3, 4, 6} {
		r.CreateOutside(1, rig.At("1g.10gb", start))
	}
	on := func(n int, p *gpu.MIGPlacement) []gpu.SharedDevice {
		return []gpu.SharedDevice{{GPU: rig.MIGGPU(n), Instance: p}}
	}
	small := rig.At("1g.10gb", 0)
	shared(r,
		gpu.Share{Name: "b", Host: "hgx01", Count: 1, MemoryRequest: 20 << 30, MemoryLimit: 60 << 30, Devices: on(0, nil)},
		gpu.Share{
			Name: "a", Host: "hgx01", Count: 1, MemoryRequest: 20 << 30, MemoryLimit: 60 << 30, ActiveThreadPercentage: 50, Devices: on(0, nil),
		},
		gpu.Share{Name: "c", Host: "hgx01", Count: 1, Devices: on(1, &small)},
	)
	pid := r.Runs(2, nil, "notebook")
	loads(r, 2, 0, 30<<30)
	text, number, decimal, none := knownvalue.StringExact, knownvalue.Int64Exact, knownvalue.Float64Exact, knownvalue.Null()
	share := func(name, mode string, fraction float64) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{
			"name": text(name), "owner": text("test"), "mode": text(mode), "fraction": decimal(fraction),
		})
	}
	kinds := func(n int, kinds ...string) []statecheck.StateCheck {
		out := []statecheck.StateCheck{onUtilization(knownvalue.ListSizeExact(len(kinds)), n, "advice")}
		for i, kind := range kinds {
			out = append(out, onUtilization(text(kind), n, "advice", i, "kind"))
		}
		return out
	}
	part := round(float64(rig.H100Memory(t, "1g.10gb")) / float64(rig.MIGCard(0, rig.H100).VRAM.MiB()))
	r.Steps(resource.TestStep{
		Config: r.Block() + utilizationOf(),
		ConfigStateChecks: slices.Concat([]statecheck.StateCheck{
			onUtilization(text("NVIDIA "+rig.H100), 0, "model"),
			onUtilization(decimal(0.75), 0, "allocated_fraction"),
			onUtilization(decimal(1.5), 0, "oversubscription_ratio"),
			onUtilization(knownvalue.ListExact([]knownvalue.Check{share("a", "mps", 0.5), share("b", "mps", 0.25)}), 0, "shares"),
			onUtilization(knownvalue.Bool(true), 0, "idle"),
			onUtilization(decimal(0), 0, "used_fraction"),
			onUtilization(none, 0, "mig"),
			onUtilization(none, 0, "history"),

			onUtilization(none, 1, "busy_percent"),
			onUtilization(none, 1, "oversubscription_ratio"),
			onUtilization(number(1), 1, "mig", "allocated_compute_slices"),
			onUtilization(number(7), 1, "mig", "compute_slices"),
			onUtilization(number(0), 1, "mig", "used_compute_slices"),
			onUtilization(number(2), 1, "mig", "free_memory_slices"),
			onUtilization(number(1), 1, "mig", "unallocatable_memory_slices"),
			onUtilization(knownvalue.ListSizeExact(6), 1, "mig", "instances"),
			onUtilization(text("1g.10gb"), 1, "mig", "instances", 0, "profile"),
			onUtilization(decimal(1), 1, "mig", "instances", 0, "allocated_fraction"),
			onUtilization(knownvalue.ListExact([]knownvalue.Check{share("c", "mig", part)}), 1, "mig", "instances", 0, "shares"),
			onUtilization(knownvalue.ListSizeExact(0), 1, "mig", "instances", 1, "shares"),
			onUtilization(number(6), 1, "mig", "instances", 5, "start"),

			onUtilization(decimal(0), 2, "allocated_fraction"),
			onUtilization(none, 2, "oversubscription_ratio"),
			onUtilization(number(30*1024), 2, "memory_used_mib"),
			onUtilization(number(80*1024), 2, "memory_total_mib"),
			onUtilization(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"pid": number(int64(pid)), "name": text("notebook"), "holder": text("container 3f2a"), "share": none,
				"memory_mib": knownvalue.NotNull(),
			})}), 2, "processes"),

			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("utilization", "hgx01", "measured_at"),
				knownvalue.StringRegexp(regexp.MustCompile(`^20\d\d-.*Z$`))),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("utilization", "hgx01", "window_seconds"), knownvalue.NotNull()),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("totals", "gpus"), number(3)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("totals", "idle_gpus"), number(2)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("totals", "unallocatable_memory_slices"), number(1)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("totals", "allocated_gpus"), decimal(0.8929)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("totals", "summary"), text(
				"Of 3 GPUs on 1 hosts 0.9 are allocated and 0.4 were used, with 30.0 GiB of 240.0 GiB of memory; 2 were idle. 1 free memory slices "+
					"are of no use to any MIG profile.")),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("unreachable_hosts"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("advice"), knownvalue.ListSizeExact(7)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("advice", 0, "host"), text("hgx01")),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("advice", 0, "gpu_id"), text(rig.MIGGPU(0))),
		}, kinds(0, "unused", "short_window"), kinds(1, "unused", "fragmented", "short_window"), kinds(2, "unaccounted", "short_window")),
	}, resource.TestStep{
		Config: r.Block() + utilizationOf(fmt.Sprintf("gpu_ids = [%q]", strings.ToLower(rig.MIGGPU(2)))),
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("utilization", "hgx01", "gpus"), knownvalue.MapSizeExact(1)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("totals", "gpus"), number(1)),
		},
	})
	for host, calls := range r.Calls.Take() {
		if calls["Utilization"] == 0 || calls["Utilization"] != calls["Inventory"] {
			t.Errorf("%s was called %v; each read takes one inventory and one measurement", host, calls)
		}
	}
}

// prometheusServer answers as Prometheus does: a GPU is busy on working days from nine to
// five in Berlin, and there is no record of others.
type prometheusServer struct {
	*httptest.Server
	mu      sync.Mutex
	headers []http.Header
	ranges  []time.Duration
}

func newPrometheus(t *testing.T, busy string) *prometheusServer {
	t.Helper()
	place, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := &prometheusServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number := func(name string) int64 {
			n, err := strconv.ParseFloat(r.FormValue(name), 64)
			if err != nil {
				t.Errorf("%s=%q", name, r.FormValue(name))
			}
			return int64(n)
		}
		start, end, step := number("start"), number("end"), number("step")
		s.mu.Lock()
		s.headers, s.ranges = append(s.headers, r.Header), append(s.ranges, time.Duration(end-start+step)*time.Second)
		s.mu.Unlock()
		var values [][2]any
		for at := start; at <= end && step > 0; at += step {
			local, value := time.Unix(at-step, 0).In(place), "0"
			if d := local.Weekday(); d != time.Saturday && d != time.Sunday && local.Hour() >= 9 && local.Hour() < 17 {
				value = "80"
			}
			values = append(values, [2]any{at, value})
		}
		result := []any{}
		if strings.Contains(r.FormValue("query"), busy) {
			result = append(result, map[string]any{"metric": map[string]string{"UUID": busy}, "values": values})
		}
		answer := map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAccUtilization_UtilizationWithALongView(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	s := newPrometheus(t, rig.MIGGPU(0))
	const bearer, tenant = "token-hunter2", "tenant-hunter3"
	text, decimal := knownvalue.StringExact, knownvalue.Float64Exact
	config := r.Block() + utilizationOf(fmt.Sprintf(
		"prometheus = {\n    url = %q\n    lookback = \"336h\"\n    timezone = \"Europe/Berlin\"\n    bearer_token = %q\n    headers = { "+
			"X-Scope-OrgID = %q }\n  }", s.URL, bearer, tenant))
	r.Steps(resource.TestStep{
		Config: config,
		ConfigStateChecks: []statecheck.StateCheck{
			onUtilization(decimal(336), 0, "history", "recorded_hours"),
			onUtilization(decimal(80), 0, "history", "peak_percent"),
			onUtilization(decimal(1), 0, "history", "idle_nights_fraction"),
			onUtilization(decimal(1), 0, "history", "idle_weekends_fraction"),
			onUtilization(decimal(0.4286), 0, "history", "idle_working_days_fraction"), // 6 of 14 hours
			onUtilization(text("long_view"), 0, "advice", 1, "kind"),
			onUtilization(knownvalue.StringRegexp(regexp.MustCompile("fits into its nights and weekends")), 0, "advice", 1, "text"),
			onUtilization(decimal(0), 1, "history", "recorded_hours"),
			onUtilization(knownvalue.Null(), 1, "history", "idle_fraction"),
			onUtilization(knownvalue.Null(), 1, "history", "peak_percent"),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("prometheus", "url"), text(s.URL)),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("prometheus", "bearer_token"), knownvalue.Null()),
			statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("prometheus", "headers"), knownvalue.Null()),
		},
	})
	for i, h := range s.headers {
		if h.Get("Authorization") != "Bearer "+bearer || h.Get("X-Scope-OrgID") != tenant || s.ranges[i] != 336*time.Hour {
			t.Errorf("the server was asked for %s with %v", s.ranges[i], h)
		}
	}
	if len(s.headers) == 0 {
		t.Error("the server was not asked")
	}
}

// secret is a variable whose value Terraform does not print.
const secret = "variable \"secret\" {\n  sensitive = true\n}\n"

// hunter2 is a secret that the configuration has elsewhere.
const hunter2 = "locals {\n  secret = \"hunter2\"\n}\n"

// The token of the environment goes to the server that the environment names, whatever a configuration says.
func TestAccUtilization_UtilizationSendsTheTokenToItsServer(t *testing.T) {
	r := rig.New(t, rig.HGX(rig.H100, 1))
	s, other := newPrometheus(t, rig.MIGGPU(0)), newPrometheus(t, rig.MIGGPU(0))
	t.Setenv("GPU_PROMETHEUS_TOKEN", "hunter2")
	t.Setenv("GPU_PROMETHEUS_URL", s.URL+"/api")
	asks := func(url, more string) string {
		return r.Block() + utilizationOf(fmt.Sprintf("prometheus = {\n    url = %q\n%s  }", url, more))
	}
	r.Steps(
		resource.TestStep{Config: asks(s.URL, "")},
		resource.TestStep{Config: asks(other.URL, ""), ExpectError: regexp.MustCompile(`Token is for another server`)},
		resource.TestStep{
			Config: asks(strings.Replace(s.URL, "http:", "https:", 1), ""), ExpectError: regexp.MustCompile(`Token is for another server`),
		},
	)
	if len(s.headers) == 0 || s.headers[0].Get("Authorization") != "Bearer hunter2" {
		t.Errorf("the server heard %v", s.headers)
	}
	if len(other.headers) > 0 {
		t.Errorf("the other server heard %v", other.headers)
	}
	r.Steps(resource.TestStep{Config: asks(other.URL, "    bearer_token = \"its-own\"\n")})
	if len(other.headers) == 0 || other.headers[0].Get("Authorization") != "Bearer its-own" {
		t.Errorf("the other server heard %v", other.headers)
	}
}

// Secrets are in the configuration and nowhere else.
func TestAccUtilization_UtilizationKeepsSecrets(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	s := newPrometheus(t, rig.MIGGPU(0))
	c := rig.NewProcesses(t,
		r.Block()+secret+utilizationOf(fmt.Sprintf("prometheus = {\n    url = %q\n    headers = { X-Scope-OrgID = var.secret }\n  }", s.URL)))
	c.Env = append(c.Env, "GPU_PROMETHEUS_TOKEN=hunter2", "TF_VAR_secret=hunter3")
	c.Apply()
	state, err := os.ReadFile(filepath.Join(c.Dir, "terraform.tfstate"))
	r.Must(err)
	for _, secret := range []string{"hunter2", "hunter3"} {
		if strings.Contains(string(state), secret) {
			t.Errorf("the state has %q:\n%s", secret, state)
		}
	}
	if !strings.Contains(string(state), s.URL) {
		t.Errorf("the state has no data source:\n%s", state)
	}
	if h := s.headers[0]; h.Get("Authorization") != "Bearer hunter2" || h.Get("X-Scope-OrgID") != "hunter3" {
		t.Errorf("the server heard %v", h)
	}
	s.Close()
	out := c.Fails("plan")
	rig.WantSaid(t, out, "No metrics from Prometheus", s.URL, "leave prometheus out")
	if strings.Contains(out, "hunter") {
		t.Errorf("the error has a secret:\n%s", out)
	}
}

func TestAccUtilization_UtilizationOfAHostThatFailsToMeasure(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	r.Must(r.Fleet.InjectFault(t.Context(), "hgx01", simulated.Fault{
		Op: simulated.OpMeasure, Code: backend.Failed, Detail: "nvmlDeviceGetSamples: unknown error (999)",
	}))
	r.Steps(r.Rejects(r.Block()+utilizationOf(), "Host cannot be measured", "Host: hgx01", "nvmlDeviceGetSamples"))
}

func TestAccUtilization_WarningsOfPrometheus(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"success","warnings":["store thanos-3 is unavailable"],"data":{"resultType":"matrix","result":[]}}`))
	}))
	t.Cleanup(s.Close)
	c := rig.NewCLI(t, r.Block()+utilizationOf(fmt.Sprintf("prometheus = { url = %q }", s.URL)))
	rig.WantSaid(t, c.Ok("plan"), "The Prometheus server warns", "Found: Store thanos-3 is unavailable.")
}

func TestAccUtilization_UtilizationRefuses(t *testing.T) {
	t.Parallel()
	s := rig.HGX(rig.H100, 1)
	s.Hosts = append(s.Hosts, rig.TwoNodes().Hosts...)
	r := rig.New(t, s)
	no := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "go away", http.StatusForbidden) }))
	t.Cleanup(no.Close)
	recorded := filepath.Join(t.TempDir(), "recorded.json")
	rig.Write(t, recorded, string(r.File()))
	server := func(more string) string {
		return utilizationOf(fmt.Sprintf("prometheus = { url = %q, %s }", no.URL, more))
	}
	for _, c := range []struct {
		name, config string
		says         []string
	}{
		{"too short", `data "gpu_utilization" "all" { window = "99ms" }`, []string{"Invalid duration", `"99ms"`, "A duration from 100ms to 60s"}},
		{"too long", `data "gpu_utilization" "all" { window = "61s" }`, []string{"Invalid duration", `"61s"`, "from 100ms to 60s"}},
		{"no duration", `data "gpu_utilization" "all" { window = "2" }`, []string{"Invalid duration", `"2"`}},
		{"unknown host", utilizationOf(`hosts = ["hgx09"]`), []string{"Unknown host", "hgx09"}},
		{"no host", utilizationOf(`hosts = []`), []string{"at least 1"}},
		{"unknown GPU", utilizationOf(`gpu_ids = ["GPU-1"]`), []string{"Unknown GPU", "hgx01", "has a GPU GPU-1", "gpu_inventory"}},
		{
			"Hyper-V", utilizationOf(`hosts = ["hv01", "hgx01", "hv02"]`), []string{
				"Hosts cannot be measured", "Hosts: hv01, hv02", "Fix: Leave them out of hosts",
			},
		},
		{
			"no address", utilizationOf(`prometheus = { url = "prometheus:9090" }`),
			[]string{"Invalid address of a Prometheus server", "Wanted: An address such as", "http://prometheus.example:9090"},
		},
		{
			"a password", utilizationOf(`prometheus = { url = "http://me:${local.secret}@prometheus" }`),
			[]string{"Found: A user or a password in the address"},
		},
		{"lookback", server(`lookback = "1h"`), []string{"Invalid duration", "from 2h to 8760h"}},
		{"time zone", server(`timezone = "Local"`), []string{"Unknown time zone", `"Local"`}},
		{"header", server(`headers = { "X Y" = "z" }`), []string{"must be the name of an HTTP header"}},
		{"header value", server(`headers = { X = "${local.secret}\nY: z" }`), []string{"Invalid header", "line breaks"}},
		{"refused", server(`bearer_token = local.secret`), []string{"No metrics from Prometheus", "403", "go away", "bearer_token"}},
		{
			"nobody there", utilizationOf(`prometheus = { url = "http://127.0.0.1:1" }`),
			[]string{"No metrics from Prometheus", "refused", "leave prometheus out"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cli := rig.NewCLI(t, hunter2+r.Block()+c.config)
			out := cli.Fails("plan")
			if !rig.Says(c.says...).MatchString(out) {
				t.Errorf("want %q:\n%s", c.says, out)
			}
			if strings.Contains(out, "hunter2") {
				t.Errorf("the error has a secret:\n%s", out)
			}
		})
	}
	t.Run("recorded", func(t *testing.T) {
		t.Parallel()
		cli := rig.NewCLI(t, fmt.Sprintf("provider \"gpu\" {\n  inventory_snapshot = %q\n}\n", recorded)+utilizationOf(`hosts = ["hgx01"]`))
		if out := cli.Fails("plan"); !rig.Says("A recorded inventory cannot be measured", "Hosts: hgx01", "without inventory_snapshot").
			MatchString(out) {
			t.Errorf("%s", out)
		}
	})
}

// Hyper-V hosts are left out unless they are named.
func TestAccUtilization_UtilizationOfAMixedFleet(t *testing.T) {
	t.Parallel()
	s := rig.HGX(rig.H100, 1)
	s.Hosts = append(s.Hosts, rig.TwoNodes().Hosts...)
	r := rig.New(t, s)
	c := rig.NewCLI(t, r.Block()+utilizationOf()+"output \"hosts\" { value = keys("+utilizationAll+".utilization) }\n")
	rig.WantSaid(t, c.Apply(), "Warning: Hosts were not measured", "Hosts: hv01, hv02", "Name the Linux hosts in hosts")
	if got := c.Output("hosts"); got != `["hgx01"]` {
		t.Errorf("measured are %s", got)
	}
	c.Write(r.Block() + utilizationOf(`hosts = ["hgx01"]`))
	if out := c.Apply(); strings.Contains(out, "were not measured") {
		t.Errorf("there is nothing to warn of:\n%s", out)
	}
}

func TestAccUtilization_UtilizationOfASilentHost(t *testing.T) {
	t.Parallel()
	s := rig.HGX(rig.H100, 1)
	other := rig.HGX(rig.H100, 1).Hosts[0]
	other.Name = "hgx02"
	other.GPUs[0].ID = rig.MIGGPU(7)
	s.Hosts = append(s.Hosts, other)
	r := rig.New(t, s)
	r.Silent(true, "hgx02")
	r.Steps(
		r.Rejects(r.Block()+utilizationOf(), "Host does not answer", "Host: hgx02"),
		resource.TestStep{
			// That the GPU is nowhere is not known without the host.
			Config: r.Block(`on_unreachable = "keep"`) + utilizationOf(fmt.Sprintf("gpu_ids = [%q, %q]", rig.MIGGPU(0), rig.MIGGPU(7))),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("unreachable_hosts"),
					knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("hgx02")})),
				statecheck.ExpectKnownValue(utilizationAll, rig.Jsonpath("utilization"), knownvalue.MapSizeExact(1)),
			},
		},
	)
}
