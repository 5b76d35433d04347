package deviceplugin

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file is the file as YAML has it.
type file struct {
	Version string       `json:"version" yaml:"version"`
	Flags   *fileFlags   `json:"flags" yaml:"flags,omitempty"`
	Sharing *fileSharing `json:"sharing" yaml:"sharing,omitempty"`
}

type fileFlags struct {
	MIGStrategy string `json:"migStrategy" yaml:"migStrategy,omitempty"`
	Flags       `yaml:",inline"`
}

type fileSharing struct {
	TimeSlicing *fileResources `json:"timeSlicing" yaml:"timeSlicing,omitempty"`
	MPS         *fileResources `json:"mps" yaml:"mps,omitempty"`
}

type fileResources struct {
	RenameByDefault            *bool          `json:"renameByDefault" yaml:"renameByDefault,omitempty"`
	FailRequestsGreaterThanOne *bool          `json:"failRequestsGreaterThanOne" yaml:"failRequestsGreaterThanOne,omitempty"`
	Resources                  []fileResource `json:"resources" yaml:"resources"`
}

type fileResource struct {
	Name     string `json:"name" yaml:"name"`
	Replicas int    `json:"replicas" yaml:"replicas"`
}

// Render writes a file that the plugin reads, its resources sorted.
func Render(c *Config) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	out := file{Version: Version}
	if c.MIGStrategy != "" || c.Flags != nil {
		out.Flags = &fileFlags{MIGStrategy: c.MIGStrategy}
	}
	if c.Flags != nil {
		out.Flags.Flags = *c.Flags
	}
	if c.TimeSlicing != nil || c.MPS != nil {
		out.Sharing = &fileSharing{TimeSlicing: c.TimeSlicing.file(), MPS: c.MPS.file()}
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(out); err != nil {
		return nil, fmt.Errorf("write the device plugin's configuration: %w", err)
	}
	return text.Bytes(), nil
}

func (s *Sharing) file() *fileResources {
	if s == nil {
		return nil
	}
	out := &fileResources{RenameByDefault: s.RenameByDefault, FailRequestsGreaterThanOne: s.FailRequestsGreaterThanOne}
	for name, n := range s.Replicas {
		out.Resources = append(out.Resources, fileResource{Name: full(name), Replicas: n})
	}
	slices.SortFunc(out.Resources, func(a, b fileResource) int { return strings.Compare(a.Name, b.Name) })
	return out
}
