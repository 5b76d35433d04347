package words_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func TestName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"avd-01":                  "avd-01",
		"hv01.corp.example":       "hv01.corp.example",
		"Büro_7":                  "Büro_7",
		"Desk 01":                 `"Desk 01"`,
		"":                        `""`,
		"a. No VM stops. VM b":    `"a. No VM stops. VM b"`,
		"a\x1b[2J\nError: b":      `"a\x1b[2J\nError: b"`,
		"\u202eb\u200b":           `"\u202eb\u200b"`,
		`a" is left alone. VM "b`: `"a\" is left alone. VM \"b"`,
	} {
		if got := words.Name(name); got != want {
			t.Errorf("of %q it makes %s, and %s was wanted", name, got, want)
		}
	}
}
