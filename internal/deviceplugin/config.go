// Package deviceplugin writes the configuration files of NVIDIA's device plugin for
// Kubernetes, by which a cluster itself shares its nodes' GPUs. The format is that of
// version v1:
//
//	version: v1
//	flags:
//	  migStrategy: mixed
//	sharing:
//	  timeSlicing:
//	    resources:
//	      - name: nvidia.com/gpu
//	        replicas: 4
//
// What the plugin takes but means nothing by, and what stops it, are errors.
package deviceplugin

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
)

// Version is the version of the format.
const Version = "v1"

// Config is a file.
type Config struct {
	// MIGStrategy is how nodes offer MIG devices: "none", "single" or "mixed". "" leaves it
	// to the plugin's flags.
	MIGStrategy string
	// Flags are the plugin's other flags, nil for none: those of the command line and of the environment come first.
	Flags *Flags
	// TimeSlicing and MPS are ways of sharing, of which a node has at most one.
	TimeSlicing *Sharing
	MPS         *Sharing
}

// Flags are named as in the file. Nil leaves a flag to the plugin.
type Flags struct {
	FailOnInitError         *bool        `json:"failOnInitError" yaml:"failOnInitError,omitempty"`
	MPSRoot                 *string      `json:"mpsRoot" yaml:"mpsRoot,omitempty"`
	NVIDIADriverRoot        *string      `json:"nvidiaDriverRoot" yaml:"nvidiaDriverRoot,omitempty"`
	NVIDIADevRoot           *string      `json:"nvidiaDevRoot" yaml:"nvidiaDevRoot,omitempty"`
	GDRCopyEnabled          *bool        `json:"gdrcopyEnabled" yaml:"gdrcopyEnabled,omitempty"`
	GDSEnabled              *bool        `json:"gdsEnabled" yaml:"gdsEnabled,omitempty"`
	MOFEDEnabled            *bool        `json:"mofedEnabled" yaml:"mofedEnabled,omitempty"`
	DeviceDiscoveryStrategy *string      `json:"deviceDiscoveryStrategy" yaml:"deviceDiscoveryStrategy,omitempty"`
	Plugin                  *PluginFlags `json:"plugin" yaml:"plugin,omitempty"`
}

// PluginFlags are those that feature discovery, which reads the same file, has not.
type PluginFlags struct {
	PassDeviceSpecs *bool `json:"passDeviceSpecs" yaml:"passDeviceSpecs,omitempty"`
	// DeviceListStrategy is how the plugin tells a container's devices to the runtime, nil for its own way.
	DeviceListStrategy  Strategies `json:"deviceListStrategy" yaml:"deviceListStrategy,omitempty"`
	DeviceIDStrategy    *string    `json:"deviceIDStrategy" yaml:"deviceIDStrategy,omitempty"`
	CDIAnnotationPrefix *string    `json:"cdiAnnotationPrefix" yaml:"cdiAnnotationPrefix,omitempty"`
	NVIDIACTKPath       *string    `json:"nvidiaCTKPath" yaml:"nvidiaCTKPath,omitempty"`
	ContainerDriverRoot *string    `json:"containerDriverRoot" yaml:"containerDriverRoot,omitempty"`
	// SharedDevicesAllocationPolicy is not known to the plugin before v0.20.0, which passes over it.
	SharedDevicesAllocationPolicy *string `json:"sharedDevicesAllocationPolicy" yaml:"sharedDevicesAllocationPolicy,omitempty"`
}

// Strategies are one or several.
type Strategies []string

// MarshalYAML writes one as it is, which old releases of the plugin want.
func (s Strategies) MarshalYAML() (any, error) {
	if len(s) == 1 {
		return s[0], nil
	}
	return []string(s), nil
}

// Sharing offers each device several times.
type Sharing struct {
	// Replicas are how often a device of a resource is offered. The names are those that
	// pods request, with or without "nvidia.com/".
	Replicas map[string]int
	// RenameByDefault offers shared devices under names that end in ".shared".
	RenameByDefault *bool
	// FailRequestsGreaterThanOne refuses pods that ask for several replicas, which would
	// not get more of a GPU. The plugin's default is true for MPS and false for time-slicing.
	FailRequestsGreaterThanOne *bool
}

// What the plugin's flags may be.
var (
	migStrategies       = []string{"none", "single", "mixed"}
	discoveryStrategies = []string{"auto", "nvml", "tegra"}
	listStrategies      = []string{"envvar", "volume-mounts", "cdi-annotations", "cdi-cri"}
	idStrategies        = []string{"uuid", "index"}
	allocationPolicies  = []string{"distributed", "packed"}
)

const (
	prefix = "nvidia.com/"
	whole  = prefix + "gpu"
	mig    = prefix + "mig-"
	shared = ".shared"

	// maxName is how long the plugin lets a resource's name be.
	maxName = 63
)

