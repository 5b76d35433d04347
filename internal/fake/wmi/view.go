package fakewmi

import (
	"context"
	"fmt"
	"math"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// view is a namespace at one moment. Each call has its own.
type view struct {
	*Namespace
	ctx  context.Context
	host gpu.Host
	// nodes are all hosts of the cluster, this one among them.
	nodes []gpu.Host

	sources sources
	classes map[string]*Class
	objects map[string][]*Object
	// err is a mistake in this package that was made on the way.
	err error
}

// fields are the values of an object by the names of its properties.
type fields map[string]any

// sources make the instances of each class that has any.
type sources map[string]func(*view) []*Object

func sourcesOf(namespace string) sources {
	switch namespace {
	case hyperv.Virtualization:
		return virtualizationSources()
	case hyperv.CIMv2:
		return windowsSources()
	case hyperv.MSCluster:
		return clusterSources()
	case rootNamespace:
		return sources{"__NAMESPACE": (*view).namespaces}
	default:
		return nil // root\default has nothing but static methods
	}
}

// look reads the host.
func (n *Namespace) look(ctx context.Context) (*view, error) {
	host, err := n.machine.read(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{Namespace: n, ctx: ctx, host: host, sources: sourcesOf(n.name), classes: map[string]*Class{}, objects: map[string][]*Object{}}
	if n.name != hyperv.MSCluster {
		return v, nil
	}
	if v.silent() {
		return v, nil
	}
	if host.Cluster == nil {
		return nil, noNamespace(n.name)
	}
	fleet, err := n.machine.fleet.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, peer := range fleet.Hosts {
		if gpu.SameID(peer.ClusterName(), host.Cluster.Name) {
			v.nodes = append(v.nodes, peer)
		}
	}
	return v, nil
}

// class is a class as the host has it.
func (v *view) class(name string) (*Class, bool) {
	c, known := v.classes[fold(name)]
	if !known {
		if v.machine.faults.hidesNothing() {
			c = v.schema.wholeClass(name, v.build())
		} else {
			c = v.schema.class(name, v.build(), v.machine.faults.isHidden)
		}
		v.classes[fold(name)] = c
	}
	return c, c != nil
}

// build is the build of Windows. A fleet that does not tell has the newest.
func (v *view) build() int {
	if v.host.OS.Build == 0 {
		return math.MaxInt
	}
	return v.host.OS.Build
}

// silent tells whether a namespace is there and shows nothing.
func (v *view) silent() bool {
	switch v.name {
	case hyperv.Virtualization:
		return v.machine.faults.showsNothing()
	case hyperv.MSCluster:
		state, set := v.machine.faults.clusterService()
		return set && (state != ClusterRunning || v.host.Cluster == nil)
	default:
		return false
	}
}

// instances are those of a class and of the classes derived from it.
func (v *view) instances(class string) []*Object {
	var out []*Object
	if v.silent() {
		return nil
	}
	for _, name := range v.schema.derived(class) {
		if _, ok := v.class(name); !ok {
			continue
		}
		list, known := v.objects[fold(name)]
		if source := v.sources[name]; !known && source != nil {
			list = source(v)
			v.objects[fold(name)] = list
		}
		out = append(out, list...)
	}
	return out
}

// make is an instance. Properties that the host's build does not have are left out.
func (v *view) make(class string, all ...fields) *Object {
	o := v.embed(class, all...)
	o.Path = pathTo(v.host.Name, v.name, o)
	return o
}

// embed is make for an object within another, which has no path.
func (v *view) embed(class string, all ...fields) *Object {
	c, ok := v.class(class)
	if !ok {
		v.mistake("there is no class %s", class)
		return (&Class{Name: class}).New()
	}
	o := c.New()
	for _, f := range all {
		for name, value := range f {
			p, ok := c.Property(name)
			if !ok {
				if newest := v.schema.wholeClass(class, math.MaxInt); newest != nil {
					_, ok = newest.Property(name)
				}
				if !ok {
					v.mistake("%s has no property %s", class, name)
				}
				continue
			}
			converted, ok := p.convert(value)
			if !ok {
				v.mistake("%s.%s cannot be a %T", class, name, value)
			}
			o.values[fold(name)] = converted
		}
	}
	return o
}

func (v *view) mistake(format string, args ...any) {
	if v.err == nil {
		v.err = fault(hyperv.Unexpected, "fakewmi: %s", fmt.Sprintf(format, args...))
	}
}

// find is the instance at a path, which must be of a class. The server is not looked
// at: a method gets paths of other servers refused as what does not exist.
func (v *view) find(path, class string) (*Object, bool) {
	p, ok := v.local(path)
	if !ok || p.isClass() {
		return nil, false
	}
	c, ok := v.class(p.class)
	if !ok || !c.Is(class) && class != "" {
		return nil, false
	}
	for _, o := range v.instances(p.class) {
		if p.names(o) {
			return o, true
		}
	}
	return nil, false
}

// local parses a path and is not ok for one that leads elsewhere.
func (v *view) local(path string) (objectPath, bool) {
	p, ok := parsePath(path)
	if !ok {
		return p, false
	}
	if p.namespace != "" {
		if name, _, err := findNamespace(p.namespace); err != nil || name != v.name {
			return p, false
		}
	}
	here := p.server == "" || p.server == "." || gpu.SameID(p.server, v.host.Name)
	return p, here
}

func (v *view) namespaces() []*Object {
	names := []string{"cimv2", "default"}
	if !v.machine.faults.isHidden(foldSlashes(hyperv.Virtualization)) {
		names = append(names, "virtualization")
	}
	if _, set := v.machine.faults.clusterService(); set || v.host.Cluster != nil {
		names = append(names, "MSCluster")
	}
	var out []*Object
	for _, name := range names {
		out = append(out, v.make("__NAMESPACE", fields{"Name": name}))
	}
	return out
}
