//go:build linux

package cdi

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

// specifications are those of the host.
type specifications struct {
	*cdi.Cache
	// barred are files that the reader would wait for; their directories are left out.
	barred []string
}

func (d *Directory) specifications() (*specifications, error) {
	out := &specifications{}
	var dirs []string
	for _, dir := range []string{d.path(cdi.DefaultStaticDir), d.path(cdi.DefaultDynamicDir)} {
		if barred := waits(dir); len(barred) > 0 {
			out.barred = append(out.barred, barred...)
			continue
		}
		dirs = append(dirs, dir)
	}
	var err error
	if out.Cache, err = cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false)); err != nil {
		return nil, fmt.Errorf("read the CDI specifications: %w", err)
	}
	return out, nil
}

// waits are those of a directory's specifications that are no files, such as a FIFO, which
// whoever reads it waits for.
func waits(dir string) []string {
	entries, _ := os.ReadDir(dir) // the library says why it cannot be read
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if ext := filepath.Ext(path); err == nil && (ext == ".json" || ext == ".yaml") && !info.IsDir() && !info.Mode().IsRegular() {
			out = append(out, path)
		}
	}
	return out
}

// edits are those of the host's own specification for GPUs, and how a container gets the
// driver's libraries when there are none.
func (s *specifications) edits(uuids []string) (edits specs.ContainerEdits, note string) {
	var all cdi.ContainerEdits
	var common []*cdi.Spec
	for _, uuid := range uuids {
		name := parser.QualifiedName(hostVendor, hostClass, uuid)
		found := s.GetDevice(name)
		if found == nil {
			return edits, s.missing(name)
		}
		if spec := found.GetSpec(); !slices.Contains(common, spec) {
			common = append(common, spec)
			all.Append(&cdi.ContainerEdits{ContainerEdits: &spec.ContainerEdits})
		}
		all.Append(&cdi.ContainerEdits{ContainerEdits: &found.ContainerEdits})
	}
	return distinct(*all.ContainerEdits), ""
}

func (s *specifications) missing(name string) string {
	if files := s.colliding(name); len(files) > 0 {
		return fmt.Sprintf("The host's CDI device %s is in several files of one directory, which container runtimes take for none, also "+
			"where another directory has it, so containers get the share without the driver's libraries: leave one of %s, remove the "+
			"rest, and apply again.", name, strings.Join(files, ", "))
	}
	note := fmt.Sprintf("The host has no CDI device %s, so containers get the share without the driver's libraries: "+
		"write the host's specification with \"nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml\" and apply "+
		"again, "+
		"request a device of %s/%s beside the share, or have the libraries in the image.", name, hostVendor, hostClass)
	broken := s.GetErrors()
	for _, file := range slices.Sorted(maps.Keys(broken)) {
		if s.loaded(file) { // another device collides, which hides nothing else in the file
			continue
		}
		note += fmt.Sprintf(" %s cannot be read: %s.", file, strings.ReplaceAll(errors.Join(broken[file]...).Error(), "\n", "; "))
	}
	for _, file := range s.barred {
		note += fmt.Sprintf(" %s is no file, and container runtimes may wait for it without end: remove it.", file)
	}
	return note
}

func (s *specifications) loaded(file string) bool {
	return slices.ContainsFunc(s.ListVendors(), func(vendor string) bool {
		return slices.ContainsFunc(s.GetVendorSpecs(vendor), func(spec *cdi.Spec) bool { return spec.GetPath() == file })
	})
}

// colliding are files that have a device in common with another one of their directory: then no runtime finds it, whatever other
// directories have. The library only says so in words.
func (s *specifications) colliding(device string) []string {
	vendor, class, name := parser.ParseDevice(device)
	inDirectory := map[string][]string{}
	for _, spec := range s.GetVendorSpecs(vendor) {
		if spec.GetClass() == class && spec.GetDevice(name) != nil {
			dir := filepath.Dir(spec.GetPath())
			inDirectory[dir] = append(inDirectory[dir], spec.GetPath())
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(inDirectory)) {
		if files := inDirectory[dir]; len(files) > 1 {
			return files
		}
	}
	return nil
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
