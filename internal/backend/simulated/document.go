package simulated

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// record is one host as it stands in the file.
type record struct {
	gpu.Host
	// Agent is what the agent remembers, without the claims: they stand in the host.
	Agent      memory     `json:"agent,omitzero"`
	Simulation Simulation `json:"simulation,omitzero"`
	// halfway is true while a call is to stop after the first of its two steps.
	halfway bool
	// stands is true when what a call did before it failed stays done.
	stands bool
}

// hostFields are the fields of a host object that record has; all others are an
// editor's and are written back as they were.
var hostFields = jsonFields(reflect.TypeFor[record]())

func jsonFields(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// entry is a host with the bytes that it was read from. Entries are shared between
// documents and never change; a changed host gets a new entry.
type entry struct {
	raw json.RawMessage
	rec *record
}

// document is the whole file. A host that was not changed is written back byte for
// byte, which keeps a large fleet cheap and its author's formatting.
type document struct {
	format string
	extra  map[string]json.RawMessage
	hosts  []entry
	index  map[string]int
	// touched marks the hosts that an update may have changed.
	touched map[int]bool
	// shared is true when an update changed extra.
	shared bool
}

// parse reads a document. Hosts whose bytes are those of the old document are taken
// from there.
func parse(data []byte, old *document) (*document, error) {
	d := &document{index: map[string]int{}}
	if err := json.Unmarshal(data, &d.extra); err != nil {
		return nil, locate(data, err)
	}
	var raws []json.RawMessage
	for _, field := range []struct {
		name string
		into any
	}{{"format", &d.format}, {"hosts", &raws}} {
		if raw, ok := d.extra[field.name]; ok {
			if err := json.Unmarshal(raw, field.into); err != nil {
				return nil, locate(data, err)
			}
			delete(d.extra, field.name)
		}
	}
	for i, raw := range raws {
		if old != nil && i < len(old.hosts) && bytes.Equal(old.hosts[i].raw, raw) {
			d.add(old.hosts[i])
			continue
		}
		rec := &record{}
		if err := json.Unmarshal(raw, rec); err != nil {
			return nil, locate(data, err)
		}
		d.add(entry{raw: raw, rec: rec})
	}
	return d, d.check()
}

func (d *document) add(e entry) {
	d.index[gpu.FoldID(e.rec.Name)] = len(d.hosts)
	d.hosts = append(d.hosts, e)
}

// locate finds the line and column of a JSON error. Parsing the whole file once
// more gives offsets into the file rather than into a part of it.
func locate(data []byte, err error) error {
	var whole struct {
		Format string   `json:"format"`
		Hosts  []record `json:"hosts"`
	}
	if again := json.Unmarshal(data, &whole); again != nil {
		err = again
	}
	offset := int64(-1)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = mismatch.Offset
	}
	if offset < 0 || offset > int64(len(data)) {
		return err
	}
	before := data[:offset]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1)
	return &positionError{line: line, column: max(column, 1), err: err}
}

// positionError is a mistake at a place in the file.
type positionError struct {
	line, column int
	err          error
}

func (e *positionError) Error() string {
	return fmt.Sprintf("line %d, column %d: %v", e.line, e.column, e.err)
}

func (e *positionError) Unwrap() error { return e.err }

// check finds what JSON alone does not.
func (d *document) check() error {
	if err := d.snapshot().Validate(); err != nil {
		return err
	}
	for _, e := range d.hosts {
		if err := e.rec.Simulation.check(); err != nil {
			return fmt.Errorf("host %q: simulation: %w", e.rec.Name, err)
		}
	}
	return nil
}

// snapshot shares its hosts with the document.
func (d *document) snapshot() gpu.Snapshot {
	s := gpu.Snapshot{Format: d.format}
	for _, e := range d.hosts {
		s.Hosts = append(s.Hosts, e.rec.Host)
	}
	return s
}

// host returns a host that the caller must not change.
func (d *document) host(name string) (*record, bool) {
	i, ok := d.index[gpu.FoldID(name)]
	if !ok {
		return nil, false
	}
	return d.hosts[i].rec, true
}

// fork returns a document to change; the original stays as it is.
func (d *document) fork() *document {
	return &document{
		format:  d.format,
		extra:   d.extra,
		hosts:   slices.Clone(d.hosts),
		index:   maps.Clone(d.index),
		touched: map[int]bool{},
	}
}

// edit returns a host that the caller may change, as it stands at this moment.
func (d *document) edit(name string, now time.Time) (*record, bool) {
	i, ok := d.index[gpu.FoldID(name)]
	if !ok {
		return nil, false
	}
	if !d.touched[i] {
		d.touched[i] = true
		d.hosts[i].rec = clone(d.hosts[i].rec)
		d.hosts[i].rec.settle(now)
	}
	return d.hosts[i].rec, true
}

// replace puts a new state of a host in place of the edited one.
func (d *document) replace(rec *record) {
	i := d.index[gpu.FoldID(rec.Name)]
	d.hosts[i].rec = rec
	d.touched[i] = true
}

// detach gives the touched hosts values of their own, as if they had been written and
// read again: what changed them may have kept a part.
func (d *document) detach() {
	for i := range d.touched {
		d.hosts[i].rec = clone(d.hosts[i].rec)
	}
}

// encode brings the bytes of the touched hosts up to date and returns the file, or
// nil when nothing in it changed.
func (d *document) encode() ([]byte, error) {
	changed := d.shared
	for i := range d.touched {
		e := &d.hosts[i]
		raw, err := encodeHost(e.rec, e.raw)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(raw, e.raw) {
			e.raw, changed = raw, true
		}
	}
	if !changed {
		return nil, nil
	}
	return d.bytes()
}

func (d *document) bytes() ([]byte, error) {
	var out bytes.Buffer
	format, err := json.Marshal(d.format)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "{\n  \"format\": %s,\n", format)
	for _, name := range slices.Sorted(maps.Keys(d.extra)) {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "  %s: %s,\n", key, d.extra[name])
	}
	out.WriteString("  \"hosts\": [")
	for i, e := range d.hosts {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n    ")
		out.Write(e.raw)
	}
	out.WriteString("\n  ]\n}\n")
	return out.Bytes(), nil
}

// encodeHost writes a host and keeps the fields of old that nobody here knows.
func encodeHost(rec *record, old json.RawMessage) (json.RawMessage, error) {
	raw, err := json.MarshalIndent(rec, "    ", "  ")
	if err != nil {
		return nil, err
	}
	if len(old) == 0 {
		return raw, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(old, &fields); err != nil {
		return nil, err
	}
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool {
		return slices.ContainsFunc(hostFields, func(known string) bool { return gpu.SameID(known, name) })
	})
	if len(fields) == 0 {
		return raw, nil
	}
	body := bytes.TrimRight(raw[:len(raw)-1], "\n ")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		body = fmt.Appendf(body, ",\n      %s: %s", key, fields[name])
	}
	return append(body, "\n    }"...), nil
}
