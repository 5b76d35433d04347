// Package adopt writes the configuration with which a Terraform state takes over what others
// made on hosts: what `terraform query` generates, for any version of Terraform and OpenTofu.
package adopt

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Object is one object with its import.
type Object struct {
	Type, Name, ImportID string
	arguments            []argument
	notes                []string // what the arguments cannot say
}

type argument struct {
	name  string
	value cty.Value
}

// Objects are those that others made on hosts, by the names that the provider has for them, and
// what is left: what has a claim already, and what no configuration describes.
func Objects(hosts map[string]*gpu.Host) ([]Object, []fleet.Left) {
	found, left := fleet.Adoptables(hosts, "")
	var out []Object
	names := map[string]int{}
	for i := range found {
		a := &found[i]
		if a.Claim != nil {
			left = append(left, fleet.Left{
				Kind: a.Kind(), Host: a.Hosts[0], Object: a.String(), Why: "it is claimed by a state without an owner", Claimed: true,
			})
			continue
		}
		o := Object{ImportID: a.ImportID()}
		switch w := a.Want; {
		case w.Config != nil:
			o.Type, o.Name, o.arguments = "gpu_partition_config", a.Hosts[0]+"_"+string(w.Config.Kind), config(w.Config)
		case w.Pool != nil:
			o.Type, o.Name, o.arguments = "gpu_pool", w.Pool.Name, []argument{
				{"name", cty.StringVal(w.Pool.Name)}, {"members", idsByHost(w.Pool.Members)},
			}
		default:
			o.Type, o.Name, o.arguments, o.notes = "gpu_vm_assignment", w.Assignment.VM, assignment(w.Assignment), notes(w.Assignment)
			if a.SameID || a.SameName {
				o.arguments = append(o.arguments, argument{"hosts", texts(a.Hosts)})
				o.notes = append(o.notes, "Another host shows a VM of this name or id: `hosts` says which one is meant.")
			}
		}
		o.Name = identifier(o.Name)
		for base := o.Name; names[o.Type+"."+o.Name] > 0; {
			names[o.Type+"."+base]++
			o.Name = fmt.Sprintf("%s_%d", base, names[o.Type+"."+base])
		}
		names[o.Type+"."+o.Name]++
		out = append(out, o)
	}
	return out, left
}

// identifier makes a name of a resource.
func identifier(name string) string {
	name = unfit.ReplaceAllString(name, "_")
	if name == "" || !first.MatchString(name) {
		name = "_" + name
	}
	return name
}

var unfit, first = regexp.MustCompile(`[^A-Za-z0-9_-]`), regexp.MustCompile(`^[A-Za-z_]`)

func config(c *gpu.PartitionConfig) []argument {
	out := []argument{{"hosts", texts(c.Scope.Hosts)}}
	if c.Scope.Selector != nil {
		out = append(out, argument{"selector", cty.ObjectVal(map[string]cty.Value{"gpu_ids": idsByHost(c.Scope.Selector.GPUIDs)})})
	}
	layout := map[string]cty.Value{}
	switch {
	case c.MIG != nil && len(c.MIG.Placements) > 0:
		var places []cty.Value
		for _, p := range c.MIG.Placements {
			places = append(places,
				cty.ObjectVal(map[string]cty.Value{"profile": cty.StringVal(p.Profile), "start": cty.NumberIntVal(int64(p.Start))}))
		}
		layout["placements"] = cty.TupleVal(places)
	case c.MIG != nil:
		layout["profiles"] = counts(c.MIG.Profiles)
	case c.VGPU != nil && c.VGPU.Type != "":
		layout["type"], layout["count"] = cty.StringVal(c.VGPU.Type), cty.NumberIntVal(int64(*c.VGPU.Count))
	case c.VGPU != nil:
		layout["types"] = counts(c.VGPU.Types)
	default:
		layout["partition_count"] = cty.NumberIntVal(int64(c.Count))
	}
	if c.VGPU != nil && c.VGPU.Heterogeneous != nil {
		layout["heterogeneous"] = cty.BoolVal(*c.VGPU.Heterogeneous)
	}
	return append(out, argument{string(c.Kind), cty.ObjectVal(layout)})
}

// notes says what of an assignment its arguments cannot.
func notes(a *gpu.Assignment) []string {
	if a.Partition == nil {
		return nil
	}
	var out []string
	q := a.Partition.Quotas.VRAM
	for _, of := range []struct {
		name string
		n    *uint64
	}{{"min", q.Min}, {"max", q.Max}, {"optimal", q.Optimal}} {
		if of.n != nil && gpu.Bytes(*of.n)%gpu.MiB != 0 {
			out = append(out, fmt.Sprintf("%s_partition_vram_mib: the host has %d bytes, which is no whole MiB and stays as it is.", of.name, *of.n))
		}
	}
	return out
}

