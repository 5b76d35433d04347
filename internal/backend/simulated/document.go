package simulated

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	strict "github.com/gpufleet/terraform-provider-gpu/internal/document"
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

// entry is a host with the bytes that it was read from. Entries are shared between
// documents and never change; a changed host gets a new entry.
type entry struct {
	raw json.RawMessage
	rec *record
	// lists say where the elements of the long lists lie in raw, if we have written it.
	lists [listCount][]span
}

// document is the whole file. A host that was not changed is written back byte for
// byte, which keeps a large fleet cheap and its author's formatting.
type document struct {
	format string
	extra  map[string]json.RawMessage
	hosts  []entry
	index  map[string]int
	// touched are the hosts that an update may have changed, as they were before, and
	// recorded those of them of which it may change the agent's records alone.
	touched  map[int]*record
	recorded map[int]bool
	// clusters is what the agents of each cluster have in common, by folded name.
	clusters map[string]memory
	// shared is true when an update changed clusters, and written is what they were read from.
	shared  bool
	written json.RawMessage
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
	if d.written = d.extra[clustersField]; d.written != nil {
		delete(d.extra, clustersField)
		if old != nil && bytes.Equal(old.written, d.written) {
			d.clusters = old.clusters
		} else if err := json.Unmarshal(d.written, &d.clusters); err != nil {
			return nil, fmt.Errorf("%s: %w", clustersField, err)
		}
	}
	var lists gpu.HostLists
	for i, raw := range raws {
		if old != nil && i < len(old.hosts) && bytes.Equal(old.hosts[i].raw, raw) {
			d.add(old.hosts[i])
			continue
		}
		rec := &record{}
		var unknown []string
		if err := strict.ReadKnown(raw, rec, func(path string) { unknown = append(unknown, path) }); err != nil {
			return nil, locate(data, err)
		}
		if len(unknown) > 0 { // a part that is misspelt would be lost at the next write
			return nil, fmt.Errorf("host %q: %w", rec.Name, &strict.UnknownError{Fields: unknown})
		}
		if err := checkControllers(rec); err != nil {
			return nil, err
		}
		rec.Claims = lists.Share(rec.Claims)
		d.add(entry{raw: raw, rec: rec})
	}
	delete(d.extra, "recorded") // of a real fleet, which this is no more
	for name := range d.extra {
		if name != clustersField && name != "$schema" { // by which editors complete
			return nil, &strict.UnknownError{Fields: []string{name}}
		}
	}
	return d, d.check()
}

// checkControllers refuses a role that nobody knows: such a controller would guard nothing.
func checkControllers(rec *record) error {
	roles := gpu.ControllerRoles()
	for _, c := range rec.Controllers {
		if c.Name == "" || c.Role != "" && !slices.Contains(roles, c.Role) { // without a role it is a service like any other
			return fmt.Errorf("host %q: controller %q has the role %q; it has a name and one of the roles %q", rec.Name, c.Name, c.Role, roles)
		}
	}
	return nil
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
func (d *document) check() error { return check(d.format, d.hosts) }

// checkTouched is check after an update. A host keeps its name, unless all are touched.
func (d *document) checkTouched() error {
	if len(d.touched) == len(d.hosts) {
		return d.check()
	}
	var touched []entry
	for i := range d.touched {
		if !d.recorded[i] {
			touched = append(touched, d.hosts[i])
		}
	}
	if len(touched) == 0 {
		return nil
	}
	return check(d.format, touched)
}

func check(format string, hosts []entry) error {
	if err := snapshot(format, hosts).Validate(); err != nil {
		return err
	}
	for _, e := range hosts {
		if err := e.rec.Simulation.check(); err != nil {
			return fmt.Errorf("host %q: simulation: %w", e.rec.Name, err)
		}
	}
	return nil
}

// snapshot shares its hosts with the document that they are of.
func snapshot(format string, hosts []entry) gpu.Snapshot {
	s := gpu.Snapshot{Format: format}
	for _, e := range hosts {
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
		format:   d.format,
		extra:    d.extra,
		clusters: d.clusters,
		written:  d.written,
		hosts:    slices.Clone(d.hosts),
		index:    d.index,
		touched:  map[int]*record{},
		recorded: map[int]bool{},
	}
}

// edit returns a host that the caller may change, as it stands at this moment.
func (d *document) edit(name string, now time.Time) (*record, bool) {
	i, ok := d.index[gpu.FoldID(name)]
	if !ok {
		return nil, false
	}
	if d.touched[i] == nil {
		d.touched[i] = d.hosts[i].rec
		d.hosts[i].rec = clone(d.hosts[i].rec)
		d.hosts[i].rec.catchUp(now)
	}
	return d.hosts[i].rec, true
}

// open is the edit that an operation needs.
func (d *document) open(name string, op Op, now time.Time) (*record, bool) {
	if op == OpUpdateState {
		return d.editRecords(name)
	}
	return d.edit(name, now)
}

// editRecords is edit for what concerns the agent's records alone: of the host itself the
// caller may change nothing but claims and faults. It costs no copy of GPUs and VMs.
func (d *document) editRecords(name string) (*record, bool) {
	i, ok := d.index[gpu.FoldID(name)]
	if !ok {
		return nil, false
	}
	rec := *d.hosts[i].rec
	rec.Claims, rec.Agent, rec.Simulation = clone(rec.Claims), clone(rec.Agent), clone(rec.Simulation)
	d.touched[i], d.recorded[i] = d.hosts[i].rec, true
	d.hosts[i].rec = &rec
	return &rec, true
}

// replace puts another state of an edited host in its place.
func (d *document) replace(rec *record) { d.hosts[d.index[gpu.FoldID(rec.Name)]].rec = rec }

// undo returns an edited host as edit did, without what has changed it since.
func (d *document) undo(name string, now time.Time) *record {
	i := d.index[gpu.FoldID(name)]
	d.hosts[i].rec = clone(d.touched[i])
	d.hosts[i].rec.catchUp(now)
	delete(d.recorded, i)
	return d.hosts[i].rec
}

// detach gives the touched hosts values of their own, as if they had been written and
// read again: what changed them may have kept a part.
func (d *document) detach() {
	for i := range d.touched {
		if rec := d.hosts[i].rec; d.recorded[i] {
			rec.Claims, rec.Agent = clone(rec.Claims), clone(rec.Agent)
		} else {
			d.hosts[i].rec = clone(rec)
		}
	}
}

// encode brings the bytes of the touched hosts up to date, and reports whether anything changed.
func (d *document) encode() (changed bool, err error) {
	changed = d.shared
	for i, before := range d.touched {
		e := &d.hosts[i]
		raw, lists, err := e.encode(before)
		if err != nil {
			return false, err
		}
		changed = changed || !bytes.Equal(raw, e.raw)
		e.raw, e.lists = raw, lists
	}
	if changed && d.shared {
		if d.written, err = json.Marshal(d.clusters); err != nil {
			return false, err
		}
	}
	return changed, nil
}

// write writes the file.
func (d *document) write(to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10) // no more than this is copied at once
	format, err := json.Marshal(d.format)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "{\n  \"format\": %s,\n", format)
	extra := d.extra
	if d.written != nil {
		extra = maps.Clone(extra)
		extra[clustersField] = d.written
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %s: %s,\n", key, extra[name])
	}
	_, _ = out.WriteString("  \"hosts\": [") // Flush has the first error of all
	for i, e := range d.hosts {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.WriteString("\n    ")
		_, _ = out.Write(e.raw)
	}
	_, _ = out.WriteString("\n  ]\n}\n")
	return out.Flush()
}
