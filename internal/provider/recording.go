package provider

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// clockSkew is how far the clock of who recorded may be ahead.
const clockSkew = 5 * time.Minute

// recordedHosts are the hosts of a recorded inventory. It says how old that is, once for
// the run, and refuses one that is older than the configuration allows.
func (p *gpuProvider) recordedHosts(file string, maxAge types.String, at path.Path, diags *diag.Diagnostics) map[string]fleet.Endpoint {
	raw, err := os.ReadFile(file)
	if err != nil {
		diags.AddAttributeError(at, "Recorded inventory cannot be read", badFile(file, err))
		return nil
	}
	var edited []string
	s, err := gpu.ParseSnapshot(raw)
	if err == nil {
		edited, err = s.Edited(raw)
	}
	if err != nil {
		diags.AddAttributeError(at, "Recorded inventory cannot be read", badFile(file, err))
		return nil
	}
	p.tellAge(file, s, edited, maxAge, at, diags)
	out := make(map[string]fleet.Endpoint, len(s.Hosts))
	for _, h := range s.Hosts {
		gpu.SayPlainly(&h)
		out[h.Name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return connect.Recorded{Host: h}, nil }}
	}
	return out
}

// ages are the ages of a recording's hosts.
type ages struct {
	oldest  gpu.Recording
	host    string   // of the oldest; "" where no time is recorded
	untimed []string // hosts of which no time is recorded
	refused []string // what is too old, in words
}

// agesOf compares the ages of hosts with what a configuration allows; 0 for any age.
func (p *gpuProvider) agesOf(s gpu.Snapshot, edits []string, most time.Duration) ages {
	var out ages
	now := p.now()
	for _, h := range s.Hosts {
		recording, timed := s.Recorded[h.Name]
		age := now.Sub(recording.At)
		switch {
		case slices.Contains(edits, h.Name):
			out.untimed = append(out.untimed, h.Name+" (edited after it was recorded)")
			continue
		case !timed:
			out.untimed = append(out.untimed, h.Name)
			continue
		case most > 0 && (age > most || -age > clockSkew):
			out.refused = append(out.refused, fmt.Sprintf("%s was recorded on %s, %s", h.Name, recording.At.Format(time.RFC3339), ago(age)))
		}
		if out.host == "" || recording.At.Before(out.oldest.At) {
			out.oldest, out.host = recording, h.Name
		}
	}
	if most > 0 && len(out.untimed) > 0 {
		out.refused = append(out.refused, "no time is recorded of "+words.Join(out.untimed))
	}
	return out
}

// tellAge says how old the recording is, or why it may not be planned on.
func (p *gpuProvider) tellAge(file string, s gpu.Snapshot, edits []string, maxAge types.String, at path.Path, diags *diag.Diagnostics) {
	most, _ := time.ParseDuration(maxAge.ValueString()) // it is valid, or none
	of := p.agesOf(s, edits, most)
	if len(of.refused) > 0 {
		diags.AddAttributeError(at, "Recorded inventory is too old", fmt.Sprintf(
			"File: %s\nFound: %s.\nWanted: Recordings of the last %s (max_snapshot_age).\nFix: Record the hosts again, as with `gpu-agent record`.",
			file, words.Capital(strings.Join(of.refused, "; ")), maxAge.ValueString()))
		return
	}
	var found []string
	if of.host != "" {
		found = append(found, fmt.Sprintf("the oldest recording, of %s, was made on %s, %s",
			of.host, of.oldest.At.Format(time.RFC3339), ago(p.now().Sub(of.oldest.At))))
	}
	if len(of.untimed) > 0 {
		found = append(found, "no time is recorded of "+words.Join(of.untimed))
	}
	diags.AddAttributeWarning(at, "Planned on a recording", fmt.Sprintf(
		"File: %s\nFound: %s.\nThe hosts may have changed since; an apply asks them.", file, words.Capital(strings.Join(found, "; "))))
}

// ago is an age as people say it.
func ago(d time.Duration) string {
	switch {
	case d < -clockSkew:
		return "which is in the future by this machine's clock"
	case d < 2*time.Minute:
		return "just now"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
