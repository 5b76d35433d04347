// Package slurm writes what Slurm has to be told of a cluster's GPUs: the lines of
// gres.conf, the values of GresTypes and Gres in slurm.conf that belong to them, and what
// cgroup.conf needs for both. The first two must agree, as Slurm drains a node that has
// less than slurm.conf says, and gives out nothing that slurm.conf does not say.
package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Node is one or several nodes with the same GPUs.
type Node struct {
	// Name is as slurm.conf has it: "gpu01", "gpu[01-04]".
	Name string
	// AutoDetect has Slurm ask the driver, which adds what a GPU's line does not say: "nvml"
	// or "nvidia"; "off" or "" for nothing but the lines.
	AutoDetect string
	GPUs       []GPU
}

// GPU is a GPU of a node. It is offered whole, as MIG devices, or in parts.
type GPU struct {
	Minor int    // 3 is /dev/nvidia3
	Type  string // what jobs ask for, "a100"; may be empty
	Cores string // the CPU cores beside it as Slurm numbers them, "0-15"; may be empty
	// MIG are the GPU's MIG devices. MPS and Shards are the numbers of parts: of threads
	// that MPS gives out (usually 100), of jobs that share the GPU without a limit.
	MIG    []MIGDevice
	MPS    int
	Shards int
}

// MIGDevice is a MIG device of a GPU.
type MIGDevice struct {
	Type string // what jobs ask for, "1g.10gb"
	// Capabilities are the minors of its devices in /dev/nvidia-caps: that of the GPU instance
	// and that of the compute instance.
	Capabilities []int
}

// Gres is what Slurm has to be told.
type Gres struct {
	// Conf is the text of gres.conf.
	Conf string
	// Types is the value of GresTypes in slurm.conf, "gpu,mps".
	Types string
	// Nodes are the values of Gres in slurm.conf by the node's name, "gpu:a100:2,mps:200".
	Nodes map[string]string
	// Cgroup is what cgroup.conf needs.
	Cgroup string
}

// CUDA_VISIBLE_DEVICES of a job is the position of its GPU among those of the node in gres.conf, one type after the other,
// and counts from 0 in each job where this is on: only then does it name the job's own GPU.
const confine = "ConstrainDevices=yes\n"

