package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func deviceScenarios() []scenario {
	return append(dismountScenarios(), assignmentScenarios()...)
}

func dismountScenarios() []scenario {
	return []scenario{
		{
			name:  "a GPU is dismounted",
			do:    dismountByForce(gpuA),
			again: true,
			then:  []check{isDismounted(gpuA, true), notPartitionable(gpuA), hasStatus(gpuA, gpu.ReadyForDDA), hasCount(gpuB, 4)},
		},
		{
			name:  "a dismounted GPU is dismounted already",
			do:    dismount(gpuC),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "ids are compared without case",
			do:    dismountByForce(strings.ToLower(gpuA)),
			again: true,
			then:  []check{isDismounted(gpuA, true)},
		},
		{
			name:   "a partition in use keeps the GPU mounted",
			given:  []given{hasOnly(gpuA)},
			first:  []action{withPartition(alpha)},
			do:     dismountByForce(gpuA),
			fails:  backend.InUse,
			saying: []string{"alpha"},
			then:   []check{isDismounted(gpuA, false), hasSeats(alpha, 1)},
		},
		{
			name:  "the GPU of the host's console stays",
			given: []given{drivesTheConsole(gpuA)},
			do:    dismountByForce(gpuA),
			fails: backend.InUse,
			then:  []check{isDismounted(gpuA, false), hasCount(gpuA, 4)},
		},
		{
			name:  "a device that is not assignable cannot be dismounted",
			given: []given{isNotAssignable(gpuA)},
			do:    dismountByForce(gpuA),
			fails: backend.NotSupported,
			then:  []check{isDismounted(gpuA, false), hasStatus(gpuA, gpu.NotAssignable)},
		},
		{
			name:  "a device that fails the platform's checks needs force",
			with:  []arrangement{needsForce(gpuA)},
			do:    dismount(gpuA),
			fails: backend.NotSupported,
			then:  []check{isDismounted(gpuA, false)},
		},
		{
			name:  "force skips the platform's checks",
			with:  []arrangement{needsForce(gpuA)},
			do:    dismountByForce(gpuA),
			again: true,
			then:  []check{isDismounted(gpuA, true)},
		},
		{
			name:  "a GPU that is not there is not found",
			do:    dismountByForce(noGPU),
			fails: backend.NotFound,
		},
		{
			name:  "a GPU is mounted",
			do:    mount(gpuC),
			again: true,
			then:  []check{isDismounted(gpuC, false)},
		},
		{
			name:  "a mounted GPU has the partitions that it had",
			first: []action{setCount(gpuA, 8), dismountByForce(gpuA)},
			do:    mount(gpuA),
			again: true,
			then:  []check{hasCount(gpuA, 8), eachPartitionHas(gpuA, wholeVRAM/8), hasStatus(gpuA, gpu.Partitioned)},
		},
		{
			name:  "a GPU that was never dismounted is mounted already",
			do:    mount(gpuA),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "a GPU that is not there cannot be mounted",
			do:    mount(noGPU),
			fails: backend.NotFound,
		},
		{
			name:   "a member of a pool is not mounted",
			first:  []action{withPool(pool, gpuC)},
			do:     mount(gpuC),
			fails:  backend.InUse,
			saying: []string{pool},
			then:   []check{isDismounted(gpuC, true), poolHas(pool, gpuC)},
		},
		{
			name:   "a device that a running VM has is not mounted",
			first:  []action{addNamed(alpha, gpuC), start(alpha)},
			do:     mount(gpuC),
			fails:  backend.InUse,
			saying: []string{"alpha"},
			then:   []check{isDismounted(gpuC, true), isNow(alpha, gpu.VMRunning)},
		},
		{
			name:  "a device that a VM names while it is off is not mounted",
			first: []action{addNamed(alpha, gpuC)},
			do:    mount(gpuC),
			fails: backend.InUse,
			then:  []check{isDismounted(gpuC, true), hasDevices(alpha, "="+gpuC)},
		},
	}
}

