// Command parsers reads files as the programs do for which the provider writes them, with these programs' own code:
// "mig-parted" as NVIDIA's mig-parted, "device-plugin" as NVIDIA's device plugin for Kubernetes. It takes a JSON array
// of texts from standard input, and prints one of verdicts.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	"github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted/assert"
	"github.com/urfave/cli/v2"
)

// verdict is what a program makes of a text.
type verdict struct {
	Error string `json:"error,omitempty"`
	Value any    `json:"value,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	readers := map[string]func(file string) (any, error){"mig-parted": migParted, "device-plugin": devicePlugin}
	if len(os.Args) != 2 || readers[os.Args[1]] == nil {
		return fmt.Errorf("usage: %s mig-parted|device-plugin", os.Args[0])
	}
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		return err
	}
	file, err := os.CreateTemp("", "parsers-*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if err := file.Close(); err != nil {
		return err
	}
	out := make([]verdict, len(texts))
	for i, text := range texts {
		if err := os.WriteFile(file.Name(), []byte(text), 0o600); err != nil {
			return err
		}
		value, err := readers[os.Args[1]](file.Name())
		if err != nil {
			out[i] = verdict{Error: err.Error()}
			continue
		}
		out[i] = verdict{Value: value}
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func migParted(file string) (any, error) {
	return assert.ParseConfigFile(&assert.Flags{ConfigFile: file})
}

// devicePlugin reads the file as at the plugin's start without any flag of the command line. What the plugin's main package
// looks at next is not to be imported, but for the strategies.
func devicePlugin(file string) (out any, err error) {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "config-file"},
		&cli.StringFlag{Name: "mig-strategy", Value: v1.MigStrategyNone},
		&cli.StringSliceFlag{Name: "device-list-strategy", Value: cli.NewStringSlice(v1.DeviceListStrategyEnvVar)},
		&cli.StringFlag{Name: "device-id-strategy", Value: v1.DeviceIDStrategyUUID},
	}
	app := &cli.App{Flags: flags, Action: func(c *cli.Context) error {
		config, err := v1.NewConfig(c, flags)
		if err != nil {
			return err
		}
		out = config
		_, err = v1.NewDeviceListStrategies(*config.Flags.Plugin.DeviceListStrategy)
		return err
	}}
	err = app.Run([]string{"device-plugin", "--config-file", file})
	return out, err
}
