// Command terraform-provider-gpu serves the provider to Terraform or OpenTofu.
package main

import (
	"flag"
	"log"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// version is set by the release build.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "serve until interrupted, for a debugger, and print how to reach the provider")
	flag.Parse()
	serve := provider.Serve
	if *debug {
		serve = provider.Debug
	}
	if err := serve(version); err != nil {
		log.Fatal(err)
	}
}
