package backend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// StateFormat is the format of a written State: one JSON object with a record on each
// line, so that a damaged record does not hide the others.
//
//	{"format":"gpu-agent-state/v2","agent":"1.2.3","fence":7,"sum":"…","records":[
//	{"kind":"lease","version":1,"sum":"…","data":{…}},
//	{"kind":"claim","version":2,"sum":"…","data":{…}},
//	{"kind":"change","version":2,"sum":"…","data":{…}},
//	{"kind":"owed_start","version":1,"sum":"…","data":{…}}
//	]}
//
// Each sum covers what stands beside it, that of the first line all lines.
const StateFormat = stateFormatName + "2"

const stateFormatName = "gpu-agent-state/v"

// MaxState is the largest written state that is read, in bytes. That of a host with 1,000
// VMs has a few MiB.
const MaxState = 64 << 20

// The kinds of records, with the version of each that this agent writes and reads.
const (
	kindLease  = "lease"
	kindClaim  = "claim"
	kindChange = "change"
	kindOwed   = "owed_start"
)

var recordVersions = map[string]int{kindLease: 1, kindClaim: 2, kindChange: 2, kindOwed: 1}

// Unreadable is a record that this agent cannot read, with its bytes.
type Unreadable struct {
	gpu.UnreadableRecord
	Raw []byte
}

// NewUnreadable describes a record that cannot be read. found says why; newer tells that a
// newer agent may be able to.
func NewUnreadable(record string, raw []byte, newer bool, format string, args ...any) Unreadable {
	sum := sha256.Sum256(raw)
	return Unreadable{Raw: raw, UnreadableRecord: gpu.UnreadableRecord{
		ID: hex.EncodeToString(sum[:6]), Record: record, Found: fmt.Sprintf(format, args...), Newer: newer,
	}}
}

// UnreadableError is a state of which a part cannot be read. The rest comes with it, for
// looking; nothing is written until all of it can be read or has been given up.
type UnreadableError struct {
	Records []Unreadable
}

// shownRecords is how many records an error names.
const shownRecords = 3

func (e *UnreadableError) Error() string {
	var parts []string
	newer, damaged := "", false
	for i, r := range e.Records {
		switch {
		case i < shownRecords:
			parts = append(parts, r.String())
		case i == shownRecords:
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Records)-i))
		}
		if r.Newer && newer == "" {
			newer = "install that agent again, or a later one"
			if r.Agent != "" {
				newer = "install agent " + r.Agent + ", which wrote it, or a later one"
			}
		}
		damaged = damaged || !r.Newer
	}
	msg := "the agent cannot read all that it has recorded: " + strings.Join(parts, "; ") +
		". Nothing is changed on this host until it can, and nothing was overwritten"
	if newer != "" {
		msg += "; " + newer
	}
	if damaged {
		msg += "; restore the file from a backup"
	}
	return msg + "; `gpu-agent records` on the host shows such records, and `gpu-agent records drop` gives one up"
}

// Err is an *UnreadableError if a part of the state cannot be read.
func (s *State) Err() error {
	if len(s.Unreadable) == 0 {
		return nil
	}
	return &UnreadableError{Records: s.Unreadable}
}

// LoadReadable loads what can be read of a state, for those who only look.
func LoadReadable(ctx context.Context, s Store) (State, error) {
	state, err := s.Load(ctx)
	if ue := (*UnreadableError)(nil); errors.As(err, &ue) {
		return state, nil
	}
	return state, err
}

// Repairer is a store that lets records be given up that cannot be read.
type Repairer interface {
	// Repair is Update on a state of which a part cannot be read. f takes from Unreadable or
	// Journal what is to be given up; the rest is kept byte for byte.
	Repair(ctx context.Context, f func(*State) error) error
	// Place is where the state is: a file.
	Place() string
}

// stateDocument is a written state.
type stateDocument struct {
	Format  string            `json:"format"`
	Agent   string            `json:"agent,omitempty"`
	Fence   int64             `json:"fence"`
	Sum     string            `json:"sum"`
	Records []json.RawMessage `json:"records"`
}

// sealed is a written record.
type sealed struct {
	Kind    string          `json:"kind"`
	Version int             `json:"version"`
	Sum     string          `json:"sum"`
	Data    json.RawMessage `json:"data"`
}

