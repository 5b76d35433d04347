package fakevgpu

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
)

func (k *Kernel) mdevTypes(function string) string {
	return filepath.Join(k.Sys(), "class/mdev_bus", function, "mdev_supported_types")
}

const plain fs.FileMode = 0o644

// entry is a file with its text, a link with its target, or a directory. Its zero value
// is nothing.
type entry struct {
	kind fs.FileMode
	text string
}

// render writes sysfs as the cards are now, where it differs from what it wrote before.
func (k *Kernel) render() {
	before := k.tree
	k.tree = map[string]entry{}
	for _, c := range k.cards {
		k.entry(k.Device(c.Address), entry{kind: fs.ModeDir})
		if c.Shape != vgpu.ShapeMdev {
			k.file(k.Device(c.Address, "sriov_totalvfs"), fmt.Sprintln(c.VFs))
			k.file(k.Device(c.Address, "sriov_numvfs"), fmt.Sprintln(len(c.functions)))
		}
		for _, f := range c.functions {
			k.renderFunction(c, f)
		}
		k.file(filepath.Join(k.Proc(), "driver/nvidia/gpus", c.Address, "information"),
			fmt.Sprintf("Model: \t\t NVIDIA\nDevice Minor: \t %d\n", c.Minor))
	}
	// Backwards, what is in a directory goes before it.
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(before))) {
		if k.tree[path] != before[path] {
			k.must(os.RemoveAll(path))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(k.tree)) {
		if k.tree[path] != before[path] {
			k.put(path, k.tree[path])
		}
	}
}

func (k *Kernel) put(path string, e entry) {
	switch e.kind {
	case fs.ModeDir:
		k.must(os.MkdirAll(path, 0o755))
	case fs.ModeSymlink:
		k.must(os.Symlink(e.text, path))
	case plain:
		k.must(os.Link(k.written(e.text), path))
	}
}

// written is a file with a text. Those that read the same are one file by many names: a host
// has thousands, and most are made and removed again and again.
func (k *Kernel) written(text string) string {
	file, ok := k.texts[text]
	if !ok {
		file = filepath.Join(k.pool, strconv.Itoa(len(k.texts)))
		k.must(os.WriteFile(file, []byte(text), plain))
		k.texts[text] = file
	}
	return file
}

func (k *Kernel) renderFunction(c *card, f *function) {
	if f.index != vgpu.Itself {
		k.link("../"+f.address, k.Device(c.Address, fmt.Sprintf("virtfn%d", f.index)))
		k.link("../"+c.Address, k.Device(f.address, "physfn"))
		k.group(k.Device(f.address), f.address)
	}
	if f.driver != "" {
		if f.driver != "-" {
			k.link("../../../bus/pci/drivers/"+f.driver, k.Device(f.address, "driver"))
		}
		return
	}
	if c.Shape == vgpu.ShapeVFIO {
		k.renderVFIO(c, f)
		return
	}
	for _, t := range c.Types {
		dir := filepath.Join(k.mdevTypes(f.address), fmt.Sprintf("nvidia-%d", t.ID))
		available := 0
		for _, o := range c.creatable(f) {
			if o.ID == t.ID {
				available = 1
			}
		}
		k.file(filepath.Join(dir, "name"), t.Name+"\n")
		k.file(filepath.Join(dir, "description"),
			fmt.Sprintf("num_heads=4, frl_config=60, framebuffer=%dM, max_resolution=7680x4320, max_instance=%d\n", t.FrameBuffer.MiB(), t.Max))
		k.file(filepath.Join(dir, "available_instances"), fmt.Sprintln(available))
		k.file(filepath.Join(dir, "create"), "")
		for _, v := range f.vgpus {
			if v.typ.ID != t.ID {
				continue
			}
			device := filepath.Join(k.Sys(), "bus/mdev/devices", v.uuid)
			k.file(filepath.Join(device, "remove"), "")
			k.group(device, v.uuid)
			k.link(device, filepath.Join(dir, "devices", v.uuid))
		}
	}
}

func (k *Kernel) renderVFIO(c *card, f *function) {
	var types strings.Builder
	if !c.NameFirst {
		types.WriteString("ID    : vGPU Name\n")
	}
	for _, t := range c.creatable(f) {
		if c.NameFirst {
			fmt.Fprintf(&types, "%s %d\n", t.Name, t.ID)
		} else {
			fmt.Fprintf(&types, "%-5d : %s\n", t.ID, t.Name)
		}
	}
	current, placement, instance := 0, "", ""
	if len(f.vgpus) > 0 {
		if in := f.vgpus[0].in; in != nil {
			instance = fmt.Sprintln(in.ID)
		}
		current, placement = f.vgpus[0].typ.ID, fmt.Sprintln(f.index*2)
	}
	k.file(k.Device(f.address, "nvidia", "creatable_vgpu_types"), types.String())
	k.file(k.Device(f.address, "nvidia", "current_vgpu_type"), fmt.Sprintln(current))
	k.file(k.Device(f.address, "nvidia", "placement_id"), placement)
	k.file(k.Device(f.address, "nvidia", "gpu_instance_id"), instance)
}

// group gives a device an IOMMU group, named after it.
func (k *Kernel) group(device, name string) {
	k.link("../../../kernel/iommu_groups/"+Group(name), filepath.Join(device, "iommu_group"))
	k.entry(filepath.Join(device, "vfio-dev", "vfio"+Group(name)), entry{kind: fs.ModeDir})
}

// Group is the number of a device's IOMMU group.
func Group(device string) string {
	n := 0
	for _, r := range device {
		n = (n*31 + int(r)) % 100003
	}
	return fmt.Sprint(n)
}

func (k *Kernel) file(path, text string) { k.entry(path, entry{kind: plain, text: text}) }

func (k *Kernel) link(to, path string) { k.entry(path, entry{kind: fs.ModeSymlink, text: to}) }

func (k *Kernel) entry(path string, e entry) {
	k.tree[path] = e
	for dir := filepath.Dir(path); dir != k.root && k.tree[dir].kind == 0; dir = filepath.Dir(dir) {
		k.tree[dir] = entry{kind: fs.ModeDir}
	}
}
