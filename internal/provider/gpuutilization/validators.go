package gpuutilization

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// check is a validator of texts that are known.
type check func(s string) (found, wanted string)

func (c check) run(req validator.StringRequest, resp *validator.StringResponse, title string) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if found, wanted := c(req.ConfigValue.ValueString()); wanted != "" {
		resp.Diagnostics.AddAttributeError(req.Path, title, fmt.Sprintf("Attribute: %s\nFound: %s.\nWanted: %s.", req.Path, words.Capital(found), words.Capital(wanted)))
	}
}

// between accepts durations within bounds.
type between struct{ min, max time.Duration }

func (b between) Description(context.Context) string {
	return fmt.Sprintf("a duration from %s to %s", plain(b.min), plain(b.max))
}

func (b between) MarkdownDescription(ctx context.Context) string { return b.Description(ctx) }

func (b between) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	check(func(s string) (string, string) {
		if d, err := time.ParseDuration(s); err == nil && d >= b.min && d <= b.max {
			return "", ""
		}
		return fmt.Sprintf("%q", s), b.Description(ctx)
	}).run(req, resp, "Invalid duration")
}

// plain prints whole hours and seconds as people write them: "2h" and not "2h0m0s".
func plain(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Second && d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return d.String()
}

// address accepts the URL of a server. What is refused is not repeated where it may have
// a password in it.
type address struct{}

func (address) Description(context.Context) string {
	return "an address such as \"http://prometheus.example:9090\", without credentials, query or fragment"
}

func (a address) MarkdownDescription(ctx context.Context) string { return a.Description(ctx) }

func (a address) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	check(func(s string) (string, string) {
		u, err := url.Parse(s)
		switch {
		case err == nil && u.User != nil:
			return "a user or a password in the address, which would be kept in the state", a.Description(ctx) + "; the token of bearer_token is not kept"
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
			return "something else than the address of a server", a.Description(ctx)
		}
		return "", ""
	}).run(req, resp, "Invalid address of a Prometheus server")
}

// zone accepts names of the IANA database. "Local" would be the zone of whoever runs
// Terraform.
type zone struct{}

func (zone) Description(context.Context) string {
	return "the name of a zone in the IANA database, such as \"Europe/Berlin\" or \"UTC\""
}

func (z zone) MarkdownDescription(ctx context.Context) string { return z.Description(ctx) }

func (z zone) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	check(func(s string) (string, string) {
		if _, err := time.LoadLocation(s); err == nil && s != "" && s != time.Local.String() {
			return "", ""
		}
		return fmt.Sprintf("%q", s), z.Description(ctx)
	}).run(req, resp, "Unknown time zone")
}

// token is what the name of an HTTP header is, in RFC 9110.
var token = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// headerName accepts names of HTTP headers.
func headerName() validator.String {
	return stringvalidator.RegexMatches(token, "must be the name of an HTTP header")
}

// headerValue accepts values of HTTP headers. They may be secret, and are not repeated.
type headerValue struct{}

func (headerValue) Description(context.Context) string { return "the value of an HTTP header" }

func (h headerValue) MarkdownDescription(ctx context.Context) string { return h.Description(ctx) }

func (h headerValue) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	check(func(s string) (string, string) {
		if s != "" && !strings.ContainsFunc(s, unicode.IsControl) {
			return "", ""
		}
		return "an empty text, or one with line breaks or control characters", h.Description(ctx)
	}).run(req, resp, "Invalid header")
}