func assignment(a *gpu.Assignment) []argument {
	vm := argument{"vm", cty.StringVal(a.VM)}
	switch {
	case a.Partition != nil:
		p := map[string]cty.Value{}
		if a.Partition.PinnedGPU != "" {
			p["gpu_id"] = cty.StringVal(a.Partition.PinnedGPU)
		}
		q := a.Partition.Quotas
		for name, quota := range map[string]gpu.Quota{"vram_mib": q.VRAM, "encode": q.Encode, "decode": q.Decode, "compute": q.Compute} {
			for limit, n := range map[string]*uint64{"min": quota.Min, "max": quota.Max, "optimal": quota.Optimal} {
				switch {
				case n == nil:
				case name == "vram_mib":
					p[limit+"_partition_"+name] = cty.NumberIntVal(gpu.Bytes(*n).MiB())
				default:
					p[limit+"_partition_"+name] = cty.NumberUIntVal(*n)
				}
			}
		}
		return []argument{vm, {"partition", cty.ObjectVal(p)}}
	case a.Pool != nil:
		p := map[string]cty.Value{"id": cty.StringVal(a.Pool.ID)}
		if a.Pool.Count != 1 {
			p["count"] = cty.NumberIntVal(int64(a.Pool.Count))
		}
		return []argument{vm, {"pool", cty.ObjectVal(p)}}
	default:
		return []argument{
			vm, {"device", cty.ObjectVal(map[string]cty.Value{"host": cty.StringVal(a.Device.Host), "gpu_ids": texts(a.Device.GPUIDs)})},
		}
	}
}

func texts(list []string) cty.Value {
	out := make([]cty.Value, len(list))
	for i, s := range list {
		out[i] = cty.StringVal(s)
	}
	return cty.TupleVal(out)
}

func counts(of map[string]int) cty.Value {
	out := map[string]cty.Value{}
	for name, n := range of {
		out[name] = cty.NumberIntVal(int64(n))
	}
	return cty.ObjectVal(out)
}

func idsByHost(ids map[string][]string) cty.Value {
	out := map[string]cty.Value{}
	for host, list := range ids {
		out[host] = texts(list)
	}
	return cty.ObjectVal(out)
}

// HCL writes import and resource blocks, and what is left as comments.
func HCL(objects []Object, left []fleet.Left) []byte {
	f := hclwrite.NewEmptyFile()
	for _, x := range left {
		f.Body().AppendUnstructuredTokens(hclwrite.Tokens{
			{Type: hclsyntax.TokenComment, Bytes: []byte("# " + oneLine(fmt.Sprintf("Left on %s, %s: %s.", x.Host, x.Object, x.Why)) + "\n")},
		})
	}
	for i, o := range objects {
		if i > 0 || len(left) > 0 {
			f.Body().AppendNewline()
		}
		b := f.Body().AppendNewBlock("import", nil).Body()
		b.SetAttributeTraversal("to", hcl.Traversal{hcl.TraverseRoot{Name: o.Type}, hcl.TraverseAttr{Name: o.Name}})
		b.SetAttributeValue("id", cty.StringVal(o.ImportID))
		f.Body().AppendNewline()
		for _, note := range o.notes {
			f.Body().AppendUnstructuredTokens(hclwrite.Tokens{{Type: hclsyntax.TokenComment, Bytes: []byte("# " + note + "\n")}})
		}
		b = f.Body().AppendNewBlock("resource", []string{o.Type, o.Name}).Body()
		for _, a := range o.arguments {
			b.SetAttributeValue(a.name, a.value)
		}
	}
	return hclwrite.Format(f.Bytes())
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// JSON writes the same in Terraform's JSON syntax; a comment is an entry "//".
func JSON(objects []Object, left []fleet.Left) ([]byte, error) {
	type block map[string]any
	imports, resources := []block{}, map[string]map[string]block{}
	for _, o := range objects {
		imports = append(imports, block{"to": o.Type + "." + o.Name, "id": literal.Replace(o.ImportID)})
		arguments := block{}
		for _, a := range o.arguments {
			v, err := cty.Transform(a.value, func(_ cty.Path, v cty.Value) (cty.Value, error) {
				if v.Type() == cty.String {
					return cty.StringVal(literal.Replace(v.AsString())), nil
				}
				return v, nil
			})
			if err != nil {
				return nil, err
			}
			arguments[a.name] = ctyjson.SimpleJSONValue{Value: v}
		}
		if len(o.notes) > 0 {
			arguments["//"] = strings.Join(o.notes, " ")
		}
		if resources[o.Type] == nil {
			resources[o.Type] = map[string]block{}
		}
		resources[o.Type][o.Name] = arguments
	}
	doc := block{"import": imports, "resource": resources}
	if len(left) > 0 {
		notes := words.Each(left, func(x fleet.Left) string { return fmt.Sprintf("Left on %s, %s: %s.", x.Host, x.Object, x.Why) })
		doc["//"] = slices.Compact(notes)
	}
	return json.MarshalIndent(doc, "", "  ")
}

// literal keeps text from being a template.
var literal = strings.NewReplacer("${", "$${", "%{", "%%{")
