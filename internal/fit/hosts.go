package fit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// HostSpec is a host that nobody has asked: what it can do is what is documented of its models.
type HostSpec struct {
	Name string `json:"name"`
	// Cluster is the failover cluster that it is a node of, "" for none.
	Cluster string `json:"cluster,omitempty"`
	// Platform is hyperv or linux; "" where either will do, as of hosts that are not bought yet. A node of a cluster is Hyper-V's.
	Platform gpu.Platform `json:"platform,omitempty"`
	GPUs     []GPUSpec    `json:"gpus"`
}

// GPUSpec is a GPU of such a host.
type GPUSpec struct {
	ID    string `json:"id"`
	Model string `json:"model"`
}

// Hosts makes hosts of what is known of them.
func Hosts(specs []HostSpec) ([]gpu.Host, error) {
	names := map[string]bool{}
	out := make([]gpu.Host, 0, len(specs))
	for i, spec := range specs {
		if spec.Name == "" {
			return nil, fmt.Errorf("host %d has no name", i+1)
		}
		if names[gpu.FoldID(spec.Name)] {
			return nil, fmt.Errorf("there are two hosts called %q", spec.Name)
		}
		names[gpu.FoldID(spec.Name)] = true
		h, err := spec.host()
		if err != nil {
			return nil, fmt.Errorf("host %q: %w", spec.Name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

func (s *HostSpec) host() (gpu.Host, error) {
	h := gpu.Host{Name: s.Name, Platform: s.Platform}
	switch s.Platform {
	case gpu.HyperV, gpu.Linux, "":
	default:
		platforms := []string{string(gpu.HyperV), string(gpu.Linux)}
		return h, fmt.Errorf("platform is %q. %s", s.Platform, words.Instead(string(s.Platform), platforms, ""))
	}
	if s.Cluster != "" {
		if s.Platform == gpu.Linux {
			return h, fmt.Errorf("it is a node of cluster %q, and a failover cluster is of Hyper-V hosts; leave cluster or platform out", s.Cluster)
		}
		h.Platform, h.Cluster = gpu.HyperV, &gpu.Cluster{Name: s.Cluster}
	}
	ids := map[string]bool{}
	for i, spec := range s.GPUs {
		if spec.ID == "" {
			return h, fmt.Errorf("GPU %d has no id", i+1)
		}
		if ids[gpu.FoldID(spec.ID)] {
			return h, fmt.Errorf("there are two GPUs with the id %q", spec.ID)
		}
		ids[gpu.FoldID(spec.ID)] = true
		m, ok := catalog.ByName(spec.Model)
		if !ok {
			names := words.Each(catalog.All(), func(m catalog.Model) string { return strings.TrimPrefix(m.Name, m.Vendor+" ") })
			return h, fmt.Errorf("the catalog has no GPU model %q. %s", spec.Model, words.Instead(spec.Model, names, "in the guide on GPU models"))
		}
		h.GPUs = append(h.GPUs, gpuOf(spec.ID, m))
	}
	return h, nil
}

// gpuOf is a GPU that has no layout yet.
func gpuOf(id string, m catalog.Model) gpu.GPU {
	g := gpu.GPU{ID: id, Model: m.Name, Vendor: m.Vendor, VRAM: m.VRAM}
	if m.Unified {
		g.VRAM = 0 // its driver tells none
	}
	if m.GPUP && len(m.PartitionCounts) > 0 {
		g.Partitionable = &gpu.Partitionable{ValidCounts: slices.Clone(m.PartitionCounts), Count: 1}
		g.Partitionable.VRAM.Min = uint64(m.PartitionedVRAM())
	}
	if m.MIG != nil {
		g.MIG = &gpu.MIG{Profiles: m.MIG.Profiles}
	}
	return g
}

// ReadHosts reads hosts from JSON: a fleet file or a recording, what gpu-agent inventory --json prints, or a list of hosts with models,
// which may be YAML too.
func ReadHosts(data []byte) ([]gpu.Host, error) {
	text := strings.TrimSpace(string(data))
	if strings.HasPrefix(text, "-") {
		if raw, err := yaml.YAMLToJSONStrict(data); err == nil {
			text = string(raw)
		}
	}
	if strings.HasPrefix(text, "[") {
		var specs []HostSpec
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&specs); err != nil {
			return nil, fmt.Errorf("not a list of hosts: %w", err)
		}
		return Hosts(specs)
	}
	s, err := gpu.ParseSnapshot(data)
	return s.Hosts, err
}
