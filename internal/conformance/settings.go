package conformance

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func settingsScenarios() []scenario {
	low, high := 1024*gpu.MiB, 34000*gpu.MiB
	odd := 1024*gpu.MiB + 1
	stop, offline := gpu.StopShutDown, gpu.OfflineForcedShutdown
	noAction, noOffline := gpu.StopAction("explode"), gpu.OfflineAction("explode")
	mmio := gpu.VMSettings{LowMemoryMappedIOSpace: &low, HighMemoryMappedIOSpace: &high}
	cache := gpu.VMSettings{GuestControlledCache: no()}
	atStop := gpu.VMSettings{AutomaticStopAction: &stop}
	inCluster := gpu.VMSettings{OfflineAction: &offline}

	return []scenario{
		{
			name:  "memory-mapped IO space is set on a VM that is off",
			do:    apply(alpha, mmio),
			again: true,
			then:  []check{hasSettings(alpha, mmio), keepsOtherSettings(alpha, mmio)},
		},
		{
			name:  "only what is asked for is written",
			do:    apply(alpha, gpu.VMSettings{LowMemoryMappedIOSpace: &low}),
			again: true,
			then:  []check{keepsOtherSettings(alpha, gpu.VMSettings{LowMemoryMappedIOSpace: &low}), keepsOtherSettings(beta, gpu.VMSettings{})},
		},
		{
			name:  "nothing asked for is nothing written",
			do:    apply(alpha, gpu.VMSettings{}),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "memory-mapped IO space needs the VM off",
			first: []action{start(alpha)},
			do:    apply(alpha, mmio),
			fails: backend.InvalidState,
			then:  []check{keepsOtherSettings(alpha, gpu.VMSettings{})},
		},
		{
			name:  "saved is not off",
			given: []given{isInState(alpha, gpu.VMSaved)},
			do:    apply(alpha, mmio),
			fails: backend.InvalidState,
		},
		{
			name:  "the memory-mapped IO space that a running VM has is no change",
			first: []action{apply(alpha, mmio), start(alpha)},
			do:    apply(alpha, mmio),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "cache types are set on a VM that is off",
			do:    apply(alpha, cache),
			again: true,
			then:  []check{hasSettings(alpha, cache), keepsOtherSettings(alpha, cache)},
		},
		{
			name:  "cache types need the VM off",
			first: []action{start(alpha)},
			do:    apply(alpha, cache),
			fails: backend.InvalidState,
		},
		{
			name:  "the stop action is set on a running VM",
			first: []action{start(alpha)},
			do:    apply(alpha, atStop),
			again: true,
			then:  []check{hasSettings(alpha, atStop), isNow(alpha, gpu.VMRunning)},
		},
		{
			name:  "the offline action is set on a clustered VM",
			given: []given{isClustered(alpha)},
			do:    apply(alpha, inCluster),
			again: true,
			then:  []check{hasSettings(alpha, inCluster)},
		},
		{
			name:  "the offline action is set while the VM runs",
			given: []given{isClustered(alpha)},
			first: []action{start(alpha)},
			do:    apply(alpha, inCluster),
			again: true,
			then:  []check{hasSettings(alpha, inCluster), isNow(alpha, gpu.VMRunning)},
		},
		{
			name:  "a VM that is not clustered has no offline action",
			do:    apply(alpha, inCluster),
			fails: backend.NotSupported,
		},
		{
			name:  "all settings are written or none",
			do:    apply(alpha, mmio.Overlay(inCluster)),
			fails: backend.NotSupported,
			then:  []check{keepsOtherSettings(alpha, gpu.VMSettings{})},
		},
		{
			name:  "memory-mapped IO space comes in whole megabytes",
			do:    apply(alpha, gpu.VMSettings{LowMemoryMappedIOSpace: &odd}),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a stop action that does not exist is refused",
			do:    apply(alpha, gpu.VMSettings{AutomaticStopAction: &noAction}),
			fails: backend.InvalidParameter,
		},
		{
			name:  "an offline action that does not exist is refused",
			given: []given{isClustered(alpha)},
			do:    apply(alpha, gpu.VMSettings{OfflineAction: &noOffline}),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a VM that is not there has no settings",
			do:    apply(noVM, mmio),
			fails: backend.NotFound,
		},
	}
}
