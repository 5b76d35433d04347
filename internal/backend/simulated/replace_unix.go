//go:build !windows

package simulated

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// replaceFile writes a file in such a way that a reader sees the old one or the new
// one, never a part.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	return renameio.WriteFile(path, data, mode, renameio.WithExistingPermissions(), renameio.WithTempDir(filepath.Dir(path)))
}
