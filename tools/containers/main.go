// Command containers judges files as the programs do for which the provider writes them, with these programs' own code: "units" as
// systemd and the generator of Podman's Quadlet, and "compose" as Compose. Each takes an array of texts from standard input, and prints
// what is in each of them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/containers/podman/v5/pkg/systemd/parser"
	"github.com/containers/podman/v5/pkg/systemd/quadlet"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	readers := map[string]func(text []byte) error{"units": readUnits, "compose": readCompose}
	if len(os.Args) != 2 || readers[os.Args[1]] == nil {
		return fmt.Errorf("usage: %s units|compose", os.Args[0])
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return readers[os.Args[1]](text)
}

// readUnits prints the words of the command lines of services, and of the service that Podman makes of each .container file, in all
// of which $$ and %% are left as they are. The texts are an array of JSON.
func readUnits(text []byte) error {
	var texts []string
	if err := json.Unmarshal(text, &texts); err != nil {
		return err
	}
	out := make([][]string, len(texts))
	for i, text := range texts {
		unit := parser.NewUnitFile()
		unit.Filename = "unit.container"
		if err := unit.Parse(text); err != nil {
			return err
		}
		if unit.HasGroup(quadlet.ContainerGroup) {
			var err error
			if unit, err = quadlet.ConvertContainer(unit, false, map[string]*quadlet.UnitInfo{unit.Filename: {ServiceName: "unit"}}); err != nil {
				return fmt.Errorf("%w:\n%s", err, text)
			}
		}
		out[i], _ = unit.LookupLastArgs("Service", "ExecStart")
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// readCompose prints the services of Compose files.
func readCompose(text []byte) error {
	var texts []string
	if err := json.Unmarshal(text, &texts); err != nil {
		return err
	}
	out := make([]types.Services, len(texts))
	for i, text := range texts {
		project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
			WorkingDir: "/", ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: []byte(text)}}, Environment: types.Mapping{},
		}, func(o *loader.Options) { o.SetProjectName("test", true) })
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, text)
		}
		out[i] = project.Services
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
