// Package dcgm asks a Prometheus server how busy GPUs were in the past, where it keeps the
// metrics of NVIDIA's DCGM exporter.
package dcgm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Client asks one server.
type Client struct {
	address string
	api     prometheus.API
}

// Options are what a server may want besides its address.
type Options struct {
	// Token is sent as a bearer token, if there is one.
	Token string
	// Headers are sent as well, as a server for several tenants wants them.
	Headers map[string]string
	// Transport reaches the server; nil is the library's own.
	Transport http.RoundTripper
}

// New makes a client of the server at an address such as "http://prometheus:9090".
func New(address string, o Options) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		if strings.Contains(address, "@") {
			address = "what is given" // it may have a password
		} else {
			address = strconv.Quote(address)
		}
		return nil, fmt.Errorf("%s is not the address of a Prometheus server such as \"http://prometheus.example:9090\"", address)
	}
	transport := cmp.Or(o.Transport, api.DefaultRoundTripper)
	headers := http.Header{}
	for name, value := range o.Headers {
		headers.Set(name, value)
	}
	if o.Token != "" {
		headers.Set("Authorization", "Bearer "+o.Token)
	}
	if len(headers) > 0 {
		transport = secrets{headers: headers, server: parsed, next: transport}
	}
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("the Prometheus server %s: %w", parsed.Redacted(), err)
	}
	return &Client{address: parsed.Redacted(), api: prometheus.NewAPI(client)}, nil
}

// secrets adds headers to requests of one server. Where it redirects to is none of their
// business.
type secrets struct {
	headers http.Header
	server  *url.URL
	next    http.RoundTripper
}

func (s secrets) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != s.server.Scheme || r.URL.Host != s.server.Host {
		return s.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	maps.Copy(r.Header, s.headers)
	return s.next.RoundTrip(r)
}

// Past is a time to look at.
type Past struct {
	From, To time.Time
	// Step is the grain: each step has the highest value within it.
	Step time.Duration
	// Place is where nights are nights; nil is UTC.
	Place *time.Location
}

// maxPoints is how many points of one GPU Prometheus returns.
const maxPoints = 11000

// Record is what the server has of GPUs.
type Record struct {
	// GPUs are the long views by the GPU's UUID, also of those that the server knows nothing of.
	GPUs map[string]utilization.History
	// Warnings are the server's own, such as that its answer is not complete.
	Warnings []string
}

// Record reads the long view of GPUs, in one query.
func (c *Client) Record(ctx context.Context, gpus []string, past Past) (Record, error) {
	if err := past.check(gpus); err != nil {
		return Record{}, err
	}
	out := Record{GPUs: map[string]utilization.History{}}
	points := map[string][]utilization.Point{}
	if len(gpus) > 0 {
		// The first point stands for the first step.
		window := prometheus.Range{Start: past.From.Add(past.Step), End: past.To, Step: past.Step}
		value, warnings, _, err := c.api.QueryRange(ctx, query(gpus, past.Step), window)
		if err != nil {
			return Record{}, fmt.Errorf("ask the Prometheus server %s for DCGM's metrics: %w", c.address, explain(err))
		}
		out.Warnings = warnings
		matrix, ok := value.(model.Matrix)
		if !ok {
			return Record{}, fmt.Errorf("the Prometheus server %s answered with %T, but a matrix is wanted", c.address, value)
		}
		for _, series := range matrix {
			id := string(series.Metric[label])
			for _, sample := range series.Values {
				if v := float64(sample.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
					points[id] = append(points[id], utilization.Point{At: sample.Timestamp.Time(), Busy: min(max(v, 0), 100)})
				}
			}
		}
	}
	for _, id := range gpus {
		out.GPUs[id] = utilization.Summarize(points[id], past.From, past.To, past.Step, cmp.Or(past.Place, time.UTC))
	}
	return out, nil
}

func (p *Past) check(gpus []string) error {
	switch steps := p.To.Sub(p.From) / max(p.Step, 1); {
	case p.Step < time.Second:
		return fmt.Errorf("the step is %s, but at least 1 s is wanted", p.Step)
	case steps < 1:
		return fmt.Errorf("from %s to %s is less than one step of %s", p.From.Format(time.RFC3339), p.To.Format(time.RFC3339), p.Step)
	case steps > maxPoints:
		return fmt.Errorf("from %s to %s are %d steps of %s, but Prometheus returns %d at most; take a longer step",
			p.From.Format(time.RFC3339), p.To.Format(time.RFC3339), steps, p.Step, maxPoints)
	}
	if i := slices.Index(gpus, ""); i >= 0 {
		return errors.New("a GPU has no UUID")
	}
	return nil
}

// label is the UUID's in the metrics of DCGM's exporter.
const label = "UUID"

// query is the highest percentage of each step. The engine's activity goes first: GPUs in
// MIG mode have no other, and of their instances the busiest counts.
func query(gpus []string, step time.Duration) string {
	selector := fmt.Sprintf("{%s=~%q}[%ds]", label, strings.Join(words.Each(gpus, regexp.QuoteMeta), "|"), int64(step.Seconds()))
	return fmt.Sprintf("max by (%s) (max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE%s) * 100) or max by (%s) "+
		"(max_over_time(DCGM_FI_DEV_GPU_UTIL%s))",
		label, selector, label, selector)
}

// explain adds what the server said to the library's error.
func explain(err error) error {
	var answer *prometheus.Error
	if errors.As(err, &answer) && answer.Detail != "" {
		return fmt.Errorf("%w (%s)", err, shorten(answer.Detail))
	}
	return err
}

// shorten keeps what fits into a message, such as the title of an error page.
func shorten(text string) string {
	const most = 200
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