var (
	// nodeName is a list of names, each with lists of numbers in brackets, of which one is at its end.
	nodeName = regexp.MustCompile(`^` + oneNode + `(,` + oneNode + `)*$`)
	typeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]*$`)
	// amount is what Slurm reads as a number of GPUs where a job asks for a type.
	amount   = regexp.MustCompile(`^[0-9]+([kKmMgGtTpP]([iI]?[bB])?)?$`)
	coreList = regexp.MustCompile(`^` + numbers + `$`)
	ranges   = regexp.MustCompile(`([0-9]+)-([0-9]+)`)
	brackets = regexp.MustCompile(`\[[^]]*\]`)
	outside  = regexp.MustCompile(`([^,[]|\[[^]]*\])+`) // names between commas, with their brackets
)

const (
	oneRange = `[0-9]+(-[0-9]+)?`
	numbers  = oneRange + `(,` + oneRange + `)*`
	oneNode  = `[A-Za-z0-9][A-Za-z0-9_.-]*(\[` + numbers + `\]([A-Za-z0-9_.-]+\[` + numbers + `\])*)?`
	// mostOfRange is how many numbers Slurm takes in a range of nodes.
	mostOfRange = 1 << 16
)

// isNodeName tells whether Slurm takes a name for one node or several. Two words stand for others.
func isNodeName(name string) bool {
	return nodeName.MatchString(name) && !strings.EqualFold(name, "default") && !strings.EqualFold(name, "all") &&
		ascend(strings.Join(brackets.FindAllString(name, -1), ""))
}

// ascend tells whether no range of a list ends before it begins, or has more numbers than Slurm takes.
func ascend(list string) bool {
	for _, r := range ranges.FindAllStringSubmatch(list, -1) {
		from, err1 := strconv.ParseUint(r[1], 10, 32)
		to, err2 := strconv.ParseUint(r[2], 10, 32)
		if err1 != nil || err2 != nil || from > to || to-from >= mostOfRange {
			return false
		}
	}
	return true
}

// namesOf are the nodes that a list of names stands for, as far as each name has one list of numbers, which
// Slurm reads with the leading zeros of its first number; others are taken as they are written.
func namesOf(list string) []string {
	var out []string
	for _, one := range outside.FindAllString(list, -1) {
		parts := brackets.FindAllStringIndex(one, -1)
		if len(parts) != 1 {
			out = append(out, one)
			continue
		}
		at := parts[0]
		for _, r := range strings.Split(one[at[0]+1:at[1]-1], ",") {
			first, last, _ := strings.Cut(r, "-")
			from, _ := strconv.Atoi(first) // isNodeName has looked at them
			to, _ := strconv.Atoi(cmp.Or(last, first))
			for n := from; n <= to; n++ {
				out = append(out, fmt.Sprintf("%s%0*d%s", one[:at[0]], len(first), n, one[at[1]:]))
			}
		}
	}
	return out
}

// detectors are the values of AutoDetect for NVIDIA's GPUs.
var detectors = []string{"nvml", "nvidia", "off"}

// Render writes the nodes in their order.
func Render(nodes []Node) (Gres, error) {
	if len(nodes) == 0 {
		return Gres{}, errors.New("there is no node, but at least one is wanted")
	}
	out := Gres{Nodes: map[string]string{}, Cgroup: confine}
	var text strings.Builder
	kinds := map[string]bool{}
	seen := map[string]bool{}
	for i := range nodes {
		node := &nodes[i]
		if err := node.check(); err != nil {
			return Gres{}, fmt.Errorf("node %q: %w", node.Name, err)
		}
		for _, name := range namesOf(node.Name) {
			if seen[name] {
				return Gres{}, fmt.Errorf("node %q is there twice", name)
			}
			seen[name] = true
		}
		text.WriteString(strings.Join(node.lines(), "\n") + "\n")
		kinds["gpu"] = true
		var gres []string
		for _, o := range node.offers() {
			kind, _, _ := strings.Cut(o.name, ":")
			kinds[kind] = true
			gres = append(gres, o.name+":"+strconv.Itoa(o.count))
		}
		out.Nodes[node.Name] = strings.Join(gres, ",")
	}
	if kinds["mps"] && kinds["shard"] {
		return Gres{},
			errors.New("one GPU is offered by MPS and another in shards: with both in GresTypes, Slurm (seen with 22.05 and 24.11) gives out " +
				"GPUs that are in use, and starts jobs without CUDA_VISIBLE_DEVICES; offer all by MPS or all in shards")
	}
	out.Conf = text.String()
	var types []string
	for _, kind := range []string{"gpu", "mps", "shard"} {
		if kinds[kind] {
			types = append(types, kind)
		}
	}
	out.Types = strings.Join(types, ",")
	return out, nil
}

// lines are the node's lines in gres.conf. Those of GPUs come before those of their parts.
func (n *Node) lines() []string {
	node := "NodeName=" + n.Name
	if n.AutoDetect != "" {
		node += " AutoDetect=" + n.AutoDetect
	}
	var gpus, mps, shards []string
	for i := range n.GPUs {
		g := &n.GPUs[i]
		file := "/dev/nvidia" + strconv.Itoa(g.Minor)
		for _, m := range g.MIG {
			files := file
			for _, minor := range m.Capabilities {
				files += ",/dev/nvidia-caps/nvidia-cap" + strconv.Itoa(minor)
			}
			gpus = append(gpus, node+" Name=gpu"+field("Type", m.Type)+" MultipleFiles="+files+field("Cores", g.Cores))
		}
		if len(g.MIG) == 0 {
			gpus = append(gpus, node+" Name=gpu"+field("Type", g.Type)+" File="+file+field("Cores", g.Cores))
		}
		if g.MPS > 0 {
			mps = append(mps, fmt.Sprintf("%s Name=mps Count=%d File=%s", node, g.MPS, file))
		}
		if g.Shards > 0 {
			shards = append(shards, fmt.Sprintf("%s Name=shard Count=%d File=%s", node, g.Shards, file))
		}
	}
	return slices.Concat(gpus, mps, shards)
}

func field(name, value string) string {
	if value == "" {
		return ""
	}
	return " " + name + "=" + value
}

// offer is something that jobs ask for: "gpu:a100", "mps".
type offer struct {
	name  string
	count int
}

// offers are what the node has, GPUs first and in their order.
func (n *Node) offers() []offer {
	var gpus, parts []offer
	for i := range n.GPUs {
		g := &n.GPUs[i]
		for _, m := range g.MIG {
			gpus = add(gpus, "gpu:"+m.Type, 1)
		}
		if len(g.MIG) == 0 {
			gpus = add(gpus, strings.TrimSuffix("gpu:"+g.Type, ":"), 1)
		}
	}
	for i := range n.GPUs {
		parts = add(parts, "mps", n.GPUs[i].MPS)
	}
	for i := range n.GPUs {
		parts = add(parts, "shard", n.GPUs[i].Shards)
	}
	return append(gpus, parts...)
}

func add(to []offer, name string, count int) []offer {
	if count == 0 {
		return to
	}
	if i := slices.IndexFunc(to, func(o offer) bool { return o.name == name }); i >= 0 {
		to[i].count += count
		return to
	}
	return append(to, offer{name: name, count: count})
}

// check finds what Slurm would refuse or read as something else.
func (n *Node) check() error {
	switch {
	case !isNodeName(n.Name):
		return errors.New("it is not the name of a node such as \"gpu01\" or \"gpu[01-04]\"")
	case n.AutoDetect != "" && !slices.Contains(detectors, n.AutoDetect):
		return fmt.Errorf("AutoDetect is %q, but %s is wanted", n.AutoDetect, strings.Join(detectors, ", "))
	case len(n.GPUs) == 0:
		return errors.New("it has no GPU: list them in gpus, also where Slurm detects them, as it (seen with 22.05) ignores each GPU that " +
			"Gres in slurm.conf does not count")
	}
	untyped := func(g GPU) bool { return !g.typed() }
	if slices.ContainsFunc(n.GPUs, GPU.typed) && slices.ContainsFunc(n.GPUs, untyped) {
		return errors.New("some of its GPUs have a type and others none, with which slurmd (seen with 22.05 and 24.11) does not start; write a " +
			"type for all or for none")
	}
	minors, capabilities := map[int]bool{}, map[int]bool{}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if minors[g.Minor] {
			return fmt.Errorf("/dev/nvidia%d is there twice", g.Minor)
		}
		minors[g.Minor] = true
		if err := g.check(capabilities); err != nil {
			return fmt.Errorf("/dev/nvidia%d: %w", g.Minor, err)
		}
	}
	return nil
}

// typed tells whether Slurm is told a type of the GPU, or of its MIG devices.
func (g GPU) typed() bool { return g.Type != "" || len(g.MIG) > 0 }

func (g *GPU) check(capabilities map[int]bool) error {
	switch {
	case g.Minor < 0:
		return errors.New("its number is below zero")
	case g.Type != "" && !validType(g.Type):
		return fmt.Errorf("%q is not a type such as \"a100\"%s", g.Type, whyNoType(g.Type))
	case g.Cores != "" && (!coreList.MatchString(g.Cores) || !ascend(g.Cores)):
		return fmt.Errorf("%q is not a list of cores such as \"0-15,32-47\"", g.Cores)
	case g.MPS < 0 || g.Shards < 0:
		return errors.New("a number of parts is below zero")
	case g.MPS > 0 && g.Shards > 0:
		return errors.New("it is offered by MPS and in shards, but a GPU has one way of sharing")
	case len(g.MIG) > 0 && g.MPS+g.Shards > 0:
		return errors.New("it is divided by MIG, so that it cannot be offered by MPS or in shards")
	case len(g.MIG) > 0 && g.Type != "":
		return errors.New("it is divided by MIG, so that its MIG devices have types, and not the GPU")
	}
	for _, m := range g.MIG {
		if !validType(m.Type) {
			return fmt.Errorf("%q is not the type of a MIG device such as \"1g.10gb\"%s", m.Type, whyNoType(m.Type))
		}
		if len(m.Capabilities) != 2 {
			return fmt.Errorf("MIG device %q has %d capability devices, but two are wanted: those of its GPU instance and of its compute "+
				"instance, as /proc/driver/nvidia-caps/mig-minors lists them", m.Type, len(m.Capabilities))
		}
		// Compute instances may have their GPU instance in common.
		for _, minor := range m.Capabilities {
			if minor < 0 {
				return fmt.Errorf("MIG device %q: the capability device %d is below zero", m.Type, minor)
			}
		}
		compute := m.Capabilities[1]
		if capabilities[compute] {
			return fmt.Errorf("MIG device %q: /dev/nvidia-caps/nvidia-cap%d is another's already", m.Type, compute)
		}
		capabilities[compute] = true
	}
	return nil
}

// validType tells whether Slurm takes a type for one, and not for a number, such as "4" or "4k", or for
// a word of its own.
func validType(name string) bool {
	return typeName.MatchString(name) && !amount.MatchString(name) && !strings.EqualFold(name, "no_consume")
}

// TypeOf is the type that Slurm gives the GPUs of a model where it asks the driver: "nvidia_h100_80gb_hbm3".
func TypeOf(model string) string { return strings.ToLower(strings.ReplaceAll(model, " ", "_")) }

// whyNoType says more of a name that is no type, where that does not show.
func whyNoType(name string) string {
	if amount.MatchString(name) {
		return ": Slurm (seen with 22.05 and 24.11) reads it as how many GPUs a job asks for"
	}
	return ""
}
