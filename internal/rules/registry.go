package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Where the platform's vendor documents what the rules rest on.
const (
	srcPartitioning = "https://learn.microsoft.com/windows-server/virtualization/hyper-v/gpu-partitioning"
	srcAssign       = "https://learn.microsoft.com/windows-server/virtualization/hyper-v/partition-assign-vm-gpu"
	srcClusteredVM  = "https://learn.microsoft.com/windows-server/virtualization/hyper-v/deploy/use-gpu-with-clustered-vm"
	srcPlanDDA      = "https://learn.microsoft.com/windows-server/virtualization/hyper-v/plan/" +
		"plan-for-deploying-devices-using-discrete-device-assignment"
	srcAzureLocal  = "https://learn.microsoft.com/azure/azure-local/manage/gpu-preparation"
	srcMIG         = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
	srcMIGProfiles = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html"
	srcVGPU        = "https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/"
	srcLibvirt     = "https://libvirt.org/formatdomain.html#host-device-assignment"
	srcLibvirtNews = "https://libvirt.org/news.html#v9-7-0-2023-09-01"
	srcMPS         = "https://docs.nvidia.com/deploy/mps/index.html"
	srcPersistence = "https://docs.nvidia.com/deploy/driver-persistence/data-persistence.html"
	srcTimeSlicing = "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html"
	srcCDI         = "https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md"
	srcProject     = "" // follows from how this provider works
)

var (
	configs          = []gpu.ClaimKind{gpu.ClaimConfig}
	pools            = []gpu.ClaimKind{gpu.ClaimPool}
	assignments      = []gpu.ClaimKind{gpu.ClaimAssignment}
	configsAndPools  = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool}
	poolsAndVMs      = []gpu.ClaimKind{gpu.ClaimPool, gpu.ClaimAssignment}
	configsAndVMs    = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimAssignment}
	shares           = []gpu.ClaimKind{gpu.ClaimShare}
	configsAndShares = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimShare}
	poolsAndShares   = []gpu.ClaimKind{gpu.ClaimPool, gpu.ClaimShare}
	vmsAndShares     = []gpu.ClaimKind{gpu.ClaimAssignment, gpu.ClaimShare}
	allButVMs        = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool, gpu.ClaimShare}
	allButShares     = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool, gpu.ClaimAssignment}
	everyKindOfClaim = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool, gpu.ClaimAssignment, gpu.ClaimShare}
)

