package provider

import (
	"cmp"
	"errors"
	"os"
	"runtime/debug"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/fastpath"
)

// Server makes the protocol server of the provider. All calls are answered in the same way whether somebody reads logs or not; only
// what is logged of them differs.
func Server(version string, observe Observer, options ...Option) (func() Served, error) {
	p := newProvider(version, observe, options...)
	made, err := providerserver.NewProtocol6WithError(p)()
	if err != nil {
		return nil, err
	}
	served, ok := made.(Served)
	if !ok {
		return nil, errors.New("the framework's server has no lists or no actions")
	}
	if !fastpath.Off() {
		served = fastpath.New(p, func() any { return p.fleet }, served)
	}
	all := &walks{wholeNumbers: newWholeNumbers(p, newEmptied(served)), provider: p}
	return func() Served { return plainly{fastpath.InContext(all, logsWanted(), p.Close, p.stuck)} }, nil
}

// Served is what is served.
type Served = fastpath.Served

// logLevel is what Terraform was told to log of providers, in capitals; "" for nothing.
func logLevel() string {
	level := strings.ToUpper(cmp.Or(os.Getenv("TF_LOG_PROVIDER"), os.Getenv("TF_LOG")))
	if level == "OFF" {
		return ""
	}
	return level
}

// logsWanted is that somebody may read what the SDK and the framework log.
func logsWanted() bool {
	sdk := strings.ToUpper(os.Getenv("TF_LOG_SDK"))
	return logLevel() != "" || sdk != "" && sdk != "OFF"
}

// keepQuiet turns off what the SDK and the framework log of every call, unless somebody
// reads it. By themselves they format all of it, and Terraform parses it, before either
// looks whether TF_LOG is set: half the time of a plan without changes.
func keepQuiet() error {
	if _, chosen := os.LookupEnv("TF_LOG_SDK"); chosen || logLevel() != "" {
		return nil
	}
	return os.Setenv("TF_LOG_SDK", "OFF")
}

// collectSeldom paces the garbage collector, which runs where the heap has grown by a part of what is kept: often in a
// small plan, and late in a large one. With the ballast, for which no memory is taken since nobody touches it, and a smaller
// part than the usual, 20 MiB may grow by 46, and 170 by 136.
func collectSeldom() (ballast []byte) {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	debug.SetGCPercent(60)
	return make([]byte, 56<<20)
}
