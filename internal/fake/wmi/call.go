package fakewmi

import (
	"context"
	"maps"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// invocation is one call of a method.
type invocation struct {
	*view
	ctx    context.Context
	target *Object
	method *Method
	in     *Object
	// out takes the out parameters and the return value of a call that answers at once.
	out *Object
}

// operation is what a method does. Its error is a *refusal, an error of the simulated
// host, or a fault of WMI.
type operation func(*invocation) error

// operations are the methods that are answered, by class and name.
func operations() map[string]map[string]operation {
	return map[string]map[string]operation{
		"Msvm_ComputerSystem":                   {"RequestStateChange": (*invocation).requestStateChange},
		"Msvm_ShutdownComponent":                {"InitiateShutdown": (*invocation).initiateShutdown},
		"Msvm_ConcreteJob":                      {"GetError": (*invocation).jobError, "GetErrorEx": (*invocation).jobErrors},
		"Msvm_VirtualSystemManagementService":   managementOperations(),
		"Msvm_ResourcePoolConfigurationService": poolOperations(),
		"Msvm_AssignableDeviceService":          deviceOperations(),
		"Win32_PnPEntity":                       entityOperations(),
		"StdRegProv":                            registryOperations(),
		"MSCluster_Cluster":                     {"GetNodeClusterState": (*invocation).nodeClusterState},
		"MSCluster_Node":                        nodeOperations(),
		"MSCluster_ResourceGroup":               groupOperations(),
		"MSCluster_Resource":                    resourceOperations(),
	}
}

// Call calls a method of an instance, or of a class if it is static. The answer holds
// the out parameters and ReturnValue; it is nil for a method that has neither.
func (n *Namespace) Call(ctx context.Context, path, method string, in *Object) (*Object, error) {
	out, err := n.call(ctx, path, method, in)
	if err != nil {
		return nil, faultOf(ctx, "call "+method, err)
	}
	return out, nil
}

func (n *Namespace) call(ctx context.Context, path, name string, in *Object) (*Object, error) {
	if err := n.machine.faults.strike(n.name, false); err != nil {
		return nil, err
	}
	v, err := n.look(ctx)
	if err != nil {
		return nil, err
	}
	target, err := v.at(path)
	if err != nil {
		return nil, err
	}
	m, ok := target.Class.Method(name)
	if !ok {
		return nil, fault(hyperv.InvalidMethod, "%s has no method %s", target.Class.Name, name)
	}
	if err := n.machine.faults.deny(target.Class.Name + "." + m.Name); err != nil {
		return nil, err
	}
	if target.class && !m.Static {
		return nil, fault(invalidMethodParameters, "%s is called on an instance", m.Name)
	}
	if err := m.accept(in); err != nil {
		return nil, err
	}
	if in == nil {
		in = (&Class{Name: parameters, Properties: m.In}).New()
	}
	c := &invocation{view: v, ctx: ctx, target: target, method: m, in: in, out: m.Results()}
	return c.run()
}

// accept checks in parameters: their names and types must be the method's.
func (m *Method) accept(in *Object) error {
	if in == nil {
		return nil
	}
	for _, given := range in.Class.Properties {
		known := false
		for _, p := range m.In {
			if strings.EqualFold(p.Name, given.Name) && p.Type == given.Type && p.Array == given.Array {
				known = true
			}
		}
		if !known && in.values[fold(given.Name)] != nil {
			return fault(invalidMethodParameters, "%s has no in parameter %s of type %s", m.Name, given.Name, given.describe())
		}
	}
	return nil
}

func (c *invocation) run() (*Object, error) {
	if value, ok := c.machine.faults.takeAnswer(c.method.Name); ok {
		return c.answer(&refusal{code: value})
	}
	for _, p := range c.method.In {
		if c.in.values[fold(p.Name)] != nil || p.optional {
			continue
		}
		// Hyper-V answers with a return value, other providers leave it to WMI.
		if c.name == hyperv.Virtualization {
			return c.answer(refuse(rvInvalidParameter, "%s is missing", p.Name))
		}
		return nil, fault(invalidMethodParameters, "%s needs %s", c.method.Name, p.Name)
	}
	operation := operations()[c.target.Class.Name][c.method.Name]
	if operation == nil {
		return nil, fault(hyperv.Unexpected, "fakewmi: nothing answers %s.%s", c.target.Class.Name, c.method.Name)
	}
	return c.answer(operation(c))
}

// answer is what the caller gets for an operation's error.
func (c *invocation) answer(err error) (*Object, error) {
	if err == nil {
		err = c.err
	}
	if isFault(err) || (err != nil && c.method.Void) {
		return nil, err
	}
	if c.out == nil || c.method.Void {
		return c.out, nil
	}
	if err != nil {
		c.out = c.method.Results()
		return c.out, c.out.Set(returnValue, uint64(refusalOf(err).code))
	}
	if v, _ := c.out.Get(returnValue); v == nil {
		return c.out, c.out.Set(returnValue, uint64(rvCompleted))
	}
	return c.out, nil
}

// job does what a call asks for: at once if the method was made synchronous, else in
// a job. What effect puts into its argument are the out parameters, which a job has
// nobody to give to.
func (c *invocation) job(kind uint64, effect func(context.Context, *Object) error) error {
	return c.jobThen(kind, effect, func() {})
}

// jobThen is job with what happens at its end, however it ends.
func (c *invocation) jobThen(kind uint64, effect func(context.Context, *Object) error, end func()) error {
	method, faults := c.method.Name, &c.machine.faults
	act := func(ctx context.Context, out *Object) error {
		defer end()
		if failure, ok := faults.takeFailure(method); ok {
			return &failure
		}
		return effect(ctx, out)
	}
	if faults.isSynchronous(method) {
		return act(c.ctx, c.out)
	}
	results := c.method.Results()
	own := *c.view // the job has the other from now on
	own.classes, own.objects = maps.Clone(own.classes), maps.Clone(own.objects)
	id := c.machine.jobs.begin(method, kind, faults.time(), func(ctx context.Context) error { return act(ctx, results) })
	if faults.takeDrop(method) {
		c.machine.jobs.forget(id)
	}
	job := own.make("Msvm_ConcreteJob", fields{"InstanceID": id})
	if err := c.out.Set("Job", job.Path); err != nil {
		return err
	}
	return c.out.Set(returnValue, uint64(rvJobStarted))
}

// embedded reads an in parameter that is an instance as text. It must be of a class.
func (c *invocation) embedded(text, class string) (*Object, error) {
	o, err := parseEmbedded(text, c.class)
	if err != nil {
		return nil, refuse(rvInvalidParameter, "no instance of %s: %v", class, err)
	}
	if !o.Class.Is(class) {
		return nil, refuse(rvInvalidParameter, "an instance of %s instead of %s", o.Class.Name, class)
	}
	return o, nil
}
