//go:build linux

package cdi

import (
	"cmp"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"
)

// GeneratedWith are the options of "nvidia-ctk cdi generate" that a specification of its
// making shows: how devices are named, where the driver, its device nodes and the hook are,
// and whose the devices are. Without them it would be written anew as another one. It is empty for a
// file that cannot be read, and leaves out what is the tool's default.
func GeneratedWith(file string) []string {
	spec, err := cdi.ReadSpec(file, 0)
	if err != nil {
		return nil
	}
	var out []string
	if vendor, class := parser.ParseQualifier(spec.Kind); vendor != "" && vendor != hostVendor {
		out = append(out, "--vendor="+vendor, "--class="+class)
	} else if vendor != "" && class != hostClass {
		out = append(out, "--class="+class)
	}
	out = append(out, namingOptions(spec.Devices)...)
	root := driverRoot(spec.ContainerEdits.Mounts)
	if root != "" {
		out = append(out, "--driver-root="+root)
	}
	// Without it the tool looks for them below the driver's root.
	if nodes := devRoot(spec); nodes != "" && nodes != cmp.Or(root, "/") {
		out = append(out, "--dev-root="+nodes)
	}
	for _, hook := range spec.ContainerEdits.Hooks {
		switch filepath.Base(hook.Path) {
		case "nvidia-cdi-hook":
			return append(out, hookOption("--nvidia-cdi-hook-path=", hook.Path)...)
		case "nvidia-ctk":
			return append(out, hookOption("--nvidia-ctk-path=", hook.Path)...)
		}
	}
	return out
}

// usualHooks are where the tool takes its hook from by itself.
const usualHooks = "/usr/bin"

func hookOption(option, path string) []string {
	if filepath.Dir(path) == usualHooks {
		return nil
	}
	return []string{option + path}
}

// strategies are the ways in which the tool names devices, by what the names look like.
var strategies = map[string]*regexp.Regexp{
	"index": regexp.MustCompile(`^\d+(:\d+)?$`), "type-index": regexp.MustCompile(`^(gpu\d+|mig\d+:\d+)$`),
	"uuid": regexp.MustCompile(`^(GPU|MIG)-`),
}

// namingOptions are the strategies in use. Names that fit none are left to the tool.
func namingOptions(devices []specs.Device) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(strategies)) {
		if slices.ContainsFunc(devices, func(d specs.Device) bool { return strategies[name].MatchString(d.Name) }) {
			out = append(out, "--device-name-strategy="+name)
		}
	}
	return out
}

// driverRoot is what all files of the driver have before their path in the container, ""
// for nothing.
func driverRoot(mounts []*specs.Mount) string {
	root := ""
	for i, m := range mounts {
		before, ok := strings.CutSuffix(m.HostPath, m.ContainerPath)
		if !ok || before == "" || i > 0 && before != root && root != "" {
			continue
		}
		root = before
	}
	return root
}

// devRoot is where on the host the device nodes are, "" without any.
func devRoot(spec *cdi.Spec) string {
	nodes := spec.ContainerEdits.DeviceNodes
	for i := range spec.Devices {
		nodes = append(nodes, spec.Devices[i].ContainerEdits.DeviceNodes...)
	}
	for _, n := range nodes {
		if root, ok := strings.CutSuffix(cmp.Or(n.HostPath, n.Path), n.Path); ok {
			return cmp.Or(root, "/")
		}
	}
	return ""
}