// registry holds every rule, in the order of the documentation: first what exists
// and whose it is, then what excludes what, then the hardware, then the VMs.
var registry = []Rule{
	{
		ID: "gpu-exists", Default: Error, Scope: HostScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkGPUExists,
		Sentence: "A GPU that is named by its id is on the host.",
	},
	{
		ID: change.Readable, Default: Error, Scope: HostScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkReadable, Fixed: true,
		Sentence: "What a change concerns can be read on its host.",
	},
	{
		ID: "nothing-selected", Default: Error, Scope: HostScope, Subjects: configs, Source: srcProject, check: checkNothingSelected,
		Sentence: "A partition config finds at least one GPU on every host that it names.",
	},
	{
		ID: "known-config", Default: Error, passes: true, Scope: FleetScope, Subjects: vmsAndShares, Source: srcProject, check: checkKnownConfig,
		Sentence: "The partition config of an assignment or a share is of a kind for it, and planned in this run or claimed on a host.",
	},
	{
		ID: "known-pool", Default: Error, passes: true, Scope: FleetScope, Subjects: vmsAndShares, Source: srcProject, check: checkKnownPool,
		Sentence: "The pool of an assignment or a share is planned in this run, claimed on a host, or on the VM's host.",
	},
	{
		ID: "unique-name", Default: Error, Scope: FleetScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkUniqueName,
		Sentence: "No two resources of one run manage the same partition config, pool, VM, or share of a host.",
	},
	{
		ID: "existing-pool", Default: Error, Scope: HostScope, Subjects: pools, Source: srcProject, check: checkExistingPool,
		Sentence: "A pool of that name that nobody manages is imported, not created again.",
	},
	{
		ID: "not-our-claim", Default: Error, Scope: HostScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkNotOurClaim,
		Sentence: "An object that another Terraform state manages is left to that state.",
	},
	{
		ID: "single-partition-per-vm", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcAssign, check: checkSinglePartition,
		Sentence: "A VM gets at most one GPU partition, or one vGPU.",
	},
	{
		ID: "dda-xor-partition", Default: Error, Scope: HostScope, Subjects: allButShares, Source: srcAzureLocal, check: checkDDAXorPartition,
		Sentence: "A physical GPU is either partitioned or given whole to VMs, never both.",
	},
	{
		ID: "one-config-per-gpu", Default: Error, Scope: HostScope, Subjects: configsAndPools, Source: srcProject, check: checkOneConfigPerGPU,
		Sentence: "One partition config covers a GPU, and one pool has it.",
	},
	{
		ID: vmXorShare, Default: Error, passes: true, Scope: HostScope, Subjects: allButVMs, Source: srcVGPU, check: checkVMXorShare,
		Sentence: "A GPU is for VMs (vGPUs, passthrough) or shared by containers, never both.",
	},
	{
		ID: "readable-records", Default: Error, Scope: HostScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkReadableRecords,
		Sentence: "The host's agent can read all that it has recorded; until then it changes nothing.",
	},
	{
		ID: "agent-knows", Default: Error, Fixed: true, Scope: FleetScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkAgentKnows,
		Sentence: "The agent of each host knows all that the change asks of it; an older one may not. No level lifts it: the agent refuses " +
			"such a change.",
	},
	{
		ID: "foreign-controller", Default: Error, Lenient: true, Scope: HostScope, Subjects: everyKindOfClaim, Source: srcProject,
		check: checkForeignController,
		Sentence: "No other software changes the layout of the GPUs; software that starts and stops VMs, or hands out GPUs whose MIG instances " +
			"change or that containers share, is a warning.",
	},
	{
		ID: "kind-on-platform", Default: Error, Scope: HostScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkKindOnPlatform,
		Sentence: "Partition configs of kind `gpu_p` are for Hyper-V hosts; those of kind `mig`, `vgpu`, `mps` and `time_slicing`, and shares, " +
			"for Linux hosts; a pool is of hosts of one platform, and it and an assignment have only settings that the platform has.",
	},
	{
		ID: "node-in-service", Default: Error, Scope: HostScope, Subjects: allButShares, Source: srcClusteredVM, check: checkNodeInService,
		Sentence: "Nothing is changed on a cluster node that is paused, draining, joining or down.",
	},
	{
		ID: "os-build", Default: Error, Lenient: true, Scope: HostScope, Subjects: allButShares, Source: srcPartitioning,
		kind: gpu.KindGPUP, check: checkOSBuild,
		Sentence: "GPU partitions and GPU pools in clusters need Windows Server 2025, Azure Local, or Azure Stack HCI from 22H2 on.",
	},
	{
		ID: "policy-gate", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcProject, check: checkPolicyGate,
		Sentence: "The host's policies RequireSecureDeviceAssignment and RequireSupportedDeviceAssignment do not forbid the assignment.",
	},
	{
		ID: "gpu-not-paravirtual", Default: Error, Scope: HostScope, Subjects: configsAndVMs, Source: srcAssign,
		kind: gpu.KindGPUP, check: checkNotParavirtual,
		Sentence: "Partitions come from GPUs with SR-IOV, not from paravirtualized ones (GPU-PV).",
	},
	{
		ID: "gpu-assignable", Default: Error, Scope: HostScope, Subjects: poolsAndVMs, Source: srcPlanDDA, check: checkGPUAssignable,
		Sentence: "A GPU used for DDA must be assignable: working, supported for DDA, and not driving the host's own display.",
	},
	{
		ID: "valid-partition-count", Default: Error, Scope: HostScope, Subjects: configs, Source: srcAssign,
		kind: gpu.KindGPUP, check: checkValidPartitionCount,
		Sentence: "The partition count is one that the GPU's driver accepts.",
	},
	{
		ID: "mig-profile-supported", Default: Error, Scope: HostScope, Subjects: configs, Source: srcMIGProfiles,
		kind: gpu.KindMIG, check: checkMIGProfileSupported,
		Sentence: "Every GPU of a config has the MIG profiles that it wants; while no host can be asked, what is documented for the models of " +
			"its selector decides.",
	},
	{
		ID: "mig-placement", Default: Error, passes: true, Scope: HostScope, Subjects: configs, Source: srcMIG,
		kind: gpu.KindMIG, check: checkMIGPlacement,
		Sentence: "The MIG instances have places on the GPU beside each other, and beside those in use, which stay where they are.",
	},
	{
		ID: "mig-mode", Default: Error, passes: true, Scope: HostScope, Subjects: configs, Source: srcMIG, kind: gpu.KindMIG, check: checkMIGMode,
		Sentence: "MIG mode is switched only on a GPU that nothing uses, and where that takes a reset of the GPU only if `max_disruption` " +
			"allows it.",
	},
	{
		ID: "vgpu-type-offered", Default: Error, Scope: HostScope, Subjects: configs, Source: srcVGPU, kind: gpu.KindVGPU, check: checkVGPU,
		Sentence: "Every GPU of a config offers the types of vGPU that it wants, which all share it by time slices, on a GPU that is not in " +
			"MIG mode, or all live in GPU instances.",
	},
	{
		ID: "vgpu-same-framebuffer", Default: Error, Scope: HostScope, Subjects: configs, Source: srcVGPU, kind: gpu.KindVGPU, check: checkVGPU,
		Sentence: "The vGPUs of a GPU have one frame buffer size, unless they live in GPU instances, or the GPU has heterogeneous mode and the " +
			"config does not switch it off.",
	},
	{
		ID: "vgpu-capacity", Default: Error, Scope: HostScope, Subjects: configs, Source: srcVGPU, kind: gpu.KindVGPU, check: checkVGPU,
		Sentence: "A GPU has the virtual functions, and the frame buffer or the room for GPU instances, for the number of vGPUs that is wanted " +
			"of it.",
	},
	{
		ID: "vgpu-in-use", Default: Error, passes: true, Scope: HostScope, Subjects: configs, Source: srcVGPU,
		kind: gpu.KindVGPU, check: checkVGPUInUse,
		Sentence: "No vGPU that a VM holds is removed, and virtual functions and MIG mode are switched only on a GPU that nothing uses, also " +
			"when it leaves the config and is put back; a reset for MIG mode only if `max_disruption` allows it.",
	},
	{
		ID: change.VMManager, Default: Error, Scope: HostScope, Subjects: assignments, Source: srcProject,
		check: refusedAs(change.VMManager, "The VMs of the host are not libvirt's to change"),
		Sentence: "A VM of a Linux host is given a vGPU only where libvirt alone manages the VMs; under KubeVirt, Proxmox VE or OpenNebula a " +
			"vGPU can be reserved.",
	},
	{
		ID: change.LibvirtVersion, Default: Error, Scope: HostScope, Subjects: assignments, Source: srcLibvirtNews,
		check:    refusedAs(change.LibvirtVersion, "The host's libvirt is too old"),
		Sentence: "A VM is given a virtual function that NVIDIA's driver keeps only by libvirt 9.7.0 or later; a mediated device by any.",
	},
	{
		ID: "vgpu-referenced", Default: Warning, Lenient: true, Scope: HostScope, Subjects: assignments, Source: srcLibvirt, standing: true,
		check: checkVGPUReferenced,
		Sentence: "The vGPU of an assignment is named by its VM alone: libvirt compares definitions with nothing, and who starts first has it. " +
			"Said by every plan while it is so. What takes a vGPU from a VM that is off is of rule `vgpu-in-use`.",
	},
	{
		ID: change.HostdevManaged, Default: Error, Lenient: true, Scope: HostScope, Subjects: configsAndVMs, Source: srcVGPU,
		kind: gpu.KindVGPU, check: checkHostdevManaged,
		Sentence: "A definition names a vGPU with `managed='no'`: otherwise libvirt takes its function from NVIDIA's driver at the start, and " +
			"the vGPU is lost. Of VMs of others it is a warning.",
	},
	{
		ID: change.VMSaved, Default: Error, Scope: HostScope, Subjects: assignments, Source: srcLibvirt,
		check:    refusedAs(change.VMSaved, "The VM is saved"),
		Sentence: "The vGPU of a VM that has a managed save does not change: it would be restored with the devices that it had.",
	},
	{
		ID: change.VMTransient, Default: Error, Scope: HostScope, Subjects: assignments, Source: srcLibvirt,
		check:    refusedAs(change.VMTransient, "The VM has no stored definition"),
		Sentence: "A VM that is given a vGPU has a stored definition: a transient one is gone when it is off.",
	},
	{
		ID: "mps-supported", Default: Error, Scope: HostScope, Subjects: configs, Source: srcMPS, check: checkMPSSupported,
		Sentence: "Every host of a config with MPS has `nvidia-cuda-mps-control`, and its GPUs take the limits that are wanted and are not in " +
			"compute mode prohibited.",
	},
	{
		ID: "mps-not-on-mig-gpu", Default: Error, Scope: HostScope, Subjects: configs, Source: srcMPS, check: checkMPSNotOnMIG,
		Sentence: "MPS and time slices of whole GPUs are for GPUs that are not in MIG mode; their instances are shared with `mig = { mps | " +
			"time_slicing }`.",
	},
	{
		ID: "mps-one-user", Default: Error, Scope: HostScope, Subjects: configs, Source: srcMPS, check: checkMPSOneUser,
		Sentence: "A config with MPS says whose processes are its clients: one user's (`uid`), while others wait, or those of all users " +
			"(`multi_user`).",
	},
	{
		ID: "mps-in-use", Default: Error, passes: true, Scope: HostScope, Subjects: configs, Source: srcMPS, check: checkMPSInUse,
		Sentence: "No process beside MPS uses a GPU whose compute mode becomes `exclusive_process`, no daemon of others serves it, and clients " +
			"end only if `max_disruption` allows it.",
	},
	{
		ID: "gpu-kept-initialized", Default: Warning, Lenient: true, Scope: HostScope, Subjects: configs, Source: srcPersistence,
		check: checkKeptInitialized,
		Sentence: "A GPU whose compute mode or time slice a config sets is in persistence mode; without it the driver forgets both when the " +
			"last program that has the GPU open ends.",
	},
	{
		ID: "time-slicing-no-isolation", Default: Warning, Lenient: true, Scope: HostScope, Subjects: configsAndShares,
		Source: srcTimeSlicing, check: checkTimeSlicingNoIsolation,
		Sentence: "Time-slicing separates neither memory nor faults, and holds nobody to a limit, unless driver and container toolkit do so " +
			"for memory.",
	},
	{
		ID: "homogeneous-gpus", Default: Error, Lenient: true, Scope: FleetScope, Subjects: configsAndPools, Source: srcAssign,
		check: checkHomogeneousGPUs,
		Sentence: "The GPUs of one config or pool in a cluster, or on its standalone hosts, are of one vendor, family, model and size; driver " +
			"branches that differ, a GPU that does not work, other GPUs of the cluster, and unlike GPUs on Linux hosts are warnings.",
	},
	{
		ID: "homogeneous-layout", Default: Error, Lenient: true, Scope: FleetScope, Subjects: configs, Source: srcPartitioning,
		kind: gpu.KindGPUP, check: checkHomogeneousLayout,
		Sentence: "All GPUs of a cluster have the same partition count; GPUs that no config of the run covers are a warning.",
	},
	{
		ID: "capacity", Default: Error, passes: true, Scope: HostScope, Subjects: allButShares, Source: srcAssign,
		kind: gpu.KindGPUP, check: checkCapacity,
		Sentence: "The host has a partition, or the pool a GPU, for every VM that runs or is started; VMs that are off beyond that are a " +
			"warning. A Linux host has a free vGPU of the type for each VM that is to have one, off or not.",
	},
	{
		ID: failoverHeadroom, Default: Warning, Lenient: true, Scope: FleetScope, Subjects: configsAndVMs, Source: srcClusteredVM,
		kind: gpu.KindGPUP, standing: true, check: checkFailoverHeadroom,
		Sentence: "When one node of a cluster fails, the others have partitions for its running VMs, by their possible owners, pins and " +
			"quotas. Said by every plan while it is so.",
	},
	{
		ID: "partition-in-use", Default: Error, passes: true, Scope: HostScope, Subjects: configs, Source: srcAssign, check: checkPartitionInUse,
		Sentence: "A partition count changes under running VMs only when the config's `max_disruption` and the own assignment of each VM allow " +
			"it.",
	},
	{
		ID: shutdownPermitted, Default: Error, Fixed: true, Scope: FleetScope, Subjects: configs, Source: srcProject,
		kind: gpu.KindGPUP, check: checkShutdownPermitted,
		Sentence: "No VM is stopped for a partition config by a permission that the same run takes back from its assignment. No level lifts it.",
	},
	{
		ID: maintenanceWindow, Default: Error, Scope: FleetScope, Subjects: configsAndVMs, Source: srcProject, check: checkMaintenanceWindow,
		Sentence: "What disturbs a workload is done inside of the provider's `maintenance_window`; a plan outside of it is a warning, an apply " +
			"an error before the first step.",
	},
	{
		ID: "live-migration-support", Default: Warning, Lenient: true, Scope: HostScope, Subjects: configs, Source: srcPartitioning,
		kind: gpu.KindGPUP, check: checkLiveMigrationSupport,
		Sentence: "The GPUs of cluster nodes support incoming live migration.",
	},
	{
		ID: "pool-counts", Default: Warning, Lenient: true, Scope: FleetScope, Subjects: pools, Source: srcClusteredVM, check: checkPoolCounts,
		Sentence: "A pool has the same number of GPUs on every node of a cluster.",
	},
	{
		ID: "pool-covers-possible-owners", Default: Warning, Lenient: true, Scope: FleetScope, Subjects: poolsAndVMs,
		Source: srcClusteredVM, check: checkPoolCoversOwners,
		Sentence: "The pool of a clustered VM stands on every node that may own the VM.",
	},
	{
		ID: "vm-and-gpu-same-host", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcAssign, check: checkSameHost,
		Sentence: "A VM and its GPU are on the same host.",
	},
	{
		ID: "pinned-gpu-on-clustered-vm", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcAssign,
		check:    checkPinnedOnClustered,
		Sentence: "The partition of a clustered VM is not pinned to a GPU; devices of one node are a warning.",
	},
	{
		ID: "generation-2", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcPartitioning, check: checkGeneration2,
		Sentence: "A VM with a partition is of generation 2.",
	},
	{
		ID: "supported-guest", Default: Warning, Lenient: true, Scope: HostScope, Subjects: assignments, Source: srcPartitioning,
		check: checkSupportedGuest,
		Sentence: "A VM with a partition runs a guest that Microsoft lists for it: Windows 10 or later, Windows Server 2019 or later, or " +
			"Ubuntu 18.04, 20.04 or 22.04 LTS; later ones pass, too. Of a VM that is off the guest is not known.",
	},
	{
		ID: "vram-matches-partition", Default: Error, passes: true, Scope: HostScope, Subjects: assignments,
		Source: srcAssign, check: checkVRAMMatchesPartition,
		Sentence: "A partition has the memory that `vram_mib` asserts, and the quotas fit into it in the order minimum, optimal, maximum.",
	},
	{
		ID: "partition-of-config", Default: Error, passes: true, Scope: HostScope, Subjects: configsAndVMs,
		Source: srcAssign, kind: gpu.KindGPUP, check: checkPartitionOfConfig,
		Sentence: "The config of a partition has a GPU on every host where the VM may run; all GPUs there that a clustered VM may get a " +
			"partition of give the same size. A VM of a standalone host is pinned to a GPU of the config instead.",
	},
	{
		ID: "vm-must-be-off", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcAssign, check: checkVMMustBeOff,
		Sentence: "A VM must be off before its devices change, unless its assignment allows a shutdown.",
	},
	{
		ID: "vm-settings", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcPlanDDA, check: checkVMSettings,
		Sentence: "A VM with whole GPUs has static memory, enough memory-mapped IO space and a stop action other than `save`; standard " +
			"checkpoints, and dynamic memory of a VM with a partition, are warnings.",
	},
	{
		ID: "offline-action-for-cluster", Default: Error, Scope: HostScope, Subjects: assignments, Source: srcClusteredVM,
		check:    checkOfflineAction,
		Sentence: "`offline_action` is set for clustered VMs only; a clustered VM with a GPU whose action is not `force_shutdown` is a warning.",
	},
	{
		ID: "share-name", Default: Error, Scope: HostScope, Subjects: shares, Source: srcCDI, check: checkShareRoom,
		Sentence: "The name of a share is one that CDI takes for a device: letters, digits, `_`, `-`, `.` and `:`, a letter or a digit at both " +
			"ends.",
	},
	{
		ID: fractionNotInMode, Default: Error, passes: true, Scope: HostScope, Subjects: shares, Source: srcMPS, check: checkShareRoom,
		Sentence: "A share wants a part that its device can give: thread percentages and priorities with MPS only, and no more memory than the " +
			"device has.",
	},
	{
		ID: sharePlacement, Default: Error, passes: true, Scope: HostScope, Subjects: allButVMs, Source: srcProject, check: checkSharesUnder,
		Sentence: "There is room for a share beside those that are placed and those that the run plans, and no config or pool takes away what " +
			"a placed share uses; what could not be proven is a warning.",
	},
	{
		ID: oversubscription, Default: Error, passes: true, Scope: HostScope, Subjects: configsAndShares, Source: srcMPS, check: checkSharesUnder,
		Sentence: "Memory limits and thread percentages of the shares of a device add up to no more than the `oversubscription` of its config; " +
			"what is beyond the device within that is a warning.",
	},
	{
		ID: mpsClientLimit, Default: Error, passes: true, Scope: HostScope, Subjects: configsAndShares, Source: srcMPS, check: checkSharesUnder,
		Sentence: "A device has at most as many shares as MPS accepts clients: 48 on Volta and later, 16 on older GPUs; on a MIG instance, in " +
			"proportion to its compute slices.",
	},
	{
		ID: "pool-one-mode", Default: Error, Lenient: true, passes: true, Scope: FleetScope, Subjects: configsAndPools,
		Source: srcProject, check: checkPoolOneMode,
		Sentence: "All GPUs of a pool on Linux hosts that partition configs cover are shared in one way: whole, by MIG, by MPS or by " +
			"time-slicing.",
	},
	{
		ID: poolQuota, Default: Error, passes: true, Scope: HostScope, Subjects: poolsAndShares, Source: srcProject, check: checkPoolQuota,
		Sentence: "The shares of a label stay within its quota of the pool, over all hosts; a quota below what is placed already, and a label " +
			"without one, are warnings.",
	},
	{
		ID: Feasible, Default: Error, Scope: FleetScope, Subjects: everyKindOfClaim, Source: srcProject, check: checkFeasible,
		Sentence: "The host can do what the plan wants of it, step by step; said where no other rule says it.",
	},
}
