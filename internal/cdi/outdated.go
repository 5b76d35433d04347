//go:build linux

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// Outdated is how the specification of a share differs from what Write would write now, as
// the end of "its CDI specification …": "" for not, and for one that is not there. Without
// the host's own specification only what the share adds to it is compared, so that nobody
// loses libraries which are still there.
func (d *Directory) Outdated(s *Share) (string, error) {
	_, found, err := d.read(s.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrForeign):
		return "", nil
	case err != nil:
		return "", err
	}
	spec, note, err := d.specification(s)
	if err != nil {
		return "", err
	}
	have, want := parts(found.Devices[0].ContainerEdits, note == ""), parts(spec.Devices[0].ContainerEdits, note == "")
	lacks, other, besides := []string{}, []string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch have[name] {
		case want[name]:
		case "":
			lacks = append(lacks, name)
		default:
			other = append(other, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if want[name] == "" && note == "" {
			besides = append(besides, name)
		}
	}
	var words []string
	for _, part := range []struct {
		text  string
		names []string
	}{{"lacks ", lacks}, {"has another ", other}, {"still has ", besides}} {
		if len(part.names) > 0 {
			words = append(words, part.text+first(part.names))
		}
	}
	return strings.Join(words, ", and "), nil
}

// first are the first names of a list, and how many more there are.
func first(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// parts are what edits do to a container, by what each is for people. A device node has
// its permissions from the host's specification, and is told without them when there is none.
func parts(e specs.ContainerEdits, described bool) map[string]string {
	out := map[string]string{}
	for _, v := range e.Env {
		out["variable "+variable(v)] = v
	}
	for _, n := range e.DeviceNodes {
		out["device node "+n.Path] = n.Path + n.HostPath
		if described {
			out["device node "+n.Path] = text(n)
		}
	}
	for _, m := range e.Mounts {
		out[m.HostPath] = text(m)
	}
	for _, h := range e.Hooks {
		out["hook "+strings.Join(h.Args[min(1, len(h.Args)):], " ")] = text(h)
	}
	for _, n := range e.NetDevices {
		out["network device "+n.HostInterfaceName] = text(n)
	}
	if len(e.AdditionalGIDs) > 0 {
		out["group ids"] = text(e.AdditionalGIDs)
	}
	return out
}

// text is a value as it is in a file.
func text(of any) string {
	data, err := json.Marshal(of)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// limitHook is that of the NVIDIA container toolkit which holds a container to what
// NVIDIA_GPU_MEMORY_LIMIT says, from release 1.20.1 on.
const limitHook = "apply-cuda-memory-limits"

// limitsMemory reports whether a container is held to its limits on each of a share's GPUs.
func limitsMemory(e specs.ContainerEdits) bool {
	devices := devicesOf(e)
	for _, uuid := range devices {
		if !slices.ContainsFunc(e.Hooks, func(h *specs.Hook) bool {
			args := strings.Join(h.Args, " ")
			return strings.Contains(args, limitHook) && strings.Contains(args, uuid)
		}) {
			return false
		}
	}
	return len(devices) > 0
}

func wantsLimits(e specs.ContainerEdits) bool {
	return slices.ContainsFunc(e.Env, func(v string) bool { return strings.HasPrefix(v, limitVariables) })
}

// hasCgroup2 reports whether the host has version 2 of cgroups alone, the only one with
// limits of GPU memory.
func (d *Directory) hasCgroup2() bool {
	_, err := os.Stat(d.path("/sys/fs/cgroup/cgroup.controllers"))
	return err == nil
}
