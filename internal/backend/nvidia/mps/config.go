package mps

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// configuration is the file that a daemon of protocol 3 applies at its start. It refuses
// keys that it does not know.
type configuration struct {
	Version string            `toml:"schema_version"`
	Servers map[string]server `toml:"servers"`
}

type server struct {
	Devices        string `toml:"allowed_devices"`
	PinnedMemory   string `toml:"pinned_memory_limit,omitempty"`
	Threads        string `toml:"active_thread_percentage"`
	ClientPriority string `toml:"client_priority"`
	User           *int   `toml:"uid,omitempty"`
}

const schemaVersion = "1.0"

// Configuration is the TOML file of a daemon of protocol 3.
func (s Spec) Configuration() ([]byte, error) {
	one := server{
		Devices:        strings.Join(s.Devices, ","),
		Threads:        formatPercentage(s.percentage()),
		ClientPriority: fmt.Sprint(s.ClientPriority),
		User:           s.User,
	}
	if limit := s.PinnedMemory[s.Devices[0]]; limit != 0 {
		one.PinnedMemory = formatLimit(limit)
	}
	var out bytes.Buffer
	out.WriteString("# Written by gpu-agent. Changes are lost.\n")
	err := toml.NewEncoder(&out).Encode(configuration{
		Version: schemaVersion,
		// The names of servers have no hyphens.
		Servers: map[string]server{strings.ReplaceAll(s.Name, "-", "_"): one},
	})
	return out.Bytes(), err
}
