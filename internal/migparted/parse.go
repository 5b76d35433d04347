package migparted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Parse reads a file, or the Kubernetes ConfigMap that has it, with the library by which mig-parted reads it. What
// mig-parted refuses is an error, and so is what it takes and drops: a second YAML document, a label or a profile that is
// there twice, an index that no GPU has, an id or a profile that no GPU matches. Counts of 0 are left out.
func Parse(data []byte) (Config, error) {
	file, written, err := fields(data)
	if err != nil {
		return nil, err
	}
	if string(file["kind"]) == `"ConfigMap"` {
		if data, err = inConfigMap(file["data"]); err != nil {
			return nil, err
		}
		if file, written, err = fields(data); err != nil {
			return nil, err
		}
	}
	if err := known(file, "version", "mig-configs"); err != nil {
		return nil, fmt.Errorf("not a mig-parted configuration: %w", err)
	}
	var version string
	switch err := json.Unmarshal(file["version"], &version); {
	case file["version"] == nil:
		return nil, errors.New("not a mig-parted configuration: it has no version")
	case err != nil || version != Version:
		return nil, fmt.Errorf("the mig-parted configuration is of version %s, but %q is wanted", file["version"], Version)
	}
	var labels map[string][]json.RawMessage
	if raw := file["mig-configs"]; raw != nil {
		if err := json.Unmarshal(raw, &labels); err != nil {
			return nil, errors.New("not a mig-parted configuration: mig-configs are not lists of entries by label")
		}
	}
	switch {
	case len(labels) == 0:
		return nil, errors.New("the mig-parted configuration has no mig-configs")
	case len(labels) < len(written): // 1.0 and 01 are one, of which the library keeps either
		return nil, fmt.Errorf("some of the labels %s are one label to mig-parted; quote them", strings.Join(written, ", "))
	}
	out := Config{}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if len(labels[label]) == 0 {
			return nil, fmt.Errorf("label %q has no entry", label)
		}
		for i, raw := range labels[label] {
			e, err := entry(raw)
			if err != nil {
				return nil, fmt.Errorf("label %q, entry %d: %w", label, i+1, err)
			}
			out[label] = append(out[label], e)
		}
	}
	return out, nil
}

// fields are those of the only document of a text, and its labels as they are written.
func fields(data []byte) (out map[string]json.RawMessage, written []string, err error) {
	// The library below reads the first document alone, and does not say that there are others.
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	var first struct {
		Labels map[string]any `yaml:"mig-configs"`
	}
	if err := decoder.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil, errors.New("the mig-parted configuration is empty")
		}
		return nil, nil, fmt.Errorf("not a mig-parted configuration: %w", err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("not a mig-parted configuration: there is more than one YAML document, of which mig-parted reads the " +
			"first; give one of them")
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, nil, fmt.Errorf("not a mig-parted configuration: %w", err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, nil, errors.New("not a mig-parted configuration: it has no fields")
	}
	return out, slices.Sorted(maps.Keys(first.Labels)), nil
}

// configMapKey is where the GPU Operator has the file in a ConfigMap.
const configMapKey = "config.yaml"

// inConfigMap is the file in the data of a ConfigMap: its only one, or the one that the GPU Operator reads.
func inConfigMap(data json.RawMessage) ([]byte, error) {
	var files map[string]string
	if data != nil {
		if err := json.Unmarshal(data, &files); err != nil {
			return nil, errors.New("not a mig-parted configuration: the data of the ConfigMap are not texts by key")
		}
	}
	keys := slices.Sorted(maps.Keys(files))
	file, ok := files[configMapKey]
	switch {
	case ok:
		return []byte(file), nil
	case len(keys) == 1:
		return []byte(files[keys[0]]), nil
	case len(keys) == 0:
		return nil, fmt.Errorf("not a mig-parted configuration: the ConfigMap has no data, but %q is wanted", configMapKey)
	}
	return nil, fmt.Errorf("not a mig-parted configuration: the ConfigMap has %s, but no %q; give the text of one of them",
		strings.Join(keys, ", "), configMapKey)
}

func known(fields map[string]json.RawMessage, names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("field %s not found; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func entry(raw json.RawMessage) (Entry, error) {
	var e Entry
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return e, errors.New("it has no fields")
	}
	if err := known(fields, string(DeviceFilter), string(Devices), string(MIGEnabled), string(MIGDevices)); err != nil {
		return e, err
	}
	for _, field := range []Field{Devices, MIGEnabled} {
		if fields[string(field)] == nil {
			return e, wrong("%s is missing", field)
		}
	}
	if err := json.Unmarshal(fields[string(MIGEnabled)], &e.Enabled); err != nil {
		return e, wrong("%s is neither true nor false", MIGEnabled)
	}
	if err := e.setDevices(fields[string(Devices)]); err != nil {
		return e, err
	}
	if err := e.setFilter(fields[string(DeviceFilter)]); err != nil {
		return e, err
	}
	if err := e.setProfiles(fields[string(MIGDevices)]); err != nil {
		return e, err
	}
	return e, e.Check()
}

func (e *Entry) setDevices(raw json.RawMessage) error {
	if string(raw) == `"all"` {
		e.All = true
		return nil
	}
	if err := json.Unmarshal(raw, &e.Devices); err != nil || e.Devices == nil {
		return wrong("%s is neither all nor a list of indices", Devices)
	}
	return nil
}

func (e *Entry) setFilter(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	list := make([]string, 1)
	if err := json.Unmarshal(raw, &list[0]); err != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return wrong("%s is neither a quoted PCI device id nor a list of them", DeviceFilter)
		}
	} else if list[0] == "" {
		return nil // mig-parted takes it for no filter
	}
	for _, text := range list {
		id, err := ParseDeviceID(text)
		if err != nil {
			return wrong("%s: %v", DeviceFilter, err)
		}
		if !slices.Contains(e.Filter, id) {
			e.Filter = append(e.Filter, id)
		}
	}
	return nil
}

func (e *Entry) setProfiles(raw json.RawMessage) error {
	if raw != nil {
		if err := json.Unmarshal(raw, &e.Profiles); err != nil {
			return wrong("%s is %s, but numbers by profile are wanted", MIGDevices, raw)
		}
	}
	if e.Enabled && e.Profiles == nil {
		return wrong("%s is missing, though %s is true", MIGDevices, MIGEnabled)
	}
	e.DropZeros()
	for _, n := range e.Profiles {
		if n == 0 {
			return wrong("%s has counts that are all 0", MIGDevices)
		}
	}
	if len(e.Profiles) == 0 {
		e.Profiles = nil
	}
	return nil
}
