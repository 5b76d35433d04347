//go:build linux

package fakenvml

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
)

// declaration matches a function of nvml.h.
var declaration = regexp.MustCompile(`\bDECLDIR\s+(?:char\s*\*\s*)?(nvml[A-Za-z0-9_]+)\s*\(`)

// functionsOf returns the names of all functions that an nvml.h declares, sorted.
func functionsOf(header []byte) []string {
	var names []string
	for _, m := range declaration.FindAllSubmatch(header, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stubs is a C source with a body for each function. It is weak: one of the library's
// own takes its place. The caller's arguments are left alone, which the calling
// conventions of Linux allow.
func stubs(functions []string) []byte {
	var b bytes.Buffer
	b.WriteString("int fakenvml_unsupported(const char *function);\n")
	for _, name := range functions {
		fmt.Fprintf(&b, "__attribute__((weak)) int %s(void) { return fakenvml_unsupported(%q); }\n", name, name)
	}
	return b.Bytes()
}

// exports is a linker script with all that the library shows to others: its functions
// but the missing ones, and what its builds share within a process.
func exports(functions, missing []string) []byte {
	var b bytes.Buffer
	b.WriteString("{\n  global:\n    fakenvml_process;\n")
	for _, name := range functions {
		if !slices.Contains(missing, name) {
			fmt.Fprintf(&b, "    %s;\n", name)
		}
	}
	b.WriteString("  local: *;\n};\n")
	return b.Bytes()
}
