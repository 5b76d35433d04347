package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// controllersName is the file in the state directory in which people declare software that we do not know. It
// is a file, and no flag, so that it counts however the agent is started.
const controllersName = "controllers.json"

// does says what a controller does, for people.
var does = map[gpu.ControllerRole]string{
	gpu.LayoutController:   "changes layouts by itself",
	gpu.ConsumerController: "uses GPUs, or hands them out",
	gpu.BrokerController:   "starts, stops or moves VMs",
}

// declaredControllers reads which processes, units or services people declared to manage or use GPUs here, and
// as what.
func declaredControllers(stateDir string) (map[string]gpu.ControllerRole, error) {
	path := filepath.Join(stateDir, controllersName)
	text, err := document.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var declared map[string]gpu.ControllerRole
	if err == nil {
		err = document.Read(text, &declared)
	}
	if err != nil {
		return nil, fmt.Errorf(`%s declares controllers and cannot be read: %w; write names and roles, such as {"acme-gpud": "layout"}`,
			path, err)
	}
	for name, role := range declared {
		if does[role] == "" {
			return nil, fmt.Errorf("%s declares %q as %q; write %q if it %s, %q if it %s, %q if it %s", path, name, role,
				gpu.LayoutController, does[gpu.LayoutController], gpu.ConsumerController, does[gpu.ConsumerController],
				gpu.BrokerController, does[gpu.BrokerController])
		}
		if name == "" || strings.ContainsAny(name, `/\`) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, fmt.Errorf("%s declares %q, which is no name; write that of a process, a unit or a service, without a path", path, name)
		}
	}
	return declared, nil
}
