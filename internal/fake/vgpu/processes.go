package fakevgpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Hold lets a process have a device node open, such as "/dev/vfio/12".
func (k *Kernel) Hold(pid int, node string, command ...string) {
	dir := filepath.Join(k.Proc(), strconv.Itoa(pid))
	k.must(os.MkdirAll(filepath.Join(dir, "fd"), 0o755))
	k.must(os.Symlink(node, filepath.Join(dir, "fd", strconv.Itoa(k.descriptors(dir)+3))))
	k.must(os.WriteFile(filepath.Join(dir, "comm"), []byte(filepath.Base(command[0])+"\n"), 0o644))
	k.must(os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(command, "\x00")+"\x00"), 0o644))
}

// HoldVM lets QEMU run a virtual machine, as libvirt starts it, with a function or
// mediated device.
func (k *Kernel) HoldVM(pid int, device, name string) {
	k.Hold(pid, "/dev/vfio/"+Group(device), "/usr/bin/qemu-system-x86_64",
		"-name", "guest="+strings.ReplaceAll(name, ",", ",,")+",debug-threads=on", "-S")
}

// End ends a process.
func (k *Kernel) End(pid int) { k.must(os.RemoveAll(filepath.Join(k.Proc(), strconv.Itoa(pid)))) }

func (k *Kernel) descriptors(dir string) int {
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return 0
	}
	return len(entries)
}

// tear notes a vGPU that goes while a process has it open: of a function, or of a
// mediated device where one is given.
func (k *Kernel) tear(f *function, uuid string) {
	devices := []string{f.address}
	for _, v := range f.vgpus {
		if v.uuid != "" && (uuid == "" || v.uuid == uuid) {
			devices = append(devices, v.uuid)
		}
	}
	links, err := filepath.Glob(filepath.Join(k.Proc(), "*/fd/*"))
	k.must(err)
	for _, link := range links {
		to, err := os.Readlink(link)
		k.must(err)
		for _, d := range devices {
			if to == "/dev/vfio/"+Group(d) || to == "/dev/vfio/devices/vfio"+Group(d) {
				k.log("torn %s", d)
			}
		}
	}
}
