package fakewmi

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// objectPath is a path, \\SERVER\namespace:Class.Key="value", taken apart. Server and
// namespace may be missing, and a class alone is the path of the class.
type objectPath struct {
	server, namespace, class string
	// keys are by folded name; the one key of Class="value" has no name.
	keys map[string]string
	// singleton is Class=@.
	singleton bool
}

func (p objectPath) isClass() bool { return len(p.keys) == 0 && !p.singleton }

// parsePath is not ok for what is no path.
func parsePath(s string) (objectPath, bool) {
	var p objectPath
	rest := s
	// A colon or a backslash of a key comes after the first dot or equals sign.
	head, _, _ := strings.Cut(rest, "=")
	if colon := strings.LastIndex(head, ":"); colon >= 0 && !strings.Contains(head[:colon], `"`) {
		where := strings.ReplaceAll(head[:colon], "/", `\`)
		rest = rest[colon+1:]
		if server, ok := strings.CutPrefix(where, `\\`); ok {
			p.server, where, ok = strings.Cut(server, `\`)
			if !ok {
				return p, false
			}
		}
		p.namespace = where
	}
	end := strings.IndexAny(rest, ".=")
	if end < 0 {
		p.class = rest
		return p, isName(rest)
	}
	p.class = rest[:end]
	if !isName(p.class) {
		return p, false
	}
	if rest[end:] == "=@" {
		p.singleton = true
		return p, true
	}
	if rest[end] == '=' {
		value, tail, ok := keyValue(rest[end+1:])
		p.keys = map[string]string{"": value}
		return p, ok && tail == ""
	}
	return p, p.parseKeys(rest[end+1:])
}

func (p *objectPath) parseKeys(s string) bool {
	p.keys = map[string]string{}
	for {
		name, rest, ok := strings.Cut(s, "=")
		if !ok || !isName(name) {
			return false
		}
		value, rest, ok := keyValue(rest)
		if !ok {
			return false
		}
		p.keys[fold(name)] = value
		if rest == "" {
			return true
		}
		if s, ok = strings.CutPrefix(rest, ","); !ok {
			return false
		}
	}
}

// keyValue reads a quoted string or a number, and returns what follows it.
func keyValue(s string) (value, rest string, ok bool) {
	quoted, isString := strings.CutPrefix(s, `"`)
	if !isString {
		end := strings.IndexByte(s, ',')
		if end < 0 {
			end = len(s)
		}
		_, err := strconv.ParseInt(s[:end], 10, 64)
		return s[:end], s[end:], err == nil || isBoolean(s[:end])
	}
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		switch c := quoted[i]; {
		case c == '"':
			return b.String(), quoted[i+1:], true
		case c == '\\' && i+1 < len(quoted) && (quoted[i+1] == '\\' || quoted[i+1] == '"'):
			i++
			b.WriteByte(quoted[i])
		case c == '\\':
			return "", "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

func isBoolean(s string) bool { return strings.EqualFold(s, "TRUE") || strings.EqualFold(s, "FALSE") }

func isName(s string) bool {
	if s == "" {
		return false
	}
	for i, r := range s {
		letter := r == '_' || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return true
}

var keyEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// pathTo is the full path of an instance. WMI lists the keys in the order of their
// names; strings and numbers of 64 bits are quoted.
func pathTo(server, namespace string, o *Object) string {
	path := `\\` + strings.ToUpper(server) + `\` + namespace + ":" + o.Class.Name
	if o.class {
		return path
	}
	if o.Class.singleton {
		return path + "=@"
	}
	keys := map[string]string{}
	for _, p := range o.Class.Properties {
		if !p.Key {
			continue
		}
		switch v := o.values[fold(p.Name)].(type) {
		case string:
			keys[p.Name] = `"` + keyEscapes.Replace(v) + `"`
		case uint64:
			keys[p.Name] = strconv.FormatUint(v, 10)
			if p.Type == Uint64 {
				keys[p.Name] = `"` + keys[p.Name] + `"`
			}
		}
	}
	separator := "."
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		path += separator + name + "=" + keys[name]
		separator = ","
	}
	return path
}

// names tells whether the path is that of an instance of one of the namespace's
// classes, which the caller has made sure of. Keys compare without case.
func (p objectPath) names(o *Object) bool {
	if p.singleton {
		return o.Class.singleton
	}
	found := 0
	for _, property := range o.Class.Properties {
		if !property.Key {
			continue
		}
		want, ok := p.keys[fold(property.Name)]
		if unnamed, one := p.keys[""]; one {
			want, ok = unnamed, true
		}
		if !ok {
			return false
		}
		have := o.values[fold(property.Name)]
		if n, isNumber := have.(uint64); isNumber {
			have = strconv.FormatUint(n, 10)
		}
		if s, isString := have.(string); !isString || !sameKey(property, s, want) {
			return false
		}
		found++
	}
	return found > 0 && found == len(p.keys)
}

// sameKey compares two values of a key. References are the same when they name the
// same object, however their server and namespace are written.
func sameKey(p Property, a, b string) bool {
	if p.Type != Reference {
		return strings.EqualFold(a, b)
	}
	x, okX := parsePath(a)
	y, okY := parsePath(b)
	return okX && okY && x.same(y)
}

// same tells whether two paths name one object of one machine.
func (p objectPath) same(o objectPath) bool {
	return strings.EqualFold(p.class, o.class) && p.singleton == o.singleton &&
		maps.EqualFunc(p.keys, o.keys, strings.EqualFold)
}