func (r *sealed) sum() string { return sum(r.Kind, strconv.Itoa(r.Version), string(r.Data)) }

// sum covers the parts and where each ends.
func sum(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func seal(kind string, data any) (json.RawMessage, error) {
	doc, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	r := sealed{Kind: kind, Version: recordVersions[kind], Data: doc}
	r.Sum = r.sum()
	return json.Marshal(r)
}

// document is the state as it is written.
func (s *State) document() (stateDocument, error) {
	doc := stateDocument{Format: StateFormat, Agent: s.Agent, Fence: s.Fence, Records: []json.RawMessage{}}
	add := func(kind string, data any) error {
		raw, err := seal(kind, data)
		doc.Records = append(doc.Records, raw)
		return err
	}
	var errs []error
	if s.Lease != nil {
		errs = append(errs, add(kindLease, s.Lease))
	}
	for _, c := range s.Claims {
		errs = append(errs, add(kindClaim, c))
	}
	for _, change := range s.Journal {
		errs = append(errs, add(kindChange, change))
	}
	for _, d := range s.PendingStarts {
		errs = append(errs, add(kindOwed, d))
	}
	for _, r := range s.Unreadable {
		doc.Records = append(doc.Records, r.Raw)
	}
	doc.Sum = doc.sum()
	return doc, errors.Join(errs...)
}

func (d *stateDocument) sum() string {
	parts := []string{d.Format, d.Agent, strconv.FormatInt(d.Fence, 10)}
	for _, r := range d.Records {
		parts = append(parts, string(r))
	}
	return sum(parts...)
}

// Encode writes the state. Records that cannot be read are written as they were.
func (s *State) Encode() ([]byte, error) {
	doc, err := s.document()
	if err != nil {
		return nil, fmt.Errorf("the state cannot be written as JSON: %w", err)
	}
	records := doc.Records
	doc.Records = []json.RawMessage{}
	head, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("the state cannot be written as JSON: %w", err)
	}
	out := bytes.NewBuffer(bytes.TrimSuffix(head, []byte("]}")))
	for i, r := range records {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		out.Write(r)
	}
	out.WriteString("\n]}\n")
	return out.Bytes(), nil
}

// MarshalJSON writes the state into another document.
func (s State) MarshalJSON() ([]byte, error) { return s.Encode() }

// UnmarshalJSON reads it from there. What it cannot read is in Unreadable, and no error.
func (s *State) UnmarshalJSON(data []byte) error {
	*s = DecodeState(data)
	return nil
}

// DecodeState reads a written state. What it cannot read is in Unreadable.
func DecodeState(data []byte) State {
	var s State
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		s.giveUp(NewUnreadable("the file", data, false, "it is damaged: it has %d bytes and nothing in them", len(data)))
	default:
		s.decode(data)
	}
	for i := range s.Unreadable {
		s.Unreadable[i].Agent = s.Agent
	}
	return s
}

func (s *State) giveUp(r Unreadable) { s.Unreadable = append(s.Unreadable, r) }

func (s *State) decode(data []byte) {
	head := readHead(data)
	s.Agent = head.Agent
	switch version, isOurs := strings.CutPrefix(head.Format, stateFormatName); {
	case head.Format == StateFormat:
	case isOurs && newerThan(version, StateFormat[len(stateFormatName):]):
		s.giveUp(NewUnreadable("the file", data, true, "its format is %q, and this agent reads %q", head.Format, StateFormat))
		return
	case json.Valid(data):
		s.giveUp(NewUnreadable("the file", data, false, "it is damaged: its format is %q, not %q", head.Format, StateFormat))
		return
	}
	var doc stateDocument
	err := document.Read(data, &doc)
	if err != nil && !isUnknown(err) {
		if !s.salvage(data, err) {
			s.Unreadable = nil
			s.giveUp(NewUnreadable("the file", data, false, "the file of %d bytes is damaged (%v)", len(data), err))
		}
		return
	}
	if err != nil {
		s.giveUp(NewUnreadable("the first line", headLine(data), true, "%v", err))
		doc = stateDocument{}
		_ = json.Unmarshal(data, &doc) // but for that field it could be read
	}
	s.Fence = doc.Fence
	for i := range doc.Records {
		doc.Records[i] = compact(doc.Records[i])
		s.open(doc.Records[i], i)
	}
	if doc.Sum != doc.sum() && len(s.Unreadable) == 0 {
		// Each record is whole, so it is the first line, or some are missing.
		s.giveUp(NewUnreadable("the first line", headLine(data), false,
			"it is damaged, or records are missing: it does not fit the %d records that follow it", len(doc.Records)))
	}
}

