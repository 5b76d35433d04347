package document_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
)

type colour string

func (colour) Values() []string { return []string{"red", "blue"} }

type embedded struct {
	Name string `json:"name"`
}

type part struct {
	Size  int    `json:"size"`
	Paint colour `json:"paint,omitempty"`
	Next  *part  `json:"next,omitempty"`
}

type whole struct {
	embedded
	Parts  []part           `json:"parts"`
	ByName map[string]*part `json:"by_name,omitempty"`
	Levels map[string]int   `json:"levels,omitempty"`
	Own    json.RawMessage  `json:"own,omitempty"`
	Hidden int              `json:"-"`
	Plain  bool
}

func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		doc     string
		unknown []string // nil for none
		err     string   // of the form
	}{
		"all of it": {
			doc: `{"name":"a","parts":[{"size":1,"paint":"red","next":{"size":2}}],"by_name":{"x":{"size":1}},"levels":{"any":1},"own":{"z":{}},` +
				`"Plain":true}`,
		},
		"null":               {doc: `null`},
		"empty value":        {doc: `{"parts":[{"paint":""},null],"by_name":{"x":null}}`},
		"a field":            {doc: `{"x":1}`, unknown: []string{"x"}},
		"with all inside":    {doc: `{"x":{"y":[{"name":1}]},"name":"a"}`, unknown: []string{"x"}},
		"in a list":          {doc: `{"parts":[{},{"x":1,"y":2}]}`, unknown: []string{"parts[1].x", "parts[1].y"}},
		"in a map":           {doc: `{"by_name":{"b":{"next":{"x":1}}}}`, unknown: []string{"by_name.b.next.x"}},
		"a hidden field":     {doc: `{"Hidden":1,"embedded":{}}`, unknown: []string{"Hidden", "embedded"}},
		"another case":       {doc: `{"Name":"a","plain":true}`, unknown: []string{"Name", "plain"}},
		"a value":            {doc: `{"parts":[{"paint":"green"}]}`, unknown: []string{"parts[0].paint=green"}},
		"twice":              {doc: `{"name":"a","name":"b"}`, err: "field name is there twice"},
		"twice in a map":     {doc: `{"levels":{"a":1,"a":2}}`, err: "field levels.a is there twice"},
		"twice in the dark":  {doc: `{"own":{"a":1,"a":2}}`, err: "field own.a is there twice"},
		"something follows":  {doc: `{} {}`, err: "after top-level value"},
		"damaged":            {doc: `{"name":"a"`, err: "unexpected end"},
		"nothing":            {doc: ``, err: "unexpected end"},
		"of another type":    {doc: `{"parts":{"x":1}}`, err: "cannot unmarshal object"},
		"not what it was":    {doc: `{"name":1}`, err: "cannot unmarshal number"},
		"a text for a value": {doc: `{"parts":[{"paint":1}]}`, err: "cannot unmarshal number"},
	} {
		t.Run(name, func(t *testing.T) {
			var got, known whole
			err := document.Read([]byte(tt.doc), &got)
			var unknown *document.UnknownError
			switch {
			case tt.err != "":
				if err == nil || errors.As(err, &unknown) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			case tt.unknown != nil:
				if !errors.As(err, &unknown) || !slices.Equal(unknown.Fields, tt.unknown) {
					t.Errorf("%v, want %q", err, tt.unknown)
				}
				if !reflect.ValueOf(got).IsZero() {
					t.Errorf("something was decoded: %+v", got)
				}
			case err != nil:
				t.Error(err)
			}
			want := slices.DeleteFunc(slices.Clone(tt.unknown), func(path string) bool { return strings.Contains(path, "=") })
			var rest []string
			err = document.ReadKnown([]byte(tt.doc), &known, func(path string) { rest = append(rest, path) })
			if err != nil || !slices.Equal(rest, want) && name != "another case" { // which encoding/json takes
				t.Errorf("leniently: %q, %v; want %q", rest, err, want)
			}
		})
	}
}

