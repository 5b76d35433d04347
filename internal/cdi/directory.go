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
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Directory is the place of a host's generated CDI specifications. Specifications that
// are not ours are read, but never written or removed.
type Directory struct {
	// Root is where the host's files are seen, "" for the host itself.
	Root string
}

// Write writes the specification of a share, or brings it up to date. Containers see it
// whole or not at all. One that is there already, to the letter, stays.
func (d *Directory) Write(s *Share) error {
	if err := s.Validate(); err != nil {
		return err
	}
	spec, _, err := d.specification(s)
	if err != nil {
		return fmt.Errorf("share %q: %w", s.Name, err)
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("share %q: write its CDI specification: %w", s.Name, err)
	}
	data = append(data, '\n')
	old, _, err := d.read(s.Name)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && bytes.Equal(old, data):
		return nil
	}
	if err := replace(d.file(s.Name), data); err != nil {
		return fmt.Errorf("share %q: write its CDI specification %s: %w", s.Name, d.file(s.Name), err)
	}
	return nil
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

// List finds our specifications, by name of the share, and the names in whose place somebody else
// has written a file. One that nobody declares any more is for its reader to remove.
func (d *Directory) List() (out []gpu.HandedShare, foreign []string, err error) {
	entries, err := os.ReadDir(d.path(cdi.DefaultDynamicDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list the CDI specifications: %w", err)
	}
	var host *specifications // read when there is a share to compare with
	for _, entry := range entries {
		name, ours := nameOf(entry.Name())
		if !ours {
			continue
		}
		found := gpu.HandedShare{Name: name, CDIDevice: gpu.CDIDevice(name)}
		_, spec, err := d.read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, ErrForeign):
			foreign = append(foreign, name)
			continue
		case err != nil: // the others can be told all the same
			found.Note = "Its CDI specification cannot be read: " + err.Error() + "."
			out = append(out, found)
			continue
		}
		if host == nil {
			if host, err = d.specifications(); err != nil {
				return nil, nil, err
			}
		}
		have := spec.Devices[0].ContainerEdits
		found.Environment = environment(have)
		_, found.Note = host.edits(devicesOf(have))
		if files := host.colliding(found.CDIDevice); len(files) > 0 {
			found.Note = fmt.Sprintf("Its CDI device is in several files of one directory, which container runtimes take for none: remove %s.",
				strings.Join(slices.DeleteFunc(files, func(file string) bool { return file == d.file(name) }), ", "))
		}
		found.LimitsContainers = limitsMemory(have) && wantsLimits(have) && d.hasCgroup2()
		out = append(out, found)
	}
	slices.Sort(foreign)
	slices.SortFunc(out, func(a, b gpu.HandedShare) int { return strings.Compare(a.Name, b.Name) })
	return out, foreign, nil
}

// specification is written for the oldest version of CDI that has all it needs. The note says
// what to do when the driver's libraries are not in it, in a sentence or two; else "".
func (d *Directory) specification(s *Share) (spec *specs.Spec, note string, err error) {
	if !d.hasCgroup2() {
		unlimited := *s
		unlimited.MemoryRequest, unlimited.MemoryLimit = 0, 0
		s = &unlimited
	}
	nodes, err := d.nodes(s)
	if err != nil {
		return nil, "", err
	}
	host, err := d.specifications()
	if err != nil {
		return nil, "", err
	}
	common, note := host.edits(s.uuids())
	spec = &specs.Spec{
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
