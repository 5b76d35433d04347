//go:build !unix

package mps

import "os"

func openNoFollow(path string) (*os.File, error) { return os.Open(path) }
