package dcgm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // some machines have no time zones

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization/dcgm"
)

const (
	office = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"
	always = "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5"
	nobody = "GPU-00000000-0000-0000-0000-000000000000"
)

// berlin is a place with another time than UTC.
func berlin(t *testing.T) *time.Location {
	t.Helper()
	place, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return place
}

// server answers /api/v1/query_range as Prometheus does, from functions of time by GPU.
type server struct {
	*httptest.Server
	t       *testing.T
	metrics map[string]func(at time.Time) float64
	queries []string
	token   string
}

func newServer(t *testing.T, metrics map[string]func(time.Time) float64) *server {
	t.Helper()
	s := &server{t: t, metrics: metrics}
	s.Server = httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.Close)
	return s
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || r.URL.Path != "/api/v1/query_range" {
		http.NotFound(w, r)
		return
	}
	s.queries = append(s.queries, r.Form.Get("query"))
	s.token = r.Header.Get("Authorization")
	number := func(name string) float64 {
		n, err := strconv.ParseFloat(r.Form.Get(name), 64)
		if err != nil {
			s.t.Errorf("%s=%q", name, r.Form.Get(name))
		}
		return n
	}
	type series struct {
		Metric map[string]string `json:"metric"`
		Values [][2]any          `json:"values"`
	}
	result := []series{}
	for id, busy := range s.metrics {
		if !strings.Contains(r.Form.Get("query"), id) {
			continue
		}
		one := series{Metric: map[string]string{"UUID": id}}
		for at := number("start"); at <= number("end"); at += number("step") {
			v := strconv.FormatFloat(busy(time.Unix(int64(at), 0)), 'f', -1, 64)
			one.Values = append(one.Values, [2]any{at, v})
		}
		result = append(result, one)
	}
	answer := map[string]any{
		"status": "success", "warnings": []string{"a store was not reached"}, "data": map[string]any{"resultType": "matrix", "result": result},
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

// fortnight are two whole weeks.
func fortnight(place *time.Location) dcgm.Past {
	to := time.Date(2026, 11, 2, 0, 0, 0, 0, place)
	return dcgm.Past{From: to.AddDate(0, 0, -14), To: to, Step: 15 * time.Minute, Place: place}
}

func TestRecord(t *testing.T) {
	place := berlin(t)
	s := newServer(t, map[string]func(time.Time) float64{
		office: func(at time.Time) float64 {
			// The step that ends at nine was before office hours.
			local := at.Add(-time.Minute).In(place)
			if d := local.Weekday(); d == time.Saturday || d == time.Sunday || local.Hour() < 9 || local.Hour() >= 17 {
				return 0
			}
			return 60
		},
		always: func(at time.Time) float64 {
			if at.Minute() == 0 {
				return math.NaN()
			}
			return 120
		},
	})
	client, err := dcgm.New(s.URL, dcgm.Options{Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	past := fortnight(place)
	got, err := client.Record(t.Context(), []string{office, always, nobody}, past)
	if err != nil {
		t.Fatal(err)
	}
	part := func(f float64) *float64 { return &f }
	hours := past.To.Sub(past.From) // an hour more than 14 days: summer time ends in between
	want := dcgm.Record{
		Warnings: []string{"a store was not reached"},
		GPUs: map[string]utilization.History{
			office: {
				From: past.From, To: past.To, Step: past.Step, Recorded: hours, Peak: 60,
				Mean: 60 * 80 / hours.Hours(), Idle: part(1 - 80/hours.Hours()),
				Nights: part(1), Weekends: part(1), Days: part(1 - 80.0/140), // 14 hours on ten days
			},
			always: {
				From: past.From, To: past.To, Step: past.Step, Recorded: hours * 3 / 4, Peak: 100, Mean: 100,
				Idle: part(0), Nights: part(0), Weekends: part(0), Days: part(0),
			},
			nobody: {From: past.From, To: past.To, Step: past.Step},
		},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(s.queries) != 1 || s.token != "Bearer secret" {
		t.Errorf("%d queries, with %q", len(s.queries), s.token)
	}
	for _, part := range []string{
		"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", `UUID=~"` + office + "|" + always + "|" + nobody + `"`,
		"[900s]", "max by (UUID)",
	} {
		if !strings.Contains(s.queries[0], part) {
			t.Errorf("the query is %s, without %s", s.queries[0], part)
		}
	}
}

// Without GPUs there is nothing to ask.
func TestRecordOfNothing(t *testing.T) {
	s := newServer(t, nil)
	client, err := dcgm.New(s.URL, dcgm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	past := fortnight(time.UTC)
	past.Place = nil
	got, err := client.Record(t.Context(), nil, past)
	if err != nil || len(got.GPUs) != 0 || len(s.queries) != 0 {
		t.Errorf("got %+v, %v after %d queries", got, err, len(s.queries))
	}
}

func TestPastIsChecked(t *testing.T) {
	client, err := dcgm.New("http://127.0.0.1:1", dcgm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	to := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	for says, past := range map[string]dcgm.Past{
		"the step is 0s":                              {From: to.Add(-time.Hour), To: to},
		"is less than one step of 1h0m0s":             {From: to.Add(-time.Minute), To: to, Step: time.Hour},
		"less than one step":                          {From: to, To: to.Add(-time.Hour), Step: time.Minute},
		"are 11001 steps of 1s, but Prometheus retur": {From: to.Add(-11001 * time.Second), To: to, Step: time.Second},
	} {
		if _, err := client.Record(t.Context(), []string{office}, past); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
	if _, err := client.Record(t.Context(), []string{""}, dcgm.Past{From: to.Add(-time.Hour), To: to, Step: time.Minute}); err == nil ||
		!strings.Contains(err.Error(), "no UUID") {
		t.Errorf("got %v", err)
	}
}

func TestAddress(t *testing.T) {
	for _, address := range []string{"", "prometheus:9090", "ftp://prometheus", "http://", "http://%"} {
		if _, err := dcgm.New(address, dcgm.Options{}); err == nil ||
			!strings.Contains(err.Error(), "is not the address of a Prometheus server") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// An address that is wrong may still have a password in it.
func TestAddressKeepsAPassword(t *testing.T) {
	_, err := dcgm.New("htp://user:hunter2@prometheus", dcgm.Options{})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// Secrets go to the server that they are for, and not to where it redirects.
func TestSecretsStayWithTheirServer(t *testing.T) {
	heard := map[string]http.Header{}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard["elsewhere"] = r.Header
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer elsewhere.Close()
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard["own"] = r.Header
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer own.Close()
	client, err := dcgm.New(own.URL, dcgm.Options{Token: "hunter2", Headers: map[string]string{"x-scope-orgid": "team-a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Record(t.Context(), []string{office}, fortnight(time.UTC)); err == nil {
		t.Error("the refusal was not heard")
	}
	for server, want := range map[string][2]string{"own": {"Bearer hunter2", "team-a"}, "elsewhere": {"", ""}} {
		h := heard[server]
		if h == nil || h.Get("Authorization") != want[0] || h.Get("X-Scope-OrgID") != want[1] {
			t.Errorf("%s heard %v", server, h)
		}
	}
}

func TestServersThatSayNo(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		says   []string
	}{
		"a query that is refused": {
			422, `{"status":"error","errorType":"execution","error":"query processing would load too many samples"}`, []string{"too many samples"},
		},
		"a server of another kind":  {404, "<html>no\n\n  such page</html>", []string{"404", "no such page"}},
		"a proxy that wants a name": {401, "Unauthorized", []string{"401"}},
		"a very long page":          {500, strings.Repeat("x ", 5000), []string{"500", "..."}},
		"something else than JSON":  {200, "hello", []string{"ask the Prometheus server"}},
		"nothing":                   {200, "{}", []string{"Prometheus server"}},
		"another type of result": {
			200, `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, []string{"but a matrix is wanted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			}))
			defer s.Close()
			client, err := dcgm.New(strings.Replace(s.URL, "http://", "http://user:password@", 1), dcgm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Record(t.Context(), []string{office}, fortnight(time.UTC))
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, says := range append(test.says, "127.0.0.1") {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("got %v, want %s", err, says)
				}
			}
			if len(err.Error()) > 600 || strings.Contains(err.Error(), "password") {
				t.Errorf("it says too much: %v", err)
			}
		})
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	client, err := dcgm.New(s.URL, dcgm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Record(t.Context(), []string{office}, fortnight(time.UTC)); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Record(ctx, []string{office}, fortnight(time.UTC)); err == nil ||
		!strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v", err)
	}
}
