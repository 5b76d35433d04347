package gpuutilization

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization/dcgm"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const (
	// step is the grain of the long view.
	step = time.Hour
	// atOnce is how many GPUs one query is about: each stands in it.
	atOnce = 500
	// serverTimeout bounds each query.
	serverTimeout = time.Minute
)

// prometheus is the server that is asked for the long view.
type prometheus struct {
	config   prometheusModel
	client   *dcgm.Client
	lookback time.Duration
	place    *time.Location
}

// decodePrometheus reads a configuration that is valid. It returns nil when there is no
// server.
func decodePrometheus(ctx context.Context, m *prometheusModel, diags *diag.Diagnostics) *prometheus {
	if m == nil {
		return nil
	}
	out := &prometheus{config: *m, lookback: defaultLookback, place: time.UTC}
	if !m.Lookback.IsNull() {
		out.lookback, _ = time.ParseDuration(m.Lookback.ValueString()) // it is valid
	}
	if !m.Timezone.IsNull() {
		out.place, _ = time.LoadLocation(m.Timezone.ValueString()) // it is valid
	}
	options := dcgm.Options{Token: m.Token.ValueString(), Headers: map[string]string{}}
	if options.Token == "" {
		options.Token = tokenFor(m.URL.ValueString(), diags)
	}
	diags.Append(m.Headers.ElementsAs(ctx, &options.Headers, false)...)
	client, err := dcgm.New(m.URL.ValueString(), options)
	if err != nil {
		diags.AddAttributeError(path.Root("prometheus"), "Invalid address of a Prometheus server", err.Error())
	}
	out.client = client
	return out
}

// tokenFor is the token of the environment, if it may go to that server.
func tokenFor(address string, diags *diag.Diagnostics) string {
	token, of := os.Getenv(EnvToken), os.Getenv(EnvServer)
	if token == "" || of == "" {
		return token
	}
	asked, err := url.Parse(address)
	owner, ownerErr := url.Parse(of)
	if err == nil && ownerErr == nil && owner.Host != "" && serverOf(asked) == serverOf(owner) {
		return token
	}
	name := func(u *url.URL, err error) string {
		if err != nil {
			return "no address" // it may have a password
		}
		return u.Redacted()
	}
	diags.AddAttributeError(path.Root("prometheus").AtName("url"), "Token is for another server", fmt.Sprintf(
		"%s\n\nFound: prometheus.url is %s, and the token in %s is for the server of %s, which is %s.\n"+
			"Fix: Write the url of that server, with its scheme and port; or give this one a token of its own in bearer_token.",
		DataSourceType, name(asked, err), EnvToken, EnvServer, name(owner, ownerErr)))
	return ""
}

// serverOf is what two addresses have in common that reach one server in one way.
func serverOf(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// stored is what the state keeps of the configuration: no secret.
func (p *prometheus) stored() *prometheusModel {
	if p == nil {
		return nil
	}
	return &prometheusModel{
		URL: p.config.URL, Lookback: p.config.Lookback, Timezone: p.config.Timezone, Token: types.StringNull(),
		Headers: types.MapNull(types.StringType),
	}
}

// record asks the server for the long view of GPUs, by UUID; nil without a server.
func (p *prometheus) record(ctx context.Context, read []reading, now time.Time, diags *diag.Diagnostics) map[string]utilization.History {
	if p == nil {
		return nil
	}
	var ids []string
	for i := range read {
		for j := range read[i].gpus {
			ids = append(ids, read[i].gpus[j].figures.ID)
		}
	}
	to := now.Truncate(step)
	past := dcgm.Past{From: to.Add(-p.lookback.Truncate(step)), To: to, Step: step, Place: p.place}
	out := map[string]utilization.History{}
	var warnings []string
	for part := range slices.Chunk(ids, atOnce) {
		r, err := p.ask(ctx, part, past)
		if err != nil {
			diags.AddAttributeError(path.Root("prometheus"), "No metrics from Prometheus", fmt.Sprintf(
				"%s\n\nFound: %v.\nFix: Check that the server's address is right, that it can be reached from where Terraform runs and that it "+
					"accepts bearer_token or headers; "+
					"or leave prometheus out: the present figures need no server.", DataSourceType, words.Capital(err.Error())))
			return nil
		}
		for id, h := range r.GPUs {
			out[id] = h
		}
		warnings = append(warnings, r.Warnings...)
	}
	if slices.Sort(warnings); len(warnings) > 0 {
		diags.AddAttributeWarning(path.Root("prometheus"), "The Prometheus server warns", DataSourceType+"\n\n"+
			"Found: "+words.Capital(strings.Join(slices.Compact(warnings), "; ")+"."))
	}
	return out
}

func (p *prometheus) ask(ctx context.Context, ids []string, past dcgm.Past) (dcgm.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	return p.client.Record(ctx, ids, past)
}
