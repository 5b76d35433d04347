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

// tellAge says how old the recording is, or why it may not be planned on.
func (p *gpuProvider) tellAge(file string, s gpu.Snapshot, edits []string, maxAge types.String, at path.Path, diags *diag.Diagnostics) {
	now := p.now()
	most, _ := time.ParseDuration(maxAge.ValueString()) // it is valid, or none
	var oldest gpu.Recording
	var from string
	var untimed, refused []string
	for _, h := range s.Hosts {
		r, timed := s.Recorded[h.Name]
		edited := slices.Contains(edits, h.Name)
		switch {
		case edited:
			untimed = append(untimed, h.Name+" (edited after it was recorded)")
		case !timed:
			untimed = append(untimed, h.Name)
		case most > 0 && (now.Sub(r.At) > most || r.At.Sub(now) > clockSkew):
			refused = append(refused, fmt.Sprintf("%s was recorded on %s, %s", h.Name, r.At.Format(time.RFC3339), ago(now.Sub(r.At))))
		}
		if timed && !edited && (from == "" || r.At.Before(oldest.At)) {
			oldest, from = r, h.Name
		}
	}
	if most > 0 && len(untimed) > 0 {
		refused = append(refused, "no time is recorded of "+words.Join(untimed))
	}
	if len(refused) > 0 {
		diags.AddAttributeError(at, "Recorded inventory is too old", fmt.Sprintf(
			"File: %s\nFound: %s.\nWanted: Recordings of the last %s (max_snapshot_age).\nFix: Record the hosts again, as with `gpu-agent record`.", file, words.Capital(strings.Join(refused, "; ")), maxAge.ValueString()))
		return
	}
	var found []string
	if from != "" {
		found = append(found, fmt.Sprintf("the oldest recording, of %s, was made on %s, %s", from, oldest.At.Format(time.RFC3339), ago(now.Sub(oldest.At))))
	}
	if len(untimed) > 0 {
		found = append(found, "no time is recorded of "+words.Join(untimed))
	}
	diags.AddAttributeWarning(at, "Planned on a recording", fmt.Sprintf("File: %s\nFound: %s.\nThe hosts may have changed since; an apply asks them.", file, words.Capital(strings.Join(found, "; "))))
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
