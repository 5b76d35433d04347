package vgpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const opRead = "read the vGPUs"

// Read reads the GPU at a PCI address.
func (h *Host) Read(ctx context.Context, address string) (GPU, error) {
	g, err := h.readFunctions(address)
	if err != nil {
		return GPU{}, err
	}
	if err := h.readFacts(ctx, &g); err != nil {
		return GPU{}, err
	}
	if err := h.readHolders(ctx, &g); err != nil {
		return GPU{}, failed(g.Address, opRead, err, "could not find out who holds them")
	}
	return g, nil
}

// readFunctions reads all that sysfs has.
func (h *Host) readFunctions(address string) (GPU, error) {
	bdf, err := Address(address)
	if err != nil {
		return GPU{}, refuse(address, opRead, backend.InvalidParameter, "%v", err)
	}
	g := GPU{Address: bdf}
	if _, err := os.Stat(h.device(bdf)); err != nil {
		return GPU{}, failed(bdf, opRead, err, "the host has no such PCI device")
	}
	if physical, err := os.Readlink(h.device(bdf, "physfn")); err == nil {
		return GPU{}, refuse(bdf, opRead, backend.InvalidParameter,
			"it is a virtual function of %s; name the GPU itself", filepath.Base(physical))
	}
	if g.SRIOV, err = h.readSRIOV(bdf); err != nil {
		return GPU{}, failed(bdf, opRead, err, "could not read its SR-IOV capability")
	}
	if err := h.readShape(&g); err != nil {
		return GPU{}, failed(bdf, opRead, err, "could not read its functions")
	}
	return g, nil
}

func (h *Host) readSRIOV(address string) (*SRIOV, error) {
	total, err := h.readNumber(h.device(address, "sriov_totalvfs"))
	if err != nil || total == nil || *total == 0 {
		return nil, err
	}
	enabled, err := h.readNumber(h.device(address, "sriov_numvfs"))
	if err != nil || enabled == nil {
		return nil, err
	}
	return &SRIOV{Total: *total, Enabled: *enabled}, nil
}

// readShape finds out how the host makes vGPUs of the GPU, and what there is.
func (h *Host) readShape(g *GPU) error {
	functions, err := h.virtualFunctions(g.Address)
	if err != nil {
		return err
	}
	switch {
	case len(functions) > 0:
		g.Functions = functions
		for i := range functions {
			shape, err := h.readVF(&functions[i])
			if err != nil {
				return err
			}
			g.Shape = cmp.Or(g.Shape, shape)
		}
	case g.SRIOV != nil && g.SRIOV.Enabled == 0:
		g.Shape = ShapeOff
	case exists(h.mdevTypes(g.Address)):
		g.Shape = ShapeMdev
		itself := Function{Index: Itself, Address: g.Address}
		if err := h.readMdevs(&itself); err != nil {
			return err
		}
		g.Functions = []Function{itself}
	}
	return nil
}

// virtualFunctions are the links virtfn0, virtfn1 and so on, in the kernel's order.
func (h *Host) virtualFunctions(address string) ([]Function, error) {
	links, err := filepath.Glob(h.device(address, "virtfn[0-9]*"))
	if err != nil {
		return nil, err
	}
	var all []Function
	for _, link := range links {
		index, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(link), "virtfn"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", link, err)
		}
		to, err := os.Readlink(link)
		if err != nil {
			return nil, err
		}
		all = append(all, Function{Index: index, Address: filepath.Base(to)})
	}
	slices.SortFunc(all, func(a, b Function) int { return cmp.Compare(a.Index, b.Index) })
	return all, nil
}

func (h *Host) readVF(f *Function) (Shape, error) {
	if exists(h.device(f.Address, "nvidia", "creatable_vgpu_types")) {
		return ShapeVFIO, h.readVFIO(f)
	}
	if exists(h.mdevTypes(f.Address)) {
		return ShapeMdevVF, h.readMdevs(f)
	}
	if driver, err := os.Readlink(h.device(f.Address, "driver")); err == nil {
		f.Driver = filepath.Base(driver)
	}
	f.Taken = f.Driver != "nvidia" // whose functions may not show their vGPUs yet
	return ShapeNone, nil
}

