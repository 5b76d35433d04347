package fakewmi

import (
	"context"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func poolOperations() map[string]operation {
	return map[string]operation{
		"CreatePool":          (*invocation).createPool,
		"ModifyPoolResources": (*invocation).modifyPoolResources,
		"ModifyPoolSettings":  (*invocation).modifyPoolSettings,
		"DeletePool":          (*invocation).deletePool,
	}
}

// createPool makes a pool of devices below the primordial one.
func (c *invocation) createPool() error {
	s, err := c.embedded(c.in.text("PoolSettings"), "Msvm_ResourcePoolSettingData")
	if err != nil {
		return err
	}
	if kind, _ := s.number("ResourceType"); kind != pciExpressType || s.text("ResourceSubType") != pciExpressSubType {
		return refuse(rvNotSupported, "pools of %q are nothing that a fleet has", s.text("ResourceSubType"))
	}
	name := s.text("PoolID")
	if name == "" || strings.EqualFold(name, "Primordial") {
		return refuse(rvInvalidParameter, "the name %q is that of the primordial pool", name)
	}
	if _, ok := c.host.Pool(name); ok {
		return refuse(rvObjectExists, "there is a pool %s", name)
	}
	members, err := c.members(name, c.machine.faults.wantsChildPoolID())
	if err != nil {
		return err
	}
	engine, path := c.machine.host, c.poolPath(name)
	return c.job(jobCreatePool, func(ctx context.Context, out *Object) error {
		if err := engine.CreatePool(ctx, name); err != nil {
			return err
		}
		if len(members) > 0 {
			if err := engine.SetPoolMembers(ctx, name, members); err != nil {
				_ = engine.DeletePool(ctx, name) // the first failure is what the caller gets
				return err
			}
		}
		return out.Set("Pool", path)
	})
}

// members reads ParentPools and AllocationSettings: one setting for each parent, which
// is the primordial pool. They are all the members that the pool has from now on.
func (c *invocation) members(child string, childPoolID bool) ([]string, error) {
	parents, settings := c.in.texts("ParentPools"), c.in.texts("AllocationSettings")
	if len(parents) == 0 || len(parents) != len(settings) {
		return nil, refuse(rvInvalidParameter, "%d parents with %d allocation settings", len(parents), len(settings))
	}
	members := []string{}
	for i, path := range parents {
		if _, primordial, ok := c.poolAt(path); !ok || !primordial {
			return nil, refuse(rvInvalidParameter, "%s is not the primordial pool of devices", path)
		}
		s, err := c.embedded(settings[i], pciExpressResource.class)
		if err != nil {
			return nil, err
		}
		if err := checkAllocation(s, child, childPoolID); err != nil {
			return nil, err
		}
		for _, resource := range s.texts("HostResource") {
			g, ok := c.assignableAt(resource)
			if !ok {
				return nil, refuse(rvInvalidParameter, "%s is no assignable device", resource)
			}
			members = append(members, g.ID)
		}
	}
	return members, nil
}

// checkAllocation checks a pool's allocation setting. It names the pool that it draws
// from, the primordial one, by no name; some hosts want the pool's own.
func checkAllocation(s *Object, child string, childPoolID bool) error {
	if kind, _ := s.number("ResourceType"); kind != pciExpressType || s.text("ResourceSubType") != pciExpressSubType {
		return refuse(rvInvalidParameter, "an allocation setting of resource type %d", kind)
	}
	own := gpu.SameID(s.text("PoolID"), child)
	if !own && (childPoolID || s.text("PoolID") != "") {
		return refuse(rvInvalidParameter, "an allocation setting with PoolID %q", s.text("PoolID"))
	}
	for _, figure := range []string{"Reservation", "Limit", "VirtualQuantity", "Weight"} {
		if n, _ := s.number(figure); childPoolID && n != 0 {
			return refuse(rvInvalidParameter, "an allocation setting with %s %d", figure, n)
		}
	}
	return nil
}

// child is the pool that a call is about. The primordial one cannot be changed.
func (c *invocation) child(parameter string) (string, error) {
	name, primordial, ok := c.poolAt(c.in.text(parameter))
	if !ok || primordial {
		return "", refuse(rvInvalidParameter, "%s is no pool of devices that can be changed", c.in.text(parameter))
	}
	return name, nil
}

func (c *invocation) modifyPoolResources() error {
	name, err := c.child("ChildPool")
	if err != nil {
		return err
	}
	members, err := c.members(name, false)
	if err != nil {
		return err
	}
	engine := c.machine.host
	return c.job(jobModifyPool, func(ctx context.Context, _ *Object) error { return engine.SetPoolMembers(ctx, name, members) })
}

// modifyPoolSettings renames a pool, which a fleet cannot.
func (c *invocation) modifyPoolSettings() error {
	name, err := c.child("ChildPool")
	if err != nil {
		return err
	}
	s, err := c.embedded(c.in.text("PoolSettings"), "Msvm_ResourcePoolSettingData")
	if err != nil {
		return err
	}
	if s.text("PoolID") != name {
		return refuse(rvNotSupported, "a fleet's pools keep their names")
	}
	return c.job(jobPoolSettings, func(context.Context, *Object) error { return nil })
}

func (c *invocation) deletePool() error {
	name, err := c.child("Pool")
	if err != nil {
		return err
	}
	engine := c.machine.host
	return c.job(jobDeletePool, func(ctx context.Context, _ *Object) error { return engine.DeletePool(ctx, name) })
}
