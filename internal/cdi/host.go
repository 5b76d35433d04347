//go:build linux

package cdi

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"
)

// hostKind is what NVIDIA's container toolkit calls the GPUs of a host.
const (
	hostVendor = "nvidia.com"
	hostClass  = "gpu"
)

// cache reads the specifications of the host.
func (d *Directory) cache() (*cdi.Cache, error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(d.path(cdi.DefaultStaticDir), d.path(cdi.DefaultDynamicDir)), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read the CDI specifications: %w", err)
	}
	return cache, nil
}

// hostEdits are the edits of the host's own specification for GPUs, and how a container
// gets the driver's libraries when there are none.
func hostEdits(cache *cdi.Cache, uuids []string) (edits specs.ContainerEdits, note string) {
	var all cdi.ContainerEdits
	var common []*cdi.Spec
	for _, uuid := range uuids {
		name := parser.QualifiedName(hostVendor, hostClass, uuid)
		found := cache.GetDevice(name)
		if found == nil {
			return edits, missing(name, cache)
		}
		if spec := found.GetSpec(); !slices.Contains(common, spec) {
			common = append(common, spec)
			all.Append(&cdi.ContainerEdits{ContainerEdits: &spec.ContainerEdits})
		}
		all.Append(&cdi.ContainerEdits{ContainerEdits: &found.ContainerEdits})
	}
	return distinct(*all.ContainerEdits), ""
}

func missing(name string, cache *cdi.Cache) string {
	note := fmt.Sprintf("The host has no CDI device %s, so containers get the share without the driver's libraries: "+
		"write the host's specification with \"nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml\" and apply again, "+
		"request a device of %s/%s beside the share, or have the libraries in the image.", name, hostVendor, hostClass)
	broken := cache.GetErrors()
	for _, file := range slices.Sorted(maps.Keys(broken)) {
		note += fmt.Sprintf(" %s cannot be read: %s.", file, strings.ReplaceAll(errors.Join(broken[file]...).Error(), "\n", "; "))
	}
	return note
}

// distinct drops what several GPUs of a host have in common.
func distinct(e specs.ContainerEdits) specs.ContainerEdits {
	e.Env = unique(e.Env)
	e.DeviceNodes = unique(e.DeviceNodes)
	e.NetDevices = unique(e.NetDevices)
	e.Hooks = unique(e.Hooks)
	e.Mounts = unique(e.Mounts)
	e.AdditionalGIDs = unique(e.AdditionalGIDs)
	return e
}

func unique[T any](list []T) []T {
	var out []T
	for _, item := range list {
		if !slices.ContainsFunc(out, func(have T) bool { return reflect.DeepEqual(have, item) }) {
			out = append(out, item)
		}
	}
	return out
}
