package vgpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const (
	opCreate = "make a vGPU"
	opRemove = "remove a vGPU"
)

// Spec names one vGPU.
type Spec struct {
	// Function is the index of the function that it is on.
	Function int `json:"function"`
	// UUID is the mediated device's; hosts with vendor-specific VFIO have no use for it.
	UUID string `json:"uuid"`
	Type int    `json:"type"`
}

// Create makes a vGPU. It succeeds when the same one is there already.
func (h *Host) Create(g *GPU, s Spec) error {
	f, ok := g.Function(s.Function)
	if !ok {
		return refuse(g.Address, opCreate, backend.NotFound, "there is no %s: %s", g.functionName(s.Function), g.whyNone())
	}
	if g.Shape != ShapeVFIO && s.UUID == "" {
		return refuse(g.Address, opCreate, backend.InvalidParameter, "a mediated device needs a UUID")
	}
	done, err := g.taken(f, s)
	if err != nil || done {
		return err
	}
	if err := g.creatable(f, s.Type); err != nil {
		return err
	}
	if g.Shape == ShapeVFIO {
		return h.setType(g, f, s.Type)
	}
	return h.createMdev(g, f, s)
}

// whyNone says why a GPU has no functions for vGPUs.
func (g *GPU) whyNone() string {
	switch g.Shape {
	case ShapeOff:
		return "its virtual functions are off"
	case ShapeNone:
		return "the driver offers no vGPUs on this GPU; is it the vGPU Manager's?"
	case ShapeVFIO, ShapeMdevVF, ShapeMdev:
	}
	return fmt.Sprintf("it has %d functions for vGPUs", len(g.Functions))
}

// taken tells whether the vGPU is there already, and refuses where another one is.
func (g *GPU) taken(f *Function, s Spec) (bool, error) {
	for i := range g.Functions {
		other := &g.Functions[i]
		for _, v := range other.VGPUs {
			mdev := g.Shape != ShapeVFIO
			switch same := other.Index == f.Index && v.Type.ID == s.Type; {
			case same && (!mdev || strings.EqualFold(v.UUID, s.UUID)):
				return true, nil
			case mdev && strings.EqualFold(v.UUID, s.UUID):
				return false, refuse(g.Address, opCreate, backend.InUse, "mediated device %s is a %s on %s already, wanted a %s on %s",
					v.UUID, v.Type.ShortName(), other.Address, g.typeByID(s.Type).ShortName(), f.Address)
			case other.Index == f.Index && f.Index != Itself:
				return false, refuse(g.Address, opCreate, backend.InUse, "virtual function %s has a %s already, wanted a %s",
					f.Address, label(v.Type, mdev, v.UUID), label(g.typeByID(s.Type), mdev, s.UUID))
			}
		}
	}
	return false, nil
}

func label(t Type, mdev bool, id string) string {
	if !mdev {
		return t.ShortName()
	}
	return t.ShortName() + " " + id
}

// creatable refuses a type that the function does not offer now.
func (g *GPU) creatable(f *Function, id int) error {
	if slices.ContainsFunc(f.Creatable, func(o Offer) bool { return o.Type.ID == id }) {
		return nil
	}
	if f.Taken {
		return refuse(g.Address, opCreate, backend.InvalidState, "%s is not bound to NVIDIA's driver, but to %s", g.functionName(f.Index),
			cmp.Or(f.Driver, "none"))
	}
	now := words.Each(f.Creatable, func(o Offer) Type { return o.Type })
	t := g.typeByID(id)
	if t.Name == "" {
		return refuse(g.Address, opCreate, backend.InvalidParameter, "the GPU has no vGPU type %d; it offers %s", id, g.offers())
	}
	return refuse(g.Address, opCreate, backend.Insufficient,
		"%s cannot be made on %s now: what other vGPUs leave takes %s", t.ShortName(), f.Address, names(now))
}

// setType writes a type to a virtual function and reads it back: after an id that the
// driver does not take, the file reads 0.
func (h *Host) setType(g *GPU, f *Function, id int) error {
	path := h.device(f.Address, "nvidia", "current_vgpu_type")
	written := h.Files.WriteFile(path, []byte(strconv.Itoa(id)+"\n"))
	current, err := h.currentType(f.Address)
	if err != nil {
		return failed(g.Address, opCreate, errors.Join(written, err), "could not read back %s", path)
	}
	if written != nil {
		return failed(g.Address, opCreate, written, "could not write %d (%s) to %s, which reads %d%s",
			id, g.typeByID(id).ShortName(), path, current, hint(g, id, written))
	}
	if current != id {
		return refuse(g.Address, opCreate, backend.Failed, "wrote %d (%s) to %s, which reads %d", id, g.typeByID(id).ShortName(), path, current)
	}
	return nil
}

