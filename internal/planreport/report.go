// Package planreport is the plan report: what the planner worked out while Terraform planned, as a JSON document, and the same
// explained to a person who approves it.
package planreport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Format names the version of the document.
const Format = "gpu-plan-report/v1"

// Report is what one provider configuration planned in one run.
type Report struct {
	Format string `json:"format"`
	// Complete is false where a host did not answer, something is known only after apply, or an error ended the plan of a
	// resource: then the rest of the report is not all that an apply does.
	Complete bool `json:"complete"`
	// Incomplete says why, a sentence for each cause.
	Incomplete []string `json:"incomplete,omitempty"`
	// Owner names the Terraform state on the hosts, "" where it has no name.
	Owner     string    `json:"owner,omitempty"`
	PlannedAt time.Time `json:"planned_at,omitzero"`
	// Before are the hosts that the plan looked at, and After the same hosts once all changes are made. Both are fleet files.
	Before gpu.Snapshot `json:"before"`
	After  gpu.Snapshot `json:"after"`
	// Changes are in the order of their turns.
	Changes  []Change  `json:"changes"`
	Findings []Finding `json:"findings"`
}

// Action is what Terraform does to a resource.
type Action string

// Actions.
const (
	Create  Action = "create"
	Update  Action = "update"
	Delete  Action = "delete"
	Replace Action = "replace"
)

// Change is what one resource does to one host.
type Change struct {
	Type   string `json:"type"`
	Label  string `json:"label"`
	Action Action `json:"action"`
	// Host is as the provider names it, "" where it is known only after apply.
	Host string `json:"host"`
	// GPUs are those that get another layout.
	GPUs []GPU `json:"gpus"`
	// Stops are the running VMs that are stopped, and Ends the processes that end.
	Stops []Stop `json:"stops"`
	Ends  []End  `json:"ends"`
	// Resets are the ids of the GPUs that are reset, Dismounts of those that are taken from the host for VMs.
	Resets    []string `json:"resets"`
	Dismounts []string `json:"dismounts,omitempty"`
	// Drains are the hosts whose running VMs move to other nodes meanwhile, and Moves the names of these VMs.
	Drains []string `json:"drains"`
	Moves  []string `json:"moves,omitempty"`
	// Turn is when it comes, from 1. Changes with the same turn may be made at the same time.
	Turn int `json:"turn"`
	// Steps say what is done to the host, in this order.
	Steps []string `json:"steps,omitempty"`
	// LimitSeconds bounds the work on the host; 0 where nothing is done there.
	LimitSeconds int `json:"limit_s,omitempty"`
	// OnFailure is what becomes of hosts that are done when a later one fails: "rollback" or "stop"; "" for one host.
	OnFailure string `json:"on_failure,omitempty"`
	// PolicyOnly is true where no host is touched: only what may be done later changes.
	PolicyOnly bool `json:"policy_only,omitempty"`
	// AfterApply is true where what is done is known only after apply.
	AfterApply bool `json:"known_after_apply,omitempty"`
	// Refused is why the host would not do it.
	Refused string `json:"refused,omitempty"`
}

// GPU is what one GPU is cut into, before and after a change.
type GPU struct {
	ID   string     `json:"id"`
	From gpu.Layout `json:"from"`
	To   gpu.Layout `json:"to"`
}

// Stop is a running VM that is stopped.
type Stop struct {
	VM          string `json:"vm"`
	VMID        string `json:"vm_id"`
	Host        string `json:"host"`
	StartsAgain bool   `json:"starts_again"`
	// ShutdownSeconds is how long its guest may take to shut down.
	ShutdownSeconds int `json:"shutdown_s,omitempty"`
}

// End is a process that ends.
type End struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	GPU  string `json:"gpu"`
}

// Finding is what a rule has to say, or another error of a resource's plan, which has no rule.
type Finding struct {
	Rule    string `json:"rule"`
	Level   string `json:"level"`
	Host    string `json:"host"`
	Subject string `json:"subject"`
	Found   string `json:"found"`
	Wanted  string `json:"wanted"`
	Fix     string `json:"fix"`
}

// Encode writes the document. Its text is printable, whatever the names in it: what is not is escaped, so that who reads the
// document gets the names as they are.
func (r Report) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return escaped(b.Bytes()), nil
}

// escaped is a JSON document in which each character is printable, or the end of a line.
func escaped(document []byte) []byte {
	plain := func(r rune) bool { return r == '\n' || r != utf8.RuneError && unicode.IsPrint(r) }
	if bytes.IndexFunc(document, func(r rune) bool { return !plain(r) }) < 0 {
		return document
	}
	var b bytes.Buffer
	for _, r := range string(document) {
		switch {
		case plain(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// Parse reads a document. The error says what is wrong with one that is not a report of this version, or not a whole one.
func Parse(data []byte) (Report, error) {
	var head struct {
		Format *string `json:"format"`
	}
	trimmed := bytes.TrimSpace(data)
	switch err := json.Unmarshal(trimmed, &head); {
	case len(trimmed) == 0:
		return Report{}, errors.New("it is empty; a plan report is a JSON document that begins with its format")
	case isCutOff(err, trimmed):
		return Report{}, errors.New("it is cut off: the JSON document ends in the middle; plan again, or copy the whole file")
	case err != nil:
		return Report{}, fmt.Errorf("it is no JSON document: %w", err)
	case head.Format == nil:
		return Report{}, fmt.Errorf("it has no format, so that it is no plan report; one has %q", Format)
	case *head.Format == gpu.SnapshotFormat:
		return Report{}, fmt.Errorf("it is a fleet file (%q), and no plan report (%q)", gpu.SnapshotFormat, Format)
	case *head.Format != Format:
		text := gpu.Said(*head.Format, 100)
		if strings.HasPrefix(*head.Format, strings.TrimSuffix(Format, "1")) {
			return Report{}, fmt.Errorf("it is a plan report of another version, \"%s\", and this build reads %q; use the gpu-agent of the "+
				"provider's release", text, Format)
		}
		return Report{}, fmt.Errorf("its format is \"%s\", and not that of a plan report, %q", text, Format)
	}
	var r Report
	if err := json.Unmarshal(trimmed, &r); err != nil {
		return Report{}, fmt.Errorf("it is a damaged plan report: %w", err)
	}
	for name, s := range map[string]gpu.Snapshot{"before": r.Before, "after": r.After} {
		if len(s.Hosts) == 0 && s.Format == gpu.SnapshotFormat {
			continue // the plan looked at none
		}
		if err := s.Validate(); err != nil {
			return Report{}, fmt.Errorf("it is a damaged plan report: %s: %w", name, err)
		}
	}
	return r, nil
}

// isCutOff reports whether a document would go on where it ends.
func isCutOff(err error, document []byte) bool {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	return errors.Is(err, io.ErrUnexpectedEOF) || ok && syntax.Offset >= int64(len(document)) && bytes.HasPrefix(document, []byte("{"))
}
