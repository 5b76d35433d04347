package gpu

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text that somebody else chose, such as the name of a process, fit for a
// terminal and for a protocol that takes UTF-8 only.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, text)
}
