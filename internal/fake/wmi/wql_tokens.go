package fakewmi

import (
	"fmt"
	"strings"
)

// Kinds of tokens of WQL.
const (
	wqlEnd = iota
	wqlWord
	wqlNumber
	wqlText
	wqlMark
	// wqlPath is an object path in braces.
	wqlPath
)

type wqlToken struct {
	kind int
	text string
}

func (t wqlToken) is(keyword string) bool {
	return t.kind == wqlWord && strings.EqualFold(t.text, keyword)
}

func (t wqlToken) mark(s string) bool { return t.kind == wqlMark && t.text == s }

// scanWQL splits a query into tokens.
func scanWQL(s string) ([]wqlToken, error) {
	var out []wqlToken
	for i := 0; i < len(s); {
		var t wqlToken
		n := 0
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			i++
			continue
		case c == '\'' || c == '"':
			text, end, err := scanText(s[i:])
			if err != nil {
				return nil, err
			}
			t, n = wqlToken{wqlText, text}, end
		case c == '{':
			end, err := scanBraces(s[i:])
			if err != nil {
				return nil, err
			}
			t, n = wqlToken{wqlPath, strings.TrimSpace(s[i+1 : i+end-1])}, end
		case isWordByte(c) && (c < '0' || c > '9'):
			n = span(s[i:], isWordByte)
			t = wqlToken{wqlWord, s[i : i+n]}
		case isDigit(c) || (c == '-' && i+1 < len(s) && isDigit(s[i+1])):
			n = 1 + span(s[i+1:], isDigit)
			t = wqlToken{wqlNumber, s[i : i+n]}
		default:
			n = markLength(s[i:])
			if n == 0 {
				return nil, fmt.Errorf("%q is no part of WQL", c)
			}
			t = wqlToken{wqlMark, s[i : i+n]}
		}
		out = append(out, t)
		i += n
	}
	return out, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordByte(c byte) bool {
	return c == '_' || isDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}

func span(s string, of func(byte) bool) int {
	n := 0
	for n < len(s) && of(s[n]) {
		n++
	}
	return n
}

func markLength(s string) int {
	for _, mark := range []string{"<>", "!=", "<=", ">=", "=", "<", ">", "(", ")", ",", "*", "."} {
		if strings.HasPrefix(s, mark) {
			return len(mark)
		}
	}
	return 0
}

// scanText reads a string literal. A backslash must be escaped, and escapes a quote.
func scanText(s string) (text string, length int, err error) {
	var b strings.Builder
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case quote:
			return b.String(), i + 1, nil
		case '\\':
			if i+1 == len(s) || !strings.ContainsRune(`\'"`, rune(s[i+1])) {
				return "", 0, fmt.Errorf("a backslash in a string literal must be escaped: %s", s)
			}
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", 0, fmt.Errorf("a string literal does not end: %s", s)
}

// scanBraces finds the end of a path, which may contain braces in its quoted keys.
func scanBraces(s string) (int, error) {
	quoted := false
	for i := 1; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '}' && !quoted:
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("a path does not end: %s", s)
}