// readVFIO reads a virtual function with vendor-specific VFIO.
func (h *Host) readVFIO(f *Function) error {
	path := h.device(f.Address, "nvidia", "creatable_vgpu_types")
	text, err := h.Files.ReadFile(path)
	if err != nil {
		return err
	}
	types, err := parseCreatable(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range types {
		f.Creatable = append(f.Creatable, Offer{Type: t, Available: 1})
	}
	current, err := h.currentType(f.Address)
	if err != nil || current == 0 {
		return err
	}
	v := VGPU{Type: Type{ID: current}}
	if v.Placement, err = h.readNumber(h.device(f.Address, "nvidia", "placement_id")); err != nil {
		return err
	}
	if v.Instance, err = h.readNumber(h.device(f.Address, "nvidia", "gpu_instance_id")); err != nil {
		return err
	}
	f.VGPUs = []VGPU{v}
	return nil
}

func (h *Host) currentType(function string) (int, error) {
	path := h.device(function, "nvidia", "current_vgpu_type")
	n, err := h.readNumber(path)
	if err != nil {
		return 0, err
	}
	if n == nil {
		return 0, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return *n, nil
}

// readMdevs reads a function with mediated devices.
func (h *Host) readMdevs(f *Function) error {
	dirs, err := os.ReadDir(h.mdevTypes(f.Address))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		t, err := h.readMdevType(f.Address, dir.Name())
		if err != nil {
			return err
		}
		available, err := h.readNumber(h.mdevTypes(f.Address, dir.Name(), "available_instances"))
		if err != nil {
			return err
		}
		if available != nil && *available > 0 {
			f.Creatable = append(f.Creatable, Offer{Type: t, Available: *available})
		}
		devices, err := os.ReadDir(h.mdevTypes(f.Address, dir.Name(), "devices"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, d := range devices {
			f.VGPUs = append(f.VGPUs, VGPU{UUID: d.Name(), Type: t})
		}
	}
	slices.SortFunc(f.Creatable, func(a, b Offer) int { return cmp.Compare(a.Type.ID, b.Type.ID) })
	slices.SortFunc(f.VGPUs, func(a, b VGPU) int { return cmp.Compare(a.UUID, b.UUID) })
	return nil
}

func (h *Host) readMdevType(function, dir string) (Type, error) {
	id, err := mdevTypeID(dir)
	if err != nil {
		return Type{}, fmt.Errorf("%s: %w", h.mdevTypes(function), err)
	}
	name, err := h.Files.ReadFile(h.mdevTypes(function, dir, "name"))
	if err != nil {
		return Type{}, err
	}
	description, err := h.Files.ReadFile(h.mdevTypes(function, dir, "description"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Type{}, err
	}
	return parseDescription(Type{ID: id, Name: strings.TrimSpace(string(name))}, string(description)), nil
}

// readFacts asks NVML, and gives every id its type by the list that does not change.
func (h *Host) readFacts(ctx context.Context, g *GPU) error {
	if h.NVML != nil {
		facts, err := h.NVML.VGPU(ctx, g.Address)
		if err != nil {
			return failed(g.Address, opRead, err, "NVML does not tell its vGPU types")
		}
		g.Facts = facts
		g.Types = words.Each(facts.Types, Type.complete)
	}
	for _, f := range g.Functions {
		for _, o := range f.Creatable {
			g.learn(o.Type)
		}
		for _, v := range f.VGPUs {
			if v.Type.Name != "" {
				g.learn(v.Type)
			}
		}
	}
	slices.SortFunc(g.Types, func(a, b Type) int { return cmp.Compare(a.ID, b.ID) })
	for i := range g.Functions {
		f := &g.Functions[i]
		for j := range f.Creatable {
			f.Creatable[j].Type = g.typeByID(f.Creatable[j].Type.ID)
		}
		for j := range f.VGPUs {
			f.VGPUs[j].Type = g.typeByID(f.VGPUs[j].Type.ID)
		}
	}
	return nil
}

// learn adds a type that only sysfs shows.
func (g *GPU) learn(t Type) {
	if !slices.ContainsFunc(g.Types, func(known Type) bool { return known.ID == t.ID }) {
		g.Types = append(g.Types, t)
	}
}

// readNumber reads a file with one number. It is nil where there is no file, or where the
// driver answers that there is no vGPU to tell it of.
func (h *Host) readNumber(path string) (*int, error) {
	text, err := h.Files.ReadFile(path)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s holds %q, not a number", path, text)
	}
	return &n, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
