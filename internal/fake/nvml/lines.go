//go:build linux

package fakenvml

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// marshal writes a state as lines of "kind key=value ...".
func marshal(s *state) []byte {
	var b bytes.Buffer
	tables := reflect.ValueOf(s).Elem()
	for i := range tables.NumField() {
		kind := tables.Type().Field(i).Tag.Get("state")
		for _, record := range tables.Field(i).Seq2() {
			b.WriteString(kind)
			for j := range record.NumField() {
				fmt.Fprintf(&b, " %s=%s", record.Type().Field(j).Tag.Get("state"), formatValue(record.Field(j)))
			}
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// unmarshal reads what marshal, or the library, wrote.
func unmarshal(text []byte) (*state, error) {
	s := &state{}
	for line := range strings.Lines(string(text)) {
		if err := unmarshalLine(s, strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("fakenvml: %q: %w", strings.TrimSpace(line), err)
		}
	}
	return s, nil
}

func unmarshalLine(s *state, words []string) error {
	tables := reflect.ValueOf(s).Elem()
	for i := range tables.NumField() {
		if len(words) == 0 || tables.Type().Field(i).Tag.Get("state") != words[0] {
			continue
		}
		table := tables.Field(i)
		record := reflect.New(table.Type().Elem()).Elem()
		if len(words)-1 != record.NumField() {
			return fmt.Errorf("%d fields, not %d", len(words)-1, record.NumField())
		}
		for j := range record.NumField() {
			key, value, _ := strings.Cut(words[j+1], "=")
			if want := record.Type().Field(j).Tag.Get("state"); key != want {
				return fmt.Errorf("field %s, not %s", key, want)
			}
			if err := parseValue(record.Field(j), value); err != nil {
				return err
			}
		}
		table.Set(reflect.Append(table, record))
		return nil
	}
	return fmt.Errorf("no such kind")
}

func formatValue(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return escape(v.String())
	case reflect.Bool:
		if v.Bool() {
			return "1"
		}
		return "0"
	case reflect.Slice:
		var parts []string
		for _, e := range v.Seq2() {
			parts = append(parts, strconv.FormatInt(e.Int(), 10))
		}
		return strings.Join(parts, ",")
	default:
		return strconv.FormatInt(v.Int(), 10)
	}
}

func parseValue(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.String:
		s, err := unescape(text)
		v.SetString(s)
		return err
	case reflect.Slice:
		for part := range strings.SplitSeq(text, ",") {
			if part == "" {
				continue
			}
			n, err := strconv.Atoi(part)
			if err != nil {
				return err
			}
			v.Set(reflect.Append(v, reflect.ValueOf(n)))
		}
		return nil
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if v.Kind() == reflect.Bool {
			v.SetBool(n != 0)
		} else {
			v.SetInt(n)
		}
		return err
	}
}

// escape writes the bytes that would end a value or a line as % and two hex digits.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ', c == '%', c == '=', c == 0x7f:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%q ends in the middle of an escape", s)
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", err
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}
