package hyperv

import "strings"

var literalEscapes = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// literal writes a string as a WQL literal.
func literal(s string) string {
	return "'" + literalEscapes.Replace(s) + "'"
}

// keyOf reads one key out of an object path,
// \\HOST\namespace:Class.Key1="a",Key2="b". Backslashes and quotes in it are escaped.
func keyOf(path, key string) string {
	_, keys, ok := strings.Cut(path, ".")
	if !ok {
		return ""
	}
	for keys != "" {
		name, rest, ok := strings.Cut(keys, `="`)
		if !ok {
			return ""
		}
		value, rest := unescape(rest)
		if strings.EqualFold(strings.TrimPrefix(name, ","), key) {
			return value
		}
		keys = rest
	}
	return ""
}

// unescape reads up to the closing quote and returns what follows it.
func unescape(s string) (value, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == '"':
			return b.String(), s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}
