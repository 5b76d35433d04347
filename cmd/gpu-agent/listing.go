package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// The formats of -o. Without one, the command prints its own tables of one host.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// tableColumns is how wide a table may be, but for -o wide.
const tableColumns = 100

// listing is how a command prints what it has read.
type listing struct {
	format    string
	asJSON    bool
	noHeaders bool
	filters   []string
	sortBy    []string

	parsed []filter
}

func (l *listing) register(flags *pflag.FlagSet) {
	flags.StringVarP(&l.format, "output", "o", "", "table (at most 100 columns), wide (all columns, ids in full), json or yaml")
	flags.BoolVar(&l.asJSON, "json", false, "print JSON, as -o json does")
	flags.BoolVar(&l.noHeaders, "no-headers", false, "print the rows of tables only")
	flags.StringArrayVar(&l.filters, "filter", nil, "only rows with COLUMN=PATTERN or COLUMN!=PATTERN, where * is any text; may be repeated")
	flags.StringSliceVar(&l.sortBy, "sort", nil, "sort by these columns; -COLUMN sorts downwards")
}

// filter leaves the rows that have, or have not, a text in a column.
type filter struct {
	column string // letters of its name
	not    bool
	like   *regexp.Regexp
}

// check refuses wrong use. sheets are the tables that the command prints.
func (l *listing) check(sheets ...columns) error {
	formats := []string{formatTable, formatWide, formatJSON, formatYAML}
	switch {
	case l.asJSON && l.format != "" && l.format != formatJSON:
		return fmt.Errorf("--json and -o %s exclude each other", l.format)
	case l.asJSON:
		l.format = formatJSON
	case l.format != "" && !slices.Contains(formats, l.format):
		return fmt.Errorf("-o is %q. %s", l.format, words.Instead(l.format, formats, ""))
	}
	var known []string
	for _, c := range sheets {
		for _, name := range c.names {
			known = append(known, columnName(name))
		}
	}
	exists := func(name string) error {
		if slices.Contains(known, columnName(name)) {
			return nil
		}
		return fmt.Errorf("there is no column %q. %s", name, words.Instead(name, slices.Compact(slices.Sorted(slices.Values(known))), ""))
	}
	for _, given := range l.filters {
		name, pattern, ok := strings.Cut(given, "=")
		if !ok {
			return fmt.Errorf("--filter %q is no COLUMN=PATTERN", given)
		}
		f := filter{}
		name, f.not = strings.CutSuffix(name, "!")
		if err := exists(name); err != nil {
			return err
		}
		f.column = columnName(name)
		// A pattern is like a file's: all letters stand for themselves but for the star.
		f.like = regexp.MustCompile("(?is)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		l.parsed = append(l.parsed, f)
	}
	for _, name := range l.sortBy {
		if err := exists(strings.TrimPrefix(name, "-")); err != nil {
			return err
		}
	}
	if l.document() && (l.noHeaders || len(l.sortBy) > 0 || slices.ContainsFunc(l.parsed, func(f filter) bool { return f.column != "host" })) {
		return errors.New("--no-headers, --sort, and a --filter by other columns than host are for tables; a document is for jq and the like")
	}
	return nil
}

// tabular tells whether rows of a plain table are wanted also of one host.
func (l *listing) tabular() bool {
	return l.format != "" || l.noHeaders || len(l.parsed) > 0 || len(l.sortBy) > 0
}

// document tells whether a document is wanted.
func (l *listing) document() bool { return l.format == formatJSON || l.format == formatYAML }

func (l *listing) wide() bool { return l.format == formatWide }

// wantsHost tells whether the filters leave a host to be asked.
func (l *listing) wantsHost(name string) bool {
	return !slices.ContainsFunc(l.parsed, func(f filter) bool { return f.column == "host" && f.like.MatchString(name) == f.not })
}

// writeDocument prints a document as JSON or YAML.
func (l *listing) writeDocument(out io.Writer, v any) error {
	if l.format != formatYAML {
		return writeJSON(out, v)
	}
	doc, err := json.Marshal(v)
	if err == nil {
		doc, err = yaml.JSONToYAML(doc)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(doc)
	return err
}

// columns are those of a table. The narrow table leaves some of them out.
type columns struct {
	title string
	names []string
	wide  []string // only in the wide table
}

// columnName is a column's name as it is compared: "Used by" is usedby, used-by and used_by.
func columnName(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

func (c columns) at(name string) int {
	return slices.IndexFunc(c.names, func(n string) bool { return columnName(n) == name })
}

// sheet is a table with its rows, whose cells may have several lines.
type sheet struct {
	columns
	rows [][]string
}

// print prints tables, and below the first of them each host that did not answer.
func (l *listing) print(out io.Writer, silent []unanswered, sheets ...sheet) {
	gap := ""
	for i, s := range sheets {
		rows, ok := l.rows(s)
		if ok && (len(rows) > 0 || i == 0 && len(silent) == 0 && !l.noHeaders) {
			if !l.noHeaders {
				_, _ = io.WriteString(out, gap)
			}
			l.render(out, s.columns, rows)
			gap = "\n"
		}
		if i > 0 {
			continue
		}
		for _, u := range silent {
			line := fmt.Sprintf("%s  does not answer: %s", words.Name(u.Host), u.Error)
			if !l.wide() && !strings.Contains(line, `\`) {
				line = strings.ReplaceAll(text.WrapSoft(line, tableColumns-4), "\n", "\n    ")
			}
			_, _ = fmt.Fprintln(trimming{out}, " "+line)
			gap = "\n"
		}
	}
}

// rows are those of a table that the filters leave, sorted; false for a table that a filter cannot be about.
func (l *listing) rows(s sheet) ([][]string, bool) {
	rows := slices.Clone(s.rows)
	for _, f := range l.parsed {
		at := s.at(f.column)
		if at < 0 {
			return nil, false
		}
		rows = slices.DeleteFunc(rows, func(row []string) bool {
			matches := f.like.MatchString(row[at]) || slices.ContainsFunc(strings.Split(row[at], "\n"), f.like.MatchString)
			return matches == f.not
		})
	}
	slices.SortStableFunc(rows, func(a, b []string) int {
		for _, by := range l.sortBy {
			name, down := strings.CutPrefix(by, "-")
			at := s.at(columnName(name))
			if at < 0 {
				continue
			}
			order := compareCells(a[at], b[at])
			if down {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return 0
	})
	return rows, true
}

// units are what amounts in cells are counted in.
var units = map[string]float64{"": 1, "%": 1, "MiB": 1, "GiB": 1024}

// compareCells compares amounts as numbers, and all else as text. An empty cell is the least.
func compareCells(a, b string) int {
	amount := func(cell string) (float64, bool) {
		number, rest, _ := strings.Cut(cell, " ")
		unit, _, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseFloat(number, 64)
		times, known := units[unit]
		if !known {
			times = 1
		}
		return n * times, err == nil
	}
	x, xIs := amount(a)
	y, yIs := amount(b)
	if xIs && yIs {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// render prints one table.
func (l *listing) render(out io.Writer, c columns, rows [][]string) {
	var shown []int
	for i, name := range c.names {
		if l.wide() || !slices.Contains(c.wide, name) {
			shown = append(shown, i)
		}
	}
	pick := func(from []string) table.Row {
		row := table.Row{}
		for _, i := range shown {
			row = append(row, from[i])
		}
		return row
	}
	t := newTable(trimming{out}, c.title)
	if l.noHeaders {
		t.SetTitle("")
	} else {
		t.AppendHeader(pick(c.names))
	}
	if !l.wide() {
		widths, longest := make([]int, len(shown)), make([]int, len(shown))
		measure := func(at int, cell string) {
			widths[at] = max(widths[at], widest(strings.Split(cell, "\n")))
			longest[at] = max(longest[at], widest(strings.Fields(cell)))
		}
		for at, i := range shown {
			if !l.noHeaders {
				measure(at, c.names[i])
			}
			for _, row := range rows {
				measure(at, row[i])
			}
		}
		t.SetColumnConfigs(narrowed(widths, longest))
	}
	for _, row := range rows {
		t.AppendRow(pick(row))
	}
	t.Render()
}

// widest is how many columns the widest of some texts takes.
func widest(texts []string) int {
	most := 0
	for _, one := range texts {
		most = max(most, text.StringWidthWithoutEscSequences(one))
	}
	return most
}

// narrowed wraps the widest columns of a table that is too wide: between words, and if that does not do, inside of them.
func narrowed(widths, longest []int) []table.ColumnConfig {
	const beside, least = 2, 10 // what a column has beside its text, and how narrow it becomes at least
	total := len(widths) * beside
	for _, w := range widths {
		total += w
	}
	for _, least := range [][]int{longest, slices.Repeat([]int{least}, len(longest))} {
		for total > tableColumns {
			at := -1
			for i := range widths {
				if widths[i] > least[i] && (at < 0 || widths[i] > widths[at]) {
					at = i
				}
			}
			if at < 0 {
				break
			}
			widths[at]--
			total--
		}
	}
	var out []table.ColumnConfig
	for i, w := range widths {
		out = append(out, table.ColumnConfig{Number: i + 1, WidthMax: w, WidthMaxEnforcer: fitted})
	}
	return out
}

// fitted makes a cell fit a column. Each of its lines begins on a line of its own; a name that somebody else chose is cut off and not
// wrapped, so that no part of it can be taken for a row.
func fitted(cell string, columns int) string {
	return strings.Join(words.Each(strings.Split(cell, "\n"), func(line string) string {
		if strings.HasPrefix(line, `"`) || strings.Contains(line, `\`) {
			return text.Snip(line, columns, "…")
		}
		return text.WrapSoft(line, columns)
	}), "\n")
}

// trimming prints lines without the blanks at their ends.
type trimming struct{ io.Writer }

// Write implements io.Writer. What it is given ends with a line's last character.
func (t trimming) Write(lines []byte) (int, error) {
	var b strings.Builder
	for line := range strings.Lines(string(lines)) {
		whole := strings.TrimSuffix(line, "\n")
		b.WriteString(strings.TrimRight(whole, " "))
		b.WriteString(line[len(whole):])
	}
	if _, err := io.WriteString(t.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// uuid is one of a GPU, a MIG instance or a VM.
var uuid = regexp.MustCompile(`^((?:GPU|MIG)-)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$`)

// shortIDs shortens UUIDs and PCI location paths as far as those of a table stay different from each other.
func shortIDs(ids []string) func(string) string {
	var uuids, paths []string
	for _, id := range ids {
		switch {
		case uuid.MatchString(id):
			uuids = append(uuids, id)
		case strings.Contains(id, "#"):
			paths = append(paths, id)
		}
	}
	begin := func(sep string, n int) func(string) string {
		return func(id string) string {
			parts := strings.Split(id, sep)
			if n >= len(parts) {
				return id
			}
			return strings.Join(parts[:n], sep) + "…"
		}
	}
	of := func(short func(string) string) func(string) string { // of a UUID, which keeps its GPU-
		return func(id string) string {
			m := uuid.FindStringSubmatch(id)
			return m[1] + short(m[2])
		}
	}
	last := func(id string) string { return "…" + id[strings.LastIndex(id, "-")+1:] }
	asIs := func(id string) string { return id }
	shortUUID := firstDistinct(uuids, of(begin("-", 1)), of(begin("-", 2)), of(last), asIs)
	shortPath := firstDistinct(paths, begin("#", 1), begin("#", 2), begin("#", 3), begin("#", 4), asIs)
	return func(id string) string {
		switch {
		case uuid.MatchString(id):
			return shortUUID(id)
		case strings.Contains(id, "#"):
			return shortPath(id)
		}
		return id
	}
}

// firstDistinct is the first of several ways to shorten ids that makes no two of them the same.
func firstDistinct(ids []string, ways ...func(string) string) func(string) string {
	for _, way := range ways {
		longs, distinct := map[string]string{}, true
		for _, id := range ids {
			short := gpu.FoldID(way(id))
			if long, taken := longs[short]; taken && !gpu.SameID(long, id) {
				distinct = false
				break
			}
			longs[short] = id
		}
		if distinct {
			return way
		}
	}
	return ways[len(ways)-1]
}
