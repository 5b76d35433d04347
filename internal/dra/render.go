// Package dra writes what pods of a Kubernetes cluster ask for GPUs by, where NVIDIA's driver for
// dynamic resource allocation gives them out: a DeviceClass for each sort of device that some GPUs
// have, and a ResourceClaimTemplate that asks for one of it. The API is resource.k8s.io/v1.
//
// A device is selected by what the driver publishes of it and what outlives a layout that is made
// again: UUIDs of MIG devices do not, those of their GPUs and their profiles do.
package dra

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// GPU is a GPU of a node.
type GPU struct {
	Host, UUID string
	// Layout is as partition configs tell it: "mig:1g.10gb@0+3g.40gb@4", "mig:off".
	Layout string
	// Profiles are those of its MIG instances, each once or several times.
	Profiles []string
}

// Request is what is written.
type Request struct {
	Name string // what names begin with
	// Namespace is that of the templates; "" for the one that the objects are applied to.
	Namespace string
	GPUs      []GPU
}

const (
	apiVersion = "resource.k8s.io/v1"
	driver     = "gpu.nvidia.com"
	// maxSelector is how long Kubernetes lets an expression be.
	maxSelector = 10 * 1024
	maxName     = 40
	// maxLabel is that of a namespace.
	maxLabel = 63
)

// plain makes a profile a part of a name: "1g.24gb+me" has media engines, "1g.24gb-me" has none.
var plain = strings.NewReplacer("-", "-no-", "+", "-")

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

type object struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       any      `yaml:"spec"`
}

type metadata struct {
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace,omitempty"`
}

type classSpec struct {
	Selectors []selector `yaml:"selectors"`
}

type selector struct {
	CEL struct {
		Expression string `yaml:"expression"`
	} `yaml:"cel"`
}

type templateSpec struct {
	Spec struct {
		Devices struct {
			Requests []request `yaml:"requests"`
		} `yaml:"devices"`
	} `yaml:"spec"`
}

type request struct {
	Name    string `yaml:"name"`
	Exactly struct {
		DeviceClassName string `yaml:"deviceClassName"`
	} `yaml:"exactly"`
}

// Render writes the objects as YAML documents, classes before templates, each sorted by name.
func Render(r *Request) (string, error) {
	if !label.MatchString(r.Name) || len(r.Name) > maxName {
		return "", fmt.Errorf("name: %q is not a name of lower-case letters, digits and dashes with at most %d characters", r.Name, maxName)
	}
	if r.Namespace != "" && (!label.MatchString(r.Namespace) || len(r.Namespace) > maxLabel) {
		return "", fmt.Errorf("namespace: %q is not the name of a namespace", r.Namespace)
	}
	sorts, err := sorts(r.GPUs)
	if err != nil {
		return "", err
	}
	var classes, templates []object
	for _, sort := range slices.Sorted(maps.Keys(sorts)) {
		name := r.Name + "-" + plain.Replace(sort)
		var s selector
		if s.CEL.Expression = expression(sort, sorts[sort]); len(s.CEL.Expression) > maxSelector {
			return "", fmt.Errorf("gpus: the selector of %s names %d GPUs and has %d characters, but Kubernetes takes at most %d; write the "+
				"devices of fewer GPUs at a time",
				name, len(sorts[sort]), len(s.CEL.Expression), maxSelector)
		}
		classes = append(classes, object{apiVersion, "DeviceClass", metadata{Name: name}, classSpec{[]selector{s}}})
		var t templateSpec
		t.Spec.Devices.Requests = []request{{Name: "gpu"}}
		t.Spec.Devices.Requests[0].Exactly.DeviceClassName = name
		templates = append(templates, object{apiVersion, "ResourceClaimTemplate", metadata{name, r.Namespace}, t})
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	for _, o := range slices.Concat(classes, templates) {
		if err := encoder.Encode(o); err != nil {
			return "", fmt.Errorf("write %s %s: %w", o.Kind, o.Metadata.Name, err)
		}
	}
	return text.String(), nil
}

// whole is the sort of device that a GPU without MIG mode is; the others are MIG profiles.
const whole = "gpu"

// sorts are the UUIDs of the GPUs that have a sort of device.
func sorts(gpus []GPU) (map[string][]string, error) {
	out := map[string][]string{}
	for _, g := range gpus {
		has := g.Profiles
		switch kind, layout, _ := strings.Cut(g.Layout, ":"); {
		case kind != "mig":
			return nil, fmt.Errorf("gpus: GPU %s on host %q has the layout %q, by which its host shares it; the driver for dynamic resource "+
				"allocation would give it out a second time", g.UUID, g.Host, g.Layout)
		case layout == "off":
			has = []string{whole}
		}
		rest, ok := strings.CutPrefix(strings.ToLower(g.UUID), "gpu-")
		if !ok {
			return nil, fmt.Errorf("gpus: %q on host %q is not the UUID of an NVIDIA GPU", g.UUID, g.Host)
		}
		for _, sort := range has {
			if id := "GPU-" + rest; !slices.Contains(out[sort], id) { // as the driver writes it
				out[sort] = append(out[sort], id)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("gpus: there is no device: no GPU has a MIG instance, and none is out of MIG mode")
	}
	return out, nil
}

// expression selects the devices of one sort, in CEL.
func expression(sort string, uuids []string) string {
	slices.Sort(uuids)
	list := " in [" + strings.Join(words.QuoteAll(uuids), ", ") + "]"
	attribute := func(name string) string { return "device.attributes[" + strconv.Quote(driver) + "]." + name }
	terms := []string{"device.driver == " + strconv.Quote(driver)}
	if sort == whole {
		terms = append(terms, attribute("type")+` == "gpu"`, attribute("uuid")+list)
	} else {
		terms = append(terms, attribute("type")+` == "mig"`, attribute("profile")+" == "+strconv.Quote(sort), attribute("parentUUID")+list)
	}
	return strings.Join(terms, " && ")
}
