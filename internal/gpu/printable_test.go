package gpu_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"python3":           "python3",
		"Zündung (train) 1": "Zündung (train) 1",
		"\x1b[2Jroot":       "\uFFFD[2Jroot",
		"a\nb\u202e":        "a\uFFFDb\uFFFD",
		"\xff\xfe":          "\uFFFD\uFFFD",
	} {
		if got := gpu.Printable(text); got != want {
			t.Errorf("of %q it makes %q, and %q was wanted", text, got, want)
		}
	}
}

func TestSaid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"no route to host":      "no route to host",
		" failed\r\n":           "failed",
		"a\nError: b\x1b[2J":    `a\nError: b\x1b[2J`,
		"\u202ex\u2028\u0085":   `\u202ex`,
		"Zündung \u200b\u2066x": `Zündung \u200b\u2066x`,
		"\xff":                  "\uFFFD",
		"ääääääääääääääääääää": "ääääääääää (cut)",
		"0123456789": "0123456789",
	} {
		limit := 10
		if len(text) < 20 || text[0] != "ä"[0] {
			limit = 100
		}
		if got := gpu.Said(text, limit); got != want {
			t.Errorf("of %q it makes %q, and %q was wanted", text, got, want)
		}
	}
}

// TestOnlyNamesThatPeopleChooseStay: whatever a host says, in whatever field, is made printable, but for the
// names by which objects are found. Who adds a field need not think of it.
func TestOnlyNamesThatPeopleChooseStay(t *testing.T) {
	t.Parallel()
	var h gpu.Host
	fill(reflect.ValueOf(&h).Elem(), 0)
	gpu.SayPlainly(&h)
	stay := map[string]bool{}
	raw(reflect.ValueOf(&h).Elem(), "Host", func(path string) {
		if !strings.HasPrefix(path, "Host.Claims") {
			stay[path] = true
		}
	})
	want := map[string]bool{"Host.Moving": true, "Host.VMs.Name": true, "Host.Pools.Name": true, "Host.VMs.Devices.Pool": true}
	if !maps.Equal(stay, want) {
		t.Errorf("these stay as they are: %v; want %v", stay, want)
	}
	if h.Claims[0].Owner != steering {
		t.Errorf("a claim was changed: %q", h.Claims[0].Owner)
	}
}

const steering = "a\x1b[2J\nb"

// fill gives each text of a value a text that steers.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(steering)
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*time.Location]() || depth > 12 {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth+1)
			}
		}
	default:
	}
}

// raw tells of each text that still steers.
func raw(v reflect.Value, path string, tell func(string)) {
	switch v.Kind() {
	case reflect.String:
		if v.String() == steering {
			tell(path)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			raw(v.Elem(), path, tell)
		}
	case reflect.Slice:
		for i := range v.Len() {
			raw(v.Index(i), path, tell)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				raw(v.Field(i), path+"."+f.Name, tell)
			}
		}
	default:
	}
}
