package core

import (
	"context"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Import imports an object as `terraform import` does.
func (w *Workspace) Import(ctx context.Context, to, id string) error {
	a, err := traversal(to)
	if err != nil {
		return err
	}
	c, diags := w.validate(ctx)
	if diags.Failed() {
		return failed{diags}
	}
	b := c.resources[a.resource]
	if b == nil {
		return failed{Diagnostics{failure("Resource address does not exist in the configuration", "%s", to)}}
	}
	if w.state.object(a) != nil {
		return failed{Diagnostics{failure("Resource already managed by Terraform", "Terraform is already managing a remote object for %s.", to)}}
	}
	s := w.state.clone()
	i := w.walk(ctx, planning, c, s)
	defer i.stop()
	g := i.layOut(func(*block) bool { return true })
	i.order = &graph{nodes: g.nodes}
	if !i.configure(b.provider()) {
		return i.check()
	}
	o, ok := i.importObject(i.client(b.provider()), &importing{to: a, id: id, in: b}, b)
	if !ok {
		return i.check()
	}
	o.waits = i.waits()[b.key]
	s.set(a, b.provider(), o)
	w.state = s
	return nil
}

// importObject has a provider import an object, and reads it.
func (w *walk) importObject(c *client, x *importing, b *block) (*object, bool) {
	s, at := c.resources[b.typ], x.to.String()
	req := &tfprotov6.ImportResourceStateRequest{TypeName: b.typ, ID: x.id}
	if x.identity != cty.NilVal {
		ty, ok := c.identities[b.typ]
		if !ok {
			return nil, w.add(failure("Resource type does not support import by identity", "%s has no identity.", b.typ))
		}
		want, err := convert.Convert(withNulls(x.identity, ty), ty)
		if err != nil {
			return nil, w.add(failure("Invalid import identity", "%v", err).on(at))
		}
		d, err := encode(want, ty)
		if err != nil {
			return nil, w.add(broken(err)...)
		}
		req.Identity = &tfprotov6.ResourceIdentityData{IdentityData: d}
	}
	reply, err := c.server.ImportResourceState(w.ctx, req)
	if err != nil {
		return nil, w.add(broken(err)...)
	}
	if !w.add(fromProvider(reply.Diagnostics, at, x.in)...) {
		return nil, false
	}
	if len(reply.ImportedResources) != 1 {
		return nil, w.add(failure("Import returned no resources", "The provider returned %d objects for %s; more or less than one %v.",
			len(reply.ImportedResources), at, errUnsupported))
	}
	got := reply.ImportedResources[0]
	v, _, err := decode(got.State, s.ty)
	if err != nil {
		return nil, w.add(broken(err)...)
	}
	identity, err := c.readIdentity(b.typ, got.Identity)
	if err != nil {
		return nil, w.add(broken(err)...)
	}
	o, diags := c.read(w.ctx, x.to, &object{value: v, private: got.Private, identity: identity, version: s.version}, b)
	if !w.add(diags...) {
		return nil, false
	}
	if o == nil {
		return nil, w.add(failure("Cannot import non-existent remote object",
			"While attempting to import an existing object to %q, the provider detected that no object exists with the given id. "+
				"Only pre-existing objects can be imported; check that the id is correct and that it is associated with the provider's configured "+
				"region or endpoint, or use \"terraform apply\" to create a new remote object for this resource.", at).on(at))
	}
	return o, true
}

// withNulls adds the attributes of an object type that a value lacks.
func withNulls(v cty.Value, ty cty.Type) cty.Value {
	values := v.AsValueMap()
	if values == nil {
		values = map[string]cty.Value{}
	}
	for name, t := range ty.AttributeTypes() {
		if _, ok := values[name]; !ok {
			values[name] = cty.NullVal(t)
		}
	}
	return cty.ObjectVal(values)
}
