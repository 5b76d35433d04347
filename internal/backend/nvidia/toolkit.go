//go:build linux && cgo

package nvidia

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"time"
)

// toolkit is NVIDIA's container toolkit, as it was when it was asked last.
type toolkit struct {
	path     string
	modified time.Time
	version  string
}

// "NVIDIA Container Toolkit CLI version 1.17.4".
var toolkitRelease = regexp.MustCompile(`\bversion v?(\d+\.\d+\.\d+\S*)`)

// toolkitVersion is that of the container toolkit, "" without it. It is asked once for each
// installation.
func (b *Backend) toolkitVersion(ctx context.Context) string {
	path, err := exec.LookPath(b.opt.CTK)
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if b.toolkit.path == path && b.toolkit.modified.Equal(info.ModTime()) {
		return b.toolkit.version
	}
	out, err := run(ctx, 5*time.Second, path, "--version")
	if err != nil {
		return ""
	}
	b.toolkit = toolkit{path: path, modified: info.ModTime()}
	if found := toolkitRelease.FindStringSubmatch(out); found != nil {
		b.toolkit.version = found[1]
	}
	return b.toolkit.version
}
