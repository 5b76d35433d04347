package gpu

import (
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
