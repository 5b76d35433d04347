package gpuutilization

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// text is a validator of texts. wrong tells what was found and what is wanted instead, if anything is.
func text(title, must string, wrong func(s string) (found, wanted string)) validator.String {
	return tfschema.StringValidator{Must: tfschema.Must(must), Check: func(s string, at path.Path, diags *diag.Diagnostics) {
		if found, wanted := wrong(s); wanted != "" {
			diags.AddAttributeError(at, title, fmt.Sprintf("Attribute: %s\nFound: %s.\nWanted: %s.", at, words.Capital(found),
				words.Capital(wanted)))
		}
	}}
}

// between accepts durations within bounds.
func between(least, most time.Duration) validator.String {
	must := fmt.Sprintf("a duration from %s to %s", plain(least), plain(most))
	return text("Invalid duration", must, func(s string) (string, string) {
		if d, err := time.ParseDuration(s); err == nil && d >= least && d <= most {
			return "", ""
		}
		return fmt.Sprintf("%q", s), must
	})
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
func address() validator.String {
	const must = "an address such as \"http://prometheus.example:9090\", without credentials, query or fragment"
	return text("Invalid address of a Prometheus server", must, func(s string) (string, string) {
		u, err := url.Parse(s)
		switch {
		case err == nil && u.User != nil:
			return "a user or a password in the address, which would be kept in the state", must + "; the token of bearer_token is not kept"
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
			return "something else than the address of a server", must
		}
		return "", ""
	})
}

// zone accepts names of the IANA database. "Local" would be the zone of whoever runs
// Terraform.
func zone() validator.String {
	const must = "the name of a zone in the IANA database, such as \"Europe/Berlin\" or \"UTC\""
	return text("Unknown time zone", must, func(s string) (string, string) {
		if _, err := time.LoadLocation(s); err == nil && s != "" && s != time.Local.String() {
			return "", ""
		}
		return fmt.Sprintf("%q", s), must
	})
}

// token is what the name of an HTTP header is, in RFC 9110.
var token = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// headerName accepts names of HTTP headers.
func headerName() validator.String {
	return stringvalidator.RegexMatches(token, "must be the name of an HTTP header")
}

// headerValue accepts values of HTTP headers. They may be secret, and are not repeated.
func headerValue() validator.String {
	const must = "the value of an HTTP header"
	return text("Invalid header", must, func(s string) (string, string) {
		if s != "" && !strings.ContainsFunc(s, unicode.IsControl) {
			return "", ""
		}
		return "an empty text, or one with line breaks or control characters", must
	})
}
