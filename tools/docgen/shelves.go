package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Shelves are the subcategories of the registry's menu.
const (
	start      = "Start"
	hyperV     = "Hyper-V and Azure Local"
	linux      = "Linux"
	kvm        = "KVM"
	schedulers = "Schedulers"
	operate    = "Operate"
	reference  = "Reference"
)

// shelves are those of the pages, by folder and name without its ending. What is not here is reference.
var shelves = map[string]string{
	"guides/first-host": start, "guides/how-it-works": start, "guides/sharing": start, "guides/simulated-fleet": start,
	"guides/right-sizing": start,

	"guides/hyper-v": hyperV, "guides/two-gpu-models": hyperV, "resources/vm_assignment": hyperV, "list-resources/vm_assignment": hyperV,
	"actions/host_drain": hyperV, "actions/vm_power": hyperV,

	"guides/linux": linux, "resources/share": linux, "functions/container_unit": linux, "list-resources/share": linux,
	"actions/mps_restart": linux,

	"guides/kvm": kvm,

	"guides/kubernetes-and-slurm": schedulers, "functions/from_device_plugin_config": schedulers,
	"functions/device_plugin_config": schedulers, "functions/dra_resources": schedulers,
	"functions/from_mig_parted": schedulers, "functions/mig_parted_config": schedulers, "functions/slurm_gres": schedulers,

	"guides/adopt": operate, "guides/approval": operate, "guides/other-callers": operate, "guides/agent": operate,
	"guides/air-gap": operate, "guides/disruption": operate, "guides/hosts": operate,
	"guides/ownership": operate, "guides/pipelines": operate, "guides/testing": operate,
	"guides/upgrades": operate, "guides/who-owns-what": operate,
	"actions/apply_pending": operate, "data-sources/change_forecast": operate, "data-sources/utilization": operate,
}

// shelve writes the subcategory into each page below a folder but its index.
func shelve(docs string) error {
	return filepath.WalkDir(docs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" || filepath.Dir(path) == docs {
			return err
		}
		name, err := filepath.Rel(docs, strings.TrimSuffix(path, ".md"))
		if err != nil {
			return err
		}
		shelf, ok := shelves[filepath.ToSlash(name)]
		if !ok {
			shelf = reference
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		const none = "\nsubcategory: \"\"\n"
		if strings.Count(string(text), none) != 1 {
			return fmt.Errorf("%s: its front matter has no subcategory to fill in", path)
		}
		return os.WriteFile(path, []byte(strings.Replace(string(text), none, "\nsubcategory: \""+shelf+"\"\n", 1)), 0o644)
	})
}
