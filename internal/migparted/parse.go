package migparted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// file is the file as YAML has it. Nodes stand for what may be of two types.
type file struct {
	Version *string                `yaml:"version"`
	Configs map[string][]fileEntry `yaml:"mig-configs"`
}

type fileEntry struct {
	Filter   yaml.Node      `yaml:"device-filter"`
	Devices  yaml.Node      `yaml:"devices"`
	Enabled  *bool          `yaml:"mig-enabled"`
	Profiles map[string]int `yaml:"mig-devices"`
}

// Parse reads a file as strictly as mig-parted does: fields that it does not know,
// fields that lack and values that make no sense are errors. Counts of 0 are left out.
func Parse(data []byte) (Config, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	var f file
	if err := decoder.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the mig-parted configuration is empty")
		}
		return nil, fmt.Errorf("not a mig-parted configuration: %w", err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a mig-parted configuration: there is more than one YAML document")
	}
	switch {
	case f.Version == nil:
		return nil, errors.New("not a mig-parted configuration: it has no version")
	case *f.Version != Version:
		return nil, fmt.Errorf("the mig-parted configuration is of version %q, but %q is wanted", *f.Version, Version)
	case len(f.Configs) == 0:
		return nil, errors.New("the mig-parted configuration has no mig-configs")
	}
	out := Config{}
	for _, label := range slices.Sorted(maps.Keys(f.Configs)) {
		if len(f.Configs[label]) == 0 {
			return nil, fmt.Errorf("label %q has no entry", label)
		}
		for i := range f.Configs[label] {
			e, err := f.Configs[label][i].entry()
			if err != nil {
				return nil, fmt.Errorf("label %q, entry %d: %w", label, i+1, err)
			}
			out[label] = append(out[label], e)
		}
	}
	return out, nil
}

func (f *fileEntry) entry() (Entry, error) {
	var e Entry
	switch {
	case f.Devices.IsZero():
		return e, errors.New("devices is missing")
	case f.Enabled == nil:
		return e, errors.New("mig-enabled is missing")
	case *f.Enabled && f.Profiles == nil:
		return e, errors.New("mig-devices is missing, though mig-enabled is true")
	}
	e.Enabled = *f.Enabled
	if err := e.setDevices(&f.Devices); err != nil {
		return e, err
	}
	if err := e.setFilter(&f.Filter); err != nil {
		return e, err
	}
	some := false
	for name, n := range f.Profiles {
		if e.Profiles == nil {
			e.Profiles = map[string]int{}
		}
		e.Profiles[name] = n
		some = some || n != 0
	}
	if len(f.Profiles) > 0 && !some {
		return e, errors.New("mig-devices counts are all 0")
	}
	maps.DeleteFunc(e.Profiles, func(_ string, n int) bool { return n == 0 })
	return e, e.check()
}

func (e *Entry) setDevices(n *yaml.Node) error {
	var word string
	if err := n.Decode(&word); err == nil && word == "all" {
		e.All = true
		return nil
	}
	if err := n.Decode(&e.Devices); err != nil || resolve(n).Kind != yaml.SequenceNode {
		return fmt.Errorf("line %d: devices is neither all nor a list of indices", n.Line)
	}
	return nil
}

func (e *Entry) setFilter(n *yaml.Node) error {
	node := resolve(n)
	if n.IsZero() || node.ShortTag() == "!!null" {
		return nil
	}
	list := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		list = node.Content
	}
	for _, item := range list {
		item = resolve(item)
		if item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str" {
			return fmt.Errorf("line %d: device-filter is neither a quoted PCI device id nor a list of them", n.Line)
		}
		if item.Value == "" && len(list) == 1 {
			return nil // mig-parted takes an empty filter for none
		}
		id, err := ParseDeviceID(item.Value)
		if err != nil {
			return fmt.Errorf("line %d: device-filter: %w", item.Line, err)
		}
		if !slices.Contains(e.Filter, id) {
			e.Filter = append(e.Filter, id)
		}
	}
	return nil
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
