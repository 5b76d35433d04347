package migparted

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Render writes a file that Parse and mig-parted read, labels and profiles sorted.
func Render(c Config) ([]byte, error) {
	if len(c) == 0 {
		return nil, errors.New("a mig-parted configuration needs at least one label")
	}
	configs := mapping()
	for _, label := range c.Labels() {
		if label == "" {
			return nil, errors.New("a label is empty")
		}
		if len(c[label]) == 0 {
			return nil, fmt.Errorf("label %q has no entry", label)
		}
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range c[label] {
			e := &c[label][i]
			if err := e.Check(); err != nil {
				return nil, fmt.Errorf("label %q, entry %d: %w", label, i+1, err)
			}
			list.Content = append(list.Content, e.node())
		}
		put(configs, quoted(label), list) // YAML 1.1, by which mig-parted reads, takes on, off, y and n for truth values
	}
	root := mapping()
	put(root, text("version"), text(Version))
	put(root, text("mig-configs"), configs)

	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("write the mig-parted configuration: %w", err)
	}
	return out.Bytes(), nil
}

func (e *Entry) node() *yaml.Node {
	out := mapping()
	if len(e.Filter) > 0 {
		ids := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, id := range e.Filter {
			ids.Content = append(ids.Content, quoted(FormatDeviceID(id)))
		}
		put(out, text("device-filter"), ids)
	}
	devices := text("all")
	if !e.All {
		devices = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, d := range e.Devices {
			devices.Content = append(devices.Content, plain("!!int", strconv.Itoa(d)))
		}
	}
	put(out, text("devices"), devices)
	put(out, text("mig-enabled"), plain("!!bool", strconv.FormatBool(e.Enabled)))
	if e.Enabled {
		profiles := mapping()
		for _, name := range slices.Sorted(maps.Keys(e.Profiles)) {
			put(profiles, quoted(name), plain("!!int", strconv.Itoa(e.Profiles[name])))
		}
		put(out, text("mig-devices"), profiles)
	}
	return out
}

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func put(to, key, value *yaml.Node) { to.Content = append(to.Content, key, value) }

// text is quoted by the library where it would be read as something else.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: s}
}

func plain(tag, s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s} }
