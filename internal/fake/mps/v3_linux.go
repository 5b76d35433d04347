package fakemps

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// config is the configuration file of protocol 3 (assumption linux-mps-version-3). Other
// keys are errors.
type config struct {
	Version string `toml:"schema_version"`
	Servers map[string]struct {
		Devices  string `toml:"allowed_devices"`
		Memory   string `toml:"pinned_memory_limit"`
		Threads  string `toml:"active_thread_percentage"`
		Priority string `toml:"client_priority"`
		User     *int   `toml:"uid"`
		Domains  bool   `toml:"locality_domains"`
	} `toml:"servers"`
}

// apply starts the servers of a configuration.
func (d *daemon) apply(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c config
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&c); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, s := range c.Servers {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return fmt.Errorf("server name %q", name)
		}
		user := 0
		if s.User != nil {
			user = *s.User
		}
		d.startServer(user)
	}
	return nil
}

// list is a command of protocol 3.
func (d *daemon) list(words []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch strings.Join(words, " ") {
	case "server list --format=csv":
		out := []string{"name, pid, uid"}
		for _, s := range d.servers {
			out = append(out, fmt.Sprintf("server, %d, %d", s.pid, s.user))
		}
		return strings.Join(out, "\n")
	case "client list --format=csv":
		out := []string{"server_pid, pid"}
		for _, s := range d.servers {
			for pid := range s.clients {
				out = append(out, fmt.Sprintf("%d, %d", s.pid, pid))
			}
		}
		return strings.Join(out, "\n")
	}
	return fmt.Sprintf("Unknown command %q", words[0])
}
