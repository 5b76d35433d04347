// Command terraform-provider-gpu serves the provider to Terraform or OpenTofu.
package main

import (
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// version is set by the release build.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "serve until interrupted, for a debugger, and print how to reach the provider")
	flag.Parse()
	server, err := provider.Server(version, nil)
	if err != nil {
		log.Fatal(err)
	}
	var opts []tf6server.ServeOpt
	if *debug {
		opts = append(opts, tf6server.WithManagedDebug())
	}
	if err := tf6server.Serve(provider.Address, server, opts...); err != nil {
		log.Fatal(err)
	}
}