// hint explains the refusals whose reason is only in the kernel's log.
func hint(g *GPU, id int, err error) string {
	switch {
	case errors.Is(err, syscall.EIO) && g.typeByID(id).MIGBacked():
		return " (is a free GPU instance of its MIG profile there? see dmesg)"
	case errors.Is(err, syscall.EIO):
		return " (see dmesg)"
	}
	return ""
}

func (h *Host) createMdev(g *GPU, f *Function, s Spec) error {
	if exists(h.mdev(s.UUID)) {
		return refuse(g.Address, opCreate, backend.InUse, "mediated device %s exists on another device: %s", s.UUID, h.mdev(s.UUID))
	}
	path := h.mdevTypes(f.Address, mdevTypeDir(s.Type), "create")
	if err := h.Files.WriteFile(path, []byte(s.UUID+"\n")); err != nil {
		return failed(g.Address, opCreate, err, "could not write %s to %s (%s)", s.UUID, path, g.typeByID(s.Type).ShortName())
	}
	device := h.mdevTypes(f.Address, mdevTypeDir(s.Type), "devices", s.UUID)
	if !exists(device) {
		return refuse(g.Address, opCreate, backend.Failed, "wrote %s to %s, but there is no %s", s.UUID, path, device)
	}
	return nil
}

func mdevTypeDir(id int) string { return "nvidia-" + strconv.Itoa(id) }

// Remove takes a vGPU away. It succeeds when there is none, and refuses when somebody
// holds it or when the place has another one by now: virtual functions are used again,
// and what is there then is somebody else's.
func (h *Host) Remove(ctx context.Context, g *GPU, s Spec) error {
	f, v := g.find(s)
	if v == nil {
		return nil
	}
	what := fmt.Sprintf("%s on %s", v.Type.ShortName(), f.Address)
	switch {
	case v.Type.ID != s.Type:
		return refuse(g.Address, opRemove, backend.InUse, "found %s, wanted to remove a %s: somebody made another one there",
			what, g.typeByID(s.Type).ShortName())
	case len(v.Holders) > 0:
		return refuse(g.Address, opRemove, backend.InUse, "%s is held by %s; shut it down first", what, holders(v.Holders))
	case g.HoldersHidden:
		return h.blind(g.Address, opRemove)
	case v.UUID == "":
		return h.clearType(g, f)
	}
	return h.removeMdev(ctx, g, f, v)
}

// find finds the vGPU of a spec: mediated devices by UUID, others by function.
func (g *GPU) find(s Spec) (*Function, *VGPU) {
	for i := range g.Functions {
		f := &g.Functions[i]
		for j := range f.VGPUs {
			v := &f.VGPUs[j]
			if v.UUID == "" && f.Index == s.Function || v.UUID != "" && strings.EqualFold(v.UUID, s.UUID) {
				return f, v
			}
		}
	}
	return nil, nil
}

func (h *Host) clearType(g *GPU, f *Function) error {
	path := h.device(f.Address, "nvidia", "current_vgpu_type")
	written := h.Files.WriteFile(path, []byte("0\n"))
	current, err := h.currentType(f.Address)
	if err != nil || written != nil {
		return failed(g.Address, opRemove, errors.Join(written, err), "could not write 0 to %s", path)
	}
	if current != 0 {
		return refuse(g.Address, opRemove, backend.Failed, "wrote 0 to %s, which reads %d", path, current)
	}
	return nil
}

func (h *Host) removeMdev(ctx context.Context, g *GPU, f *Function, v *VGPU) error {
	path := h.mdev(v.UUID, "remove")
	if err := h.Files.WriteFile(path, []byte("1\n")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return failed(g.Address, opRemove, err, "could not write 1 to %s (%s on %s)", path, v.Type.ShortName(), f.Address)
	}
	device := h.mdevTypes(f.Address, mdevTypeDir(v.Type.ID), "devices", v.UUID)
	shown, err := h.until(ctx, func() (bool, error) { return !exists(device), nil })
	if err == nil && !shown {
		err = refuse(g.Address, opRemove, backend.Timeout, "wrote 1 to %s, but %s is still there after %s", path, device, h.Patience)
	}
	return err
}
