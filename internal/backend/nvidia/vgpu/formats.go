package vgpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var (
	idFirst   = regexp.MustCompile(`^(\d+)\s*:\s*(\S.*)$`)
	nameFirst = regexp.MustCompile(`^(\S.*?)\s+(\d+)$`)
	header    = regexp.MustCompile(`(?i)^(ID\b|v?GPU (type|name))`)
)

// parseCreatable reads creatable_vgpu_types. Drivers write a header and lines like
// "1148  : NVIDIA L40S-2Q"; NVIDIA's user guide shows "NVIDIA A40-1Q 557".
func parseCreatable(text string) ([]Type, error) {
	var types []Type
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		id, name := "", ""
		if m := idFirst.FindStringSubmatch(line); m != nil {
			id, name = m[1], m[2]
		} else if m := nameFirst.FindStringSubmatch(line); m != nil {
			name, id = strings.TrimSpace(strings.TrimSuffix(m[1], ":")), m[2]
		} else if line == "" || header.MatchString(line) {
			continue
		}
		n, err := strconv.Atoi(id)
		if err != nil || n <= 0 || name == "" {
			return nil, fmt.Errorf("the line %q is not a vGPU type's id and name", line)
		}
		types = append(types, Type{ID: n, Name: name}.complete())
	}
	return types, nil
}

// parseDescription fills a type from a mediated device type's description, such as
// "num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=7680x4320, max_instance=24".
func parseDescription(t Type, text string) Type {
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch key {
		case "framebuffer":
			if mib, err := strconv.ParseInt(strings.TrimSuffix(value, "M"), 10, 64); err == nil && mib > 0 {
				t.FrameBuffer = gpu.FromMiB(mib)
			}
		case "max_instance":
			if n, err := strconv.Atoi(value); err == nil {
				t.Max = n
			}
		}
	}
	return t.complete()
}

// mdevTypeID is the number in a mediated device type's directory, "nvidia-557".
func mdevTypeID(dir string) (int, error) {
	number, ok := strings.CutPrefix(dir, "nvidia-")
	id, err := strconv.Atoi(number)
	if !ok || err != nil || id <= 0 {
		return 0, fmt.Errorf("%q is not an NVIDIA mediated device type", dir)
	}
	return id, nil
}
