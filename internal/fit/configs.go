package fit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Config is one gpu_partition_config: GPUs of one model with one layout.
type Config struct {
	Hosts  []string            `json:"hosts"`
	GPUIDs map[string][]string `json:"gpu_ids"` // by host
	GPUP   *GPUP               `json:"gpu_p,omitempty"`
	MIG    *MIG                `json:"mig,omitempty"`
	MPS    *MPS                `json:"mps,omitempty"`
}

// configs are the partition configs that make the layouts, by a name that says what they are. Whole GPUs have none.
func configs(layouts Layouts, models map[string]map[string]string) map[string]Config {
	out := map[string]Config{}
	names, of := uniqueNames{}, map[string]string{} // the name of each layout of a model
	for _, host := range slices.Sorted(maps.Keys(layouts)) {
		for _, id := range slices.Sorted(maps.Keys(layouts[host])) {
			l := layouts[host][id]
			if l.Kind == WholeGPU {
				continue
			}
			what := strings.TrimPrefix(models[host][id], "NVIDIA ") + " " + l.String()
			name, ok := of[what]
			c := out[name]
			if !ok {
				name = names.take(slug(what))
				of[what] = name
				c = Config{GPUIDs: map[string][]string{}, GPUP: l.GPUP, MIG: l.MIG, MPS: l.MPS}
			}
			if len(c.GPUIDs[host]) == 0 {
				c.Hosts = append(c.Hosts, host)
			}
			c.GPUIDs[host] = append(c.GPUIDs[host], id)
			out[name] = c
		}
	}
	return out
}

// uniqueNames are names that are taken.
type uniqueNames map[string]bool

// take is the name, or one with a number where another text has come to the same name.
func (u uniqueNames) take(name string) string {
	is := name
	for n := 2; u[is]; n++ {
		is = name + "-" + strconv.Itoa(n)
	}
	u[is] = true
	return is
}

// slug is a name of small letters, digits and hyphens.
func slug(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-")
}

// HCL is the result as a configuration: a partition config for each layout, and the shares. The VMs of partitions and of whole GPUs have
// names that only their owner knows, so that what to write for them is in comments.
func (r *Result) HCL(demands []Demand) []byte {
	f := hclwrite.NewEmptyFile()
	note := func(format string, args ...any) {
		text := "# " + gpu.Printable(strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")) + "\n"
		f.Body().AppendUnstructuredTokens(hclwrite.Tokens{{Type: hclsyntax.TokenComment, Bytes: []byte(text)}})
	}
	switch {
	case r.Fits == nil || !*r.Fits:
		note("Not everything fits. %s", r.Reason)
	case r.Reason != "":
		note("%s", r.Reason)
	}
	of := map[Place]string{} // the config of each GPU
	for _, name := range slices.Sorted(maps.Keys(r.Configs)) {
		c := r.Configs[name]
		for host, ids := range c.GPUIDs {
			for _, id := range ids {
				of[Place{Host: host, GPU: id}] = resourceName(name)
			}
		}
		f.Body().AppendNewline()
		body := f.Body().AppendNewBlock("resource", []string{"gpu_partition_config", resourceName(name)}).Body()
		body.SetAttributeValue("name", cty.StringVal(name))
		body.SetAttributeValue("hosts", texts(c.Hosts))
		ids := map[string]cty.Value{}
		for host, list := range c.GPUIDs {
			ids[host] = texts(list)
		}
		body.SetAttributeValue("selector", cty.ObjectVal(map[string]cty.Value{"gpu_ids": cty.ObjectVal(ids)}))
		switch {
		case c.GPUP != nil:
			body.SetAttributeValue("gpu_p", cty.ObjectVal(map[string]cty.Value{"partition_count": cty.NumberIntVal(int64(c.GPUP.PartitionCount))}))
		case c.MIG != nil:
			counts := map[string]cty.Value{}
			for profile, n := range c.MIG.Profiles {
				counts[profile] = cty.NumberIntVal(int64(n))
			}
			body.SetAttributeValue("mig", cty.ObjectVal(map[string]cty.Value{"profiles": cty.ObjectVal(counts)}))
		case c.MPS != nil:
			body.SetAttributeValue("mps", cty.ObjectVal(map[string]cty.Value{"multi_user": cty.True}))
		}
	}
	names := uniqueNames{}
	for i := range demands {
		d := &demands[i]
		places := r.Placements[d.Name]
		if d.Kind == Shares {
			shares(f.Body(), d, places, of, names)
			continue
		}
		f.Body().AppendNewline()
		note("%s", d.note(places, of))
	}
	return hclwrite.Format(f.Bytes())
}

// note says what to write for the units of a demand.
func (d *Demand) note(places []Place, of map[Place]string) string {
	var refs, gpus []string
	for _, at := range places {
		at.Unit = ""
		if name := "gpu_partition_config." + of[at] + ".id"; of[at] != "" && !slices.Contains(refs, name) {
			refs = append(refs, name)
		}
		gpus = append(gpus, at.GPU+" on "+at.Host)
	}
	switch {
	case len(places) == 0:
		return fmt.Sprintf("Demand %q has no place.", d.Name)
	case d.Kind == Partitions && len(refs) == 1:
		return fmt.Sprintf("Demand %q: %s, each a gpu_vm_assignment with partition = { config = %s }.", d.Name, words.Plural(len(places), "VM"),
			refs[0])
	case d.Kind == Partitions:
		return fmt.Sprintf("Demand %q: %s, each a gpu_vm_assignment with partition = { configs = [%s] }.", d.Name,
			words.Plural(len(places), "VM"), strings.Join(refs, ", "))
	case d.Kind == Instances:
		return fmt.Sprintf("Demand %q: %s of %s.", d.Name, words.Plural(len(places), "instance"), d.Profile)
	}
	return fmt.Sprintf("Demand %q: %s given out whole: %s.", d.Name, words.Plural(len(places), "GPU"), words.Join(gpus))
}

// shares are one gpu_share for each unit, on the GPU that it was placed on.
func shares(body *hclwrite.Body, d *Demand, places []Place, of map[Place]string, names uniqueNames) {
	for n, at := range places {
		body.AppendNewline()
		name := names.take(cmp.Or(slug(d.Name), "share") + "-" + strconv.Itoa(n+1))
		b := body.AppendNewBlock("resource", []string{"gpu_share", resourceName(name)}).Body()
		b.SetAttributeValue("name", cty.StringVal(name))
		b.SetAttributeValue("host", cty.StringVal(at.Host))
		b.SetAttributeValue("gpu_ids", texts([]string{at.GPU}))
		config := of[Place{Host: at.Host, GPU: at.GPU}]
		b.SetAttributeTraversal("config", hcl.Traversal{
			hcl.TraverseRoot{Name: "gpu_partition_config"},
			hcl.TraverseAttr{Name: config},
			hcl.TraverseAttr{Name: "id"},
		})
		b.SetAttributeValue("memory", cty.ObjectVal(map[string]cty.Value{"request_mib": cty.NumberIntVal(d.MemoryMiB)}))
		if d.Threads > 0 {
			b.SetAttributeValue("active_thread_percentage", cty.NumberFloatVal(d.Threads))
		}
	}
}

// resourceName is a name that Terraform takes for a resource.
func resourceName(name string) string {
	name = strings.ReplaceAll(name, "-", "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "of_" + name
	}
	return name
}

func texts(list []string) cty.Value {
	return cty.TupleVal(words.Each(list, cty.StringVal))
}
