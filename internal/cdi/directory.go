//go:build linux

package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
)

// Directory is the place of a host's generated CDI specifications. Specifications that
// are not ours are read, but never written or removed.
type Directory struct {
	// Root is where the host's files are seen, "" for the host itself.
	Root string
}

// Written is a share's specification after it was written.
type Written struct {
	// Device is what a container asks for.
	Device string
	File   string
	// Changed is false if the specification was there already, to the letter.
	Changed bool
	// Note says what to do when the driver's libraries are not in it, in a sentence or two;
	// else "".
	Note string
}

// Found is a specification of ours.
type Found struct {
	Name   string
	Device string
	File   string
	// Environment is what a process of the host needs, as [Environment] tells it.
	Environment map[string]string
	// LimitsContainers reports whether it has the hook that holds a container to its limit of
	// memory on each of its GPUs, on a host where the hook works.
	LimitsContainers bool
	// Note is as that of [Written], or says why it cannot be read.
	Note string
	// Foreign is true of a file that somebody else wrote in the place of a share's.
	Foreign bool
}

// Write writes the specification of a share, or brings it up to date. Containers see it
// whole or not at all.
func (d *Directory) Write(s *Share) (Written, error) {
	if err := s.Validate(); err != nil {
		return Written{}, err
	}
	out := Written{Device: QualifiedName(s.Name), File: d.file(s.Name)}
	spec, note, err := d.specification(s)
	if err != nil {
		return Written{}, fmt.Errorf("share %q: %w", s.Name, err)
	}
	out.Note = note
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return Written{}, fmt.Errorf("share %q: write its CDI specification: %w", s.Name, err)
	}
	data = append(data, '\n')
	old, _, err := d.read(s.Name)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Written{}, err
	case err == nil && bytes.Equal(old, data):
		return out, nil
	}
	if err := replace(out.File, data); err != nil {
		return Written{}, fmt.Errorf("share %q: write its CDI specification %s: %w", s.Name, out.File, err)
	}
	out.Changed = true
	return out, nil
}

// Remove removes the specification of a share, if there is one.
func (d *Directory) Remove(name string) error {
	if err := ValidateName(name); err != nil {
		return err
	}
	if _, _, err := d.read(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("share %q: remove its CDI specification: %w", name, err)
	}
	return nil
}

// List finds our specifications, by name of the share. One that nobody declares any more
// is for its reader to remove.
func (d *Directory) List() ([]Found, error) {
	entries, err := os.ReadDir(d.path(cdi.DefaultDynamicDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the CDI specifications: %w", err)
	}
	var out []Found
	var host *specifications // read when there is a share to compare with
	for _, entry := range entries {
		name, ours := nameOf(entry.Name())
		if !ours {
			continue
		}
		_, spec, err := d.read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, ErrForeign):
			out = append(out, Found{Name: name, File: d.file(name), Foreign: true})
			continue
		case err != nil: // the others can be told all the same
			out = append(out, Found{Name: name, Device: QualifiedName(name), File: d.file(name), Note: "Its CDI specification cannot be read: " + err.Error() + "."})
			continue
		}
		if host == nil {
			if host, err = d.specifications(); err != nil {
				return nil, err
			}
		}
		have := spec.Devices[0].ContainerEdits
		found := Found{Name: name, Device: QualifiedName(name), File: d.file(name), Environment: environment(have)}
		_, found.Note = host.edits(devicesOf(have))
		if limitsMemory(have) {
			if found.LimitsContainers = d.hasCgroup2(); !found.LimitsContainers && found.Note == "" && wantsLimits(have) {
				found.Note = "The host has no cgroup v2, without which the hook of the NVIDIA container toolkit that limits memory fails, and containers of the share do not start."
			}
		}
		out = append(out, found)
	}
	slices.SortFunc(out, func(a, b Found) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// specification is written for the oldest version of CDI that has all it needs.
func (d *Directory) specification(s *Share) (*specs.Spec, string, error) {
	nodes, err := d.nodes(s)
	if err != nil {
		return nil, "", err
	}
	host, err := d.specifications()
	if err != nil {
		return nil, "", err
	}
	common, note := host.edits(s.uuids())
	spec := &specs.Spec{
		Kind:    Vendor + "/" + Class,
		Devices: []specs.Device{{Name: s.Name, ContainerEdits: merge(common, s.edits(nodes))}},
	}
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return nil, "", fmt.Errorf("choose a version of CDI: %w", err)
	}
	return spec, note, nil
}

// replace has the library read the file, as a runtime will, before it takes its place.
func replace(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pending, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pending.Cleanup()) }()
	if _, err := pending.Write(data); err != nil {
		return err
	}
	if _, err := cdi.ReadSpec(pending.Name(), 0); err != nil {
		return err
	}
	return pending.CloseAtomicallyReplace()
}

// ErrForeign is a file in the place of a share's specification.
var ErrForeign = errors.New("was not written by this provider, and stays as it is")

// read is the specification of a share, if it is ours.
func (d *Directory) read(name string) ([]byte, *specs.Spec, error) {
	foreign := fmt.Errorf("share %q: %s %w; move it away, or give the share another name", name, d.file(name), ErrForeign)
	data, err := document.ReadFile(d.file(name))
	switch {
	case errors.Is(err, document.ErrNotRegular):
		return nil, nil, foreign
	case err != nil:
		return nil, nil, fmt.Errorf("share %q: %w", name, err)
	}
	spec, err := cdi.ParseSpec(data)
	if err != nil || spec == nil || !ours(spec, name) {
		return nil, nil, foreign
	}
	return data, spec, nil
}

func ours(spec *specs.Spec, name string) bool {
	return spec.Kind == Vendor+"/"+Class && len(spec.Devices) == 1 && spec.Devices[0].Name == name &&
		slices.Contains(spec.Devices[0].ContainerEdits.Env, ShareVariable+"="+name)
}

const extension = ".json"

func (d *Directory) file(name string) string {
	return filepath.Join(d.path(cdi.DefaultDynamicDir), cdi.GenerateTransientSpecName(Vendor, Class, name)+extension)
}

// nameOf is the share whose specification has a file's name.
func nameOf(file string) (string, bool) {
	name, ours := strings.CutPrefix(file, cdi.GenerateTransientSpecName(Vendor, Class, ""))
	if !ours || filepath.Ext(name) != extension {
		return "", false
	}
	name = strings.TrimSuffix(name, extension)
	return name, parser.ValidateDeviceName(name) == nil
}