// profile is a MIG profile as the plugin writes it into a resource's name: with dots in
// place of plus signs, "1g.10gb.me".
var profile = regexp.MustCompile(`^([1-9]c\.)?[1-9]g\.[0-9]+gb([.-][a-z]+)*$`)

// resource is a name that Kubernetes takes, after the prefix.
var resource = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// check finds what the plugin would refuse, on some node at least. It says so by the names of device_plugin_config's attributes.
func (c *Config) check() error {
	if err := oneOf("mig_strategy", c.MIGStrategy, migStrategies); c.MIGStrategy != "" && err != nil {
		return err
	}
	if c.Flags != nil {
		if err := c.Flags.check(); err != nil {
			return fmt.Errorf("flags: %w", err)
		}
	}
	if c.TimeSlicing != nil && c.MPS != nil {
		return errors.New("a device is shared by time_slicing or by mps, but both are given")
	}
	if c.TimeSlicing != nil {
		if err := c.TimeSlicing.check(c.timeSliced); err != nil {
			return fmt.Errorf("time_slicing: %w", err)
		}
	}
	if c.MPS != nil {
		if err := c.MPS.check(served); err != nil {
			return fmt.Errorf("mps: %w", err)
		}
		if c.MIGStrategy != "" && c.MIGStrategy != "none" {
			return fmt.Errorf("mps: with the MIG strategy %q the plugin (v0.20.0) ends at its start on a node that has a MIG device; "+
				"write mig_strategy = \"none\", or share by time_slicing", c.MIGStrategy)
		}
	}
	return nil
}

func oneOf(flag, value string, of []string) error {
	if slices.Contains(of, value) {
		return nil
	}
	return fmt.Errorf("%s is %q, but %s is wanted", flag, value, strings.Join(of, ", "))
}

// check finds what the plugin refuses, and what would leave it without devices or files to give.
func (f *Flags) check() error {
	plugin := f.Plugin
	if plugin == nil {
		plugin = &PluginFlags{}
	}
	for _, flag := range []struct {
		name  string
		value *string
		of    []string // nil for a path of the node
	}{
		{"device_discovery_strategy", f.DeviceDiscoveryStrategy, discoveryStrategies},
		{"mps_root", f.MPSRoot, nil},
		{"nvidia_dev_root", f.NVIDIADevRoot, nil},
		{"nvidia_driver_root", f.NVIDIADriverRoot, nil},
		{"plugin: container_driver_root", plugin.ContainerDriverRoot, nil},
		{"plugin: device_id_strategy", plugin.DeviceIDStrategy, idStrategies},
		{"plugin: nvidia_ctk_path", plugin.NVIDIACTKPath, nil},
		{"plugin: shared_devices_allocation_policy", plugin.SharedDevicesAllocationPolicy, allocationPolicies},
	} {
		if flag.value == nil {
			continue
		}
		if flag.of == nil && !path.IsAbs(*flag.value) {
			return fmt.Errorf("%s is %q, but a path that begins with / is wanted", flag.name, *flag.value)
		}
		if flag.of != nil {
			if err := oneOf(flag.name, *flag.value, flag.of); err != nil {
				return err
			}
		}
	}
	if plugin.DeviceListStrategy != nil && len(plugin.DeviceListStrategy) == 0 {
		return errors.New("plugin: device_list_strategy is empty, and pods would get no device; leave it out for the plugin's own, envvar")
	}
	for _, strategy := range plugin.DeviceListStrategy {
		if err := oneOf("plugin: device_list_strategy", strategy, listStrategies); err != nil {
			return err
		}
	}
	if p := plugin.CDIAnnotationPrefix; p != nil && *p == "" {
		return errors.New("plugin: cdi_annotation_prefix is empty; leave it out for the plugin's own, cdi.k8s.io/")
	}
	return nil
}

// check looks at each resource, and has what is special to the way of sharing looked at.
func (s *Sharing) check(special func(name string, replicas int) error) error {
	if len(s.Replicas) == 0 {
		return errors.New("it has no resource to share, but at least one is wanted")
	}
	seen := map[string]string{}
	for _, given := range slices.Sorted(maps.Keys(s.Replicas)) {
		name, n := full(given), s.Replicas[given]
		offered := name
		if s.RenameByDefault != nil && *s.RenameByDefault {
			offered += shared
		}
		switch {
		case strings.HasPrefix(name, mig) && strings.Contains(name, "+"):
			return fmt.Errorf("%q is not the name of a resource: the plugin has a dot in place of the plus sign; write %q",
				given, strings.ReplaceAll(given, "+", "."))
		case !strings.HasPrefix(name, prefix) || !resource.MatchString(strings.TrimPrefix(name, prefix)):
			return fmt.Errorf("%q is not the name of a resource such as %q", given, whole)
		case strings.HasSuffix(name, shared):
			return fmt.Errorf("%q is what the plugin calls shared devices, and no resource to share; write %q",
				given, strings.TrimSuffix(given, shared))
		case len(offered) > maxName:
			return fmt.Errorf("the name %q has %d characters, but the plugin takes at most %d", offered, len(offered), maxName)
		case seen[name] != "":
			return fmt.Errorf("%q and %q are the same resource", seen[name], given)
		case n < 2:
			return fmt.Errorf("%q has %d replicas, but at least 2 are wanted", given, n)
		}
		seen[name] = given
		if err := special(name, n); err != nil {
			return err
		}
	}
	return nil
}

