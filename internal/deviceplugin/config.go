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
	// TimeSlicing and MPS are ways of sharing, of which a node has at most one.
	TimeSlicing *Sharing
	MPS         *Sharing
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

// The strategies of the plugin.
var strategies = []string{"none", "single", "mixed"}

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

// check finds what the plugin would refuse, on some node at least.
func (c *Config) check() error {
	if c.MIGStrategy != "" && !slices.Contains(strategies, c.MIGStrategy) {
		return fmt.Errorf("the MIG strategy is %q, but %s is wanted", c.MIGStrategy, strings.Join(strategies, ", "))
	}
	if c.TimeSlicing != nil && c.MPS != nil {
		return errors.New("a device is shared by time-slicing or by MPS, but both are given")
	}
	if c.TimeSlicing != nil {
		if err := c.TimeSlicing.check(c.timeSliced); err != nil {
			return fmt.Errorf("time-slicing: %w", err)
		}
	}
	if c.MPS != nil {
		if err := c.MPS.check(served); err != nil {
			return fmt.Errorf("MPS: %w", err)
		}
		if c.MIGStrategy != "" && c.MIGStrategy != "none" {
			return fmt.Errorf("MPS: with the MIG strategy %q the plugin (v0.20.0) ends at its start on a node that has a MIG device; "+
				"write \"none\", or share by time-slicing", c.MIGStrategy)
		}
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
		return fmt.Errorf("%q are MIG devices, which the plugin does not share by MPS; use time-slicing, or whole GPUs as %q", name, whole)
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
