//go:build linux

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// migMinors lists the capability devices of MIG, a line for each: "gpu0/gi3/access 30".
const migMinors = "/proc/driver/nvidia-caps/mig-minors"

// nodes are the device nodes that a share needs. They are looked for now: a container
// runtime only says that a file is missing when the container starts.
func (d *Directory) nodes(s *Share) ([]*specs.DeviceNode, error) {
	var out []*specs.DeviceNode
	add := func(of, path string) error {
		if _, err := os.Stat(d.path(path)); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: there is no device node %s; load the driver and make its nodes with \"nvidia-modprobe -u -c=0\" or "+
					"\"nvidia-smi\"", of, path)
			}
			return fmt.Errorf("%s: %w", of, err)
		}
		node := &specs.DeviceNode{Path: path}
		if host := d.path(path); host != path {
			node.HostPath = host
		}
		out = append(out, node)
		return nil
	}
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		if err := add("the driver", path); err != nil {
			return nil, err
		}
	}
	// Only debuggers and profilers need it, and some hosts lack it.
	if _, err := os.Stat(d.path("/dev/nvidia-uvm-tools")); err == nil {
		if err := add("the driver", "/dev/nvidia-uvm-tools"); err != nil {
			return nil, err
		}
	}
	for i := range s.Devices {
		device := &s.Devices[i]
		if err := add("GPU "+device.UUID, "/dev/nvidia"+strconv.Itoa(device.Minor)); err != nil {
			return nil, err
		}
		capabilities, err := d.capabilities(device)
		if err != nil {
			return nil, fmt.Errorf("GPU %s: %w", device.UUID, err)
		}
		for _, minor := range capabilities {
			if err := add("GPU "+device.UUID, "/dev/nvidia-caps/nvidia-cap"+strconv.Itoa(minor)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// capabilities are the minors of a MIG device's capability devices: that of its GPU
// instance and that of its compute instance.
func (d *Directory) capabilities(device *Device) ([]int, error) {
	if device.Instance == nil {
		return nil, nil
	}
	found, err := ReadCapabilities(d.Root)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range []string{
		InstanceCapability(device.Minor, device.Instance.GPU),
		ComputeCapability(device.Minor, device.Instance.GPU, device.Instance.Compute),
	} {
		minor, ok := found[name]
		if !ok {
			return nil, fmt.Errorf("%s has no line %q: the driver knows no such MIG instance", migMinors, name)
		}
		out = append(out, minor)
	}
	return out, nil
}

// ReadCapabilities reads the minors of the capability devices of MIG by the driver's names for them, on the host that lies
// below a directory.
func ReadCapabilities(root string) (map[string]int, error) {
	minors, err := os.ReadFile(filepath.Join("/", root, migMinors))
	if err != nil {
		return nil, fmt.Errorf("look up the capability devices of MIG: %w", err)
	}
	found := map[string]int{}
	for line := range strings.Lines(string(minors)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if minor, err := strconv.Atoi(number); err == nil {
			found[name] = minor
		}
	}
	return found, nil
}

// InstanceCapability is the driver's name for what opens a GPU instance, by the minor of its GPU and its own id.
func InstanceCapability(minor, instance int) string {
	return fmt.Sprintf("gpu%d/gi%d/access", minor, instance)
}

// ComputeCapability is the same for a compute instance of it.
func ComputeCapability(minor, instance, compute int) string {
	return fmt.Sprintf("gpu%d/gi%d/ci%d/access", minor, instance, compute)
}

// path is where a path of the host is seen from here.
func (d *Directory) path(of string) string { return filepath.Join("/", d.Root, of) }
