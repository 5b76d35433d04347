//go:build linux && cgo

package nvidia

// Run is run.
var Run = run

// Programs are the names of the programs that are known.
func Programs() (names []string) {
	for _, p := range programs {
		names = append(names, p.name)
	}
	return names
}