// salvage reads the lines of a damaged document one by one, and tells whether the first
// line or any record could be read.
func (s *State) salvage(data []byte, why error) (ours bool) {
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	var head stateDocument
	last := len(lines) - 1
	if document.Read(append(slices.Clone(lines[0]), "]}"...), &head) == nil && last > 0 && string(lines[last]) == "]}" {
		s.Fence = head.Fence
		lines = lines[:last] // it is one of the lines between
		ours = true
	} else {
		s.giveUp(NewUnreadable("the first line", lines[0], false, "the file of %d bytes is damaged (%v)", len(data), why))
	}
	for i, line := range lines[1:] {
		before := len(s.Unreadable)
		s.open(bytes.TrimSuffix(line, []byte(",")), i)
		ours = ours || len(s.Unreadable) == before
	}
	if len(s.Unreadable) == 0 {
		s.giveUp(NewUnreadable("the file", data, false, "it is damaged (%v)", why))
	}
	return ours
}

// open reads one record.
func (s *State) open(raw json.RawMessage, i int) {
	name := fmt.Sprintf("record %d", i+1)
	var r sealed
	if err := document.Read(raw, &r); err != nil {
		s.giveUp(NewUnreadable(name, raw, false, "it is damaged (%v)", err))
		return
	}
	if r.Sum != r.sum() {
		s.giveUp(NewUnreadable(name, raw, false, "it is damaged: its checksum is wrong"))
		return
	}
	name = fmt.Sprintf("%s (%s)", name, r.Kind)
	if known, ok := recordVersions[r.Kind]; !ok {
		s.giveUp(NewUnreadable(name, raw, true, "this agent knows no records of that kind"))
		return
	} else if r.Version != known {
		s.giveUp(NewUnreadable(name, raw, r.Version > known, "its version is %d, and this agent reads %d", r.Version, known))
		return
	}
	var err error
	switch r.Kind {
	case kindLease:
		lease := &Lease{}
		switch err = document.Read(r.Data, lease); {
		case err != nil:
		case s.Lease != nil:
			err = errors.New("there is another lease before it")
		case lease.Run == "":
			err = errors.New("run is empty")
		default:
			s.Lease = lease
		}
	case kindClaim:
		var c gpu.Claim
		if err = document.Read(r.Data, &c); err == nil {
			if err = c.Validate(); err == nil {
				s.Claims = append(s.Claims, c)
			}
		}
	case kindOwed:
		var d gpu.PendingStart
		switch err = document.Read(r.Data, &d); {
		case err != nil:
		case d.VM == "":
			err = errors.New("vm is empty")
		default:
			s.PendingStarts = append(s.PendingStarts, d)
		}
	case kindChange:
		s.Journal = append(s.Journal, r.Data) // the agent's own to read
	}
	if err != nil {
		s.giveUp(NewUnreadable(name, raw, isUnknown(err), "%v", err))
	}
}

// readHead reads the format, and who wrote the document, also from one that looks quite
// different otherwise.
func readHead(data []byte) (head stateDocument) {
	line := headLine(data)
	for _, doc := range [][]byte{data, append(slices.Clone(line), "]}"...)} {
		var h struct {
			Format string `json:"format"`
			Agent  string `json:"agent"`
		}
		if _ = json.Unmarshal(doc, &h); h.Format != "" { // whatever it could read
			return stateDocument{Format: h.Format, Agent: h.Agent}
		}
	}
	return stateDocument{}
}

// headLine is the first line, which holds all but the records. In a state within another
// document it is what comes before them.
func headLine(data []byte) []byte {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return line
}

func newerThan(version, known string) bool {
	v, err := strconv.Atoi(version)
	k, _ := strconv.Atoi(known)
	return err == nil && v > k
}

func compact(raw json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}

func isUnknown(err error) bool {
	_, unknown := errors.AsType[*document.UnknownError](err)
	return unknown
}
