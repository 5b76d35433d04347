package dcgm_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/utilization/dcgm"
)

// TestPrometheus asks a real server, which was filled with two days of metrics: one GPU in
// the usual way, one in MIG mode with two instances, each of which works for half the time.
func TestPrometheus(t *testing.T) {
	for _, tool := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s: apt-get install --no-install-recommends prometheus", tool)
		}
	}
	dir := t.TempDir()
	to := time.Now().Truncate(time.Hour).Add(-3 * time.Hour)
	past := dcgm.Past{From: to.Add(-48 * time.Hour), To: to, Step: 10 * time.Minute}

	var util, engine strings.Builder
	for at := past.From.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
		busy := 0
		if at.Minute() == 25 { // one minute of each hour, which no step may miss
			busy = 80
		}
		fmt.Fprintf(&util, "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=%q} %d %d\n", office, busy, at.Unix())
		for i := range 2 {
			active := "0.0"
			if at.Add(-time.Second).Hour()%2 == i {
				active = "0.5"
			}
			fmt.Fprintf(&engine, "DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"1\",UUID=%q,GPU_I_ID=\"%d\"} %s %d\n", always, i, active, at.Unix())
		}
	}
	metrics := filepath.Join(dir, "metrics")
	text := "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n" + util.String() + "# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge\n" +
		engine.String() + "# EOF\n"
	config := filepath.Join(dir, "prometheus.yml")
	for path, content := range map[string]string{metrics: text, config: "global: {}\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics", metrics, data).
		CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	client, err := dcgm.New(start(t, config, data), dcgm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Record(t.Context(), []string{office, always, nobody}, past)
	if err != nil {
		t.Fatal(err)
	}
	if h := got.GPUs[office]; h.Recorded != 48*time.Hour || h.Peak != 80 || h.Idle == nil || *h.Idle != 5.0/6 {
		t.Errorf("the usual GPU: %+v", h)
	}
	if h := got.GPUs[always]; h.Recorded != 48*time.Hour || h.Peak != 50 || h.Idle == nil || *h.Idle != 0 {
		t.Errorf("the GPU in MIG mode: %+v", h)
	}
	if h := got.GPUs[nobody]; h.Recorded != 0 || h.Idle != nil {
		t.Errorf("a GPU that is not there: %+v", h)
	}
}

// start runs a server on a port of its own until the test ends.
func start(t *testing.T, config, data string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), "prometheus", "--config.file="+config, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=30d", "--web.listen-address="+address)
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Wait() // it is killed with the test's context
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // a process of its own
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/-/ready", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
	}
	said, err := os.ReadFile(log.Name())
	t.Fatalf("Prometheus is not ready after a minute: %s %v", said, err)
	return ""
}