func assignmentScenarios() []scenario {
	return []scenario{
		{
			name: "a named device is assigned",
			do:   addNamed(alpha, gpuC),
			then: []check{hasDevices(alpha, "="+gpuC), hasStatus(gpuC, gpu.Assigned), hasStatus(gpuD, gpu.ReadyForDDA)},
		},
		{
			name: "a device of a pool is assigned without saying which",
			do:   each(withPool(pool, gpuC, gpuD), addFromPool(alpha, pool)),
			then: []check{hasDevices(alpha, pool), hasStatus(gpuC, gpu.ReadyForDDA)},
		},
		{
			name:  "two devices of a pool are two settings",
			first: []action{withPool(pool, gpuC, gpuD), addFromPool(alpha, pool)},
			do:    addFromPool(alpha, pool),
			then:  []check{hasDevices(alpha, pool, pool)},
		},
		{
			name:  "a generation 1 VM takes a whole device",
			given: []given{isGeneration1(alpha)},
			do:    addNamed(alpha, gpuC),
			then:  []check{hasDevices(alpha, "="+gpuC)},
		},
		{
			name:  "Hyper-V takes a partition and a device on one VM",
			first: []action{addAdapter(alpha), addNamed(alpha, gpuC)},
			do:    start(alpha),
			then:  []check{isNow(alpha, gpu.VMRunning), hasSeats(alpha, 1), hasStatus(gpuC, gpu.Assigned)},
		},
		{
			name:   "a mounted GPU cannot be assigned",
			do:     addNamed(alpha, gpuA),
			fails:  backend.InvalidState,
			saying: []string{"dismounted"},
			then:   []check{hasDevices(alpha)},
		},
		{
			name:  "a GPU that is not there cannot be assigned",
			do:    addNamed(alpha, noGPU),
			fails: backend.NotFound,
			then:  []check{hasDevices(alpha)},
		},
		{
			name:  "a pool that is not there gives no device",
			do:    addFromPool(alpha, "nowhere"),
			fails: backend.NotFound,
			then:  []check{hasDevices(alpha)},
		},
		{
			name:  "a device is either named or from a pool",
			first: []action{withPool(pool, gpuD)},
			do:    addDevice(alpha, gpu.DeviceAssignment{Pool: pool, GPU: gpuC}),
			fails: backend.InvalidParameter,
			then:  []check{hasDevices(alpha)},
		},
		{
			name:  "a device setting that says nothing is refused",
			do:    addDevice(alpha, gpu.DeviceAssignment{}),
			fails: backend.InvalidParameter,
			then:  []check{hasDevices(alpha)},
		},
		{
			name:  "a running VM takes no device",
			first: []action{start(alpha)},
			do:    addNamed(alpha, gpuC),
			fails: backend.InvalidState,
			then:  []check{hasDevices(alpha)},
		},
		{
			name:  "a saved VM takes no device",
			given: []given{isInState(alpha, gpu.VMSaved)},
			do:    addNamed(alpha, gpuC),
			fails: backend.InvalidState,
			then:  []check{hasDevices(alpha)},
		},
		{
			name:  "a policy that asks for supported devices refuses a device",
			given: []given{policyRequires(nil, yes())},
			do:    addNamed(alpha, gpuC),
			fails: backend.AccessDenied,
			then:  []check{hasDevices(alpha)},
		},
		{
			name:   "a device that a running VM has is not given to another",
			first:  []action{addNamed(alpha, gpuC), start(alpha)},
			do:     addNamed(beta, gpuC),
			fails:  backend.InUse,
			saying: []string{"alpha"},
			then:   []check{hasDevices(beta)},
		},
		{
			name:  "a VM gets a device of the pool when it starts",
			first: []action{withPool(pool, gpuC), addFromPool(alpha, pool)},
			do:    start(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMRunning), hasDevices(alpha, pool+"="+gpuC), hasStatus(gpuC, gpu.Assigned)},
		},
		{
			name:  "two settings get two devices",
			first: []action{withPool(pool, gpuC, gpuD), addFromPool(alpha, pool), addFromPool(alpha, pool)},
			do:    start(alpha),
			then:  []check{hasDevices(alpha, pool+"="+gpuC, pool+"="+gpuD)},
		},
		{
			name:   "a VM stays off when the pool has no free device",
			first:  []action{withPool(pool, gpuC), addFromPool(alpha, pool), addFromPool(beta, pool), start(alpha)},
			do:     start(beta),
			fails:  backend.Insufficient,
			saying: []string{pool},
			then:   []check{isNow(beta, gpu.VMOff), hasDevices(beta, pool), hasDevices(alpha, pool+"="+gpuC)},
		},
		{
			name:  "a VM that goes off gives the device of the pool back",
			first: []action{withPool(pool, gpuC), addFromPool(alpha, pool), start(alpha)},
			do:    shutDown(alpha),
			then:  []check{hasDevices(alpha, pool), hasStatus(gpuC, gpu.ReadyForDDA)},
		},
		{
			name:  "a device that was given back is the next VM's",
			first: []action{withPool(pool, gpuC), addFromPool(alpha, pool), addFromPool(beta, pool), start(alpha), turnOff(alpha)},
			do:    start(beta),
			then:  []check{hasDevices(beta, pool+"="+gpuC), hasDevices(alpha, pool)},
		},
		{
			name:   "a VM with too little memory-mapped IO space below 4 GiB does not start",
			given:  []given{hasMMIO(alpha, 32*gpu.MiB, 40000*gpu.MiB)},
			first:  []action{addNamed(alpha, gpuC)},
			do:     start(alpha),
			fails:  backend.Insufficient,
			saying: []string{"0x800705AA"},
			then:   []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "a VM with too little memory-mapped IO space above 4 GiB does not start",
			given: []given{hasMMIO(alpha, 3072*gpu.MiB, 512*gpu.MiB)},
			first: []action{addNamed(alpha, gpuC)},
			do:    start(alpha),
			fails: backend.Insufficient,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "memory-mapped IO space must hold all devices together",
			given: []given{hasMMIO(alpha, 3072*gpu.MiB, 20000*gpu.MiB)},
			first: []action{withPool(pool, gpuC, gpuD), addFromPool(alpha, pool), addFromPool(alpha, pool)},
			do:    start(alpha),
			fails: backend.Insufficient,
			then:  []check{isNow(alpha, gpu.VMOff), hasDevices(alpha, pool, pool)},
		},
		{
			name:  "a device setting is removed",
			first: []action{addNamed(alpha, gpuC)},
			do:    removeDevice(alpha, 0),
			then:  []check{hasDevices(alpha), hasStatus(gpuC, gpu.ReadyForDDA)},
		},
		{
			name:  "only the named device setting is removed",
			first: []action{addNamed(alpha, gpuC), addNamed(alpha, gpuD)},
			do:    removeDevice(alpha, 0),
			then:  []check{hasDevices(alpha, "="+gpuD)},
		},
		{
			name:  "a device setting that is not there is removed already",
			do:    removeDeviceNamed(alpha, "00000000-0000-0000-0000-000000000000"),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "a running VM keeps its device",
			first: []action{addNamed(alpha, gpuC), start(alpha)},
			do:    removeDevice(alpha, 0),
			fails: backend.InvalidState,
			then:  []check{hasDevices(alpha, "="+gpuC)},
		},
	}
}
