//go:build !linux

package simulated

import "os"

// swap puts a file in the place of another one.
func swap(tmp, path string) error { return os.Rename(tmp, path) }
