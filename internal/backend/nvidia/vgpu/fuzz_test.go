package vgpu

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzFormats reads what the kernel's files may hold.
func FuzzFormats(f *testing.F) {
	for _, s := range []string{
		"", "ID    : vGPU Name\n1148  : NVIDIA L40S-2Q\n", "NVIDIA A40-1Q 557", "0 : x", "framebuffer=2048M, max_instance=24",
		"framebuffer=-1M,max_instance=99999999999999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		types, err := parseCreatable(text)
		var lines []string
		for _, typ := range types {
			if err != nil || typ.ID <= 0 || typ.Name == "" {
				t.Errorf("%q has type %+v, %v", text, typ, err)
			}
			lines = append(lines, fmt.Sprintf("%d : %s", typ.ID, typ.Name))
		}
		again, err := parseCreatable(strings.Join(lines, "\n"))
		if err != nil || len(again) != len(types) {
			t.Errorf("there and back %+v, %v", again, err)
		}
		_ = parseDescription(Type{}, text)
	})
}
