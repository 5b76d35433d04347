package deviceplugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Parse reads a file as the plugin does, by YAML 1.1. What the plugin passes over without a word is an error, and so is what Render
// does not write.
func Parse(data []byte) (*Config, error) {
	var first any
	documents := yamlv3.NewDecoder(bytes.NewReader(data))
	if err := documents.Decode(&first); err != nil {
		return nil, fmt.Errorf("not a configuration of the device plugin: %w", err)
	}
	if err := documents.Decode(&first); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a configuration of the device plugin: there is more than one YAML document, of which the plugin reads the " +
			"first; give one of them")
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("not a configuration of the device plugin: %w", err)
	}
	var in file
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, fmt.Errorf("not a configuration of the device plugin that device_plugin_config could write: %w", err)
	}
	if in.Version != "" && in.Version != Version {
		return nil, fmt.Errorf("the version is %q, but %s is wanted", in.Version, Version)
	}
	var out Config
	if in.Flags != nil {
		if out.MIGStrategy = in.Flags.MIGStrategy; out.MIGStrategy == "" || in.Flags.Flags != (Flags{}) {
			out.Flags = &in.Flags.Flags
		}
	}
	if in.Sharing != nil {
		if out.TimeSlicing, err = in.Sharing.TimeSlicing.sharing(); err != nil {
			return nil, fmt.Errorf("timeSlicing: %w", err)
		}
		if out.MPS, err = in.Sharing.MPS.sharing(); err != nil {
			return nil, fmt.Errorf("mps: %w", err)
		}
	}
	return &out, out.check()
}

// sharing is file's inverse.
func (f *fileResources) sharing() (*Sharing, error) {
	if f == nil {
		return nil, nil
	}
	out := &Sharing{
		Replicas: map[string]int{}, RenameByDefault: f.RenameByDefault, FailRequestsGreaterThanOne: f.FailRequestsGreaterThanOne,
	}
	for _, r := range f.Resources {
		name := full(r.Name)
		if _, twice := out.Replicas[name]; twice {
			return nil, fmt.Errorf("resource %q is there twice", name)
		}
		out.Replicas[name] = r.Replicas
	}
	return out, nil
}

// UnmarshalJSON reads one or several.
func (s *Strategies) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*s = Strategies{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(s))
}