func TestKnowledge(t *testing.T) {
	k := document.Of[whole]()
	want := `name: string
parts: list of object
parts.size: int
parts.paint: string, optional
parts.paint=red: value
parts.paint=blue: value
parts.next: object, as "parts", optional
by_name: map of object, as "parts", optional
levels: map of int, optional
own: any, optional
Plain: bool
`
	if got := k.Describe(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	used, err := k.Used(whole{ByName: map[string]*part{"x": {Paint: "red", Next: &part{Paint: "blue"}}}, Levels: map[string]int{"a": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"Plain", "by_name", "levels", "name", "parts", "parts.next", "parts.paint", "parts.paint=blue", "parts.paint=red", "parts.size",
	}; !slices.Equal(used, want) {
		t.Errorf("used %q, want %q", used, want)
	}
	for _, u := range used {
		if !slices.Contains(k.All(), u) {
			t.Errorf("%s is used and not known", u)
		}
	}
}

// TestReadSeesWhatAnotherReaderSees holds what Read finds unknown, or there twice, against the
// tokens of encoding/json, in documents with odd names and spaces.
func TestReadSeesWhatAnotherReaderSees(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{
		"name", "parts", "size", "paint", "next", "by_name", "levels", "own", "Plain", "x", "Size", "a\"b",
		`\`, "ü", "a\u2028", "}", ",", ":", "]", "a\tb", "\x00",
	}
	values := []any{nil, true, false, 0, -1.5e300, "", "red", "green", `\"`, "[{", "\u00e4", "\U0001f600", " "}
	var write func(out *strings.Builder, depth int)
	write = func(out *strings.Builder, depth int) {
		space := func() { out.WriteString([]string{"", "", " ", "\n\t", "\r\n"}[r.IntN(5)]) }
		quoted := func(v any) {
			raw, _ := json.Marshal(v)
			if s, isText := v.(string); isText && r.IntN(3) == 0 && s != "" { // written otherwise
				raw = []byte(`"`)
				for _, unit := range utf16.Encode([]rune(s)) {
					raw = fmt.Appendf(raw, `\u%04x`, unit)
				}
				raw = append(raw, '"')
			}
			out.Write(raw)
		}
		space()
		defer space()
		switch kind := r.IntN(5); {
		case depth > 0 && kind < 3:
			out.WriteString("{")
			for i := range r.IntN(4) {
				if i > 0 {
					out.WriteString(",")
				}
				space()
				quoted(names[r.IntN(len(names))])
				space()
				out.WriteString(":")
				write(out, depth-1)
			}
			space()
			out.WriteString("}")
		case depth > 0 && kind == 3:
			out.WriteString("[")
			for i := range r.IntN(3) {
				if i > 0 {
					out.WriteString(",")
				}
				write(out, depth-1)
			}
			space()
			out.WriteString("]")
		default:
			quoted(values[r.IntN(len(values))])
		}
	}
	twice, seen := 0, 0
	for range 20000 {
		var doc strings.Builder
		write(&doc, 5)
		want, again := byTokens(t, doc.String())
		var got struct{}
		err := document.Read([]byte(doc.String()), &got)
		var unknown *document.UnknownError
		switch {
		case again:
			if twice++; err == nil || errors.As(err, &unknown) || !strings.Contains(err.Error(), "is there twice") {
				t.Fatalf("%q: %v, want a field that is there twice", doc.String(), err)
			}
		case len(want) > 0:
			if seen++; !errors.As(err, &unknown) || !slices.Equal(unknown.Fields, want) {
				t.Fatalf("%q: %v, want %q", doc.String(), err, want)
			}
		case errors.As(err, &unknown):
			t.Fatalf("%q: %v", doc.String(), err)
		}
	}
	if twice < 1000 || seen < 1000 {
		t.Errorf("%d documents had a field twice, and %d had fields", twice, seen)
	}
}

// byTokens are the fields of a document, when it is an object, and whether one is there twice anywhere.
func byTokens(t *testing.T, doc string) (fields []string, twice bool) {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(doc))
	var value func(depth int)
	token := func() json.Token {
		v, err := in.Token()
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		return v
	}
	value = func(depth int) {
		switch token() {
		case json.Delim('{'):
			seen := map[string]bool{}
			for in.More() {
				name, _ := token().(string)
				twice = twice || seen[name]
				seen[name] = true
				if depth == 0 {
					fields = append(fields, name)
				}
				value(depth + 1)
			}
			token()
		case json.Delim('['):
			for in.More() {
				value(depth + 1)
			}
			token()
		}
	}
	value(0)
	return fields, twice
}
