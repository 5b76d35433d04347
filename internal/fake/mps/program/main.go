//go:build linux

// Command program is every program of package fakemps, by the name that it is started under.
package main

import fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"

func main() { fakemps.Main() }
