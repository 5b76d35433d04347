package document_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

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
		"all of it":          {doc: `{"name":"a","parts":[{"size":1,"paint":"red","next":{"size":2}}],"by_name":{"x":{"size":1}},"levels":{"any":1},"own":{"z":{}},"Plain":true}`},
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
			rest, err := document.ReadKnown([]byte(tt.doc), &known)
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
	if want := []string{"Plain", "by_name", "levels", "name", "parts", "parts.next", "parts.paint", "parts.paint=blue", "parts.paint=red", "parts.size"}; !slices.Equal(used, want) {
		t.Errorf("used %q, want %q", used, want)
	}
	for _, u := range used {
		if !slices.Contains(k.All(), u) {
			t.Errorf("%s is used and not known", u)
		}
	}
}
