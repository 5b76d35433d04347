// Package words puts names and numbers into sentences.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Listed is how many names a sentence has at most before it says "and N more".
const Listed = 12

// Join makes "a, b and c" of names.
func Join(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) == 1:
		return names[0]
	case len(names) > Listed:
		return strings.Join(names[:Listed], ", ") + fmt.Sprintf(" and %d more", len(names)-Listed)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// JoinAll is Join for names that must all be told.
func JoinAll(names []string) string {
	if len(names) < 2 {
		return Join(names)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// Each is what is said, or made, of each of several things.
func Each[T, R any](of []T, say func(T) R) []R {
	var out []R
	for _, x := range of {
		out = append(out, say(x))
	}
	return out
}

// Name is a name that somebody else chose, such as that of a VM, as it stands in a sentence: a plain
// word as it is, and all else quoted, so that it can be taken for nothing but a name.
func Name(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
	}) {
		return strconv.Quote(name)
	}
	return name
}

// Names is Name of each.
func Names(names []string) []string { return Each(names, Name) }

// QuoteAll quotes each name.
func QuoteAll(names []string) []string { return Each(names, strconv.Quote) }

// Plural is "1 GPU", "2 GPUs".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Verb picks the form that goes with a number.
func Verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// State names a Terraform state by the owner that its claims have.
func State(owner string) string {
	if owner == "" {
		return "a Terraform state that has no owner name"
	}
	return "the Terraform state " + strconv.Quote(owner)
}

// Capital makes the first letter of a sentence a capital. A name, such as gpu_share or
// nvmlDeviceGetMigMode, keeps its spelling.
func Capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if first = strings.TrimRight(first, ".,:;"); first == "" || strings.ContainsAny(first, "_./") ||
		first != strings.ToLower(first) || first == "gpu-agent" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
