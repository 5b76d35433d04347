//go:build rootfixture && linux && cgo

package main

import "os"

// The build for tests sees the files of its host below a directory, with everything else as
// in a release. Only the tag rootfixture brings it in, and no release is built with it.
const fixtureRoot = "GPU_AGENT_ROOT_FIXTURE"

func init() { platformOptions.Root = os.Getenv(fixtureRoot) }
