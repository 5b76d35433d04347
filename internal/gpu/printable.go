package gpu

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text that somebody else chose, such as the name of a process or of a VM, fit for a
// terminal, for the row of a table, and for a protocol that takes UTF-8 only. In a sentence a name is
// quoted, so that it cannot end the sentence and begin another one.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, text)
}

// Lines makes each line of a text printable.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Said is what somebody else says, as a part of one line: what is not printable is written as Go
// writes it in a string, and of a text longer than limit characters only the beginning is kept.
func Said(text string, limit int) string {
	text = strings.TrimSpace(text)
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text) > limit {
		var b strings.Builder
		n := 0
		for _, r := range text {
			if n++; n > limit {
				return b.String() + " (cut)"
			}
			if unicode.IsPrint(r) {
				b.WriteRune(r)
			} else {
				b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
			}
		}
		return b.String()
	}
	return text
}

// MostSaid is how many characters of a text of a host are shown.
const MostSaid = 2_000

// chosen are the names that people choose and by which objects are found, by the structures that they are
// in. They stay as they are; messages quote them. A claim is a record, and is written again as it was read.
var chosen = map[reflect.Type][]string{
	reflect.TypeFor[Host]():             {"Claims", "Moving"},
	reflect.TypeFor[VM]():               {"Name"},
	reflect.TypeFor[Pool]():             {"Name"},
	reflect.TypeFor[DeviceAssignment](): {"Pool"},
}

// SayPlainly makes all texts of a value that somebody else wrote Said, but names that people choose.
func SayPlainly(v any) { sayPlainly(reflect.ValueOf(v)) }

func sayPlainly(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if text := v.String(); v.CanSet() {
			if said := Said(text, MostSaid); said != text {
				v.SetString(said)
			}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			sayPlainly(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k == reflect.Uint8 || k == reflect.Int {
			return
		}
		for i := range v.Len() {
			sayPlainly(v.Index(i))
		}
	case reflect.Struct:
		t := v.Type()
		kept := chosen[t]
		for i := range t.NumField() {
			if f := t.Field(i); (f.IsExported() || f.Anonymous) && !slices.Contains(kept, f.Name) {
				sayPlainly(v.Field(i))
			}
		}
	default: // a number; no map is in what is told of a host, but in its claims
	}
}
