package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func poolScenarios() []scenario {
	return []scenario{
		{
			name:  "a pool is created empty",
			do:    createPool(pool),
			again: true,
			then:  []check{poolsAre(pool), poolHas(pool)},
		},
		{
			name:  "a pool that is there is created already",
			first: []action{withPool(pool, gpuC)},
			do:    createPool(strings.ToUpper(pool)),
			again: true,
			then:  []check{unchanged, poolsAre(pool), poolHas(pool, gpuC)},
		},
		{
			name:  "the name of the pool of all devices is taken",
			do:    createPool("primordial"),
			fails: backend.InvalidParameter,
			then:  []check{poolsAre()},
		},
		{
			name:  "a pool has a name",
			do:    createPool(""),
			fails: backend.InvalidParameter,
			then:  []check{poolsAre()},
		},
		{
			name:  "a dismounted GPU becomes a member",
			first: []action{createPool(pool)},
			do:    setMembers(pool, gpuC),
			again: true,
			then:  []check{poolHas(pool, gpuC), hasStatus(gpuC, gpu.ReadyForDDA)},
		},
		{
			name:  "members are set as a whole",
			given: []given{hasPool(pool, gpuC)},
			do:    setMembers(pool, gpuD),
			again: true,
			then:  []check{poolHas(pool, gpuD)},
		},
		{
			name:  "members have no order",
			first: []action{withPool(pool, gpuC, gpuD)},
			do:    setMembers(pool, gpuD, gpuC),
			again: true,
			then:  []check{poolHas(pool, gpuC, gpuD)},
		},
		{
			name:  "a member that is named twice is one",
			first: []action{createPool(pool)},
			do:    setMembers(pool, gpuC, strings.ToLower(gpuC)),
			again: true,
			then:  []check{poolHas(pool, gpuC)},
		},
		{
			name:  "pool names are compared without case",
			first: []action{createPool(pool)},
			do:    setMembers(strings.ToUpper(pool), gpuC),
			again: true,
			then:  []check{poolsAre(pool), poolHas(pool, gpuC)},
		},
		{
			name:  "a pool is emptied",
			first: []action{withPool(pool, gpuC, gpuD)},
			do:    setMembers(pool),
			again: true,
			then:  []check{poolHas(pool), isDismounted(gpuC, true)},
		},
		{
			name:   "a mounted GPU is no member",
			first:  []action{createPool(pool)},
			do:     setMembers(pool, gpuC, gpuA),
			fails:  backend.InvalidState,
			saying: []string{gpuA},
			then:   []check{poolHas(pool)},
		},
		{
			name:   "a GPU that is not there is no member",
			first:  []action{createPool(pool)},
			do:     setMembers(pool, noGPU),
			fails:  backend.NotFound,
			saying: []string{noGPU},
			then:   []check{poolHas(pool)},
		},
		{
			name:   "a GPU is in one pool only",
			first:  []action{withPool("first", gpuC), createPool("second")},
			do:     setMembers("second", gpuC),
			fails:  backend.InUse,
			saying: []string{"first"},
			then:   []check{poolHas("first", gpuC), poolHas("second")},
		},
		{
			name:  "a GPU changes its pool in two steps",
			first: []action{withPool("first", gpuC), createPool("second"), setMembers("first")},
			do:    setMembers("second", gpuC),
			again: true,
			then:  []check{poolHas("first"), poolHas("second", gpuC)},
		},
		{
			name:   "a member that a VM has does not leave",
			first:  []action{withPool(pool, gpuC, gpuD), addFromPool(alpha, pool), addFromPool(alpha, pool), start(alpha)},
			do:     setMembers(pool, gpuC),
			fails:  backend.InUse,
			saying: []string{gpuD, "alpha"},
			then:   []check{poolHas(pool, gpuC, gpuD)},
		},
		{
			name:  "a member that no VM has leaves while another is in use",
			first: []action{withPool(pool, gpuC), addFromPool(alpha, pool), start(alpha), setMembers(pool, gpuC, gpuD)},
			do:    setMembers(pool, gpuC),
			again: true,
			then:  []check{poolHas(pool, gpuC), hasDevices(alpha, pool+"="+gpuC)},
		},
		{
			name:  "a pool that is not there has no members",
			do:    setMembers("nowhere", gpuC),
			fails: backend.NotFound,
			then:  []check{poolsAre()},
		},
		{
			name:  "a pool is deleted and its members stay dismounted",
			first: []action{withPool(pool, gpuC)},
			do:    deletePool(pool),
			again: true,
			then:  []check{poolsAre(), isDismounted(gpuC, true), hasStatus(gpuC, gpu.ReadyForDDA)},
		},
		{
			name:  "a pool that is not there is deleted already",
			do:    deletePool("nowhere"),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:   "a pool that a running VM draws from stays",
			first:  []action{withPool(pool, gpuC), addFromPool(alpha, pool), start(alpha)},
			do:     deletePool(pool),
			fails:  backend.InUse,
			saying: []string{"alpha"},
			then:   []check{poolHas(pool, gpuC)},
		},
		{
			name:   "a pool that a VM draws from while it is off stays",
			first:  []action{withPool(pool, gpuC), addFromPool(alpha, pool)},
			do:     deletePool(strings.ToUpper(pool)),
			fails:  backend.InUse,
			saying: []string{"alpha"},
			then:   []check{poolHas(pool, gpuC), hasDevices(alpha, pool)},
		},
		{
			name:  "a pool goes once no VM draws from it",
			first: []action{withPool(pool, gpuC), addFromPool(alpha, pool), removeDevice(alpha, 0)},
			do:    deletePool(pool),
			again: true,
			then:  []check{poolsAre()},
		},
	}
}