// timeSliced finds MIG devices that are never offered.
func (c *Config) timeSliced(name string, _ int) error {
	if p, ok := strings.CutPrefix(name, mig); ok && !profile.MatchString(p) {
		return fmt.Errorf("%q is not the resource of a MIG profile such as %q", name, mig+"1g.10gb")
	}
	if strings.HasPrefix(name, mig) && c.MIGStrategy != "" && c.MIGStrategy != "mixed" {
		return fmt.Errorf("%q exists with the MIG strategy \"mixed\" only, but it is %q", name, c.MIGStrategy)
	}
	return nil
}

// served finds what MPS cannot share.
func served(name string, replicas int) error {
	switch {
	case strings.HasPrefix(name, mig):
		return fmt.Errorf("%q are MIG devices, which the plugin does not share by MPS; use time_slicing, or whole GPUs as %q", name, whole)
	case name != whole:
		return fmt.Errorf("the plugin shares %q only, but %q is given", whole, name)
	case replicas > catalog.MPSClients("", ""): // the plugin (v0.20.0) enforces it, whatever the driver
		return fmt.Errorf("%q has %d replicas, but an MPS server takes %d clients at most", name, replicas, catalog.MPSClients("", ""))
	}
	return nil
}

// full is the name of a resource as the plugin completes it.
func full(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return prefix + name
}

// GPU is a GPU of a node that has the file.
type GPU struct {
	Node, ID string
	// MIG tells that it is in MIG mode, and Profiles are those of its instances.
	MIG      bool
	Profiles []string
}

// CheckGPUs finds what the plugin (v0.19.0) would refuse or misread on nodes with some GPUs.
func (c *Config) CheckGPUs(gpus []GPU) error {
	first, offered := map[string]*GPU{}, map[string]bool{}
	for i := range gpus {
		g := &gpus[i]
		if c.MPS != nil && g.MIG {
			return fmt.Errorf("mps: GPU %s on node %q is in MIG mode, and MIG devices are not shared by MPS: the plugin does not start on the "+
				"node; share by time_slicing", g.ID, g.Node)
		}
		switch {
		case c.MIGStrategy == "none" && g.MIG:
			return fmt.Errorf("mig_strategy is \"none\", but GPU %s on node %q is in MIG mode: the plugin would offer it as a whole GPU, of "+
				"which a container can use one MIG device; write \"mixed\"", g.ID, g.Node)
		case c.MIGStrategy == "single":
			if err := g.single(first); err != nil {
				return err
			}
		}
		if !g.MIG || c.MIGStrategy == "single" {
			offered[whole] = true
			continue
		}
		for _, p := range g.Profiles {
			offered[mig+strings.ReplaceAll(p, "+", ".")] = true
		}
	}
	for name, s := range map[string]*Sharing{"time_slicing": c.TimeSlicing, "mps": c.MPS} {
		if s == nil || len(gpus) == 0 {
			continue
		}
		for _, given := range slices.Sorted(maps.Keys(s.Replicas)) {
			if !offered[full(given)] {
				return fmt.Errorf("%s: no GPU in gpus is offered as %q, but as %s", name, given,
					strings.Join(slices.Sorted(maps.Keys(offered)), ", "))
			}
		}
	}
	return nil
}

// single finds what the plugin refuses where all GPUs of a node have to have the same MIG devices. First are those that it compares
// others with, by node.
func (g *GPU) single(first map[string]*GPU) error {
	if g.MIG && len(g.Profiles) == 0 {
		return fmt.Errorf("mig_strategy is \"single\", but GPU %s on node %q is in MIG mode without an instance, with which the plugin does "+
			"not start; write \"mixed\"", g.ID, g.Node)
	}
	other, there := first[g.Node]
	if !there {
		first[g.Node], other = g, g
	}
	if other.MIG != g.MIG {
		return fmt.Errorf("mig_strategy is \"single\", but of GPU %s and GPU %s on node %q one is in MIG mode and one is not, with which the "+
			"plugin does not start; write \"mixed\"", other.ID, g.ID, g.Node)
	}
	for _, p := range g.Profiles {
		if p != other.Profiles[0] {
			return fmt.Errorf("mig_strategy is \"single\", but node %q has MIG devices of %s and of %s, with which the plugin does not start; "+
				"write \"mixed\"", g.Node, other.Profiles[0], p)
		}
	}
	return nil
}
